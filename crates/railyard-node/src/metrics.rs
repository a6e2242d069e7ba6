//! What a node counts. config/metrics.md lists all names.

mod dispatch;
mod ended;
mod groups;
mod lease;
mod links;

use std::time::Duration;

use prometheus::{Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, Opts, Registry};

use crate::actors::{pipeline, root};
use crate::lease::Lease;

pub(crate) use dispatch::DispatchMetrics;
pub(crate) use ended::{End, EndedJobs};
pub(crate) use groups::{Gauged, GroupMetrics};
pub(crate) use links::LinkMetrics;

/// Who sends statements.
const SPEAKERS: [&str; 13] = [
    "dispatch",
    "dispatcher",
    "cache_keeper",
    "lease_keeper",
    "listener",
    "maintenance",
    "poller",
    "reaper",
    "settler",
    "limiter",
    "governor",
    "pool_keeper",
    "group_actor",
];
/// What a late result turned out to be: the words of `railyard_store::work::Late` but for a repeat of what is known.
const LATE_KINDS: [&str; 6] = ["failure", "flagged", "taken", "ended", "unknown", "foreign"];

/// The node's metrics. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Metrics {
    pub(crate) notify_wakeups: IntCounter,
    pub(crate) claim_batches: IntCounter,
    pub(crate) dispatch_latency_ms: HistogramVec,
    pub(crate) attempts: IntCounterVec,
    pub(crate) ended_jobs: EndedJobs,
    pub(crate) reaper_requeues: IntCounter,
    pub(crate) calls_in_flight: IntGauge,
    pub(crate) lanes_busy: IntGauge,
    pub(crate) groups: GroupMetrics,
    pub(crate) lease_losses: IntCounter,
    pub(crate) takeovers: IntCounter,
    pub(crate) partitions_given: IntCounter,
    pub(crate) partitions_taken: IntCounter,
    pub(crate) late_results: IntCounterVec,
    pub(crate) repairs: IntCounter,
    pub(crate) quarantined: IntCounter,
    pub(crate) database_errors: IntCounterVec,
    pub(crate) actor_restarts: IntCounterVec,
    pub(crate) settle_batch: Histogram,
    pub(crate) oldest_snapshot_seconds: IntGauge,
    pub(crate) permits_granted: IntCounterVec,
    pub(crate) permits_burned: IntCounterVec,
    pub(crate) links: LinkMetrics,
    pub(crate) dispatch: DispatchMetrics,
}

