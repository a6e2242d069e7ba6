//! Items from READY to the outbox.

use railyard_core::NodeId;
use railyard_core::dispatch::ExecStep;
use railyard_core::payment::{PaymentStatus, QueueStatus};
use railyard_core::text::clean_str;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::config::DispatchConfig;
use crate::connect::Store;
use crate::error::StoreError;
use crate::holds::{Decision, REASON_CHARS_MAX};
use crate::row::{count, word};
use crate::transaction::repeated;

pub(crate) const CLAIM: &str = "SELECT payment_id, context_json::text AS context FROM dispatch_claim($1, $2, $3)";

const CLAIMED: &str = "SELECT payment_id, context_json::text AS context FROM dispatch_claimed($1, $2)";

const HAND_OVER: &str = "
    SELECT dispatched, failed, dead, put_back, lost, dispatched IS NULL AS fenced FROM dispatch_hand_over(
      $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)";

const KEEP: &str = "
    UPDATE payment_exec_queue SET claimed_at = clock_timestamp()
    WHERE item_type = $1 AND dispatch_batch_id = $2 AND queue_status = 'CLAIMED'";

const PUT_BACK: &str = "
    WITH back AS (
      UPDATE payment_exec_queue SET queue_status = 'READY', claimed_at = NULL, dispatch_batch_id = NULL,
        updated_at = clock_timestamp()
      WHERE item_type = $1 AND dispatch_batch_id = $2 AND queue_status = 'CLAIMED'
      RETURNING 1
    )
    INSERT INTO dispatch_audit_log (batch_id, item_type, action, detail)
    SELECT $2, $1, 'BATCH_COMPLETE', format('dispatched 0, failed 0, put back %s', count(*)) FROM back
    HAVING count(*) > 0";

/// A batch of items that are CLAIMED.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claimed {
    /// `BATCH-…`.
    pub batch: String,
    /// Ids and contexts as JSON text, oldest first; one without a context cannot be started.
    pub items: Vec<(String, Option<String>)>,
}

/// How an item is to be started, or why it cannot be.
pub type StartOrder = (String, Result<Vec<ExecStep>, String>);

/// What became of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HandedOver {
    /// In the outbox.
    pub dispatched: u32,
    /// Could not be started: READY again, or given up.
    pub failed: u32,
    /// How many of these were given up.
    pub dead: u32,
    /// Stand behind one that was not handed over: READY again.
    pub put_back: u32,
    /// Were no longer this batch's.
    pub lost: u32,
}

/// What became of stale claims.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// READY again.
    pub recovered: u32,
    /// Had been handed over.
    pub marked: u32,
    /// Given up.
    pub dead: u32,
}

/// What a decision to requeue has come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Requeue {
    /// It is READY.
    Done,
    /// It has not ended without success.
    NotEnded(QueueStatus),
    /// A new run would be once too often, and why: its job was replayed, or a late answer says that it was delivered.
    Refused(String),
    /// There is no such item.
    Unknown,
}

/// A name for a batch that is to be claimed: whoever does not hear the claim's answer asks for it by this.
#[must_use]
pub fn batch_name() -> String {
    format!("BATCH-{}", Uuid::new_v4())
}

/// Claims what is due soon, of an enabled type, once under each name: as many items as the configuration says, and no more
/// than `most`. Nothing: no items.
///
/// # Errors
/// Errors of the database; [`claimed`] says what was claimed all the same.
pub async fn claim(store: &Store, item_type: &str, batch: &str, most: u32) -> Result<Claimed, StoreError> {
    items(store, CLAIM, batch, &[&item_type, &batch, &bounded(most)]).await
}

/// What was claimed under this name and not handed over, whether or not the claim's answer was heard.
///
/// # Errors
/// Errors of the database; what was claimed is recovered once it is stale.
pub async fn claimed(store: &Store, item_type: &str, batch: &str) -> Result<Claimed, StoreError> {
    items(store, CLAIMED, batch, &[&item_type, &batch]).await
}

fn bounded(most: u32) -> i32 {
    i32::try_from(most).unwrap_or(i32::MAX)
}

async fn items(
    store: &Store,
    sql: &str,
    batch: &str,
    parameters: &[&(dyn ToSql + Sync)],
) -> Result<Claimed, StoreError> {
    let conn = store.work().await?;
    let statement = conn.prepare_cached(sql).await?;
    let rows = conn.query(&statement, parameters).await?;
    conn.ok();
    let item = |row: &Row| Ok((row.try_get("payment_id")?, row.try_get("context")?));
    Ok(Claimed { batch: batch.to_owned(), items: rows.iter().map(item).collect::<Result<_, StoreError>>()? })
}

impl Claimed {
    /// What each item consists of, by its executor.
    #[must_use]
    pub fn orders(&self, config: &DispatchConfig) -> Vec<StartOrder> {
        let steps = |context: &Option<String>| match context {
            Some(context) => config.executor.steps(context, &config.first_rail, &config.step_rails),
            None => Err("has no context".to_owned()),
        };
        self.items.iter().map(|(id, context)| (id.clone(), steps(context))).collect()
    }
}

