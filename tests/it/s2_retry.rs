//! S2-11 to S2-15, S2-21, S2-22 and S2-33: failures, refusals, budgets and bounds.

use std::time::Duration;

use railyard_core::OutboxId;
use railyard_store::work::Settled;
use railyard_testkit::{FakeRail, Gate, eventually};
use serde_json::{Value, json};

use crate::hand::{Hand, LONG, delivered, failed, make_due, pass_deadline};
use crate::producer::{Item, eager, sqlstate};
use crate::world::{SOON, World};

const NOWHERE: &str = "http://127.0.0.1:9/";

/// A failure that may pass keeps id and place and comes again after 1, 2, 4 … 60 s, a tenth more or less.
#[tokio::test(flavor = "multi_thread")]
async fn s2_11_a_retry_waits_longer_each_time() {
    let world = World::new().await;
    let rail = FakeRail::start().await.status(500).forever();
    let node = world.node_with(eager).await;
    let id = world.pay(&rail, "g", "one").await;
    for (n, step) in (1_i64..).zip([1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]) {
        let attempts = format!(
            "SELECT count(*) FROM payment_outbox_attempt_archive WHERE state = 'RETRYABLE' AND attempt_no <= {n}"
        );
        eventually(SOON, "the attempt is on record", || async { world.one::<i64>(&attempts).await == n }).await;
        let waits = "SELECT extract(epoch FROM p.next_attempt_at - a.recorded_at)::float8, p.outbox_id, p.sequence_id, p.failures
                     FROM payment_outbox_pending p JOIN payment_outbox_attempt_archive a USING (outbox_id)
                     WHERE a.attempt_no = p.attempt_count";
        let row = world.sql.query_one(waits, &[]).await.unwrap();
        let wait: f64 = row.get(0);
        assert!((step * 0.9 - 0.1..=(step * 1.1_f64).min(60.0) + 0.1).contains(&wait), "{wait} s after failure {n}");
        assert_eq!((row.get::<_, uuid::Uuid>(1), row.get::<_, i64>(2)), (id, 1));
        assert_eq!(i64::from(row.get::<_, i32>(3)), n);
        make_due(&world.sql).await;
    }
    node.stop(SOON).await;
}

/// Answers of a payment rail, and what each means: FAILED ends the message, RETRYABLE does not.
fn answers() -> Vec<(&'static str, u16, Value, &'static str)> {
    vec![
        ("a code of the table ends it", 422, json!({ "railCode": "CLOSED" }), "FAILED/RAIL_REFUSED"),
        ("under its other name too", 500, json!({ "code": "CLOSED" }), "FAILED/RAIL_REFUSED"),
        ("an unknown code may pass", 422, json!({ "railCode": "ODD" }), "RETRYABLE/HTTP_422"),
        ("part of a code is no code", 422, json!({ "railCode": "NOT_CLOSED" }), "RETRYABLE/HTTP_422"),
        ("nor in other letters", 422, json!({ "railCode": "closed" }), "RETRYABLE/HTTP_422"),
        ("nor in a text", 500, json!({ "railCode": "ODD", "message": "CLOSED" }), "RETRYABLE/HTTP_500"),
        ("the flag wins over the table", 422, json!({ "railCode": "CLOSED", "retryable": true }), "RETRYABLE/HTTP_422"),
        ("and over an unknown code", 500, json!({ "railCode": "ODD", "retryable": false }), "FAILED/RAIL_REFUSED"),
    ]
}

/// The rail's table decides, letter for letter; an explicit flag wins. What is FAILED has left pending for good.
#[tokio::test(flavor = "multi_thread")]
async fn s2_12_codes_decide_letter_for_letter() {
    let world = World::new().await;
    let mut rail = FakeRail::start().await;
    let mut ids = Vec::new();
    for (n, (_, status, body, _)) in answers().into_iter().enumerate() {
        let group = format!("g{n}");
        rail = rail.for_group(&group).json(status, &body).forever();
        ids.push(OutboxId(world.pay(&rail, &group, &group).await));
    }
    let node = world
        .node_with(|options| {
            options.rails.get_mut("payment_webhook").unwrap().terminal_codes = vec!["CLOSED".to_owned()];
            options.http.breaker.calls_min = 10_000;
        })
        .await;
    for (id, (why, _, _, expected)) in ids.into_iter().zip(answers()) {
        let first = async || world.history(id).await.first().filter(|state| *state != "DISPATCHING").cloned();
        let state = railyard_testkit::eventually_some(SOON, "an attempt is on record", first).await;
        assert_eq!(state, expected, "{why}");
        let ended = expected.starts_with("FAILED");
        let places = "SELECT (SELECT count(*) FROM payment_outbox_pending WHERE outbox_id = $1)
                        + (SELECT count(*) FROM in_flight WHERE outbox_id = $1),
                      (SELECT count(*) FROM dispatch_job_outcome WHERE outbox_id = $1 AND status = 'ERROR')";
        let row = world.sql.query_one(places, &[&id.0]).await.unwrap();
        assert_eq!((row.get::<_, i64>(0), row.get::<_, i64>(1)), if ended { (0, 1) } else { (1, 0) }, "{why}");
    }
    node.stop(SOON).await;
}

