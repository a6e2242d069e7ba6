//! S1-25: a limit holds in every sliding second, on all nodes together, judged by the receiver's own clock; and its
//! switch.

use std::time::{Duration, Instant};

use railyard_testkit::{FakeRail, NodeProcess, eventually, eventually_some};
use serde_json::json;

use crate::fleet::{Fleet, LATER, frozen};
use crate::producer::Item;
use crate::starts::{all_starts, most_within, starts};
use crate::world::{SOON, World};

const SECOND: Duration = Duration::from_secs(1);
/// Twice as long as a slot can be ahead and late: whoever has not called for so long has stopped.
const CEASED: Duration = Duration::from_millis(600);

/// Three nodes that share the partitions.
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

/// So many webhooks of as many groups, due at one instant.
async fn due_at_once(
    fleet: &mut Fleet,
    rail: &FakeRail,
    messages: usize,
    make: impl Fn(&World, &str, &str, usize) -> Item,
) {
    let world = &mut fleet.world;
    let url = rail.url();
    let items: Vec<Item> = (0..messages).map(|n| make(world, &url, &format!("{n}"), n)).collect();
    let all = world.sql.transaction().await.unwrap();
    for item in items {
        item.by(&all).await.unwrap();
    }
    all.commit().await.unwrap();
}

fn webhook(world: &World, url: &str, key: &str, n: usize) -> Item {
    Item::webhook(world, url, &format!("g{}", n % 97), key)
}

/// 50 a second: several hundred at one instant, three nodes, one of them killed and another stopped for a while.
#[tokio::test(flavor = "multi_thread")]
async fn s1_25_never_more_than_the_limit_in_any_sliding_second_on_three_nodes() {
    let limit = 50;
    let toml = format!("[rails.webhook]\nkind = \"webhook\"\nlimit = {{ starts = {limit} }}\n");
    let mut fleet = Fleet::with(|sandbox| sandbox.with_toml(&toml)).await;
    let nodes = three(&fleet).await;
    let rail = FakeRail::start().await;
    due_at_once(&mut fleet, &rail, 400, webhook).await;
    rail.await_receipts(60, LATER).await;
    nodes[0].stop();
    nodes[1].kill9();
    rail.await_receipts(100, LATER).await;
    nodes[0].cont();
    nodes[1].start();
    fleet.all_completed(400).await;
    let starts = all_starts(&rail);
    let most = most_within(&starts, SECOND);
    assert!(most <= limit, "{most} starts within a second");
    assert!(most > limit / 2, "only {most}: the limit was not what bounded them");
}

/// A rail's limit and that of all calls hold together.
#[tokio::test(flavor = "multi_thread")]
async fn s1_25_two_limits_hold_at_once() {
    let toml = "[rails.webhook]\nkind = \"webhook\"\nlimit = { starts = 40 }\n[limits]\nstarts = 60\n";
    let mut fleet = Fleet::with(|sandbox| sandbox.with_toml(toml)).await;
    let _nodes = three(&fleet).await;
    let (webhooks, payments) = (FakeRail::start().await, FakeRail::start().await);
    due_at_once(&mut fleet, &webhooks, 150, webhook).await;
    let payment = |world: &World, url: &str, key: &str, n: usize| {
        Item::payment(world, url, &format!("p{}", n % 97), &format!("pay-{key}"))
    };
    due_at_once(&mut fleet, &payments, 150, payment).await;
    fleet.all_completed(300).await;
    let (ours, others) = (all_starts(&webhooks), all_starts(&payments));
    let mut all = [ours.clone(), others].concat();
    all.sort_unstable();
    let (own, together) = (most_within(&ours, SECOND), most_within(&all, SECOND));
    assert!(own <= 40, "{own} webhooks within a second");
    assert!(together <= 60, "{together} calls within a second");
    assert!(together > 40, "only {together}: the limit of all was not what bounded them");
}

/// An endpoint's limit holds for it and for nobody else.
#[tokio::test(flavor = "multi_thread")]
async fn s1_25_an_endpoints_limit_is_its_own() {
    let world = World::new().await;
    let (slow, free) = (FakeRail::start().await, FakeRail::start().await);
    let endpoint = format!("http://{}", slow.address());
    let limit = railyard_core::limiter::Limit { starts: 10, window: SECOND };
    for n in 0..30 {
        for (rail, name) in [(&slow, "slow"), (&free, "free")] {
            Item::webhook(&world, &rail.url(), &format!("{name}{n}"), &format!("{name}{n}"))
                .by(&world.sql)
                .await
                .unwrap();
        }
    }
    // All are due when it starts, so the machine's pace at enqueueing is not what is measured.
    let _node = world.node_with(|options| options.limits.endpoints.extend([(endpoint, limit)])).await;
    let others = starts(&free.await_answered(30, SOON).await);
    let limited = starts(&slow.await_answered(30, LATER).await);
    assert!(others.last() < limited.last(), "the other endpoint waited for this one");
    assert!(most_within(&others, SECOND) > 10, "the other endpoint was held to this one's limit");
    assert!(most_within(&all_starts(&slow), SECOND) <= 10);
}

