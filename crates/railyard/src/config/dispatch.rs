//! `[dispatch]`: how a node looks for work and how much it takes.

use serde::Deserialize;

use super::Problems;

/// `[dispatch]`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Dispatch {
    /// Milliseconds between two looks for work that no notice announced.
    pub(crate) poll_ms: u32,
    /// Milliseconds over which notices are gathered into one look.
    pub(crate) debounce_ms: u32,
    /// Calls at once from this node.
    pub(crate) calls_in_flight: usize,
    /// Messages that the node holds at once, waiting or under way.
    pub(crate) credits: usize,
    /// Groups with an actor of their own; more wait as rows.
    pub(crate) resident_groups: usize,
    /// Seconds of idleness after which a group's actor goes.
    pub(crate) idle_group_s: u32,
    /// Milliseconds added to a call's timeout before another node may heal it.
    pub(crate) slack_ms: u32,
}

impl Default for Dispatch {
    fn default() -> Self {
        Self {
            poll_ms: 500,
            debounce_ms: 25,
            calls_in_flight: 256,
            credits: 1000,
            resident_groups: 20_000,
            idle_group_s: 10,
            slack_ms: 5000,
        }
    }
}

impl Dispatch {
    pub(super) fn check(&self, problems: &mut Problems) {
        problems.range("dispatch.poll_ms", &self.poll_ms, 250..=1000);
        problems.range("dispatch.debounce_ms", &self.debounce_ms, 25..=50);
        problems.range("dispatch.calls_in_flight", &self.calls_in_flight, 1..=10_000);
        problems.range("dispatch.credits", &self.credits, 1..=100_000);
        problems.range("dispatch.resident_groups", &self.resident_groups, 1..=1_000_000);
        problems.range("dispatch.idle_group_s", &self.idle_group_s, 1..=3600);
        problems.range("dispatch.slack_ms", &self.slack_ms, 100..=60_000);
        if self.credits < self.calls_in_flight {
            problems.add("dispatch.credits", "is less than dispatch.calls_in_flight: some callers would never work");
        }
    }
}
