//! The hot statements, each with arguments for a hundred groups and the work that it may do.

use uuid::Uuid;

use crate::{discover, heal, idle, schedule, work};

pub(super) struct Statement {
    pub(super) name: &'static str,
    pub(super) sql: &'static str,
    /// SQL expressions, in order.
    pub(super) arguments: Vec<String>,
    /// Buffers that one run may touch.
    pub(super) buffers_max: u64,
    /// Run before it, in the same transaction.
    pub(super) before: &'static str,
    /// What it must come to.
    pub(super) rows: Option<u32>,
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

/// Arguments that touch a hundred groups.
pub(super) fn statements(ids: &[Uuid]) -> Vec<Statement> {
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
