//! Scheduled jobs that came due take their number now, in (scheduled_for, id) order: a group never waits for a date.
//!
//! Here the owner acts as a producer, and producers of one group wait for each other. It does not: a group on which a
//! producer is open is passed over until the next poll, or that producer would delay everybody's.

use std::collections::HashSet;

use jiff::Timestamp;
use railyard_core::{Epoch, NodeId, PartitionId};
use tokio_postgres::Row;
use tokio_postgres::types::FromSql;
use uuid::Uuid;

use crate::connect::{Conn, Store};
use crate::error::StoreError;
use crate::lease::FENCE;

pub(crate) const DUE: &str = "
SELECT s.outbox_id, s.due_at
FROM unnest($1::smallint[]) AS p(partition_id)
CROSS JOIN LATERAL (
  SELECT j.outbox_id, j.due_at FROM scheduled_job j
  WHERE j.partition_id = p.partition_id AND j.due_at <= statement_timestamp() AND (j.due_at, j.outbox_id) > ($3, $4)
  ORDER BY j.due_at, j.outbox_id LIMIT $2) s
ORDER BY s.due_at, s.outbox_id LIMIT $2";

const LOCK: &str = "
SELECT outbox_id FROM scheduled_job WHERE outbox_id = ANY ($1) ORDER BY due_at, outbox_id FOR UPDATE SKIP LOCKED";

/// Groups whose order the jobs will have a place in.
const GROUPS: &str = "
SELECT DISTINCT participant_id FROM dispatch_job
WHERE outbox_id = ANY ($1) AND outbox_id >= $2 AND outbox_id <= $3 AND participant_id IS NOT NULL AND mode <> 'IMMEDIATE'
ORDER BY participant_id";

const KNOWN: &str = "SELECT participant_id FROM participant_outbox_sequences WHERE participant_id = ANY ($1)";

/// What a first message of a group does, without the message.
const MAKE: &str = "
INSERT INTO participant_outbox_sequences (participant_id, next_sequence_id) VALUES ($1, 1) ON CONFLICT DO NOTHING";

/// A producer whose first message of a group is not committed cannot be passed over, only waited for.
const MAKE_WAIT: &str = "SET LOCAL lock_timeout = '10ms'";

/// Groups on which no producer is at work.
const QUIET: &str = "
SELECT participant_id FROM participant_outbox_sequences
WHERE participant_id = ANY ($1) ORDER BY participant_id FOR UPDATE SKIP LOCKED";

/// The sequence rows are locked, in group order, by QUIET; then each job takes its number in due order.
const PROMOTE: &str = "
WITH job AS MATERIALIZED (
  SELECT j.outbox_id, j.participant_id, j.mode, j.rail_type, j.target_url, j.max_attempts, j.timeout_ms, j.created_at,
    j.scheduled_for, j.participant_id IS NOT NULL AND j.mode <> 'IMMEDIATE' AS ordered
  FROM dispatch_job j WHERE j.outbox_id = ANY ($1) AND j.outbox_id >= $2 AND j.outbox_id <= $3
    AND (j.participant_id IS NULL OR j.mode = 'IMMEDIATE' OR j.participant_id = ANY ($4))
), numbered AS (
  SELECT outbox_id, participant_id,
    row_number() OVER (PARTITION BY participant_id ORDER BY scheduled_for, outbox_id) AS rank,
    count(*) OVER (PARTITION BY participant_id) AS total
  FROM job WHERE ordered
), bumped AS (
  INSERT INTO participant_outbox_sequences AS s (participant_id, next_sequence_id)
  SELECT participant_id, total + 1 FROM numbered WHERE rank = 1 ORDER BY participant_id
  ON CONFLICT (participant_id) DO UPDATE SET next_sequence_id = s.next_sequence_id + excluded.next_sequence_id - 1
  RETURNING s.participant_id, s.next_sequence_id
), placed AS (
  INSERT INTO payment_outbox_pending (outbox_id, participant_id, sequence_id, partition_id, rail_type, endpoint, mode,
    max_attempts, timeout_ms, next_attempt_at, created_at)
  SELECT j.outbox_id, CASE WHEN j.ordered THEN j.participant_id END,
    CASE WHEN j.ordered THEN b.next_sequence_id - n.total + n.rank - 1 END,
    CASE WHEN j.ordered THEN partition_of(j.participant_id) ELSE partition_of_id(j.outbox_id) END,
    j.rail_type, endpoint_of(j.target_url), j.mode, j.max_attempts, j.timeout_ms, clock_timestamp(), j.created_at
  FROM job j LEFT JOIN numbered n ON n.outbox_id = j.outbox_id LEFT JOIN bumped b ON b.participant_id = n.participant_id
), taken AS (
  DELETE FROM scheduled_job WHERE outbox_id = ANY (ARRAY(SELECT outbox_id FROM job))
)
SELECT (SELECT count(*) FROM job) AS promoted,
  ARRAY(SELECT DISTINCT participant_id FROM numbered ORDER BY participant_id) AS groups";

