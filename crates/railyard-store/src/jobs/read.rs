//! Jobs, each put together from its content and from the one place where its message stands.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use railyard_core::attempt::AttemptState;
use railyard_core::backoff::RetryStrategy;
use railyard_core::settlement::EndStatus;
use railyard_core::{CredentialsId, Mode, OutboxId, ParticipantId, SequenceId};
use serde_json::Value;
use tokio_postgres::Row;
use uuid::Uuid;

use crate::connect::{Conn, Store};
use crate::error::StoreError;
use crate::row::{count, word};

/// Each table is asked for one id at a time (`LIMIT 1` keeps a look-up from becoming a join), so that a partitioned one
/// is opened at that id's day and nowhere else. One statement, one snapshot: a message that moves meanwhile is seen in
/// exactly one place. $2: with the payload.
pub(super) const READ: &str = "
    SELECT w.id AS outbox_id, j.external_id, j.source, j.type, j.participant_id, j.mode, j.rail_type, j.pool, j.target_url,
      j.headers, CASE WHEN $2::boolean THEN j.payload ELSE '' END AS payload, j.payload_content_type, j.credentials_id,
      j.max_attempts, j.retry_strategy, j.timeout_ms, j.scheduled_for, j.expires_at, j.instruction_id, j.idempotency_key,
      j.replay_of, j.created_at, m.metadata,
      o.status AS end_status, o.recorded_at AS completed_at, o.duration_millis, o.last_error AS end_error,
      f.outbox_id IS NOT NULL AS is_in_flight, s.outbox_id IS NOT NULL AS is_scheduled,
      p.outbox_id IS NOT NULL AS is_pending, coalesce(nullif(p.next_attempt_at, 'infinity'), s.due_at) AS next_attempt_at,
      (extract(epoch FROM coalesce(nullif(p.next_attempt_at, 'infinity'), s.due_at) - clock_timestamp()) * 1000)::bigint
        AS due_in_ms,
      coalesce(p.failures, f.failures, 0) AS failures,
      coalesce(o.attempt_count, f.attempt_no, p.attempt_count, 0) AS attempt_count,
      coalesce(o.sequence_id, f.sequence_id, p.sequence_id) AS sequence_id,
      coalesce(f.claimed_at, a.claimed_at) AS last_attempt_at, a.state AS last_state,
      a.error_code AS last_error_code, a.error_message AS last_error_message, r.outbox_id AS replayed_by
    FROM unnest($1::uuid[]) WITH ORDINALITY AS w(id, place)
    CROSS JOIN LATERAL (SELECT * FROM dispatch_job d WHERE d.outbox_id = w.id LIMIT 1) j
    CROSS JOIN LATERAL (SELECT jsonb_object_agg(d.meta_key, d.meta_value) AS metadata
                        FROM dispatch_job_metadata d WHERE d.dispatch_job_id = w.id) m
    LEFT JOIN LATERAL (SELECT * FROM dispatch_job_outcome d WHERE d.outbox_id = w.id LIMIT 1) o ON true
    LEFT JOIN LATERAL (SELECT * FROM in_flight d WHERE d.outbox_id = w.id LIMIT 1) f ON true
    LEFT JOIN LATERAL (SELECT * FROM payment_outbox_pending d WHERE d.outbox_id = w.id LIMIT 1) p ON true
    LEFT JOIN LATERAL (SELECT * FROM scheduled_job d WHERE d.outbox_id = w.id LIMIT 1) s ON true
    LEFT JOIN LATERAL (SELECT * FROM payment_outbox_attempt_archive d WHERE d.outbox_id = w.id AND NOT d.late
                       ORDER BY d.attempt_no DESC LIMIT 1) a ON true
    LEFT JOIN LATERAL (SELECT * FROM job_replay d WHERE d.replay_of = w.id LIMIT 1) r ON true
    ORDER BY w.place";

/// S3's statuses, and EXPIRED.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum JobStatus {
    /// Waits, and has not failed yet.
    Pending,
    /// Out at this moment.
    InProgress,
    /// Failed, and will be tried again.
    Failed,
    /// It has ended.
    Ended(EndStatus),
}

