//! `exec_rate_config`: read anew in each cycle, so that an UPDATE takes effect with the next one.

use std::collections::BTreeMap;
use std::time::Duration;

use railyard_core::dispatch::Executor;
use tokio_postgres::Row;

use crate::connect::Store;
use crate::error::StoreError;
use crate::row::count;

const CONFIG: &str = "
    SELECT item_type, enabled = 1 AS enabled, batch_size, dispatch_interval_secs, exec_workflow_type, exec_task_queue,
      step_rails, ARRAY(SELECT r.rail_type FROM rail r) AS rails
    FROM exec_rate_config WHERE item_type = $1";

/// What a cycle goes by. What its statements alone go by (jitter, retries, thresholds) they read themselves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DispatchConfig {
    /// The type.
    pub item_type: String,
    /// The kill switch: false, and nothing is claimed.
    pub enabled: bool,
    /// Most items of a claim.
    pub batch_size: u32,
    /// From the beginning of a cycle to that of the next one.
    pub interval: Duration,
    /// What makes an item's steps.
    pub executor: Executor,
    /// Where the first step goes.
    pub first_rail: String,
    /// Where later steps go, by their names.
    pub step_rails: BTreeMap<String, String>,
}

/// The configuration of a type.
///
/// # Errors
/// [`StoreError::Unreadable`] that names the type and the field, if it has no row, an executor that this version does not
/// know, or a rail that there is not: its items could only fail, one by one, until their retries are spent. Errors of the
/// database.
pub async fn config(store: &Store, item_type: &str) -> Result<DispatchConfig, StoreError> {
    let conn = store.work().await?;
    let statement = conn.prepare_cached(CONFIG).await?;
    let found = conn.query_opt(&statement, &[&item_type]).await?;
    conn.ok();
    let unreadable = |detail: String| StoreError::Unreadable { detail };
    let row = found.ok_or_else(|| unreadable(format!("exec_rate_config has no row for item type {item_type}")))?;
    read(&row)
}

fn read(row: &Row) -> Result<DispatchConfig, StoreError> {
    let item_type: String = row.try_get("item_type")?;
    let unreadable = |field: &str, what: String| StoreError::Unreadable {
        detail: format!("exec_rate_config of item type {item_type}: {field} {what}"),
    };
    let name: &str = row.try_get("exec_workflow_type")?;
    let executor =
        Executor::named(name).ok_or_else(|| unreadable("exec_workflow_type", format!("{name:?} is no executor")))?;
    let first_rail: String = row.try_get("exec_task_queue")?;
    let rails: serde_json::Value = row.try_get("step_rails")?;
    let step_rails: BTreeMap<String, String> = serde_json::from_value(rails)
        .map_err(|_| unreadable("step_rails", "is not an object of strings".to_owned()))?;
    let known: Vec<String> = row.try_get("rails")?;
    let named = std::iter::once(("exec_task_queue", &first_rail)).chain(step_rails.values().map(|r| ("step_rails", r)));
    for (field, rail) in named {
        if !known.contains(rail) {
            return Err(unreadable(field, format!("names {rail:?}, which is no rail")));
        }
    }
    Ok(DispatchConfig {
        enabled: row.try_get("enabled")?,
        batch_size: count(row, "batch_size")?,
        interval: Duration::from_secs(u64::from(count(row, "dispatch_interval_secs")?)),
        executor,
        first_rail,
        step_rails,
        item_type,
    })
}
