//! Producers that keep their transaction open, and groups that are held. Nobody's open transaction delays an outcome,
//! and no hold gets lost, whatever a producer does meanwhile and whoever dies right after.

use std::time::{Duration, Instant};

use railyard_core::hold::HoldKind;
use railyard_core::{OutboxId, ParticipantId};
use railyard_store::holds::{self, Decision};
use railyard_store::{Store, StoreError};
use railyard_testkit::{FakeRail, Gate, Receipt, eventually, verify};
use tokio_postgres::Client;
use uuid::Uuid;

use crate::fleet::{Fleet, LATER};
use crate::producer::Item;
use crate::record::{Record, completed, unfinished};
use crate::world::{SOON, World};

const GROUP: &str = "held";
const OPERATOR: Decision<'_> = Decision { actor: "operator", reason: "a test" };

fn group() -> ParticipantId {
    ParticipantId::new(GROUP)
}

/// Five producers keep their transactions open for five seconds, each on a group of its own, while thirty messages of
/// every group are delivered: no outcome of any group waits for them, and what they commit arrives in its place.
#[tokio::test(flavor = "multi_thread")]
async fn holds_open_producers_delay_no_settle() {
    const GROUPS: usize = 6;
    const EACH: usize = 30;
    let world = World::new().await;
    let rail = FakeRail::start().await.takes(Duration::from_millis(50));
    for n in 0..GROUPS * EACH {
        world.pay(&rail, &format!("group-{}", n % GROUPS), &format!("key-{n}")).await;
    }
    let mut open = Vec::new();
    for n in 0..GROUPS - 1 {
        let sql = world.db.connect().await;
        sql.batch_execute("BEGIN").await.unwrap();
        Item::payment(&world, &rail.url(), &format!("group-{n}"), &format!("open-{n}")).by(&sql).await.unwrap();
        open.push(sql);
    }
    let node = world.node().await;
    let stay_open = async {
        for sql in &open {
            // What a slow business transaction does after its enqueue.
            sql.batch_execute("SELECT pg_sleep(1)").await.unwrap();
        }
    };
    let all = i64::try_from(GROUPS * EACH).unwrap();
    let (_, ()) = tokio::join!(rail.await_answered(GROUPS * EACH, SOON), stay_open);
    eventually(SOON, "all outcomes are on record", || async { completed(&world.sql).await == all }).await;
    // The node's own transactions pass; those of the producers stay.
    eventually(SOON, "the producers are open still", || async { world.one::<i64>(OPEN).await == 5 }).await;
    let slowest: f64 = world
        .one(
            "SELECT max(extract(epoch FROM recorded_at - completed_at))::double precision
             FROM payment_outbox_attempts WHERE state = 'DISPATCHED'",
        )
        .await;
    println!("the slowest of {all} outcomes was on record after {:.0} ms", slowest * 1000.0);
    assert!(slowest < 1.0, "an outcome waited {slowest} s");
    for sql in &open {
        sql.batch_execute("COMMIT").await.unwrap();
    }
    let receipts = rail.await_answered(GROUPS * EACH + 5, SOON).await;
    assert_eq!(verify::order_violations(&receipts), verify::NONE);
    assert_eq!(receipts.len(), GROUPS * EACH + 5);
    node.stop(SOON).await;
}

/// Scheduled work comes due in two groups on which a producer is open, one of them new: neither the work of other
/// groups nor their scheduled work waits for that, and what was passed over follows once the producers have committed.
#[tokio::test(flavor = "multi_thread")]
async fn holds_open_producers_delay_no_scheduled_work() {
    let world = World::new().await;
    let rail = FakeRail::start().await;
    let node = world.node().await;
    world.pay(&rail, "known", "first").await;
    rail.await_answered(1, SOON).await;
    let mut open = Vec::new();
    for group in ["known", "new"] {
        let sql = world.db.connect().await;
        sql.batch_execute("BEGIN").await.unwrap();
        Item::payment(&world, &rail.url(), group, &format!("open-{group}")).by(&sql).await.unwrap();
        open.push(sql);
    }
    let mut due = Vec::new();
    for group in ["known", "new", "free"] {
        due.push(schedule(&world, &rail, group).await);
    }
    let has = |id: Uuid| move |r: &Receipt| r.message_key() == id.to_string();
    rail.await_where("scheduled work of a free group", SOON, |receipts| receipts.iter().any(has(due[2]))).await;
    // Through several polls, each of which meets the open producers again.
    for n in 0..6 {
        let started = Instant::now();
        let id = world.pay(&rail, "free", &format!("key-{n}")).await;
        rail.await_where("work of a free group", SOON, |receipts| receipts.iter().any(has(id))).await;
        let waited = started.elapsed();
        assert!(waited < Duration::from_secs(1), "it waited {waited:?}");
    }
    assert!(!rail.receipts().iter().any(|r| has(due[0])(r) || has(due[1])(r)), "its place is behind the open one");
    for sql in &open {
        sql.batch_execute("COMMIT").await.unwrap();
    }
    let receipts = rail.await_answered(12, SOON).await;
    assert!(due.iter().all(|id| receipts.iter().any(has(*id))));
    assert_eq!(verify::order_violations(&receipts), verify::NONE);
    node.stop(SOON).await;
}