impl JobStatus {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Pending,
        Self::InProgress,
        Self::Failed,
        Self::Ended(EndStatus::Completed),
        Self::Ended(EndStatus::Error),
        Self::Ended(EndStatus::Expired),
        Self::Ended(EndStatus::Cancelled),
    ];

    /// As the API says it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "PENDING",
            Self::InProgress => "IN_PROGRESS",
            Self::Failed => "FAILED",
            Self::Ended(status) => status.as_str(),
        }
    }

    /// The status of this name.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == text)
    }
}

/// A job, its content and where it stands. Its payload and headers are never part of `Debug`.
#[derive(Clone, PartialEq)]
pub struct JobRow {
    /// Its id.
    pub outbox_id: OutboxId,
    /// The producer's id.
    pub external_id: Option<String>,
    /// Where it came from.
    pub source: String,
    /// What it is.
    pub kind: String,
    /// Its group, also where the mode gives it no order.
    pub group: Option<ParticipantId>,
    /// Order and blocking.
    pub mode: Mode,
    /// The rail's name.
    pub rail_type: String,
    /// Its pool.
    pub pool: Option<String>,
    /// Where it goes.
    pub target_url: String,
    /// Its own headers.
    pub headers: BTreeMap<String, String>,
    /// The bytes. Empty in lists, which do not read them.
    pub payload: Vec<u8>,
    /// Their type.
    pub payload_content_type: String,
    /// Who signs.
    pub credentials_id: CredentialsId,
    /// Deliveries in all.
    pub max_attempts: u32,
    /// How long after a failure the next attempt comes.
    pub retry: RetryStrategy,
    /// Deadline of one call.
    pub timeout_ms: u32,
    /// For search.
    pub metadata: BTreeMap<String, String>,
    /// Not before.
    pub scheduled_for: Option<Timestamp>,
    /// Not after.
    pub expires_at: Option<Timestamp>,
    /// S2's instruction.
    pub instruction_id: Option<String>,
    /// Its idempotency key.
    pub idempotency_key: Option<String>,
    /// The job that it replays.
    pub replay_of: Option<OutboxId>,
    /// The job that replays it.
    pub replayed_by: Option<OutboxId>,
    /// When it was accepted.
    pub created_at: Timestamp,
    /// Where it stands.
    pub status: JobStatus,
    /// Its place in its group, once it has one.
    pub sequence_id: Option<SequenceId>,
    /// Attempts begun, those that sent nothing included.
    pub attempt_count: u32,
    /// When the latest attempt began.
    pub last_attempt_at: Option<Timestamp>,
    /// Why the latest attempt, or the job, failed.
    pub last_error: Option<String>,
    /// When it is looked at next, if it waits; none if only a decision moves it.
    pub next_attempt_at: Option<Timestamp>,
    /// In how long that is, by the database's clock.
    pub due_in: Option<Duration>,
    /// When it ended.
    pub completed_at: Option<Timestamp>,
    /// From acceptance to the end.
    pub duration_millis: Option<i64>,
}

impl std::fmt::Debug for JobRow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JobRow")
            .field("outbox_id", &self.outbox_id)
            .field("group", &self.group)
            .field("status", &self.status)
            .field("attempt_count", &self.attempt_count)
            .field("last_error", &self.last_error)
            .finish_non_exhaustive()
    }
}

/// The job with this id.
///
/// # Errors
/// [`StoreError::Unavailable`], [`StoreError::Unreadable`].
pub async fn get(store: &Store, id: OutboxId) -> Result<Option<JobRow>, StoreError> {
    one(store, id, true).await
}

/// The same without its payload.
///
/// # Errors
/// [`StoreError::Unavailable`], [`StoreError::Unreadable`].
pub async fn glance(store: &Store, id: OutboxId) -> Result<Option<JobRow>, StoreError> {
    one(store, id, false).await
}

async fn one(store: &Store, id: OutboxId, with_payload: bool) -> Result<Option<JobRow>, StoreError> {
    let conn = store.api().await?;
    let jobs = read_in(&conn, &[id.0], with_payload).await;
    // A row that cannot be read leaves the connection as it was.
    if !matches!(jobs, Err(StoreError::Unavailable { .. })) {
        conn.ok();
    }
    Ok(jobs?.into_iter().next())
}

