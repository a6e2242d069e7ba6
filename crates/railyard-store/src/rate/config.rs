//! Configurations: rows that are added and deactivated, never deleted.

use jiff::Timestamp;
use railyard_core::slots::{Calendar, HORIZON_DAYS, RateConfig};
use serde_json::Value;
use tokio_postgres::Row;

use crate::connect::{Conn, Store};
use crate::error::StoreError;
use crate::row::count;
use crate::transaction::{connection_survives, repeated};

/// Most rows of a history.
const HISTORY_MAX: i64 = 100;

const COLUMNS: &str = "config_id, config_name, max_per_window, window_size_secs, frontier, max_lookahead, calendar, grid, \
    is_active, created_at, created_by, deactivated_at";

/// A configuration as it stands in the table.
#[derive(Clone, Debug, PartialEq)]
pub struct ConfigRow {
    /// Rises with time.
    pub config_id: i64,
    /// What it says.
    pub spec: RateConfig,
    /// The row that began its size of windows and its calendar.
    pub grid: i64,
    /// Whether it is the one that is planned with.
    pub active: bool,
    /// When it was made.
    pub created_at: Timestamp,
    /// By whom.
    pub created_by: String,
    /// When another took its place.
    pub deactivated_at: Option<Timestamp>,
}

/// The active one of this name.
///
/// # Errors
/// Errors of the database.
pub async fn active(store: &Store, name: &str) -> Result<Option<ConfigRow>, StoreError> {
    Ok(read_active(store, name).await?.map(|(row, _)| row))
}

/// The same, and the database's time.
pub(super) async fn read_active(store: &Store, name: &str) -> Result<Option<(ConfigRow, Timestamp)>, StoreError> {
    let conn = store.api().await?;
    let found = active_in(&conn, name).await?;
    conn.ok();
    Ok(found)
}

pub(super) async fn active_in(conn: &Conn, name: &str) -> Result<Option<(ConfigRow, Timestamp)>, StoreError> {
    let sql = format!(
        "SELECT {COLUMNS}, clock_timestamp() AS read_at FROM rate_limit_config WHERE config_name = $1 AND is_active"
    );
    let statement = conn.prepare_cached(&sql).await?;
    let found = conn.query_opt(&statement, &[&name]).await?;
    found.map(|found| Ok((row(&found)?, found.try_get("read_at")?))).transpose()
}

/// All that this name has had, newest first, at most a hundred.
///
/// # Errors
/// Errors of the database.
pub async fn history(store: &Store, name: &str) -> Result<Vec<ConfigRow>, StoreError> {
    let conn = store.api().await?;
    let sql = format!(
        "SELECT {COLUMNS} FROM rate_limit_config WHERE config_name = $1 ORDER BY config_id DESC LIMIT {HISTORY_MAX}"
    );
    let found = conn.query(&sql, &[&name]).await?;
    conn.ok();
    found.iter().map(row).collect()
}

/// Makes this the active one of its name, from the next assignment on, on all nodes. What is planned already stays as it
/// is; another size of windows or another calendar counts it anew, by its time.
///
/// # Errors
/// [`StoreError::Invalid`] if its calendar leaves nothing open; [`StoreError::Busy`] if assignments are under way for longer than a lock is waited for; errors of the database.
pub async fn set(store: &Store, spec: &RateConfig, actor: &str) -> Result<ConfigRow, StoreError> {
    repeated(|| set_once(store, spec, actor)).await
}

async fn set_once(store: &Store, spec: &RateConfig, actor: &str) -> Result<ConfigRow, StoreError> {
    let conn = store.api().await?;
    match set_in(&conn, spec, actor).await {
        Ok(row) => {
            conn.ok();
            store.rates().flush();
            Ok(row)
        }
        Err(error) => {
            if connection_survives(&error) {
                conn.ok();
            }
            Err(error)
        }
    }
}

async fn set_in(conn: &Conn, spec: &RateConfig, actor: &str) -> Result<ConfigRow, StoreError> {
    if spec.calendar.is_some() {
        let now: Timestamp = conn.query_one("SELECT clock_timestamp()", &[]).await?.try_get(0)?;
        if !spec.opens(now) {
            let detail = format!("leaves no window open within {HORIZON_DAYS} days");
            return Err(StoreError::Invalid { field: "calendar".to_owned(), detail, ordinal: 1 });
        }
    }
    let number = |value: u32| i32::try_from(value).unwrap_or(i32::MAX);
    let calendar = spec.calendar.as_ref().map(Calendar::to_json);
    let sql = "SELECT config_id, max_before FROM rate_set_config($1, $2, $3, $4, $5, $6, $7)";
    let (max, size, lookahead) = (number(spec.max_per_window), number(spec.window_size_s), number(spec.max_lookahead));
    let made = conn.query_one(sql, &[&spec.name, &max, &size, &spec.frontier, &lookahead, &calendar, &actor]).await?;
    let id: i64 = made.try_get("config_id")?;
    let before: Option<i32> = made.try_get("max_before")?;
    let before = before.map_or("none".to_owned(), |before| before.to_string());
    let name = &spec.name;
    tracing::info!(target: "RateLimitConfigRepository", "Config updated: {name} maxPerWindow={before}->{max}");
    let sql = format!("SELECT {COLUMNS} FROM rate_limit_config WHERE config_id = $1");
    row(&conn.query_one(&sql, &[&id]).await?)
}

pub(super) fn row(row: &Row) -> Result<ConfigRow, StoreError> {
    let calendar: Option<Value> = row.try_get("calendar")?;
    let unreadable = |wrong: Vec<railyard_core::job::FieldError>| {
        let fields: Vec<String> = wrong.into_iter().map(|error| error.field).collect();
        StoreError::Unreadable { detail: format!("calendar: {}", fields.join(", ")) }
    };
    Ok(ConfigRow {
        config_id: row.try_get("config_id")?,
        spec: RateConfig {
            name: row.try_get("config_name")?,
            max_per_window: count(row, "max_per_window")?,
            window_size_s: count(row, "window_size_secs")?,
            frontier: row.try_get("frontier")?,
            max_lookahead: count(row, "max_lookahead")?,
            calendar: calendar.as_ref().map(Calendar::read).transpose().map_err(unreadable)?,
        },
        grid: row.try_get("grid")?,
        active: row.try_get("is_active")?,
        created_at: row.try_get("created_at")?,
        created_by: row.try_get("created_by")?,
        deactivated_at: row.try_get("deactivated_at")?,
    })
}
