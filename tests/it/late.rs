//! Results that come late: a node is cut off from the database in the middle of a call, another one takes its
//! partitions over and gives the attempt up, and then the first one comes back with what really happened.

use std::time::Duration;

use railyard_node::{Node, NodeOptions};
use railyard_store::{Store, StoreConfig};
use railyard_testkit::{Cut, FakeRail, FaultProxy, Gate, Mode, eventually, verify};
use uuid::Uuid;

use crate::record::{Record, completed, misplaced, unfinished};
use crate::world::{SOON, World};

/// Two nodes on one database, the first behind a proxy. It owns everything; the second waits.
struct Pair {
    world: World,
    proxy: FaultProxy,
    first: Node,
    second: Node,
}

impl Pair {
    async fn new(world: World) -> Self {
        let (_, rest) = world.db.url().split_once('@').unwrap();
        let proxy = FaultProxy::postgres(rest.split('/').next().unwrap().parse().unwrap()).await;
        let store = Store::new(StoreConfig::at(&proxy.url(world.db.url()))).unwrap();
        let first = world.node_on(store, |options| named(options, "first")).await;
        eventually(SOON, "the first owns everything", || async { owner(&world).await == ["first"] }).await;
        let second = world.node_with(|options| named(options, "second")).await;
        Self { world, proxy, first, second }
    }

    /// The first hears and says nothing more until [`Pair::rejoin`].
    fn cut_off(&self) {
        self.proxy.set(Mode::Refuse);
        self.proxy.cut(Cut::Reset);
    }

    fn rejoin(&self) {
        self.proxy.set(Mode::Pass);
    }

    async fn stop(self) {
        self.first.stop(SOON).await;
        self.second.stop(SOON).await;
    }
}

fn named(options: &mut NodeOptions, name: &str) {
    name.clone_into(&mut options.name);
    options.slack = Duration::from_millis(500);
}

async fn owner(world: &World) -> Vec<String> {
    let sql = "SELECT DISTINCT n.name FROM partition_lease l JOIN node n ON n.node_id = l.owner ORDER BY 1";
    world.sql.query(sql, &[]).await.unwrap().iter().map(|row| row.get(0)).collect()
}

