//! Where each resident group's unsettled messages begin: one after the number that this node itself settled last, with
//! a plain success, in the current epoch. Any other bound breaks order; anything else that happens to the group
//! forgets it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use railyard_core::{Epoch, ParticipantId, SequenceId};

/// Shared by the group actors, which write, and the Poller, which reads.
#[derive(Clone, Default)]
pub(crate) struct Probes {
    bounds: Arc<Mutex<HashMap<ParticipantId, (Epoch, SequenceId)>>>,
}

impl Probes {
    /// A plain success of `sequence` under `epoch`.
    pub(crate) fn settled(&self, group: &ParticipantId, epoch: Epoch, sequence: SequenceId) {
        self.lock().insert(group.clone(), (epoch, sequence.next()));
    }

    /// Anything else.
    pub(crate) fn forget(&self, group: &ParticipantId) {
        self.lock().remove(group);
    }

    pub(crate) fn get(&self, group: &ParticipantId, epoch: Epoch) -> Option<SequenceId> {
        self.lock().get(group).filter(|(known, _)| *known == epoch).map(|(_, sequence)| *sequence)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<ParticipantId, (Epoch, SequenceId)>> {
        self.bounds.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
