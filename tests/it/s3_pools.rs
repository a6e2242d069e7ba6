//! S3-33 and S3-34: pools. So many requests at once on all nodes together, changeable while they run, in S3's shape.

use std::time::{Duration, Instant};

use railyard_store::pools::PoolSpec;
use railyard_testkit::{FakeRail, NodeProcess, Receipt, eventually, eventually_some};
use serde_json::{Value, json};

use crate::fleet::{Fleet, LATER};
use crate::producer::Item;
use crate::world::{SOON, World};

async fn set(node: &NodeProcess, concurrency: u32) {
    let pools = json!([{ "code": "DISPATCH-POOL", "concurrency": concurrency }]);
    let queues = json!([{ "queueUri": "http://localhost:9324/000000000000/flow-catalyst-dispatch.fifo" }]);
    let body = json!({ "queues": queues, "processingPools": pools });
    let answer = node.http().post("/api/config", &body).await.unwrap().expect_status(200).json();
    assert_eq!(answer["processingPools"], pools);
}

/// How often the node has read what it caches.
async fn loads(node: &NodeProcess) -> u64 {
    // An actor that is at work may not answer in time.
    eventually_some(LATER, "it says how often", || async {
        let node = node.http().get("/admin/node").await.ok()?.expect_status(200).json();
        node["actors"]["cacheKeeper"]["loads"].as_u64()
    })
    .await
}

/// Sets a pool that the nodes do not know yet, and waits until each has read it: the second load from here on began after
/// it was set.
async fn set_first(nodes: &[NodeProcess], concurrency: u32) {
    let mut before = Vec::new();
    for node in nodes {
        before.push(loads(node).await);
    }
    set(&nodes[0], concurrency).await;
    for (node, before) in nodes.iter().zip(before) {
        eventually(LATER, "it knows the pool", || async { loads(node).await >= before + 2 }).await;
    }
}

/// So many webhooks, each of a group of its own.
async fn due(fleet: &mut Fleet, rail: &FakeRail, from: usize, messages: usize) {
    let url = rail.url();
    let world = &mut fleet.world;
    let items: Vec<Item> = (from..from + messages)
        .map(|n| Item::webhook(world, &url, &format!("g{n}"), &format!("{n}")).timeout_ms(2000).max_attempts(50))
        .collect();
    let all = world.sql.transaction().await.unwrap();
    for item in items {
        item.by(&all).await.unwrap();
    }
    all.commit().await.unwrap();
}

/// The most requests that were open at one moment, of those that began after `from`.
fn most_at_once(receipts: &[Receipt], from: Instant) -> usize {
    let mut moments: Vec<(Instant, i32)> = Vec::new();
    for receipt in receipts.iter().filter(|receipt| receipt.first_byte_at >= from) {
        moments.push((receipt.first_byte_at, 1));
        if let Some(end) = receipt.finished_at {
            moments.push((end, -1));
        }
    }
    // Who ends and who begins at one moment were not there together.
    moments.sort_unstable_by_key(|(at, change)| (*at, *change));
    let mut open = 0;
    let most = moments.into_iter().map(|(_, change)| {
        open += change;
        open
    });
    usize::try_from(most.max().unwrap_or(0)).unwrap()
}

async fn three(fleet: &Fleet) -> Vec<NodeProcess> {
    let nodes = vec![fleet.node("a"), fleet.node("b"), fleet.node("c")];
    nodes.iter().for_each(NodeProcess::start);
    for node in &nodes {
        node.await_ready().await;
    }
    let shared = "SELECT count(DISTINCT owner) = 3 AND count(owner) = 256 FROM partition_lease";
    eventually(LATER, "they share the partitions", || async { fleet.world.one::<bool>(shared).await }).await;
    nodes
}

/// Five on three nodes; then eight, then two, while they run.
#[tokio::test(flavor = "multi_thread")]
async fn s3_33_a_pool_holds_on_all_nodes_and_changes_while_they_run() {
    let mut fleet = Fleet::holding().await;
    let nodes = three(&fleet).await;
    set_first(&nodes, 5).await;
    let rail = FakeRail::start().await.each_message().ok().delay(Duration::from_millis(100)).forever();
    let began = Instant::now();
    due(&mut fleet, &rail, 0, 90).await;
    rail.await_answered(90, LATER).await;
    let most = most_at_once(&rail.exchanges(), began);
    assert!(most <= 5, "{most} at once in a pool of five");
    assert!(most > 2, "only {most} at once: something else held them");

    set(&nodes[1], 8).await;
    let raised = Instant::now();
    due(&mut fleet, &rail, 90, 120).await;
    rail.await_answered(210, LATER).await;
    let most = most_at_once(&rail.exchanges(), raised);
    assert!((6..=8).contains(&most), "{most} at once in a pool of eight");

    due(&mut fleet, &rail, 210, 60).await;
    rail.await_receipts(220, LATER).await;
    set(&nodes[2], 2).await;
    // What had begun ends first.
    eventually(LATER, "no more than two slots are taken", || async {
        let pools = nodes[0].http().get("/admin/pools").await.unwrap().json();
        pools["items"][0]["inUse"].as_u64().is_some_and(|taken| taken <= 2)
    })
    .await;
    let lowered = Instant::now();
    rail.await_answered(270, LATER).await;
    let most = most_at_once(&rail.exchanges(), lowered);
    assert!(most <= 2, "{most} at once in a pool of two");
    fleet.all_completed(270).await;
    let pools = nodes[0].http().get("/admin/pools").await.unwrap().expect_status(200).json();
    assert_eq!(pools["items"][0]["concurrency"], 2);
    eventually(LATER, "all slots are free", || async {
        let pools = nodes[0].http().get("/admin/pools").await.unwrap().json();
        pools["items"][0]["inUse"] == 0
    })
    .await;
}

