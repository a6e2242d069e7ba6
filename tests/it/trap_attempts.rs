//! Whatever goes wrong with a call, it counts: a budget of three is three attempts, three rows, and the end.

use railyard_core::OutboxId;
use railyard_testkit::{FakeRail, Reply, free_port};
use serde_json::json;

use crate::producer::{Item, eager};
use crate::world::{SOON, World};

/// Ways to fail that reach the receiver, and what an attempt at each is called.
fn ways() -> Vec<(&'static str, Reply, &'static str)> {
    let nul = Reply::status(500).with_body(&b"\0bad \xff\xfe\x1b[31m \xed\xa0\x80 \0"[..]);
    let odd = br#"{"railCode":"\u0000\ud800","railReference":"\u0000","message":"\u0000"}"#;
    vec![
        ("forbidden", Reply::status(403), "HTTP_403"),
        ("error", Reply::status(500), "HTTP_500"),
        ("reset", Reply::Reset, "CONNECTION_RESET"),
        ("closed", Reply::Close, "CONNECTION_CLOSED"),
        ("garbage", Reply::Garbage, "PROTOCOL_ERROR"),
        ("silence", Reply::Silence, "DISPATCH_TIMEOUT"),
        ("big", Reply::status(500).with_body(vec![b'x'; 4 << 20]), "HTTP_500"),
        ("nul", nul, "HTTP_500"),
        ("odd-json", Reply::status(502).with_body(&odd[..]), "HTTP_502"),
        ("odd-header", Reply::status(500).with_header("X-Odd", "\u{1}\u{7f}"), "PROTOCOL_ERROR"),
        ("huge-header", Reply::status(500).with_header("X-Huge", &"x".repeat(1 << 20)), "PROTOCOL_ERROR"),
        ("no-status", Reply::status(999), "HTTP_999"),
    ]
}

/// Three attempts with three rows, on either kind of rail; the last is terminal, and the job ends in ERROR.
#[tokio::test(flavor = "multi_thread")]
async fn trap_three_attempts_whatever_goes_wrong() {
    let world = World::new().await;
    let mut rail = FakeRail::start().await;
    let mut expected = Vec::new();
    for (name, reply, code) in ways() {
        for kind in ["webhook", "payment"] {
            let group = format!("{kind}-{name}");
            if (kind, name) == ("payment", "forbidden") {
                continue; // ends a payment at the first: the table of S2-12
            }
            rail = rail.for_group(&group).reply(reply.clone()).forever();
            expected.push((group, rail.url(), code, 3));
        }
    }
    let closed = format!("http://127.0.0.1:{}/", free_port());
    expected.push(("refused-port".to_owned(), closed, "CONNECT_REFUSED", 0));
    expected.push(("bad-name".to_owned(), "http://no-such-host.invalid/".to_owned(), "DNS_FAILED", 0));
    let mut ids = Vec::new();
    for (group, url, _, _) in &expected {
        let item = if group.starts_with("payment") {
            Item::payment(&world, url, group, group)
        } else {
            Item::webhook(&world, url, group, group)
        };
        let item = item.max_attempts(3).retry("immediate").timeout_ms(1000);
        ids.push(OutboxId(item.by(&world.sql).await.unwrap()));
    }
    let node = world.node_with(eager).await;
    for (id, (group, _, code, received)) in ids.into_iter().zip(&expected) {
        let job = world.ended(id).await;
        let rows: Vec<String> = world.history(id).await;
        let again = format!("RETRYABLE/{code}");
        assert_eq!(rows, [&again, &again, "FAILED/RETRY_CEILING_EXCEEDED"], "{group}");
        assert_eq!(job.attempt_count, 3, "{group}");
        let attempts = world.attempts(id).await;
        let last = attempts[2].error_message.as_deref().unwrap_or_default();
        assert!(last.starts_with(&format!("{code}: ")), "{group}: the last failure's own reason is lost: {last}");
        let sent = rail.exchanges().iter().filter(|r| r.group() == Some(group)).count();
        assert_eq!(sent, *received, "{group}");
    }
    let left: i64 =
        world.one("SELECT (SELECT count(*) FROM payment_outbox_pending) + (SELECT count(*) FROM in_flight)").await;
    assert_eq!(left, 0);
    assert_eq!(world.one::<i64>("SELECT count(*) FROM group_hold WHERE kind = 'in_doubt'").await, 0, "quarantined");
    node.stop(SOON).await;
}

/// A success in odd clothes is a success all the same, and is recorded: nothing in an answer can stop the record.
#[tokio::test(flavor = "multi_thread")]
async fn trap_no_answer_can_stop_the_record() {
    let world = World::new().await;
    let odd = [
        Reply::status(200).with_body(vec![b'x'; 4 << 20]),
        Reply::status(200).with_body(&b"\0\xff\xfe\xed\xa0\x80"[..]),
        Reply::json(200, &json!({ "railReference": "r".repeat(100_000), "railCode": "c".repeat(100_000) })),
        Reply::status(200).with_body(&br#"{"railReference":"\u0000\ud800","railCode":"\u0000"}"#[..]),
        Reply::status(200).with_body("[".repeat(100_000)),
        Reply::TruncatedBody { status: 200 },
        Reply::status(204),
        Reply::status(299),
    ];
    let mut rail = FakeRail::start().await;
    let mut ids = Vec::new();
    for (n, reply) in odd.iter().enumerate() {
        let group = format!("g{n}");
        rail = rail.for_group(&group).reply(reply.clone()).forever();
        ids.push(OutboxId(world.pay(&rail, &group, &group).await));
    }
    let node = world.node_with(eager).await;
    for (id, reply) in ids.into_iter().zip(&odd) {
        world.ended(id).await;
        assert_eq!(world.history(id).await, ["DISPATCHED"], "{:?}", reply.code());
    }
    assert_eq!(rail.receipts().len(), odd.len());
    node.stop(SOON).await;
}
