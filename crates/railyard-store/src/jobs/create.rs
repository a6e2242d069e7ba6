//! The way in. All jobs of a call in one transaction of `enqueue_outbox`: all or none.

use std::collections::BTreeMap;

use jiff::Timestamp;
use railyard_core::job::NewJob;
use railyard_core::{OutboxId, ParticipantId, SequenceId};
use serde_json::Value;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use crate::connect::{Conn, Store};
use crate::error::StoreError;
use crate::listen::WORK_CHANNEL;
use crate::transaction::{begin, end};

/// One statement whatever the number of jobs. Arrays of plain types, since a composite's type would have to be looked
/// up on each new connection.
const CREATE: &str = "
    SELECT e.ordinal, e.outbox_id, e.created, e.conflict, e.sequence_id
    FROM enqueue_outbox((
      SELECT array_agg(ROW(i.source, i.type, i.external_id, i.participant_id, i.mode, i.rail_type, i.pool, i.target_url,
        i.payload, i.payload_content_type, i.credentials_id, i.max_attempts, i.retry_strategy, i.timeout_ms, i.headers,
        i.metadata, i.scheduled_for, i.expires_at, i.instruction_id, i.idempotency_key, i.traceparent)::outbox_item
        ORDER BY i.ordinal)
      FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[],
        $9::bytea[], $10::text[], $11::uuid[], $12::integer[], $13::text[], $14::integer[], $15::jsonb[], $16::jsonb[],
        $17::timestamptz[], $18::timestamptz[], $19::text[], $20::text[], $21::text[]) WITH ORDINALITY
        AS i(source, type, external_id, participant_id, mode, rail_type, pool, target_url, payload,
        payload_content_type, credentials_id, max_attempts, retry_strategy, timeout_ms, headers, metadata,
        scheduled_for, expires_at, instruction_id, idempotency_key, traceparent, ordinal))) e
    ORDER BY e.ordinal";

/// What became of one job of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Created {
    /// Its id, or that of the job that used the idempotency key first.
    pub outbox_id: OutboxId,
    /// False: the key was used before.
    pub created: bool,
    /// The key was used before, for other content. Nothing was made.
    pub conflict: bool,
    /// Its place in its group; none if it has no order, waits for its date or was not made.
    pub sequence_id: Option<SequenceId>,
    /// When the job of this id was accepted, as its row says it.
    pub created_at: Timestamp,
}

/// Makes the jobs, in their order, and commits. Answers in the order of the jobs. The caller wakes owners afterwards
/// with [`notify`]: a NOTIFY inside would make commits queue behind each other.
///
/// # Errors
/// [`StoreError::Invalid`] (nothing of the call was stored), [`StoreError::Busy`] if the transaction that uses a key
/// or a group is still open after a second, [`StoreError::Unavailable`]: whether it was stored is then unknown, and
/// the same call with the same idempotency key finds out.
pub async fn create(store: &Store, jobs: &[NewJob]) -> Result<Vec<Created>, StoreError> {
    let conn = begin(store, "SET LOCAL railyard.notify = 'off'").await?;
    let result = enqueue(&conn, jobs).await;
    end(conn, result).await
}

/// Wakes the owners on all nodes. It carries nothing that could be lost: the poll finds all work without it, so it
/// does not wait for the disk.
///
/// # Errors
/// Any error of the database.
pub async fn notify(store: &Store) -> Result<(), StoreError> {
    let conn = store.api().await?;
    let sql = format!("BEGIN; SET LOCAL synchronous_commit = off; NOTIFY {WORK_CHANNEL}, 'new_work'; COMMIT");
    conn.batch_execute(&sql).await?;
    conn.ok();
    Ok(())
}

async fn enqueue(conn: &Conn, jobs: &[NewJob]) -> Result<Vec<Created>, StoreError> {
    let statement = conn.prepare_cached(CREATE).await?;
    let columns = Columns::of(jobs)?;
    let rows = conn.query(&statement, &columns.parameters()).await?;
    rows.iter()
        .map(|row| {
            let outbox_id: Uuid = row.try_get("outbox_id")?;
            Ok(Created {
                outbox_id: OutboxId(outbox_id),
                created_at: accepted_at(outbox_id)?,
                created: row.try_get("created")?,
                conflict: row.try_get("conflict")?,
                sequence_id: row.try_get::<_, Option<i64>>("sequence_id")?.map(SequenceId),
            })
        })
        .collect()
}

