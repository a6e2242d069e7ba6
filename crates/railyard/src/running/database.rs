//! The database before a node starts: there, of the right schema, with the configured rails.

use std::time::Duration;

use anyhow::Context;
use railyard_store::migrate::{self, Migrated};
use railyard_store::{Store, StoreError, rails};

use crate::config::Config;

/// First wait for a database that is away; doubles up to [`WAIT_MAX`].
const WAIT_FIRST: Duration = Duration::from_millis(250);
/// Longest wait between two tries.
const WAIT_MAX: Duration = Duration::from_secs(5);

/// Waits for the database for as long as it takes, then sees to the schema and the rails.
///
/// # Errors
/// The schema is behind and `migrate` is off, or the database refuses.
pub(super) async fn prepare(store: &Store, config: &Config, migrate: bool) -> anyhow::Result<()> {
    let url = config.database_url()?;
    let found = patiently(|| migrate::check(url)).await.context("look at the schema")?;
    if !found.steps.is_empty() {
        anyhow::ensure!(migrate, "{}", behind(&found));
        let done = patiently(|| migrate::migrate(url)).await.context("migrate")?;
        tracing::info!(version = done.version, steps = ?done.steps, "migrated");
    }
    if found.version > migrate::latest() {
        tracing::warn!(found = found.version, known = migrate::latest(), "the schema is newer than this program");
    }
    let specs = config.rail_specs();
    patiently(|| rails::configure(store, &specs)).await.context("write the configured rails")
}

fn behind(found: &Migrated) -> String {
    let missing: Vec<String> = found.steps.iter().map(|step| format!("V{step}")).collect();
    format!(
        "the database's schema is at version {} and lacks {}: run `railyard migrate`, or start with --migrate",
        found.version,
        missing.join(", ")
    )
}

/// Repeats what failed because the database is away or busy. A refusal (password, no such database) is final.
async fn patiently<T, Fut>(mut attempt: impl FnMut() -> Fut) -> Result<T, StoreError>
where
    Fut: Future<Output = Result<T, StoreError>>,
{
    let mut wait = WAIT_FIRST;
    loop {
        match attempt().await {
            Err(error) if error.is_transient() => {
                tracing::warn!(%error, retry_in_ms = wait.as_millis(), "waiting for the database");
                tokio::time::sleep(wait).await;
                wait = (wait * 2).min(WAIT_MAX);
            }
            done => return done,
        }
    }
}
