//! Order where systems like this lose it: heads that end badly, batches, and nodes that come and go.

use std::collections::BTreeMap;
use std::time::Duration;

use railyard_core::hold::HoldKind;
use railyard_core::{AttemptId, OutboxId, ParticipantId};
use railyard_node::Node;
use railyard_store::holds::{self, Decision};
use railyard_store::work::Batch;
use railyard_testkit::{FakeRail, Receipt, eventually};
use uuid::Uuid;

use crate::hand::{Hand, LONG, delivered, failed, make_due, refused};
use crate::producer::{Item, eager};
use crate::world::{SOON, World};

async fn looks(node: &Node) -> u64 {
    node.observe().await["actors"]["poller"]["looks"].as_u64().unwrap_or(0)
}

/// Sequence numbers that came, by group.
fn came(receipts: &[Receipt]) -> BTreeMap<String, Vec<i64>> {
    let mut came: BTreeMap<String, Vec<i64>> = BTreeMap::new();
    for receipt in receipts {
        came.entry(receipt.group().unwrap().to_owned()).or_default().push(receipt.sequence().unwrap());
    }
    came
}

/// A head that is exhausted, refused for good or expired holds its group or lets it go on, by its mode and never half;
/// with BLOCK_ON_ERROR nothing newer passes, after a restart either. Who cancels a head lets its group go on.
#[tokio::test(flavor = "multi_thread")]
async fn trap_a_head_that_ends_badly_ends_by_its_mode() {
    let world = World::new().await;
    let mut rail = FakeRail::start().await;
    let mut heads = BTreeMap::new();
    for mode in ["BLOCK_ON_ERROR", "NEXT_ON_ERROR"] {
        for (way, status) in [("exhausted", 500), ("gone", 410), ("expired", 200), ("cancelled", 500)] {
            let group = format!("{way}-{mode}");
            rail = rail.for_body_with(format!("{group}-head")).status(status).forever();
            for place in ["head", "next"] {
                let item = Item::payment(&world, &rail.url(), &group, &format!("{group}-{place}")).mode(mode);
                let id = item.max_attempts(if way == "cancelled" { 20 } else { 1 }).by(&world.sql).await.unwrap();
                heads.entry(group.clone()).or_insert(OutboxId(id));
            }
        }
    }
    for (group, head) in heads.iter().filter(|(group, _)| group.starts_with("expired")) {
        let expire = "UPDATE dispatch_job SET expires_at = clock_timestamp() WHERE outbox_id = $1";
        assert_eq!(world.sql.execute(expire, &[&head.0]).await.unwrap(), 1, "{group}");
    }
    let first = world.node_with(eager).await;
    for (group, head) in &heads {
        if group.starts_with("cancelled") {
            let decision = Decision { actor: "test", reason: "not wanted any more" };
            let group = ParticipantId::new(group.as_str());
            // It is out or waits for its next attempt: only then it can be cancelled.
            eventually(SOON, "the head can be cancelled", || async {
                holds::skip(&world.store, &group, Some(*head), decision).await.is_ok()
            })
            .await;
        }
        world.ended(*head).await;
    }
    first.stop(SOON).await;
    let second = world.node_with(eager).await;
    let before = looks(&second).await;
    eventually(SOON, "the second node has looked", || async { looks(&second).await >= before + 10 }).await;
    world.pay(&rail, "sentinel", "sentinel").await;
    let goes_on = |group: &str| group.contains("NEXT") || group.starts_with("cancelled");
    let nexts = heads.keys().filter(|group| goes_on(group)).count();
    let next = |receipts: &[Receipt]| receipts.iter().filter(|r| r.sequence() == Some(2)).count();
    let receipts = rail
        .await_where("the sentinel and those behind", SOON, |receipts| {
            receipts.iter().any(|r| r.group() == Some("sentinel")) && next(receipts) >= nexts
        })
        .await;
    let came = came(&receipts);
    for group in heads.keys() {
        let passed = came.get(group).is_some_and(|sequences| sequences.contains(&2));
        assert_eq!(passed, goes_on(group), "{group}: {came:?}");
        let held = "SELECT count(*) FROM group_hold WHERE participant_id = $1 AND kind = 'blocked' AND outbox_id = $2";
        let held: i64 = world.sql.query_one(held, &[&group, &heads[group].0]).await.unwrap().get(0);
        assert_eq!(held == 1, !goes_on(group), "{group}");
    }
    assert_eq!(rail.order_violations(), [] as [&str; 0]);
    second.stop(SOON).await;
}

