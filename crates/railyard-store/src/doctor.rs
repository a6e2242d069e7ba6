//! What has to be right with the database before messages are entrusted to it. Changes nothing.

mod pooler;

use std::time::Duration;

use jiff::Timestamp;
use tokio_postgres::Client;

use crate::connect::{RUNTIME_ROLE, Store};
use crate::error::StoreError;
use crate::migrate;

/// Oldest server that has what the statements use.
pub const SERVER_VERSION_MIN: i32 = 150_000;
/// A node's clock may differ by this much before receivers refuse signatures as too old.
pub const CLOCK_DIFFERENCE_MAX: Duration = Duration::from_secs(60);
/// Days that should exist ahead of today.
pub const DAYS_AHEAD_MIN: i64 = 3;
/// A snapshot older than this keeps dead rows of the hot tables alive.
pub const SNAPSHOT_AGE_MAX: Duration = Duration::from_secs(300);

/// How a check went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Grade {
    /// As it should be.
    Good,
    /// Works, and somebody should look.
    Warning,
    /// Does not work, or will lose something.
    Bad,
}

impl Grade {
    /// As it is printed.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Good => "ok",
            Self::Warning => "warning",
            Self::Bad => "failed",
        }
    }
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// Short and stable (`server version`).
    pub name: &'static str,
    /// How it went.
    pub grade: Grade,
    /// What was found, and what to do about it.
    pub detail: String,
}

impl Check {
    fn new(name: &'static str, grade: Grade, detail: impl Into<String>) -> Self {
        Self { name, grade, detail: detail.into() }
    }

    fn good_if(name: &'static str, good: bool, otherwise: Grade, detail: impl Into<String>) -> Self {
        Self::new(name, if good { Grade::Good } else { otherwise }, detail)
    }
}

/// Looks at everything. `now` reads the caller's wall clock. A database that cannot be reached is one bad check.
pub async fn examine(store: &Store, now: impl Fn() -> Timestamp + Send) -> Vec<Check> {
    let session = match store.dedicated("railyard doctor").await {
        Ok(session) => session,
        Err(error) => return vec![Check::new("connection", Grade::Bad, error.to_string())],
    };
    let client = &session.client;
    let mut checks = vec![Check::new("connection", Grade::Good, format!("as {RUNTIME_ROLE}"))];
    checks.push(or_bad("server version", version(client).await));
    checks.push(or_bad("schema", schema(store).await));
    checks.push(or_bad("rights", rights(client).await));
    checks.push(or_bad("clock", clock(client, now).await));
    checks.push(or_bad("durability", durability(client).await));
    checks.push(or_bad("pooler", pooler::check(store, client).await));
    checks.push(or_bad("listen", pooler::listens(store, client).await));
    checks.push(or_bad("partitions", partitions(client).await));
    checks.push(or_bad("old snapshots", snapshots(client).await));
    checks
}

fn or_bad(name: &'static str, result: Result<Check, StoreError>) -> Check {
    result.unwrap_or_else(|error| Check::new(name, Grade::Bad, error.to_string()))
}

async fn version(client: &Client) -> Result<Check, StoreError> {
    let sql =
        "SELECT current_setting('server_version_num')::integer, current_setting('server_version'), pg_is_in_recovery()";
    let row = client.query_one(sql, &[]).await?;
    let number: i32 = row.try_get(0)?;
    let text: String = row.try_get(1)?;
    if row.try_get(2)? {
        return Ok(Check::new(
            "server version",
            Grade::Bad,
            format!("PostgreSQL {text} is a standby: it takes no writes"),
        ));
    }
    let detail = format!("PostgreSQL {text}; 15 or later is needed");
    Ok(Check::good_if("server version", number >= SERVER_VERSION_MIN, Grade::Bad, detail))
}

async fn schema(store: &Store) -> Result<Check, StoreError> {
    let found = migrate::check(&store.config().url).await?;
    let latest = migrate::latest();
    if found.version > latest {
        let detail = format!("version {}, newer than this program's {latest}: upgrade the program", found.version);
        return Ok(Check::new("schema", Grade::Warning, detail));
    }
    let detail = match found.steps.is_empty() {
        true => format!("version {}", found.version),
        false => format!("version {}, steps {:?} are missing: run `railyard migrate`", found.version, found.steps),
    };
    Ok(Check::good_if("schema", found.steps.is_empty(), Grade::Bad, detail))
}

