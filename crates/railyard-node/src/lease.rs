//! What this node believes about its own lease: written by the LeaseKeeper alone, read before every begin and call.
//!
//! `lease_until` is counted from before the renewal was sent, on a clock that runs while the process is stopped, so
//! it is never later than what the database says.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use railyard_core::{Epoch, NodeId, PartitionId};
use railyard_store::clock::boottime;

/// One membership.
#[derive(Clone, Debug)]
pub(crate) struct Membership {
    pub(crate) node: NodeId,
    /// On [`boottime`].
    pub(crate) lease_until: Duration,
    /// Owned partitions and their epochs.
    pub(crate) partitions: Arc<BTreeMap<PartitionId, Epoch>>,
}

/// For so long after partitions were taken, their former owner may still have calls of theirs.
const FRESH_MS: u64 = 2000;

/// The current membership, or none.
#[derive(Clone)]
pub(crate) struct Lease {
    current: Arc<ArcSwap<Option<Membership>>>,
    /// When this was made, on [`boottime`].
    made: Duration,
    /// The latest end of any lease so far, in milliseconds on [`boottime`].
    latest_ms: Arc<AtomicU64>,
    /// When partitions were taken last, in milliseconds on [`boottime`].
    taken_ms: Arc<AtomicU64>,
}

impl Default for Lease {
    fn default() -> Self {
        Self { current: Arc::default(), made: boottime(), latest_ms: Arc::default(), taken_ms: Arc::default() }
    }
}

impl Lease {
    pub(crate) fn publish(&self, membership: Membership) {
        let until = u64::try_from(membership.lease_until.as_millis()).unwrap_or(u64::MAX);
        self.latest_ms.fetch_max(until, Ordering::Relaxed);
        self.current.store(Arc::new(Some(membership)));
    }

    /// Ends this membership, and no later one.
    pub(crate) fn withdraw(&self, node: NodeId) {
        self.current.rcu(|current| match current.as_ref() {
            Some(membership) if membership.node == node => Arc::new(None),
            Some(_) | None => Arc::clone(current),
        });
    }

    /// Partitions were taken.
    pub(crate) fn taken(&self) {
        self.taken_ms.store(now_ms(), Ordering::Relaxed);
    }

    /// Whether some were taken a moment ago.
    pub(crate) fn is_fresh(&self) -> bool {
        let taken_ms = self.taken_ms.load(Ordering::Relaxed);
        taken_ms > 0 && now_ms() < taken_ms + FRESH_MS
    }

    /// The membership, if its lease is good now.
    pub(crate) fn good(&self) -> Option<Membership> {
        let current = self.current.load();
        current.as_ref().as_ref().filter(|membership| boottime() < membership.lease_until).cloned()
    }

    /// Whether this partition is still owned as it was then.
    pub(crate) fn owns(&self, partition: PartitionId, epoch: Epoch) -> bool {
        let current = self.current.load();
        current.as_ref().as_ref().is_some_and(|m| m.partitions.get(&partition) == Some(&epoch))
    }

    /// Whether this membership, and no later one, is good now. Asked at the poll that writes a request.
    pub(crate) fn is_good(&self, node: NodeId) -> bool {
        let current = self.current.load();
        current.as_ref().as_ref().is_some_and(|m| m.node == node && boottime() < m.lease_until)
    }

    /// How long the lease is good yet.
    pub(crate) fn remaining(&self) -> Duration {
        let current = self.current.load();
        current.as_ref().as_ref().map_or(Duration::ZERO, |m| m.lease_until.saturating_sub(boottime()))
    }

    /// Since the last renewal of leases of this length, or since the start if there was none.
    pub(crate) fn since_renewal(&self, length: Duration) -> Duration {
        let renewed = match self.latest_ms.load(Ordering::Relaxed) {
            0 => self.made,
            latest => Duration::from_millis(latest).saturating_sub(length),
        };
        boottime().saturating_sub(renewed)
    }
}

fn now_ms() -> u64 {
    u64::try_from(boottime().as_millis()).unwrap_or(u64::MAX)
}
