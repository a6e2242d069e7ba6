//! Hot statements, held to their indexes: with 90 days of partitions, 200,000 messages blocked behind held groups and
//! 1,000,000 waiting ones, whatever the planner knew when the plan was made.
//!
//! A connection of the work pool plans each statement once and keeps the plan, so each is run with the plans that
//! production may meet: made while the tables were empty, made without statistics (tables that filled up since the last
//! ANALYZE), and made with them. What is held is the work done, in buffers touched per row asked for, and that no big
//! table is read from end to end.

mod filled;
mod statements;

use std::collections::HashMap;

use railyard_testkit::OwnServer;
use serde_json::Value;
use tokio_postgres::Client;
use uuid::Uuid;

use crate::{Conn, Store, StoreConfig, migrate};
use filled::{DAYS, FILL, JOBS, NODE, VISIT};
use statements::{Statement, statements};

/// Tables that a sequential scan must never touch.
const BIG: [&str; 6] = [
    "payment_outbox_pending",
    "ready_group",
    "participant_outbox_sequences",
    "dispatch_job",
    "payment_outbox_attempt_archive",
    "dispatch_job_outcome",
];

/// Scans from end to end that this session has made and not reported yet.
const SEQUENTIAL: &str = "SELECT relname::text, seq_scan FROM pg_stat_xact_user_tables WHERE seq_scan > 0";

/// A scan that no plan shows, since it is a function's.
const HIDDEN: &str = "
CREATE FUNCTION hidden_scan(p bigint) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN RETURN (SELECT count(*) FROM participant_outbox_sequences WHERE next_sequence_id > p); END $$";

/// What a plan did.
struct Ran {
    buffers: u64,
    sequential: Vec<String>,
}

/// A connection of the product's own, with all its settings and as its own role, that has planned every statement.
async fn planned(store: &Store, statements: &[Statement]) -> Conn {
    let work = store.work().await.unwrap();
    work.batch_execute("SET statement_timeout = 0").await.unwrap();
    for statement in statements {
        let prepare = format!("PREPARE {} AS {}", handle(statement), statement.sql);
        work.batch_execute(&prepare).await.unwrap_or_else(|error| panic!("{}: {error:?}", statement.name));
        let explain = format!("EXPLAIN EXECUTE {}", call(&work, statement).await);
        work.batch_execute(&explain).await.unwrap_or_else(|error| panic!("{}: {error:?}", statement.name));
    }
    let kept = "SELECT count(*) FROM pg_prepared_statements WHERE from_sql AND generic_plans = 1 AND custom_plans = 0";
    work.batch_execute(&format!("BEGIN; {VISIT}; ROLLBACK")).await.unwrap();
    assert_eq!(count(&work, kept).await, i64::try_from(statements.len()).unwrap(), "planned once, for good");
    work
}

fn handle(statement: &Statement) -> String {
    statement.name.replace([' ', ':'], "_")
}

/// `name(arguments)`. EXECUTE takes no sub-queries: each argument is a literal of the same type.
async fn call(sql: &Conn, statement: &Statement) -> String {
    let mut arguments = Vec::new();
    for expression in &statement.arguments {
        let literal =
            format!("SELECT quote_literal(x::text) || '::' || pg_typeof(x) FROM (SELECT {expression}) AS a(x)");
        arguments.push(sql.query_one(&literal, &[]).await.unwrap().get::<_, String>(0));
    }
    format!("{}({})", handle(statement), arguments.join(", "))
}

async fn run(sql: &Conn, statement: &Statement) -> Ran {
    let explain = format!("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE {}", call(sql, statement).await);
    sql.batch_execute("BEGIN").await.unwrap();
    sql.batch_execute(statement.before).await.unwrap();
    let before = scans(sql).await;
    let row = sql.query_one(&explain, &[]).await.unwrap_or_else(|error| panic!("{}: {error:?}", statement.name));
    let plan: Value = row.get(0);
    // What a function's statements do stands in no plan but in the counters.
    let mut after = scans(sql).await;
    sql.batch_execute("ROLLBACK").await.unwrap();
    after.retain(|table, scans| before.get(table) != Some(scans));
    let mut ran = Ran { buffers: 0, sequential: after.into_keys().collect() };
    let root = &plan[0]["Plan"];
    if let Some(rows) = statement.rows {
        assert_eq!(root["Actual Rows"].as_f64(), Some(f64::from(rows)), "{} did its work", statement.name);
    }
    ran.buffers = buffers(root);
    walk(root, &mut ran.sequential);
    ran
}

async fn scans(sql: &Conn) -> HashMap<String, i64> {
    let rows = sql.query(SEQUENTIAL, &[]).await.unwrap();
    let of_big = |table: &str| BIG.iter().any(|big| table.starts_with(big));
    rows.iter().map(|row| (row.get(0), row.get(1))).filter(|(table, _): &(String, i64)| of_big(table)).collect()
}

