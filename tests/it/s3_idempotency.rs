//! One key, one job: whatever happens at once, and whatever has happened since (S3-04 and its traps).

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use railyard_testkit::{FakeRail, eventually};
use serde_json::json;

use crate::api::{Api, JOBS, fields};
use crate::world::SOON;

/// Fifty posts at once with one key: one job, one delivery, no 500.
#[tokio::test(flavor = "multi_thread")]
async fn trap_fifty_posts_with_one_key_make_one_job() {
    let api = Api::new().await;
    let rail = FakeRail::start().await;
    let job = api.job(&rail, "{}", &json!({ "idempotencyKey": "k", "groupId": "g" }));
    let mut posts = tokio::task::JoinSet::new();
    for _ in 0..50 {
        let (http, job) = (api.http(), job.clone());
        posts.spawn(async move { http.post(JOBS, &job).await.unwrap() });
    }
    let answers = posts.join_all().await;
    let with = |status: u16| answers.iter().filter(|answer| answer.status == status).count();
    // 503 with Retry-After is an answer as well, while the first transaction is open.
    assert_eq!((with(201), with(201) + with(200) + with(503)), (1, 50), "{answers:?}");
    assert!(with(200) > 0);
    let taken = answers.iter().filter(|answer| answer.status != 503);
    let ids: BTreeSet<String> = taken.map(|answer| answer.json()["id"].to_string()).collect();
    assert_eq!(ids.len(), 1);
    let first = answers.iter().find(|answer| answer.status == 201).unwrap();
    api.ended(first).await;
    // A message of another group, accepted later, arrives later: nothing else is on its way.
    let other = api.post(&api.job(&rail, "other", &json!({ "groupId": "g" }))).await.expect_status(201);
    api.ended(&other).await;
    assert_eq!(rail.receipts().len(), 2);
    assert_eq!(rail.receipts()[1].sequence(), Some(2), "no number was burnt");
}

/// The same key with other content is 409, before the first has ended and after, and names the first.
#[tokio::test(flavor = "multi_thread")]
async fn trap_a_key_with_other_content_is_409_also_after_completion() {
    let api = Api::new().await;
    let rail = FakeRail::start().await;
    let job = api.job(&rail, "{}", &json!({ "idempotencyKey": "k", "metadata": { "a": "b" } }));
    let first = api.post(&job).await.expect_status(201);
    let others = [
        json!({ "payload": "{ }" }),
        json!({ "type": "order.changed" }),
        json!({ "targetUrl": rail.url_for("/other") }),
        json!({ "groupId": "g" }),
        json!({ "metadata": { "a": "c" } }),
        json!({ "headers": { "X-A": "b" } }),
    ];
    for completed in [false, true] {
        if completed {
            assert_eq!(api.ended(&first).await["status"], "COMPLETED");
        }
        for change in &others {
            let mut other = job.clone();
            other.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
            let refused = api.post(&other).await.expect_status(409);
            assert_eq!(refused.json()["firstId"], first.json()["id"], "{change}");
        }
        let again = api.post(&job).await.expect_status(200);
        assert_eq!(again.json()["id"], first.json()["id"]);
    }
    let mut other_source = job.clone();
    other_source["source"] = json!("invoices");
    let second = api.post(&other_source).await.expect_status(201);
    api.ended(&second).await;
    assert_eq!(rail.receipts().len(), 2, "one each");
}

/// While the first's transaction is open, a second waits a moment and gets 503 with Retry-After; after the commit the
/// same request gets the first job, after a rollback a job of its own.
#[tokio::test(flavor = "multi_thread")]
async fn trap_a_key_in_an_open_transaction_is_503_with_retry_after() {
    let api = Api::new().await;
    let rail = FakeRail::start().await;
    let job = |key: &str| api.job(&rail, "{}", &json!({ "idempotencyKey": key }));
    for end in ["COMMIT", "ROLLBACK"] {
        let sql = api.db.connect().await;
        sql.batch_execute("BEGIN").await.unwrap();
        let first: uuid::Uuid = {
            let item =
                "SELECT outbox_id FROM enqueue_outbox(ARRAY[ROW('orders', 'order.created', NULL, NULL, 'NEXT_ON_ERROR',
                'webhook', NULL, $1, '{}', 'application/json', $2, 3, 'immediate', 5000, NULL, NULL, NULL, NULL, NULL,
                $3, NULL)::outbox_item])";
            let credentials: uuid::Uuid = api.credentials.parse().unwrap();
            sql.query_one(item, &[&rail.url(), &credentials, &end]).await.unwrap().get(0)
        };
        let begun = Instant::now();
        let busy = api.post(&job(end)).await.expect_status(503);
        let waited = begun.elapsed();
        assert_eq!(busy.header("retry-after"), Some("1"));
        assert!(waited > Duration::from_millis(200) && waited < Duration::from_secs(5), "{waited:?}");
        sql.batch_execute(end).await.unwrap();
        let again = api.post(&job(end)).await;
        match end {
            "COMMIT" => assert_eq!(again.expect_status(200).json()["id"], json!(first)),
            _ => assert_ne!(again.expect_status(201).json()["id"], json!(first)),
        }
    }
    rail.await_receipts(2, SOON).await;
}

/// A producer that lost the answer sends the same again, however late: what was taken once is never refused afterwards.
#[tokio::test(flavor = "multi_thread")]
async fn trap_a_repeat_is_the_first_whatever_has_passed_since() {
    let api = Api::new().await;
    let rail = FakeRail::start().await;
    let sql = api.db.connect().await;
    let soon = "SELECT to_char(clock_timestamp() + interval '3 seconds', 'YYYY-MM-DD\"T\"HH24:MI:SS.MSZ')";
    let expires_at: String = sql.query_one(soon, &[]).await.unwrap().get(0);
    let job = api.job(&rail, "{}", &json!({ "idempotencyKey": "k", "expiresAt": expires_at }));
    let first = api.post(&job).await.expect_status(201);
    assert_eq!(api.ended(&first).await["status"], "COMPLETED");
    eventually(SOON, "its expiry has passed", || async {
        sql.query_one("SELECT clock_timestamp() > $1::text::timestamptz", &[&expires_at]).await.unwrap().get(0)
    })
    .await;
    let repeated = async |when: &str| {
        let again = api.post(&job).await.expect_status(200);
        assert_eq!(again.json()["id"], first.json()["id"], "{when}");
        let batch = api.http().post(&format!("{JOBS}/batch"), &json!([job])).await.unwrap();
        let result = &batch.json()["results"][0];
        assert_eq!(
            (&result["status"], &result["storedId"]),
            (&json!("SKIPPED"), &first.json()["id"]),
            "{when}: {result}"
        );
    };
    repeated("expired").await;
    let path = format!("/api/admin/dispatch/credentials/{}", api.credentials);
    api.http().delete(&path).await.unwrap().expect_status(204);
    repeated("without credentials").await;
    let mut other = job.clone();
    other["payload"] = json!("other");
    let refused = api.post(&other).await.expect_status(400);
    assert!(!fields(&refused).is_empty(), "{}", refused.text());
    assert_eq!(rail.receipts().len(), 1);
}
