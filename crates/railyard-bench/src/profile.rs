//! What a run costs in the database and in processors, per message.
//!
//! Statements are counted by pg_stat_statements for the product's own role, so nothing that the bench asks is in them.
//! Where the library is missing, only they are.

use std::collections::HashMap;
use std::time::Instant;

use serde_json::{Value, json};

use crate::database::Database;
use crate::idle::{Calls, Counted};
use crate::report::rounded;
use crate::statistics::ratio;

/// How many statements are named.
const TOP: i64 = 10;
/// Characters that are shown of each.
const SHOWN: i32 = 90;

const OURS: &str = "FROM pg_stat_statements WHERE userid = 'railyard_runtime'::regrole
    AND dbid = (SELECT oid FROM pg_database WHERE datname = current_database())";

const WAL_BYTES: &str = "SELECT (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::float8";

/// The counters at the start of a run.
pub(crate) struct Statements {
    at: Instant,
    wal: f64,
    transactions: i64,
}

/// What a run cost.
#[derive(Default)]
pub(crate) struct Profile {
    /// Processor time of the node.
    pub(crate) node_ms: f64,
    /// Processor time of the whole server.
    pub(crate) server_ms: Option<f64>,
    pub(crate) wal_bytes: f64,
    /// Of the product; none where nobody counts them.
    pub(crate) statements: Option<f64>,
    /// The same, one by one.
    pub(crate) calls: Calls,
    transactions_before: i64,
    transactions: i64,
    by_time: Vec<Statement>,
    by_calls: Vec<Statement>,
}

struct Statement {
    text: String,
    calls: i64,
    milliseconds: f64,
    rows: i64,
}

impl Statements {
    /// Starts counting from nothing.
    pub(crate) async fn start(database: &Database) -> anyhow::Result<Self> {
        let sql = &database.sql;
        if database.counts_statements {
            sql.run("SELECT pg_stat_statements_reset()").await?;
        }
        let wal = sql.one(WAL_BYTES).await?;
        Ok(Self { at: Instant::now(), wal, transactions: transactions(database).await? })
    }

    /// Reads the counters. Those of transactions come later: see [`Profile::count_transactions`].
    pub(crate) async fn stop(self, database: &Database) -> anyhow::Result<Profile> {
        let sql = &database.sql;
        let wal: f64 = sql.one(WAL_BYTES).await?;
        let mut profile = Profile {
            wal_bytes: wal - self.wal,
            calls: Calls { seconds: self.at.elapsed().as_secs_f64(), ..Calls::default() },
            transactions_before: self.transactions,
            ..Profile::default()
        };
        if database.counts_statements {
            profile.calls.by_query = each(database).await?;
            profile.statements = Some(profile.calls.by_query.values().map(|counted| counted.calls).sum());
            profile.by_time = top(database, "total_exec_time").await?;
            profile.by_calls = top(database, "calls").await?;
        }
        Ok(profile)
    }
}

impl Profile {
    /// After the node's end, when its backends have handed their counters over.
    pub(crate) async fn count_transactions(&mut self, database: &Database) -> anyhow::Result<()> {
        self.transactions = transactions(database).await? - self.transactions_before;
        Ok(())
    }

    /// Everything per message.
    pub(crate) fn per_message(&self, messages: u64) -> Value {
        let each = |value: f64| rounded(ratio(value, messages as f64));
        json!({
            "statements": self.statements.map(each),
            "transactions": each(self.transactions as f64),
            "wal_bytes": each(self.wal_bytes),
            "node_cpu_ms": each(self.node_ms),
            "database_cpu_ms": self.server_ms.map(each),
        })
    }

    /// The statements that took longest, and those that were called most often.
    pub(crate) fn top(&self, messages: u64) -> (Value, Value) {
        let shown = |statements: &[Statement]| statements.iter().map(|s| s.per_message(messages)).collect::<Value>();
        (shown(&self.by_time), shown(&self.by_calls))
    }
}

impl Statement {
    fn per_message(&self, messages: u64) -> Value {
        let each = |value: f64| rounded(ratio(value, messages as f64));
        json!({
            "calls": each(self.calls as f64), "ms": each(self.milliseconds), "rows": each(self.rows as f64),
            "mean_ms": rounded(ratio(self.milliseconds, self.calls as f64)), "statement": self.text,
        })
    }
}

/// Shared buffers that the product's statements have touched so far; 0 where nobody counts.
pub(crate) async fn buffers(database: &Database) -> anyhow::Result<f64> {
    if !database.counts_statements {
        return Ok(0.0);
    }
    database.sql.one(&format!("SELECT coalesce(sum(shared_blks_hit + shared_blks_read), 0)::float8 {OURS}")).await
}

async fn each(database: &Database) -> anyhow::Result<HashMap<i64, Counted>> {
    let rows = database.sql.rows(&format!("SELECT queryid, calls::float8, rows::float8 {OURS}"), &[]).await?;
    let mut counted = HashMap::new();
    for row in &rows {
        let one: &mut Counted = counted.entry(row.try_get("queryid")?).or_default();
        one.calls += row.try_get::<_, f64>("calls")?;
        one.rows += row.try_get::<_, f64>("rows")?;
    }
    Ok(counted)
}

async fn top(database: &Database, order: &str) -> anyhow::Result<Vec<Statement>> {
    let sql = format!(
        "SELECT left(regexp_replace(query, '\\s+', ' ', 'g'), {SHOWN}) AS text, calls, total_exec_time, rows {OURS}
         ORDER BY {order} DESC LIMIT {TOP}"
    );
    let rows = database.sql.rows(&sql, &[]).await?;
    let read = |row: &tokio_postgres::Row| -> anyhow::Result<Statement> {
        Ok(Statement {
            text: row.try_get::<_, String>("text")?.trim().to_owned(),
            calls: row.try_get("calls")?,
            milliseconds: row.try_get("total_exec_time")?,
            rows: row.try_get("rows")?,
        })
    };
    rows.iter().map(read).collect()
}

async fn transactions(database: &Database) -> anyhow::Result<i64> {
    let sql = "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()";
    database.sql.one(sql).await
}
