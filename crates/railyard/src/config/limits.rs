//! `[limits]`: hard caps on all calls together, and on those to one endpoint. A rail's stand with the rail.

use std::collections::BTreeMap;

use railyard_core::job::endpoint_of;
use railyard_node::LimitsOptions;
use railyard_rail::LimitOptions;
use serde::Deserialize;

use super::Problems;

/// `[limits]`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Limits {
    /// Starts of all calls together in any window; by default no limit.
    pub(crate) starts: Option<u32>,
    /// Milliseconds in that window.
    pub(crate) window_ms: u32,
    /// Limits by endpoint, `scheme://host:port`.
    pub(crate) endpoints: BTreeMap<String, LimitOptions>,
}

impl Default for Limits {
    fn default() -> Self {
        Self { starts: None, window_ms: LimitOptions::window_ms(), endpoints: BTreeMap::new() }
    }
}

impl Limits {
    /// For the node.
    pub(super) fn options(&self) -> LimitsOptions {
        LimitsOptions {
            global: self.global().map(|limit| limit.limit()),
            endpoints: self.endpoints.iter().map(|(name, limit)| (name.clone(), limit.limit())).collect(),
        }
    }

    pub(super) fn check(&self, problems: &mut Problems) {
        let global = LimitOptions { starts: self.starts.unwrap_or(1), window_ms: self.window_ms };
        problems.extend(global.check("limits"));
        for (endpoint, limit) in &self.endpoints {
            let key = format!("limits.endpoints.{endpoint}");
            if endpoint_of(endpoint).ok().as_ref() != Some(endpoint) {
                problems.add(&key, "is not scheme://host:port, with the port written out");
            }
            problems.extend(limit.check(&key));
        }
    }

    fn global(&self) -> Option<LimitOptions> {
        Some(LimitOptions { starts: self.starts?, window_ms: self.window_ms })
    }
}
