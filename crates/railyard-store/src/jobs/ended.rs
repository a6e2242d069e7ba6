//! Jobs that ended without success, newest first.

use jiff::Timestamp;
use railyard_core::settlement::EndStatus;
use railyard_core::{OutboxId, ParticipantId, SequenceId};
use tokio_postgres::Row;
use uuid::Uuid;

use crate::connect::Store;
use crate::error::StoreError;
use crate::row::{count, word};

/// Most jobs of one answer.
pub const ENDED_LIST_MAX: i64 = 100;

/// The index on ends without success, read backwards; each job is then looked up by its id.
const ENDED: &str = "
    SELECT e.*, j.source, j.type, j.rail_type, j.created_at
    FROM (SELECT outbox_id, status, participant_id, sequence_id, attempt_count, last_error, recorded_at
          FROM dispatch_job_outcome
          WHERE status = $1 AND status <> 'COMPLETED' AND outbox_id < $2 ORDER BY outbox_id DESC LIMIT $3) e
    JOIN dispatch_job j ON j.outbox_id = e.outbox_id
    ORDER BY e.outbox_id DESC";

/// A job and how it ended.
#[derive(Clone, Debug, PartialEq)]
pub struct EndedRow {
    /// Its id.
    pub outbox_id: OutboxId,
    /// How.
    pub status: EndStatus,
    /// Where it came from.
    pub source: String,
    /// What it is.
    pub kind: String,
    /// The rail's name.
    pub rail_type: String,
    /// Its group, if it had a place in one.
    pub group: Option<ParticipantId>,
    /// That place.
    pub sequence_id: Option<SequenceId>,
    /// Attempts begun.
    pub attempt_count: u32,
    /// Why.
    pub last_error: Option<String>,
    /// When it was accepted.
    pub created_at: Timestamp,
    /// When it ended.
    pub completed_at: Timestamp,
}

/// Jobs that ended like this, with ids below `before` if that is given, at most [`ENDED_LIST_MAX`].
///
/// # Errors
/// Errors of the database.
pub async fn ended(
    store: &Store,
    status: EndStatus,
    before: Option<OutboxId>,
    limit: i64,
) -> Result<Vec<EndedRow>, StoreError> {
    let conn = store.api().await?;
    let statement = conn.prepare_cached(ENDED).await?;
    let before = before.map_or(Uuid::max(), |id| id.0);
    let limit = limit.clamp(1, ENDED_LIST_MAX);
    let rows = conn.query(&statement, &[&status.as_str(), &before, &limit]).await?;
    conn.ok();
    rows.iter().map(row).collect()
}

fn row(row: &Row) -> Result<EndedRow, StoreError> {
    Ok(EndedRow {
        outbox_id: OutboxId(row.try_get("outbox_id")?),
        status: word(row, "status", EndStatus::parse)?,
        source: row.try_get("source")?,
        kind: row.try_get("type")?,
        rail_type: row.try_get("rail_type")?,
        group: row.try_get::<_, Option<String>>("participant_id")?.map(ParticipantId::new),
        sequence_id: row.try_get::<_, Option<i64>>("sequence_id")?.map(SequenceId),
        attempt_count: count(row, "attempt_count")?,
        last_error: row.try_get("last_error")?,
        created_at: row.try_get("created_at")?,
        completed_at: row.try_get("recorded_at")?,
    })
}
