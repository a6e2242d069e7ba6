//! A type's row of `exec_rate_config` as a whole, for who changes it; and what dispatchers have written down.

use std::collections::BTreeMap;

use jiff::Timestamp;
use railyard_core::dispatch::Executor;
use railyard_core::slots::is_config_name;
use serde_json::{Value, json};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use crate::audit::{self, Entry};
use crate::connect::{Conn, Store};
use crate::error::StoreError;
use crate::row::{count, word};
use crate::transaction::{begin, end};

/// Most rows of one answer.
pub const AUDIT_MAX: u32 = 200;

const GET: &str = "
    SELECT item_type, enabled = 1 AS enabled, batch_size, dispatch_interval_secs, jitter_window_ms, pre_start_buffer_mins,
      max_dispatch_retries, stale_claim_threshold_mins, max_stale_recovery_per_cycle, exec_workflow_type, exec_task_queue,
      step_rails, rate_config, updated_at
    FROM exec_rate_config WHERE item_type = $1";

const SET: &str = "
    INSERT INTO exec_rate_config (item_type, enabled, batch_size, dispatch_interval_secs, jitter_window_ms,
      pre_start_buffer_mins, max_dispatch_retries, stale_claim_threshold_mins, max_stale_recovery_per_cycle,
      exec_workflow_type, exec_task_queue, step_rails, rate_config)
    VALUES ($1, $2::boolean::integer, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)
    ON CONFLICT (item_type) DO UPDATE SET enabled = excluded.enabled, batch_size = excluded.batch_size,
      dispatch_interval_secs = excluded.dispatch_interval_secs, jitter_window_ms = excluded.jitter_window_ms,
      pre_start_buffer_mins = excluded.pre_start_buffer_mins, max_dispatch_retries = excluded.max_dispatch_retries,
      stale_claim_threshold_mins = excluded.stale_claim_threshold_mins,
      max_stale_recovery_per_cycle = excluded.max_stale_recovery_per_cycle,
      exec_workflow_type = excluded.exec_workflow_type, exec_task_queue = excluded.exec_task_queue,
      step_rails = excluded.step_rails, rate_config = excluded.rate_config, updated_at = clock_timestamp()";

const AUDIT: &str = "
    SELECT audit_id, batch_id, item_type, payment_id, action, status_before, status_after, detail, created_at
    FROM dispatch_audit_log
    WHERE audit_id < $1 AND ($2::text IS NULL OR item_type = $2) AND ($3::text IS NULL OR payment_id = $3)
    ORDER BY audit_id DESC LIMIT $4";

/// What a type is dispatched by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The type.
    pub item_type: String,
    /// The kill switch: false, and nothing is claimed.
    pub enabled: bool,
    /// Most items of a claim.
    pub batch_size: u32,
    /// From the beginning of a cycle to that of the next one, in seconds.
    pub dispatch_interval_s: u32,
    /// Starts of a batch are spread over it, in milliseconds.
    pub jitter_window_ms: u32,
    /// How long before their time items are claimed, in minutes.
    pub pre_start_buffer_min: u32,
    /// Hand-overs that may fail, in all.
    pub max_dispatch_retries: u32,
    /// A claim older than this is stale, in minutes.
    pub stale_claim_threshold_min: u32,
    /// Stale claims of one cycle.
    pub max_stale_recovery_per_cycle: u32,
    /// What makes an item's steps.
    pub executor: Executor,
    /// The rail of the first step.
    pub first_rail: String,
    /// Rails of later steps, by name.
    pub step_rails: BTreeMap<String, String>,
    /// The planner's configuration.
    pub rate_config: String,
}

/// A row of the audit log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditRow {
    /// Rises with time.
    pub audit_id: i64,
    /// `BATCH-…`, or what else did it.
    pub batch_id: String,
    /// Of which type.
    pub item_type: String,
    /// Of which item; none: of the batch.
    pub item_id: Option<String>,
    /// `DISPATCHED`, `DISPATCH_FAILED`, `STALE_RECOVERY`, `BATCH_COMPLETE`, …
    pub action: String,
    /// Where it was.
    pub status_before: Option<String>,
    /// Where it went.
    pub status_after: Option<String>,
    /// In words.
    pub detail: Option<String>,
    /// When.
    pub at: Timestamp,
}

/// A type's settings; none if it has no row.
///
/// # Errors
/// [`StoreError::Unreadable`] for an executor that this version does not know; errors of the database.
pub async fn settings(store: &Store, item_type: &str) -> Result<Option<Settings>, StoreError> {
    let conn = store.api().await?;
    let found = conn.query_opt(GET, &[&item_type]).await?;
    conn.ok();
    found.as_ref().map(read).transpose()
}

