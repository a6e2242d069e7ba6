//! What an assignment would come to, from the counters as they stand.

use jiff::Timestamp;
use railyard_core::slots::{Forecast, Openings, Window, forecast as look};
use tokio_postgres::Row;

use super::RateError;
use super::config::{ConfigRow, active_in};
use crate::connect::{Conn, Store};
use crate::error::StoreError;

/// Most events that are looked ahead for.
pub const EVENTS_MAX: u64 = 10_000_000;
/// Points of a curve.
const POINTS: usize = 100;
/// Counters that are read at first, and how many times more each time they did not suffice.
const COUNTERS: i64 = 10_000;
const COUNTERS_GROW: i64 = 10;
/// Most that are read; what is planned further ahead is taken for free.
const COUNTERS_MAX: i64 = 1_000_000;
/// Stretches of open windows: more than any horizon has.
const STRETCHES: usize = 1_000_000;

/// Where so many events would go that are asked for at one time (none, or past: now), and by which configuration. Nothing
/// is assigned.
///
/// # Errors
/// [`RateError::UnknownConfig`], errors of the database.
pub async fn forecast(
    store: &Store,
    name: &str,
    events: u64,
    requested: Option<Timestamp>,
) -> Result<(ConfigRow, Forecast), RateError> {
    // No transaction: what is counted twice while others plan is as right as what was counted a moment before.
    let conn = store.api().await?;
    let found = forecast_in(&conn, name, events.min(EVENTS_MAX), requested).await?;
    conn.ok();
    found.ok_or_else(|| RateError::UnknownConfig { name: name.to_owned() })
}

async fn forecast_in(
    conn: &Conn,
    name: &str,
    events: u64,
    requested: Option<Timestamp>,
) -> Result<Option<(ConfigRow, Forecast)>, StoreError> {
    let Some((config, now)) = active_in(conn, name).await? else { return Ok(None) };
    let at = requested.map_or(now, |requested| requested.max(now));
    let openings: Openings = config.spec.openings(at, STRETCHES);
    let mut limit = COUNTERS;
    loop {
        let counts = counts(conn, &config, at, limit).await?;
        let seen = look(&config.spec, &openings, &counts, at, events, POINTS);
        let grid = config.spec.grid();
        let read_to = counts.last().map_or(at, |(window, _)| grid.end(*window));
        let all_read = i64::try_from(counts.len()).unwrap_or(i64::MAX) < limit;
        if all_read || seen.last_start <= read_to || limit >= COUNTERS_MAX {
            return Ok(Some((config, seen)));
        }
        limit = limit.saturating_mul(COUNTERS_GROW).min(COUNTERS_MAX);
    }
}

/// How many are planned into the windows from the one of `at` on, ascending, at most `limit` of them.
async fn counts(conn: &Conn, config: &ConfigRow, at: Timestamp, limit: i64) -> Result<Vec<(Window, u32)>, StoreError> {
    let sql = "SELECT window_start, slot_count FROM rate_limit_window_counter
               WHERE config_name = $1 AND grid = $2 AND window_start >= $3 ORDER BY window_start LIMIT $4";
    let statement = conn.prepare_cached(sql).await?;
    let grid = config.spec.grid();
    let from = grid.start(grid.window_of(at));
    let rows = conn.query(&statement, &[&config.spec.name, &config.grid, &from, &limit]).await?;
    let read = |row: &Row| Ok((grid.window_of(row.try_get("window_start")?), crate::row::count(row, "slot_count")?));
    rows.iter().map(read).collect()
}
