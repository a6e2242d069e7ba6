//! Planning anew, by an operator's command: slots that lie ahead move to where they would be given now.
//!
//! Assignments of the same configuration wait meanwhile. Everything is one transaction: a process that dies in the middle
//! leaves every slot where it was. Payments move with their slots ([`items`]).

mod items;

use std::time::Duration;

use jiff::Timestamp;
use railyard_core::slots::{Dice, Grid, Window, replan as plan};
use serde_json::json;

use super::RateError;
use super::config::{ConfigRow, active_in};
use crate::audit::{self, Entry};
use crate::connect::{Conn, Store};
use crate::error::StoreError;
use crate::payments::SLOT_PREFIX;
use crate::row::count;
use crate::transaction::{begin, end};

/// What starts sooner stays: its work may be under way already.
pub const REPLAN_LEAD: Duration = Duration::from_secs(60);
/// Slots of one call.
pub const REPLAN_MAX: i64 = 200_000;
/// Rows of one statement.
const CHUNK: usize = 10_000;
const STRETCHES: usize = 1_000_000;
const SETTINGS: &str = "SET LOCAL statement_timeout = '30s'";

const MOVABLE: &str = "
    SELECT event_id, requested_time, scheduled_time FROM rate_limit_event_slot
    WHERE config_name = $1 AND scheduled_time >= $2 AND NOT starts_with(event_id, $4)
    ORDER BY requested_time, scheduled_time, event_id LIMIT $3";
/// Payments ahead of the earliest that are not moved are few: those that are claimed, or being accepted.
const FIXED: &str = "
    SELECT rate_micros(s.scheduled_time) / ($3::bigint * 1000000) AS n, count(*)::integer AS slots
    FROM rate_limit_event_slot s LEFT JOIN unnest($5::text[]) AS m(id) ON m.id = s.event_id
    WHERE s.config_name = $1 AND s.scheduled_time >= $2 AND (s.scheduled_time < $4 OR m.id IS NULL) GROUP BY 1 ORDER BY 1";
const MOVE: &str = "
    UPDATE rate_limit_event_slot s SET window_start = m.window_start, scheduled_time = m.scheduled_time, config_id = $4
    FROM unnest($1::text[], $2::timestamptz[], $3::timestamptz[]) AS m(event_id, window_start, scheduled_time)
    WHERE s.event_id = m.event_id";

/// A slot that may be moved.
struct Movable {
    event_id: String,
    /// By its slot.
    planned: Timestamp,
    requested: Timestamp,
    /// When it starts: a payment perhaps later than its slot.
    starts: Timestamp,
    item: Option<items::Item>,
}

impl Movable {
    /// Its place among all: those of one group that asked for the same keep their order.
    fn place(&self) -> (Timestamp, Timestamp, i64, &str) {
        let number = self.item.as_ref().map_or(0, items::Item::number);
        (self.requested, self.starts, number, &self.event_id)
    }
}

/// What became, or would become, of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replanned {
    /// Slots that may be moved.
    pub slots: u64,
    /// Those of them that get another window.
    pub moved: u64,
    /// When the last of them starts as planned before.
    pub last_before: Option<Timestamp>,
    /// And as planned now.
    pub last_after: Option<Timestamp>,
}

/// Moves what starts in more than [`REPLAN_LEAD`], or where payments are planned by it, what lies further ahead than they
/// are claimed, in the order of what was asked for; without a `reason` it only says what would become of it.
///
/// # Errors
/// [`RateError::UnknownConfig`]; [`StoreError::Conflict`] if there are more than [`REPLAN_MAX`], the calendar has no room
/// for them, or items of other types are planned by it; errors of the database.
pub async fn replan(store: &Store, name: &str, reason: Option<&str>, actor: &str) -> Result<Replanned, RateError> {
    let conn = begin(store, SETTINGS).await?;
    let result = replan_in(&conn, name, reason, actor).await;
    let done = end(conn, result).await?;
    done.ok_or_else(|| RateError::UnknownConfig { name: name.to_owned() })
}

