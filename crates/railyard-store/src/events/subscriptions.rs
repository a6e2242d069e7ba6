//! Who wants which events. A change counts for events that are stored after it.

use std::collections::BTreeMap;

use jiff::Timestamp;
use railyard_core::backoff::RetryStrategy;
use railyard_core::event::NewSubscription;
use railyard_core::{CredentialsId, Mode};
use serde_json::json;
use tokio_postgres::Row;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use crate::audit::{self, Entry};
use crate::connect::{Conn, Store};
use crate::error::StoreError;
use crate::row::{count, word};
use crate::transaction::{begin, end};

/// Most rows of one answer.
pub const LIST_MAX: i64 = 1000;

/// The credentials' row is locked, so that they are not deleted under the subscription that is just being made.
const INSERT: &str = "
    INSERT INTO event_subscription (subscription_id, name, type_pattern, source, target_url, credentials_id, mode,
      max_attempts, retry_strategy, timeout_ms, headers)
    SELECT uuid7(clock_timestamp()), $1, $2, $3, $4, c.credentials_id, $6, $7, $8, $9, $10
    FROM (SELECT credentials_id FROM dispatch_credentials WHERE credentials_id = $5 AND deleted_at IS NULL FOR SHARE) c
    RETURNING *";

/// Whether those that a subscription needs are deleted.
const CREDENTIALS: &str = "
    SELECT c.deleted_at IS NOT NULL FROM dispatch_credentials c
    WHERE c.credentials_id = (SELECT s.credentials_id FROM event_subscription s WHERE s.subscription_id = $1) FOR SHARE";

const FAULT: &str = "SELECT subscription_fault($1, $2, $3, $4, $5, $6)";

/// A subscription.
#[derive(Clone, Debug, PartialEq)]
pub struct SubscriptionRow {
    /// Its id.
    pub subscription_id: Uuid,
    /// What it says.
    pub spec: NewSubscription,
    /// Whether it takes events.
    pub enabled: bool,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it was switched last.
    pub updated_at: Timestamp,
}

/// Makes one.
///
/// # Errors
/// [`StoreError::Conflict`] if the name is taken, [`StoreError::Invalid`] if the credentials are unknown or no job of
/// it would be taken.
pub async fn create(store: &Store, new: &NewSubscription, actor: &str) -> Result<SubscriptionRow, StoreError> {
    let conn = begin(store, "").await?;
    let result = create_in(&conn, new, actor).await;
    end(conn, result).await
}

async fn create_in(conn: &Conn, new: &NewSubscription, actor: &str) -> Result<SubscriptionRow, StoreError> {
    let credentials = new.credentials_id.map(|id| id.0);
    let number = |value: u32| i32::try_from(value).unwrap_or(i32::MAX);
    let headers: BTreeMap<_, _> = new.headers.iter().cloned().collect();
    let headers = (!headers.is_empty()).then(|| json!(headers));
    let (mode, retry) = (new.mode.as_str(), new.retry.as_str());
    let (attempts, timeout_ms) = (number(new.max_attempts), number(new.timeout_s.saturating_mul(1000)));
    let asked = conn.query_one(FAULT, &[&new.target_url, &mode, &attempts, &retry, &timeout_ms, &headers]).await?;
    if let Some(fault) = asked.try_get::<_, Option<String>>(0)? {
        return Err(StoreError::of_fault(&fault, 1));
    }
    let parameters: [&(dyn ToSql + Sync); 10] = [
        &new.name,
        &new.type_pattern,
        &new.source,
        &new.target_url,
        &credentials,
        &mode,
        &attempts,
        &retry,
        &timeout_ms,
        &headers,
    ];
    let inserted = conn.query_opt(INSERT, &parameters).await;
    let made = match inserted {
        Ok(Some(found)) => row(&found)?,
        Ok(None) => {
            let (field, detail) = ("credentials_id".to_owned(), "is unknown".to_owned());
            return Err(StoreError::Invalid { field, detail, ordinal: 1 });
        }
        Err(error) if error.code() == Some(&SqlState::UNIQUE_VIOLATION) => {
            return Err(StoreError::Conflict { detail: format!("a subscription named {} is there already", new.name) });
        }
        Err(error) => return Err(error.into()),
    };
    record(conn, "subscription.create", actor, &made).await?;
    Ok(made)
}

