//! What this node believes about its lease and its partitions, read at the moment of a scrape: a keeper that stands still
//! must not leave the last good figure behind.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{IntGauge, IntGaugeVec, Opts};

use super::gauge;
use crate::lease::Lease;

/// A collector over [`Lease`].
pub(super) struct LeaseMetrics {
    lease: Lease,
    /// How long a lease is good for.
    length: Duration,
    remaining_ms: IntGauge,
    age_ms: IntGauge,
    partitions: IntGauge,
    /// One series for each partition that is owned: 256 in the whole cluster.
    epochs: IntGaugeVec,
    /// Scrapes one by one: the epochs are replaced as a whole.
    scraping: Mutex<()>,
}

impl LeaseMetrics {
    pub(super) fn new(lease: Lease, length: Duration) -> Result<Self, prometheus::Error> {
        let epochs = Opts::new("railyard_partition_epoch", "epoch under which this node owns a partition");
        Ok(Self {
            lease,
            length,
            remaining_ms: gauge(
                "railyard_lease_remaining_ms",
                "how long this node may act yet, in milliseconds; 0 without a lease",
            )?,
            age_ms: gauge("railyard_lease_age_ms", "since the lease was renewed, or the node started")?,
            partitions: gauge("railyard_partitions_owned", "partitions that this node owns under a good lease")?,
            epochs: IntGaugeVec::new(epochs, &["partition"])?,
            scraping: Mutex::new(()),
        })
    }

    fn read(&self) {
        self.remaining_ms.set(millis(self.lease.remaining()));
        self.age_ms.set(millis(self.lease.since_renewal(self.length)));
        let partitions = self.lease.good().map(|membership| membership.partitions).unwrap_or_default();
        self.partitions.set(i64::try_from(partitions.len()).unwrap_or(i64::MAX));
        self.epochs.reset();
        for (partition, epoch) in partitions.iter() {
            self.epochs.with_label_values(&[&partition.0.to_string()]).set(epoch.0);
        }
    }
}

impl Collector for LeaseMetrics {
    fn desc(&self) -> Vec<&Desc> {
        let single = [&self.remaining_ms, &self.age_ms, &self.partitions];
        single.into_iter().flat_map(Collector::desc).chain(self.epochs.desc()).collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let _one = self.scraping.lock().unwrap_or_else(PoisonError::into_inner);
        self.read();
        let single = [&self.remaining_ms, &self.age_ms, &self.partitions];
        single.into_iter().flat_map(Collector::collect).chain(self.epochs.collect()).collect()
    }
}

fn millis(span: Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use std::sync::Arc;

    use railyard_core::{Epoch, NodeId, PartitionId};
    use railyard_store::clock::boottime;

    use super::*;
    use crate::lease::Membership;

    const LENGTH: Duration = Duration::from_secs(15);

    fn membership(lease_until: Duration) -> Membership {
        let partitions = [(PartitionId(7), Epoch(3)), (PartitionId(200), Epoch(1))].into();
        Membership { node: NodeId(uuid::Uuid::new_v4()), lease_until, partitions: Arc::new(partitions) }
    }

    fn read(metrics: &LeaseMetrics) -> (i64, i64, usize) {
        let series = metrics.collect().iter().map(|family| family.get_metric().len()).sum::<usize>();
        (metrics.partitions.get(), metrics.remaining_ms.get(), series - 3)
    }

    #[test]
    fn a_scrape_says_what_is_so_at_that_moment() {
        let lease = Lease::default();
        let metrics = LeaseMetrics::new(lease.clone(), LENGTH).unwrap();
        assert_eq!(read(&metrics), (0, 0, 0));
        let good = membership(boottime() + LENGTH);
        lease.publish(good.clone());
        let (partitions, remaining, series) = read(&metrics);
        assert_eq!((partitions, series), (2, 2));
        assert!((14_000..=15_000).contains(&remaining) && metrics.age_ms.get() < 1000, "{remaining}");
        assert_eq!(metrics.epochs.with_label_values(&["7"]).get(), 3);
        lease.withdraw(good.node);
        assert_eq!(read(&metrics), (0, 0, 0));
    }

    #[test]
    fn the_age_goes_on_while_there_is_no_lease() {
        let lease = Lease::default();
        let metrics = LeaseMetrics::new(lease.clone(), LENGTH).unwrap();
        let lapsed = membership(boottime().saturating_sub(Duration::from_secs(5)));
        lease.publish(lapsed.clone());
        assert_eq!(read(&metrics), (0, 0, 0), "a lapsed lease owns nothing, withdrawn or not");
        lease.withdraw(lapsed.node);
        read(&metrics);
        let age = metrics.age_ms.get();
        assert!((20_000..25_000).contains(&age), "{age}");
    }
}
