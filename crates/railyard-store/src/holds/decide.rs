//! What an operator decides about a group.

use railyard_core::hold::HoldKind;
use railyard_core::settlement::EndStatus;
use railyard_core::text::clean_str;
use railyard_core::{OutboxId, ParticipantId, SequenceId};
use serde_json::json;
use tokio_postgres::Row;
use uuid::Uuid;

use crate::audit::{self, Entry};
use crate::connect::{Conn, Store};
use crate::error::StoreError;
use crate::listen::WORK_CHANNEL;
use crate::row::word;
use crate::transaction::{begin, end};

/// Characters kept of a reason.
pub const REASON_CHARS_MAX: usize = 1000;

const HOLD: &str = "
    INSERT INTO group_hold (participant_id, kind, reason, actor) VALUES ($1, 'paused', $2, $3) ON CONFLICT DO NOTHING";

/// For a hold of its own: whatever the hint said, nothing is due. No row is made where there is none: that would wait
/// for a producer who is about to make it. What it makes is found, not begun, and then put right like any other hint.
const PARK: &str = "UPDATE ready_group SET due_at = 'infinity' WHERE participant_id = $1";

/// Makes sure that there is a ready row, if anything is pending, and that nobody else moves it.
const LOCK_READY: &str = "
    INSERT INTO ready_group AS r (participant_id, partition_id, due_at)
    SELECT $1, partition_of($1), 'infinity'
    WHERE EXISTS (SELECT 1 FROM payment_outbox_pending p WHERE p.participant_id = $1)
    ON CONFLICT (participant_id) DO UPDATE SET due_at = r.due_at";

const LOCK_HINT_OF: &str = "
    SELECT 1 FROM ready_group r
    WHERE r.participant_id = (SELECT p.participant_id FROM payment_outbox_pending p WHERE p.outbox_id = $1) FOR UPDATE";

/// With a snapshot that is younger than the lock: now if no hold remains, else as it was.
const DUE_UNLESS_HELD: &str = "
    UPDATE ready_group r
    SET due_at = CASE WHEN EXISTS (SELECT 1 FROM group_hold h WHERE h.participant_id = r.participant_id)
                      THEN r.due_at ELSE clock_timestamp() END
    WHERE r.participant_id = $1";

const TAKE_HOLDS: &str = "
    DELETE FROM group_hold WHERE participant_id = $1 AND kind = ANY ($2) RETURNING kind, outbox_id";

/// A message without order waits at infinity while it is in doubt; its hold carries its id for a name.
const WAKE_SINGLES: &str = "
    UPDATE payment_outbox_pending p SET next_attempt_at = clock_timestamp()
    FROM group_hold h
    WHERE h.participant_id = $1 AND h.kind = ANY ($2) AND h.participant_id = h.outbox_id::text
      AND p.outbox_id = h.outbox_id AND p.participant_id IS NULL
    RETURNING p.outbox_id";

/// One snapshot decides: while the head is in flight, or has ended and blocks, nothing behind it is taken for the head.
const TAKE_HEAD: &str = "
    DELETE FROM payment_outbox_pending p
    WHERE p.outbox_id = (SELECT q.outbox_id FROM payment_outbox_pending q
                         WHERE q.participant_id = $1 ORDER BY q.sequence_id LIMIT 1)
      AND NOT EXISTS (SELECT 1 FROM in_flight f WHERE f.participant_id = $1)
      AND NOT EXISTS (SELECT 1 FROM group_hold h WHERE h.participant_id = $1 AND h.kind = 'blocked')
      AND p.outbox_id = coalesce($2, p.outbox_id)
    RETURNING p.outbox_id, p.sequence_id, p.attempt_count, p.created_at";

const TAKE_SINGLE: &str = "
    DELETE FROM payment_outbox_pending p USING group_hold h
    WHERE h.participant_id = $1 AND h.participant_id = h.outbox_id::text AND p.outbox_id = h.outbox_id
      AND p.participant_id IS NULL AND p.outbox_id = coalesce($2, p.outbox_id)
    RETURNING p.outbox_id, p.sequence_id, p.attempt_count, p.created_at";

pub(crate) const CANCEL: &str = "
    INSERT INTO dispatch_job_outcome (outbox_id, status, participant_id, sequence_id, attempt_count, last_error,
      duration_millis, recorded_at)
    VALUES ($1, $2, $3, $4, $5, $6, greatest(0, floor(extract(epoch FROM clock_timestamp() - $7::timestamptz) * 1000)),
      clock_timestamp())";

/// Who decides, and why.
#[derive(Clone, Copy, Debug)]
pub struct Decision<'a> {
    /// The token's name, or the program.
    pub actor: &'a str,
    /// In words; more than [`REASON_CHARS_MAX`] characters are cut off.
    pub reason: &'a str,
}

