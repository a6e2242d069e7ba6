//! Rails by name: what the configuration says at a start, and the switch that stops one.

use jiff::Timestamp;
use railyard_core::CredentialsId;
use railyard_core::rail::{OnUnknown, RailKind};
use railyard_core::text::clean_str;
use serde_json::json;
use tokio_postgres::Row;
use uuid::Uuid;

use crate::audit::{self, Entry};
use crate::connect::{Conn, Store};
use crate::error::StoreError;
use crate::holds::Decision;
use crate::limiter;
use crate::listen::{CACHE_CHANNEL, WORK_CHANNEL};
use crate::row::word;
use crate::transaction::{begin, end};

const UPSERT: &str = "
    INSERT INTO rail AS r (rail_type, kind, on_unknown, target_url, credentials_id) VALUES ($1, $2, $3, $4, $5)
    ON CONFLICT (rail_type) DO UPDATE
    SET kind = excluded.kind, on_unknown = excluded.on_unknown, target_url = excluded.target_url,
      credentials_id = excluded.credentials_id
    WHERE (r.kind, r.on_unknown, r.target_url, r.credentials_id)
      IS DISTINCT FROM (excluded.kind, excluded.on_unknown, excluded.target_url, excluded.credentials_id)";

const LIST: &str = "
    SELECT r.rail_type, r.kind, r.on_unknown, r.target_url, r.credentials_id,
      coalesce(s.paused, false) AS paused, s.reason, s.actor, s.since
    FROM rail r LEFT JOIN rail_switch s ON s.kind = 'rail' AND s.name = r.rail_type
    ORDER BY r.rail_type";

/// Returns nothing where the switch stands like that already. What item types have stopped, a person may stop as well.
const SWITCH: &str = "
    INSERT INTO rail_switch AS s (kind, name, paused, reason, actor) VALUES ('rail', $1, $2, $3, $4)
    ON CONFLICT (kind, name) DO UPDATE
    SET paused = excluded.paused, reason = excluded.reason, actor = excluded.actor, since = clock_timestamp()
    WHERE s.paused <> excluded.paused OR (s.paused AND s.actor = 'exec_rate_config')
    RETURNING s.name";

/// Before any row of item types, rails or switches is locked, as `exec_switch_lock` (V14) does: a type that is switched off
/// at this moment is seen, or sees this, and nobody waits for who waits for them.
pub(crate) const LOCK_SWITCHES: &str = "SELECT pg_advisory_xact_lock(hashtext('railyard exec_switch_rails'))";

/// Types that a rail is stopped with: `exec_switch_rails` (V14).
const OFF_WITH: &str = "
    SELECT string_agg(t.item_type, ', ' ORDER BY t.item_type) FROM exec_type_rail t JOIN rail r ON r.rail_type = t.rail_type
    WHERE r.rail_type = $1 AND r.kind = 'payment' HAVING bool_and(t.enabled = 0)";

/// A stopped rail's groups are looked at every five seconds: once it goes on, at once. A hint that is too early is put
/// right. Locked in the order of all others.
const LOCK_WAITING: &str = "
    SELECT participant_id FROM ready_group
    WHERE due_at > clock_timestamp() AND due_at <= clock_timestamp() + interval '5 seconds'
    ORDER BY participant_id FOR UPDATE";

const LOOK_NOW: &str = "
    UPDATE ready_group SET due_at = clock_timestamp()
    WHERE due_at > clock_timestamp() AND due_at <= clock_timestamp() + interval '5 seconds'";

/// A message without order has no hint beside its time, and a retry keeps that: it goes on within five seconds.
const SINGLES_NOW: &str = "
    UPDATE payment_outbox_pending SET next_attempt_at = clock_timestamp()
    WHERE participant_id IS NULL AND rail_type = $1 AND attempt_count = 0
      AND next_attempt_at > clock_timestamp() AND next_attempt_at <= clock_timestamp() + interval '5 seconds'";

/// A rail as it is configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RailSpec {
    /// Its name, the `railType` of jobs.
    pub rail_type: String,
    /// What is checked, and how refusals are read.
    pub kind: RailKind,
    /// What is done with an attempt whose outcome nobody knows.
    pub on_unknown: OnUnknown,
    /// Where jobs go that name no target.
    pub target_url: Option<String>,
    /// Who signs for jobs that name nobody.
    pub credentials_id: Option<CredentialsId>,
}

/// A rail and its switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RailRow {
    /// What it is.
    pub spec: RailSpec,
    /// Nothing of it begins.
    pub paused: bool,
    /// Who switched last, why and when.
    pub switched: Option<(Timestamp, String, String)>,
}

/// Writes the configured rails. Rails that are no longer configured stay: their jobs are still there.
///
/// # Errors
/// [`StoreError::Database`] for a name or URL that the schema refuses; errors of the database.
pub async fn configure(store: &Store, rails: &[RailSpec]) -> Result<(), StoreError> {
    let conn = begin(store, "").await?;
    let result = configure_in(&conn, rails).await;
    end(conn, result).await
}

