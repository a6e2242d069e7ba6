//! What a node counts. config/metrics.md lists all names.

mod ended;
mod links;

use prometheus::{Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, Opts, Registry};

pub(crate) use ended::{End, EndedJobs};
pub(crate) use links::LinkMetrics;

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
    pub(crate) groups_resident: IntGauge,
    pub(crate) lease_remaining_ms: IntGauge,
    pub(crate) partitions_owned: IntGauge,
    pub(crate) lease_losses: IntCounter,
    pub(crate) takeovers: IntCounter,
    pub(crate) partitions_given: IntCounter,
    pub(crate) late_results: IntCounterVec,
    pub(crate) repairs: IntCounter,
    pub(crate) quarantined: IntCounter,
    pub(crate) database_errors: IntCounterVec,
    pub(crate) actor_restarts: IntCounterVec,
    pub(crate) settle_batch: Histogram,
    pub(crate) oldest_snapshot_seconds: IntGauge,
    pub(crate) links: LinkMetrics,
}

impl Metrics {
    /// Makes and registers them.
    pub(crate) fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
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
            groups_resident: gauge("railyard_groups_resident", "group actors, resting ones included")?,
            lease_remaining_ms: gauge(
                "railyard_lease_remaining_ms",
                "how long this node may act yet, in milliseconds",
            )?,
            partitions_owned: gauge("railyard_partitions_owned", "partitions that this node owns")?,
            lease_losses: counter("railyard_lease_losses_total", "leases that lapsed while the node was running")?,
            takeovers: counter("railyard_takeovers_total", "dead members removed by this node")?,
            partitions_given: counter("railyard_partitions_given_total", "partitions handed to other living nodes")?,
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
            links: LinkMetrics::register(registry)?,
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
            &self.repairs,
            &self.quarantined,
        ] {
            registry.register(Box::new(one.clone()))?;
        }
        for one in [
            &self.calls_in_flight,
            &self.lanes_busy,
            &self.groups_resident,
            &self.lease_remaining_ms,
            &self.partitions_owned,
            &self.oldest_snapshot_seconds,
        ] {
            registry.register(Box::new(one.clone()))?;
        }
        for one in [&self.attempts, &self.late_results, &self.database_errors, &self.actor_restarts] {
            registry.register(Box::new(one.clone()))?;
        }
        registry.register(Box::new(self.ended_jobs.ended.clone()))?;
        registry.register(Box::new(self.dispatch_latency_ms.clone()))?;
        registry.register(Box::new(self.settle_batch.clone()))?;
        // Every state is there from the first scrape on: a rate needs its zero.
        for state in railyard_core::attempt::AttemptState::ALL {
            self.attempts.with_label_values(&[state.as_str()]);
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
