//! Every attempt id that this process has made and whose fate is open: how far it came.
//!
//! The Reaper compares this with the in-flight rows of our own epochs. A row that nobody here knows is in doubt; one
//! that was registered and never handed to a caller was provably not sent.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use railyard_core::AttemptId;

/// How far an attempt came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Being begun, waiting for its call, calling or settling: somebody holds its [`Guard`].
    Live,
    /// Let go before any call: if its row exists, nothing was sent for it.
    NeverCalled,
}

/// The registry. Bounded by the credits, and by what the Reaper forgets.
#[derive(Clone, Default)]
pub(crate) struct Attempts {
    stages: Arc<Mutex<HashMap<AttemptId, Stage>>>,
}

/// Ids that were let go before a call are kept so many at most; beyond that, their rows are in doubt instead.
const NEVER_CALLED_MAX: usize = 100_000;

impl Attempts {
    /// Registers an id before anything is sent with it.
    pub(crate) fn register(&self, attempt: AttemptId) -> Guard {
        self.lock().insert(attempt, Stage::Live);
        Guard { attempts: self.clone(), attempt, called: false }
    }

    pub(crate) fn stage(&self, attempt: AttemptId) -> Option<Stage> {
        self.lock().get(&attempt).copied()
    }

    /// The row of a never-called attempt has been settled.
    pub(crate) fn forget(&self, attempt: AttemptId) {
        let mut stages = self.lock();
        if stages.get(&attempt) == Some(&Stage::NeverCalled) {
            stages.remove(&attempt);
        }
    }

    pub(crate) fn live(&self) -> usize {
        self.lock().values().filter(|stage| **stage == Stage::Live).count()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<AttemptId, Stage>> {
        // The map is consistent after every statement: a panic elsewhere does not spoil it.
        self.stages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Held by whoever drives the attempt. Dropped by a crash as well as by the end.
pub(crate) struct Guard {
    attempts: Attempts,
    attempt: AttemptId,
    called: bool,
}

impl Guard {
    /// From here on, nobody can prove that nothing was sent.
    pub(crate) fn calling(&mut self) {
        self.called = true;
    }

    /// It is known that no row exists or that its outcome is on record.
    pub(crate) fn done(self) {
        self.attempts.lock().remove(&self.attempt);
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let mut stages = self.attempts.lock();
        if stages.get(&self.attempt) == Some(&Stage::Live) {
            if self.called || stages.len() >= NEVER_CALLED_MAX {
                stages.remove(&self.attempt);
            } else {
                stages.insert(self.attempt, Stage::NeverCalled);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    #[test]
    fn a_crash_before_the_call_is_provable_and_one_after_is_not() {
        let attempts = Attempts::default();
        let (early, late, done) =
            (AttemptId(Uuid::from_u128(1)), AttemptId(Uuid::from_u128(2)), AttemptId(Uuid::from_u128(3)));
        drop(attempts.register(early));
        let mut guard = attempts.register(late);
        guard.calling();
        drop(guard);
        attempts.register(done).done();
        assert_eq!(attempts.stage(early), Some(Stage::NeverCalled));
        assert_eq!(attempts.stage(late), None);
        assert_eq!(attempts.stage(done), None);
        attempts.forget(early);
        assert_eq!(attempts.stage(early), None);
    }
}
