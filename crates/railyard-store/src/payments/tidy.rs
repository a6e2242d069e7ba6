//! What is left over, a page at a time: contexts without an item, and items whose retention is over.

use crate::connect::{Conn, Store};
use crate::error::StoreError;
use crate::rails::LOCK_SWITCHES;
use crate::row::count;
use crate::transaction::{begin, end};

/// Contexts of one page.
const PAGE: u32 = 2000;
/// Items, and entries of the log, of one transaction.
const DROP_MAX: u32 = 1000;

/// A rail that a type began with before, once no item has a step there any more. An hour later: a batch may be on its way
/// that was prepared with the rail as it was. Not while the type is off: the rail stands still by it, and goes on with it.
const FORGET_RAILS: &str = "
    DELETE FROM exec_former_rail f
    WHERE f.since < clock_timestamp() - interval '1 hour'
      AND NOT EXISTS (SELECT 1 FROM exec_step s
                      WHERE s.item_type = f.item_type AND s.step_no = 1 AND s.rail_type = f.rail_type)
      AND NOT EXISTS (SELECT 1 FROM exec_rate_config c WHERE c.item_type = f.item_type AND c.enabled = 0)";

/// How far a sweep through the contexts has come; it begins with the first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sweep {
    after: Option<(String, String)>,
    /// The last one was looked at: the next page is the first again.
    pub is_through: bool,
}

/// Deletes those contexts of the next page that nothing in the queue will ask for. How many there were.
///
/// # Errors
/// Errors of the database; the same page is next.
pub async fn sweep_contexts(store: &Store, sweep: &mut Sweep) -> Result<u32, StoreError> {
    let conn = store.work().await?;
    let (of, id) = sweep.after.as_ref().map(|(of, id)| (of.as_str(), id.as_str())).unzip();
    let page = i32::try_from(PAGE).unwrap_or(i32::MAX);
    let sql = "SELECT swept, scanned, last_type, last_id FROM exec_context_sweep($1, $2, $3)";
    let row = conn.query_one(sql, &[&of, &id, &page]).await?;
    let swept = count(&row, "swept")?;
    sweep.is_through = count(&row, "scanned")? < PAGE;
    sweep.after = match sweep.is_through {
        true => None,
        false => Some((row.try_get("last_type")?, row.try_get("last_id")?)),
    };
    conn.ok();
    Ok(swept)
}

/// Drops what was completed at least so many days ago, with its payments, and the log of its dispatch; and forgets the rails
/// that types began with before, where nothing is left of that. How many items went.
///
/// # Errors
/// Errors of the database; what has gone by then is gone.
pub async fn drop_completed(store: &Store, days: i32) -> Result<u64, StoreError> {
    let most = i32::try_from(DROP_MAX).unwrap_or(i32::MAX);
    let mut dropped = 0;
    let conn = begin(store, "").await?;
    let result = forget_rails(&conn).await;
    end(conn, result).await?;
    loop {
        // Little by little, so that nobody waits for long.
        let conn = store.work().await?;
        let row = conn.query_one("SELECT items, entries FROM drop_completed_items($1, $2)", &[&days, &most]).await?;
        let (items, entries) = (count(&row, "items")?, count(&row, "entries")?);
        conn.ok();
        dropped += u64::from(items);
        if items < DROP_MAX && entries < DROP_MAX {
            return Ok(dropped);
        }
    }
}

/// After the lock, so that no switch is thrown between the look and the end.
async fn forget_rails(conn: &Conn) -> Result<(), StoreError> {
    conn.execute(LOCK_SWITCHES, &[]).await?;
    conn.execute(FORGET_RAILS, &[]).await?;
    Ok(())
}