impl Metrics {
    /// Makes and registers them, those of a lease of this length among them.
    pub(crate) fn register(registry: &Registry, lease: &Lease, length: Duration) -> Result<Self, prometheus::Error> {
        registry.register(Box::new(lease::LeaseMetrics::new(lease.clone(), length)?))?;
        let latency =
            HistogramOpts::new("dispatch_latency_ms", "time of a call to its rail, in milliseconds").buckets(vec![
                1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0, 2500.0, 5000.0, 10000.0, 30000.0, 90000.0,
            ]);
        let batch = HistogramOpts::new("railyard_settle_batch_size", "begins and outcomes in one transaction")
            .buckets(vec![1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0]);
        let metrics = Self {
            notify_wakeups: counter("notify_wakeups_total", "wake-ups of the poller by NOTIFY, after debouncing")?,
            claim_batches: counter("claim_batches_total", "transactions that began at least one message")?,
            dispatch_latency_ms: HistogramVec::new(latency, &["rail"])?,
            attempts: counters("attempts_total", "attempts by the state they ended in", "state")?,
            ended_jobs: EndedJobs::new()?,
            reaper_requeues: counter("reaper_requeues_total", "in-flight rows healed: outcome unknown")?,
            calls_in_flight: gauge("railyard_calls_in_flight", "calls that are running")?,
            lanes_busy: gauge("railyard_lanes_busy", "lanes with work in memory")?,
            groups: GroupMetrics::register(registry)?,
            lease_losses: counter("railyard_lease_losses_total", "leases that lapsed while the node was running")?,
            takeovers: counter("railyard_takeovers_total", "dead members removed by this node")?,
            partitions_given: counter("railyard_partitions_given_total", "partitions handed to other living nodes")?,
            partitions_taken: counter("railyard_partitions_taken_total", "free partitions that this node took")?,
            late_results: counters(
                "railyard_late_results_total",
                "results that came after their attempt was healed",
                "kind",
            )?,
            repairs: counter("railyard_repairs_total", "groups that discovery had lost: every one is a bug")?,
            quarantined: counter(
                "railyard_quarantined_total",
                "outcomes that the database refused; their groups are held",
            )?,
            database_errors: counters(
                "railyard_database_errors_total",
                "failed statements by the actor that sent them",
                "actor",
            )?,
            actor_restarts: counters("railyard_actor_restarts_total", "actors restarted by their supervisor", "actor")?,
            settle_batch: Histogram::with_opts(batch)?,
            oldest_snapshot_seconds: gauge(
                "railyard_oldest_snapshot_seconds",
                "age of the oldest transaction that keeps dead rows alive",
            )?,
            permits_granted: counters("railyard_permits_granted_total", "slots that a limit gave this node", "limit")?,
            permits_burned: counters("railyard_permits_burned_total", "of them, those that no call used", "limit")?,
            links: LinkMetrics::register(registry)?,
            dispatch: DispatchMetrics::register(registry)?,
        };
        metrics.enter(registry)?;
        Ok(metrics)
    }

    fn enter(&self, registry: &Registry) -> Result<(), prometheus::Error> {
        for one in [
            &self.notify_wakeups,
            &self.claim_batches,
            &self.reaper_requeues,
            &self.lease_losses,
            &self.takeovers,
            &self.partitions_given,
            &self.partitions_taken,
            &self.repairs,
            &self.quarantined,
        ] {
            registry.register(Box::new(one.clone()))?;
        }
        for one in [&self.calls_in_flight, &self.lanes_busy, &self.oldest_snapshot_seconds] {
            registry.register(Box::new(one.clone()))?;
        }
        for one in [
            &self.attempts,
            &self.late_results,
            &self.database_errors,
            &self.actor_restarts,
            &self.permits_granted,
            &self.permits_burned,
        ] {
            registry.register(Box::new(one.clone()))?;
        }
        registry.register(Box::new(self.ended_jobs.ended.clone()))?;
        registry.register(Box::new(self.dispatch_latency_ms.clone()))?;
        registry.register(Box::new(self.settle_batch.clone()))?;
        // Each is there from the first scrape on: a rate needs its zero.
        for state in railyard_core::attempt::AttemptState::ALL {
            self.attempts.with_label_values(&[state.as_str()]);
        }
        self.permits_granted.with_label_values(&["global"]);
        self.permits_burned.with_label_values(&["global"]);
        for kind in LATE_KINDS {
            self.late_results.with_label_values(&[kind]);
        }
        for actor in SPEAKERS {
            self.database_errors.with_label_values(&[actor]);
        }
        for actor in
            root::NAMES.iter().chain(&pipeline::NAMES).chain(&["group_actor", "rail_caller", "limiter", "dispatcher"])
        {
            self.actor_restarts.with_label_values(&[actor]);
        }
        Ok(())
    }
}

fn counter(name: &str, help: &str) -> Result<IntCounter, prometheus::Error> {
    IntCounter::with_opts(Opts::new(name, help))
}

fn counters(name: &str, help: &str, label: &str) -> Result<IntCounterVec, prometheus::Error> {
    IntCounterVec::new(Opts::new(name, help), &[label])
}

fn gauge(name: &str, help: &str) -> Result<IntGauge, prometheus::Error> {
    IntGauge::with_opts(Opts::new(name, help))
}
