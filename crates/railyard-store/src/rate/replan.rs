//! Planning anew, by an operator's command: slots that lie ahead move to where they would be given now.
//!
//! Assignments of the same configuration wait meanwhile. Everything is one transaction: a process that dies in the middle
//! leaves every slot where it was.

use std::time::Duration;

use jiff::Timestamp;
use railyard_core::slots::{Dice, Grid, Window, replan as plan};
use serde_json::json;

use super::RateError;
use super::config::{ConfigRow, active_in};
use crate::audit::{self, Entry};
use crate::connect::{Conn, Store};
use crate::error::StoreError;
use crate::row::count;
use crate::transaction::{begin, end};

/// What starts sooner stays: its work may be under way already.
pub const REPLAN_LEAD: Duration = Duration::from_secs(60);
/// Slots of one call.
pub const REPLAN_MAX: i64 = 200_000;
/// Items have taken their times from these: see [`replan`].
const OF_ITEMS: &str = "SELECT item_type FROM exec_rate_config WHERE rate_config = $1 ORDER BY item_type LIMIT 1";
/// Rows of one statement.
const CHUNK: usize = 10_000;
const STRETCHES: usize = 1_000_000;
const SETTINGS: &str = "SET LOCAL statement_timeout = '30s'";

const MOVABLE: &str = "
    SELECT event_id, requested_time, scheduled_time FROM rate_limit_event_slot
    WHERE config_name = $1 AND scheduled_time >= $2 ORDER BY requested_time, scheduled_time, event_id LIMIT $3";
const FIXED: &str = "
    SELECT rate_micros(scheduled_time) / ($3::bigint * 1000000) AS n, count(*)::integer AS slots FROM rate_limit_event_slot
    WHERE config_name = $1 AND scheduled_time >= $2 AND scheduled_time < $4 GROUP BY 1 ORDER BY 1";
const MOVE: &str = "
    UPDATE rate_limit_event_slot s SET window_start = m.window_start, scheduled_time = m.scheduled_time, config_id = $4
    FROM unnest($1::text[], $2::timestamptz[], $3::timestamptz[]) AS m(event_id, window_start, scheduled_time)
    WHERE s.event_id = m.event_id";

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

/// Moves what starts in more than [`REPLAN_LEAD`], in the order of what was asked for; without a `reason` it only says
/// what would become of it.
///
/// # Errors
/// [`RateError::UnknownConfig`]; [`StoreError::Conflict`] if there are more than [`REPLAN_MAX`], the calendar has no room
/// for them, or scheduled items are planned by it: their times are written down when they are accepted, and do not move
/// with their slots; errors of the database.
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
    if let Some(row) = conn.query_opt(OF_ITEMS, &[&name]).await? {
        let of: String = row.try_get("item_type")?;
        let detail = format!("scheduled items of type {of} are planned by it, and they do not move with their slots");
        return Err(StoreError::Conflict { detail });
    }
    let earliest = now.checked_add(REPLAN_LEAD).unwrap_or(now);
    let movable = conn.query(MOVABLE, &[&name, &earliest, &(REPLAN_MAX + 1)]).await?;
    if movable.len() as u64 > REPLAN_MAX.unsigned_abs() {
        return Err(StoreError::Conflict { detail: format!("more than {REPLAN_MAX} slots lie ahead of it") });
    }
    let mut ids: Vec<String> = Vec::with_capacity(movable.len());
    let mut asked: Vec<Timestamp> = Vec::with_capacity(movable.len());
    let mut before: Vec<Timestamp> = Vec::with_capacity(movable.len());
    for row in &movable {
        ids.push(row.try_get("event_id")?);
        asked.push(row.try_get::<_, Timestamp>("requested_time")?.max(earliest));
        before.push(row.try_get("scheduled_time")?);
    }
    let fixed = fixed(conn, &config, now, earliest).await?;
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
        record(conn, name, reason, actor, done).await?;
    }
    Ok(Some(done))
}

/// What starts too soon to be moved, in the windows of now.
async fn fixed(
    conn: &Conn,
    config: &ConfigRow,
    now: Timestamp,
    earliest: Timestamp,
) -> Result<Vec<(Window, u32)>, StoreError> {
    let grid: Grid = config.spec.grid();
    let from = grid.start(grid.window_of(now));
    let size = i64::from(config.spec.window_size_s);
    let rows = conn.query(FIXED, &[&config.spec.name, &from, &size, &earliest]).await?;
    rows.iter().map(|row| Ok((Window(row.try_get("n")?), count(row, "slots")?))).collect()
}

async fn write(
    conn: &Conn,
    config: &ConfigRow,
    ids: &[String],
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
