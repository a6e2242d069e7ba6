//! What people decided: one row a decision, written in the transaction that carries it out, never changed.

use jiff::Timestamp;
use railyard_core::{OutboxId, ParticipantId};
use serde_json::Value;
use tokio_postgres::Row;
use uuid::Uuid;

use crate::connect::{Conn, Store};
use crate::error::StoreError;

/// Most rows of one answer.
pub const LIST_MAX: u32 = 200;

/// Who decided what, why.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry<'a> {
    /// `group.release`, `credentials.delete`, …
    pub action: &'a str,
    /// The token's name, or the program.
    pub actor: &'a str,
    /// In the actor's words.
    pub reason: Option<&'a str>,
    /// Which group it concerns.
    pub group: Option<&'a ParticipantId>,
    /// Which message it concerns.
    pub outbox_id: Option<OutboxId>,
    /// What else there is to know. Never a secret.
    pub detail: Option<Value>,
}

impl<'a> Entry<'a> {
    /// An entry that concerns no group and no message.
    #[must_use]
    pub fn new(action: &'a str, actor: &'a str) -> Self {
        Self { action, actor, reason: None, group: None, outbox_id: None, detail: None }
    }
}

/// A decision on record.
#[derive(Clone, Debug, PartialEq)]
pub struct AuditRow {
    /// Rises with time; the cursor of [`list`].
    pub audit_id: i64,
    /// When, by the database's clock.
    pub at: Timestamp,
    /// What.
    pub action: String,
    /// Who.
    pub actor: String,
    /// Why.
    pub reason: Option<String>,
    /// Which group.
    pub group: Option<ParticipantId>,
    /// Which message.
    pub outbox_id: Option<OutboxId>,
    /// What else.
    pub detail: Option<Value>,
}

/// Writes an entry in the transaction that is open on `conn`.
///
/// # Errors
/// Any error of the database.
pub async fn append(conn: &Conn, entry: &Entry<'_>) -> Result<(), StoreError> {
    let sql = "INSERT INTO admin_audit (action, actor, reason, participant_id, outbox_id, detail) \
               VALUES ($1, $2, $3, $4, $5, $6)";
    let statement = conn.prepare_cached(sql).await?;
    let group = entry.group.map(ParticipantId::as_str);
    let outbox_id = entry.outbox_id.map(|id| id.0);
    conn.execute(&statement, &[&entry.action, &entry.actor, &entry.reason, &group, &outbox_id, &entry.detail]).await?;
    Ok(())
}

/// The newest entries (at most [`LIST_MAX`], and the one more that tells whether there is more), older than `before` if that is given, of one group if that is given.
///
/// # Errors
/// [`StoreError::Unavailable`] and other errors of the database.
pub async fn list(
    store: &Store,
    group: Option<&ParticipantId>,
    before: Option<i64>,
    limit: i64,
) -> Result<Vec<AuditRow>, StoreError> {
    let conn = store.api().await?;
    let limit = limit.clamp(1, i64::from(LIST_MAX) + 1);
    let before = before.unwrap_or(i64::MAX);
    let columns = "SELECT audit_id, at, action, actor, reason, participant_id, outbox_id, detail FROM admin_audit";
    let rows = match group {
        Some(group) => {
            let sql = format!("{columns} WHERE participant_id = $1 AND audit_id < $2 ORDER BY audit_id DESC LIMIT $3");
            let statement = conn.prepare_cached(&sql).await?;
            conn.query(&statement, &[&group.as_str(), &before, &limit]).await?
        }
        None => {
            let sql = format!("{columns} WHERE audit_id < $1 ORDER BY audit_id DESC LIMIT $2");
            let statement = conn.prepare_cached(&sql).await?;
            conn.query(&statement, &[&before, &limit]).await?
        }
    };
    let entries = rows.iter().map(row).collect::<Result<_, _>>()?;
    conn.ok();
    Ok(entries)
}

fn row(row: &Row) -> Result<AuditRow, StoreError> {
    Ok(AuditRow {
        audit_id: row.try_get("audit_id")?,
        at: row.try_get("at")?,
        action: row.try_get("action")?,
        actor: row.try_get("actor")?,
        reason: row.try_get("reason")?,
        group: row.try_get::<_, Option<String>>("participant_id")?.map(ParticipantId::new),
        outbox_id: row.try_get::<_, Option<Uuid>>("outbox_id")?.map(OutboxId),
        detail: row.try_get("detail")?,
    })
}