/// A group with a long backlog is one that waits: a newcomer is called within a few slots, and the group in its order.
#[tokio::test(flavor = "multi_thread")]
async fn s1_25_a_long_backlog_makes_no_newcomer_wait() {
    let world = World::new().await;
    let rail = FakeRail::start().await;
    let _node = world
        .node_with(|options| {
            let rail = options.rails.get_mut("webhook").unwrap();
            rail.limit = Some(railyard_rail::LimitOptions { starts: 10, window_ms: 1000 });
        })
        .await;
    let enqueue = "SELECT count(enqueue_payment_outbox('b' || n, 'big', 'b' || n, 'webhook', '{}', p_target_url => $1,
                     p_credentials_id => $2)) FROM generate_series(1, 2000) n";
    world.sql.query_one(enqueue, &[&rail.url(), &world.credentials.0]).await.unwrap();
    rail.await_receipts(3, LATER).await;
    for newcomer in 0..3 {
        let group = format!("new{newcomer}");
        Item::webhook(&world, &rail.url(), &group, &group).by(&world.sql).await.unwrap();
        let before = rail.exchanges().len();
        let seen = rail.await_where("the newcomer is called", SOON, |receipts| {
            receipts.iter().any(|receipt| receipt.group() == Some(&group))
        });
        let seen = seen.await;
        let place = seen.iter().position(|receipt| receipt.group() == Some(&group)).unwrap();
        assert!(place <= before + 4, "it was call {place}, {before} were made when it came");
    }
    assert_eq!(rail.order_violations(), Vec::<String>::new());
}

/// The same where the backlog's node is another one than the newcomer's: who has just had a slot asks behind the others.
#[tokio::test(flavor = "multi_thread")]
async fn s1_25_a_long_backlog_makes_no_newcomer_on_another_node_wait() {
    let toml = "[rails.webhook]\nkind = \"webhook\"\nlimit = { starts = 4 }\n";
    let fleet = Fleet::with(|sandbox| sandbox.with_toml(toml)).await;
    let _nodes = three(&fleet).await;
    let rail = FakeRail::start().await;
    let world = &fleet.world;
    let enqueue = "SELECT count(enqueue_payment_outbox('b' || n, 'big', 'b' || n, 'webhook', '{}', p_target_url => $1,
                     p_credentials_id => $2)) FROM generate_series(1, 500) n";
    world.sql.query_one(enqueue, &[&rail.url(), &world.credentials.0]).await.unwrap();
    rail.await_receipts(3, LATER).await;
    for newcomer in 0..6 {
        let group = format!("new{newcomer}");
        Item::webhook(world, &rail.url(), &group, &group).by(&world.sql).await.unwrap();
        let before = rail.exchanges().len();
        let seen = rail.await_where("the newcomer is called", LATER, |receipts| {
            receipts.iter().any(|receipt| receipt.group() == Some(&group))
        });
        let seen = seen.await;
        let place = seen.iter().position(|receipt| receipt.group() == Some(&group)).unwrap();
        // One or two were granted already, one or two may pass until its node has heard of it, and one may be lost.
        assert!(place <= before + 6, "it was call {place}, {before} were made when it came");
    }
    assert_eq!(rail.order_violations(), Vec::<String>::new());
}

/// A slot that passes while its process stands still is burnt: the call is not made, on record as such, and spends
/// nothing.
#[tokio::test(flavor = "multi_thread")]
async fn s1_25_a_slot_that_passes_is_burnt_and_spends_nothing() {
    let toml = "[rails.webhook]\nkind = \"webhook\"\nlimit = { starts = 50 }\n";
    let fleet = Fleet::with(|sandbox| sandbox.with_toml(toml)).await;
    let rail = FakeRail::start().await;
    let node = fleet.node("a");
    node.set_failpoint("before_call:stop");
    node.start();
    node.await_ready().await;
    let id = Item::webhook(&fleet.world, &rail.url(), "g", "k").max_attempts(2).by(&fleet.world.sql).await.unwrap();
    frozen(&node).await;
    // The subject is a time: longer than a slot may lie ahead and be late.
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(rail.exchanges().is_empty());
    node.cont();
    let burnt = "SELECT count(*) FROM payment_outbox_attempts WHERE state = 'NOT_STARTED'";
    eventually(LATER, "it was not started", || async { fleet.world.one::<i64>(burnt).await == 1 }).await;
    // Wherever the message is by now: what it has spent so far stands with it.
    let spent = format!(
        "SELECT failures FROM payment_outbox_pending WHERE outbox_id = '{id}'
         UNION ALL SELECT failures FROM in_flight WHERE outbox_id = '{id}'"
    );
    assert_eq!(fleet.world.one::<i32>(&spent).await, 0, "a burnt slot spent an attempt");
    // It would stop itself at each call.
    node.kill9();
    node.clear_failpoint();
    node.start();
    rail.await_answered(1, LATER).await;
    fleet.all_completed(1).await;
    let attempts = "SELECT state, coalesce(error_code, '-') FROM payment_outbox_attempts WHERE outbox_id = $1
                    ORDER BY attempt_no";
    let rows = fleet.world.sql.query(attempts, &[&id]).await.unwrap();
    let rows: Vec<(String, String)> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    let burnt = ("NOT_STARTED".to_owned(), "PERMIT_BURNT".to_owned());
    assert_eq!(rows.first(), Some(&burnt), "{rows:?}");
    // Two may be spent: one by the kill, if it met the next attempt, and this.
    assert_eq!(rows.last(), Some(&("DISPATCHED".to_owned(), "-".to_owned())), "{rows:?}");
}