/// Makes them a type's settings from its next cycle on, and writes down who did.
///
/// # Errors
/// [`StoreError::Invalid`] for a rail that is not configured; errors of the database.
pub async fn set_settings(store: &Store, settings: &Settings, actor: &str) -> Result<(), StoreError> {
    let conn = begin(store, "").await?;
    let result = set_in(&conn, settings, actor).await;
    end(conn, result).await
}

async fn set_in(conn: &Conn, settings: &Settings, actor: &str) -> Result<(), StoreError> {
    let refuse = |field: &str, detail: &str| {
        Err(StoreError::Invalid { field: field.to_owned(), detail: detail.to_owned(), ordinal: 1 })
    };
    let rails: Vec<&str> =
        std::iter::once(&settings.first_rail).chain(settings.step_rails.values()).map(String::as_str).collect();
    let known = "SELECT count(DISTINCT r.rail_type) = (SELECT count(DISTINCT n) FROM unnest($1::text[]) n)
                 FROM rail r WHERE r.rail_type = ANY ($1)";
    if !conn.query_one(known, &[&rails]).await?.try_get::<_, bool>(0)? {
        return refuse("exec_task_queue", "is not a configured rail, or one of step_rails is not");
    }
    if !is_config_name(&settings.rate_config) {
        return refuse("rate_config", "is not the name of a rate configuration");
    }
    let number = |value: u32| i32::try_from(value).unwrap_or(i32::MAX);
    let numbers = [
        settings.batch_size,
        settings.dispatch_interval_s,
        settings.jitter_window_ms,
        settings.pre_start_buffer_min,
        settings.max_dispatch_retries,
        settings.stale_claim_threshold_min,
        settings.max_stale_recovery_per_cycle,
    ]
    .map(number);
    let step_rails = json!(settings.step_rails);
    let executor = settings.executor.as_str();
    let parameters: [&(dyn ToSql + Sync); 13] = [
        &settings.item_type,
        &settings.enabled,
        &numbers[0],
        &numbers[1],
        &numbers[2],
        &numbers[3],
        &numbers[4],
        &numbers[5],
        &numbers[6],
        &executor,
        &settings.first_rail,
        &step_rails,
        &settings.rate_config,
    ];
    conn.execute(SET, &parameters).await?;
    let detail =
        json!({ "itemType": settings.item_type, "enabled": settings.enabled, "batchSize": settings.batch_size });
    audit::append(conn, &Entry { detail: Some(detail), ..Entry::new("dispatch.set", actor) }).await
}

/// The newest rows of the audit log, at most [`AUDIT_MAX`] and one more, older than `before`.
///
/// # Errors
/// Errors of the database.
pub async fn audit_log(
    store: &Store,
    item_type: Option<&str>,
    item_id: Option<&str>,
    before: Option<i64>,
    limit: u32,
) -> Result<Vec<AuditRow>, StoreError> {
    let conn = store.api().await?;
    let (before, limit) = (before.unwrap_or(i64::MAX), i64::from(limit.min(AUDIT_MAX + 1)));
    let rows = conn.query(AUDIT, &[&before, &item_type, &item_id, &limit]).await?;
    conn.ok();
    let row = |row: &Row| {
        Ok(AuditRow {
            audit_id: row.try_get("audit_id")?,
            batch_id: row.try_get("batch_id")?,
            item_type: row.try_get("item_type")?,
            item_id: row.try_get("payment_id")?,
            action: row.try_get("action")?,
            status_before: row.try_get("status_before")?,
            status_after: row.try_get("status_after")?,
            detail: row.try_get("detail")?,
            at: row.try_get("created_at")?,
        })
    };
    rows.iter().map(row).collect()
}

fn read(row: &Row) -> Result<Settings, StoreError> {
    let rails: Value = row.try_get("step_rails")?;
    let step_rails = serde_json::from_value(rails)
        .map_err(|_| StoreError::Unreadable { detail: "step_rails is not an object of strings".to_owned() })?;
    Ok(Settings {
        item_type: row.try_get("item_type")?,
        enabled: row.try_get("enabled")?,
        batch_size: count(row, "batch_size")?,
        dispatch_interval_s: count(row, "dispatch_interval_secs")?,
        jitter_window_ms: count(row, "jitter_window_ms")?,
        pre_start_buffer_min: count(row, "pre_start_buffer_mins")?,
        max_dispatch_retries: count(row, "max_dispatch_retries")?,
        stale_claim_threshold_min: count(row, "stale_claim_threshold_mins")?,
        max_stale_recovery_per_cycle: count(row, "max_stale_recovery_per_cycle")?,
        executor: word(row, "exec_workflow_type", Executor::named)?,
        first_rail: row.try_get("exec_task_queue")?,
        step_rails,
        rate_config: row.try_get("rate_config")?,
    })
}
