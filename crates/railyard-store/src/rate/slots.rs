//! Slots after they were given: confirmed, given back, and gone in the end.

use std::time::Duration;

use crate::connect::Store;
use crate::error::StoreError;
use crate::transaction::repeated;

/// How long a slot is kept after its time, so that a repeat finds it: as long as other idempotency keys.
pub const SLOTS_KEPT: Duration = Duration::from_secs(35 * 86_400);
/// How long counters are kept after their window: for who wants to see what was.
const COUNTERS_KEPT: Duration = Duration::from_secs(86_400);
/// Rows of one statement.
const CHUNK: i64 = 10_000;

const UNCONFIRMED: &str = "
    SELECT rate_release(ARRAY(SELECT event_id FROM rate_limit_event_slot WHERE confirm_by <= (SELECT clock_timestamp())
                              ORDER BY confirm_by LIMIT $1), true)";

const OLD_SLOTS: &str = "
    DELETE FROM rate_limit_event_slot WHERE event_id = ANY (ARRAY(
      SELECT s.event_id FROM (SELECT DISTINCT config_name FROM rate_limit_config) n
      CROSS JOIN LATERAL (SELECT event_id FROM rate_limit_event_slot o WHERE o.config_name = n.config_name
        AND o.scheduled_time < clock_timestamp() - $1::bigint * interval '1 second' ORDER BY o.scheduled_time LIMIT $2) s
      LIMIT $2))";

/// A window's counter goes once nothing can be planned into it; a run that reaches into the future stays.
const OLD_COUNTERS: &str = "
    WITH gone AS (
      SELECT c.config_name, c.grid, c.window_start FROM (SELECT DISTINCT config_name, grid FROM rate_limit_config) n
      CROSS JOIN LATERAL (SELECT * FROM rate_limit_window_counter o WHERE o.config_name = n.config_name AND o.grid = n.grid
        AND o.window_start < clock_timestamp() - $1::bigint * interval '1 second' - interval '1 day'
        ORDER BY o.window_start LIMIT $2) c LIMIT $2)
    DELETE FROM rate_limit_window_counter c USING gone g
    WHERE c.config_name = g.config_name AND c.grid = g.grid AND c.window_start = g.window_start";

const OLD_RUNS: &str = "
    DELETE FROM rate_limit_run r USING rate_limit_config c
    WHERE c.config_id = r.grid
      AND rate_time(r.next_window * c.window_size_secs * 1000000) < clock_timestamp() - $1::bigint * interval '1 second'";

/// A slot that was given on condition is its event's for good. False: there is none (any more).
///
/// # Errors
/// Errors of the database.
pub async fn confirm(store: &Store, event_id: &str) -> Result<bool, StoreError> {
    let conn = store.api().await?;
    let sql = "UPDATE rate_limit_event_slot SET confirm_by = NULL WHERE event_id = $1";
    let changed = conn.execute(sql, &[&event_id]).await?;
    conn.ok();
    Ok(changed > 0)
}

/// Gives slots back, of work that was cancelled or has expired: their places are free again. How many there were.
///
/// # Errors
/// Errors of the database.
pub async fn release(store: &Store, event_ids: &[String]) -> Result<u64, StoreError> {
    repeated(|| async move {
        let conn = store.api().await?;
        let gone: i32 = conn.query_one("SELECT rate_release($1, false)", &[&event_ids]).await?.try_get(0)?;
        conn.ok();
        Ok(u64::try_from(gone).unwrap_or(0))
    })
    .await
}

/// Gives back what was not confirmed in time: whoever asked for it has died before it started the work, or has thought
/// better of it. How many there were.
///
/// # Errors
/// Errors of the database.
pub async fn give_back(store: &Store) -> Result<u64, StoreError> {
    let conn = store.work().await?;
    let mut all = 0;
    loop {
        let gone: i32 = conn.query_one(UNCONFIRMED, &[&CHUNK]).await?.try_get(0)?;
        all += u64::try_from(gone).unwrap_or(0);
        if i64::from(gone) < CHUNK {
            break;
        }
    }
    conn.ok();
    Ok(all)
}

/// Deletes what nobody asks for any more.
///
/// # Errors
/// Errors of the database.
pub async fn tidy(store: &Store) -> Result<(), StoreError> {
    let conn = store.work().await?;
    let seconds = |kept: Duration| i64::try_from(kept.as_secs()).unwrap_or(i64::MAX);
    for (sql, kept) in [(OLD_SLOTS, SLOTS_KEPT), (OLD_COUNTERS, COUNTERS_KEPT)] {
        while conn.execute(sql, &[&seconds(kept), &CHUNK]).await? >= CHUNK.unsigned_abs() {}
    }
    conn.execute(OLD_RUNS, &[&seconds(COUNTERS_KEPT)]).await?;
    conn.ok();
    Ok(())
}
