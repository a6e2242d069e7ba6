//! Later steps of items, which the end of the step before says are due.

use crate::connect::Store;
use crate::error::StoreError;
use crate::row::count;
use crate::transaction::repeated;

/// Steps of one transaction.
pub const STEPS_MAX: u32 = 500;

/// What became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepsHandedOver {
    /// In the outbox.
    pub started: u32,
    /// Given up: the outbox does not take them.
    pub dead: u32,
}

/// Hands over what is due, at most [`STEPS_MAX`]; what another node is at is passed over, and nothing while the type is
/// switched off.
///
/// # Errors
/// Errors of the database; what was not handed over is still due.
pub async fn hand_over_steps(store: &Store, item_type: &str) -> Result<StepsHandedOver, StoreError> {
    let most = i32::try_from(STEPS_MAX).unwrap_or(i32::MAX);
    repeated(|| async move {
        let conn = store.work().await?;
        let row = conn.query_one("SELECT started, dead FROM dispatch_steps($1, $2)", &[&item_type, &most]).await?;
        conn.ok();
        Ok(StepsHandedOver { started: count(&row, "started")?, dead: count(&row, "dead")? })
    })
    .await
}