/// A statement of its own, last, as in enqueue.
const HINT: &str = "
INSERT INTO ready_group (participant_id, partition_id, due_at)
SELECT g, partition_of(g), clock_timestamp() FROM unnest($1::text[]) AS g ORDER BY g
ON CONFLICT DO NOTHING";

/// A place in the order of due jobs.
#[derive(Clone, Copy, Debug)]
pub struct Place(Timestamp, Uuid);

/// What became of one page of due jobs.
#[derive(Clone, Copy, Debug)]
pub struct Promoted {
    /// How many took their number.
    pub jobs: usize,
    /// Where the next page begins, if this one was full.
    pub next_page: Option<Place>,
}

impl Store {
    /// Promotes up to `limit` due jobs of the owned partitions, from a place on.
    ///
    /// # Errors
    /// [`StoreError`]; nothing was promoted.
    pub async fn promote(
        &self,
        me: NodeId,
        owned: &[(PartitionId, Epoch)],
        behind: Option<Place>,
        limit: usize,
    ) -> Result<Promoted, StoreError> {
        let partitions: Vec<i16> = owned.iter().map(|(partition, _)| i16::from(partition.0)).collect();
        let page = i64::try_from(limit).unwrap_or(i64::MAX);
        let Place(due, id) = behind.unwrap_or(Place(Timestamp::UNIX_EPOCH, Uuid::nil()));
        let conn = self.work().await?;
        let statement = conn.prepare_cached(DUE).await?;
        let rows = conn.query(&statement, &[&partitions, &page, &due, &id]).await?;
        let next_page = match rows.last() {
            Some(last) if rows.len() >= limit => Some(Place(last.try_get("due_at")?, last.try_get("outbox_id")?)),
            Some(_) | None => None,
        };
        let mut ids: Vec<Uuid> = column(&rows)?;
        ids.sort_unstable();
        let jobs = match (ids.first().copied(), ids.last().copied()) {
            (Some(low), Some(high)) => promote_due(&conn, me, &ids, low, high).await?,
            (None, _) | (_, None) => 0,
        };
        conn.ok();
        Ok(Promoted { jobs, next_page })
    }
}

/// `low` and `high` are the smallest and the largest id: they tell the days to look at.
async fn promote_due(conn: &Conn, me: NodeId, ids: &[Uuid], low: Uuid, high: Uuid) -> Result<usize, StoreError> {
    let statement = conn.prepare_cached(GROUPS).await?;
    let groups: Vec<String> = column(&conn.query(&statement, &[&ids, &low, &high]).await?)?;
    make_sequences(conn, &groups).await?;
    conn.batch_execute("BEGIN").await?;
    if conn.query(FENCE, &[&me.0]).await?.is_empty() {
        conn.batch_execute("ROLLBACK").await?;
        return Ok(0);
    }
    let ids: Vec<Uuid> = column(&conn.query(LOCK, &[&ids]).await?)?;
    let quiet: Vec<String> = column(&conn.query(QUIET, &[&groups]).await?)?;
    let statement = conn.prepare_cached(PROMOTE).await?;
    let row = conn.query_one(&statement, &[&ids, &low, &high, &quiet]).await?;
    let groups: Vec<String> = row.try_get("groups")?;
    conn.execute(HINT, &[&groups]).await?;
    conn.batch_execute("COMMIT").await?;
    Ok(usize::try_from(row.try_get::<_, i64>("promoted")?).unwrap_or(0))
}

/// Makes the sequence rows that are missing, one transaction each: somebody else may be about to make one.
async fn make_sequences(conn: &Conn, groups: &[String]) -> Result<(), StoreError> {
    let statement = conn.prepare_cached(KNOWN).await?;
    let known: HashSet<String> = column(&conn.query(&statement, &[&groups]).await?)?.into_iter().collect();
    for group in groups.iter().filter(|group| !known.contains(*group)) {
        conn.batch_execute(&format!("BEGIN; {MAKE_WAIT}")).await?;
        match conn.execute(MAKE, &[group]).await.map_err(StoreError::from) {
            Ok(_) => conn.batch_execute("COMMIT").await?,
            Err(StoreError::Busy { .. } | StoreError::TooSlow { .. }) => conn.batch_execute("ROLLBACK").await?,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The first column.
fn column<T: for<'a> FromSql<'a>>(rows: &[Row]) -> Result<Vec<T>, StoreError> {
    Ok(rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?)
}
