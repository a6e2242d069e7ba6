//! The contract with a router of its own (S3-17 … S3-21, S3-37): 200 forgets the message, 400 brings it again, and
//! nothing is sent from there.

use std::time::{Duration, Instant};

use railyard_testkit::{Answer, FakeRail, Gate, Http, eventually};
use serde_json::{Value, json};

use crate::api::{Api, JOBS};
use crate::world::SOON;

const PROCESS: &str = "/api/dispatch/process";

async fn process(api: &Api, made: &Answer) -> Answer {
    api.http().post(PROCESS, &json!({ "messageId": made.json()["id"] })).await.unwrap()
}

/// So far from now, by the database's clock.
async fn ahead(api: &Api, span: &str) -> String {
    let sql = "SELECT to_char((clock_timestamp() + $1::text::interval) AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.MS\"Z\"')";
    api.db.connect().await.query_one(sql, &[&span]).await.unwrap().get(0)
}

fn acknowledged(answer: Answer, ack: bool) -> Value {
    let answer = answer.expect_status(if ack { 200 } else { 400 }).json();
    assert_eq!(answer["ack"], ack, "{answer}");
    assert_eq!(answer["delaySeconds"].is_u64(), !ack, "{answer}");
    assert!(answer["message"].is_string(), "{answer}");
    answer
}

/// The router waits for the outcome: delivered is 200; asked again, 200 and no request.
#[tokio::test(flavor = "multi_thread")]
async fn s3_17_s3_21_a_delivered_job_is_acknowledged_and_not_sent_again() {
    let api = Api::new().await;
    let gate = Gate::closed();
    let rail = FakeRail::start().await.ok().hold_until(&gate).then_ok();
    let made = api.post(&api.job(&rail, "{}", &json!({}))).await.expect_status(201);
    eventually(SOON, "the call is out", || async { gate.waiting() == 1 }).await;
    let asking = process(&api, &made);
    let opening = async {
        tokio::task::yield_now().await;
        gate.open();
    };
    let (answer, ()) = tokio::join!(asking, opening);
    let answer = acknowledged(answer, true);
    assert!(answer["message"].as_str().unwrap().contains("COMPLETED"), "{answer}");
    acknowledged(process(&api, &made).await, true);
    let by_id = api.http().post(PROCESS, &json!({ "id": made.json()["id"] })).await.unwrap();
    acknowledged(by_id, true);
    assert_eq!(rail.receipts().len(), 1);
}

/// FAILED while there are attempts left: 400, with the seconds until the next one.
#[tokio::test(flavor = "multi_thread")]
async fn s3_18_a_failed_job_is_brought_again() {
    let api = Api::new().await;
    let rail = FakeRail::start().await.otherwise().status(500).forever();
    // The router asks before the first call.
    let at = ahead(&api, "5 seconds").await;
    let others = json!({ "retryStrategy": "exponential", "maxRetries": 3, "scheduledFor": at, "timeoutSeconds": 30 });
    let made = api.post(&api.job(&rail, "{}", &others)).await.expect_status(201);
    let answer = process(&api, &made).await;
    let answer = acknowledged(answer, false);
    assert!(answer["message"].as_str().unwrap().contains("HTTP_500"), "{answer}");
    assert!((1..=6).contains(&answer["delaySeconds"].as_u64().unwrap()), "{answer}");
    let job = api.http().get(&format!("{JOBS}/{}", made.json()["id"].as_str().unwrap())).await.unwrap().json();
    assert_eq!((&job["status"], &job["attemptCount"]), (&json!("FAILED"), &json!(1)));
    assert!(job["lastError"].as_str().is_some_and(|error| error.contains("500")), "{job}");
}

/// ERROR after the last attempt: 200, so that the router stops; nothing is sent any more.
#[tokio::test(flavor = "multi_thread")]
async fn s3_19_an_exhausted_job_is_acknowledged() {
    let api = Api::new().await;
    let rail = FakeRail::start().await.otherwise().status(500).forever();
    let made = api.post(&api.job(&rail, "{}", &json!({ "maxRetries": 3 }))).await.expect_status(201);
    assert_eq!(api.ended(&made).await["status"], "ERROR");
    for _ in 0..3 {
        let answer = acknowledged(process(&api, &made).await, true);
        assert!(answer["message"].as_str().unwrap().starts_with("ERROR"), "{answer}");
    }
    assert_eq!(rail.receipts().len(), 3);
}

