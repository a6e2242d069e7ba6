//! Statement 8, second half: in-flight rows that no live call will ever settle.
//!
//! A row is healed by whoever deletes it, as in settle: one of both gets it. Not before its `call_deadline`; rows of an
//! older epoch not before this node has been a member for a full lease, so that results which other nodes still hold
//! after an outage get in first.

use std::time::Duration;

use railyard_core::{AttemptId, Lane, NodeId, OutboxId, ParticipantId};
use tokio_postgres::Row;
use uuid::Uuid;

use crate::connect::Store;
use crate::error::StoreError;
use crate::lease::FENCE;

/// $2: attempts of this node's own epochs that no live call knows. $5: S2's time rule, for rows whose node is gone.
pub(crate) const HEAL: &str = "
WITH doomed AS (
  SELECT f.attempt_id FROM in_flight f LEFT JOIN partition_lease l ON l.partition_id = f.partition_id
  WHERE f.call_deadline < clock_timestamp()
    AND ((l.owner = $1 AND f.attempt_id = ANY ($2))
      OR (l.owner = $1 AND f.epoch < l.epoch
          AND (SELECT n.joined_at FROM node n WHERE n.node_id = $1)
              <= clock_timestamp() - $3::bigint * interval '1 millisecond')
      OR (f.claimed_at < clock_timestamp() - $5::bigint * interval '1 millisecond'
          AND f.call_deadline < clock_timestamp() - interval '30 seconds'
          AND NOT EXISTS (SELECT 1 FROM node n WHERE n.node_id = f.node_id AND n.lease_until > clock_timestamp())))
  ORDER BY f.participant_id, f.attempt_id LIMIT 100
), gone AS (
  DELETE FROM in_flight f USING doomed d WHERE f.attempt_id = d.attempt_id RETURNING f.*
), decided AS MATERIALIZED (
  SELECT g.*, g.zombies + 1 >= $4 AS parked, (g.on_unknown = 'hold' OR g.zombies + 1 >= $4) AND NOT g.known_success AS holds,
         clock_timestamp() AS now,
         NOT g.known_success AND g.on_unknown = 'retry' AND g.failures + 1 >= g.max_attempts AS spent
  FROM gone g
), archived AS (
  INSERT INTO payment_outbox_attempt_archive (outbox_id, attempt_no, late, attempt_id, state, participant_id, sequence_id,
    rail_type, epoch, node_id, claimed_at, recorded_at, error_code, error_message)
  SELECT outbox_id, attempt_no, false, attempt_id,
    CASE WHEN spent AND NOT holds THEN 'FAILED' ELSE 'ZOMBIE_REQUEUE' END,
    participant_id, sequence_id, rail_type, epoch, node_id, claimed_at, now,
    CASE WHEN spent AND NOT holds THEN 'RETRY_CEILING_EXCEEDED' ELSE 'ZOMBIE_REQUEUE' END,
    'outcome unknown: the node stopped before it was recorded'
  FROM decided
), ended AS (
  INSERT INTO dispatch_job_outcome (outbox_id, status, participant_id, sequence_id, attempt_count, last_error,
    duration_millis, recorded_at)
  SELECT outbox_id, CASE WHEN known_success THEN 'COMPLETED' ELSE 'ERROR' END, participant_id, sequence_id, attempt_no,
    CASE WHEN NOT known_success THEN 'RETRY_CEILING_EXCEEDED: outcome of the last attempt unknown' END,
    greatest(0, floor(extract(epoch FROM now - created_at) * 1000)), now
  FROM decided WHERE known_success OR (spent AND NOT holds)
), back AS (
  INSERT INTO payment_outbox_pending (outbox_id, participant_id, sequence_id, partition_id, rail_type, endpoint, mode,
    max_attempts, timeout_ms, attempt_count, failures, zombies, next_attempt_at, created_at)
  SELECT outbox_id, participant_id, sequence_id, partition_id, rail_type, endpoint, mode, max_attempts, timeout_ms,
    attempt_no, failures + 1, zombies + 1,
    CASE WHEN participant_id IS NULL
              AND (holds OR EXISTS (SELECT 1 FROM group_hold h WHERE h.participant_id = decided.outbox_id::text))
         THEN 'infinity' ELSE now END, created_at
  FROM decided WHERE holds OR NOT (known_success OR spent)
), held AS (
  INSERT INTO group_hold (participant_id, kind, outbox_id, reason, actor)
  SELECT coalesce(participant_id, outbox_id::text),
    CASE WHEN holds THEN 'in_doubt' ELSE 'blocked' END, outbox_id,
    CASE WHEN NOT holds THEN 'RETRY_CEILING_EXCEEDED' WHEN parked THEN 'in doubt ' || (zombies + 1) || ' times'
         ELSE 'outcome unknown' END, 'heal'
  FROM decided WHERE holds OR (spent AND mode = 'BLOCK_ON_ERROR' AND participant_id IS NOT NULL)
  ORDER BY participant_id
  ON CONFLICT DO NOTHING
), hinted AS (
  INSERT INTO ready_group AS r (participant_id, partition_id, due_at)
  SELECT participant_id, partition_id,
    CASE WHEN holds OR (spent AND mode = 'BLOCK_ON_ERROR') THEN 'infinity' ELSE clock_timestamp() END
  FROM decided WHERE participant_id IS NOT NULL ORDER BY participant_id
  ON CONFLICT (participant_id) DO UPDATE
    SET due_at = CASE WHEN r.due_at = 'infinity' THEN r.due_at ELSE excluded.due_at END
)
SELECT attempt_id, outbox_id, participant_id, holds, spent AND NOT holds AS failed FROM decided";