/// Hands a batch over to the outbox, or says why not, item by item; one transaction, in which the type's switch stays as it
/// is. None: the lease of `me` is over, and nothing was done.
///
/// # Errors
/// Errors of the database; what was not handed over is recovered once it is stale.
pub async fn hand_over(
    store: &Store,
    me: NodeId,
    item_type: &str,
    batch: &str,
    orders: &[StartOrder],
) -> Result<Option<HandedOver>, StoreError> {
    let ids: Vec<&str> = orders.iter().map(|(id, _)| id.as_str()).collect();
    let errors: Vec<Option<&str>> = orders.iter().map(|(_, steps)| steps.as_ref().err().map(String::as_str)).collect();
    let steps: Vec<(i32, i16, &ExecStep)> = (1_i32..)
        .zip(orders)
        .flat_map(|(item, (_, steps))| (1_i16..).zip(steps.iter().flatten()).map(move |(no, step)| (item, no, step)))
        .collect();
    let items: Vec<i32> = steps.iter().map(|(item, ..)| *item).collect();
    let numbers: Vec<i16> = steps.iter().map(|(_, no, _)| *no).collect();
    let names: Vec<&str> = steps.iter().map(|(.., step)| step.name).collect();
    let rails: Vec<Option<&str>> = steps.iter().map(|(.., step)| step.rail.as_deref()).collect();
    let types: Vec<&str> = steps.iter().map(|(.., step)| step.job_type).collect();
    let payloads: Vec<&[u8]> = steps.iter().map(|(.., step)| step.payload.as_slice()).collect();
    let after: Vec<Option<&str>> =
        steps.iter().map(|(.., step)| step.status_after.map(PaymentStatus::as_str)).collect();
    let parameters: [&(dyn ToSql + Sync); 12] =
        [&me.0, &item_type, &batch, &ids, &errors, &items, &numbers, &names, &rails, &types, &payloads, &after];
    let parameters = &parameters;
    repeated(|| async move {
        let conn = store.work().await?;
        let statement = conn.prepare_cached(HAND_OVER).await?;
        let row = conn.query_one(&statement, parameters).await?;
        conn.ok();
        if row.try_get::<_, bool>("fenced")? {
            return Ok(None);
        }
        Ok(Some(HandedOver {
            dispatched: count(&row, "dispatched")?,
            failed: count(&row, "failed")?,
            dead: count(&row, "dead")?,
            put_back: count(&row, "put_back")?,
            lost: count(&row, "lost")?,
        }))
    })
    .await
}

/// Says that this batch's dispatcher lives, so that its claims do not become stale: for who could not hand it over yet.
///
/// # Errors
/// Errors of the database.
pub async fn keep(store: &Store, item_type: &str, batch: &str) -> Result<(), StoreError> {
    let conn = store.work().await?;
    conn.execute(KEEP, &[&item_type, &batch]).await?;
    conn.ok();
    Ok(())
}

/// Gives a batch up without a count, which is on record: its items are READY for whoever claims next.
///
/// # Errors
/// Errors of the database.
pub async fn put_back(store: &Store, item_type: &str, batch: &str) -> Result<(), StoreError> {
    let conn = store.work().await?;
    conn.execute(PUT_BACK, &[&item_type, &batch]).await?;
    conn.ok();
    Ok(())
}

/// Brings items back whose dispatcher died with them, and gives up what has failed too often; at most as many of either as
/// the configuration says, and no more than `most`.
///
/// # Errors
/// Errors of the database; nothing was changed.
pub async fn recover(store: &Store, item_type: &str, most: u32) -> Result<Recovered, StoreError> {
    let conn = store.work().await?;
    let sql = "SELECT recovered, marked, dead FROM dispatch_recover($1, $2)";
    let row = conn.query_one(sql, &[&item_type, &bounded(most)]).await?;
    conn.ok();
    Ok(Recovered { recovered: count(&row, "recovered")?, marked: count(&row, "marked")?, dead: count(&row, "dead")? })
}

/// A new run of what ended without success, from the step at which it did. On record with its reason.
///
/// # Errors
/// Errors of the database.
pub async fn requeue(store: &Store, item_type: &str, id: &str, decision: Decision<'_>) -> Result<Requeue, StoreError> {
    let reason = clean_str(decision.reason, REASON_CHARS_MAX);
    let conn = store.api().await?;
    let sql = "SELECT done, refused FROM dispatch_requeue($1, $2, $3, $4)";
    let row = conn.query_one(sql, &[&item_type, &id, &decision.actor, &reason]).await?;
    let done: bool = row.try_get("done")?;
    if let Some(why) = row.try_get("refused")? {
        conn.ok();
        return Ok(Requeue::Refused(why));
    }
    let status = "SELECT queue_status FROM payment_exec_queue WHERE item_type = $1 AND payment_id = $2";
    let found = match done {
        true => None,
        false => conn.query_opt(status, &[&item_type, &id]).await?,
    };
    conn.ok();
    match found {
        Some(row) => Ok(Requeue::NotEnded(word(&row, "queue_status", QueueStatus::parse)?)),
        None if done => Ok(Requeue::Done),
        None => Ok(Requeue::Unknown),
    }
}
