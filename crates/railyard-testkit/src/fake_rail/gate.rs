//! A gate that the test opens: answers wait before it, so that a test decides what happens while a call is open.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::watch;

/// Closed until [`Gate::open`]; clones are the same gate.
#[derive(Debug, Clone)]
pub struct Gate {
    open: Arc<watch::Sender<bool>>,
    waiting: Arc<AtomicUsize>,
}

impl Gate {
    /// A closed gate.
    pub fn closed() -> Gate {
        Gate { open: Arc::new(watch::Sender::new(false)), waiting: Arc::default() }
    }

    /// Lets everybody through, now and later.
    pub fn open(&self) {
        self.open.send_replace(true);
    }

    /// Holds those who come from now on.
    pub fn close(&self) {
        self.open.send_replace(false);
    }

    /// How many answers wait before it.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::SeqCst)
    }

    pub(super) async fn pass(&self) {
        let _counted = Counted::new(&self.waiting);
        let mut open = self.open.subscribe();
        // The sender lives in self, so this ends only by the gate being open.
        let _ = open.wait_for(|open| *open).await;
    }
}

/// Counts down also when the wait is dropped because the client has gone.
struct Counted<'a>(&'a AtomicUsize);

impl Counted<'_> {
    fn new(counter: &AtomicUsize) -> Counted<'_> {
        counter.fetch_add(1, Ordering::SeqCst);
        Counted(counter)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}
