//! How many calls may run at once: on this node, and of each rail that has a bound of its own.
//!
//! Payment rails and all others have as many each (S0-36): notifications that nobody answers keep no payment waiting, nor
//! the reverse. A slot is taken before intent is committed, so that a begun message never waits. The rail's comes first:
//! whoever waits for a busy rail keeps no slot from the others.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use railyard_core::rail::RailKind;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::options::NodeOptions;

/// Kinds of work that have budgets of their own.
pub(crate) const BUDGETS: usize = 2;

/// The node's slots.
pub(crate) struct CallSlots {
    budgets: [Arc<Semaphore>; BUDGETS],
    payment_rails: HashSet<String>,
    rails: HashMap<String, Arc<Semaphore>>,
}

/// The right to have one call running, until it is dropped.
pub(crate) struct CallSlot {
    _node: OwnedSemaphorePermit,
    _rail: Option<OwnedSemaphorePermit>,
}

impl CallSlots {
    pub(crate) fn new(options: &NodeOptions) -> Self {
        let bounds = options.rails.iter().filter_map(|(name, rail)| Some((name, rail.calls_in_flight?)));
        let rails = bounds.map(|(name, calls)| {
            (name.clone(), Arc::new(Semaphore::new(usize::try_from(calls).unwrap_or(Semaphore::MAX_PERMITS))))
        });
        let payment_rails = options.rails.iter().filter(|(_, rail)| rail.kind == RailKind::Payment);
        Self {
            budgets: std::array::from_fn(|_| Arc::new(Semaphore::new(options.calls_in_flight))),
            payment_rails: payment_rails.map(|(name, _)| name.clone()).collect(),
            rails: rails.collect(),
        }
    }

    /// Which budget calls of this rail are under, below [`BUDGETS`].
    pub(crate) fn budget_of(&self, rail_type: &str) -> usize {
        usize::from(self.payment_rails.contains(rail_type))
    }

    /// Waits for its turn. `None` never comes: the semaphores are not closed.
    pub(crate) async fn take(&self, rail_type: &str) -> Option<CallSlot> {
        let rail = match self.rails.get(rail_type) {
            Some(rail) => Some(Arc::clone(rail).acquire_owned().await.ok()?),
            None => None,
        };
        let node = Arc::clone(&self.budgets[self.budget_of(rail_type)]);
        Some(CallSlot { _node: node.acquire_owned().await.ok()?, _rail: rail })
    }

    /// Whether nobody needs to wait for one now.
    pub(crate) fn is_free(&self, rail_type: &str) -> bool {
        let free = |slots: &Semaphore| slots.available_permits() > 0;
        free(&self.budgets[self.budget_of(rail_type)]) && self.rails.get(rail_type).is_none_or(|rail| free(rail))
    }
}
