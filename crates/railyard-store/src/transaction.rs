//! One transaction on a pooled connection, for what the API and operators do.
//!
//! If the caller is dropped in the middle, the connection is closed and the server rolls back: nothing half-done ever
//! goes back to the pool. A refusal by the database (bad input, a conflict) is rolled back and costs no connection.

use std::time::Duration;

use crate::connect::{Conn, Store};
use crate::error::StoreError;

/// How long an operator or a second user of an idempotency key waits for a lock before the answer is "busy".
pub(crate) const LOCK_TIMEOUT: Duration = Duration::from_secs(1);

/// Serialization failures and deadlocks did nothing: the same call again, so many times in all.
const TRIES_MAX: u32 = 3;

/// Calls again what did nothing since it met other transactions.
pub(crate) async fn repeated<T, F>(mut call: impl FnMut() -> F) -> Result<T, StoreError>
where
    F: Future<Output = Result<T, StoreError>>,
{
    let mut tries = 1;
    loop {
        match call().await {
            Err(StoreError::Repeat { .. }) if tries < TRIES_MAX => tries += 1,
            done => return done,
        }
    }
}

/// Opens a transaction on one of the API's connections; `settings` are `SET LOCAL`s, sent along in one go.
pub(crate) async fn begin(store: &Store, settings: &str) -> Result<Conn, StoreError> {
    let conn = store.api().await?;
    conn.batch_execute(&format!("BEGIN; {settings}")).await?;
    Ok(conn)
}

/// One snapshot for several reads, and a bound on what they may cost.
pub(crate) async fn begin_read(store: &Store, statement_timeout_ms: u32) -> Result<Conn, StoreError> {
    let conn = store.api().await?;
    conn.batch_execute(&format!(
        "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY; SET LOCAL statement_timeout = {statement_timeout_ms}"
    ))
    .await?;
    Ok(conn)
}

/// Commits what succeeded and rolls back what did not.
pub(crate) async fn end<T>(conn: Conn, result: Result<T, StoreError>) -> Result<T, StoreError> {
    match result {
        Ok(value) => {
            conn.batch_execute("COMMIT").await?;
            conn.ok();
            Ok(value)
        }
        Err(error) => {
            if connection_survives(&error) && conn.batch_execute("ROLLBACK").await.is_ok() {
                conn.ok();
            }
            Err(error)
        }
    }
}

/// Whether a connection can be used again after this error.
pub(crate) fn connection_survives(error: &StoreError) -> bool {
    match error {
        StoreError::Invalid { .. }
        | StoreError::KeyReused { .. }
        | StoreError::Busy { .. }
        | StoreError::TooSlow { .. }
        | StoreError::Repeat { .. }
        | StoreError::Conflict { .. }
        | StoreError::Unreadable { .. }
        | StoreError::Database { .. } => true,
        StoreError::Unavailable { .. } => false,
    }
}
