//! What the metrics say about the database, in a handful of bounded statements of one snapshot.
//!
//! The depth is counted, not estimated: one pass over the pending table, which has no payloads. The caller spaces its
//! calls by what the last one took, so that scraping never costs more than a small share of the database.

use railyard_core::ParticipantId;
use railyard_core::hold::HoldKind;
use railyard_core::payment::QueueStatus;
use tokio_postgres::Row;

use crate::connect::{Conn, Store};
use crate::error::StoreError;
use crate::holds::GroupState;
use crate::row::{total, word};
use crate::transaction::{begin_read, end};

/// Longest look, in milliseconds: a scrape that takes longer keeps the values of the one before.
pub const STATEMENT_MS_MAX: u32 = 3000;
/// Most groups shown by name.
pub const NAMED_GROUPS_MAX: u32 = 200;

/// The busiest and the oldest groups by name, everything else in one row. A message without order counts as `single`.
const LANES: &str = "
    WITH lane AS MATERIALIZED (
      SELECT participant_id, count(*) AS depth, min(created_at) AS oldest
      FROM payment_outbox_pending GROUP BY participant_id
    ), stopped AS MATERIALIZED (
      SELECT DISTINCT participant_id FROM group_hold
    ), named AS (
      (SELECT participant_id FROM lane WHERE participant_id IS NOT NULL ORDER BY depth DESC, participant_id LIMIT $1)
      UNION
      (SELECT participant_id FROM lane WHERE participant_id IS NOT NULL ORDER BY oldest, participant_id LIMIT $1)
    )
    SELECT n.participant_id, sum(l.depth)::bigint AS depth,
      coalesce(sum(l.depth) FILTER (WHERE s.participant_id IS NOT NULL), 0)::bigint AS held,
      greatest(0, extract(epoch FROM clock_timestamp() - min(l.oldest)))::double precision AS age_s,
      bool_or(f.participant_id IS NOT NULL) AS is_out, min(h.kind) AS kind, min(p.is_later) AS is_later
    FROM lane l
    LEFT JOIN named n ON n.participant_id = l.participant_id
    LEFT JOIN stopped s ON s.participant_id = l.participant_id
    LEFT JOIN in_flight f ON f.participant_id = n.participant_id
    LEFT JOIN LATERAL (SELECT CASE min(CASE kind WHEN 'paused' THEN 1 WHEN 'in_doubt' THEN 2 ELSE 3 END)
                              WHEN 1 THEN 'paused' WHEN 2 THEN 'in_doubt' WHEN 3 THEN 'blocked' END AS kind
                       FROM group_hold g WHERE g.participant_id = n.participant_id) h ON n.participant_id IS NOT NULL
    LEFT JOIN LATERAL (SELECT (next_attempt_at > clock_timestamp())::integer AS is_later FROM payment_outbox_pending q
                       WHERE q.participant_id = n.participant_id ORDER BY q.sequence_id LIMIT 1) p
      ON n.participant_id IS NOT NULL
    GROUP BY n.participant_id ORDER BY n.participant_id NULLS LAST";

const OUT: &str = "
    SELECT count(*) AS in_flight,
      count(*) FILTER (WHERE call_deadline < clock_timestamp() - interval '30 seconds') AS stuck
    FROM in_flight";

/// Ends without success stay here until somebody replays them, or their day is dropped.
const DLQ: &str = "
    SELECT count(*) AS dlq FROM (
      SELECT 1 FROM dispatch_job_outcome o WHERE o.status = 'ERROR'
        AND NOT EXISTS (SELECT 1 FROM job_replay r WHERE r.replay_of = o.outbox_id) LIMIT 1000000) e";

const SCHEDULED: &str = "SELECT count(*) AS scheduled FROM (SELECT 1 FROM scheduled_job LIMIT 1000000) s";

/// What is completed is not counted: it is no work, and grows for ever.
const QUEUED: &str = "
    SELECT s.status, sum(x.n)::bigint AS items
    FROM exec_rate_config t
    CROSS JOIN unnest(ARRAY['READY', 'CLAIMED', 'DISPATCHED', 'FAILED', 'DEAD_LETTER']) AS s(status)
    CROSS JOIN LATERAL (SELECT count(*) AS n FROM (
      SELECT 1 FROM payment_exec_queue q WHERE q.item_type = t.item_type AND q.queue_status = s.status LIMIT 1000000) l) x
    GROUP BY s.status";

const HELD: &str = "SELECT kind, count(*) AS held FROM group_hold GROUP BY kind";

