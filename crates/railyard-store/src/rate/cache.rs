//! What this process remembers of the configurations, and what it has counted.
//!
//! A remembered configuration saves a look and decides nothing: `rate_assign` refuses one that is not active any more, so
//! that old capacity is never planned with. The TTL and the flush bound how long a name that is gone is still known.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;

use super::config::{self, ConfigRow};
use crate::clock::boottime;
use crate::connect::Store;
use crate::error::StoreError;
use crate::listen::CACHE_CHANNEL;

/// How long one is remembered (S1: `rate-limiter.cache-ttl-seconds`).
pub const CONFIG_TTL: Duration = Duration::from_secs(5);
/// Names that are remembered; beyond it all are forgotten at once.
const NAMES_MAX: usize = 10_000;

/// Forgets everything, and tells all nodes to.
///
/// # Errors
/// Errors of the database: those who listen were not told.
pub async fn flush(store: &Store) -> Result<(), StoreError> {
    store.rates().flush();
    let conn = store.api().await?;
    conn.execute("SELECT pg_notify($1, 'rate')", &[&CACHE_CHANNEL]).await?;
    conn.ok();
    Ok(())
}

/// One remembered configuration.
#[derive(Clone)]
pub(super) struct Known {
    pub(super) row: Arc<ConfigRow>,
    /// The database's time when it was read.
    read_at: Timestamp,
    /// The same moment on our own clock.
    since: Duration,
}

impl Known {
    /// The database's time now, to within what clocks drift in seconds.
    pub(super) fn now(&self) -> Timestamp {
        self.read_at.checked_add(boottime().saturating_sub(self.since)).unwrap_or(self.read_at)
    }
}

/// What has been counted since this process started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Windows that were found locked.
    pub contention: u64,
    /// Assignments that found nothing free.
    pub failures: u64,
    /// Configurations that were remembered.
    pub hits: u64,
    /// Configurations that had to be read.
    pub misses: u64,
}

/// The memory.
#[derive(Default)]
pub struct ConfigCache {
    known: Mutex<Memory>,
    contention: AtomicU64,
    failures: AtomicU64,
    hits: AtomicU64,
    misses: AtomicU64,
}

#[derive(Default)]
struct Memory {
    by_name: HashMap<String, Known>,
    /// Flushes: what was read before one is not remembered after it.
    flushes: u64,
}

impl ConfigCache {
    /// Forgets everything.
    pub fn flush(&self) {
        let mut memory = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        memory.by_name.clear();
        memory.flushes += 1;
    }

    /// What has been counted.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counts {
            contention: of(&self.contention),
            failures: of(&self.failures),
            hits: of(&self.hits),
            misses: of(&self.misses),
        }
    }

    pub(super) fn contended(&self, windows: usize) {
        self.contention.fetch_add(u64::try_from(windows).unwrap_or(0), Ordering::Relaxed);
    }

    pub(super) fn failed(&self) {
        self.failures.fetch_add(1, Ordering::Relaxed);
    }

    /// Forgets one that is not the active one any more.
    pub(super) fn forget(&self, row: &ConfigRow) {
        let mut memory = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if memory.by_name.get(&row.spec.name).is_some_and(|known| known.row.config_id == row.config_id) {
            memory.by_name.remove(&row.spec.name);
        }
    }

    /// The active one of this name, remembered or read.
    pub(super) async fn find(&self, store: &Store, name: &str) -> Result<Option<Known>, StoreError> {
        let flushes = {
            let memory = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            let known = memory.by_name.get(name);
            if let Some(known) = known.filter(|known| boottime().saturating_sub(known.since) < CONFIG_TTL) {
                self.hits.fetch_add(1, Ordering::Relaxed);
                return Ok(Some(known.clone()));
            }
            memory.flushes
        };
        self.misses.fetch_add(1, Ordering::Relaxed);
        // Before it is read: it must not seem younger than it is.
        let since = boottime();
        let Some((row, read_at)) = config::read_active(store, name).await? else { return Ok(None) };
        tracing::info!(target: "RateLimitConfigRepository", "Config cache miss for {name}, loaded from DB");
        let known = Known { row: Arc::new(row), read_at, since };
        let mut memory = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if memory.flushes == flushes {
            if memory.by_name.len() >= NAMES_MAX {
                memory.by_name.clear();
            }
            memory.by_name.insert(name.to_owned(), known.clone());
        }
        Ok(Some(known))
    }
}
