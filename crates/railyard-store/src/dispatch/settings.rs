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
use crate::rails::LOCK_SWITCHES;
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
    UPDATE exec_rate_config SET enabled = $2::boolean::integer, batch_size = $3, dispatch_interval_secs = $4,
      jitter_window_ms = $5, pre_start_buffer_mins = $6, max_dispatch_retries = $7, stale_claim_threshold_mins = $8,
      max_stale_recovery_per_cycle = $9, exec_workflow_type = $10, exec_task_queue = $11, step_rails = $12,
      rate_config = $13, updated_at = clock_timestamp()
    WHERE item_type = $1";

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

/// What is to change; what is not named stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// See [`Settings`], as all of these.
    pub enabled: Option<bool>,
    /// In their order there: from `batch_size` to `max_stale_recovery_per_cycle`.
    pub numbers: [Option<u32>; 7],
    /// What makes an item's steps.
    pub executor: Option<Executor>,
    /// The rail of the first step.
    pub first_rail: Option<String>,
    /// Rails of later steps, by name: all of them.
    pub step_rails: Option<BTreeMap<String, String>>,
    /// The planner's configuration.
    pub rate_config: Option<String>,
}

impl Settings {
    fn changed(&self, change: Change) -> Self {
        let mut next = self.clone();
        let numbers = [
            &mut next.batch_size,
            &mut next.dispatch_interval_s,
            &mut next.jitter_window_ms,
            &mut next.pre_start_buffer_min,
            &mut next.max_dispatch_retries,
            &mut next.stale_claim_threshold_min,
            &mut next.max_stale_recovery_per_cycle,
        ];
        for (number, given) in numbers.into_iter().zip(change.numbers) {
            *number = given.unwrap_or(*number);
        }
        next.enabled = change.enabled.unwrap_or(next.enabled);
        next.executor = change.executor.unwrap_or(next.executor);
        next.first_rail = change.first_rail.unwrap_or(next.first_rail);
        next.step_rails = change.step_rails.unwrap_or(next.step_rails);
        next.rate_config = change.rate_config.unwrap_or(next.rate_config);
        next
    }

    fn json(&self) -> Value {
        json!({ "enabled": self.enabled, "batchSize": self.batch_size, "dispatchIntervalSecs": self.dispatch_interval_s,
            "jitterWindowMs": self.jitter_window_ms, "preStartBufferMins": self.pre_start_buffer_min,
            "maxDispatchRetries": self.max_dispatch_retries, "staleClaimThresholdMins": self.stale_claim_threshold_min,
            "maxStaleRecoveryPerCycle": self.max_stale_recovery_per_cycle, "execWorkflowType": self.executor.as_str(),
            "execTaskQueue": self.first_rail, "stepRails": self.step_rails, "rateConfig": self.rate_config })
    }
}

/// Changes a type's settings from its next cycle on, and writes down who did, what was and what is. The row is read under
/// its lock: what somebody else has changed meanwhile, the kill switch above all, stays. What changes nothing
/// is not on record. None if the type has no row.
///
/// # Errors
/// [`StoreError::Invalid`] for a rail or a rate configuration that there is not; errors of the database.
pub async fn set_settings(
    store: &Store,
    item_type: &str,
    change: Change,
    actor: &str,
) -> Result<Option<Settings>, StoreError> {
    let conn = begin(store, "").await?;
    let result = set_in(&conn, item_type, change, actor).await;
    end(conn, result).await
}

async fn set_in(conn: &Conn, item_type: &str, change: Change, actor: &str) -> Result<Option<Settings>, StoreError> {
    // First: what is written fires the switch of rails, which must not wait for this lock while it holds the row's.
    conn.execute(LOCK_SWITCHES, &[]).await?;
    let found = conn.query_opt(&format!("{GET} FOR UPDATE"), &[&item_type]).await?;
    let Some(before) = found.as_ref().map(read).transpose()? else { return Ok(None) };
    let settings = before.changed(change);
    check(conn, &settings).await?;
    if settings == before {
        return Ok(Some(settings));
    }
    write(conn, &settings).await?;
    let detail = json!({ "itemType": item_type, "before": before.json(), "after": settings.json() });
    audit::append(conn, &Entry { detail: Some(detail), ..Entry::new("dispatch.set", actor) }).await?;
    Ok(Some(settings))
}

/// What only the database knows: whether what is named is there.
async fn check(conn: &Conn, settings: &Settings) -> Result<(), StoreError> {
    let refuse = |field: &str, detail: &str| {
        Err(StoreError::Invalid { field: field.to_owned(), detail: detail.to_owned(), ordinal: 1 })
    };
    let known = "SELECT NOT EXISTS (SELECT 1 FROM unnest($1::text[]) AS n(name)
                                    WHERE NOT EXISTS (SELECT 1 FROM rail r WHERE r.rail_type = n.name))";
    let later: Vec<&str> = settings.step_rails.values().map(String::as_str).collect();
    for (field, rails) in [("exec_task_queue", vec![settings.first_rail.as_str()]), ("step_rails", later)] {
        if !conn.query_one(known, &[&rails]).await?.try_get::<_, bool>(0)? {
            return refuse(field, "names a rail that is not configured");
        }
    }
    let planned = "SELECT EXISTS (SELECT 1 FROM rate_limit_config c WHERE c.config_name = $1 AND c.is_active)";
    if !is_config_name(&settings.rate_config)
        || !conn.query_one(planned, &[&settings.rate_config]).await?.try_get::<_, bool>(0)?
    {
        return refuse("rate_config", "is not the name of a rate configuration");
    }
    Ok(())
}

async fn write(conn: &Conn, settings: &Settings) -> Result<(), StoreError> {
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
    Ok(())
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
