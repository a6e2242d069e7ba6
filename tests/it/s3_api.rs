//! A job's way from the request to the receiver and back into what the API shows (S3-01, S3-06, S3-07, S3-09, S3-37,
//! S3-42), and that open calls cost the API nothing.

use std::time::{Duration, Instant};

use railyard_testkit::{FakeRail, Gate, Http, eventually};
use serde_json::json;

use crate::api::{Api, JOBS};
use crate::world::{SECRET, SOON};

/// The source's whole body: 201 with what was made of it, delivered, and shown with its attempts in their order.
#[tokio::test(flavor = "multi_thread")]
async fn s3_01_s3_09_a_job_is_made_delivered_and_shown() {
    let api = Api::new().await;
    let rail = FakeRail::start().await.status(500).body("no luck").status(200).body("thanks").then_ok();
    let others = json!({
        "externalId": "order-1", "groupId": "customer-1", "protocol": "HTTP_WEBHOOK", "maxRetries": 3,
        "payloadContentType": "application/json", "headers": { "X-Custom": "value" },
        "metadata": { "tenant": "t1", "priority": "high" }, "idempotencyKey": "key-1",
    });
    let made = api.post(&api.job(&rail, r#"{"orderId":"12345"}"#, &others)).await.expect_status(201);
    let fresh = made.json();
    assert_eq!((&fresh["status"], &fresh["attemptCount"]), (&json!("PENDING"), &json!(0)));
    assert_eq!((&fresh["source"], &fresh["type"]), (&json!("orders"), &json!("order.created")));
    assert!(fresh["createdAt"].as_str().is_some_and(|at| at.ends_with('Z')), "{fresh}");
    let job = api.ended(&made).await;
    assert_eq!((&job["status"], &job["attemptCount"]), (&json!("COMPLETED"), &json!(2)));
    assert_eq!(job["metadata"], others["metadata"]);
    assert_eq!((&job["headers"], &job["externalId"]), (&others["headers"], &others["externalId"]));
    let path = format!("{JOBS}/{}/attempts", fresh["id"].as_str().unwrap());
    let attempts = api.http().get(&path).await.unwrap().expect_status(200).json();
    let told = |n: usize, field: &str| attempts[n][field].clone();
    assert_eq!(
        (told(0, "attemptNumber"), told(0, "status"), told(0, "responseCode")),
        (json!(1), json!("FAILURE"), json!(500))
    );
    assert_eq!(
        (told(1, "attemptNumber"), told(1, "status"), told(1, "responseCode")),
        (json!(2), json!("SUCCESS"), json!(200))
    );
    assert_eq!((told(0, "responseBody"), told(1, "responseBody")), (json!("no luck"), json!("thanks")));
    assert!(told(0, "errorMessage").as_str().is_some_and(|text| text.contains("500")), "{attempts}");
    assert!(told(1, "durationMillis").is_number() && told(1, "completedAt").is_string(), "{attempts}");
}

/// Ids of jobs made one after the other sort in that order.
#[tokio::test(flavor = "multi_thread")]
async fn s3_06_ids_sort_by_time() {
    let api = Api::new().await;
    let rail = FakeRail::start().await;
    let mut ids = Vec::new();
    for n in 0..50 {
        let made = api.post(&api.job(&rail, &n.to_string(), &json!({}))).await.expect_status(201);
        ids.push(made.json()["id"].as_str().unwrap().to_owned());
    }
    assert!(ids.is_sorted() && ids.windows(2).all(|pair| pair[0] != pair[1]), "{ids:?}");
    rail.await_receipts(50, SOON).await;
}

/// Without a token, or with a wrong one: 401 without a word about why, and nothing is stored or sent.
#[tokio::test(flavor = "multi_thread")]
async fn s3_37_without_a_token_nothing_is_taken() {
    let api = Api::new().await;
    let rail = FakeRail::start().await;
    let job = api.job(&rail, "{}", &json!({}));
    let token = api.sandbox.token();
    for http in [
        api.http().without_token(),
        Http::to(api.node.address()).with_token("wrong"),
        Http::to(api.node.address()).with_token(&token[..token.len() - 1]),
        Http::to(api.node.address()).with_token(&format!("{token}0")),
    ] {
        let refused = http.post(JOBS, &job).await.unwrap().expect_status(401);
        assert!(refused.json()["detail"].is_null(), "{}", refused.text());
    }
    let made = api.post(&api.job(&rail, "good", &json!({}))).await.expect_status(201);
    api.ended(&made).await;
    assert_eq!(rail.receipts().len(), 1);
}

/// The receiver's check as the binary has it: what was sent passes, an altered body and an old signature do not.
#[tokio::test(flavor = "multi_thread")]
async fn s3_42_a_receiver_refuses_what_is_altered_or_old() {
    let api = Api::new().await;
    let rail = FakeRail::start().await;
    let body = r#"{"orderId":"12345","name":"Žofie"}"#;
    let made = api.post(&api.job(&rail, body, &json!({}))).await.expect_status(201);
    api.ended(&made).await;
    let receipt = rail.receipts().remove(0);
    let timestamp = receipt.header("X-FLOWCATALYST-TIMESTAMP").unwrap();
    let signature = receipt.header("X-FLOWCATALYST-SIGNATURE").unwrap();
    let signed: jiff::Timestamp = timestamp.parse().unwrap();
    let at = |seconds: i64| (signed + jiff::SignedDuration::from_secs(seconds)).to_string();
    for (secret, body, at, code) in [
        (SECRET, body, at(0), 0),
        (SECRET, body, at(300), 0),
        (SECRET, body, at(302), 1),
        (SECRET, r#"{"orderId":"12346","name":"Žofie"}"#, at(0), 1),
        ("whsec_other", body, at(0), 1),
    ] {
        let words = [
            "verify",
            "--secret",
            secret,
            "--timestamp",
            timestamp,
            "--signature",
            signature,
            "--body-file",
            "-",
            "--at",
            &at,
        ];
        let output = api.sandbox.run_with_input(&words, body).await;
        assert_eq!(output.code, Some(code), "{body} at {at}: {}{}", output.stdout, output.stderr);
    }
}

/// 200 calls open at once, five connections to the database: no transaction is open, and the API answers as ever.
#[tokio::test(flavor = "multi_thread")]
async fn trap_two_hundred_open_calls_hold_no_connection() {
    let few = |sandbox: railyard_testkit::Sandbox| {
        sandbox
            .set("database.work_connections", 3)
            .set("database.api_connections", 2)
            .set("http.endpoint_concurrency", 200)
    };
    let api = Api::with(few).await;
    let gate = Gate::closed();
    let rail = FakeRail::start().await.hold_until(&gate);
    let slow = |n: usize| api.job(&rail, "{}", &json!({ "timeoutSeconds": 60, "groupId": format!("group-{n}") }));
    let mut made = None;
    for n in 0..200 {
        made = Some(api.post(&slow(n)).await.expect_status(201));
    }
    eventually(SOON, "200 calls are open", || async { gate.waiting() == 200 }).await;
    let sql = api.db.connect().await;
    let open = "SELECT count(*) FROM pg_stat_activity
                WHERE datname = current_database() AND state LIKE 'idle in transaction%'";
    let open: i64 = sql.query_one(open, &[]).await.unwrap().get(0);
    assert_eq!(open, 0, "a call holds a transaction");
    let mut took = Vec::new();
    for n in 200..205 {
        let begun = Instant::now();
        api.post(&slow(n)).await.expect_status(201);
        took.push(begun.elapsed());
    }
    took.sort();
    assert!(took[2] < Duration::from_secs(1), "{took:?}");
    gate.open();
    assert_eq!(api.ended(&made.unwrap()).await["status"], "COMPLETED");
}

/// Created, delivered by source and type, durations, retries, jobs in ERROR: each is a figure at `/metrics`.
#[tokio::test(flavor = "multi_thread")]
async fn s3_45_metrics_tell_what_became_of_jobs() {
    let api = Api::new().await;
    let rail = FakeRail::start().await.fails(1).then_ok();
    let good = api.post(&api.job(&rail, "{}", &json!({}))).await.expect_status(201);
    api.ended(&good).await;
    let gone = FakeRail::start().await.otherwise().status(410);
    let lost = api.post(&api.job(&gone, "{}", &json!({ "type": "order.lost" }))).await.expect_status(201);
    api.ended(&lost).await;
    let expected = [
        "railyard_api_jobs_total{result=\"created\"} 2",
        "railyard_jobs_ended_total{source=\"orders\",status=\"COMPLETED\",type=\"order.created\"} 1",
        "railyard_jobs_ended_total{source=\"orders\",status=\"ERROR\",type=\"order.lost\"} 1",
        "attempts_total{state=\"RETRYABLE\"} 1",
        "dispatch_latency_ms_count{rail=\"webhook\"} 3",
        "dlq_depth 1",
    ];
    eventually(SOON, "all figures", || async {
        let shown = api.http().get("/metrics").await.unwrap().text();
        expected.iter().all(|line| shown.lines().any(|shown| shown == *line))
    })
    .await;
}