/// Holds that were taken away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Released {
    /// Their kinds, and the message that caused each.
    pub holds: Vec<(HoldKind, Option<OutboxId>)>,
}

/// A head that the group goes on without.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// Which message.
    pub outbox_id: OutboxId,
    /// Its place.
    pub sequence_id: Option<SequenceId>,
    /// True: it waited and has ended CANCELLED. False: it had ended before and blocked the group.
    pub cancelled: bool,
}

/// Holds a group until [`resume`]. A call that is out is not stopped; nothing begins after it.
///
/// # Errors
/// [`StoreError::Conflict`] if it is paused already; errors of the database.
pub async fn pause(store: &Store, group: &ParticipantId, decision: Decision<'_>) -> Result<(), StoreError> {
    let conn = begin(store, "").await?;
    let result = pause_in(&conn, group, decision).await;
    end(conn, result).await
}

async fn pause_in(conn: &Conn, group: &ParticipantId, decision: Decision<'_>) -> Result<(), StoreError> {
    let reason = clean_str(decision.reason, REASON_CHARS_MAX);
    if conn.execute(HOLD, &[&group.as_str(), &reason, &decision.actor]).await? == 0 {
        return Err(StoreError::Conflict { detail: "the group is paused already".to_owned() });
    }
    conn.execute(PARK, &[&group.as_str()]).await?;
    let entry = Entry { reason: Some(&reason), group: Some(group), ..Entry::new("group.pause", decision.actor) };
    audit::append(conn, &entry).await
}

/// Ends a pause. Other holds stay.
///
/// # Errors
/// [`StoreError::Conflict`] if it is not paused; errors of the database.
pub async fn resume(store: &Store, group: &ParticipantId, decision: Decision<'_>) -> Result<(), StoreError> {
    let conn = begin(store, "").await?;
    let result = release_in(&conn, group, &[HoldKind::Paused], "group.resume", decision).await;
    end(conn, result).await.map(|_| ())
}

/// Takes away the holds of these kinds. A message in doubt is delivered again; behind a blocked one the group goes on.
///
/// # Errors
/// [`StoreError::Conflict`] if none of them stands; errors of the database.
pub async fn release(
    store: &Store,
    group: &ParticipantId,
    kinds: &[HoldKind],
    decision: Decision<'_>,
) -> Result<Released, StoreError> {
    let conn = begin(store, "").await?;
    let result = release_in(&conn, group, kinds, "group.release", decision).await;
    end(conn, result).await
}

async fn release_in(
    conn: &Conn,
    group: &ParticipantId,
    kinds: &[HoldKind],
    action: &str,
    decision: Decision<'_>,
) -> Result<Released, StoreError> {
    let kinds: Vec<&str> = kinds.iter().map(|kind| kind.as_str()).collect();
    let singles = conn.execute(WAKE_SINGLES, &[&group.as_str(), &kinds]).await?;
    let holds = take_holds(conn, group, &kinds).await?;
    if holds.is_empty() {
        let detail = format!("the group has no hold of kind {}", kinds.join(", "));
        return Err(StoreError::Conflict { detail });
    }
    let reason = clean_str(decision.reason, REASON_CHARS_MAX);
    let outbox_id = holds.iter().find_map(|(_, outbox_id)| *outbox_id);
    record(conn, group, action, outbox_id, &holds, &reason, decision.actor).await?;
    if singles == 0 {
        move_hint(conn, group).await?;
    }
    wake(conn).await?;
    Ok(Released { holds })
}

/// Lets a group go on without its head. A head that waits ends CANCELLED; one that ended and blocks the group is let
/// go. Its `blocked` or `in_doubt` hold goes with it; a pause stays. With `expected`, nothing happens unless that is
/// the message: two operators who press at once skip one message.
///
/// # Errors
/// [`StoreError::Conflict`] if the head is in flight, is not the expected one, or there is none; errors of the
/// database.
pub async fn skip(
    store: &Store,
    group: &ParticipantId,
    expected: Option<OutboxId>,
    decision: Decision<'_>,
) -> Result<Skipped, StoreError> {
    let conn = begin(store, "").await?;
    let result = skip_in(&conn, group, expected, decision).await;
    end(conn, result).await
}

