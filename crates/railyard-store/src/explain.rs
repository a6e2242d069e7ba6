//! Hot statements, held to their indexes: with 90 days of partitions, 200,000 messages blocked behind held groups and
//! 1,000,000 waiting ones, whatever the planner knew when the plan was made.
//!
//! A connection of the work pool plans each statement once and keeps the plan, so each is run with the plans that
//! production may meet: made while the tables were empty, made without statistics (tables that filled up since the last
//! ANALYZE), and made with them. What is held is the work done, in buffers touched per row asked for, and that no big
//! table is read from end to end.

use std::collections::HashMap;

use railyard_testkit::OwnServer;
use serde_json::Value;
use tokio_postgres::Client;
use uuid::Uuid;

use crate::{Conn, Store, StoreConfig, discover, heal, idle, migrate, schedule, work};

/// Tables that a sequential scan must never touch.
const BIG: [&str; 6] = [
    "payment_outbox_pending",
    "ready_group",
    "participant_outbox_sequences",
    "dispatch_job",
    "payment_outbox_attempt_archive",
    "dispatch_job_outcome",
];

/// 100,000 groups with 10 waiting each, 20,000 blocked groups with 10 each, 90 days, a thousand jobs and more a day.
const FILL: &str = "
INSERT INTO participant_outbox_sequences SELECT 'g' || g, 11 FROM generate_series(1, 120000) g;
INSERT INTO payment_outbox_pending (outbox_id, participant_id, sequence_id, partition_id, rail_type, endpoint, mode,
  max_attempts, timeout_ms, next_attempt_at, created_at)
SELECT CASE WHEN n = 1 THEN uuid7(now() - (g % 87) * interval '1 day') ELSE gen_random_uuid() END, 'g' || g, n, partition_of('g' || g), 'webhook', 'http://h', 'BLOCK_ON_ERROR', 3, 30000, now(), now()
FROM generate_series(1, 120000) g, generate_series(1, 10) n;
INSERT INTO ready_group SELECT 'g' || g, partition_of('g' || g), CASE WHEN g > 100000 THEN 'infinity' ELSE now() - g * interval '1 ms' END
FROM generate_series(1, 120000) g;
INSERT INTO group_hold (participant_id, kind, reason, actor) SELECT 'g' || g, 'blocked', 'x', 'x' FROM generate_series(100001, 120000) g;
INSERT INTO scheduled_job SELECT uuid7(now()), (n % 256)::smallint, now() + (n || ' seconds')::interval FROM generate_series(1, 100000) n;
";

/// Their first messages' jobs.
const JOBS: &str = "
INSERT INTO dispatch_job (outbox_id, source, type, participant_id, mode, rail_type, target_url, payload, payload_content_type,
  credentials_id, max_attempts, retry_strategy, timeout_ms, rail_key, created_at)
SELECT p.outbox_id, 's', 't', p.participant_id, p.mode, p.rail_type, 'http://h/x', '{}', 'application/json', p.outbox_id, 3, 'exponential',
  30000, p.outbox_id, p.created_at
FROM payment_outbox_pending p WHERE p.sequence_id = 1;
";

/// Who begins.
const NODE: &str = "
INSERT INTO node (node_id, name, lease_until) VALUES ('00000000-0000-0000-0000-000000000001', 'n', now() + interval '1 day');
UPDATE partition_lease SET owner = '00000000-0000-0000-0000-000000000001', epoch = 1;
";

/// The days that the jobs are of.
const DAYS: &str = "SELECT create_day_partitions(current_date - 88, 87)";

struct Statement {
    name: &'static str,
    sql: &'static str,
    /// SQL expressions, in order.
    arguments: Vec<String>,
    /// Buffers that one run may touch.
    buffers_max: u64,
    /// Run before it, in the same transaction.
    before: &'static str,
    /// What it must come to.
    rows: Option<u32>,
}

/// The heads of a hundred groups, in flight under their outbox ids.
const IN_FLIGHT: &str = "
WITH t AS (DELETE FROM payment_outbox_pending WHERE sequence_id = 1
           AND participant_id = ANY (ARRAY(SELECT 'g' || n FROM generate_series(1, 100) n)) RETURNING *)
INSERT INTO in_flight (attempt_id, outbox_id, participant_id, sequence_id, partition_id, epoch, node_id, rail_type, endpoint,
  mode, on_unknown, max_attempts, timeout_ms, attempt_no, failures, zombies, claimed_at, call_deadline, created_at)
