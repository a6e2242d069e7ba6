//! What a claim costs, however many items wait: with plans that were made while the tables were empty.

use railyard_testkit::TestDb;
use serde_json::Value;
use tokio_postgres::Client;

use crate::testing::TestStore;

/// Claims of a batch among so many waiting items, and stale ones among as many that are not.
const MEASURED: [&str; 2] =
    ["SELECT * FROM dispatch_claim('PAYMENT', 'BATCH-1')", "SELECT * FROM dispatch_recover('PAYMENT')"];

fn fill(from: u32, to: u32) -> String {
    format!(
        "INSERT INTO payment_exec_queue (item_type, payment_id, scheduled_exec_time, group_id, requested_time, acceptance_no,
           init_workflow_id)
         SELECT 'PAYMENT', 'p' || n, now() - interval '1 hour' + n * interval '1 ms', 'g' || n % 5000, now(), n, 'init'
         FROM generate_series({from}, {to}) n;
         INSERT INTO payment_exec_context SELECT 'PAYMENT', 'p' || n, '{{\"instruction\": {{}}}}', 1 FROM generate_series({from}, {to}) n"
    )
}

/// Buffers of one run, which is taken back; nothing big may be read from end to end.
async fn buffers(sql: &Client, statement: &str) -> u64 {
    sql.batch_execute("BEGIN").await.unwrap();
    let plan: Value =
        sql.query_one(&format!("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement}"), &[]).await.unwrap().get(0);
    let scans = "SELECT coalesce(sum(seq_scan), 0)::bigint FROM pg_stat_xact_user_tables
                 WHERE relname IN ('payment_exec_queue', 'payment_exec_context')";
    let scans: i64 = sql.query_one(scans, &[]).await.unwrap().get(0);
    sql.batch_execute("ROLLBACK").await.unwrap();
    assert_eq!(scans, 0, "{statement} reads a table from end to end");
    let of = |name: &str| plan[0]["Plan"][name].as_u64().unwrap_or(0);
    of("Shared Hit Blocks") + of("Shared Read Blocks")
}

/// Whether one run of a statement, which is taken back, looks something up in this index.
async fn uses(sql: &Client, statement: &str, index: &str) -> bool {
    sql.batch_execute("BEGIN").await.unwrap();
    sql.batch_execute(statement).await.unwrap();
    let scans = "SELECT pg_stat_get_xact_numscans(oid) FROM pg_class WHERE relname = $1";
    let scans: i64 = sql.query_one(scans, &[&index]).await.unwrap().get(0);
    sql.batch_execute("ROLLBACK").await.unwrap();
    scans > 0
}

async fn measured(db: &TestDb, planned: &Client) -> [u64; 2] {
    db.connect().await.batch_execute("VACUUM ANALYZE payment_exec_queue, payment_exec_context").await.unwrap();
    // The second run: the first one reads what it has not read yet, and sets hints.
    for statement in MEASURED {
        buffers(planned, statement).await;
    }
    [buffers(planned, MEASURED[0]).await, buffers(planned, MEASURED[1]).await]
}

#[tokio::test]
async fn s0_32_a_claim_costs_the_same_among_ten_thousand_and_two_hundred_thousand() {
    let t = TestStore::new().await;
    let planned = t.db.connect().await;
    for statement in MEASURED {
        planned.batch_execute(statement).await.unwrap();
    }
    t.sql.batch_execute(&fill(1, 10_000)).await.unwrap();
    let few = measured(&t.db, &planned).await;
    for (statement, index) in [(0, "idx_peq_dispatch"), (0, "idx_peq_batch"), (1, "idx_peq_stale_claims")]
        .map(|(n, index)| (MEASURED[n], index))
    {
        assert!(uses(&planned, statement, index).await, "{statement} does not use {index}");
    }
    t.sql.batch_execute(&fill(10_001, 200_000)).await.unwrap();
    let many = measured(&t.db, &planned).await;
    println!("claim {} and {}, recover {} and {} buffers", few[0], many[0], few[1], many[1]);
    assert!(many[0] * 10 <= few[0] * 13, "a claim: {} buffers have become {}", few[0], many[0]);
    assert!(many[1] < 100, "nothing is stale: {} buffers", many[1]);
}
