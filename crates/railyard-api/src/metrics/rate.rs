//! S1's six metrics. The counters are the store's: whoever assigns slots in this process is counted there.

use std::time::Duration;

use prometheus::{Histogram, HistogramOpts, IntCounter, Registry};
use railyard_store::rate::Counts;

/// Seconds of one assignment: the runbook asks when the slowest hundredth passes a second.
const DURATION_S: [f64; 13] = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0];
/// Windows: a look-ahead of 200 is the source's limit.
const DEPTH: [f64; 14] =
    [0.0, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 150.0, 200.0, 500.0, 1000.0, 10_000.0, 100_000.0];

pub(super) struct RateMetrics {
    duration: Histogram,
    depth: Histogram,
    contention: IntCounter,
    hits: IntCounter,
    misses: IntCounter,
    failures: IntCounter,
}

impl RateMetrics {
    pub(super) fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let histogram = |name: &str, help: &str, buckets: &[f64]| -> Result<Histogram, prometheus::Error> {
            let made = Histogram::with_opts(HistogramOpts::new(name, help).buckets(buckets.to_vec()))?;
            registry.register(Box::new(made.clone()))?;
            Ok(made)
        };
        let counter = |name: &str, help: &str| -> Result<IntCounter, prometheus::Error> {
            let made = IntCounter::new(name, help)?;
            registry.register(Box::new(made.clone()))?;
            Ok(made)
        };
        let (duration, depth) =
            ("rate_limiter_slot_assignment_duration_seconds", "rate_limiter_window_lookahead_depth");
        Ok(Self {
            duration: histogram(duration, "how long an assignment took", &DURATION_S)?,
            depth: histogram(depth, "windows from the one asked for to the one found", &DEPTH)?,
            contention: counter("rate_limiter_window_contention_total", "windows that were found locked")?,
            hits: counter("rate_limiter_config_cache_hits_total", "configurations that were remembered")?,
            misses: counter("rate_limiter_config_cache_misses_total", "configurations that had to be read")?,
            failures: counter("rate_limiter_slot_assignment_failures_total", "assignments that found nothing free")?,
        })
    }

    pub(super) fn assigned(&self, took: Duration, depth: Option<u64>) {
        self.duration.observe(took.as_secs_f64());
        if let Some(depth) = depth {
            self.depth.observe(depth as f64);
        }
    }

    /// Before each scrape, by one scrape at a time.
    pub(super) fn show(&self, counts: Counts) {
        let Counts { contention, failures, hits, misses } = counts;
        let all =
            [(&self.contention, contention), (&self.failures, failures), (&self.hits, hits), (&self.misses, misses)];
        for (counter, count) in all {
            counter.inc_by(count.saturating_sub(counter.get()));
        }
    }
}