/// One group by name.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupGauge {
    /// Its name.
    pub group: ParticipantId,
    /// Messages that wait.
    pub depth: u64,
    /// Age of the oldest of them, in seconds.
    pub head_age_s: f64,
    /// 0 or 1.
    pub in_flight: u64,
    /// What stands in its way.
    pub state: GroupState,
}

/// Everything else that waits, messages without a group among it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct OtherGauge {
    /// Messages that wait.
    pub depth: u64,
    /// Age of the oldest of them, in seconds.
    pub head_age_s: f64,
    /// Messages that are out.
    pub in_flight: u64,
}

/// All of it, of one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Gauges {
    /// Messages that wait, held or not.
    pub pending_depth: u64,
    /// Of those, how many are in groups that are held: a person has to decide first.
    pub pending_held: u64,
    /// Age of the oldest message that waits, in seconds; 0 if none does.
    pub oldest_pending_age_s: f64,
    /// Messages that are out.
    pub in_flight: u64,
    /// Of those, how many are past their deadline by more than 30 s.
    pub stuck: u64,
    /// Jobs that ended in ERROR, are still kept, and were not replayed; at most a million are counted.
    pub dlq_depth: u64,
    /// Jobs that wait for their date; at most a million are counted.
    pub scheduled: u64,
    /// Scheduled items by where they are in the queue; what is completed is not counted, the rest up to a million each.
    pub queued: Vec<(QueueStatus, u64)>,
    /// Holds by kind.
    pub held: Vec<(HoldKind, u64)>,
    /// The busiest and the oldest groups.
    pub groups: Vec<GroupGauge>,
    /// The rest.
    pub other: OtherGauge,
}

/// Looks. `named_max` groups by depth and as many by age are named, at most [`NAMED_GROUPS_MAX`] each.
///
/// # Errors
/// Errors of the database, a look that took longer than [`STATEMENT_MS_MAX`] among them.
pub async fn read(store: &Store, named_max: u32) -> Result<Gauges, StoreError> {
    let conn = begin_read(store, STATEMENT_MS_MAX).await?;
    let result = read_in(&conn, named_max.min(NAMED_GROUPS_MAX)).await;
    end(conn, result).await
}

async fn read_in(conn: &Conn, named_max: u32) -> Result<Gauges, StoreError> {
    let mut gauges = Gauges::default();
    let statement = conn.prepare_cached(LANES).await?;
    for row in conn.query(&statement, &[&i64::from(named_max)]).await? {
        add_lane(&mut gauges, &row)?;
    }
    let out = conn.query_one(OUT, &[]).await?;
    gauges.in_flight = total(&out, "in_flight")?;
    gauges.stuck = total(&out, "stuck")?;
    let named_out: u64 = gauges.groups.iter().map(|group| group.in_flight).sum();
    gauges.other.in_flight = gauges.in_flight.saturating_sub(named_out);
    gauges.dlq_depth = total(&conn.query_one(DLQ, &[]).await?, "dlq")?;
    gauges.scheduled = total(&conn.query_one(SCHEDULED, &[]).await?, "scheduled")?;
    let statement = conn.prepare_cached(QUEUED).await?;
    for row in conn.query(&statement, &[]).await? {
        gauges.queued.push((word(&row, "status", QueueStatus::parse)?, total(&row, "items")?));
    }
    for row in conn.query(HELD, &[]).await? {
        gauges.held.push((word(&row, "kind", HoldKind::parse)?, total(&row, "held")?));
    }
    Ok(gauges)
}

fn add_lane(gauges: &mut Gauges, row: &Row) -> Result<(), StoreError> {
    let depth = total(row, "depth")?;
    let head_age_s: f64 = row.try_get("age_s")?;
    gauges.pending_depth += depth;
    gauges.pending_held += total(row, "held")?;
    gauges.oldest_pending_age_s = gauges.oldest_pending_age_s.max(head_age_s);
    let Some(name) = row.try_get::<_, Option<String>>("participant_id")? else {
        gauges.other.depth = depth;
        gauges.other.head_age_s = head_age_s;
        return Ok(());
    };
    let is_out: bool = row.try_get("is_out")?;
    let is_later = row.try_get::<_, Option<i32>>("is_later")?.is_some_and(|later| later > 0);
    let state = match row.try_get::<_, Option<&str>>("kind")? {
        Some(_) => GroupState::of_hold(word(row, "kind", HoldKind::parse)?),
        None if is_out => GroupState::InFlight,
        None if is_later => GroupState::Waiting,
        None => GroupState::Ready,
    };
    let group = ParticipantId::new(name);
    gauges.groups.push(GroupGauge { group, depth, head_age_s, in_flight: u64::from(is_out), state });
    Ok(())
}

#[cfg(test)]
mod tests;