/// The kill switch: from its commit to the last start at most 400 ms (300 at the sender; the rest is measuring), and
/// no burst afterwards. `RAILYARD_SWITCH_TRIES` says how often; some tries are enough to see it break.
#[tokio::test(flavor = "multi_thread")]
async fn s1_25_the_kill_switch_stops_all_nodes_within_400_ms() {
    let toml = "[rails.webhook]\nkind = \"webhook\"\nlimit = { starts = 100 }\n";
    let fleet = Fleet::with(|sandbox| sandbox.with_toml(toml)).await;
    switch_off_and_on(fleet, Switch::Rail("webhook"), Duration::from_millis(20), webhook).await;
}

/// A payment rail has the switch without a limit as well.
#[tokio::test(flavor = "multi_thread")]
async fn s1_25_a_payment_rail_without_a_limit_stops_within_400_ms() {
    // So that there is something left to stop.
    let slow = Duration::from_millis(300);
    switch_off_and_on(Fleet::new().await, Switch::Rail("payment_webhook"), slow, payment).await;
}

/// The switch of an item type, by SQL, covers what was handed over.
#[tokio::test(flavor = "multi_thread")]
async fn s1_25_a_type_that_is_switched_off_stops_within_400_ms() {
    switch_off_and_on(Fleet::new().await, Switch::Payments, Duration::from_millis(300), payment).await;
}

fn payment(world: &World, url: &str, key: &str, n: usize) -> Item {
    Item::payment(world, url, &format!("p{}", n % 97), key)
}

/// Who stops calls and lets them go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Switch {
    /// A rail's own.
    Rail(&'static str),
    /// That of the item type PAYMENT.
    Payments,
}

impl Switch {
    async fn turn(self, on: bool, world: &World, node: &NodeProcess) {
        match self {
            Self::Rail(name) => {
                let path = format!("/admin/rails/{name}/{}", if on { "resume" } else { "pause" });
                node.http().post(&path, &json!({ "reason": "stop" })).await.unwrap().expect_status(200);
            }
            Self::Payments => {
                let sql = "UPDATE exec_rate_config SET enabled = $1::boolean::integer WHERE item_type = 'PAYMENT'";
                world.sql.execute(sql, &[&on]).await.unwrap();
            }
        }
    }
}

async fn switch_off_and_on(
    mut fleet: Fleet,
    switch: Switch,
    delay: Duration,
    make: impl Fn(&World, &str, &str, usize) -> Item,
) {
    #[expect(clippy::disallowed_methods, reason = "a switch for tests, not configuration of Railyard")]
    let tries = std::env::var("RAILYARD_SWITCH_TRIES").ok();
    let tries = tries.map_or(4, |tries| tries.parse().expect("a number of tries"));
    let nodes = three(&fleet).await;
    let rail = FakeRail::start().await.each_message().ok().delay(delay).forever();
    let messages = 150 * tries;
    due_at_once(&mut fleet, &rail, messages, make).await;
    let mut worst = Duration::ZERO;
    for n in 0..tries {
        let running = rail.exchanges().len() + 20;
        rail.await_where("calls are made", LATER, |receipts| receipts.len() >= running.min(messages)).await;
        switch.turn(false, &fleet.world, &nodes[n % 3]).await;
        // The commit was before this, so what is measured from here is less than what is promised from there.
        let committed = Instant::now();
        let last = eventually_some(LATER, "calls have ceased", || async {
            all_starts(&rail).last().copied().filter(|last| last.elapsed() > CEASED)
        })
        .await;
        let late = last.saturating_duration_since(committed);
        worst = worst.max(late);
        assert!(late <= Duration::from_millis(400), "a call {late:?} after the switch");
        switch.turn(true, &fleet.world, &nodes[n % 3]).await;
    }
    println!("{switch:?}: {worst:?} from the switch to the last start, at worst of {tries}");
    rail.await_receipts(messages, LATER).await;
    fleet.all_completed(messages).await;
    if switch == Switch::Rail("webhook") {
        let most = most_within(&all_starts(&rail), SECOND);
        assert!(most <= 100, "{most} starts within a second: a burst");
    }
}
