//! Ends of jobs by where they came from and what they are (S3): producers choose both words, so the number of series
//! is bounded, and what comes later is counted together.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use prometheus::{IntCounterVec, Opts};
use railyard_core::settlement::EndStatus;

/// Pairs of source and type that have a series of their own; the first ones that end on this node.
const PAIRS_MAX: usize = 200;
/// What stands for all others, in both labels.
const OTHER: &str = "other";

/// The end of a job.
pub(crate) struct End {
    pub(crate) source: String,
    pub(crate) kind: String,
    pub(crate) status: EndStatus,
}

/// The counter.
#[derive(Clone)]
pub(crate) struct EndedJobs {
    pub(super) ended: IntCounterVec,
    named: Arc<Mutex<BTreeSet<(String, String)>>>,
}

impl EndedJobs {
    pub(super) fn new() -> Result<Self, prometheus::Error> {
        let help = "jobs that ended with an attempt of this node, by source, type and end";
        let ended = IntCounterVec::new(Opts::new("railyard_jobs_ended_total", help), &["source", "type", "status"])?;
        Ok(Self { ended, named: Arc::default() })
    }

    /// A job has ended.
    pub(crate) fn count(&self, end: End) {
        let End { source, kind, status } = end;
        let pair = (source, kind);
        let named = self.is_named(&pair);
        let (source, kind) = if named { (pair.0.as_str(), pair.1.as_str()) } else { (OTHER, OTHER) };
        self.ended.with_label_values(&[source, kind, status.as_str()]).inc();
    }

    fn is_named(&self, pair: &(String, String)) -> bool {
        let mut named = self.named.lock().unwrap_or_else(PoisonError::into_inner);
        named.contains(pair) || (named.len() < PAIRS_MAX && named.insert(pair.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s3_45_many_sources_make_a_bounded_number_of_series() {
        let jobs = EndedJobs::new().unwrap();
        for n in 0..2 * PAIRS_MAX {
            let end = End { source: format!("source-{n}"), kind: "made".to_owned(), status: EndStatus::Completed };
            jobs.count(end);
        }
        assert_eq!(prometheus::core::Collector::collect(&jobs.ended)[0].get_metric().len(), PAIRS_MAX + 1);
        let other = jobs.ended.with_label_values(&[OTHER, OTHER, "COMPLETED"]).get();
        assert_eq!(other, u64::try_from(PAIRS_MAX).unwrap());
    }
}
