//! S3-13 to S3-16: what goes out, and that only Railyard signs it.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use railyard_core::ParticipantId;
use railyard_core::signing::flowcatalyst;
use railyard_store::StoreError;
use railyard_testkit::{FakeRail, Receipt, verify};
use serde_json::{Value, json};

use crate::world::{SECRET, SOON, TOKEN, World};

/// What a parser would not give back as it was: spaces, a key twice, 1.10, 1e2, a long number, escapes.
pub(crate) const DELICATE: &str =
    concat!(r#"{"bb": 1, "a":1.10,  "a":2, "e":1e2, "big":12345678901234567890.000, "#, r#""u":"\u00e9\u001B\/"}"#);

/// The receiver of the source's document, in another language: age, then the whole signature in constant time.
const RECEIVER: &str = r#"
import base64, datetime, hashlib, hmac, json, sys
for seen in json.load(sys.stdin):
    body = bytes.fromhex(seen["body"])
    at = datetime.datetime.strptime(seen["timestamp"], "%Y-%m-%dT%H:%M:%S.%fZ")
    age = (datetime.datetime.utcnow() - at).total_seconds()
    mac = hmac.new(seen["secret"].encode(), seen["timestamp"].encode() + body, hashlib.sha256).hexdigest()
    fresh = "age" not in seen or abs(age) <= seen["age"]
    right = hmac.compare_digest(mac, seen["signature"])
    if "standard" in seen:
        key = base64.b64decode(seen["secret"].removeprefix("whsec_"))
        said = seen["id"].encode() + b"." + seen["at"].encode() + b"." + body
        mac = base64.b64encode(hmac.new(key, said, hashlib.sha256).digest()).decode()
        right = right and hmac.compare_digest("v1," + mac, seen["standard"])
    print("accepted" if fresh and right else "refused")
"#;

/// What that receiver says to each of these.
fn python(seen: &[Value]) -> Vec<String> {
    let mut child = Command::new("python3")
        .args(["-W", "ignore", "-c", RECEIVER])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(json!(seen).to_string().as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn received(receipt: &Receipt) -> Value {
    let header = |name| receipt.header(name).unwrap_or_default();
    json!({
        "secret": SECRET, "body": hex(&receipt.body), "age": 300,
        "timestamp": header("X-FLOWCATALYST-TIMESTAMP"), "signature": header("X-FLOWCATALYST-SIGNATURE"),
        "id": header("webhook-id"), "at": header("webhook-timestamp"), "standard": header("webhook-signature"),
    })
}

/// The bytes of the payload arrive unchanged on every attempt, with the headers of the contract, each of them once.
#[tokio::test(flavor = "multi_thread")]
async fn s3_13_the_jobs_bytes_with_the_headers_of_the_contract() {
    let world = World::new().await;
    let rail = FakeRail::start().await.fails(2).then_ok();
    let node = world.node().await;
    let id = world
        .hook(&rail.url_for("/hook?x=1"), DELICATE, |job| {
            job.group = Some(ParticipantId::new("group-ü"));
            job.payload_content_type = "application/vnd.order+json; charset=utf-8".to_owned();
            job.headers = vec![("X-Custom".to_owned(), "Müller".to_owned())];
            job.traceparent = Some("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".to_owned());
        })
        .await;
    let receipts = rail.await_answered(3, SOON).await;
    world.ended(id).await;
    let id = id.to_string();
    for (receipt, attempt) in receipts.iter().zip(["1", "2", "3"]) {
        assert_eq!(receipt.body, DELICATE.as_bytes(), "{}", receipt.text());
        assert_eq!((receipt.method.as_str(), receipt.path.as_str()), ("POST", "/hook?x=1"));
        let length = DELICATE.len().to_string();
        for (name, value) in [
            ("Content-Type", "application/vnd.order+json; charset=utf-8"),
            ("Content-Length", &length),
            ("Authorization", &format!("Bearer {TOKEN}")),
            ("X-Custom", "Müller"),
            ("User-Agent", concat!("Railyard/", env!("CARGO_PKG_VERSION"))),
            ("webhook-id", &id),
            ("Idempotency-Key", &id),
            ("X-Railyard-Group", "group-ü"),
            ("X-Railyard-Sequence", "1"),
            ("X-Railyard-Attempt", attempt),
            ("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
        ] {
            assert_eq!(receipt.headers_named(name), [value], "{name}");
        }
        for name in ["X-FLOWCATALYST-SIGNATURE", "X-FLOWCATALYST-TIMESTAMP", "webhook-signature", "webhook-timestamp"] {
            assert_eq!(receipt.headers_named(name).len(), 1, "{name}");
        }
    }
    node.stop(SOON).await;
}

/// A receiver written in another language accepts every signature, over UTF-8, binary and empty bodies.
#[tokio::test(flavor = "multi_thread")]
async fn s3_14_a_receiver_in_another_language_accepts_every_signature() {
    let world = World::new().await;
    let rail = FakeRail::start().await;
    let node = world.node().await;
    let bodies: [&[u8]; 6] = [
        b"",
        b"{}",
        "{\"name\":\"Žofie 東京 🚆\"}".as_bytes(),
        DELICATE.as_bytes(),
        b"\0\xff\xfe\r\n\0",
        &[b'x'; 300_000],
    ];
    for body in bodies {
        world.hook(&rail.url(), Bytes::copy_from_slice(body), |_| {}).await;
    }
    let receipts = rail.await_answered(bodies.len(), SOON).await;
    for body in bodies {
        assert!(receipts.iter().any(|receipt| receipt.body == body), "a body of {} bytes did not arrive", body.len());
    }
    let mut seen: Vec<Value> = receipts.iter().map(received).collect();
    assert_eq!(python(&seen), ["accepted"; 6]);
    for one in &mut seen {
        let body = one["body"].as_str().unwrap().to_owned();
        one["body"] = json!(body + "20");
    }
    assert_eq!(python(&seen), ["refused"; 6], "a receiver that accepts anything shows nothing");
    node.stop(SOON).await;
}

/// The source's vector, an even second, other scripts: what another language computes, in lower-case hex.
#[test]
fn s3_14_vectors_agree_with_another_implementation() {
    let order = br#"{"orderId":"12345","amount":99.99}"#.as_slice();
    let mut seen = Vec::new();
    for (secret, at, body) in [
        ("whsec_xyz789", "2025-10-04T14:30:45.123Z", order),
        ("whsec_xyz789", "2025-10-04T14:30:45.000Z", order),
        ("whsec_xyz789", "2025-10-04T14:30:45.120Z", b"".as_slice()),
        ("klíč-ключ-🔑", "2024-02-29T23:59:59.999Z", "Žofie 東京".as_bytes()),
        ("x", "1970-01-01T00:00:00.001Z", b"\0\xff"),
    ] {
        let signed = flowcatalyst::sign(secret.as_bytes(), at.parse::<Timestamp>().unwrap(), body);
        assert_eq!(signed.timestamp, at);
        let lower = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
        assert!(signed.signature.len() == 64 && signed.signature.bytes().all(lower), "{}", signed.signature);
        seen.push(json!({
            "secret": secret, "timestamp": at, "body": hex(body), "signature": signed.signature,
        }));
    }
    assert_eq!(python(&seen), ["accepted"; 5]);
}

/// A retry is signed anew: a time and a signature of its own, later than the attempt before it; the id stays.
#[tokio::test(flavor = "multi_thread")]
async fn s3_15_each_attempt_is_signed_anew() {
    let world = World::new().await;
    let rail = FakeRail::start().await.status(500).delay(Duration::from_millis(1500)).status(503).then_ok();
    let node = world.node().await;
    world.hook(&rail.url(), "{}", |_| {}).await;
    let receipts = rail.await_answered(3, SOON).await;
    assert_eq!(verify::signature_failures(&receipts, SECRET), verify::NONE);
    assert_eq!(verify::standard_webhook_failures(&receipts, SECRET), verify::NONE);
    assert_eq!(verify::unequal_repeats(&receipts), verify::NONE);
    let at = |n: usize| receipts[n].header("X-FLOWCATALYST-TIMESTAMP").unwrap().parse::<Timestamp>().unwrap();
    let between = at(1).duration_since(at(0));
    assert!(between >= jiff::SignedDuration::from_millis(1400), "attempt 2 was signed {between:#} after attempt 1");
    assert!(at(2) > at(1));
    for name in ["X-FLOWCATALYST-SIGNATURE", "webhook-signature"] {
        assert_ne!(receipts[0].header(name), receipts[1].header(name), "{name}");
    }
    for name in ["webhook-id", "Idempotency-Key"] {
        assert_eq!(receipts[0].header(name), receipts[2].header(name), "{name}");
    }
    node.stop(SOON).await;
}

/// A job's headers that would stand in for ours are refused when it is accepted, whatever the letters.
#[tokio::test(flavor = "multi_thread")]
async fn s3_16_reserved_headers_are_refused_in_any_letters() {
    let world = World::new().await;
    for (name, value) in [
        ("x-FlowCatalyst-Signature", "0"),
        ("X-FLOWCATALYST-TIMESTAMP", "0"),
        ("aUTHORIZATION", "Bearer mine"),
        ("Webhook-Signature", "v1,0"),
        ("idempotency-KEY", "0"),
        ("x-railyard-attempt", "1"),
        ("Host", "elsewhere"),
        ("Transfer-Encoding", "chunked"),
        ("content-length", "1"),
        ("Content-Type", "text/plain"),
        ("Connection", "close"),
        ("X-A", "b\r\nX-FLOWCATALYST-SIGNATURE: 0"),
        ("X-A", "b\n"),
        ("X-A\r\nX-B", "b"),
        ("X-A ", "b"),
        ("", "b"),
    ] {
        let mut job = world.draft("http://127.0.0.1:1/", "{}");
        job.headers = vec![(name.to_owned(), value.to_owned())];
        let named = job.validate().unwrap_err();
        assert!(named.iter().all(|error| error.field == "headers"), "{name:?}: {named:?}");
        // The database refuses it by itself: producers in SQL come by no other check.
        let refused = world.enqueue(&[job]).await;
        assert!(
            matches!(&refused, Err(StoreError::Invalid { field, .. }) if field == "headers"),
            "{name:?}: {refused:?}"
        );
    }
    assert_eq!(world.one::<i64>("SELECT count(*) FROM dispatch_job").await, 0);
}

/// What the database refuses a producer in SQL and what the call refuses are the same names: a header that one of
/// them takes and the other does not would be accepted and never sent.
#[tokio::test]
async fn s3_16_the_database_and_the_call_reserve_the_same_names() {
    let world = World::new().await;
    let names = "accept accept-charset accept-encoding accept-language age allow alt-svc authorization cache-control
        connection content-disposition content-encoding content-language content-length content-location content-md5
        content-range content-type cookie date dnt etag expect expires forwarded from host http2-settings if-match
        if-modified-since if-none-match idempotency-key keep-alive last-modified link location max-forwards origin
        pragma prefer proxy-authenticate proxy-authorization proxy-connection range referer retry-after server
        set-cookie te traceparent tracestate trailer transfer-encoding upgrade upgrade-insecure-requests user-agent
        vary via warning webhook-id webhook-signature webhook-timestamp www-authenticate x-custom x-flowcatalyst-a
        x-flowcatalyst-signature x-flowcatalyst-timestamp x-forwarded-for x-railyard-attempt x-railyard-group
        x-request-id";
    for name in names.split_whitespace() {
        for name in [name.to_owned(), name.to_ascii_uppercase()] {
            let headers = serde_json::json!({ &name: "x" });
            let fault = world.sql.query_one("SELECT headers_fault($1)", &[&headers]).await.unwrap();
            let by_database = fault.get::<_, Option<String>>(0).is_some();
            let by_call = railyard_core::headers::check(&[(name.clone(), "x".to_owned())]).is_err();
            assert_eq!(by_database, by_call, "{name}");
        }
    }
}

/// Should such a header be in a job's row all the same, the job ends with the reason and nothing is sent.
#[tokio::test(flavor = "multi_thread")]
async fn s3_16_a_reserved_header_that_got_into_the_row_is_never_sent() {
    let world = World::new().await;
    let rail = FakeRail::start().await;
    let id = world.hook(&rail.url(), "{}", |_| {}).await;
    let smuggle = r#"UPDATE dispatch_job SET headers = '{"x-flowcatalyst-signature": "0"}'"#;
    world.sql.batch_execute(smuggle).await.unwrap();
    let node = world.node().await;
    let job = world.ended(id).await;
    assert_eq!(job.status.as_str(), "ERROR");
    assert!(job.last_error.as_ref().is_some_and(|text| text.contains("x-flowcatalyst-signature")), "{job:?}");
    assert_eq!(world.history(id).await, ["FAILED/INVALID_REQUEST"]);
    assert!(rail.exchanges().is_empty());
    node.stop(SOON).await;
}
