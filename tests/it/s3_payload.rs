//! What a producer posts is what the receiver gets, or a 400 that says why not: never a 500, never a job that is stuck.

use std::time::Duration;

use railyard_testkit::FakeRail;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::api::{Api, CREDENTIALS, JOBS, fields};
use crate::s3_signing::DELICATE;
use crate::world::SOON;

/// The default limit of a payload.
const PAYLOAD_BYTES_MAX: usize = 1 << 20;

/// Payloads that a parser or a text column would change arrive byte for byte, on every attempt.
#[tokio::test(flavor = "multi_thread")]
async fn trap_payloads_arrive_byte_for_byte() {
    // Every second call fails on purpose; that is not to be taken for a dead endpoint.
    let api = Api::with(|sandbox| sandbox.set("http.breaker.failure_percent", 100)).await;
    let rail = FakeRail::start().await.each_message().fails(1).then_ok();
    let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
    let payloads =
        ["", " ", DELICATE, "\u{feff}{}", "{\"nul\":\"\0\"}", "\u{1f600}\r\n\t", "\u{ffff}", "no JSON", &deep];
    for payload in payloads {
        let made = api.post(&api.job(&rail, payload, &json!({}))).await.expect_status(201);
        let job = api.ended(&made).await;
        assert_eq!((&job["status"], &job["attemptCount"]), (&json!("COMPLETED"), &json!(2)), "{payload:?}");
        assert_eq!(job["payload"], payload);
        let id = made.json()["id"].as_str().unwrap().to_owned();
        let receipts = rail.receipts();
        let of_job = receipts.iter().filter(|receipt| receipt.idempotency_key() == Some(&id));
        assert_eq!(of_job.filter(|receipt| receipt.body == payload.as_bytes()).count(), 2, "{payload:?}");
    }
}

