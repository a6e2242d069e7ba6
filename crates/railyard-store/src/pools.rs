//! Pools: so many calls at once, on all nodes together (S3's processing pools).
//!
//! A slot is a row that is taken for an attempt (`FOR UPDATE SKIP LOCKED`) before that is begun, and freed when its call
//! has ended. Nobody's death leaves one taken for ever: [`FRESH`] and [`ABANDONED`] say who may do what when.

use std::time::Duration;

use jiff::Timestamp;
use railyard_core::AttemptId;
use serde_json::json;
use uuid::Uuid;

use crate::audit::{self, Entry};
use crate::clock::boottime;
use crate::connect::{Conn, Store};
use crate::error::StoreError;
use crate::listen::CACHE_CHANNEL;
use crate::transaction::{begin, end};

/// The most calls at once that a pool may have.
pub const CONCURRENCY_MAX: u32 = 1000;
/// Pools that one request may set.
pub const POOLS_MAX: usize = 100;

/// A slot that was asked for so long ago is not called under: others may take it soon.
pub const FRESH: Duration = Duration::from_secs(5);
/// A slot that was taken so long ago, for an attempt that is not in flight, is anybody's. Twice [`FRESH`]: the attempt was
/// begun by then, or is never called.
pub const ABANDONED: Duration = Duration::from_secs(10);

pub(crate) const TAKE: &str = "
    WITH free AS MATERIALIZED (
      SELECT s.n FROM pool_slot s JOIN dispatch_pool p ON p.code = s.pool
      WHERE s.pool = $1 AND s.n <= p.concurrency
        AND (s.attempt_id IS NULL
          OR (s.taken_at < clock_timestamp() - $3::bigint * interval '1 ms'
              AND NOT EXISTS (SELECT 1 FROM in_flight f WHERE f.attempt_id = s.attempt_id)))
      ORDER BY s.n LIMIT cardinality($2::uuid[]) FOR UPDATE OF s SKIP LOCKED
    ), numbered AS (
      SELECT n, row_number() OVER (ORDER BY n) AS i FROM free
    )
    UPDATE pool_slot s SET attempt_id = ($2::uuid[])[i], taken_at = clock_timestamp()
    FROM numbered f WHERE s.pool = $1 AND s.n = f.n
    RETURNING s.attempt_id, s.n";

const FREE: &str = "
    UPDATE pool_slot s SET attempt_id = NULL, taken_at = NULL
    FROM unnest($2::integer[], $3::uuid[]) AS g(n, attempt_id)
    WHERE s.pool = $1 AND s.n = g.n AND s.attempt_id = g.attempt_id";

const KEEP: &str = "
    UPDATE pool_slot SET taken_at = clock_timestamp() WHERE pool = $1 AND n = $2 AND attempt_id = $3";

const LIST: &str = "
    SELECT p.code, p.concurrency, p.updated_at,
      (SELECT count(*) FROM pool_slot s WHERE s.pool = p.code AND s.attempt_id IS NOT NULL) AS in_use
    FROM dispatch_pool p ORDER BY p.code";

const SET: &str = "
    INSERT INTO dispatch_pool AS p (code, concurrency) VALUES ($1, $2)
    ON CONFLICT (code) DO UPDATE SET concurrency = excluded.concurrency, updated_at = clock_timestamp()
    WHERE p.concurrency <> excluded.concurrency
    RETURNING p.code";

const SLOTS: &str = "
    INSERT INTO pool_slot (pool, n) SELECT $1, n FROM generate_series(1, $2) n ON CONFLICT DO NOTHING";

/// A pool as it is set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolSpec {
    /// Its name.
    pub code: String,
    /// Calls at once, 1 to [`CONCURRENCY_MAX`].
    pub concurrency: u32,
}

/// A pool and what is in use of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolRow {
    /// What it is.
    pub spec: PoolSpec,
    /// Slots that are taken, also those beyond a concurrency that was lowered.
    pub in_use: u32,
    /// When it was set last.
    pub updated_at: Timestamp,
}

/// A slot that is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// For this attempt.
    pub attempt_id: AttemptId,
    /// Its number.
    pub n: i32,
}