/// `maxRetries` counts deliveries, the first among them.
#[tokio::test(flavor = "multi_thread")]
async fn s3_20_max_retries_are_deliveries_in_all() {
    let api = Api::new().await;
    for deliveries in [1, 3] {
        let rail = FakeRail::start().await.otherwise().status(500).forever();
        let made = api.post(&api.job(&rail, "{}", &json!({ "maxRetries": deliveries }))).await.expect_status(201);
        assert_eq!(api.ended(&made).await["status"], "ERROR");
        let attempts: Vec<_> = rail.receipts().iter().map(|receipt| receipt.attempt().unwrap()).collect();
        assert_eq!(attempts, (1..=deliveries).collect::<Vec<i64>>());
    }
}

/// What was cancelled is acknowledged; what is not due in time is brought again at its time; no outcome within the
/// timeout is brought again.
#[tokio::test(flavor = "multi_thread")]
async fn s3_21_cancelled_scheduled_and_silent_jobs() {
    let api = Api::new().await;
    let gate = Gate::closed();
    let rail = FakeRail::start().await.ok().hold_until(&gate).then_ok();
    let at = ahead(&api, "1 hour").await;
    let later = api.post(&api.job(&rail, "{}", &json!({ "scheduledFor": at }))).await.expect_status(201);
    let asked = Instant::now();
    let answer = acknowledged(process(&api, &later).await, false);
    assert!((3500..=3600).contains(&answer["delaySeconds"].as_u64().unwrap()), "{answer}");
    assert!(asked.elapsed() < Duration::from_secs(4), "it does not wait for what cannot come");
    let path = format!("{JOBS}/{}/cancel", later.json()["id"].as_str().unwrap());
    api.http().post(&path, &json!({ "reason": "test" })).await.unwrap().expect_status(200);
    let answer = acknowledged(process(&api, &later).await, true);
    assert!(answer["message"].as_str().unwrap().starts_with("CANCELLED"), "{answer}");

    let first = json!({ "groupId": "g", "timeoutSeconds": 60 });
    api.post(&api.job(&rail, "first", &first)).await.expect_status(201);
    eventually(SOON, "the call is out", || async { gate.waiting() == 1 }).await;
    let behind = json!({ "groupId": "g", "timeoutSeconds": 1 });
    let behind = api.post(&api.job(&rail, "behind", &behind)).await.expect_status(201);
    let answer = acknowledged(process(&api, &behind).await, false);
    assert!(answer["message"].as_str().unwrap().contains("no outcome"), "{answer}");
    gate.open();
    acknowledged(process(&api, &behind).await, true);
}

/// Without a bearer token or with a wrong one: 401, and nothing is woken or delivered.
#[tokio::test(flavor = "multi_thread")]
async fn s3_37_process_is_for_known_callers() {
    let api = Api::new().await;
    let rail = FakeRail::start().await;
    let at = ahead(&api, "1 hour").await;
    let made = api.post(&api.job(&rail, "{}", &json!({ "scheduledFor": at }))).await.expect_status(201);
    let body = json!({ "messageId": made.json()["id"] });
    for http in [api.http().without_token(), Http::to(api.node.address()).with_token("wrong")] {
        let refused = http.post(PROCESS, &body).await.unwrap().expect_status(401);
        assert!(refused.json()["detail"].is_null(), "{}", refused.text());
        let garbage = http.post_text(PROCESS, "{").await.unwrap();
        assert_eq!(garbage.status, 401, "who asks is known before what is asked is read");
    }
    assert_eq!(rail.receipts().len(), 0);
    let nil = json!({ "messageId": "00000000-0000-7000-8000-000000000000" });
    api.http().post(PROCESS, &nil).await.unwrap().expect_status(404);
    for wrong in [json!({}), json!({ "messageId": 7 }), json!({ "messageId": "a", "id": "b" }), json!({ "x": "y" })] {
        api.http().post(PROCESS, &wrong).await.unwrap().expect_status(400);
    }
}
