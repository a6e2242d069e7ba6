//! What is counted of scheduled items on their way to the outbox (S0's names).

use prometheus::{Histogram, HistogramOpts, IntCounter, Registry};

use super::counter;

/// Cheap to clone.
#[derive(Clone)]
pub(crate) struct DispatchMetrics {
    pub(crate) claimed: IntCounter,
    pub(crate) started: IntCounter,
    pub(crate) start_failures: IntCounter,
    pub(crate) stale_recovered: IntCounter,
    pub(crate) dead_letters: IntCounter,
    pub(crate) batches_halved: IntCounter,
    pub(crate) cycle_seconds: Histogram,
}

impl DispatchMetrics {
    /// Makes and registers them.
    pub(super) fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let cycle =
            HistogramOpts::new("dispatch_cycle_duration_seconds", "a dispatcher's cycle, from its turn to its end")
                .buckets(vec![0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0]);
        let metrics = Self {
            claimed: counter("dispatch_batch_claimed_total", "scheduled items that were claimed")?,
            started: counter("dispatch_workflow_started_total", "scheduled items that were handed over to the outbox")?,
            start_failures: counter(
                "dispatch_workflow_start_failures_total",
                "scheduled items that could not be started",
            )?,
            stale_recovered: counter(
                "dispatch_stale_recovered_total",
                "claims of dead dispatchers that are READY again",
            )?,
            dead_letters: counter(
                "dispatch_dead_letter_total",
                "scheduled items that were given up before they were handed over",
            )?,
            batches_halved: counter(
                "dispatch_batches_halved_total",
                "batches that the database would not take, after which half as many items are claimed at a time",
            )?,
            cycle_seconds: Histogram::with_opts(cycle)?,
        };
        for one in [
            &metrics.claimed,
            &metrics.started,
            &metrics.start_failures,
            &metrics.stale_recovered,
            &metrics.dead_letters,
            &metrics.batches_halved,
        ] {
            registry.register(Box::new(one.clone()))?;
        }
        registry.register(Box::new(metrics.cycle_seconds.clone()))?;
        Ok(metrics)
    }
}