SELECT outbox_id, outbox_id, participant_id, sequence_id, partition_id, 1, gen_random_uuid(), rail_type, endpoint,
  mode, 'retry', 3, 30000, 1, 0, 0, now(), now() - interval '1 second', now() FROM t";

/// What `work_batch` is given for a lane that begins: types and values, `n` counting from 1.
const BEGIN: [(&str, &str); 8] = [
    ("uuid", "gen_random_uuid()"),
    ("text", "'g' || n"),
    ("uuid", "null::uuid"),
    ("bigint", "0::bigint"),
    ("smallint", "partition_of('g' || n)"),
    ("bigint", "1::bigint"),
    ("text", "'http://h'::text"),
    ("text", "'webhook'::text"),
];

/// And for an outcome, its attempt id being given. Half of them end, half of them wait for their next attempt.
const SETTLE: [(&str, &str); 15] = [
    ("uuid", "null"),
    ("text", "CASE WHEN n % 2 = 0 THEN 'DISPATCHED' ELSE 'RETRYABLE' END"),
    ("text", "CASE WHEN n % 2 = 0 THEN 'COMPLETED' END"),
    ("boolean", "false"),
    ("bigint", "CASE WHEN n % 2 = 0 THEN 0 ELSE 1000 END::bigint"),
    ("boolean", "n % 2 = 1"),
    ("bigint", "0::bigint"),
    ("integer", "5"),
    ("integer", "200"),
    ("bytea", "'ok'::bytea"),
    ("boolean", "false"),
    ("text", "null::text"),
    ("text", "null::text"),
    ("text", "null::text"),
    ("text", "null::text"),
];

/// A function plans each of its statements when it first comes to it: this brings it to all of them, one row each.
const VISIT: &str = "
INSERT INTO in_flight (attempt_id, outbox_id, participant_id, sequence_id, partition_id, epoch, node_id, rail_type, endpoint,
  mode, on_unknown, max_attempts, timeout_ms, attempt_no, failures, zombies, claimed_at, call_deadline, created_at)
VALUES ('00000000-0000-0000-0000-00000000000a', uuid7(now()), 'visited', 1, 1, 1, gen_random_uuid(), 'webhook', 'http://h',
  'BLOCK_ON_ERROR', 'retry', 3, 30000, 1, 0, 0, now(), now(), now());
SELECT * FROM work_batch('00000000-0000-0000-0000-000000000001', 5000,
  '{00000000-0000-0000-0000-00000000000b}', '{visited}', '{null}', '{0}', '{1}', '{1}', '{http://h}', '{webhook}',
  '{00000000-0000-0000-0000-00000000000a}', '{DISPATCHED}', '{COMPLETED}', '{f}', '{0}', '{f}', '{0}', '{1}', '{200}',
  '{ok}', '{f}', '{null}', '{null}', '{null}', '{null}')";

/// Scans from end to end that this session has made and not reported yet.
const SEQUENTIAL: &str = "SELECT relname::text, seq_scan FROM pg_stat_xact_user_tables WHERE seq_scan > 0";

