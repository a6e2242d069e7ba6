//! The database's figures as gauges. Cardinality is bounded here: the store names so many groups, the rest is `other`.

use prometheus::{Gauge, GaugeVec, IntGauge, IntGaugeVec, Opts, Registry};
use railyard_core::hold::HoldKind;
use railyard_core::payment::QueueStatus;
use railyard_store::cluster::ClusterRow;
use railyard_store::gauges::Gauges;

use super::members::Members;

/// The name of everything that has no name of its own.
pub(super) const OTHER: &str = "other";

pub(super) struct Figures {
    pending_depth: IntGauge,
    pending_held: IntGauge,
    oldest_pending_age: Gauge,
    dlq_depth: IntGauge,
    stuck: IntGauge,
    in_flight: IntGauge,
    scheduled: IntGauge,
    database_up: IntGauge,
    queue_depth: IntGaugeVec,
    held_groups: IntGaugeVec,
    group_depth: IntGaugeVec,
    group_head_age: GaugeVec,
    group_in_flight: IntGaugeVec,
    group_state: IntGaugeVec,
    members: Members,
}

impl Figures {
    pub(super) fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let whole = |name: &str, help: &str| -> Result<IntGauge, prometheus::Error> {
            let gauge = IntGauge::new(name, help)?;
            registry.register(Box::new(gauge.clone()))?;
            Ok(gauge)
        };
        let whole_by = |name: &str, help: &str, labels: &[&str]| -> Result<IntGaugeVec, prometheus::Error> {
            let gauge = IntGaugeVec::new(Opts::new(name, help), labels)?;
            registry.register(Box::new(gauge.clone()))?;
            Ok(gauge)
        };
        let oldest_pending_age = Gauge::new("oldest_pending_age_seconds", "age of the oldest message that waits")?;
        registry.register(Box::new(oldest_pending_age.clone()))?;
        let help = "age of the oldest message that waits in a group";
        let group_head_age = GaugeVec::new(Opts::new("railyard_group_head_age_seconds", help), &["group"])?;
        registry.register(Box::new(group_head_age.clone()))?;
        Ok(Self {
            pending_depth: whole("outbox_pending_depth", "messages that wait, held ones among them")?,
            pending_held: whole("railyard_pending_held", "of them, those in groups that are held")?,
            oldest_pending_age,
            dlq_depth: whole("dlq_depth", "jobs that ended in ERROR and are still kept")?,
            stuck: whole("stuck_dispatching_count", "messages in flight more than 30 s past their deadline")?,
            in_flight: whole("railyard_in_flight", "messages in flight, on all nodes")?,
            scheduled: whole("railyard_scheduled_depth", "jobs that wait for their date")?,
            database_up: whole("railyard_database_up", "1 if the last reading of the database succeeded")?,
            queue_depth: whole_by("dispatch_queue_depth", "scheduled items that are not completed", &["status"])?,
            held_groups: whole_by("railyard_held_groups", "groups that are held, by reason", &["kind"])?,
            group_depth: whole_by("railyard_group_depth", "messages that wait in a group", &["group"])?,
            group_head_age,
            group_in_flight: whole_by("railyard_group_in_flight", "messages in flight of a group", &["group"])?,
            group_state: whole_by("railyard_group_state", "1 for the state that a group is in", &["group", "state"])?,
            members: Members::register(registry)?,
        })
    }

    pub(super) fn database_down(&self) {
        self.database_up.set(0);
    }

    pub(super) fn show(&self, read: &Gauges, cluster: &ClusterRow) {
        self.database_up.set(1);
        self.members.show(cluster);
        self.pending_depth.set(count(read.pending_depth));
        self.pending_held.set(count(read.pending_held));
        self.oldest_pending_age.set(read.oldest_pending_age_s);
        self.dlq_depth.set(count(read.dlq_depth));
        self.stuck.set(count(read.stuck));
        self.in_flight.set(count(read.in_flight));
        self.scheduled.set(count(read.scheduled));
        for status in QueueStatus::ALL.into_iter().filter(|status| *status != QueueStatus::Completed) {
            let queued = read.queued.iter().find(|(queued, _)| *queued == status).map_or(0, |(_, count)| *count);
            self.queue_depth.with_label_values(&[status.as_str()]).set(count(queued));
        }
        for kind in HoldKind::ALL {
            let held = read.held.iter().find(|(held, _)| *held == kind).map_or(0, |(_, count)| *count);
            self.held_groups.with_label_values(&[kind.as_str()]).set(count(held));
        }
        self.group_depth.reset();
        self.group_head_age.reset();
        self.group_in_flight.reset();
        self.group_state.reset();
        for group in &read.groups {
            let name = group.group.as_str();
            self.group_depth.with_label_values(&[name]).set(count(group.depth));
            self.group_head_age.with_label_values(&[name]).set(group.head_age_s);
            self.group_in_flight.with_label_values(&[name]).set(count(group.in_flight));
            self.group_state.with_label_values(&[name, group.state.as_str()]).set(1);
        }
        // A group of that very name is counted with the rest rather than shown as the rest.
        let named_other = read.groups.iter().find(|group| group.group.as_str() == OTHER);
        let (depth, out) = named_other.map_or((0, 0), |group| (group.depth, group.in_flight));
        let age = named_other.map_or(0.0, |group| group.head_age_s).max(read.other.head_age_s);
        self.group_depth.with_label_values(&[OTHER]).set(count(read.other.depth.saturating_add(depth)));
        self.group_head_age.with_label_values(&[OTHER]).set(age);
        self.group_in_flight.with_label_values(&[OTHER]).set(count(read.other.in_flight.saturating_add(out)));
    }
}

pub(super) fn count(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