/// A payment that is due in a moment.
async fn schedule(world: &World, rail: &FakeRail, group: &str) -> Uuid {
    let payload = br#"{"amount":"1.10","currency":"EUR","destination":"DE02"}"#.as_slice();
    let sql = "SELECT enqueue_payment_outbox($1, $2, $1, 'payment_webhook', $3, $4, $5,
                 p_scheduled_for => clock_timestamp() + interval '200 milliseconds')";
    let key = format!("scheduled-{group}");
    world.sql.query_one(sql, &[&key, &group, &payload, &rail.url(), &world.credentials.0]).await.unwrap().get(0)
}

/// Transactions of producers that are open now.
const OPEN: &str = "SELECT count(*) FROM pg_stat_activity
                    WHERE datname = current_database() AND state = 'idle in transaction'";

/// A producer whose transaction on the held group is open: it has its number and commits when the test says so.
async fn open_producer(fleet: &Fleet, rail: &FakeRail) -> Client {
    let sql = fleet.world.db.connect().await;
    sql.batch_execute("BEGIN").await.unwrap();
    fleet.payment(&rail.url(), GROUP, "open").by(&sql).await.unwrap();
    sql
}

/// The group stands: others are delivered, one after the other, and nothing of it.
async fn assert_stands(fleet: &Fleet, rail: &FakeRail) {
    let before = of_group(rail);
    for _ in 0..2 {
        let id = fleet.payment(&rail.url(), "free", &Uuid::new_v4().to_string()).by(&fleet.world.sql).await.unwrap();
        rail.await_where("a message of another group", LATER, |receipts| {
            receipts.iter().any(|r| r.message_key() == id.to_string() && r.finished_at.is_some())
        })
        .await;
    }
    eventually(SOON, "its hint stands at infinity", || async {
        fleet.world.one::<bool>("SELECT due_at = 'infinity' FROM ready_group WHERE participant_id = 'held'").await
    })
    .await;
    assert_eq!(of_group(rail), before, "something of a held group was sent");
}

/// Sequence and attempt of what came of the held group.
fn of_group(rail: &FakeRail) -> Vec<(i64, i64)> {
    let exchanges = rail.exchanges();
    let mine = exchanges.iter().filter(|r| r.group() == Some(GROUP));
    mine.map(|r| (r.sequence().unwrap(), r.attempt().unwrap())).collect()
}

async fn holds_of(store: &Store) -> Vec<HoldKind> {
    let row = holds::get(store, &group()).await.unwrap();
    row.map(|row| row.holds.iter().map(|hold| hold.kind).collect()).unwrap_or_default()
}

/// A failure blocks its group while a producer of it is open, and the node dies right after that commit: the block is
/// there when the producer commits and a node starts again.
#[tokio::test(flavor = "multi_thread")]
async fn holds_a_block_survives_producer_and_death() {
    let fleet = Fleet::holding().await;
    let rail = FakeRail::start().await.for_group(GROUP).status(410).then_ok();
    let node = fleet.node("dies");
    node.set_failpoint("settle_after_commit");
    fleet.payment(&rail.url(), GROUP, "first").by(&fleet.world.sql).await.unwrap();
    let producer = open_producer(&fleet, &rail).await;
    node.start();
    assert_eq!(node.await_exit(SOON).await, -9);
    producer.batch_execute("COMMIT").await.unwrap();
    node.clear_failpoint();
    node.start();
    assert_stands(&fleet, &rail).await;
    assert_eq!(holds_of(&fleet.world.store).await, [HoldKind::Blocked]);
    holds::release(&fleet.world.store, &group(), &[HoldKind::Blocked], OPERATOR).await.unwrap();
    rail.await_where("the next", LATER, |_| of_group(&rail) == [(1, 1), (2, 1)]).await;
}

