//! Payments that wait for their time: it is a copy of their slot's, and moves with it.
//!
//! Moved is what nobody has claimed and no run has started. Their groups are locked first, as an acceptance locks them, so
//! that whoever is accepted meanwhile finds its place behind what was moved. What is not moved keeps its place in the group
//! (`railyard_core::slots::in_group`).

use std::collections::HashMap;
use std::time::Duration;

use jiff::Timestamp;
use railyard_core::slots::{Standing, in_group};

use super::Movable;
use crate::connect::Conn;
use crate::error::StoreError;
use crate::payments::PAYMENT;

/// Beyond what is claimed ahead, so that no claim meets a time that is being moved.
const BEYOND_CLAIMS: Duration = Duration::from_secs(60);

const TYPES: &str = "
    SELECT item_type, pre_start_buffer_mins FROM exec_rate_config WHERE rate_config = $1 ORDER BY item_type";

/// As the planner knows them: `payments::slot_event`.
const WAITING: &str = "
    SELECT s.event_id, s.scheduled_time, q.payment_id, q.group_id, q.requested_time, q.scheduled_exec_time, q.acceptance_no
    FROM payment_exec_queue q JOIN payment p ON p.payment_id = q.payment_id
    JOIN rate_limit_event_slot s
      ON s.event_id = ('payment/' || p.payment_id || '/' || encode(substr(p.content_hash, 1, 8), 'hex')) COLLATE \"default\"
    WHERE q.item_type = $1 AND q.queue_status = 'READY' AND q.scheduled_exec_time >= $2
      AND q.run_no = 0 AND q.step_no = 1 AND q.retry_count = 0
      AND s.config_name = $3 AND s.scheduled_time >= $2 AND s.confirm_by IS NULL
    ORDER BY q.payment_id COLLATE \"C\" LIMIT $4";

const LOCK_GROUPS: &str = "
    SELECT FROM exec_group e
    WHERE e.item_type = $1 AND e.group_id IN (
      SELECT q.group_id FROM payment_exec_queue q
      WHERE q.item_type = $1 AND q.queue_status = 'READY' AND q.scheduled_exec_time >= $2)
    ORDER BY e.group_id FOR UPDATE";

const STAYING: &str = "
    SELECT q.group_id, q.requested_time, q.acceptance_no, q.scheduled_exec_time
    FROM payment_exec_queue q LEFT JOIN unnest($2::text[]) AS m(id) ON m.id = q.payment_id
    WHERE q.item_type = $1 AND q.queue_status IN ('READY', 'CLAIMED', 'DISPATCHED') AND q.step_no = 1
      AND q.group_id = ANY ($3) AND m.id IS NULL";

const MOVE: &str = "
    UPDATE payment_exec_queue q SET scheduled_exec_time = m.at, updated_at = clock_timestamp()
    FROM unnest($2::text[], $3::timestamptz[]) AS m(id, at)
    WHERE q.item_type = $1 AND q.payment_id = m.id AND q.queue_status = 'READY'";

/// A payment in the queue.
pub(super) struct Item {
    id: String,
    group: String,
    standing: Standing,
}

impl Item {
    /// Among those of its group that asked for the same.
    pub(super) fn number(&self) -> i64 {
        self.standing.order.1
    }
}

/// How far ahead slots may be moved, if payments are planned by this configuration.
pub(super) async fn lead(conn: &Conn, config: &str) -> Result<Option<Duration>, StoreError> {
    let mut lead = None;
    for row in conn.query(TYPES, &[&config]).await? {
        let of: String = row.try_get("item_type")?;
        if of != PAYMENT {
            let detail = format!("items of type {of} are planned by it, and they do not move with their slots");
            return Err(StoreError::Conflict { detail });
        }
        let minutes: i32 = row.try_get("pre_start_buffer_mins")?;
        lead = Some(Duration::from_secs(u64::from(minutes.unsigned_abs()) * 60) + BEYOND_CLAIMS);
    }
    Ok(lead)
}

/// What may be moved from `earliest` on; locked, if it is to be.
pub(super) async fn waiting(
    conn: &Conn,
    config: &str,
    earliest: Timestamp,
    limit: i64,
    locked: bool,
) -> Result<Vec<Movable>, StoreError> {
    let lock = if locked { "FOR UPDATE OF q" } else { "" };
    if locked {
        conn.execute(LOCK_GROUPS, &[&PAYMENT, &earliest]).await?;
    }
    let rows = conn.query(&format!("{WAITING} {lock}"), &[&PAYMENT, &earliest, &config, &limit]).await?;
    let read = |row: &tokio_postgres::Row| {
        let requested: Timestamp = row.try_get("requested_time")?;
        let starts = row.try_get("scheduled_exec_time")?;
        let standing = Standing { at: starts, order: (requested, row.try_get("acceptance_no")?) };
        let item = Item { id: row.try_get("payment_id")?, group: row.try_get("group_id")?, standing };
        Ok(Movable {
            event_id: row.try_get("event_id")?,
            planned: row.try_get("scheduled_time")?,
            requested,
            starts,
            item: Some(item),
        })
    };
    rows.iter().map(read).collect()
}

/// Moves these items to the times of their slots, or as near to them as their groups' order allows.
pub(super) async fn follow(conn: &Conn, moved: &[(&Item, Timestamp)]) -> Result<(), StoreError> {
    if moved.is_empty() {
        return Ok(());
    }
    let ids: Vec<&str> = moved.iter().map(|(item, _)| item.id.as_str()).collect();
    let groups: Vec<&str> = moved.iter().map(|(item, _)| item.group.as_str()).collect();
    let mut staying: HashMap<String, Vec<Standing>> = HashMap::new();
    for row in conn.query(STAYING, &[&PAYMENT, &ids, &groups]).await? {
        let order = (row.try_get("requested_time")?, row.try_get("acceptance_no")?);
        let at = row.try_get("scheduled_exec_time")?;
        staying.entry(row.try_get("group_id")?).or_default().push(Standing { at, order });
    }
    let alone = Vec::new();
    let starts =
        |(item, at): &(&Item, Timestamp)| in_group(item.standing, *at, staying.get(&item.group).unwrap_or(&alone));
    let starts: Vec<Timestamp> = moved.iter().map(starts).collect();
    for (ids, starts) in ids.chunks(super::CHUNK).zip(starts.chunks(super::CHUNK)) {
        conn.execute(MOVE, &[&PAYMENT, &ids, &starts]).await?;
    }
    Ok(())
}