async fn replan_in(
    conn: &Conn,
    name: &str,
    reason: Option<&str>,
    actor: &str,
) -> Result<Option<Replanned>, StoreError> {
    if reason.is_some() {
        conn.execute("SELECT pg_advisory_xact_lock(rate_lock_of($1), -1)", &[&name]).await?;
    }
    let Some((config, now)) = active_in(conn, name).await? else { return Ok(None) };
    let lead = items::lead(conn, name).await?;
    let earliest = now.checked_add(REPLAN_LEAD.max(lead.unwrap_or_default())).unwrap_or(now);
    let mut movable = slots(conn, name, earliest).await?;
    if lead.is_some() {
        movable.extend(items::waiting(conn, name, earliest, REPLAN_MAX + 1, reason.is_some()).await?);
    }
    if movable.len() as u64 > REPLAN_MAX.unsigned_abs() {
        return Err(StoreError::Conflict { detail: format!("more than {REPLAN_MAX} slots lie ahead of it") });
    }
    movable.sort_by(|a, b| a.place().cmp(&b.place()));
    let ids: Vec<&str> = movable.iter().map(|slot| slot.event_id.as_str()).collect();
    let asked: Vec<Timestamp> = movable.iter().map(|slot| slot.requested.max(earliest)).collect();
    let before: Vec<Timestamp> = movable.iter().map(|slot| slot.planned).collect();
    let fixed = fixed(conn, &config, now, earliest, &ids).await?;
    let dice: Vec<Dice> = ids.iter().map(|_| Dice::of(rand::random())).collect();
    let openings = config.spec.openings(earliest, STRETCHES);
    let places = plan(&config.spec, &openings, &fixed, earliest, &asked, &dice);
    let Some(places) = places.into_iter().collect::<Option<Vec<_>>>() else {
        return Err(StoreError::Conflict { detail: "the calendar has no room for all of them".to_owned() });
    };
    let grid = config.spec.grid();
    let moved = places.iter().zip(&before).filter(|((window, _), before)| *window != grid.window_of(**before)).count();
    let done = Replanned {
        slots: ids.len() as u64,
        moved: moved as u64,
        last_before: before.iter().max().copied(),
        last_after: places.iter().map(|(_, at)| *at).max(),
    };
    if let Some(reason) = reason.filter(|_| moved > 0) {
        write(conn, &config, &ids, &places).await?;
        let moved: Vec<(&items::Item, Timestamp)> =
            movable.iter().zip(&places).filter_map(|(slot, (_, at))| Some((slot.item.as_ref()?, *at))).collect();
        items::follow(conn, &moved).await?;
        record(conn, name, reason, actor, done).await?;
    }
    Ok(Some(done))
}

/// Slots that are nobody's payment.
async fn slots(conn: &Conn, name: &str, earliest: Timestamp) -> Result<Vec<Movable>, StoreError> {
    let rows = conn.query(MOVABLE, &[&name, &earliest, &(REPLAN_MAX + 1), &SLOT_PREFIX]).await?;
    let read = |row: &tokio_postgres::Row| {
        let planned = row.try_get("scheduled_time")?;
        let (event_id, requested) = (row.try_get("event_id")?, row.try_get("requested_time")?);
        Ok(Movable { event_id, planned, requested, starts: planned, item: None })
    };
    rows.iter().map(read).collect()
}

/// What is not moved, in the windows of now.
async fn fixed(
    conn: &Conn,
    config: &ConfigRow,
    now: Timestamp,
    earliest: Timestamp,
    moved: &[&str],
) -> Result<Vec<(Window, u32)>, StoreError> {
    let grid: Grid = config.spec.grid();
    let from = grid.start(grid.window_of(now));
    let size = i64::from(config.spec.window_size_s);
    let rows = conn.query(FIXED, &[&config.spec.name, &from, &size, &earliest, &moved]).await?;
    rows.iter().map(|row| Ok((Window(row.try_get("n")?), count(row, "slots")?))).collect()
}

async fn write(
    conn: &Conn,
    config: &ConfigRow,
    ids: &[&str],
    places: &[(Window, Timestamp)],
) -> Result<(), StoreError> {
    let grid = config.spec.grid();
    for (ids, places) in ids.chunks(CHUNK).zip(places.chunks(CHUNK)) {
        let windows: Vec<Timestamp> = places.iter().map(|(window, _)| grid.start(*window)).collect();
        let scheduled: Vec<Timestamp> = places.iter().map(|(_, at)| *at).collect();
        conn.execute(MOVE, &[&ids, &windows, &scheduled, &config.config_id]).await?;
    }
    conn.execute("SELECT rate_recount($1)", &[&config.config_id]).await?;
    Ok(())
}

async fn record(conn: &Conn, name: &str, reason: &str, actor: &str, done: Replanned) -> Result<(), StoreError> {
    let last = |at: Option<Timestamp>| at.map(|at| at.to_string());
    let detail = json!({ "configName": name, "slots": done.slots, "moved": done.moved,
                          "lastBefore": last(done.last_before), "lastAfter": last(done.last_after) });
    let entry = Entry { reason: Some(reason), detail: Some(detail), ..Entry::new("rate.replan", actor) };
    audit::append(conn, &entry).await
}