/// Arguments that touch a hundred groups.
fn statements(ids: &[Uuid]) -> Vec<Statement> {
    let partitions = "(SELECT array_agg(n::smallint) FROM generate_series(0, 255) n)";
    let groups = "(SELECT array_agg('g' || n ORDER BY 'g' || n) FROM generate_series(1, 100) n)";
    let of_groups = |each: &str| format!("(SELECT array_agg({each} ORDER BY 'g' || n) FROM generate_series(1, 100) n)");
    let me = "'00000000-0000-0000-0000-000000000001'::uuid".to_owned();
    let from = |id: &str| format!("(SELECT array_agg({id} ORDER BY n) FROM generate_series(0, 255) n)");
    let epoch = from("'1970-01-01'::timestamptz");
    let ids: Vec<String> = ids.iter().map(|id| format!("'{id}'")).collect();
    let ids = format!("ARRAY[{}]::uuid[]", ids.join(","));
    let low = format!("(SELECT min(x) FROM unnest({ids}) x)").replace("min(x)", "(array_agg(x ORDER BY x))[1]");
    let high = low.replace("ORDER BY x)", "ORDER BY x DESC)");
    let each_of = |columns: &[(&str, &str)]| columns.iter().map(|(_, each)| of_groups(each)).collect::<Vec<_>>();
    let nothing = |columns: &[(&str, &str)]| columns.iter().map(|(kind, _)| format!("'{{}}'::{kind}[]")).collect();
    let begin = each_of(&BEGIN);
    let settle = std::iter::once(ids.clone()).chain(each_of(&SETTLE[1..])).collect::<Vec<_>>();
    let slack = "5000::bigint".to_owned();
    vec![
        Statement {
            name: "discover groups",
            sql: discover::DISCOVER_GROUPS,
            arguments: vec![
                partitions.into(),
                epoch.clone(),
                from("''::text"),
                "'{}'::text[]".into(),
                "16".into(),
                "256".into(),
            ],
            // Three pages a partition, and at most three for each of the 256 hints that come back.
            buffers_max: 256 * 3 + 256 * 3,
            before: "",
            rows: None,
        },
        Statement {
            name: "discover singles",
            sql: discover::DISCOVER_SINGLES,
            arguments: vec![
                partitions.into(),
                epoch,
                from("gen_random_uuid()"),
                "'{}'::uuid[]".into(),
                "16".into(),
                "256".into(),
            ],
            buffers_max: 256 * 3,
            before: "",
            rows: None,
        },
        Statement {
            name: "peek",
            sql: discover::PEEK,
            arguments: vec![groups.into(), of_groups("0::bigint")],
            buffers_max: 100 * 6,
            before: "",
            rows: None,
        },
        Statement {
            name: "begin",
            sql: work::BEGIN,
            arguments: [vec![me.clone(), slack.clone()], begin.clone(), nothing(&SETTLE)].concat(),
            buffers_max: 100 * 40,
            before: "",
            rows: Some(100),
        },
        Statement {
            name: "settle",
            sql: work::SETTLE,
            arguments: [vec![me.clone(), slack.clone()], nothing(&BEGIN), settle.clone()].concat(),
            // Each of a hundred: four rows written into four tables with their indexes (BRIN looks at three pages a row);
            // shared CTEs count twice.
            buffers_max: 100 * 170,
            before: IN_FLIGHT,
            rows: Some(100),
        },
        Statement {
            name: "settle and begin",
            sql: work::SETTLE_AND_BEGIN,
            arguments: [vec![me.clone(), slack], begin, settle].concat(),
            // No hint is written for a group that goes on.
            buffers_max: 100 * 90,
            before: IN_FLIGHT,
            // The heads that go back to wait are not due.
            rows: Some(150),
        },
        Statement {
            name: "recent content",
            sql: work::RECENT_CONTENT,
            arguments: vec![ids.clone(), low.clone(), "'ffffffff-ffff-ffff-ffff-ffffffffffff'::uuid".into()],
            buffers_max: 100 * 10,
            before: IN_FLIGHT,
            rows: Some(100),
        },
        Statement {
            name: "content",
            sql: work::CONTENT,
            arguments: vec![ids.clone(), low, high],
            buffers_max: 100 * 6,
            before: "",
            rows: None,
        },
        Statement {
            name: "due scheduled jobs",
            sql: schedule::DUE,
            arguments: vec![
                partitions.into(),
                "100::bigint".into(),
                "'1970-01-01'::timestamptz".into(),
                "gen_random_uuid()".into(),
            ],
            buffers_max: 256 * 4,
            before: "",
            rows: None,
        },
        Statement {
            name: "idle: sequences",
            sql: idle::LOCK_SEQUENCES,
            arguments: vec![groups.into()],
            buffers_max: 100 * 10,
            before: "",
            rows: None,
        },
        Statement {
            name: "idle: hints",
            sql: idle::LOCK_READY,
            arguments: vec![groups.into()],
            buffers_max: 100 * 10,
            before: "",
            rows: None,
        },
        Statement {
            name: "idle: delete",
            sql: idle::DELETE_IDLE,
            arguments: vec![groups.into()],
            buffers_max: 100 * 12,
            before: "",
            rows: None,
        },
        Statement {
            name: "idle: move",
            sql: idle::MOVE,
            arguments: vec![groups.into()],
            buffers_max: 100 * 40,
            before: "",
            rows: None,
        },
        Statement {
            name: "heal",
            sql: heal::HEAL,
            arguments: vec![me, ids, "0::bigint".into(), "3".into(), "120000::bigint".into()],
            buffers_max: 100 * 80,
            before: IN_FLIGHT,
            rows: Some(100),
        },
    ]
}

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