/// The root's, and those of writing CTEs that nobody reads: they run after the root has ended.
fn buffers(root: &Value) -> u64 {
    let of = |node: &Value| {
        node["Shared Hit Blocks"].as_u64().unwrap_or(0) + node["Shared Read Blocks"].as_u64().unwrap_or(0)
    };
    let children = root["Plans"].as_array().into_iter().flatten();
    of(root) + children.filter(|child| child["Parent Relationship"] == "InitPlan").map(of).sum::<u64>()
}

fn walk(node: &Value, sequential: &mut Vec<String>) {
    let scanned = node["Relation Name"].as_str().unwrap_or_default();
    // A partition that is never executed costs nothing; one that is tiny is read whole at no cost, but not by chance.
    let executed = node["Actual Loops"].as_u64().unwrap_or(0) > 0;
    if node["Node Type"] == "Seq Scan" && executed && BIG.iter().any(|big| scanned.starts_with(big)) {
        sequential.push(scanned.to_owned());
    }
    for child in node["Plans"].as_array().into_iter().flatten() {
        walk(child, sequential);
    }
}

/// S2-06, S0-32 in kind: none of the hot statements depends on what the planner happened to know.
#[tokio::test]
async fn hot_statements_keep_to_their_indexes() {
    let server = OwnServer::start(&[("autovacuum", "off"), ("shared_buffers", "512MB"), ("max_wal_size", "4GB")]).await;
    migrate::migrate(&server.url()).await.unwrap();
    let sql = server.connect().await;
    sql.batch_execute(DAYS).await.unwrap();
    sql.batch_execute(NODE).await.unwrap();
    let store = Store::new(StoreConfig::at(&server.url())).unwrap();
    // The ids of a hundred jobs, one a day: what is planned before they are there must serve them afterwards.
    let ids = "SELECT array_agg(uuid7(now() - (n % 87) * interval '1 day') ORDER BY n) FROM generate_series(1, 100) n";
    let ids: Vec<Uuid> = sql.query_one(ids, &[]).await.unwrap().get(0);
    let statements = statements(&ids);
    let empty = planned(&store, &statements).await;
    sql.batch_execute(FILL).await.unwrap();
    let name = "UPDATE payment_outbox_pending SET outbox_id = $1 WHERE participant_id = $2 AND sequence_id = 1";
    for (n, id) in ids.iter().enumerate() {
        sql.execute(name, &[id, &format!("g{}", n + 1)]).await.unwrap();
    }
    sql.batch_execute(JOBS).await.unwrap();
    let partitions: i64 =
        count(&sql, "SELECT count(*) FROM pg_inherits WHERE inhparent = 'dispatch_job'::regclass").await;
    assert!(partitions >= 90, "{partitions} days");
    assert_eq!(count(&sql, "SELECT count(*) FROM payment_outbox_pending").await, 1_200_000);
    let unknown = planned(&store, &statements).await;

    let mut wrong = Vec::new();
    measure("planned on empty tables", &empty, &statements, &mut wrong).await;
    measure("planned without statistics", &unknown, &statements, &mut wrong).await;
    sql.batch_execute("VACUUM ANALYZE").await.unwrap();
    let known = planned(&store, &statements).await;
    measure("planned with statistics", &known, &statements, &mut wrong).await;
    assert!(wrong.is_empty(), "{wrong:#?}");

    // What holds `work_batch` to its indexes would see a scan of its.
    sql.batch_execute(HIDDEN).await.unwrap();
    let hidden = Statement {
        name: "hidden scan",
        sql: "SELECT hidden_scan($1)",
        arguments: vec!["1::bigint".to_owned()],
        buffers_max: u64::MAX,
        before: "",
        rows: Some(1),
    };
    let hidden = [hidden];
    let ran = run(&planned(&store, &hidden).await, &hidden[0]).await;
    assert_eq!(ran.sequential, ["participant_outbox_sequences"]);
}

async fn measure(plan: &str, work: &Conn, statements: &[Statement], wrong: &mut Vec<String>) {
    for statement in statements {
        let ran = run(work, statement).await;
        println!("{plan:28} {:20} {:6} buffers of {}", statement.name, ran.buffers, statement.buffers_max);
        if !ran.sequential.is_empty() || ran.buffers > statement.buffers_max {
            wrong.push(format!("{plan}: {}: {} buffers, scans {:?}", statement.name, ran.buffers, ran.sequential));
        }
    }
}

async fn count(sql: &Client, query: &str) -> i64 {
    sql.query_one(query, &[]).await.unwrap().get(0)
}