/// All pools by name.
///
/// # Errors
/// Errors of the database.
pub async fn list(store: &Store) -> Result<Vec<PoolRow>, StoreError> {
    let conn = store.api().await?;
    let rows = conn.query(LIST, &[]).await?;
    conn.ok();
    let count = |n: i64| u32::try_from(n).unwrap_or(u32::MAX);
    rows.iter()
        .map(|row| {
            let concurrency = count(row.try_get::<_, i32>("concurrency")?.into());
            let spec = PoolSpec { code: row.try_get("code")?, concurrency };
            Ok(PoolRow { spec, in_use: count(row.try_get("in_use")?), updated_at: row.try_get("updated_at")? })
        })
        .collect()
}

/// Sets these pools; others stay as they are. More calls may begin at once; of fewer, those that run end first.
///
/// # Errors
/// Errors of the database, which refuses names and numbers out of bounds.
pub async fn set(store: &Store, pools: &[PoolSpec], actor: &str) -> Result<(), StoreError> {
    let conn = begin(store, "").await?;
    let result = set_in(&conn, pools, actor).await;
    end(conn, result).await
}

async fn set_in(conn: &Conn, pools: &[PoolSpec], actor: &str) -> Result<(), StoreError> {
    let mut pools: Vec<&PoolSpec> = pools.iter().collect();
    pools.sort_unstable_by(|a, b| a.code.cmp(&b.code));
    for pool in pools {
        let concurrency = i32::try_from(pool.concurrency).unwrap_or(i32::MAX);
        if conn.query_opt(SET, &[&pool.code, &concurrency]).await?.is_none() {
            continue;
        }
        conn.execute(SLOTS, &[&pool.code, &concurrency]).await?;
        let detail = Some(json!({ "code": pool.code, "concurrency": pool.concurrency }));
        audit::append(conn, &Entry { detail, ..Entry::new("pool.set", actor) }).await?;
    }
    conn.execute("SELECT pg_notify($1, 'pools')", &[&CACHE_CHANNEL]).await?;
    Ok(())
}

impl Store {
    /// The names of all pools.
    ///
    /// # Errors
    /// Errors of the database.
    pub async fn pool_codes(&self) -> Result<Vec<String>, StoreError> {
        let conn = self.work().await?;
        let rows = conn.query("SELECT code FROM dispatch_pool", &[]).await?;
        conn.ok();
        rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
    }

    /// Takes free slots for these attempts, as many as there are. With the node's clock before the question.
    ///
    /// # Errors
    /// Errors of the database; what was taken all the same is given up in time.
    pub async fn pool_take(&self, pool: &str, attempts: &[AttemptId]) -> Result<(Duration, Vec<Taken>), StoreError> {
        let conn = self.work().await?;
        let attempts: Vec<Uuid> = attempts.iter().map(|attempt| attempt.0).collect();
        let statement = conn.prepare_cached(TAKE).await?;
        let abandoned_ms = i64::try_from(ABANDONED.as_millis()).unwrap_or(i64::MAX);
        let sent = boottime();
        let rows = conn.query(&statement, &[&pool, &attempts, &abandoned_ms]).await?;
        conn.ok();
        let taken = rows.iter().map(|row| Ok(Taken { attempt_id: AttemptId(row.try_get(0)?), n: row.try_get(1)? }));
        Ok((sent, taken.collect::<Result<_, StoreError>>()?))
    }

    /// Frees slots whose calls have ended.
    ///
    /// # Errors
    /// Errors of the database: try again.
    pub async fn pool_free(&self, pool: &str, slots: &[Taken]) -> Result<(), StoreError> {
        let conn = self.work().await?;
        let numbers: Vec<i32> = slots.iter().map(|slot| slot.n).collect();
        let attempts: Vec<Uuid> = slots.iter().map(|slot| slot.attempt_id.0).collect();
        let statement = conn.prepare_cached(FREE).await?;
        conn.execute(&statement, &[&pool, &numbers, &attempts]).await?;
        conn.ok();
        Ok(())
    }

    /// Takes a slot that is held once more, so that it is fresh. None: it is somebody else's by now.
    ///
    /// # Errors
    /// Errors of the database.
    pub async fn pool_keep(&self, pool: &str, slot: Taken) -> Result<Option<Duration>, StoreError> {
        let conn = self.work().await?;
        let sent = boottime();
        let kept = conn.execute(KEEP, &[&pool, &slot.n, &slot.attempt_id.0]).await?;
        conn.ok();
        Ok((kept == 1).then_some(sent))
    }
}

#[cfg(test)]
mod tests;
