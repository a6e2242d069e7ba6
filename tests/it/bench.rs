//! Every verb of `railyard bench`, as small as it gets: it runs, its figures are there and its counts add up. How fast
//! anything is, no test may say.

use railyard_testkit::{Sandbox, TestDb};
use serde_json::Value;

/// Runs a verb and gives the object on the last line of its output.
async fn bench(words: &[&str]) -> Value {
    // It starts its own database; this one is never reached.
    let sandbox = Sandbox::new("postgres://nobody@127.0.0.1:1/nothing");
    let words: Vec<&str> = ["bench"].into_iter().chain(words.iter().copied()).chain(["--json"]).collect();
    let stdout = sandbox.run(&words).await.ok();
    serde_json::from_str(stdout.lines().last().unwrap()).unwrap()
}

/// Numbers, above nothing.
fn has(figures: &Value, names: &[&str]) {
    for name in names {
        assert!(figures[name].as_f64().unwrap() > 0.0, "{name}: {figures:#}");
    }
    for name in ["bench", "versions", "cores", "options", "rounds", "spread"] {
        assert!(!figures[name].is_null(), "{name}: {figures:#}");
    }
}

fn count(figures: &Value, name: &str) -> u64 {
    figures[name].as_u64().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn bench_deliver_counts_what_it_delivers() {
    let figures = bench(&["deliver", "--messages", "60", "--groups", "20", "--rounds", "2"]).await;
    has(&figures, &["per_second", "http_ceiling", "sql_ceiling", "ceiling", "ratio"]);
    // Three a group, in each round once by the node and once by transactions alone.
    assert_eq!((count(&figures, "receipts"), count(&figures, "completed")), (120, 240));
    assert_eq!(figures["rounds"]["per_second"].as_array().unwrap().len(), 2);
    let cost = &figures["per_message"];
    for name in ["transactions", "wal_bytes", "node_cpu_ms", "database_cpu_ms"] {
        assert!(cost[name].as_f64().is_some(), "{name}: {cost}");
    }
}

/// On a given server it makes a database and leaves none behind.
#[tokio::test(flavor = "multi_thread")]
async fn bench_leaves_nothing_on_a_given_server() {
    let db = TestDb::create().await;
    let words = ["hot-group", "--messages", "10", "--rounds", "1", "--database-url", db.url()];
    let figures = bench(&words).await;
    has(&figures, &["per_second", "round_trip_ms", "commit_ms", "ratio"]);
    assert_eq!((count(&figures, "receipts"), count(&figures, "completed")), (10, 10));
    let left = "SELECT count(*) FROM pg_database WHERE datname LIKE 'railyard_bench_%'";
    let left: i64 = db.connect().await.query_one(left, &[]).await.unwrap().get(0);
    assert_eq!(left, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn bench_backlog_delivers_beside_what_is_stuck() {
    let size = ["--messages", "20", "--groups", "10", "--blocked", "40", "--blocked-groups", "4", "--rounds", "1"];
    let words: Vec<&str> = ["backlog"].into_iter().chain(size).collect();
    let figures = bench(&words).await;
    has(&figures, &["alone_per_second", "beside_per_second", "snapshot_per_second", "ratio", "snapshot_ratio"]);
    assert_eq!((count(&figures, "receipts"), count(&figures, "completed")), (60, 60));
    assert_eq!(count(&figures, "blocked_left"), 40);
}

#[tokio::test(flavor = "multi_thread")]
async fn bench_claim_begins_what_it_finds() {
    let size = ["--messages", "400", "--groups", "200", "--few", "150", "--samples", "2", "--rounds", "1"];
    let words: Vec<&str> = ["claim"].into_iter().chain(size).collect();
    let figures = bench(&words).await;
    has(&figures, &["ratio_time", "ratio", "discover_ms_few", "begin_ms_many"]);
    assert_eq!(count(&figures, "begun"), 400);
    // It looks until it has a hundred.
    assert!((100.0..=150.0).contains(&figures["hints_few"].as_f64().unwrap()), "{figures}");
    assert!((100.0..=200.0).contains(&figures["hints_many"].as_f64().unwrap()), "{figures}");
}

#[tokio::test(flavor = "multi_thread")]
async fn bench_dispatch_claims_what_is_ready() {
    let size = ["--messages", "400", "--groups", "200", "--few", "300", "--samples", "2", "--rounds", "1"];
    let words: Vec<&str> = ["dispatch"].into_iter().chain(size).collect();
    let figures = bench(&words).await;
    has(&figures, &["ratio_time", "ratio", "ms_few", "ms_many"]);
    assert_eq!(count(&figures, "claimed"), 2 * (400 + 200));
}

#[tokio::test(flavor = "multi_thread")]
async fn bench_enqueue_stores_what_its_peer_stores() {
    let size = ["--messages", "60", "--groups", "7", "--writers", "3", "--batch", "25", "--rounds", "1"];
    let words: Vec<&str> = ["enqueue"].into_iter().chain(size).collect();
    let figures = bench(&words).await;
    has(&figures, &["single_per_second", "one_group_bare_per_second", "bulk_per_second"]);
    for part in ["single", "one_group", "bulk"] {
        assert!(figures[part]["ratio"].as_f64().unwrap() > 0.0, "{figures:#}");
    }
    // Three parts, ours and the peer, one round and one before it; 60 are rounded down to whole depths.
    assert_eq!(count(&figures, "stored"), 3 * 2 * 2 * 56);
}

#[tokio::test(flavor = "multi_thread")]
async fn bench_wake_times_one_message_after_the_other() {
    let figures = bench(&["wake", "--messages", "3", "--rounds", "2", "--pause-ms", "30"]).await;
    has(&figures, &["first_byte_ms", "commit_ms", "limit_ms", "ratio"]);
    assert_eq!(count(&figures, "completed"), 7, "three in each round, and one before them");
}

#[tokio::test(flavor = "multi_thread")]
async fn bench_groups_fills_the_node_with_them() {
    let size = ["--messages", "50", "--groups", "50", "--turns", "2", "--rounds", "1", "--quiet-ms", "100"];
    let words: Vec<&str> = ["groups"].into_iter().chain(size).collect();
    let figures = bench(&words).await;
    has(&figures, &["start_bytes", "resident_bytes", "growth", "groups_resident"]);
    // 64 groups with ten messages each come first.
    assert_eq!((count(&figures, "receipts"), count(&figures, "completed")), (790, 790));
    assert!(figures["bytes_per_group"].is_number());
}

#[tokio::test(flavor = "multi_thread")]
async fn bench_nodes_share_one_database() {
    let size = ["--messages", "300", "--groups", "100", "--nodes", "1,2", "--rounds", "1", "--idle-ms", "200"];
    let words: Vec<&str> = ["nodes"].into_iter().chain(size).collect();
    let figures = bench(&words).await;
    has(&figures, &["per_second_1", "per_second_2", "batch_1", "batch_2"]);
    // Three a group, once by each number of nodes.
    assert_eq!((count(&figures, "receipts"), count(&figures, "completed")), (600, 600));
    let nodes = figures["nodes"].as_array().unwrap();
    assert_eq!(nodes.iter().map(|node| count(node, "n")).collect::<Vec<_>>(), [1, 2]);
    for (node, most) in nodes.iter().zip([256, 128]) {
        assert!(node["wal_bytes"].as_f64().unwrap() > 100.0, "{node:#}");
        assert!(node["wal_ratio"].as_f64().unwrap() > 0.0 && node["statements_ratio"].is_number(), "{node:#}");
        assert!((1..=most).contains(&count(node, "smallest_share")), "{node:#}");
    }
    assert_eq!(count(&nodes[0], "smallest_share"), 256);
    assert_eq!((nodes[0]["statements_ratio"].as_f64(), nodes[0]["wal_ratio"].as_f64()), (Some(1.0), Some(1.0)));
}

#[tokio::test(flavor = "multi_thread")]
async fn bench_slots_gives_each_event_one() {
    let size = ["--messages", "2500", "--full", "20", "--samples", "30", "--hold-seconds", "0", "--rounds", "1"];
    let words: Vec<&str> = ["slots"].into_iter().chain(size).collect();
    let figures = bench(&words).await;
    has(&figures, &["bulk_per_second", "bulk_ratio", "deep_ms", "shallow_ms", "depth_ratio", "singles_per_second"]);
    // In bulk and as filling, each kind of single with its warm-up, eight at once, and the one of the transaction that is
    // held.
    assert_eq!(count(&figures, "assigned"), 2500 + 2000 + 2 * 80 + 240 + 1);
    assert_eq!(count(&figures, "wrong"), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn bench_limit_counts_starts_in_every_window() {
    let size = ["--starts", "50", "--second", "70", "--messages", "200", "--groups", "100", "--undisturbed"];
    let words: Vec<&str> = ["limit"].into_iter().chain(size).collect();
    let figures = bench(&words).await;
    has(&figures, &["limit", "max_in_window", "mean_ratio", "granted", "measuring_error_ms"]);
    assert_eq!((count(&figures, "receipts"), count(&figures, "completed")), (200, 200));
    assert!(count(&figures, "max_in_window") <= 50, "{figures:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn bench_soak_halves_its_time() {
    let figures = bench(&["soak", "--seconds", "3", "--per-second", "25", "--groups", "7"]).await;
    has(&figures, &["p50_ms", "p99_ms", "p50_ratio", "p99_ratio", "size_ratio", "per_second"]);
    assert_eq!((count(&figures, "receipts"), count(&figures, "completed"), count(&figures, "messages")), (75, 75, 75));
    let table = &figures["sizes_end"]["payment_outbox_pending"];
    assert!(table["table_bytes"].is_u64() && table["index_bytes"].is_u64());
}
