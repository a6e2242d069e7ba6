//! What this node believes about its own lease: written by the LeaseKeeper alone, read before every begin and call.
//!
//! `lease_until` is counted from before the renewal was sent, on a clock that runs while the process is stopped, so
//! it is never later than what the database says.

use std::collections::BTreeMap;
use std::sync::Arc;
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

/// The current membership, or none.
#[derive(Clone, Default)]
pub(crate) struct Lease {
    current: Arc<ArcSwap<Option<Membership>>>,
}

impl Lease {
    pub(crate) fn publish(&self, membership: Membership) {
        self.current.store(Arc::new(Some(membership)));
    }

    /// Ends this membership, and no later one.
    pub(crate) fn withdraw(&self, node: NodeId) {
        self.current.rcu(|current| match current.as_ref() {
            Some(membership) if membership.node == node => Arc::new(None),
            Some(_) | None => Arc::clone(current),
        });
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
}