/// A node that dies with calls takes no slots with it, and nobody uses them before its calls are over.
#[tokio::test(flavor = "multi_thread")]
async fn s3_33_a_dead_nodes_slots_come_back() {
    let mut fleet = Fleet::holding().await;
    let nodes = three(&fleet).await;
    set_first(&nodes, 4).await;
    let rail = FakeRail::start().await.each_message().ok().delay(Duration::from_millis(50)).forever();
    let began = Instant::now();
    due(&mut fleet, &rail, 0, 120).await;
    rail.await_receipts(30, LATER).await;
    nodes[1].kill9();
    fleet.all_completed(120).await;
    let most = most_at_once(&rail.exchanges(), began);
    assert!(most <= 4, "{most} at once in a pool of four");
}

/// A node that has not read which pools are set is not ready, and calls nothing that may be of one.
#[tokio::test(flavor = "multi_thread")]
async fn s3_33_a_node_that_does_not_know_the_pools_calls_nothing() {
    let world = World::new().await;
    let rail = FakeRail::start().await.each_message().ok().delay(Duration::from_millis(50)).forever();
    let pool = PoolSpec { code: "DISPATCH-POOL".to_owned(), concurrency: 2 };
    railyard_store::pools::set(&world.store, &[pool], "test").await.unwrap();
    for n in 0..20 {
        Item::webhook(&world, &rail.url(), &format!("g{n}"), &format!("{n}")).by(&world.sql).await.unwrap();
    }
    world.sql.batch_execute("REVOKE SELECT ON dispatch_pool FROM railyard_runtime").await.unwrap();
    let node = world.node().await;
    eventually(SOON, "it has found work", || async {
        node.node_id().is_some() && node.observe().await["actors"]["globalBuffer"]["busy"].as_u64() > Some(0)
    })
    .await;
    let (ready, why) = node.readiness();
    assert!(!ready && why == ["the node has not read which pools are set"], "{why:?}");
    assert!(rail.exchanges().is_empty());
    world.sql.batch_execute("GRANT SELECT ON dispatch_pool TO railyard_runtime").await.unwrap();
    let receipts = rail.await_answered(20, SOON).await;
    assert!(node.readiness().0);
    let most = most_at_once(&receipts, receipts[0].first_byte_at);
    assert!(most <= 2, "{most} at once in a pool of two");
}

/// S3's shape is read and written; what is wrong is named by its place, and nothing of it is set.
#[tokio::test(flavor = "multi_thread")]
async fn s3_34_the_config_has_s3s_shape() {
    let fleet = Fleet::holding().await;
    let node = fleet.ready("a").await;
    let empty = node.http().get("/api/config").await.unwrap().expect_status(200).json();
    assert_eq!(empty, json!({ "queues": [], "processingPools": [] }));
    set(&node, 5).await;
    for (body, field) in [
        (json!({ "processingPools": [{ "code": "P", "concurrency": 0 }] }), "processingPools[0].concurrency"),
        (json!({ "processingPools": [{ "code": "P", "concurrency": -1 }] }), "processingPools[0].concurrency"),
        (json!({ "processingPools": [{ "code": "P", "concurrency": 1001 }] }), "processingPools[0].concurrency"),
        (json!({ "processingPools": [{ "code": "P", "concurrency": 2.5 }] }), "processingPools[0].concurrency"),
        (json!({ "processingPools": [{ "concurrency": 2 }] }), "processingPools[0].code"),
        (json!({ "processingPools": [{ "code": "a b", "concurrency": 2 }] }), "processingPools[0].code"),
        (json!({ "processingPools": [{ "code": "P", "concurrency": 2, "size": 1 }] }), "processingPools[0].size"),
        (json!({ "processingPools": [7] }), "processingPools[0]"),
        (json!({ "processingPools": {} }), "processingPools"),
        (json!({ "pools": [] }), "pools"),
    ] {
        let refused = node.http().post("/api/config", &body).await.unwrap().expect_status(400).json();
        let fields: Vec<&Value> = refused["errors"].as_array().unwrap().iter().map(|error| &error["field"]).collect();
        assert_eq!(fields, [field], "{body}");
    }
    let two = json!({ "processingPools": [{ "code": "OTHER", "concurrency": 1 }, { "code": "DISPATCH-POOL", "concurrency": 7 }] });
    let answer = node.http().post("/api/config", &two).await.unwrap().expect_status(200).json();
    let pools = json!([{ "code": "DISPATCH-POOL", "concurrency": 7 }, { "code": "OTHER", "concurrency": 1 }]);
    assert_eq!(answer, json!({ "queues": [], "processingPools": pools }));
    assert_eq!(node.http().get("/api/config").await.unwrap().json(), answer);
    let audited = "SELECT count(*) FROM admin_audit WHERE action = 'pool.set'";
    assert_eq!(fleet.world.one::<i64>(audited).await, 3);
}
