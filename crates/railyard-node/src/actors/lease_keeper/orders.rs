//! What the actor tells its thread. Orders stand until the thread ends.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

/// Shared by the actor and its thread.
#[derive(Default)]
pub(super) struct Orders {
    retire: AtomicBool,
    leave: AtomicBool,
    changed: Notify,
}

impl Orders {
    pub(super) fn look(&self) {
        self.changed.notify_one();
    }

    pub(super) fn retire(&self) {
        self.retire.store(true, Ordering::SeqCst);
        self.look();
    }

    pub(super) fn leave(&self) {
        self.leave.store(true, Ordering::SeqCst);
        self.look();
    }

    pub(super) fn retires(&self) -> bool {
        self.retire.load(Ordering::SeqCst)
    }

    pub(super) fn leaves(&self) -> bool {
        self.leave.load(Ordering::SeqCst)
    }

    /// Until there is an order, or `wait` has passed. An order given meanwhile counts.
    pub(super) async fn rest(&self, wait: Duration) {
        drop(tokio::time::timeout(wait, self.changed.notified()).await);
    }
}