/// The runtime role must be able to do its work and nothing that would change what is on record.
async fn rights(client: &Client) -> Result<Check, StoreError> {
    let sql = "
        SELECT current_user::text = $1,
          ARRAY(SELECT t FROM unnest(ARRAY['payment_outbox_pending', 'in_flight', 'ready_group', 'group_hold',
                  'dispatch_credentials', 'node', 'partition_lease']) AS t
                WHERE NOT has_table_privilege('public.' || t, 'SELECT, INSERT, UPDATE, DELETE')),
          ARRAY(SELECT t FROM unnest(ARRAY['dispatch_job', 'dispatch_job_outcome', 'payment_outbox_attempt_archive',
                  'admin_audit']) AS t
                WHERE has_table_privilege('public.' || t, 'UPDATE') OR has_table_privilege('public.' || t, 'DELETE')
                   OR has_table_privilege('public.' || t, 'TRUNCATE')),
          has_function_privilege('public.enqueue_outbox(public.outbox_item[], boolean)', 'EXECUTE')";
    let row = client.query_one(sql, &[&RUNTIME_ROLE]).await?;
    let missing: Vec<String> = row.try_get(1)?;
    let excess: Vec<String> = row.try_get(2)?;
    let (is_runtime, enqueues): (bool, bool) = (row.try_get(0)?, row.try_get(3)?);
    if !is_runtime || !missing.is_empty() || !enqueues {
        let detail = format!("{RUNTIME_ROLE} lacks rights (tables: {missing:?}): run `railyard migrate`");
        return Ok(Check::new("rights", Grade::Bad, detail));
    }
    if !excess.is_empty() {
        let detail = format!("{RUNTIME_ROLE} may change what is on record in {excess:?}");
        return Ok(Check::new("rights", Grade::Bad, detail));
    }
    Ok(Check::new("rights", Grade::Good, format!("{RUNTIME_ROLE} may do its work and change no record")))
}

async fn clock(client: &Client, now: impl Fn() -> Timestamp) -> Result<Check, StoreError> {
    let before = now();
    let theirs: Timestamp = client.query_one("SELECT clock_timestamp()", &[]).await?.try_get(0)?;
    let after = now();
    // The answer was made at some time in between: only what lies outside of that is a difference.
    let ahead = theirs.duration_since(after).as_millis().max(0);
    let behind = before.duration_since(theirs).as_millis().max(0);
    let (difference, word) = if ahead > 0 { (ahead, "ahead") } else { (behind, "behind") };
    let bound = i128::try_from(CLOCK_DIFFERENCE_MAX.as_millis()).unwrap_or(i128::MAX);
    let detail = format!("the database's clock is {difference} ms {word} of this machine's");
    Ok(Check::good_if("clock", difference <= bound, Grade::Warning, detail))
}

async fn durability(client: &Client) -> Result<Check, StoreError> {
    let sql = "SELECT name, setting FROM pg_settings \
               WHERE name IN ('fsync', 'full_page_writes', 'synchronous_commit') AND setting = 'off' ORDER BY name";
    let mut off = Vec::new();
    for row in client.query(sql, &[]).await? {
        off.push(row.try_get::<_, String>(0)?);
    }
    if off.is_empty() {
        return Ok(Check::new("durability", Grade::Good, "what is committed survives a crash of the server"));
    }
    let detail = format!("{} is off: a crash of the server loses what was promised", off.join(", "));
    Ok(Check::new("durability", Grade::Warning, detail))
}

async fn partitions(client: &Client) -> Result<Check, StoreError> {
    let sql = "
        SELECT t.name, count(c.oid) FILTER (WHERE right(c.relname, 8) >= to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYYMMDD'))
        FROM partitioned_table t
        LEFT JOIN pg_inherits i ON i.inhparent = to_regclass('public.' || t.name)
        LEFT JOIN pg_class c ON c.oid = i.inhrelid AND c.relname ~ '_p[0-9]{8}$'
        GROUP BY t.name ORDER BY 2, 1 LIMIT 1";
    let Some(row) = client.query_opt(sql, &[]).await? else {
        return Ok(Check::new("partitions", Grade::Bad, "no table is partitioned: run `railyard migrate`"));
    };
    let (name, days): (String, i64) = (row.try_get(0)?, row.try_get(1)?);
    let detail = format!("{name} has {days} days from today on; a node makes more each hour");
    let otherwise = if days == 0 { Grade::Bad } else { Grade::Warning };
    Ok(Check::good_if("partitions", days >= DAYS_AHEAD_MIN, otherwise, detail))
}

async fn snapshots(client: &Client) -> Result<Check, StoreError> {
    let sql = "
        SELECT (SELECT coalesce(extract(epoch FROM max(clock_timestamp() - xact_start)), 0)::double precision
                FROM pg_stat_activity WHERE backend_xmin IS NOT NULL AND pid <> pg_backend_pid()),
          (SELECT count(*) FROM pg_prepared_xacts WHERE prepared < clock_timestamp() - interval '5 minutes'),
          (SELECT count(*) FROM pg_replication_slots WHERE NOT active AND xmin IS NOT NULL),
          pg_has_role(current_user, 'pg_read_all_stats', 'USAGE')";
    let row = client.query_one(sql, &[]).await?;
    let age_s: f64 = row.try_get(0)?;
    let (prepared, slots): (i64, i64) = (row.try_get(1)?, row.try_get(2)?);
    if age_s > SNAPSHOT_AGE_MAX.as_secs_f64() || prepared > 0 || slots > 0 {
        let detail = format!(
            "oldest open transaction {age_s:.0} s, prepared ones {prepared}, dead replication slots {slots}: \
             dead rows of the hot tables cannot be removed"
        );
        return Ok(Check::new("old snapshots", Grade::Warning, detail));
    }
    let sight = if row.try_get(3)? { "" } else { " (of this role; pg_read_all_stats shows them all)" };
    Ok(Check::new("old snapshots", Grade::Good, format!("oldest open transaction {age_s:.0} s{sight}")))
}

#[cfg(test)]
mod tests;
