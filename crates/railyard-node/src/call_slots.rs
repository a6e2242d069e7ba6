//! How many calls may run at once: on this node, and of each rail that has a bound of its own.
//!
//! A slot is taken before intent is committed, so that a begun message never waits. The rail's comes first: whoever
//! waits for a busy rail keeps no slot from the others.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::options::NodeOptions;

/// The node's slots.
pub(crate) struct CallSlots {
    node: Arc<Semaphore>,
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
        Self { node: Arc::new(Semaphore::new(options.calls_in_flight)), rails: rails.collect() }
    }

    /// Waits for its turn. `None` never comes: the semaphores are not closed.
    pub(crate) async fn take(&self, rail_type: &str) -> Option<CallSlot> {
        let rail = match self.rails.get(rail_type) {
            Some(rail) => Some(Arc::clone(rail).acquire_owned().await.ok()?),
            None => None,
        };
        Some(CallSlot { _node: Arc::clone(&self.node).acquire_owned().await.ok()?, _rail: rail })
    }

    /// Whether nobody needs to wait for one now.
    pub(crate) fn is_free(&self, rail_type: &str) -> bool {
        let free = |slots: &Semaphore| slots.available_permits() > 0;
        free(&self.node) && self.rails.get(rail_type).is_none_or(|rail| free(rail))
    }
}
