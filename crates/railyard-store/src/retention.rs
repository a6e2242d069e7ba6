//! Statement 10: days ahead, days gone, keys that outlived their use, and the sweep that should find nothing.

use std::time::Duration;

use crate::connect::Store;
use crate::error::StoreError;

/// Days that exist ahead of today.
const DAYS_AHEAD: i32 = 14;

/// Unheld groups with pending rows that discovery would never find: no ready row, or one later than the head.
/// A hint that this makes too early costs one begin; one that it makes twice is one row.
pub(crate) const SWEEP: &str = "
WITH waiting AS (
  SELECT DISTINCT participant_id FROM payment_outbox_pending WHERE participant_id IS NOT NULL
), lost AS (
  SELECT g.participant_id, h.next_attempt_at
  FROM waiting g
  LEFT JOIN ready_group r ON r.participant_id = g.participant_id
  CROSS JOIN LATERAL (
    SELECT p.next_attempt_at FROM payment_outbox_pending p
    WHERE p.participant_id = g.participant_id ORDER BY p.sequence_id LIMIT 1) h
  WHERE (r.participant_id IS NULL OR r.due_at > greatest(h.next_attempt_at, clock_timestamp() + interval '5 seconds'))
    AND NOT EXISTS (SELECT 1 FROM in_flight f WHERE f.participant_id = g.participant_id)
    AND NOT EXISTS (SELECT 1 FROM group_hold x WHERE x.participant_id = g.participant_id)
)
INSERT INTO ready_group AS r (participant_id, partition_id, due_at)
SELECT participant_id, partition_of(participant_id), next_attempt_at FROM lost ORDER BY participant_id
ON CONFLICT (participant_id) DO UPDATE SET due_at = excluded.due_at
RETURNING participant_id";

/// What the maintenance keeps for how long.
#[derive(Clone, Copy, Debug)]
pub struct Retention {
    /// Jobs, their metadata and ends, in days.
    pub jobs_days: i32,
    /// Attempts, in days.
    pub attempts_days: i32,
    /// Idempotency keys, in days; never shorter than jobs.
    pub keys_days: i32,
    /// Scheduled items and their payments once they are completed, and what dispatchers did, in days; never shorter than
    /// keys: one that is accepted anew under an old id must not find its old run.
    pub items_days: i32,
    /// Feeds and what became of their instructions, in days since they were opened; a feed one of whose payments is still
    /// there stays as well. Never shorter than items: a file is known again at least for as long as its payments.
    pub feeds_days: i32,
}

impl Default for Retention {
    fn default() -> Self {
        Self { jobs_days: 30, attempts_days: 400, keys_days: 35, items_days: 400, feeds_days: 800 }
    }
}

impl Store {
    /// Makes the days ahead. Returns how many partitions could not be made just now (a lock was held).
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn make_days(&self) -> Result<i32, StoreError> {
        let conn = self.api().await?;
        let row = conn
            .query_one(
                "SELECT create_day_partitions((clock_timestamp() AT TIME ZONE 'UTC')::date - 1, $1)",
                &[&(DAYS_AHEAD + 2)],
            )
            .await?;
        let missing = row.try_get(0)?;
        conn.ok();
        Ok(missing)
    }

    /// Drops days and keys past their retention. Returns the partitions that went.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn drop_days(&self, retention: Retention) -> Result<Vec<String>, StoreError> {
        let conn = self.api().await?;
        let mut dropped = Vec::new();
        for (kind, days) in [("jobs", retention.jobs_days), ("attempts", retention.attempts_days)] {
            let row = conn
                .query_one(
                    "SELECT drop_day_partitions($1, (clock_timestamp() AT TIME ZONE 'UTC')::date - $2::integer)",
                    &[&kind, &days.max(2)],
                )
                .await?;
            dropped.extend(row.try_get::<_, Vec<String>>(0)?);
        }
        loop {
            // Little by little: a key's row may be looked up at this very moment.
            let deleted = conn
                .execute(
                    "DELETE FROM idempotency_key WHERE ctid = ANY (ARRAY(
                       SELECT ctid FROM idempotency_key
                       WHERE created_at < clock_timestamp() - $1::integer * interval '1 day' ORDER BY created_at LIMIT 1000))",
                    &[&retention.keys_days.max(retention.jobs_days)],
                )
                .await?;
            if deleted < 1000 {
                break;
            }
        }
        conn.ok();
        Ok(dropped)
    }

    /// Looks for groups that discovery has lost and brings them back. Anything but an empty list is a bug to report.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn sweep(&self) -> Result<Vec<String>, StoreError> {
        let conn = self.api().await?;
        let rows = conn.query(SWEEP, &[]).await?;
        let groups = rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?;
        conn.ok();
        Ok(groups)
    }

    /// How old the oldest snapshot is that keeps dead rows of the hot tables alive.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn oldest_snapshot(&self) -> Result<Duration, StoreError> {
        let conn = self.api().await?;
        let row = conn
            .query_one(
                "SELECT coalesce(extract(epoch FROM max(clock_timestamp() - xact_start)), 0)::double precision
                 FROM pg_stat_activity WHERE backend_xmin IS NOT NULL AND pid <> pg_backend_pid()",
                &[],
            )
            .await?;
        let seconds: f64 = row.try_get(0)?;
        conn.ok();
        Ok(Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or_default())
    }
}
