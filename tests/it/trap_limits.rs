//! Limits where systems break them: at the edges of windows, without their database, when it is back, with wrong clocks.

use std::ops::Range;
use std::time::{Duration, Instant};

use railyard_core::OutboxId;
use railyard_store::holds::Decision;
use railyard_store::jobs::cancel;
use railyard_testkit::{Cut, FakeRail, FaultProxy, Mode, NodeProcess, eventually};

use crate::clock::{faketime, shifted};
use crate::fleet::{Fleet, LATER};
use crate::matrix::address_in;
use crate::producer::Item;
use crate::starts::{all_starts, most_within, per_second};

/// Webhooks of 97 groups, due at once. Their ids.
async fn due(fleet: &mut Fleet, rail: &FakeRail, messages: Range<usize>) -> Vec<OutboxId> {
    let world = &mut fleet.world;
    let url = rail.url();
    let items: Vec<Item> =
        messages.map(|n| Item::webhook(world, &url, &format!("g{}", n % 97), &format!("{n}"))).collect();
    let all = world.sql.transaction().await.unwrap();
    let mut ids = Vec::new();
    for item in items {
        ids.push(OutboxId(item.by(&all).await.unwrap()));
    }
    all.commit().await.unwrap();
    ids
}

fn limited(starts: usize, window_ms: u32) -> String {
    format!("[rails.webhook]\nkind = \"webhook\"\nlimit = {{ starts = {starts}, window_ms = {window_ms} }}\n")
}

/// Ten in ten seconds, thirty ready: a node that has the slots is killed, the database is away for five seconds, and no
/// window of ten seconds, wherever it begins, has an eleventh. Without the database nobody starts by himself.
#[tokio::test(flavor = "multi_thread")]
async fn trap_ten_in_ten_seconds_hold_through_a_kill_and_an_outage() {
    let mut fleet = Fleet::with(|sandbox| sandbox.with_toml(&limited(10, 10_000))).await;
    let way = FaultProxy::postgres(address_in(fleet.world.db.url())).await;
    let nodes: Vec<NodeProcess> = ["a", "b", "c"].map(|name| fleet.node(name)).into();
    for node in &nodes {
        node.set_env("RAILYARD_DATABASE__URL", &way.url(fleet.world.db.url()));
        node.start();
    }
    for node in &nodes {
        node.await_ready().await;
    }
    let rail = FakeRail::start().await;
    due(&mut fleet, &rail, 0..30).await;
    rail.await_receipts(4, LATER).await;
    nodes[0].kill9();
    rail.await_receipts(8, LATER).await;
    way.set(Mode::Refuse);
    way.cut(Cut::Reset);
    let gone = Instant::now();
    // The subject is a time: what was granted before is spent after half a second.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let alone = all_starts(&rail).into_iter().filter(|at| *at > gone + Duration::from_millis(500)).count();
    assert_eq!(alone, 0, "{alone} calls started without the database");
    way.set(Mode::Pass);
    let back = Instant::now();
    nodes[0].start();
    fleet.all_completed(30).await;
    let starts = all_starts(&rail);
    let most = most_within(&starts, Duration::from_secs(10));
    assert!(most <= 10, "{most} starts within ten seconds");
    // Whoever waited through the outage waited for partitions that his node had lost by then: no slot passes for it. The
    // last ones may be in flight from before, and wait for their deadlines.
    let after: Vec<Instant> = starts.into_iter().filter(|at| *at > back).take(15).collect();
    let pace = per_second(&after);
    assert!(pace >= 0.9, "{pace} starts a second of one that the limit allows: {after:?}");
}

/// One a second, and some twenty lanes in front are cancelled while they wait: those behind them start as often as the
/// limit allows, since a slot that finds nothing to begin is the next one's.
#[tokio::test(flavor = "multi_thread")]
async fn trap_what_is_cancelled_while_it_waits_costs_no_slot() {
    let mut fleet = Fleet::with(|sandbox| sandbox.with_toml(&limited(1, 1000))).await;
    let _node = fleet.ready("a").await;
    let rail = FakeRail::start().await;
    let in_front = due(&mut fleet, &rail, 0..24).await;
    rail.await_receipts(2, LATER).await;
    due(&mut fleet, &rail, 24..36).await;
    for id in in_front {
        // Some are not to be cancelled any more: they were called, or are about to be.
        cancel(&fleet.world.store, id, Decision { actor: "test", reason: "not wanted" }).await.unwrap();
    }
    let (before, cancelled) = (rail.exchanges().len(), Instant::now());
    rail.await_receipts(before + 11, LATER).await;
    let took = all_starts(&rail)[before + 10] - cancelled;
    // Slots are 1.07 s apart: 12 s, and twice as long if each of the cancelled had its own.
    assert!(took < Duration::from_secs(15), "eleven starts took {took:?}");
}

/// The limit's row is out of reach for a while and a great many are due: when it is back, they go out at the limit.
#[tokio::test(flavor = "multi_thread")]
async fn trap_a_limit_that_is_back_lets_no_burst_out() {
    let mut fleet = Fleet::with(|sandbox| sandbox.with_toml(&limited(50, 1000))).await;
    let _nodes = (fleet.ready("a").await, fleet.ready("b").await);
    let rail = FakeRail::start().await;
    due(&mut fleet, &rail, 0..20).await;
    rail.await_receipts(20, LATER).await;
    let mut holder = fleet.world.db.connect().await;
    let held = holder.transaction().await.unwrap();
    held.execute("SELECT FROM rail_limiter FOR UPDATE", &[]).await.unwrap();
    due(&mut fleet, &rail, 20..320).await;
    let waiting =
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
    eventually(LATER, "both nodes wait for it", || async { fleet.world.one::<i64>(waiting).await >= 2 }).await;
    // The subject is a time: longer than several windows.
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(rail.exchanges().len(), 20);
    held.rollback().await.unwrap();
    fleet.all_completed(320).await;
    let starts = all_starts(&rail);
    let most = most_within(&starts, Duration::from_secs(1));
    assert!(most <= 50, "{most} starts within a second");
    assert!(most > 30, "only {most}: the limit was not what bounded them");
}

/// Nodes whose clocks are four hours apart share a limit as if they were not.
#[tokio::test(flavor = "multi_thread")]
async fn trap_a_limit_holds_on_nodes_with_wrong_clocks() {
    let Some(library) = faketime() else {
        println!("skipped: no libfaketime");
        return;
    };
    let mut fleet = Fleet::with(|sandbox| sandbox.with_toml(&limited(20, 1000))).await;
    let nodes = [shifted(&fleet, &library, "ahead", "+7200").await, shifted(&fleet, &library, "behind", "-7200").await];
    let shared = "SELECT count(DISTINCT owner) = 2 AND count(owner) = 256 FROM partition_lease";
    eventually(LATER, "they share the partitions", || async { fleet.world.one::<bool>(shared).await }).await;
    let rail = FakeRail::start().await;
    due(&mut fleet, &rail, 0..100).await;
    fleet.all_completed(100).await;
    let most = most_within(&all_starts(&rail), Duration::from_secs(1));
    assert!(most <= 20, "{most} starts within a second");
    assert!(most > 10, "only {most}: the limit was not what bounded them");
    drop(nodes);
}
