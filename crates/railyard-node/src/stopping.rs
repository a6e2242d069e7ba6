//! One flag for the whole node: no new work from now on. Running calls end and settle.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

/// Cheap to clone; set once.
#[derive(Clone, Default)]
pub(crate) struct Stopping {
    shared: Arc<(AtomicBool, Notify)>,
}

impl Stopping {
    pub(crate) fn set(&self) {
        self.shared.0.store(true, Ordering::SeqCst);
        self.shared.1.notify_waiters();
    }

    pub(crate) fn is_set(&self) -> bool {
        self.shared.0.load(Ordering::SeqCst)
    }

    /// Resolves once it is set.
    pub(crate) async fn wait(&self) {
        let woken = self.shared.1.notified();
        tokio::pin!(woken);
        woken.as_mut().enable();
        if !self.is_set() {
            woken.await;
        }
    }
}