/// Escapes are undone once and nothing else is: what stands in the body as `\u0000` arrives as that byte.
#[tokio::test(flavor = "multi_thread")]
async fn trap_escapes_in_the_body_are_undone_once() {
    let api = Api::new().await;
    let rail = FakeRail::start().await;
    let job = api.job(&rail, "PAYLOAD", &json!({})).to_string();
    let posted = job.replace("PAYLOAD", r#"\u0000\\u0000 \ud83d\ude80\/ \\ud800 \"\u00e9"#);
    let made = api.http().post_text(JOBS, &posted).await.unwrap().expect_status(201);
    api.ended(&made).await;
    assert_eq!(rail.receipts()[0].body, "\0\\u0000 🚀/ \\ud800 \"é".as_bytes());
}

/// What is no text, or stands where no database takes it, is refused by name, and nothing is stored.
#[tokio::test(flavor = "multi_thread")]
async fn trap_bytes_that_are_no_text_are_400() {
    let api = Api::new().await;
    let rail = FakeRail::start().await;
    let job = api.job(&rail, "PAYLOAD", &json!({})).to_string();
    for (put, named) in [
        (&b"\\ud800"[..], Some("payload")),
        (b"\\udc00\\ud800", Some("payload")),
        (b"\\ud83d", Some("payload")),
        (b"\\u00", None),
        (b"\xff\xfe", None),
        (b"\xed\xa0\x80", None),
        (b"\xc0\x80", None),
        (b"\0", None),
        (b"\n", None),
    ] {
        let (before, after) = job.split_once("PAYLOAD").unwrap();
        let body = [before.as_bytes(), put, after.as_bytes()].concat();
        let headers = [("Content-Type", "application/json")];
        let refused = api.http().send("POST", JOBS, &headers, &body).await.unwrap().expect_status(400);
        if let Some(named) = named {
            assert_eq!(fields(&refused), [named], "{put:?}");
        }
    }
    let bom = format!("\u{feff}{job}");
    api.http().post_text(JOBS, &bom).await.unwrap().expect_status(400);
    for (field, value) in [
        ("source", json!("a\0b")),
        ("type", json!("a\0b")),
        ("groupId", json!("a\0b")),
        ("externalId", json!("a\0b")),
        ("idempotencyKey", json!("a\0b")),
        ("payloadContentType", json!("a/b\0")),
        ("targetUrl", json!("http://127.0.0.1/\0")),
    ] {
        let refused = api.post(&api.job(&rail, "{}", &json!({ field: value }))).await.expect_status(400);
        assert_eq!(fields(&refused), [field]);
    }
    for metadata in [json!({ "a\0": "b" }), json!({ "a": "b\0" })] {
        let refused = api.post(&api.job(&rail, "{}", &json!({ "metadata": metadata }))).await.expect_status(400);
        assert!(fields(&refused)[0].starts_with("metadata."), "{}", refused.text());
    }
    let stored: i64 = api.db.connect().await.query_one("SELECT count(*) FROM dispatch_job", &[]).await.unwrap().get(0);
    assert_eq!(stored, 0);
}

/// The limit is stated and exact: the largest payload arrives, one byte more is 413.
#[tokio::test(flavor = "multi_thread")]
async fn trap_the_payload_limit_is_exact() {
    let api = Api::new().await;
    let rail = FakeRail::start().await;
    let most = "x".repeat(PAYLOAD_BYTES_MAX);
    let made = api.post(&api.job(&rail, &most, &json!({}))).await.expect_status(201);
    api.ended(&made).await;
    assert_eq!(rail.receipts()[0].body.len(), PAYLOAD_BYTES_MAX);
    let refused = api.post(&api.job(&rail, &(most + "x"), &json!({}))).await.expect_status(413);
    assert!(refused.text().contains(&PAYLOAD_BYTES_MAX.to_string()), "the limit is named: {}", refused.text());
    // Escapes count as what they stand for: six times as long on the way in, and at the limit.
    let nul = "\0".repeat(PAYLOAD_BYTES_MAX);
    let made = api.post(&api.job(&rail, &nul, &json!({}))).await.expect_status(201);
    api.ended(&made).await;
    assert_eq!(rail.receipts()[1].body, nul.as_bytes());
}

/// Bodies of hundreds of megabytes, announced or streamed, many at once: 413 or a closed connection, in bounded memory.
#[tokio::test(flavor = "multi_thread")]
async fn trap_huge_bodies_are_413_in_bounded_memory() {
    let api = Api::new().await;
    let before = peak_kib(&api);
    let head = |framing: &str| {
        format!(
            "POST {JOBS} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\n{framing}\r\n\r\n",
            api.sandbox.token()
        )
    };
    let announced = answer_to(&api, &head("Content-Length: 314572800")).await;
    assert!(announced.starts_with("HTTP/1.1 413"), "{announced}");
    let heads: Vec<String> = (0..20).map(|_| head("Transfer-Encoding: chunked")).collect();
    let mut streams = tokio::task::JoinSet::new();
    for head in heads {
        let address = api.node.address();
        streams.spawn(async move { stream_chunks(address, &head).await });
    }
    let answers = streams.join_all().await;
    // A reset may overtake what was said before it, but not each time.
    assert!(answers.iter().all(|answer| answer.is_empty() || answer.starts_with("HTTP/1.1 413")), "{answers:?}");
    assert!(answers.iter().any(|answer| !answer.is_empty()), "none was told why");
    api.http().get("/readyz").await.unwrap().expect_status(200);
    let grown = peak_kib(&api).saturating_sub(before);
    assert!(grown < 256 * 1024, "20 bodies of 300 MB each took {grown} KiB");
}

/// The answer to a head whose body never comes.
async fn answer_to(api: &Api, head: &str) -> String {
    let mut stream = TcpStream::connect(api.node.address()).await.unwrap();
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = vec![0; 16 * 1024];
    let read = tokio::time::timeout(SOON, stream.read(&mut answer)).await.unwrap().unwrap();
    String::from_utf8_lossy(&answer[..read]).into_owned()
}

/// Sends up to 300 MB in chunks until the server answers or closes.
async fn stream_chunks(address: std::net::SocketAddr, head: &str) -> String {
    let (mut reading, mut writing) = TcpStream::connect(address).await.unwrap().into_split();
    let chunk = [b"100000\r\n".as_slice(), &vec![b'x'; 1 << 20], b"\r\n"].concat();
    let write = async {
        writing.write_all(head.as_bytes()).await?;
        for _ in 0..300 {
            writing.write_all(&chunk).await?;
        }
        Ok::<(), std::io::Error>(())
    };
    let mut answer = String::new();
    let read = async {
        let mut bytes = vec![0; 4096];
        let got = reading.read(&mut bytes).await.unwrap_or(0);
        String::from_utf8_lossy(&bytes[..got]).into_owned()
    };
    tokio::select! {
        said = read => answer = said,
        // A server that has closed takes no more; what it said before may be lost to a reset.
        _ = write => {}
        () = tokio::time::sleep(Duration::from_secs(40)) => answer = "nothing for 40 s".to_owned(),
    }
    answer
}

/// The most memory that the node ever held, in KiB.
fn peak_kib(api: &Api) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", api.node.pid().unwrap())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Nesting of 10,000 in a body, in any field, and in a payment's payload: an answer, and never a fallen process.
#[tokio::test(flavor = "multi_thread")]
async fn trap_deep_nesting_is_answered() {
    let api = Api::new().await;
    let rail = FakeRail::start().await;
    let deep = |open: &str, close: &str| format!("{}{}", open.repeat(10_000), close.repeat(10_000));
    for value in [deep("[", "]"), format!("{}1{}", "{\"a\":".repeat(10_000), "}".repeat(10_000))] {
        for field in ["payload", "metadata", "headers", "unknown"] {
            let job = api.job(&rail, "{}", &json!({ field: "DEEP" })).to_string();
            let body = job.replace("\"DEEP\"", &value);
            let refused = api.http().post_text(JOBS, &body).await.unwrap().expect_status(400);
            assert_eq!(fields(&refused), [field]);
        }
        api.http().post_text(JOBS, &value).await.unwrap().expect_status(400);
        let payment = format!(r#"{{"amount":"1.10","currency":"EUR","destination":"DE02","note":{value}}}"#);
        let others = json!({ "railType": "payment_webhook", "groupId": "debtor" });
        let answer = api.post(&api.job(&rail, &payment, &others)).await;
        assert!([201, 400].contains(&answer.status), "{}", answer.text());
        if answer.status == 201 {
            assert_eq!(api.ended(&answer).await["status"], "COMPLETED");
        }
    }
    api.http().get("/readyz").await.unwrap().expect_status(200);
}

/// Reserved headers, and values that would break the head, are 400 by name through the API as well.
#[tokio::test(flavor = "multi_thread")]
async fn trap_headers_that_would_stand_in_for_ours_are_400() {
    let api = Api::new().await;
    let rail = FakeRail::start().await;
    for (name, value) in [
        ("x-flowcatalyst-SIGNATURE", "0"),
        ("AUTHORIZATION", "Bearer x"),
        ("webhook-Signature", "v1,0"),
        ("Host", "elsewhere"),
        ("Transfer-Encoding", "chunked"),
        ("Content-Length", "0"),
        ("X-A", "b\r\nX-FLOWCATALYST-SIGNATURE: 0"),
        ("X-A\nX-B", "b"),
    ] {
        let job = api.job(&rail, "{}", &json!({ "headers": { name: value } }));
        assert_eq!(fields(&api.post(&job).await.expect_status(400)), ["headers"], "{name:?}");
    }
    let twice = api.job(&rail, "{}", &json!({ "headers": { "X-A": "1", "x-a": "2" } }));
    assert_eq!(fields(&api.post(&twice).await.expect_status(400)), ["headers"]);
    let made = api.post(&api.job(&rail, "{}", &json!({ "headers": { "X-A": "1" } }))).await.expect_status(201);
    api.ended(&made).await;
    let receipt = &rail.receipts()[0];
    assert_eq!(receipt.headers_named("X-A"), ["1"]);
    assert_eq!(receipt.headers_named("X-FLOWCATALYST-SIGNATURE").len(), 1);
}

/// Secrets that nobody can sign with as they stand (empty, blank, with the line's end still on them) are refused.
#[tokio::test(flavor = "multi_thread")]
async fn trap_secrets_with_a_line_end_or_empty_are_400() {
    let api = Api::new().await;
    for secret in ["", " ", "\n", "whsec_abc\n", "whsec_abc\r\n", " whsec_abc", "whsec_abc\t", "whsec\0abc"] {
        let set = json!({ "bearerToken": "sk_live", "signingSecret": secret });
        let refused = api.http().post(CREDENTIALS, &set).await.unwrap().expect_status(400);
        assert_eq!(fields(&refused), ["signingSecret"], "{secret:?}");
        assert!(!refused.text().contains("whsec"), "the secret is not repeated: {}", refused.text());
    }
    for token in ["", " ", "sk live", "sk_live\n", "sk_live\r\nX-A: b"] {
        let set = json!({ "bearerToken": token, "signingSecret": "whsec_abc" });
        let refused = api.http().post(CREDENTIALS, &set).await.unwrap().expect_status(400);
        assert_eq!(fields(&refused), ["bearerToken"], "{token:?}");
    }
    let missing = api.http().post(CREDENTIALS, &json!({})).await.unwrap().expect_status(400);
    assert_eq!(fields(&missing), ["bearerToken", "signingSecret"]);
    let known = api.http().get(CREDENTIALS).await.unwrap().json();
    assert_eq!(known["items"].as_array().map(Vec::len), Some(1), "only the test's own: {known}");
}

/// Amounts are read as decimals: what a float rounds to nothing is paid, what only looks like a number is not.
#[tokio::test(flavor = "multi_thread")]
async fn trap_amounts_are_checked_without_floating_point() {
    let api = Api::new().await;
    let rail = FakeRail::start().await;
    let others = |group: &str| json!({ "railType": "payment_webhook", "groupId": group, "mode": "NEXT_ON_ERROR" });
    for (n, (amount, status)) in [
        ("1e-400", "COMPLETED"),
        ("12345678901234567890.000", "COMPLETED"),
        ("\"0.10\"", "COMPLETED"),
        ("1.10", "COMPLETED"),
        ("0", "ERROR"),
        ("0.00", "ERROR"),
        ("-1", "ERROR"),
        ("\"1,10\"", "ERROR"),
        ("\"NaN\"", "ERROR"),
        ("\"Infinity\"", "ERROR"),
        ("null", "ERROR"),
        ("true", "ERROR"),
    ]
    .into_iter()
    .enumerate()
    {
        let payload = format!(r#"{{"amount":{amount},  "currency":"EUR","destination":"DE02"}}"#);
        let made = api.post(&api.job(&rail, &payload, &others(&format!("debtor-{n}")))).await.expect_status(201);
        let job: Value = api.ended(&made).await;
        assert_eq!(job["status"], status, "{amount}: {job}");
        let arrived = rail.receipts().iter().any(|receipt| receipt.body == payload.as_bytes());
        assert_eq!(arrived, status == "COMPLETED", "{amount}");
    }
}
