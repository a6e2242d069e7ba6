//! After a commit: wake the nodes elsewhere with one NOTIFY for all that came meanwhile.
//!
//! A NOTIFY inside each transaction makes commits queue behind each other. Here one caller at a time sends it, and
//! whoever committed before it was sent need not send another. A caller that dies in between loses nothing: the poll
//! finds all work.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Mutex;

use crate::connect::Store;
use crate::jobs;

/// It is committed: whoever did it waits no longer than this for what only saves the poll's time.
const TELL_TIMEOUT: Duration = Duration::from_millis(500);

/// Commits, and how many of them have been told about.
#[derive(Default)]
pub struct Wakes {
    committed: AtomicU64,
    told: Mutex<u64>,
}

impl Wakes {
    /// Tells the other nodes that work was committed before this call. Waits for half a second at most; one that is not
    /// told finds it by its poll.
    pub async fn tell(&self, store: &Store) {
        if tokio::time::timeout(TELL_TIMEOUT, self.tell_in_turn(store)).await.is_err() {
            tracing::debug!("no wake-up was sent in time; the poll finds the work");
        }
    }

    async fn tell_in_turn(&self, store: &Store) {
        let mine = self.committed.fetch_add(1, Ordering::SeqCst) + 1;
        let mut told = self.told.lock().await;
        if *told >= mine {
            return;
        }
        let covered = self.committed.load(Ordering::SeqCst);
        match jobs::notify(store).await {
            Ok(()) => *told = covered,
            Err(error) => tracing::debug!(%error, "no wake-up was sent; the poll finds the work"),
        }
    }
}
