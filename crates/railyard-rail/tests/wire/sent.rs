//! What is on the wire.

use bytes::Bytes;
use railyard_core::headers::is_reserved;
use railyard_core::ids::ParticipantId;
use railyard_core::rail::RailKind;
use railyard_core::signing::{TOLERANCE_DEFAULT, flowcatalyst, standard};
use railyard_core::{CallOutcome, ErrorCode};
use railyard_rail::{Call, Client, Credentials, RailOptions, Schemes, SigningSecrets};
use zeroize::Zeroizing;

use crate::client::{SECRET, always, client, deliver, deliver_with, message, now, pay};
use crate::receiver::{Act, Receiver, split, values};

#[tokio::test]
async fn s3_13_the_bytes_and_the_headers_of_the_contract() {
    let receiver = Receiver::start(Act::answer(200, "ok")).await;
    let mut message = message(&receiver.url());
    message.payload = Bytes::from_static(
        br#"{"bb": 1, "a":1.10,  "a":2, "e":1e2, "big":12345678901234567890.000, "u":"\u00e9\u001B\/"}"#,
    );
    message.payload_content_type = "application/json; charset=utf-8".to_owned();
    message.headers = vec![("X-Custom-Header".to_owned(), "Müller".to_owned())];
    message.traceparent = Some("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".to_owned());
    let secrets = SigningSecrets { current: Zeroizing::new(SECRET.to_owned()), next: None };
    let credentials =
        Credentials::new(Some(Zeroizing::new("sk_live_abc".to_owned())), secrets, Schemes::default()).unwrap();
    let rail = RailOptions::new(RailKind::Webhook);
    let call = Call {
        message: &message,
        rail: &rail,
        credentials: &credentials,
        may_write: always(),
        permit: None,
        now: now(),
    };
    let called = client().call(call).await;
    assert!(matches!(called.outcome, CallOutcome::Delivered(_)), "{called:?}");
    assert!(called.latency.is_some());

    let (head, body) = receiver.request();
    assert_eq!(body, message.payload);
    assert!(head.starts_with("POST /hook?x=1 HTTP/1.1\r\n"), "{head}");
    let id = message.outbox_id.to_string();
    for (name, expect) in [
        ("Content-Type", "application/json; charset=utf-8"),
        ("Content-Length", message.payload.len().to_string().as_str()),
        ("Host", format!("127.0.0.1:{}", receiver.port()).as_str()),
        ("User-Agent", concat!("Railyard/", env!("CARGO_PKG_VERSION"))),
        ("X-Custom-Header", "Müller"),
        ("Authorization", "Bearer sk_live_abc"),
        ("X-FLOWCATALYST-TIMESTAMP", "2025-10-04T14:30:45.123Z"),
        ("webhook-id", &id),
        ("webhook-timestamp", "1759588245"),
        ("Idempotency-Key", &id),
        ("X-Railyard-Group", "debtor-1"),
        ("X-Railyard-Sequence", "7"),
        ("X-Railyard-Attempt", "3"),
        ("traceparent", message.traceparent.as_deref().unwrap()),
    ] {
        assert_eq!(values(&head, name), [expect], "{name}");
    }
    let [signature] = values(&head, flowcatalyst::SIGNATURE_HEADER)[..] else { panic!("one signature") };
    let time = values(&head, flowcatalyst::TIMESTAMP_HEADER)[0];
    assert_eq!(flowcatalyst::verify(SECRET.as_bytes(), time, signature, &body, now(), TOLERANCE_DEFAULT), Ok(()));
    let [signature] = values(&head, standard::SIGNATURE_HEADER)[..] else { panic!("one signature") };
    assert_eq!(standard::verify(SECRET, &id, "1759588245", signature, &body, now(), TOLERANCE_DEFAULT), Ok(()));
    assert!(values(&head, "accept-encoding").is_empty() && values(&head, "transfer-encoding").is_empty());
}

