//! Whose turn it is: one dispatcher at a time for each type, in the whole cluster (S0: overlap SKIP).

use std::time::Duration;

use railyard_core::NodeId;

use crate::connect::Store;
use crate::error::StoreError;

const END: &str = "
    UPDATE exec_turn SET holder = NULL, next_cycle_at = taken_at + $3::bigint * interval '1 second'
    WHERE item_type = $1 AND holder = $2";

/// Takes the turn of a type if it is due and no other living node has it.
///
/// # Errors
/// Errors of the database.
pub async fn take_turn(store: &Store, item_type: &str, me: NodeId) -> Result<bool, StoreError> {
    let conn = store.work().await?;
    let taken = conn.query_one("SELECT exec_take_turn($1, $2)", &[&item_type, &me.0]).await?.try_get(0)?;
    conn.ok();
    Ok(taken)
}

/// Gives it back; the next one is due an interval after this one was taken. False: it was lost meanwhile.
///
/// # Errors
/// Errors of the database.
pub async fn end_turn(store: &Store, item_type: &str, me: NodeId, interval: Duration) -> Result<bool, StoreError> {
    let conn = store.work().await?;
    let seconds = i64::try_from(interval.as_secs()).unwrap_or(i64::MAX);
    let ended = conn.execute(END, &[&item_type, &me.0, &seconds]).await?;
    conn.ok();
    Ok(ended > 0)
}