/// A pause set while a producer is open is there when that producer commits after the node's death.
#[tokio::test(flavor = "multi_thread")]
async fn holds_a_pause_survives_producer_and_death() {
    let fleet = Fleet::holding().await;
    let rail = FakeRail::start().await;
    let node = fleet.ready("dies").await;
    let producer = open_producer(&fleet, &rail).await;
    holds::pause(&fleet.world.store, &group(), OPERATOR).await.unwrap();
    node.kill9();
    producer.batch_execute("COMMIT").await.unwrap();
    node.start();
    assert_stands(&fleet, &rail).await;
    assert_eq!(holds_of(&fleet.world.store).await, [HoldKind::Paused]);
    holds::resume(&fleet.world.store, &group(), OPERATOR).await.unwrap();
    rail.await_where("the message", LATER, |_| of_group(&rail) == [(1, 1)]).await;
}

/// A message is found in doubt while a producer is open, and the node dies as soon as that is on record: the doubt is
/// there when the producer commits. Released, the message goes again under its next number, then its follower.
#[tokio::test(flavor = "multi_thread")]
async fn holds_a_doubt_survives_producer_and_death() {
    let fleet = Fleet::holding().await;
    let rail = FakeRail::start().await;
    let node = fleet.node("dies");
    node.set_failpoint("after_call");
    fleet.payment(&rail.url(), GROUP, "first").by(&fleet.world.sql).await.unwrap();
    let producer = open_producer(&fleet, &rail).await;
    node.start();
    assert_eq!(node.await_exit(SOON).await, -9);
    node.clear_failpoint();
    node.start();
    eventually(LATER, "the doubt is on record", || async {
        fleet.world.one::<i64>("SELECT count(*) FROM group_hold WHERE kind = 'in_doubt'").await == 1
    })
    .await;
    node.kill9();
    producer.batch_execute("COMMIT").await.unwrap();
    node.start();
    assert_stands(&fleet, &rail).await;
    assert_eq!(holds_of(&fleet.world.store).await, [HoldKind::InDoubt]);
    holds::release(&fleet.world.store, &group(), &[HoldKind::InDoubt], OPERATOR).await.unwrap();
    let receipts = rail.await_where("both", LATER, |_| of_group(&rail).len() == 3).await;
    assert_eq!(of_group(&rail), [(1, 1), (1, 2), (2, 1)]);
    let record = Record::read(&fleet.world.sql).await;
    assert_eq!(record.unexplained(&receipts), verify::NONE);
}

/// A pause lets the running call end and be recorded, and nothing begins after it until it is lifted.
#[tokio::test(flavor = "multi_thread")]
async fn holds_pause_lets_the_running_call_end() {
    let world = World::new().await;
    let gate = Gate::closed();
    let rail = FakeRail::start().await.for_group(GROUP).ok().hold_until(&gate).then_ok();
    let node = world.node().await;
    for key in ["one", "two", "three"] {
        world.pay(&rail, GROUP, key).await;
    }
    eventually(SOON, "the first is out", || async { gate.waiting() == 1 }).await;
    holds::pause(&world.store, &group(), OPERATOR).await.unwrap();
    assert!(matches!(holds::pause(&world.store, &group(), OPERATOR).await, Err(StoreError::Conflict { .. })));
    gate.open();
    eventually(SOON, "the first is on record", || async { completed(&world.sql).await == 1 }).await;
    elsewhere(&world, &rail).await;
    assert_eq!(of_group(&rail), [(1, 1)]);
    holds::resume(&world.store, &group(), OPERATOR).await.unwrap();
    rail.await_where("the others", SOON, |_| of_group(&rail) == [(1, 1), (2, 1), (3, 1)]).await;
    node.stop(SOON).await;
}