/// An id carries the millisecond of its job's `created_at`, which has no finer part (`uuid7_nth`).
fn accepted_at(id: Uuid) -> Result<Timestamp, StoreError> {
    let millis = i64::try_from(id.as_u128() >> 80).unwrap_or(i64::MAX);
    Timestamp::from_millisecond(millis).map_err(|error| StoreError::Unreadable { detail: format!("id {id}: {error}") })
}

/// The jobs, turned by ninety degrees.
#[derive(Default)]
struct Columns<'a> {
    source: Vec<&'a str>,
    kind: Vec<&'a str>,
    external_id: Vec<Option<&'a str>>,
    group: Vec<Option<&'a str>>,
    mode: Vec<&'static str>,
    rail_type: Vec<&'a str>,
    pool: Vec<Option<&'a str>>,
    target_url: Vec<&'a str>,
    payload: Vec<&'a [u8]>,
    content_type: Vec<&'a str>,
    credentials_id: Vec<Option<Uuid>>,
    max_attempts: Vec<i32>,
    retry: Vec<&'static str>,
    timeout_ms: Vec<i32>,
    headers: Vec<Option<Value>>,
    metadata: Vec<Option<Value>>,
    scheduled_for: Vec<Option<Timestamp>>,
    expires_at: Vec<Option<Timestamp>>,
    instruction_id: Vec<Option<&'a str>>,
    idempotency_key: Vec<Option<&'a str>>,
    traceparent: Vec<Option<&'a str>>,
}

impl<'a> Columns<'a> {
    fn of(jobs: &'a [NewJob]) -> Result<Self, StoreError> {
        let mut columns = Self::default();
        for (job, ordinal) in jobs.iter().zip(1_u32..) {
            columns.push(job, ordinal)?;
        }
        Ok(columns)
    }

    fn push(&mut self, job: &'a NewJob, ordinal: u32) -> Result<(), StoreError> {
        let number = |field: &str, value: u32| {
            i32::try_from(value).map_err(|_| StoreError::Invalid {
                field: field.to_owned(),
                detail: format!("{value} is too large"),
                ordinal,
            })
        };
        self.source.push(&job.source);
        self.kind.push(&job.kind);
        self.external_id.push(job.external_id.as_deref());
        self.group.push(job.group.as_ref().map(ParticipantId::as_str));
        self.mode.push(job.mode.as_str());
        self.rail_type.push(&job.rail_type);
        self.pool.push(job.pool.as_deref());
        self.target_url.push(&job.target_url);
        self.payload.push(&job.payload);
        self.content_type.push(&job.payload_content_type);
        self.credentials_id.push(job.credentials_id.map(|id| id.0));
        self.max_attempts.push(number("max_attempts", job.max_attempts)?);
        self.retry.push(job.retry.as_str());
        self.timeout_ms.push(number("timeout_ms", job.timeout_s.saturating_mul(1000))?);
        self.headers.push(object(job.headers.iter().map(|(name, value)| (name, value))));
        self.metadata.push(object(&job.metadata));
        self.scheduled_for.push(job.scheduled_for);
        self.expires_at.push(job.expires_at);
        self.instruction_id.push(job.instruction_id.as_deref());
        self.idempotency_key.push(job.idempotency_key.as_deref());
        self.traceparent.push(job.traceparent.as_deref());
        Ok(())
    }

    fn parameters(&self) -> [&(dyn ToSql + Sync); 21] {
        [
            &self.source,
            &self.kind,
            &self.external_id,
            &self.group,
            &self.mode,
            &self.rail_type,
            &self.pool,
            &self.target_url,
            &self.payload,
            &self.content_type,
            &self.credentials_id,
            &self.max_attempts,
            &self.retry,
            &self.timeout_ms,
            &self.headers,
            &self.metadata,
            &self.scheduled_for,
            &self.expires_at,
            &self.instruction_id,
            &self.idempotency_key,
            &self.traceparent,
        ]
    }
}

/// A map as jsonb; an empty one and none are the same job.
fn object<'a>(entries: impl IntoIterator<Item = (&'a String, &'a String)>) -> Option<Value> {
    let entries: BTreeMap<&String, &String> = entries.into_iter().collect();
    (!entries.is_empty())
        .then(|| entries.into_iter().map(|(key, value)| (key.clone(), Value::from(value.as_str()))).collect())
}