/// The subscription with this id.
///
/// # Errors
/// Errors of the database.
pub async fn get(store: &Store, id: Uuid) -> Result<Option<SubscriptionRow>, StoreError> {
    let conn = store.api().await?;
    let found = conn.query_opt("SELECT * FROM event_subscription WHERE subscription_id = $1", &[&id]).await?;
    conn.ok();
    found.as_ref().map(row).transpose()
}

/// All of them, by name.
///
/// # Errors
/// Errors of the database.
pub async fn list(store: &Store) -> Result<Vec<SubscriptionRow>, StoreError> {
    let conn = store.api().await?;
    let rows = conn.query("SELECT * FROM event_subscription ORDER BY name LIMIT $1", &[&LIST_MAX]).await?;
    conn.ok();
    rows.iter().map(row).collect()
}

/// Whether it takes events from now on. None if there is no such subscription.
///
/// # Errors
/// [`StoreError::Conflict`] if its credentials are gone: it would be switched on to make jobs that nobody can sign;
/// errors of the database.
pub async fn switch(
    store: &Store,
    id: Uuid,
    enabled: bool,
    actor: &str,
) -> Result<Option<SubscriptionRow>, StoreError> {
    let conn = begin(store, "").await?;
    let result = switch_in(&conn, id, enabled, actor).await;
    end(conn, result).await
}

async fn switch_in(conn: &Conn, id: Uuid, enabled: bool, actor: &str) -> Result<Option<SubscriptionRow>, StoreError> {
    let sql = "UPDATE event_subscription SET enabled = $2, updated_at = clock_timestamp()
               WHERE subscription_id = $1 RETURNING *";
    let action = if enabled { "subscription.enable" } else { "subscription.disable" };
    // Locked first: so does a deletion, which then disables what needs them.
    if enabled
        && let Some(found) = conn.query_opt(CREDENTIALS, &[&id]).await?
        && found.try_get::<_, bool>(0)?
    {
        return Err(StoreError::Conflict { detail: "its credentials are gone".to_owned() });
    }
    changed(conn, sql, &[&id, &enabled], action, actor).await
}

/// Takes it away; its jobs stay. None if there is no such subscription.
///
/// # Errors
/// Errors of the database.
pub async fn delete(store: &Store, id: Uuid, actor: &str) -> Result<Option<SubscriptionRow>, StoreError> {
    let conn = begin(store, "").await?;
    let sql = "DELETE FROM event_subscription WHERE subscription_id = $1 RETURNING *";
    let result = changed(&conn, sql, &[&id], "subscription.delete", actor).await;
    end(conn, result).await
}

async fn changed(
    conn: &Conn,
    sql: &str,
    parameters: &[&(dyn ToSql + Sync)],
    action: &str,
    actor: &str,
) -> Result<Option<SubscriptionRow>, StoreError> {
    let Some(found) = conn.query_opt(sql, parameters).await? else { return Ok(None) };
    let found = row(&found)?;
    record(conn, action, actor, &found).await?;
    Ok(Some(found))
}

async fn record(conn: &Conn, action: &str, actor: &str, row: &SubscriptionRow) -> Result<(), StoreError> {
    let spec = &row.spec;
    let detail = Some(json!({
        "subscriptionId": row.subscription_id, "name": spec.name, "typePattern": spec.type_pattern,
        "source": spec.source, "targetUrl": spec.target_url, "credentialsId": spec.credentials_id,
    }));
    audit::append(conn, &Entry { detail, ..Entry::new(action, actor) }).await
}

fn row(row: &Row) -> Result<SubscriptionRow, StoreError> {
    let headers: Option<serde_json::Value> = row.try_get("headers")?;
    let headers = headers.as_ref().and_then(serde_json::Value::as_object).into_iter().flatten();
    let headers = headers.filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned()))).collect();
    Ok(SubscriptionRow {
        subscription_id: row.try_get("subscription_id")?,
        spec: NewSubscription {
            name: row.try_get("name")?,
            type_pattern: row.try_get("type_pattern")?,
            source: row.try_get("source")?,
            target_url: row.try_get("target_url")?,
            credentials_id: Some(CredentialsId(row.try_get("credentials_id")?)),
            mode: word(row, "mode", Mode::parse)?,
            max_attempts: count(row, "max_attempts")?,
            retry: word(row, "retry_strategy", RetryStrategy::parse)?,
            timeout_s: count(row, "timeout_ms")? / 1000,
            headers,
        },
        enabled: row.try_get("enabled")?,
        created_at: row.try_get("created_at")?,
        updated_at: row.try_get("updated_at")?,
    })
}
