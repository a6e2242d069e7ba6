//! What is counted of the links between nodes.

use prometheus::{IntCounter, IntCounterVec, IntGauge, Registry};

use super::{counter, counters, gauge};
use crate::links::refused::Refused;
use crate::links::stream::Ended;

/// Cheap to clone.
#[derive(Clone)]
pub(crate) struct LinkMetrics {
    pub(crate) up: IntGauge,
    pub(crate) dial_failures: IntCounterVec,
    pub(crate) refused: IntCounterVec,
    pub(crate) heartbeats_missed: IntCounter,
    pub(crate) ended: IntCounterVec,
}

impl LinkMetrics {
    /// Makes and registers them, each reason with its zero.
    pub(super) fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let metrics = Self {
            up: gauge("railyard_links_up", "linked peers")?,
            dial_failures: counters("railyard_link_dial_failures_total", "dials that brought no link", "reason")?,
            refused: counters("railyard_link_refused_total", "connections that were not let in", "reason")?,
            heartbeats_missed: counter(
                "railyard_link_heartbeats_missed_total",
                "heartbeats of peers that did not come",
            )?,
            ended: counters("railyard_links_ended_total", "links that ended", "reason")?,
        };
        registry.register(Box::new(metrics.up.clone()))?;
        registry.register(Box::new(metrics.heartbeats_missed.clone()))?;
        for one in [&metrics.dial_failures, &metrics.refused, &metrics.ended] {
            registry.register(Box::new(one.clone()))?;
        }
        for reason in Refused::DIALS {
            metrics.dial_failures.with_label_values(&[reason.as_str()]);
        }
        for reason in Refused::HANDSHAKES {
            metrics.refused.with_label_values(&[reason.as_str()]);
        }
        for reason in Ended::ALL {
            metrics.ended.with_label_values(&[reason.as_str()]);
        }
        Ok(metrics)
    }
}
