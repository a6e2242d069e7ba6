//! What one process owes when it is killed, asked to end, or killed by what it is given.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use railyard_testkit::verify::Verdict;
use railyard_testkit::{FakeRail, Gate, eventually, verify};
use serde_json::json;

use crate::fleet::{Fleet, LATER};
use crate::producer::Item;
use crate::record::{Record, misplaced};
use crate::world::{SECRET, SOON};

/// S3-38 and the first trap: killed after the receiver said 200 and before that is recorded. It is sent once more: the
/// same id and bytes, a fresh timestamp, the next number. The interrupted attempt reads as unknown, and the next
/// message of the group comes after.
#[tokio::test(flavor = "multi_thread")]
async fn s3_38_killed_between_answer_and_record() {
    let fleet = Fleet::new().await;
    let rail = FakeRail::start().await;
    let node = fleet.node("killed");
    node.set_failpoint("after_call");
    fleet.payment(&rail.url(), "group", "one").by(&fleet.world.sql).await.unwrap();
    fleet.payment(&rail.url(), "group", "two").by(&fleet.world.sql).await.unwrap();
    node.start();
    assert_eq!(node.await_exit(SOON).await, -9);
    assert_eq!(rail.receipts().iter().filter(|r| r.accepted()).count(), 1);
    node.clear_failpoint();
    node.start();
    let receipts = rail.await_answered(3, LATER).await;
    fleet.all_completed(2).await;
    let [first, again, next] = &receipts[..] else { panic!("{} requests", receipts.len()) };
    assert_eq!((first.idempotency_key(), &first.body), (again.idempotency_key(), &again.body));
    assert_eq!((first.attempt(), again.attempt(), next.sequence()), (Some(1), Some(2), Some(2)));
    let stamp = "X-FLOWCATALYST-TIMESTAMP";
    assert!(first.header(stamp) < again.header(stamp), "{:?} {:?}", first.header(stamp), again.header(stamp));
    assert_eq!(verify::signature_failures(&receipts, SECRET), verify::NONE);
    let record = Record::read(&fleet.world.sql).await;
    let state = |receipt| record.of(receipt).unwrap().state.as_str();
    assert_eq!([state(first), state(again), state(next)], ["ZOMBIE_REQUEUE", "DISPATCHED", "DISPATCHED"]);
    let given_up = record.of(first).unwrap();
    assert_eq!((given_up.response_code, given_up.error_code.as_deref()), (None, Some("ZOMBIE_REQUEUE")));
}

/// Every job that got 201 is delivered although the node is killed right after saying so, and before it delivered it.
#[tokio::test(flavor = "multi_thread")]
async fn trap_accepted_and_killed_before_the_hand_over() {
    let fleet = Fleet::new().await;
    let gate = Gate::closed();
    let rail = FakeRail::start().await.otherwise().hold_until(&gate);
    let node = fleet.ready("killed").await;
    let mut bodies = HashMap::new();
    for n in 0..40 {
        let payload = format!("{{\"n\":{n}}}");
        let job = json!({
            "source": "test", "type": "made", "groupId": format!("group-{}", n % 8), "targetUrl": rail.url(),
            "payload": payload, "payloadContentType": "application/json",
            "credentialsId": fleet.world.credentials.to_string(), "idempotencyKey": format!("key-{n}"),
            "timeoutSeconds": 5,
        });
        let made = node.http().post("/api/dispatch/jobs", &job).await.unwrap().expect_status(201).json();
        bodies.insert(made["id"].as_str().unwrap().to_owned(), payload.into_bytes());
    }
    node.kill9();
    gate.open();
    node.start();
    fleet.all_completed(bodies.len()).await;
    let receipts = rail.receipts();
    Verdict::of(&receipts, &bodies, SECRET).assert_clean();
    assert_eq!(Record::read(&fleet.world.sql).await.unexplained(&receipts), verify::NONE);
}

/// A message that kills whoever calls for it is parked after three heals, and its followers stand; others go on.
#[tokio::test(flavor = "multi_thread")]
async fn trap_work_that_kills_the_process_is_parked() {
    let fleet = Fleet::with(|sandbox| {
        sandbox
            .with_toml("[rails.payment_webhook]\nkind = \"payment\"\nidempotent = true\n")
            .set("reaper.zombies_max", 3)
    })
    .await;
    let rail = FakeRail::start().await;
    let poison = fleet.payment(&rail.url(), "poison", "one").by(&fleet.world.sql).await.unwrap();
    fleet.payment(&rail.url(), "poison", "two").by(&fleet.world.sql).await.unwrap();
    let node = fleet.node("killed");
    node.set_failpoint("before_call");
    for _ in 0..3 {
        node.start();
        assert_eq!(node.await_exit(LATER).await, -9, "it calls, and dies of it");
    }
    // The fourth start heals for the third time and calls no more.
    node.start();
    eventually(LATER, "the message is parked", || async {
        fleet.world.one::<i64>("SELECT count(*) FROM group_hold WHERE kind = 'in_doubt'").await == 1
    })
    .await;
    assert!(node.is_running());
    node.kill9();
    node.clear_failpoint();
    node.start();
    fleet.payment(&rail.url(), "free", "three").by(&fleet.world.sql).await.unwrap();
    let receipts = rail.await_answered(1, LATER).await;
    assert_eq!(receipts.iter().map(|r| r.group().unwrap()).collect::<Vec<_>>(), ["free"]);
    let zombies: i64 = fleet
        .world
        .one(&format!("SELECT zombies::bigint FROM payment_outbox_pending WHERE outbox_id = '{poison}'"))
        .await;
    assert_eq!((zombies, Record::read(&fleet.world.sql).await.count("ZOMBIE_REQUEUE")), (3, 3));
}