#[tokio::test]
async fn s3_15_each_attempt_is_signed_afresh() {
    let keep = Act::Keep(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".to_vec());
    let receiver = Receiver::start(keep).await;
    let (client, message) = (client(), message(&receiver.url()));
    let rail = RailOptions::new(RailKind::Webhook);
    let credentials = Credentials::with_secret(SECRET).unwrap();
    let mut sent = Vec::new();
    for later_s in [0, 301] {
        let now = now() + jiff::SignedDuration::from_secs(later_s);
        let call =
            Call { message: &message, rail: &rail, credentials: &credentials, may_write: always(), permit: None, now };
        assert!(matches!(client.call(call).await.outcome, CallOutcome::Delivered(_)));
        let bytes = receiver.seen().last().unwrap().bytes.clone();
        let before: usize = sent.iter().map(Vec::len).sum();
        sent.push(bytes[before..].to_vec());
    }
    // One connection carried both.
    assert_eq!(receiver.seen().len(), 1);
    let of = |bytes: &[u8], name| values(&split(bytes).0, name)[0].to_owned();
    assert_eq!(of(&sent[1], flowcatalyst::TIMESTAMP_HEADER), "2025-10-04T14:35:46.123Z");
    for name in [flowcatalyst::SIGNATURE_HEADER, standard::SIGNATURE_HEADER] {
        assert_ne!(of(&sent[0], name), of(&sent[1], name));
    }
    assert_eq!(of(&sent[0], standard::ID_HEADER), of(&sent[1], standard::ID_HEADER));
    assert_eq!(split(&sent[0]).1, split(&sent[1]).1);
}

#[tokio::test]
async fn s3_16_headers_that_would_stand_in_for_ours_are_never_sent() {
    let receiver = Receiver::start(Act::answer(200, "")).await;
    for name in ["x-FlowCatalyst-Signature", "AUTHORIZATION", "Webhook-Signature", "host", "a\r\nb", "Content-Length"] {
        let mut message = message(&receiver.url());
        message.headers = vec![(name.to_owned(), "x".to_owned())];
        let outcome = deliver(&message).await.outcome;
        let CallOutcome::Failed { code: ErrorCode::InvalidRequest, detail, retryable: false, .. } = outcome else {
            panic!("{name}: {outcome:?}")
        };
        assert!(is_reserved(name) || detail.contains("name"), "{detail}");
    }
    assert!(receiver.seen().is_empty());
}

#[tokio::test]
async fn an_empty_payload_is_signed_and_a_big_one_arrives_whole() {
    let receiver = Receiver::start(Act::answer(200, "")).await;
    let mut message = message(&receiver.url());
    message.payload = Bytes::new();
    assert!(matches!(deliver(&message).await.outcome, CallOutcome::Delivered(_)));
    let (head, body) = receiver.request();
    assert_eq!((values(&head, "content-length"), body.len()), (vec!["0"], 0));
    let signature = values(&head, flowcatalyst::SIGNATURE_HEADER)[0];
    let time = values(&head, flowcatalyst::TIMESTAMP_HEADER)[0];
    assert_eq!(flowcatalyst::verify(SECRET.as_bytes(), time, signature, b"", now(), TOLERANCE_DEFAULT), Ok(()));

    let receiver = Receiver::start(Act::answer(200, "")).await;
    message.target_url = receiver.url();
    message.payload = (0..3_000_001_u32).map(|n| n.to_le_bytes()[0]).collect();
    assert!(matches!(deliver(&message).await.outcome, CallOutcome::Delivered(_)));
    assert!(receiver.request().1 == message.payload);
}

#[tokio::test]
async fn a_group_that_came_by_sql_cannot_break_the_head() {
    let receiver = Receiver::start(Act::answer(200, "")).await;
    let mut message = message(&receiver.url());
    message.participant_id = Some(ParticipantId::new("a\r\nX-FLOWCATALYST-SIGNATURE: 0 東京"));
    assert!(matches!(deliver(&message).await.outcome, CallOutcome::Delivered(_)));
    let (head, _) = receiver.request();
    assert_eq!(values(&head, "x-railyard-group"), ["a%0D%0AX-FLOWCATALYST-SIGNATURE: 0 東京"]);
    assert_eq!(values(&head, flowcatalyst::SIGNATURE_HEADER).len(), 1);
}

#[tokio::test]
async fn s2_13_a_bad_payment_never_reaches_the_rail() {
    let receiver = Receiver::start(Act::answer(200, "")).await;
    let rail = RailOptions::new(RailKind::Payment);
    let mut message = message(&receiver.url());
    for (payload, expect) in [
        (r#"{"amount":"0.00","currency":"EUR","destination":"x"}"#, ErrorCode::InvalidAmount),
        (r#"{"amount":1,"currency":"eur","destination":"x"}"#, ErrorCode::InvalidCurrency),
        (r#"{"amount":1,"currency":"EUR","destination":" "}"#, ErrorCode::InvalidDestination),
        ("[]", ErrorCode::InvalidPayload),
    ] {
        message.payload = Bytes::from_static(payload.as_bytes());
        let outcome = pay(&message, &rail).await;
        assert!(
            matches!(&outcome, CallOutcome::Failed { code, retryable: false, answer: None, .. } if *code == expect),
            "{outcome:?}"
        );
    }
    assert!(receiver.seen().is_empty());
    message.payload = Bytes::from_static(br#"{"amount":"12.50","currency":"EUR","destination":"DE89"}"#);
    assert!(matches!(pay(&message, &rail).await, CallOutcome::Delivered(_)));
}

/// A call can be awaited by an actor on any thread, by many at once.
#[tokio::test]
async fn one_client_serves_many() {
    fn shared<T: Send + Sync + Clone + 'static>(_: &T) {}
    fn movable<T: Send>(value: T) -> T {
        value
    }
    let receiver = Receiver::start(Act::answer(200, "")).await;
    let client: Client = client();
    shared(&client);
    let messages: Vec<_> = (0..20).map(|_| message(&receiver.url())).collect();
    let calls = messages.iter().map(|message| movable(deliver_with(&client, message, always())));
    let called = futures_util::future::join_all(calls).await;
    assert!(called.iter().all(|called| matches!(called.outcome, CallOutcome::Delivered(_))));
}