/// Several messages of several groups in one call take their numbers in the order in which they were given, and their
/// ids come back in that order; what is scheduled takes its number by its date, however it was made.
#[tokio::test(flavor = "multi_thread")]
async fn trap_returning_gives_no_order() {
    let world = World::new().await;
    let rail = FakeRail::start().await;
    let mut sql = world.db.connect().await;
    let open = sql.transaction().await.unwrap();
    for n in (1..=8).rev() {
        let item = Item::payment(&world, &rail.url(), "scheduled", &format!("s{n}")).scheduled_in_ms(700 + 20 * n);
        item.by(&open).await.unwrap();
    }
    open.commit().await.unwrap();
    let call = "SELECT enqueue_payment_outbox(array_agg(ROW('sql', 't', NULL, 'g' || n % 3, NULL, 'payment_webhook', NULL, $1,
                  '{\"amount\":1,\"currency\":\"EUR\",\"destination\":\"x\"}'::bytea, NULL, $2, NULL, NULL, NULL, NULL, NULL, NULL,
                  NULL, 'i' || n, 'k', NULL)::outbox_item ORDER BY n DESC)) FROM generate_series(1, 30) n";
    let ids: Vec<Uuid> = world.sql.query_one(call, &[&rail.url(), &world.credentials.0]).await.unwrap().get(0);
    assert!(ids.is_sorted(), "ids come in the order of the items");
    let wrong: i64 = world
        .one(
            "SELECT count(*) FROM (
               SELECT sequence_id, row_number() OVER (PARTITION BY participant_id ORDER BY outbox_id) AS place
               FROM payment_outbox_pending) p WHERE sequence_id <> place",
        )
        .await;
    assert_eq!(wrong, 0, "numbers in the order of the items");
    let due = "SELECT bool_and(due_at < clock_timestamp()) FROM scheduled_job";
    eventually(SOON, "all dates have come", || async { world.one::<bool>(due).await }).await;
    let node = world.node().await;
    let receipts = rail.await_answered(38, SOON).await;
    let scheduled: Vec<String> =
        receipts.iter().filter(|r| r.group() == Some("scheduled")).map(Receipt::text).collect();
    let keys: Vec<String> = (1..=8).map(|n| format!("\"key\":\"s{n}\"")).collect();
    assert!(scheduled.iter().zip(&keys).all(|(text, key)| text.contains(key)), "{scheduled:?}");
    assert_eq!(rail.order_violations(), [] as [&str; 0]);
    node.stop(SOON).await;
}

/// A held group is out of the poll's sight from the commit that held it, for as long as one of its holds stands.
#[tokio::test]
async fn trap_a_held_group_is_out_of_sight() {
    let world = World::new().await;
    let hand = Hand::join(&world.store, LONG).await;
    for key in ["one", "two"] {
        Item::payment(&world, "http://127.0.0.1:9/", "g", key).by(&world.sql).await.unwrap();
    }
    let in_sight = async || world.one::<bool>("SELECT due_at <= clock_timestamp() FROM ready_group").await;
    let (group, decision) = (ParticipantId::new("g"), Decision { actor: "test", reason: "seen to" });
    let message = hand.begin(&world.sql, "g").await.unwrap();
    hand.settle(&message, refused()).await;
    assert!(!in_sight().await, "blocked");
    holds::pause(&world.store, &group, decision).await.unwrap();
    holds::release(&world.store, &group, &[HoldKind::Blocked], decision).await.unwrap();
    assert!(!in_sight().await, "paused");
    assert!(hand.begin(&world.sql, "g").await.is_none());
    holds::resume(&world.store, &group, decision).await.unwrap();
    assert!(in_sight().await, "free");
    let message = hand.begin(&world.sql, "g").await.unwrap();
    // A pause that comes while the call is out is not undone by its end.
    holds::pause(&world.store, &group, decision).await.unwrap();
    hand.settle(&message, failed()).await;
    make_due(&world.sql).await;
    assert!(!in_sight().await, "paused while the call was out");
    assert!(hand.begin(&world.sql, "g").await.is_none());
}

/// A batch that names a group twice begins one message of it, its first: no prefetch makes a serial group parallel.
#[tokio::test]
async fn trap_a_group_appears_once_in_a_batch() {
    let world = World::new().await;
    let hand = Hand::join(&world.store, LONG).await;
    for key in ["one", "two", "three"] {
        Item::payment(&world, "http://127.0.0.1:9/", "g", key).by(&world.sql).await.unwrap();
    }
    let mut batch = Batch::default();
    for _ in 0..3 {
        batch.begin.push(hand.request(&world.sql, "g").await);
    }
    let begun = world.store.run(hand.node, &batch).await.unwrap().begun;
    assert_eq!(begun.values().map(|message| message.sequence_id.unwrap().0).collect::<Vec<_>>(), [1]);
    let (one, mut ended) = (begun.into_values().next().unwrap(), Batch::default());
    // With its end in the same transaction the next one begins, and no more.
    ended.settle.push(crate::hand::ended(&one, delivered()));
    ended.begin = batch.begin;
    for request in &mut ended.begin {
        request.attempt_id = AttemptId(Uuid::now_v7());
    }
    let begun = world.store.run(hand.node, &ended).await.unwrap().begun;
    assert_eq!(begun.values().map(|message| message.sequence_id.unwrap().0).collect::<Vec<_>>(), [2]);
    assert_eq!(world.one::<i64>("SELECT count(*) FROM in_flight").await, 1);
}

/// Nodes come and go all the time while work flows: the receiver sees every group in order, one call at a time, and
/// everything once.
#[tokio::test(flavor = "multi_thread")]
async fn trap_membership_flaps() {
    let world = World::new().await;
    let rail = FakeRail::start().await.ok().delay(Duration::from_millis(50)).forever();
    let mut node = world.node_with(eager).await;
    let (mut sent, mut handed_over) = (0, Vec::new());
    for round in 0..6 {
        // The next is there before the last one goes, which hands over in the middle of its work.
        let next = world.node_with(eager).await;
        eventually(SOON, "both are members", || async { world.one::<i64>("SELECT count(*) FROM node").await == 2 })
            .await;
        for n in 0..40 {
            world.pay(&rail, &format!("g{}", n % 10), &format!("r{round}-{n}")).await;
            sent += 1;
        }
        node.stop(SOON).await;
        let ended: i64 = world.one("SELECT count(*) FROM dispatch_job_outcome").await;
        handed_over.push(i64::try_from(sent).unwrap() - ended);
        node = next;
    }
    assert!(handed_over.iter().filter(|open| **open > 0).count() >= 3, "in the middle of its work: {handed_over:?}");
    let receipts = rail.await_answered(sent, SOON).await;
    assert_eq!(receipts.len(), sent, "something was sent twice");
    assert_eq!(rail.order_violations(), [] as [&str; 0]);
    assert_eq!(rail.max_concurrent_per_group(), 1);
    node.stop(SOON).await;
}
