//! Commits and receipts, matched by message: either may be known first.

use std::collections::HashMap;
use std::time::Duration;

use crate::report::Report;
use crate::statistics::{percentile, ratio};

/// Latencies by the moment of their commit.
#[derive(Default)]
pub(super) struct Latencies {
    /// Committed and not received yet.
    open: HashMap<String, Duration>,
    /// Received before the commit's answer was here.
    early: HashMap<String, u64>,
    /// When it was committed, in seconds of CLOCK_BOOTTIME, and how many milliseconds later it was received.
    done: Vec<(f64, f64)>,
}

impl Latencies {
    /// These messages' commit returned at this moment.
    pub(super) fn committed(&mut self, keys: impl Iterator<Item = String>, at: Duration) {
        for key in keys {
            match self.early.remove(&key) {
                Some(_) => self.done.push((at.as_secs_f64(), 0.0)),
                None => drop(self.open.insert(key, at)),
            }
        }
    }

    /// These messages came, each at its moment in nanoseconds of CLOCK_BOOTTIME.
    pub(super) fn received(mut self, stamps: HashMap<String, u64>) -> Self {
        for (key, at) in stamps {
            match self.open.remove(&key) {
                Some(committed) => {
                    let latency = Duration::from_nanos(at).saturating_sub(committed);
                    self.done.push((committed.as_secs_f64(), latency.as_secs_f64() * 1000.0));
                }
                None => drop(self.early.insert(key, at)),
            }
        }
        self
    }

    /// The percentiles of the two halves that follow the warm-up.
    pub(super) fn figures(&self, report: &mut Report, warm_up_percent: u64) {
        let (first, second) = self.halves(warm_up_percent as f64 / 100.0);
        let both: Vec<f64> = first.iter().chain(&second).copied().collect();
        report.number("p50_ms", percentile(&both, 50));
        report.number("p99_ms", percentile(&both, 99));
        for (name, percent) in [("p50", 50), ("p99", 99)] {
            let (early, late) = (percentile(&first, percent), percentile(&second, percent));
            report.number(&format!("{name}_first_ms"), early);
            report.number(&format!("{name}_second_ms"), late);
            report.number(&format!("{name}_ratio"), ratio(late, early));
        }
        report.set("measured", both.len());
    }

    fn halves(&self, warm_up: f64) -> (Vec<f64>, Vec<f64>) {
        let times = || self.done.iter().map(|(at, _)| *at);
        let (start, end) = (times().fold(f64::INFINITY, f64::min), times().fold(f64::NEG_INFINITY, f64::max));
        let counted_from = start + (end - start) * warm_up;
        let middle = f64::midpoint(counted_from, end);
        let of = |from: f64, until: f64| {
            self.done.iter().filter(|(at, _)| *at >= from && *at < until).map(|(_, latency)| *latency).collect()
        };
        (of(counted_from, middle), of(middle, f64::INFINITY))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(entries: &[(&str, u64, u64)]) -> Latencies {
        let mut latencies = Latencies::default();
        for (key, committed_s, latency_ms) in entries {
            latencies.committed([(*key).to_owned()].into_iter(), Duration::from_secs(*committed_s));
            let at = committed_s * 1_000_000_000 + latency_ms * 1_000_000;
            latencies = latencies.received(HashMap::from([((*key).to_owned(), at)]));
        }
        latencies
    }

    #[test]
    fn the_warm_up_is_left_out_and_the_rest_is_halved() {
        let latencies = of(&[("a", 0, 900), ("b", 2, 10), ("c", 5, 20), ("d", 6, 30), ("e", 10, 40)]);
        let (first, second) = latencies.halves(0.1);
        assert_eq!(first.len() + second.len(), 4, "the first one is not counted");
        assert!((percentile(&first, 100) - 20.0).abs() < 1e-6 && (percentile(&second, 1) - 30.0).abs() < 1e-6);
    }

    #[test]
    fn a_receipt_may_be_known_before_its_commit() {
        let mut latencies = Latencies::default().received(HashMap::from([("a".to_owned(), 5)]));
        latencies.committed(["a".to_owned()].into_iter(), Duration::from_secs(1));
        assert_eq!(latencies.done.len(), 1);
        assert!(latencies.open.is_empty() && latencies.early.is_empty());
    }
}
