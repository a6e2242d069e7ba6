//! What lies behind many that cannot go to work: it is found, whatever stands in front of it.

use std::collections::BTreeSet;
use std::time::Duration;

use railyard_store::holds::Decision;
use railyard_store::rails;
use railyard_testkit::{FakeRail, Gate, Receipt, eventually};

use crate::hand::{Hand, LONG};
use crate::producer::Item;
use crate::s2_claim::{neighbours, page};
use crate::world::{SOON, World};

const OPERATOR: Decision<'_> = Decision { actor: "op", reason: "a test" };

/// Messages without order that came due at one and the same moment are paged through like any others.
#[tokio::test]
async fn s2_06_messages_due_at_one_moment_are_all_found() {
    let world = World::new().await;
    let mut ids = BTreeSet::new();
    for n in 0..40 {
        let item = Item::payment(&world, "http://127.0.0.1:9/", "g", &format!("k{n}")).mode("IMMEDIATE");
        ids.insert(item.by(&world.sql).await.unwrap().to_string());
    }
    let same = "UPDATE payment_outbox_pending SET partition_id = 7, next_attempt_at = '2026-01-01'";
    world.sql.batch_execute(same).await.unwrap();
    let hand = Hand::join(&world.store, LONG).await;
    let mut seen = BTreeSet::new();
    let (mut names, mut next) = page(&world, &hand, None).await;
    loop {
        for name in names {
            assert!(seen.insert(name), "found twice");
        }
        let Some(cursor) = next else { break };
        (names, next) = page(&world, &hand, Some(&cursor)).await;
    }
    assert_eq!(seen, ids);
}

/// Four hundred groups of one partition wait for a receiver that hangs: the one behind them, for another receiver, is
/// delivered all the same. With eight credits free, a look is at most twenty pages of eight: it takes several, each of
/// which goes on where the last one ended.
#[tokio::test(flavor = "multi_thread")]
async fn s2_06_a_long_front_hides_nobody() {
    let world = World::new().await;
    let gate = Gate::closed();
    let hangs = FakeRail::start().await.otherwise().ok().hold_until(&gate).forever();
    let answers = FakeRail::start().await;
    let groups = neighbours(&world, 401).await;
    assert_eq!(groups.len(), 401);
    let (last, front) = groups.split_last().unwrap();
    for group in front {
        world.pay(&hangs, group, group).await;
    }
    world.pay(&answers, last, "healthy").await;
    let node = world
        .node_with(|options| {
            options.credits = 16;
            options.calls_in_flight = 16;
            options.poll = Duration::from_millis(50);
        })
        .await;
    let receipts = answers.await_answered(1, SOON).await;
    assert!(receipts.iter().all(Receipt::accepted));
    let left: i64 = world.one("SELECT count(*) FROM payment_outbox_pending").await;
    assert!(left > 320, "{left} of 400 still wait in front of it");
    gate.open();
    hangs.await_answered(400, SOON).await;
    node.stop(SOON).await;
}

/// The groups of a stopped rail are looked at now and then; once it goes on, at once. Nothing of it begins meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn s3_a_stopped_rails_groups_rest_and_go_on() {
    let world = World::new().await;
    let rail = FakeRail::start().await;
    rails::switch(&world.store, "payment_webhook", true, OPERATOR).await.unwrap();
    for n in 0..20 {
        world.pay(&rail, &format!("g{}", n % 10), &format!("k{n}")).await;
        let alone = Item::payment(&world, &rail.url(), "g", &format!("alone-{n}")).mode("IMMEDIATE");
        alone.by(&world.sql).await.unwrap();
    }
    let node = world.node().await;
    let due = "SELECT (SELECT count(*) FROM ready_group WHERE due_at <= clock_timestamp())
                    + (SELECT count(*) FROM payment_outbox_pending
                       WHERE participant_id IS NULL AND next_attempt_at <= clock_timestamp())";
    eventually(SOON, "they rest", || async { world.one::<i64>(due).await == 0 }).await;
    node.stop(SOON).await;
    assert_eq!(rail.receipts().len(), 0);

    rails::switch(&world.store, "payment_webhook", false, OPERATOR).await.unwrap();
    assert_eq!(world.one::<i64>(due).await, 30, "ten groups and twenty messages without order");
    let node = world.node().await;
    rail.await_answered(40, SOON).await;
    assert_eq!(rail.order_violations(), [] as [&str; 0]);
    node.stop(SOON).await;
}

/// More due jobs of one group than fit into a page, and an open producer on that group: another group's job, due after
/// them all, is promoted and delivered meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn s3_due_jobs_behind_an_open_producer_hide_nobody() {
    let world = World::new().await;
    let rail = FakeRail::start().await;
    world
        .sql
        .execute(
            "SELECT count(enqueue_payment_outbox('k' || n, 'busy', 's', 'payment_webhook',
                '{\"amount\":\"1\",\"currency\":\"EUR\",\"destination\":\"d\"}'::bytea, $1, $2,
                p_scheduled_for => clock_timestamp() + interval '1 second'))
             FROM generate_series(1, 600) n",
            &[&rail.url(), &world.credentials.0],
        )
        .await
        .unwrap();
    let producer = world.db.connect().await;
    producer.batch_execute("BEGIN").await.unwrap();
    Item::payment(&world, &rail.url(), "busy", "open").by(&producer).await.unwrap();
    let free = Item::payment(&world, &rail.url(), "free", "free").scheduled_in_ms(1500);
    let free = free.by(&world.sql).await.unwrap().to_string();
    let node = world.node().await;
    let receipts = rail.await_answered(1, SOON).await;
    assert_eq!(receipts.iter().map(Receipt::message_key).collect::<Vec<_>>(), [free]);
    let waiting = "SELECT count(*) FROM scheduled_job WHERE due_at <= clock_timestamp()";
    assert_eq!(world.one::<i64>(waiting).await, 600);
    producer.batch_execute("COMMIT").await.unwrap();
    eventually(SOON, "all are promoted", || async { world.one::<i64>(waiting).await == 0 }).await;
    node.stop(SOON).await;
}