/// A payment with a bad amount, currency or destination fails by itself; the rail never hears of it.
#[tokio::test(flavor = "multi_thread")]
async fn s2_13_a_bad_payment_never_reaches_the_rail() {
    let world = World::new().await;
    let rail = FakeRail::start().await;
    let node = world.node().await;
    let bad = [
        (r#"{"amount":"0.00","currency":"EUR","destination":"x"}"#, "FAILED/INVALID_AMOUNT"),
        (r#"{"amount":-1,"currency":"EUR","destination":"x"}"#, "FAILED/INVALID_AMOUNT"),
        (r#"{"currency":"EUR","destination":"x"}"#, "FAILED/INVALID_AMOUNT"),
        (r#"{"amount":1,"currency":"eur","destination":"x"}"#, "FAILED/INVALID_CURRENCY"),
        (r#"{"amount":1,"currency":"EURO","destination":"x"}"#, "FAILED/INVALID_CURRENCY"),
        (r#"{"amount":1,"currency":"EUR","destination":"  "}"#, "FAILED/INVALID_DESTINATION"),
        (r#"{"amount":1,"currency":"EUR"}"#, "FAILED/INVALID_DESTINATION"),
    ];
    for (n, (payload, expected)) in bad.iter().enumerate() {
        let key = format!("g{n}");
        let item = Item::payment(&world, &rail.url(), &key, &key).payload(payload.as_bytes());
        let id = OutboxId(item.by(&world.sql).await.unwrap());
        world.ended(id).await;
        assert_eq!(world.history(id).await, [*expected], "{payload}");
    }
    // 0.1 is no binary fraction, 1e-30 is above zero, and 0.0000000000000000000000000000000001 as well.
    for (n, amount) in ["0.1", "1e-30", "\"0.0000000000000000000000000000000001\""].iter().enumerate() {
        let payload = format!(r#"{{"amount":{amount},"currency":"EUR","destination":"x"}}"#);
        let item = Item::payment(&world, &rail.url(), "good", &format!("good{n}")).payload(payload.as_bytes());
        item.by(&world.sql).await.unwrap();
    }
    let receipts = rail.await_answered(3, SOON).await;
    assert!(receipts.iter().all(|r| r.group() == Some("good")), "{receipts:?}");
    node.stop(SOON).await;
}

/// A rail that takes the request and stays silent: the call is aborted at its deadline, 30 s unless the message says
/// otherwise, and tried again.
#[tokio::test(flavor = "multi_thread")]
async fn s2_14_a_silent_rail_is_aborted_and_tried_again() {
    let world = World::new().await;
    let rail = FakeRail::start().await.silence().then_ok();
    let node = world.node().await;
    let item = Item::payment(&world, &rail.url(), "g", "one").timeout_ms(1000).retry("immediate");
    let id = OutboxId(item.by(&world.sql).await.unwrap());
    world.ended(id).await;
    assert_eq!(world.history(id).await, ["RETRYABLE/DISPATCH_TIMEOUT", "DISPATCHED"]);
    let latency = world.attempts(id).await[0].latency_ms.unwrap();
    assert!((1000..2000).contains(&latency), "aborted after {latency} ms");
    let receipts = rail.receipts();
    assert!(receipts[0].client_aborted && receipts[0].finished_at.unwrap() <= receipts[1].first_byte_at);
    let other = OutboxId(world.pay(&rail, "h", "two").await);
    let default: i32 = world.one("SELECT timeout_ms FROM dispatch_job ORDER BY outbox_id DESC LIMIT 1").await;
    assert_eq!(default, 30_000);
    world.ended(other).await;
    node.stop(SOON).await;
}

/// Looks that the node's poller has taken at the database.
async fn looks(node: &railyard_node::Node) -> u64 {
    node.observe().await["actors"]["poller"]["looks"].as_u64().unwrap_or(0)
}

/// Never more calls at once than the node may have, than one endpoint may have, and than a rail may have.
#[tokio::test(flavor = "multi_thread")]
async fn s2_15_no_more_calls_at_once_than_configured() {
    let world = World::new().await;
    let gate = Gate::closed();
    let one = FakeRail::start().await.ok().hold_until(&gate).forever();
    let two = FakeRail::start().await.ok().hold_until(&gate).forever();
    for n in 0..12 {
        world.pay(if n % 2 == 0 { &one } else { &two }, &format!("g{n}"), &format!("k{n}")).await;
    }
    let open = || one.exchanges().len() + two.exchanges().len();

    let node = world
        .node_with(|options| {
            eager(options);
            options.calls_in_flight = 3;
        })
        .await;
    eventually(SOON, "three calls are out", || async { gate.waiting() == 3 }).await;
    let before = looks(&node).await;
    eventually(SOON, "the node has looked for more", || async { looks(&node).await >= before + 10 }).await;
    assert_eq!(open(), 3, "calls of one node");
    // Killing the node would leave its calls in doubt; the gate lets them end.
    gate.open();
    one.await_answered(6, SOON).await;
    two.await_answered(6, SOON).await;
    node.stop(SOON).await;

    gate.close();
    for n in 0..12 {
        world.pay(if n % 2 == 0 { &one } else { &two }, &format!("h{n}"), &format!("l{n}")).await;
    }
    let node = world
        .node_with(|options| {
            eager(options);
            options.http.endpoint_concurrency = 2;
        })
        .await;
    eventually(SOON, "two calls to each are out", || async { gate.waiting() == 4 }).await;
    let before = looks(&node).await;
    eventually(SOON, "the node has looked for more", || async { looks(&node).await >= before + 10 }).await;
    assert_eq!((one.exchanges().len(), two.exchanges().len()), (6 + 2, 6 + 2), "calls of one endpoint");
    gate.open();
    one.await_answered(12, SOON).await;
    two.await_answered(12, SOON).await;
    node.stop(SOON).await;

    // A rail's own bound holds over all its endpoints, and keeps no slot from another rail.
    gate.close();
    for n in 0..12 {
        world.pay(if n % 2 == 0 { &one } else { &two }, &format!("i{n}"), &format!("m{n}")).await;
    }
    let node = world
        .node_with(|options| {
            eager(options);
            options.calls_in_flight = 4;
            options.rails.get_mut("payment_webhook").unwrap().calls_in_flight = Some(3);
        })
        .await;
    eventually(SOON, "three calls of the rail are out", || async { gate.waiting() == 3 }).await;
    let before = looks(&node).await;
    eventually(SOON, "the node has looked for more", || async { looks(&node).await >= before + 10 }).await;
    assert_eq!(open(), 24 + 3, "calls of one rail");
    let free = FakeRail::start().await;
    Item::webhook(&world, &free.url(), "another rail", "n").by(&world.sql).await.unwrap();
    free.await_answered(1, SOON).await;
    assert_eq!(open(), 24 + 3);
    gate.open();
    one.await_answered(18, SOON).await;
    two.await_answered(18, SOON).await;
    node.stop(SOON).await;
}

/// Attempts are numbered 1, 2, 3 … through failures and through attempts that were given up, and the database refuses
/// a number twice.
#[tokio::test]
async fn s2_21_attempts_are_numbered_through() {
    let world = World::new().await;
    world.sql.batch_execute("UPDATE rail SET on_unknown = 'retry'").await.unwrap();
    let hand = Hand::join(&world.store, LONG).await;
    let id = OutboxId(Item::payment(&world, NOWHERE, "g", "one").by(&world.sql).await.unwrap());
    for give_up in [false, true, true, false] {
        let begun = hand.begin(&world.sql, "g").await.unwrap();
        if give_up {
            pass_deadline(&world.sql, &begun).await;
            assert_eq!(hand.heal(&[&begun]).await.len(), 1);
        } else {
            hand.settle(&begun, failed()).await;
        }
        make_due(&world.sql).await;
    }
    let last = hand.begin(&world.sql, "g").await.unwrap();
    assert_eq!(world.history(id).await.last().unwrap(), "DISPATCHING");
    hand.settle(&last, delivered()).await;
    let history: Vec<String> =
        world.attempts(id).await.iter().map(|a| format!("{} {}", a.attempt_no, a.state.as_str())).collect();
    assert_eq!(history, ["1 RETRYABLE", "2 ZOMBIE_REQUEUE", "3 ZOMBIE_REQUEUE", "4 RETRYABLE", "5 DISPATCHED"]);
    let again = "INSERT INTO payment_outbox_attempt_archive (outbox_id, attempt_no, late, attempt_id, state, rail_type, epoch,
                   node_id, claimed_at, recorded_at)
                 SELECT outbox_id, attempt_no, late, gen_random_uuid(), 'RETRYABLE', rail_type, epoch, node_id, claimed_at,
                   recorded_at FROM payment_outbox_attempt_archive WHERE attempt_no = 2";
    assert_eq!(sqlstate(&world.sql.execute(again, &[]).await.unwrap_err()), "23505");
}

/// The twentieth failure of a payment ends it as RETRY_CEILING_EXCEEDED; a message may name another ceiling.
#[tokio::test(flavor = "multi_thread")]
async fn s2_22_the_ceiling_ends_a_message() {
    let world = World::new().await;
    let rail = FakeRail::start().await.status(500).forever();
    let node = world.node_with(eager).await;
    for (ceiling, calls) in [(None, 20), (Some(3), 3), (Some(1), 1)] {
        let group = format!("g{calls}");
        let mut item = Item::payment(&world, &rail.url(), &group, &group).retry("immediate");
        if let Some(ceiling) = ceiling {
            item = item.max_attempts(ceiling);
        }
        let id = OutboxId(item.by(&world.sql).await.unwrap());
        world.ended(id).await;
        let mut expected = vec!["RETRYABLE/HTTP_500"; calls - 1];
        expected.push("FAILED/RETRY_CEILING_EXCEEDED");
        assert_eq!(world.history(id).await, expected);
        let called = rail.receipts().iter().filter(|r| r.group() == Some(&group)).count();
        assert_eq!(called, calls);
    }
    node.stop(SOON).await;
}

/// Giving up an attempt spends the budget as well: where it is the last, repair ends the message.
#[tokio::test]
async fn s2_22_the_ceiling_holds_in_repair() {
    let world = World::new().await;
    world.sql.batch_execute("UPDATE rail SET on_unknown = 'retry'").await.unwrap();
    let hand = Hand::join(&world.store, LONG).await;
    let item = Item::payment(&world, NOWHERE, "g", "one").max_attempts(2);
    let id = OutboxId(item.by(&world.sql).await.unwrap());
    let first = hand.begin(&world.sql, "g").await.unwrap();
    hand.settle(&first, failed()).await;
    make_due(&world.sql).await;
    let second = hand.begin(&world.sql, "g").await.unwrap();
    pass_deadline(&world.sql, &second).await;
    hand.heal(&[&second]).await;
    assert_eq!(world.history(id).await, ["RETRYABLE/HTTP_500", "FAILED/RETRY_CEILING_EXCEEDED"]);
    world.ended(id).await;
    let held: String = world.one("SELECT kind FROM group_hold WHERE participant_id = 'g'").await;
    assert_eq!(held, "blocked", "a payment that failed blocks its group, in repair too");
    assert!(matches!(hand.settle(&second, failed()).await, Settled::Late(_)));
}

/// Every attempt carries the message's id as Idempotency-Key, through failures, lost answers and another node.
#[tokio::test(flavor = "multi_thread")]
async fn s2_33_every_attempt_carries_the_same_key() {
    let world = World::new().await;
    let rail = FakeRail::start().await.fails(1).reset().close().then_ok();
    let first = world.node().await;
    let item = Item::payment(&world, &rail.url(), "g", "one").retry("fixed");
    let id = OutboxId(item.by(&world.sql).await.unwrap());
    rail.await_receipts(2, SOON).await;
    first.stop(Duration::from_secs(5)).await;
    let second = world.node().await;
    world.ended(id).await;
    let receipts = rail.receipts();
    let keys: Vec<&str> = receipts.iter().map(|r| r.idempotency_key().unwrap()).collect();
    assert_eq!(keys, vec![id.to_string(); 4]);
    assert_eq!(receipts.iter().map(|r| r.attempt().unwrap()).collect::<Vec<_>>(), [1, 2, 3, 4]);
    second.stop(SOON).await;
}
