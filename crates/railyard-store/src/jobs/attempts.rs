//! The attempts at one job: those on record and the open one.

use jiff::Timestamp;
use railyard_core::attempt::{AttemptState, AttemptStatus};
use railyard_core::{AttemptId, OutboxId};
use tokio_postgres::Row;

use crate::connect::Store;
use crate::error::StoreError;
use crate::row::{count, word};

/// Most attempts of one answer. A job that is deferred for days has more: ask on behind the last one.
pub const ATTEMPTS_LIST_MAX: i64 = 500;

const ATTEMPTS: &str = "
    SELECT id, attempt_number, status, state, late, attempted_at, completed_at, duration_millis, response_code,
      response_body, response_truncated, rail_reference, rail_code, error_code, error_message
    FROM dispatch_attempt WHERE dispatch_job_id = $1 AND attempt_number > $2
    ORDER BY attempt_number, late LIMIT $3";

/// One attempt.
#[derive(Clone, Debug, PartialEq)]
pub struct AttemptRow {
    /// Its id.
    pub attempt_id: AttemptId,
    /// Counts begins, from 1.
    pub attempt_no: u32,
    /// What became of it, in S3's words.
    pub status: AttemptStatus,
    /// The same in S2's, which tell more.
    pub state: AttemptState,
    /// A result that came after the attempt had been given up.
    pub late: bool,
    /// When intent was committed.
    pub claimed_at: Timestamp,
    /// When the call ended.
    pub completed_at: Option<Timestamp>,
    /// From the start of the call to its end, in milliseconds.
    pub latency_ms: Option<i32>,
    /// HTTP status.
    pub response_code: Option<i32>,
    /// What was kept of the answer's body.
    pub response_body: Option<Vec<u8>>,
    /// More came than was kept.
    pub response_truncated: bool,
    /// The rail's own reference.
    pub rail_reference: Option<String>,
    /// The rail's own code.
    pub rail_code: Option<String>,
    /// Why it did not succeed.
    pub error_code: Option<String>,
    /// The same for people.
    pub error_message: Option<String>,
}

/// The attempts numbered above `after`, in order, at most [`ATTEMPTS_LIST_MAX`]. Empty for an unknown job as well.
///
/// # Errors
/// [`StoreError::Unavailable`], [`StoreError::Unreadable`].
pub async fn attempts(store: &Store, id: OutboxId, after: u32) -> Result<Vec<AttemptRow>, StoreError> {
    let conn = store.api().await?;
    let statement = conn.prepare_cached(ATTEMPTS).await?;
    let after = i32::try_from(after).unwrap_or(i32::MAX);
    let rows = conn.query(&statement, &[&id.0, &after, &ATTEMPTS_LIST_MAX]).await?;
    conn.ok();
    rows.iter().map(attempt).collect()
}

fn attempt(row: &Row) -> Result<AttemptRow, StoreError> {
    Ok(AttemptRow {
        attempt_id: AttemptId(row.try_get("id")?),
        attempt_no: count(row, "attempt_number")?,
        status: word(row, "status", AttemptStatus::parse)?,
        state: word(row, "state", AttemptState::parse)?,
        late: row.try_get("late")?,
        claimed_at: row.try_get("attempted_at")?,
        completed_at: row.try_get("completed_at")?,
        latency_ms: row.try_get("duration_millis")?,
        response_code: row.try_get("response_code")?,
        response_body: row.try_get("response_body")?,
        response_truncated: row.try_get("response_truncated")?,
        rail_reference: row.try_get("rail_reference")?,
        rail_code: row.try_get("rail_code")?,
        error_code: row.try_get("error_code")?,
        error_message: row.try_get("error_message")?,
    })
}
