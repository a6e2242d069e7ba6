//! `[node]`, `[lease]`, `[reaper]`, `[cache]`: how a node lives in the cluster and what it does about dead ones.

use railyard_core::limits::TIMEOUT_S_MAX;
use serde::Deserialize;

use super::Problems;

/// `[node]`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Node {
    /// Shown in logs, tables and the record; the host's name if not set.
    pub(crate) name: Option<String>,
    /// Seconds between SIGTERM and the end: longer than the longest call.
    pub(crate) grace_s: u32,
}

impl Default for Node {
    fn default() -> Self {
        Self { name: None, grace_s: 100 }
    }
}

impl Node {
    pub(super) fn check(&self, problems: &mut Problems) {
        if self.name.as_deref().is_some_and(|name| name.trim().is_empty() || name.len() > 200) {
            problems.add("node.name", "is blank or longer than 200 bytes");
        }
        problems.range("node.grace_s", &self.grace_s, 1..=3600);
        if self.grace_s <= TIMEOUT_S_MAX {
            problems.add(
                "node.grace_s",
                format_args!("{} s do not outlast the longest call, {TIMEOUT_S_MAX} s", self.grace_s),
            );
        }
    }
}

/// `[lease]`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Lease {
    /// How long a silent node counts as alive, in seconds.
    pub(crate) lease_s: u32,
    /// How often it says so.
    pub(crate) renewal_s: u32,
}

impl Default for Lease {
    fn default() -> Self {
        Self { lease_s: 15, renewal_s: 5 }
    }
}

impl Lease {
    pub(super) fn check(&self, problems: &mut Problems) {
        problems.range("lease.lease_s", &self.lease_s, 3..=300);
        problems.range("lease.renewal_s", &self.renewal_s, 1..=100);
        if u64::from(self.lease_s) < 3 * u64::from(self.renewal_s) {
            let what = format!(
                "{} s are less than three renewals (lease.renewal_s = {}): one lost packet would lose the lease",
                self.lease_s, self.renewal_s
            );
            problems.add("lease.lease_s", what);
        }
    }
}

/// `[reaper]`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Reaper {
    /// Seconds between two rounds of the rule by age (S2).
    pub(crate) interval_s: u32,
    /// Age in seconds after which a call that nobody owns is healed whatever else is known.
    pub(crate) zombie_after_s: u32,
    /// Heals of one message after which it is parked for a person.
    pub(crate) zombies_max: u32,
}

impl Default for Reaper {
    fn default() -> Self {
        Self { interval_s: 60, zombie_after_s: 120, zombies_max: 3 }
    }
}

impl Reaper {
    pub(super) fn check(&self, problems: &mut Problems) {
        problems.range("reaper.interval_s", &self.interval_s, 1..=3600);
        problems.range("reaper.zombie_after_s", &self.zombie_after_s, 1..=86_400);
        problems.range("reaper.zombies_max", &self.zombies_max, 1..=100);
        if self.zombie_after_s <= TIMEOUT_S_MAX {
            let what = format!("{} s do not outlast the longest call, {TIMEOUT_S_MAX} s", self.zombie_after_s);
            problems.add("reaper.zombie_after_s", what);
        }
    }
}

/// `[cache]`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Cache {
    /// Seconds after which credentials and switches are read anew, should no notice have come.
    pub(crate) ttl_s: u32,
}

impl Default for Cache {
    fn default() -> Self {
        Self { ttl_s: 5 }
    }
}

impl Cache {
    pub(super) fn check(&self, problems: &mut Problems) {
        problems.range("cache.ttl_s", &self.ttl_s, 1..=300);
    }
}