/// SIGTERM while calls are out: they end and are recorded, nothing new begins, the process exits 0 within its grace,
/// and its partitions are free at once. Nothing is lost, repeated, or counted as a failed attempt.
#[tokio::test(flavor = "multi_thread")]
async fn trap_shutdown_is_not_a_failed_attempt() {
    const MESSAGES: usize = 120;
    let fleet = Fleet::holding().await;
    let rail = FakeRail::start().await.takes(Duration::from_millis(100));
    let mut bodies = HashMap::new();
    for n in 0..MESSAGES {
        let item = fleet.payment(&rail.url(), &format!("group-{}", n % 30), &format!("key-{n}"));
        let body = item.bytes().to_vec();
        bodies.insert(item.by(&fleet.world.sql).await.unwrap().to_string(), body);
    }
    let node = fleet.node("stopped");
    for round in 1..=3 {
        node.start();
        let before = rail.receipts().len();
        rail.await_where("calls are out", LATER, |receipts| {
            receipts.len() > before + 5 && receipts.iter().any(|r| r.finished_at.is_none())
        })
        .await;
        node.term();
        assert_eq!(node.await_exit(SOON).await, 0, "round {round}");
        let left = "SELECT (SELECT count(*) FROM in_flight) + (SELECT count(*) FROM node)
                         + (SELECT count(*) FROM partition_lease WHERE owner IS NOT NULL)";
        assert_eq!(fleet.world.one::<i64>(left).await, 0, "round {round}: everything was given back");
        let spent = "SELECT coalesce(max(failures), 0)::bigint FROM payment_outbox_pending";
        assert_eq!(fleet.world.one::<i64>(spent).await, 0, "round {round}: no attempt was spent");
        assert!(rail.exchanges().iter().all(|r| !r.client_aborted && r.finished_at.is_some()));
    }
    node.start();
    fleet.all_completed(MESSAGES).await;
    let receipts = rail.receipts();
    Verdict::of(&receipts, &bodies, SECRET).assert_clean();
    assert_eq!(receipts.len(), MESSAGES, "each was sent once");
    let record = Record::read(&fleet.world.sql).await;
    assert_eq!((record.count("DISPATCHED"), record.count("ZOMBIE_REQUEUE")), (MESSAGES, 0));
    assert_eq!(misplaced(&fleet.world.sql).await, verify::NONE);
}

/// Two hundred calls are out to receivers that do not answer, from a node with five connections: none is held during a
/// call, so the API answers at once and a receiver that does answer gets its message within a second.
#[tokio::test(flavor = "multi_thread")]
async fn trap_slow_receivers_hold_no_connection() {
    const SLOW: usize = 200;
    let fleet = Fleet::with(|sandbox| {
        sandbox
            .set("database.work_connections", 3)
            .set("database.api_connections", 2)
            .set("http.endpoint_concurrency", SLOW)
    })
    .await;
    let gate = Gate::closed();
    let slow = FakeRail::start().await.otherwise().hold_until(&gate);
    let quick = FakeRail::start().await;
    for n in 0..SLOW {
        Item::payment(&fleet.world, &slow.url(), &format!("slow-{n}"), &format!("key-{n}"))
            .by(&fleet.world.sql)
            .await
            .unwrap();
    }
    let node = fleet.ready("node").await;
    eventually(LATER, "all calls are out", || async { gate.waiting() == SLOW }).await;
    let transactions = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
                        AND application_name LIKE 'railyard%' AND state LIKE 'idle in transaction%'";
    // The calls stay out until the gate opens: a transaction held by one of them would be there at every look.
    eventually(SOON, "no transaction is open", || async { fleet.world.one::<i64>(transactions).await == 0 }).await;
    for n in 0..20 {
        let started = Instant::now();
        let job = json!({
            "source": "test", "type": "made", "groupId": "quick", "targetUrl": quick.url(), "payload": "{}",
            "payloadContentType": "application/json", "credentialsId": fleet.world.credentials.to_string(),
            "idempotencyKey": format!("quick-{n}"),
        });
        let made = node.http().post("/api/dispatch/jobs", &job).await.unwrap().expect_status(201).json();
        let answered = started.elapsed();
        let id = made["id"].as_str().unwrap().to_owned();
        quick.await_where("the quick one", SOON, |receipts| receipts.iter().any(|r| r.message_key() == id)).await;
        assert!(answered < Duration::from_secs(1), "the API took {answered:?}");
        assert!(started.elapsed() < Duration::from_secs(2), "delivered after {:?}", started.elapsed());
    }
    assert_eq!(gate.waiting(), SLOW);
    gate.open();
    fleet.all_completed(SLOW + 20).await;
}