/// The jobs with these ids, in this order; those that are not there are left out.
pub(super) async fn read_in(conn: &Conn, ids: &[Uuid], with_payload: bool) -> Result<Vec<JobRow>, StoreError> {
    let statement = conn.prepare_cached(READ).await?;
    conn.query(&statement, &[&ids, &with_payload]).await?.iter().map(job).collect()
}

fn job(row: &Row) -> Result<JobRow, StoreError> {
    Ok(JobRow {
        outbox_id: OutboxId(row.try_get("outbox_id")?),
        external_id: row.try_get("external_id")?,
        source: row.try_get("source")?,
        kind: row.try_get("type")?,
        group: row.try_get::<_, Option<String>>("participant_id")?.map(ParticipantId::new),
        mode: word(row, "mode", Mode::parse)?,
        rail_type: row.try_get("rail_type")?,
        pool: row.try_get("pool")?,
        target_url: row.try_get("target_url")?,
        headers: map(row, "headers")?,
        payload: row.try_get("payload")?,
        payload_content_type: row.try_get("payload_content_type")?,
        credentials_id: CredentialsId(row.try_get("credentials_id")?),
        max_attempts: count(row, "max_attempts")?,
        retry: word(row, "retry_strategy", RetryStrategy::parse)?,
        timeout_ms: count(row, "timeout_ms")?,
        metadata: map(row, "metadata")?,
        scheduled_for: row.try_get("scheduled_for")?,
        expires_at: row.try_get("expires_at")?,
        instruction_id: row.try_get("instruction_id")?,
        idempotency_key: row.try_get("idempotency_key")?,
        replay_of: row.try_get::<_, Option<Uuid>>("replay_of")?.map(OutboxId),
        replayed_by: row.try_get::<_, Option<Uuid>>("replayed_by")?.map(OutboxId),
        created_at: row.try_get("created_at")?,
        status: status(row)?,
        sequence_id: row.try_get::<_, Option<i64>>("sequence_id")?.map(SequenceId),
        attempt_count: count(row, "attempt_count")?,
        last_attempt_at: row.try_get("last_attempt_at")?,
        last_error: last_error(row)?,
        next_attempt_at: row.try_get("next_attempt_at")?,
        due_in: row.try_get::<_, Option<i64>>("due_in_ms")?.map(|ms| Duration::from_millis(ms.try_into().unwrap_or(0))),
        completed_at: row.try_get("completed_at")?,
        duration_millis: row.try_get("duration_millis")?,
    })
}

fn status(row: &Row) -> Result<JobStatus, StoreError> {
    if row.try_get::<_, Option<&str>>("end_status")?.is_some() {
        return Ok(JobStatus::Ended(word(row, "end_status", EndStatus::parse)?));
    }
    if row.try_get("is_in_flight")? {
        return Ok(JobStatus::InProgress);
    }
    // A job that was only deferred, or begun and never sent, has not failed.
    let failed = row.try_get::<_, i32>("failures")? > 0;
    let waits = row.try_get::<_, bool>("is_pending")? || row.try_get::<_, bool>("is_scheduled")?;
    if !waits {
        let id: Uuid = row.try_get("outbox_id")?;
        return Err(StoreError::Unreadable { detail: format!("job {id} is neither waiting, nor out, nor ended") });
    }
    Ok(if failed { JobStatus::Failed } else { JobStatus::Pending })
}

fn last_error(row: &Row) -> Result<Option<String>, StoreError> {
    if let Some(text) = row.try_get::<_, Option<String>>("end_error")? {
        return Ok(Some(text));
    }
    let succeeded = row.try_get::<_, Option<&str>>("last_state")? == Some(AttemptState::Dispatched.as_str());
    let code: Option<String> = row.try_get("last_error_code")?;
    let message: Option<String> = row.try_get("last_error_message")?;
    Ok(match (succeeded, code, message) {
        (true, _, _) => None,
        (false, Some(code), Some(message)) => Some(format!("{code}: {message}")),
        (false, code, message) => code.or(message),
    })
}

fn map(row: &Row, column: &str) -> Result<BTreeMap<String, String>, StoreError> {
    let unreadable = || StoreError::Unreadable { detail: format!("{column} is no object of strings") };
    match row.try_get::<_, Option<Value>>(column)? {
        None => Ok(BTreeMap::new()),
        Some(value) => serde_json::from_value(value).map_err(|_| unreadable()),
    }
}