/// In-flight rows of this node's own epochs, to be compared with what it has in memory.
const OWN: &str = "
SELECT f.attempt_id, f.outbox_id, f.participant_id, f.attempt_no
FROM in_flight f JOIN partition_lease l ON l.partition_id = f.partition_id
WHERE l.owner = $1 AND l.epoch = f.epoch";

/// A hundred years.
const ZOMBIE_MS_MAX: i64 = 100 * 366 * 86_400_000;

/// Rows healed in one transaction (the statement's LIMIT).
pub const HEAL_BATCH: usize = 100;

/// How to heal.
#[derive(Clone, Copy, Debug)]
pub struct HealRules {
    /// A healer's own lease: how long it must have been a member.
    pub lease: Duration,
    /// At this many heals a message is parked whatever its rail says.
    pub zombies_max: u32,
    /// S2's age for rows that nobody owns.
    pub zombie_after: Duration,
}

impl Default for HealRules {
    fn default() -> Self {
        Self { lease: Duration::from_secs(15), zombies_max: 3, zombie_after: Duration::from_secs(120) }
    }
}

/// One attempt given up.
#[derive(Clone, Debug)]
pub struct Healed {
    /// Which.
    pub attempt_id: AttemptId,
    /// Of which message.
    pub outbox_id: OutboxId,
    /// Whose turn.
    pub lane: Lane,
    /// The lane is held in doubt; else it is tried again, unless it failed.
    pub held: bool,
    /// It was the last that the message may have: on record as FAILED, and the message has ended.
    pub failed: bool,
}

/// An in-flight row of this node's own.
#[derive(Clone, Debug)]
pub struct OwnInFlight {
    /// Which attempt.
    pub attempt_id: AttemptId,
    /// Of which message.
    pub outbox_id: OutboxId,
    /// Whose turn.
    pub lane: Lane,
    /// Which attempt at it.
    pub attempt_no: u32,
}

impl Store {
    /// Heals up to a hundred rows. `orphans`: this node's own attempts that no live call knows.
    ///
    /// # Errors
    /// [`StoreError`]; nothing was healed.
    pub async fn heal(&self, me: NodeId, orphans: &[AttemptId], rules: HealRules) -> Result<Vec<Healed>, StoreError> {
        let conn = self.work().await?;
        let orphans: Vec<Uuid> = orphans.iter().map(|attempt| attempt.0).collect();
        let statement = conn.prepare_cached(HEAL).await?;
        conn.batch_execute("BEGIN").await?;
        if conn.query(FENCE, &[&me.0]).await?.is_empty() {
            conn.batch_execute("ROLLBACK").await?;
            conn.ok();
            return Ok(Vec::new());
        }
        let lease_ms = i64::try_from(rules.lease.as_millis()).unwrap_or(i64::MAX);
        // An interval of more than a century would leave PostgreSQL's range.
        let zombie_ms = i64::try_from(rules.zombie_after.as_millis()).unwrap_or(i64::MAX).min(ZOMBIE_MS_MAX);
        let zombies_max = i32::try_from(rules.zombies_max).unwrap_or(i32::MAX);
        let rows = conn.query(&statement, &[&me.0, &orphans, &lease_ms, &zombies_max, &zombie_ms]).await?;
        conn.batch_execute("COMMIT").await?;
        let healed = rows
            .iter()
            .map(|row| {
                let (attempt_id, outbox_id, lane) = ids(row)?;
                let (held, failed) = (row.try_get("holds")?, row.try_get("failed")?);
                Ok(Healed { attempt_id, outbox_id, lane, held, failed })
            })
            .collect::<Result<_, StoreError>>()?;
        conn.ok();
        Ok(healed)
    }

    /// What the table says this node has in flight.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn own_in_flight(&self, me: NodeId) -> Result<Vec<OwnInFlight>, StoreError> {
        let conn = self.work().await?;
        let rows = conn.query(OWN, &[&me.0]).await?;
        let own = rows
            .iter()
            .map(|row| {
                let (attempt_id, outbox_id, lane) = ids(row)?;
                let attempt_no: i32 = row.try_get("attempt_no")?;
                Ok(OwnInFlight { attempt_id, outbox_id, lane, attempt_no: u32::try_from(attempt_no).unwrap_or(0) })
            })
            .collect::<Result<_, StoreError>>()?;
        conn.ok();
        Ok(own)
    }
}

fn ids(row: &Row) -> Result<(AttemptId, OutboxId, Lane), StoreError> {
    let outbox_id = OutboxId(row.try_get("outbox_id")?);
    let lane = match row.try_get::<_, Option<String>>("participant_id")? {
        Some(group) => Lane::Group(ParticipantId::new(group)),
        None => Lane::Single(outbox_id),
    };
    Ok((AttemptId(row.try_get("attempt_id")?), outbox_id, lane))
}