/// A payment whose call may take a second.
async fn pay(world: &World, rail: &FakeRail, group: &str, key: &str) -> Uuid {
    let payload = format!(r#"{{"amount":"1.10","currency":"EUR","destination":"DE02","key":"{key}"}}"#);
    world
        .sql
        .query_one(
            "SELECT enqueue_payment_outbox($1, $2, $1, 'payment_webhook', $3, $4, $5, p_timeout_ms => 1000)",
            &[&key, &group, &payload.as_bytes(), &rail.url(), &world.credentials.0],
        )
        .await
        .unwrap()
        .get(0)
}

async fn healed(world: &World) -> i64 {
    world.one("SELECT count(*) FROM payment_outbox_attempts WHERE state = 'ZOMBIE_REQUEUE'").await
}

async fn late(world: &World, state: &str) -> i64 {
    world.one(&format!("SELECT count(*) FROM payment_outbox_attempts WHERE late AND state = '{state}'")).await
}

/// On a rail that holds what is in doubt: the success that comes late finishes the message, takes its hold away and
/// lets the group go on. The message was sent once.
#[tokio::test(flavor = "multi_thread")]
async fn late_success_ends_the_message_and_its_doubt() {
    let world = World::new().await;
    let gate = Gate::closed();
    let rail = FakeRail::start().await.otherwise().hold_until(&gate);
    let pair = Pair::new(world).await;
    let world = &pair.world;
    pay(world, &rail, "group", "one").await;
    pay(world, &rail, "group", "two").await;
    eventually(SOON, "the call is out", || async { gate.waiting() == 1 }).await;
    pair.cut_off();
    gate.open();
    eventually(SOON, "the second gave the attempt up", || async { healed(world).await == 1 }).await;
    assert_eq!(world.one::<i64>("SELECT count(*) FROM group_hold WHERE kind = 'in_doubt'").await, 1);
    assert_eq!((rail.receipts().len(), completed(&world.sql).await), (1, 0));
    pair.rejoin();
    eventually(SOON, "both have ended", || async {
        completed(&world.sql).await == 2 && unfinished(&world.sql).await == 0
    })
    .await;
    let receipts = rail.receipts();
    assert_eq!(receipts.len(), 2, "each was sent once");
    assert_eq!(verify::order_violations(&receipts), verify::NONE);
    assert_eq!(late(world, "DISPATCHED").await, 1);
    assert_eq!(world.one::<i64>("SELECT count(*) FROM group_hold").await, 0);
    assert_eq!(world.one::<i64>("SELECT count(*) FROM admin_audit WHERE action = 'late_success'").await, 1);
    assert_eq!(misplaced(&world.sql).await, verify::NONE);
    pair.stop().await;
}

/// On a rail that repeats what is in doubt: the late success comes while the repeat is out. The repeat fails, and the
/// message has ended all the same: there is no third attempt.
#[tokio::test(flavor = "multi_thread")]
async fn late_success_ends_the_message_although_its_repeat_fails() {
    let world = World::new().await;
    world.sql.batch_execute("UPDATE rail SET on_unknown = 'retry'").await.unwrap();
    let (gate, again) = (Gate::closed(), Gate::closed());
    let rail = FakeRail::start().await.ok().hold_until(&gate).status(500).hold_until(&again).then_ok();
    let pair = Pair::new(world).await;
    let world = &pair.world;
    world.pay(&rail, "group", "one").await;
    eventually(SOON, "the call is out", || async { gate.waiting() == 1 }).await;
    // As if its deadline had passed: the repeat has to be out for longer than the first node's way back takes.
    world.sql.batch_execute("UPDATE in_flight SET call_deadline = clock_timestamp()").await.unwrap();
    pair.cut_off();
    gate.open();
    eventually(SOON, "the repeat is out", || async { again.waiting() == 1 }).await;
    pair.rejoin();
    eventually(SOON, "the truth has come", || async { late(world, "DISPATCHED").await == 1 }).await;
    assert!(world.one::<bool>("SELECT known_success FROM in_flight").await);
    again.open();
    eventually(SOON, "it has ended", || async {
        completed(&world.sql).await == 1 && unfinished(&world.sql).await == 0
    })
    .await;
    // Something later of the same group arrives: nothing of the first came in between.
    pay(world, &rail, "group", "two").await;
    let receipts = rail.await_answered(3, SOON).await;
    let attempts: Vec<_> = receipts.iter().map(|r| (r.sequence().unwrap(), r.attempt().unwrap())).collect();
    assert_eq!(attempts, [(1, 1), (1, 2), (2, 1)]);
    let record = Record::read(&world.sql).await;
    assert_eq!((record.count("ZOMBIE_REQUEUE"), record.unexplained(&receipts).len()), (1, 0));
    pair.stop().await;
}

/// A failure that comes late is evidence and nothing else: the record keeps both, the message goes its way.
#[tokio::test(flavor = "multi_thread")]
async fn late_failure_is_kept_beside_the_record() {
    let world = World::new().await;
    world.sql.batch_execute("UPDATE rail SET on_unknown = 'retry'").await.unwrap();
    let gate = Gate::closed();
    let rail = FakeRail::start().await.status(500).hold_until(&gate).then_ok();
    let pair = Pair::new(world).await;
    let world = &pair.world;
    pay(world, &rail, "group", "one").await;
    eventually(SOON, "the call is out", || async { gate.waiting() == 1 }).await;
    pair.cut_off();
    gate.open();
    eventually(SOON, "the second has delivered it", || async { completed(&world.sql).await == 1 }).await;
    pair.rejoin();
    eventually(SOON, "the late result is kept", || async { late(world, "RETRYABLE").await == 1 }).await;
    let receipts = rail.receipts();
    assert_eq!(receipts.iter().map(|r| r.attempt().unwrap()).collect::<Vec<_>>(), [1, 2]);
    assert_eq!((completed(&world.sql).await, healed(world).await), (1, 1));
    pair.stop().await;
}
