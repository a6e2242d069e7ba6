//! Statement 7: begin found nothing at a lane. Put its hint right, or take it away.
//!
//! Four statements of one transaction, each with a fresh snapshot; every shortcut loses a group for ever:
//! all in one statement, no look at in-flight rows, no lock on the ready row (tests force each).

use railyard_core::{Lane, ParticipantId};
use uuid::Uuid;

use crate::connect::Store;
use crate::error::StoreError;

/// (a) A group whose sequence row is locked has a producer at work: next poll.
pub(crate) const LOCK_SEQUENCES: &str = "
SELECT participant_id FROM participant_outbox_sequences
WHERE participant_id = ANY ($1) ORDER BY participant_id FOR UPDATE SKIP LOCKED";

/// (b) A release that commits meanwhile must not be overwritten with what was true before it.
pub(crate) const LOCK_READY: &str = "
SELECT participant_id FROM ready_group WHERE participant_id = ANY ($1) ORDER BY participant_id FOR UPDATE";

/// (c) Nothing pending and nothing in flight: an old owner's settle puts rows back without the sequence lock.
pub(crate) const DELETE_IDLE: &str = "
DELETE FROM ready_group r WHERE r.participant_id = ANY ($1)
  AND NOT EXISTS (SELECT 1 FROM payment_outbox_pending p WHERE p.participant_id = r.participant_id)
  AND NOT EXISTS (SELECT 1 FROM in_flight f WHERE f.participant_id = r.participant_id)";

/// (d) Held: infinity. Rail stopped: look again in a while, or when it goes on. Else when the head is due, unless it is in flight.
pub(crate) const MOVE: &str = "
UPDATE ready_group r
SET due_at = CASE
    WHEN EXISTS (SELECT 1 FROM group_hold h WHERE h.participant_id = r.participant_id) THEN 'infinity'
    WHEN h.stopped THEN greatest(h.next_attempt_at, clock_timestamp() + interval '5 seconds')
    ELSE h.next_attempt_at END
FROM (
  SELECT g.participant_id, p.next_attempt_at,
    EXISTS (SELECT 1 FROM rail_switch s WHERE s.kind = 'rail' AND s.name = p.rail_type AND s.paused) AS stopped
  FROM unnest($1::text[]) AS g(participant_id)
  CROSS JOIN LATERAL (
    SELECT q.next_attempt_at, q.rail_type FROM payment_outbox_pending q
    WHERE q.participant_id = g.participant_id ORDER BY q.sequence_id LIMIT 1) p) h
WHERE r.participant_id = h.participant_id
  AND NOT EXISTS (SELECT 1 FROM in_flight f WHERE f.participant_id = r.participant_id)
RETURNING r.participant_id, r.due_at <= clock_timestamp()";

const MOVE_SINGLES: &str = "
UPDATE payment_outbox_pending p SET next_attempt_at = clock_timestamp() + interval '5 seconds'
WHERE p.outbox_id = ANY ($1) AND p.participant_id IS NULL AND p.next_attempt_at <= clock_timestamp()
  AND EXISTS (SELECT 1 FROM rail_switch s WHERE s.kind = 'rail' AND s.name = p.rail_type AND s.paused)";

impl Store {
    /// Puts the hints of these lanes right. Returns those that have something due after all: a producer committed
    /// meanwhile, and had no reason to notify since the group was still ready.
    ///
    /// # Errors
    /// [`StoreError`]; nothing was changed, and the hints are as early as before.
    pub async fn tidy(&self, lanes: &[Lane]) -> Result<Vec<Lane>, StoreError> {
        let mut due = Vec::new();
        let mut groups: Vec<&str> = lanes
            .iter()
            .filter_map(|lane| match lane {
                Lane::Group(group) => Some(ParticipantId::as_str(group)),
                Lane::Single(_) => None,
            })
            .collect();
        groups.sort_unstable();
        let singles: Vec<Uuid> = lanes
            .iter()
            .filter_map(|lane| match lane {
                Lane::Group(_) => None,
                Lane::Single(id) => Some(id.0),
            })
            .collect();
        let conn = self.work().await?;
        if !groups.is_empty() {
            let lock_sequences = conn.prepare_cached(LOCK_SEQUENCES).await?;
            let lock_ready = conn.prepare_cached(LOCK_READY).await?;
            let delete_idle = conn.prepare_cached(DELETE_IDLE).await?;
            let move_hint = conn.prepare_cached(MOVE).await?;
            conn.batch_execute("BEGIN").await?;
            let rows = conn.query(&lock_sequences, &[&groups]).await?;
            let quiet: Vec<String> = rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?;
            conn.query(&lock_ready, &[&groups]).await?;
            conn.execute(&delete_idle, &[&quiet]).await?;
            for row in conn.query(&move_hint, &[&groups]).await? {
                if row.try_get(1)? {
                    due.push(Lane::Group(ParticipantId::new(row.try_get::<_, String>(0)?)));
                }
            }
            crate::failpoint::reached("tidy_before_commit");
            conn.batch_execute("COMMIT").await?;
        }
        if !singles.is_empty() {
            let statement = conn.prepare_cached(MOVE_SINGLES).await?;
            conn.execute(&statement, &[&singles]).await?;
        }
        conn.ok();
        Ok(due)
    }
}