async fn skip_in(
    conn: &Conn,
    group: &ParticipantId,
    expected: Option<OutboxId>,
    decision: Decision<'_>,
) -> Result<Skipped, StoreError> {
    let reason = clean_str(decision.reason, REASON_CHARS_MAX);
    let blocked = "SELECT outbox_id FROM group_hold WHERE participant_id = $1 AND kind = 'blocked' FOR UPDATE";
    let skipped = match conn.query_opt(blocked, &[&group.as_str()]).await? {
        Some(row) => let_go(&row, expected)?,
        None => cancel_head(conn, group, expected, &reason).await?,
    };
    let kinds = if skipped.cancelled { [HoldKind::InDoubt] } else { [HoldKind::Blocked] };
    let kinds: Vec<&str> = kinds.iter().map(|kind| kind.as_str()).collect();
    let holds = take_holds(conn, group, &kinds).await?;
    record(conn, group, "group.skip", Some(skipped.outbox_id), &holds, &reason, decision.actor).await?;
    if skipped.sequence_id.is_some() || !skipped.cancelled {
        move_hint(conn, group).await?;
    }
    wake(conn).await?;
    Ok(skipped)
}

fn let_go(row: &Row, expected: Option<OutboxId>) -> Result<Skipped, StoreError> {
    let outbox_id: Option<Uuid> = row.try_get(0)?;
    let outbox_id = outbox_id
        .map(OutboxId)
        .ok_or_else(|| StoreError::Unreadable { detail: "a blocked hold names no message".to_owned() })?;
    if expected.is_some_and(|expected| expected != outbox_id) {
        return Err(StoreError::Conflict { detail: format!("the group is blocked by {outbox_id}") });
    }
    Ok(Skipped { outbox_id, sequence_id: None, cancelled: false })
}

async fn cancel_head(
    conn: &Conn,
    group: &ParticipantId,
    expected: Option<OutboxId>,
    reason: &str,
) -> Result<Skipped, StoreError> {
    let wanted = expected.map(|id| id.0);
    conn.execute("SELECT 1 FROM ready_group WHERE participant_id = $1 FOR UPDATE", &[&group.as_str()]).await?;
    let taken = match conn.query_opt(TAKE_HEAD, &[&group.as_str(), &wanted]).await? {
        Some(row) => Some(row),
        None => conn.query_opt(TAKE_SINGLE, &[&group.as_str(), &wanted]).await?,
    };
    let Some(row) = taken else {
        return Err(StoreError::Conflict {
            detail: "the head is in flight, is another message than the one named, or there is none".to_owned(),
        });
    };
    let outbox_id: Uuid = row.try_get("outbox_id")?;
    let sequence_id: Option<i64> = row.try_get("sequence_id")?;
    let attempts: i32 = row.try_get("attempt_count")?;
    let created_at: jiff::Timestamp = row.try_get("created_at")?;
    let status = EndStatus::Cancelled.as_str();
    let participant = sequence_id.is_some().then_some(group.as_str());
    let error = format!("skipped: {reason}");
    conn.execute(CANCEL, &[&outbox_id, &status, &participant, &sequence_id, &attempts, &error, &created_at]).await?;
    Ok(Skipped { outbox_id: OutboxId(outbox_id), sequence_id: sequence_id.map(SequenceId), cancelled: true })
}

async fn take_holds(
    conn: &Conn,
    group: &ParticipantId,
    kinds: &[&str],
) -> Result<Vec<(HoldKind, Option<OutboxId>)>, StoreError> {
    let rows = conn.query(TAKE_HOLDS, &[&group.as_str(), &kinds]).await?;
    let mut holds = Vec::with_capacity(rows.len());
    for row in &rows {
        let outbox_id: Option<Uuid> = row.try_get("outbox_id")?;
        holds.push((word(row, "kind", HoldKind::parse)?, outbox_id.map(OutboxId)));
    }
    holds.sort_unstable();
    Ok(holds)
}

/// Locks the ready row of the group in which this message waits, if it does.
pub(crate) async fn lock_hint_of(conn: &Conn, id: OutboxId) -> Result<(), StoreError> {
    conn.execute(LOCK_HINT_OF, &[&id.0]).await?;
    Ok(())
}

pub(crate) async fn move_hint(conn: &Conn, group: &ParticipantId) -> Result<(), StoreError> {
    conn.execute(LOCK_READY, &[&group.as_str()]).await?;
    conn.execute(DUE_UNLESS_HELD, &[&group.as_str()]).await?;
    Ok(())
}

pub(crate) async fn wake(conn: &Conn) -> Result<(), StoreError> {
    conn.execute("SELECT pg_notify($1, 'new_work')", &[&WORK_CHANNEL]).await?;
    Ok(())
}

async fn record(
    conn: &Conn,
    group: &ParticipantId,
    action: &str,
    outbox_id: Option<OutboxId>,
    holds: &[(HoldKind, Option<OutboxId>)],
    reason: &str,
    actor: &str,
) -> Result<(), StoreError> {
    let holds: Vec<_> = holds.iter().map(|(kind, id)| json!({ "kind": kind, "jobId": id })).collect();
    let detail = Some(json!({ "holds": holds }));
    let entry = Entry { reason: Some(reason), group: Some(group), outbox_id, detail, ..Entry::new(action, actor) };
    audit::append(conn, &entry).await
}
