//! A job that waits is taken out before it is ever sent (again).
//!
//! Against everybody who may take it at the same moment, the pending or scheduled row decides: whoever deletes it has
//! the job. A begin, a promotion or a late success that was first leaves no row here, and then the answer is where the
//! job stands now. The hint is locked before the message: a transaction that settles one message of a group and begins
//! the next has it in that order, and two that wait for each other would both be a second late.

use railyard_core::hold::HoldKind;
use railyard_core::settlement::EndStatus;
use railyard_core::text::clean_str;
use railyard_core::{OutboxId, ParticipantId};
use serde_json::json;
use tokio_postgres::Row;

use super::read::{self, JobRow, JobStatus};
use crate::audit::{self, Entry};
use crate::connect::{Conn, Store};
use crate::error::StoreError;
use crate::holds::{self, Decision};
use crate::transaction::{begin, end};

/// A message that moves while it is looked for is found in the next place; it does not move more often than this.
const LOOKS_MAX: u32 = 20;

const TAKE_PENDING: &str = "
    DELETE FROM payment_outbox_pending WHERE outbox_id = $1
    RETURNING participant_id, sequence_id, attempt_count, created_at";

const TAKE_SCHEDULED: &str = "
    DELETE FROM scheduled_job WHERE outbox_id = $1
    RETURNING NULL::text AS participant_id, NULL::bigint AS sequence_id, 0 AS attempt_count,
      (SELECT j.created_at FROM dispatch_job j WHERE j.outbox_id = $1) AS created_at";

/// A message in doubt was not sent again, and never will be: nothing is left to decide about.
const TAKE_DOUBT: &str = "
    DELETE FROM group_hold WHERE participant_id = $1 AND kind = 'in_doubt' AND outbox_id = $2";

/// What became of a wish to cancel.
#[derive(Clone, Debug, PartialEq)]
pub enum Cancelled {
    /// It has ended, and will not be sent.
    Done(Box<JobRow>),
    /// It does not wait: this is where it stands.
    Refused(JobStatus),
    /// There is no such job.
    Unknown,
}

/// Ends a job that waits, whatever it waits for, as CANCELLED; its group goes on without it. `reason` may be empty.
///
/// # Errors
/// [`StoreError::Busy`] if somebody keeps the job locked for a second; errors of the database.
pub async fn cancel(store: &Store, id: OutboxId, decision: Decision<'_>) -> Result<Cancelled, StoreError> {
    let conn = begin(store, "").await?;
    let result = cancel_in(&conn, id, decision).await;
    end(conn, result).await
}

async fn cancel_in(conn: &Conn, id: OutboxId, decision: Decision<'_>) -> Result<Cancelled, StoreError> {
    for _ in 0..LOOKS_MAX {
        holds::lock_hint_of(conn, id).await?;
        // Each look is a statement with a snapshot of its own.
        for sql in [TAKE_PENDING, TAKE_SCHEDULED] {
            if let Some(row) = conn.query_opt(sql, &[&id.0]).await? {
                return finish(conn, id, &row, decision).await;
            }
        }
        match read::read_in(conn, &[id.0], false).await {
            Ok(found) => match found.first().map(|job| job.status) {
                None => return Ok(Cancelled::Unknown),
                Some(JobStatus::Pending | JobStatus::Failed) => {}
                Some(status @ (JobStatus::InProgress | JobStatus::Ended(_))) => return Ok(Cancelled::Refused(status)),
            },
            Err(error) => return Err(error),
        }
    }
    Err(StoreError::Busy { detail: format!("job {id} moves too often to be taken") })
}

async fn finish(conn: &Conn, id: OutboxId, row: &Row, decision: Decision<'_>) -> Result<Cancelled, StoreError> {
    let group = row.try_get::<_, Option<String>>("participant_id")?.map(ParticipantId::new);
    let reason = clean_str(decision.reason, holds::REASON_CHARS_MAX);
    let said = if reason.is_empty() { "cancelled".to_owned() } else { format!("cancelled: {reason}") };
    conn.execute(
        holds::CANCEL,
        &[
            &id.0,
            &EndStatus::Cancelled.as_str(),
            &group.as_ref().map(ParticipantId::as_str),
            &row.try_get::<_, Option<i64>>("sequence_id")?,
            &row.try_get::<_, i32>("attempt_count")?,
            &said,
            &row.try_get::<_, jiff::Timestamp>("created_at")?,
        ],
    )
    .await?;
    let lane = group.as_ref().map_or_else(|| id.to_string(), |group| group.as_str().to_owned());
    let doubts = conn.execute(TAKE_DOUBT, &[&lane, &id.0]).await?;
    let job = read::read_in(conn, &[id.0], false).await?.into_iter().next();
    let job = job.ok_or_else(|| StoreError::Unreadable { detail: format!("job {id} waits and has no content") })?;
    let detail = (doubts > 0).then(|| json!({ "holds": [{ "kind": HoldKind::InDoubt, "jobId": id }] }));
    let entry = Entry {
        reason: Some(reason.as_str()).filter(|reason| !reason.is_empty()),
        group: job.group.as_ref(),
        outbox_id: Some(id),
        detail,
        ..Entry::new("job.cancel", decision.actor)
    };
    audit::append(conn, &entry).await?;
    if let Some(group) = &group {
        holds::move_hint(conn, group).await?;
    }
    holds::wake(conn).await?;
    Ok(Cancelled::Done(Box::new(job)))
}

#[cfg(test)]
mod tests;
