//! `[database]` and `[retention]`: where the truth is, and how long it is kept.

use std::time::Duration;

use railyard_store::StoreConfig;
use serde::Deserialize;

use super::{Config, ConfigError, Problems};

/// `[database]`.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Database {
    /// `postgres://user:password@host:port/database`. A session pooler will do, a transaction pooler will not.
    pub(crate) url: Option<String>,
    /// Connections for begin, settle and discovery.
    pub(crate) work_connections: usize,
    /// Connections for the API.
    pub(crate) api_connections: usize,
    /// Longest wait for a connection, in milliseconds.
    pub(crate) acquire_timeout_ms: u32,
    /// Longest statement, in milliseconds.
    pub(crate) statement_timeout_ms: u32,
    /// Longest wait for a lock, in milliseconds.
    pub(crate) lock_timeout_ms: u32,
}

impl std::fmt::Debug for Database {
    /// Without the URL: it may hold a password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Database").field("work_connections", &self.work_connections).finish_non_exhaustive()
    }
}

impl Default for Database {
    fn default() -> Self {
        Self {
            url: None,
            work_connections: 6,
            api_connections: 8,
            acquire_timeout_ms: 5000,
            statement_timeout_ms: 10_000,
            lock_timeout_ms: 2000,
        }
    }
}

impl Database {
    pub(super) fn check(&self, problems: &mut Problems) {
        problems.range("database.work_connections", &self.work_connections, 2..=200);
        problems.range("database.api_connections", &self.api_connections, 2..=200);
        problems.range("database.acquire_timeout_ms", &self.acquire_timeout_ms, 100..=60_000);
        problems.range("database.statement_timeout_ms", &self.statement_timeout_ms, 1000..=300_000);
        problems.range("database.lock_timeout_ms", &self.lock_timeout_ms, 100..=60_000);
        if self.lock_timeout_ms >= self.statement_timeout_ms {
            problems.add("database.lock_timeout_ms", "is not shorter than database.statement_timeout_ms");
        }
    }
}

impl Config {
    /// The database's URL.
    ///
    /// # Errors
    /// None is configured; says where to.
    pub(crate) fn database_url(&self) -> Result<&str, ConfigError> {
        self.database.url.as_deref().ok_or_else(|| {
            let what = "database.url: is missing; set it in the file (--config) or as RAILYARD_DATABASE__URL";
            ConfigError(vec![what.to_owned()])
        })
    }

    /// The store's configuration.
    ///
    /// # Errors
    /// As [`Config::database_url`].
    pub(crate) fn store(&self) -> Result<StoreConfig, ConfigError> {
        let ms = |ms: u32| Duration::from_millis(ms.into());
        let database = &self.database;
        Ok(StoreConfig {
            url: self.database_url()?.to_owned(),
            work_connections: database.work_connections,
            api_connections: database.api_connections,
            acquire_timeout: ms(database.acquire_timeout_ms),
            statement_timeout: ms(database.statement_timeout_ms),
            lock_timeout: ms(database.lock_timeout_ms),
            // A frozen owner's open transaction blocks its takeover; a quarter of the lease is bearable.
            idle_in_transaction_timeout: Duration::from_secs(self.lease.lease_s.into()) / 4,
        })
    }
}

/// `[retention]`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Retention {
    /// Days that jobs and their ends are kept.
    pub(crate) jobs_days: i32,
    /// Days that attempts are kept.
    pub(crate) attempts_days: i32,
    /// Days that idempotency keys are remembered.
    pub(crate) keys_days: i32,
    /// Days that scheduled items are kept once they are completed.
    pub(crate) items_days: i32,
    /// Days that feeds are kept, and longer while a payment of theirs is.
    pub(crate) feeds_days: i32,
}

impl Default for Retention {
    fn default() -> Self {
        let defaults = railyard_store::retention::Retention::default();
        Self {
            jobs_days: defaults.jobs_days,
            attempts_days: defaults.attempts_days,
            keys_days: defaults.keys_days,
            items_days: defaults.items_days,
            feeds_days: defaults.feeds_days,
        }
    }
}

impl Retention {
    pub(super) fn check(&self, problems: &mut Problems) {
        problems.range("retention.jobs_days", &self.jobs_days, 2..=3650);
        problems.range("retention.attempts_days", &self.attempts_days, 2..=3650);
        problems.range("retention.keys_days", &self.keys_days, 2..=3650);
        if self.keys_days < self.jobs_days {
            problems.add("retention.keys_days", "is less than retention.jobs_days: a job would outlive its key");
        }
        problems.range("retention.items_days", &self.items_days, 2..=3650);
        if self.items_days < self.keys_days {
            let why = "is less than retention.keys_days: an item accepted anew under its id would find its old run";
            problems.add("retention.items_days", why);
        }
        problems.range("retention.feeds_days", &self.feeds_days, 2..=3650);
        if self.feeds_days < self.items_days {
            let why = "is less than retention.items_days: a file given again would not be known, and its payments would be new";
            problems.add("retention.feeds_days", why);
        }
    }
}
