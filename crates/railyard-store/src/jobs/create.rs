//! The way in. All jobs of a call in one transaction, which is one statement: all or none.

use jiff::Timestamp;
use railyard_core::job::NewJob;
use railyard_core::{OutboxId, SequenceId};
use tokio_postgres::Row;
use uuid::Uuid;

use super::columns::{Columns, Fields};
use crate::connect::{Conn, Store};
use crate::error::StoreError;
use crate::listen::WORK_CHANNEL;
use crate::transaction::repeated;

/// One statement whatever the number of jobs. Arrays of plain types, since a composite's type would have to be looked
/// up on each new connection. `$22` is how long locks are waited for.
pub(super) const MANY: &str = "
    SELECT e.ordinal, e.outbox_id, e.created, e.conflict, e.sequence_id, e.created_at, e.fault
    FROM enqueue_outbox((
      SELECT array_agg(ROW(i.source, i.type, i.external_id, i.participant_id, i.mode, i.rail_type, i.pool, i.target_url,
        i.payload, i.payload_content_type, i.credentials_id, i.max_attempts, i.retry_strategy, i.timeout_ms, i.headers,
        i.metadata, i.scheduled_for, i.expires_at, i.instruction_id, i.idempotency_key, i.traceparent)::outbox_item)
      FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[],
        $9::bytea[], $10::text[], $11::uuid[], $12::integer[], $13::text[], $14::integer[], $15::jsonb[], $16::jsonb[],
        $17::timestamptz[], $18::timestamptz[], $19::text[], $20::text[], $21::text[])
        AS i(source, type, external_id, participant_id, mode, rail_type, pool, target_url, payload,
        payload_content_type, credentials_id, max_attempts, retry_strategy, timeout_ms, headers, metadata,
        scheduled_for, expires_at, instruction_id, idempotency_key, traceparent)),
      $22 AND set_config('lock_timeout', $23, true) <> '') e
    ORDER BY e.ordinal";

/// The same for one: no arrays, and the function that is made for it.
const ONE: &str = "
    SELECT * FROM enqueue_one($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21)";

/// What an idempotency key said of a job, or of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// It is new.
    Created,
    /// The key was used before for the same content: this is the first.
    Repeated,
    /// The key was used before for other content. Nothing was made.
    Conflict,
}

/// What became of one job of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Created {
    /// What its key said.
    pub taken: Taken,
    /// Its id, or that of the job that used the idempotency key first.
    pub outbox_id: OutboxId,
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
    let columns = Columns::of(jobs)?;
    repeated(|| create_once(store, &columns, jobs.len())).await
}

async fn create_once(store: &Store, columns: &Columns<'_>, count: usize) -> Result<Vec<Created>, StoreError> {
    let conn = store.api().await?;
    let result = match columns.one() {
        None => Ok(Vec::new()),
        Some(fields) if count == 1 => one(&conn, fields).await,
        Some(_) => many(&conn, columns).await,
    };
    give_back(conn, result)
}

/// A statement that failed rolled itself back: only a lost connection is not given back.
pub(super) fn give_back<T>(conn: Conn, result: Result<T, StoreError>) -> Result<T, StoreError> {
    if !matches!(result, Err(StoreError::Unavailable { .. })) {
        conn.ok();
    }
    result
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

async fn one(conn: &Conn, fields: Fields<'_>) -> Result<Vec<Created>, StoreError> {
    let statement = conn.prepare_cached(ONE).await?;
    Ok(vec![created(&conn.query_one(&statement, &fields).await?)?])
}

async fn many(conn: &Conn, columns: &Columns<'_>) -> Result<Vec<Created>, StoreError> {
    let statement = conn.prepare_cached(MANY).await?;
    let mut parameters = columns.many().to_vec();
    parameters.extend_from_slice(&[&false, &""]);
    conn.query(&statement, &parameters).await?.iter().map(created).collect()
}

/// A row of an item that was taken.
pub(super) fn created(row: &Row) -> Result<Created, StoreError> {
    let outbox_id: Uuid = row.try_get("outbox_id")?;
    let taken = match (row.try_get("created")?, row.try_get("conflict")?) {
        (_, true) => Taken::Conflict,
        (true, false) => Taken::Created,
        (false, false) => Taken::Repeated,
    };
    Ok(Created {
        taken,
        outbox_id: OutboxId(outbox_id),
        sequence_id: row.try_get::<_, Option<i64>>("sequence_id")?.map(SequenceId),
        created_at: row.try_get("created_at")?,
    })
}
