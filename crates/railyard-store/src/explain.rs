//! Hot statements, held to their indexes: with 90 days of partitions, 200,000 messages blocked behind held groups and
//! 1,000,000 waiting ones, whatever the planner knew when the plan was made.
//!
//! A connection of the work pool plans each statement once and keeps the plan, so each is run with the plans that
//! production may meet: made while the tables were empty, made without statistics (tables that filled up since the last
//! ANALYZE), and made with them. What is held is the work done, in buffers touched per row asked for, and that no big
//! table is read from end to end.

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
INSERT INTO node (node_id, name, lease_until) VALUES ('00000000-0000-0000-0000-000000000001', 'n', now() + interval '1 day');
UPDATE partition_lease SET owner = '00000000-0000-0000-0000-000000000001', epoch = 1;
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
}

/// The heads of a hundred groups, in flight under their outbox ids.
const IN_FLIGHT: &str = "
WITH t AS (DELETE FROM payment_outbox_pending WHERE sequence_id = 1
           AND participant_id = ANY (ARRAY(SELECT 'g' || n FROM generate_series(1, 100) n)) RETURNING *)
INSERT INTO in_flight (attempt_id, outbox_id, participant_id, sequence_id, partition_id, epoch, node_id, rail_type, endpoint,
  mode, on_unknown, max_attempts, timeout_ms, attempt_no, failures, zombies, claimed_at, call_deadline, created_at)
SELECT outbox_id, outbox_id, participant_id, sequence_id, partition_id, 1, gen_random_uuid(), rail_type, endpoint,
  mode, 'retry', 3, 30000, 1, 0, 0, now(), now() - interval '1 second', now() FROM t";

/// As the fence leaves it.
const FENCED: &str = "SELECT set_config('railyard.fence', '00000000-0000-0000-0000-000000000001', true)";

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
    // Half of them end, half of them wait for their next attempt.
    let settle = [
        "CASE WHEN n % 2 = 0 THEN 'DISPATCHED' ELSE 'RETRYABLE' END",
        "CASE WHEN n % 2 = 0 THEN 'COMPLETED' END",
        "false",
        "1000::bigint",
        "n % 2 = 1",
        "0::bigint",
        "5",
        "200",
        "'ok'::bytea",
        "false",
        "null::text",
        "null::text",
        "null::text",
        "null::text",
    ];
    vec![
        Statement {
            name: "discover groups",
            sql: discover::DISCOVER_GROUPS,
            arguments: vec![partitions.into(), epoch.clone(), from("''::text"), "'{}'::text[]".into(), "16".into()],
            // Three pages a partition, and at most three for each of the 4,096 hints that come back.
            buffers_max: 256 * 3 + 4096 * 3,
            before: "",
        },
        Statement {
            name: "discover singles",
            sql: discover::DISCOVER_SINGLES,
            arguments: vec![partitions.into(), epoch, from("gen_random_uuid()"), "'{}'::uuid[]".into(), "16".into()],
            buffers_max: 256 * 3,
            before: "",
        },
        Statement {
            name: "peek",
            sql: discover::PEEK,
            arguments: vec![groups.into(), of_groups("0::bigint")],
            buffers_max: 100 * 6,
            before: "",
        },
        Statement {
            name: "begin",
            sql: work::CLAIM,
            arguments: vec![
                me.clone(),
                groups.into(),
                of_groups("0::bigint"),
                of_groups("partition_of('g' || n)"),
                of_groups("1::bigint"),
                of_groups("'http://h'::text"),
                of_groups("'webhook'::text"),
                of_groups("gen_random_uuid()"),
                "'{}'::uuid[]".into(),
                "'{}'::smallint[]".into(),
                "'{}'::bigint[]".into(),
                "'{}'::uuid[]".into(),
                "5000::bigint".into(),
            ],
            buffers_max: 100 * 60,
            before: FENCED,
        },
        Statement {
            name: "recent content",
            sql: work::RECENT_CONTENT,
            arguments: vec![ids.clone(), low.clone()],
            buffers_max: 100 * 10,
            before: IN_FLIGHT,
        },
        Statement {
            name: "content",
            sql: work::CONTENT,
            arguments: vec![ids.clone(), low, high],
            buffers_max: 100 * 6,
            before: "",
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
        },
        Statement {
            name: "idle: sequences",
            sql: idle::LOCK_SEQUENCES,
            arguments: vec![groups.into()],
            buffers_max: 100 * 10,
            before: "",
        },
        Statement {
            name: "idle: hints",
            sql: idle::LOCK_READY,
            arguments: vec![groups.into()],
            buffers_max: 100 * 10,
            before: "",
        },
        Statement {
            name: "idle: delete",
            sql: idle::DELETE_IDLE,
            arguments: vec![groups.into()],
            buffers_max: 100 * 12,
            before: "",
        },
        Statement {
            name: "idle: move",
            sql: idle::MOVE,
            arguments: vec![groups.into()],
            buffers_max: 100 * 40,
            before: "",
        },
        Statement {
            name: "settle",
            sql: work::SETTLE,
            arguments: std::iter::once(ids.clone()).chain(settle.iter().map(|each| of_groups(each))).collect(),
            // Each of a hundred: four rows written into four tables with their indexes (of which BRIN looks at three pages a
            // row); shared CTEs count twice.
            buffers_max: 100 * 170,
            before: IN_FLIGHT,
        },
        Statement {
            name: "heal",
            sql: heal::HEAL,
            arguments: vec![me, ids, "0::bigint".into(), "3".into(), "120000::bigint".into()],
            buffers_max: 100 * 80,
            before: IN_FLIGHT,
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
    let row = sql.query_one(&explain, &[]).await.unwrap_or_else(|error| panic!("{}: {error:?}", statement.name));
    let plan: Value = row.get(0);
    sql.batch_execute("ROLLBACK").await.unwrap();
    let mut ran = Ran { buffers: 0, sequential: Vec::new() };
    let root = &plan[0]["Plan"];
    if !statement.before.is_empty() {
        assert_eq!(root["Actual Rows"].as_f64(), Some(100.0), "{} did its work", statement.name);
    }
    ran.buffers = buffers(root);
    walk(root, &mut ran.sequential);
    ran
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