/// Two messages of another group, one after the other: a held group would have been looked at meanwhile.
async fn elsewhere(world: &World, rail: &FakeRail) {
    for _ in 0..2 {
        let id = world.pay(rail, "free", &Uuid::new_v4().to_string()).await;
        rail.await_where("a message of another group", SOON, |receipts| {
            receipts.iter().any(|r| r.message_key() == id.to_string() && r.finished_at.is_some())
        })
        .await;
    }
}

/// A block and a pause stand side by side; each goes by its own decision, over a restart, and with the last of them
/// the group goes on behind the message that failed.
#[tokio::test(flavor = "multi_thread")]
async fn holds_stand_side_by_side_until_each_is_lifted() {
    let world = World::new().await;
    let gate = Gate::closed();
    let rail = FakeRail::start().await.for_group(GROUP).status(410).hold_until(&gate).then_ok();
    let node = world.node().await;
    world.pay(&rail, GROUP, "one").await;
    world.pay(&rail, GROUP, "two").await;
    eventually(SOON, "the first is out", || async { gate.waiting() == 1 }).await;
    holds::pause(&world.store, &group(), OPERATOR).await.unwrap();
    gate.open();
    eventually(SOON, "both holds stand", || async {
        holds_of(&world.store).await == [HoldKind::Blocked, HoldKind::Paused]
    })
    .await;
    node.stop(SOON).await;
    let node = world.node().await;
    holds::resume(&world.store, &group(), OPERATOR).await.unwrap();
    elsewhere(&world, &rail).await;
    assert_eq!(of_group(&rail), [(1, 1)], "the block stands");
    holds::pause(&world.store, &group(), OPERATOR).await.unwrap();
    holds::release(&world.store, &group(), &[HoldKind::Blocked], OPERATOR).await.unwrap();
    elsewhere(&world, &rail).await;
    assert_eq!(of_group(&rail), [(1, 1)], "the pause stands");
    holds::resume(&world.store, &group(), OPERATOR).await.unwrap();
    rail.await_where("the second", SOON, |_| of_group(&rail) == [(1, 1), (2, 1)]).await;
    eventually(SOON, "nothing is left", || async { unfinished(&world.sql).await == 0 }).await;
    node.stop(SOON).await;
}

/// Skipping takes the head that waits for its retry, and no other: it ends CANCELLED, is not sent again, and the group
/// goes on. A head that is out, or another than the one named, is not skipped.
#[tokio::test(flavor = "multi_thread")]
async fn holds_skip_ends_the_waiting_head() {
    let world = World::new().await;
    let gate = Gate::closed();
    let rail = FakeRail::start().await.for_group(GROUP).status(500).hold_until(&gate).then_ok();
    let node = world.node().await;
    let retry_late = |key: &str| Item::payment(&world, &rail.url(), GROUP, key).retry("exponential");
    let first = OutboxId(retry_late("one").by(&world.sql).await.unwrap());
    let second = OutboxId(retry_late("two").by(&world.sql).await.unwrap());
    eventually(SOON, "the first is out", || async { gate.waiting() == 1 }).await;
    let out = holds::skip(&world.store, &group(), Some(first), OPERATOR).await;
    assert!(matches!(out, Err(StoreError::Conflict { .. })), "{out:?}");
    holds::pause(&world.store, &group(), OPERATOR).await.unwrap();
    gate.open();
    eventually(SOON, "it waits", || async {
        world.one::<i64>("SELECT count(*) FROM payment_outbox_pending WHERE attempt_count = 1").await == 1
    })
    .await;
    let other = holds::skip(&world.store, &group(), Some(second), OPERATOR).await;
    assert!(matches!(other, Err(StoreError::Conflict { .. })), "{other:?}");
    let skipped = holds::skip(&world.store, &group(), Some(first), OPERATOR).await.unwrap();
    assert_eq!((skipped.outbox_id, skipped.cancelled), (first, true));
    holds::resume(&world.store, &group(), OPERATOR).await.unwrap();
    rail.await_where("the second", SOON, |_| of_group(&rail) == [(1, 1), (2, 1)]).await;
    elsewhere(&world, &rail).await;
    assert_eq!(of_group(&rail), [(1, 1), (2, 1)], "the skipped one is not sent again");
    let status: String =
        world.one(&format!("SELECT status FROM dispatch_job_outcome WHERE outbox_id = '{first}'")).await;
    assert_eq!(status, "CANCELLED");
    node.stop(SOON).await;
}
