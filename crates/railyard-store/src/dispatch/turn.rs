//! Whose turn it is: one dispatcher at a time for each type, in the whole cluster (S0: overlap SKIP).

use std::time::Duration;

use railyard_core::NodeId;

use crate::connect::Store;
use crate::error::StoreError;

const LOOK: &str = "SELECT item_type, turn, steps, again_in_ms FROM dispatch_look($1)";

const END: &str = "UPDATE exec_turn SET holder = NULL WHERE item_type = $1 AND holder = $2";

/// What there is to do for a type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Due {
    /// The type.
    pub item_type: String,
    /// Its turn is due and nobody has it.
    pub turn: bool,
    /// Steps of its items wait to be handed over.
    pub steps: bool,
    /// When to look again, at the latest.
    pub again: Duration,
}

/// What there is to do, of all types that have a configuration, by name: the one statement of a node with nothing to do.
///
/// # Errors
/// Errors of the database.
pub async fn look(store: &Store, me: NodeId) -> Result<Vec<Due>, StoreError> {
    let conn = store.work().await?;
    let statement = conn.prepare_cached(LOOK).await?;
    let rows = conn.query(&statement, &[&me.0]).await?;
    conn.ok();
    let due = |row: &tokio_postgres::Row| {
        let again: i64 = row.try_get("again_in_ms")?;
        Ok(Due {
            item_type: row.try_get("item_type")?,
            turn: row.try_get("turn")?,
            steps: row.try_get("steps")?,
            again: Duration::from_millis(u64::try_from(again).unwrap_or(0)),
        })
    };
    rows.iter().map(due).collect()
}

/// Takes the turn of a type: if its interval is over, as the configuration has it now, and no other living node has it.
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
pub async fn end_turn(store: &Store, item_type: &str, me: NodeId) -> Result<bool, StoreError> {
    let conn = store.work().await?;
    let ended = conn.execute(END, &[&item_type, &me.0]).await?;
    conn.ok();
    Ok(ended > 0)
}