async fn configure_in(conn: &Conn, rails: &[RailSpec]) -> Result<(), StoreError> {
    let mut rails: Vec<&RailSpec> = rails.iter().collect();
    // Nodes start together and write the same rows.
    rails.sort_unstable_by(|a, b| a.rail_type.cmp(&b.rail_type));
    let mut changed = 0;
    for rail in rails {
        let (kind, on_unknown) = (rail.kind.as_str(), rail.on_unknown.as_str());
        let credentials_id = rail.credentials_id.map(|id| id.0);
        changed +=
            conn.execute(UPSERT, &[&rail.rail_type, &kind, &on_unknown, &rail.target_url, &credentials_id]).await?;
    }
    if changed > 0 {
        tell_nodes(conn).await?;
    }
    Ok(())
}

/// All rails by name.
///
/// # Errors
/// Errors of the database.
pub async fn list(store: &Store) -> Result<Vec<RailRow>, StoreError> {
    let conn = store.api().await?;
    let statement = conn.prepare_cached(LIST).await?;
    let rows = conn.query(&statement, &[]).await?;
    conn.ok();
    rows.iter().map(row).collect()
}

/// Stops a rail or lets it go on. Nothing begins after the commit, and no slot is granted: of a rail with a limiter row,
/// what was begun before is called within `HORIZON + DELTA` (`core::limiter`) or not at all.
///
/// # Errors
/// [`StoreError::Invalid`] for an unknown rail, [`StoreError::Conflict`] if the switch stands like that already, or all item
/// types that begin with this payment rail, or began with it, are switched off; errors of the database.
pub async fn switch(store: &Store, rail_type: &str, paused: bool, decision: Decision<'_>) -> Result<(), StoreError> {
    // Whatever the database does by default: who was told that a rail is stopped finds it stopped after a crash.
    let conn = begin(store, "SET LOCAL synchronous_commit = on").await?;
    let result = switch_in(&conn, rail_type, paused, decision).await;
    end(conn, result).await
}

async fn switch_in(conn: &Conn, rail_type: &str, paused: bool, decision: Decision<'_>) -> Result<(), StoreError> {
    if conn.query_opt("SELECT 1 FROM rail WHERE rail_type = $1", &[&rail_type]).await?.is_none() {
        let detail = "is not a configured rail".to_owned();
        return Err(StoreError::Invalid { field: "rail_type".to_owned(), detail, ordinal: 1 });
    }
    conn.execute(LOCK_SWITCHES, &[]).await?;
    if !paused && let Some(row) = conn.query_opt(OFF_WITH, &[&rail_type]).await? {
        let types: String = row.try_get(0)?;
        return Err(StoreError::Conflict { detail: format!("item types are switched off: {types}") });
    }
    let reason = clean_str(decision.reason, crate::holds::REASON_CHARS_MAX);
    let never_paused = "SELECT 1 FROM rail_switch WHERE kind = 'rail' AND name = $1";
    let first = conn.query_opt(never_paused, &[&rail_type]).await?.is_none();
    let switched = conn.query_opt(SWITCH, &[&rail_type, &paused, &reason, &decision.actor]).await?.is_some();
    if !switched || (first && !paused) {
        let now = if paused { "paused" } else { "not paused" };
        return Err(StoreError::Conflict { detail: format!("rail {rail_type} is {now} already") });
    }
    let action = if paused { "rail.pause" } else { "rail.resume" };
    let detail = Some(json!({ "railType": rail_type }));
    audit::append(conn, &Entry { reason: Some(&reason), detail, ..Entry::new(action, decision.actor) }).await?;
    if paused {
        conn.execute(limiter::PAUSE, &[&rail_type]).await?;
    } else {
        conn.execute(LOCK_WAITING, &[]).await?;
        conn.execute(LOOK_NOW, &[]).await?;
        conn.execute(SINGLES_NOW, &[&rail_type]).await?;
        // Last: whoever asks for a slot waits for this row.
        conn.execute(limiter::RESUME, &[&rail_type]).await?;
    }
    tell_nodes(conn).await?;
    conn.execute("SELECT pg_notify($1, 'new_work')", &[&WORK_CHANNEL]).await?;
    Ok(())
}

async fn tell_nodes(conn: &Conn) -> Result<(), StoreError> {
    conn.execute("SELECT pg_notify($1, 'rails')", &[&CACHE_CHANNEL]).await?;
    Ok(())
}

fn row(row: &Row) -> Result<RailRow, StoreError> {
    let kind = |text: &str| [RailKind::Webhook, RailKind::Payment].into_iter().find(|kind| kind.as_str() == text);
    let on_unknown = |text: &str| [OnUnknown::Retry, OnUnknown::Hold].into_iter().find(|rule| rule.as_str() == text);
    let switched = match row.try_get::<_, Option<Timestamp>>("since")? {
        Some(since) => Some((since, row.try_get("actor")?, row.try_get("reason")?)),
        None => None,
    };
    Ok(RailRow {
        spec: RailSpec {
            rail_type: row.try_get("rail_type")?,
            kind: word(row, "kind", kind)?,
            on_unknown: word(row, "on_unknown", on_unknown)?,
            target_url: row.try_get("target_url")?,
            credentials_id: row.try_get::<_, Option<Uuid>>("credentials_id")?.map(CredentialsId),
        },
        paused: row.try_get("paused")?,
        switched,
    })
}

#[cfg(test)]
mod tests;
