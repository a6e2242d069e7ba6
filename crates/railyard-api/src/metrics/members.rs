//! The cluster as the database knows it: every node shows the same, so that one that hangs is seen as well.

use std::collections::BTreeMap;

use prometheus::{IntGauge, IntGaugeVec, Opts, Registry};
use railyard_store::cluster::{ClusterRow, MemberRow};

use super::figures::{OTHER, count};

/// Members shown by name, in the order of their names. Names are configured, and a cluster has a handful.
const NAMED_MAX: usize = 64;

/// What a member is.
const STATES: [&str; 3] = ["good", "leaving", "lapsed"];

pub(super) struct Members {
    members: IntGaugeVec,
    unowned: IntGauge,
    partitions: IntGaugeVec,
    lease_remaining: IntGaugeVec,
}

impl Members {
    pub(super) fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let by = |name: &str, help: &str, label: &str| -> Result<IntGaugeVec, prometheus::Error> {
            let gauge = IntGaugeVec::new(Opts::new(name, help), &[label])?;
            registry.register(Box::new(gauge.clone()))?;
            Ok(gauge)
        };
        let unowned = IntGauge::new("railyard_partitions_unowned", "partitions that no member owns")?;
        registry.register(Box::new(unowned.clone()))?;
        let lease = "how long a member's lease is good yet, in milliseconds; negative once it has lapsed";
        Ok(Self {
            members: by("railyard_members", "members of the cluster, by what they are", "state")?,
            unowned,
            partitions: by("railyard_member_partitions", "partitions that a member owns", "node")?,
            lease_remaining: by("railyard_member_lease_remaining_ms", lease, "node")?,
        })
    }

    pub(super) fn show(&self, read: &ClusterRow) {
        self.unowned.set(read.free.saturating_add(read.orphaned));
        for state in STATES {
            let members = read.members.iter().filter(|member| state_of(member) == state).count();
            self.members.with_label_values(&[state]).set(count(members as u64));
        }
        self.partitions.reset();
        self.lease_remaining.reset();
        // Several may be under one name: their partitions together, and the lease that ends first.
        let mut shown: BTreeMap<&str, (i64, i64)> = BTreeMap::new();
        for (index, member) in read.members.iter().enumerate() {
            let name = if index < NAMED_MAX { member.name.as_str() } else { OTHER };
            let (partitions, lease_ms) = shown.entry(name).or_insert((0, i64::MAX));
            *partitions += member.partitions;
            *lease_ms = member.lease_ms.min(*lease_ms);
        }
        for (name, (partitions, lease_ms)) in shown {
            self.partitions.with_label_values(&[name]).set(partitions);
            self.lease_remaining.with_label_values(&[name]).set(lease_ms);
        }
    }
}

fn state_of(member: &MemberRow) -> &'static str {
    match member {
        MemberRow { lease_ms: ..0, .. } => "lapsed",
        MemberRow { leaving: true, .. } => "leaving",
        MemberRow { .. } => "good",
    }
}
