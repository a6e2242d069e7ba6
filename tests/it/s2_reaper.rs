//! S2-16, S2-32 and what the traps say of the reaper: workers that die in the middle of a call.

use std::time::Duration;

use railyard_core::hold::HoldKind;
use railyard_core::{OutboxId, ParticipantId};
use railyard_node::Node;
use railyard_store::heal::HealRules;
use railyard_store::holds::{self, Decision};
use railyard_testkit::{FakeRail, Gate, Receipt, Sandbox, eventually};

use crate::hand::{Hand, LONG, pass_deadline, pass_lease};
use crate::producer::Item;
use crate::world::{SOON, World};

const NOWHERE: &str = "http://127.0.0.1:9/";

/// Requests for one group.
fn of<'a>(receipts: &'a [Receipt], group: &str) -> Vec<&'a Receipt> {
    receipts.iter().filter(|receipt| receipt.group() == Some(group)).collect()
}

/// A node is killed with two calls out. Where a repeat is harmless the message is sent again with the same ids, after
/// exactly one ZOMBIE_REQUEUE; where it is not, the group is held in doubt until a person decides.
#[tokio::test(flavor = "multi_thread")]
async fn s2_16_a_killed_worker_is_made_good() {
    let world = World::new().await;
    let gate = Gate::closed();
    let rail = FakeRail::start().await.ok().hold_until(&gate).forever();
    let sandbox = Sandbox::new(world.db.url())
        .env("RAILYARD_MASTER_KEY", "5a".repeat(32))
        .set("http.allow_networks", r#"["127.0.0.0/8"]"#);
    let node = sandbox.node().await;
    let repeated = Item::webhook(&world, &rail.url(), "repeated", "one").timeout_ms(1000);
    let repeated = OutboxId(repeated.by(&world.sql).await.unwrap());
    let doubted = Item::payment(&world, &rail.url(), "doubted", "two").timeout_ms(1000);
    let doubted = OutboxId(doubted.by(&world.sql).await.unwrap());
    world.pay(&rail, "doubted", "behind").await;
    eventually(SOON, "both calls are out", || async { gate.waiting() == 2 }).await;
    node.kill9();
    gate.open();
    node.start();

    world.ended(repeated).await;
    assert_eq!(world.history(repeated).await, ["ZOMBIE_REQUEUE/ZOMBIE_REQUEUE", "DISPATCHED"]);
    let receipts = rail.receipts();
    let sent = of(&receipts, "repeated");
    assert_eq!(sent.len(), 2);
    assert_eq!(sent[0].idempotency_key(), sent[1].idempotency_key());
    assert_eq!((sent[1].sequence(), sent[1].attempt()), (Some(1), Some(2)));

    eventually(SOON, "the other group is held in doubt", || async {
        world.one::<i64>("SELECT count(*) FROM group_hold WHERE participant_id = 'doubted' AND kind = 'in_doubt'").await
            == 1
    })
    .await;
    // What is committed now is delivered after the repeat, which would have been due before it.
    world.pay(&rail, "repeated", "later").await;
    rail.await_where("the later message", SOON, |receipts| of(receipts, "repeated").len() == 3).await;
    assert_eq!(of(&rail.receipts(), "doubted").len(), 1, "sent again although nobody knows whether it arrived");
    assert_eq!(world.history(doubted).await, ["ZOMBIE_REQUEUE/ZOMBIE_REQUEUE"]);

    let decision = Decision { actor: "test", reason: "the bank has not seen it" };
    holds::release(&world.store, &ParticipantId::new("doubted"), &[HoldKind::InDoubt], decision).await.unwrap();
    let receipts = rail.await_where("both of them", SOON, |receipts| of(receipts, "doubted").len() == 3).await;
    let order: Vec<_> =
        of(&receipts, "doubted").iter().map(|r| (r.sequence().unwrap(), r.attempt().unwrap())).collect();
    assert_eq!(order, [(1, 1), (1, 2), (2, 1)]);
}

async fn rounds(node: &Node) -> u64 {
    node.observe().await["actors"]["reaper"]["rounds"].as_u64().unwrap_or(0)
}

/// The row of a dead member is left alone until its call's deadline, however often the reaper looks, and given up then.
#[tokio::test(flavor = "multi_thread")]
async fn s2_32_nothing_is_given_up_before_its_deadline() {
    let world = World::new().await;
    let dead = Hand::join(&world.store, LONG).await;
    Item::payment(&world, NOWHERE, "g", "one").by(&world.sql).await.unwrap();
    let begun = dead.begin(&world.sql, "g").await.unwrap();
    pass_lease(&world.sql, dead.node).await;
    let node = world
        .node_with(|options| {
            options.lease = Duration::from_secs(2);
            options.zombie_after = Duration::ZERO;
        })
        .await;
    eventually(SOON, "the node has been a member for a lease and owns the partition", || async {
        let sql = "SELECT count(*) FROM partition_lease l JOIN node n ON n.node_id = l.owner
                   WHERE n.joined_at < clock_timestamp() - interval '2.1 s' AND l.partition_id = partition_of('g')";
        world.one::<i64>(sql).await == 1
    })
    .await;
    let before = rounds(&node).await;
    eventually(SOON, "the reaper has looked again", || async { rounds(&node).await >= before + 3 }).await;
    assert_eq!(world.history(begun.outbox_id).await, ["DISPATCHING"]);
    pass_deadline(&world.sql, &begun).await;
    eventually(SOON, "it is given up", || async {
        world.history(begun.outbox_id).await == ["ZOMBIE_REQUEUE/ZOMBIE_REQUEUE"]
    })
    .await;
    node.stop(SOON).await;
}

/// Whoever takes over gives nothing up before it has been a member for a whole lease: after an outage, results that
/// other nodes still hold get in first. A row without any living node obeys the time rule and the deadline, the later.
#[tokio::test]
async fn s2_32_a_new_member_waits_for_results_first() {
    let world = World::new().await;
    let dead = Hand::join(&world.store, LONG).await;
    Item::payment(&world, NOWHERE, "g", "one").by(&world.sql).await.unwrap();
    let begun = dead.begin(&world.sql, "g").await.unwrap();
    pass_lease(&world.sql, dead.node).await;
    let heir = Hand::join(&world.store, LONG).await;
    pass_deadline(&world.sql, &begun).await;
    let rules = HealRules { lease: LONG, ..HealRules::default() };
    assert!(heir.heal_by(&[], rules).await.is_empty(), "given up in the first lease");
    // Two minutes old by the claim, but its deadline passed only a moment ago.
    world.sql.batch_execute("UPDATE in_flight SET claimed_at = claimed_at - interval '1 hour'").await.unwrap();
    assert!(heir.heal_by(&[], rules).await.is_empty(), "the time rule came before the deadline and its margin");
    world.sql.batch_execute("UPDATE in_flight SET call_deadline = call_deadline - interval '31 s'").await.unwrap();
    assert_eq!(heir.heal_by(&[], rules).await.len(), 1);
}

/// While a call takes longer than the lease, the lease is renewed, and the attempt stays the node's own.
#[tokio::test(flavor = "multi_thread")]
async fn s2_32_the_lease_is_renewed_while_work_waits() {
    let world = World::new().await;
    let gate = Gate::closed();
    let rail = FakeRail::start().await.ok().hold_until(&gate).then_ok();
    let node = world.node_with(|options| options.lease = Duration::from_secs(2)).await;
    let id = OutboxId(world.pay(&rail, "g", "one").await);
    eventually(SOON, "the call is out", || async { gate.waiting() == 1 }).await;
    let renewed = "SELECT extract(epoch FROM max(lease_until) - max(joined_at))::float8 > 2 * 2.5 FROM node";
    eventually(SOON, "the lease has been renewed for longer than it lasts", || async { world.one(renewed).await })
        .await;
    assert_eq!(world.history(id).await, ["DISPATCHING"]);
    gate.open();
    world.ended(id).await;
    assert_eq!(world.history(id).await, ["DISPATCHED"]);
    assert_eq!(rail.receipts().len(), 1);
    node.stop(SOON).await;
}

/// A message that was begun, and waits for its content when the lease lapses, is not called: it is recorded as not
/// started, spends nothing, and goes out under the next lease. The call that was out is recorded by its own result.
#[tokio::test(flavor = "multi_thread")]
async fn s2_32_no_call_starts_on_a_lapsed_lease() {
    let world = World::new().await;
    let gate = Gate::closed();
    let rail = FakeRail::start().await.ok().hold_until(&gate).forever();
    let node = world.node_with(|options| options.slack = Duration::from_secs(30)).await;
    let first = OutboxId(world.pay(&rail, "first", "one").await);
    eventually(SOON, "the first call is out", || async { gate.waiting() == 1 }).await;
    let (group, operator) = (ParticipantId::new("second"), Decision { actor: "test", reason: "test" });
    holds::pause(&world.store, &group, operator).await.unwrap();
    let second = OutboxId(world.pay(&rail, "second", "two").await);
    // Nobody reads a job's content from here on: it is read when the begin has been committed, and before the call.
    let mut reader = world.db.connect().await;
    let content = reader.transaction().await.unwrap();
    let day: String = world.one("SELECT tableoid::regclass::text FROM dispatch_job LIMIT 1").await;
    content.batch_execute(&format!("LOCK TABLE {day} IN ACCESS EXCLUSIVE MODE")).await.unwrap();
    holds::resume(&world.store, &group, operator).await.unwrap();
    let begun = "SELECT count(*) FROM in_flight WHERE participant_id = 'second'";
    eventually(SOON, "the second is begun", || async { world.one::<i64>(begun).await == 1 }).await;

    let mut lock = world.db.connect().await;
    let renewals = lock.transaction().await.unwrap();
    renewals.execute("SELECT 1 FROM node FOR UPDATE", &[]).await.unwrap();
    eventually(SOON, "the lease lapses", || async { !node.readiness().0 }).await;
    content.rollback().await.unwrap();
    gate.open();
    eventually(SOON, "the second is on record", || async {
        world.history(second).await.first().is_some_and(|state| state == "NOT_STARTED/LEASE_LOST")
    })
    .await;
    assert_eq!(of(&rail.exchanges(), "second").len(), 0, "called without a lease");
    world.ended(first).await;
    assert_eq!(world.history(first).await, ["DISPATCHED"], "a result is true whoever owns the partition now");

    renewals.rollback().await.unwrap();
    world.ended(second).await;
    assert_eq!(world.history(second).await, ["NOT_STARTED/LEASE_LOST", "DISPATCHED"]);
    assert_eq!(of(&rail.receipts(), "second")[0].attempt(), Some(2));
    let spent: i64 = world.one("SELECT count(*) FROM payment_outbox_attempts WHERE state = 'RETRYABLE'").await;
    assert_eq!(spent, 0);
    node.stop(SOON).await;
}

/// A limit after which calls count as dead that is shorter than a call may take stops the start, and names its key.
#[tokio::test]
async fn trap_a_reaper_limit_shorter_than_a_call_is_refused() {
    let world = World::new().await;
    let sandbox = Sandbox::new(world.db.url()).set("reaper.zombie_after_s", 60);
    let config = sandbox.config_file();
    let output = sandbox.run(&["serve", "--config", &config.to_string_lossy()]).await;
    assert_ne!(output.code, Some(0));
    assert!(output.stderr.contains("reaper.zombie_after_s"), "{}", output.stderr);
}
