//! `POST /api/dispatch/jobs/batch`: S3-39, and what an outbox processor may rely on (S4-09, S4-12, S4-14).

use axum::body::Body;
use axum::http::StatusCode;
use serde_json::{Value, json};

use super::kit::{ADMIN, Answer, Api, asking};
use crate::{ApiOptions, Auth};

const BATCH: &str = "/api/dispatch/jobs/batch";

fn words(answer: &Answer) -> Vec<String> {
    let results = answer.json()["results"].as_array().unwrap_or_else(|| panic!("{}", answer.text())).clone();
    results.iter().map(|one| one["status"].as_str().unwrap().to_owned()).collect()
}

async fn count(api: &Api, table: &str) -> i64 {
    api.sql.query_one(&format!("SELECT count(*) FROM {table}"), &[]).await.unwrap().get(0)
}

/// All three forms, both paths: results, jobs and count, in the order of the items.
#[tokio::test]
async fn s3_39_a_batch_is_an_array_items_or_jobs() {
    let api = Api::new().await;
    let jobs = json!([
        api.job_with(json!({"groupId": "a"})),
        api.job_with(json!({"groupId": "b"})),
        api.job_with(json!({"groupId": "a"}))
    ]);
    for (path, body) in [
        (BATCH, jobs.clone()),
        (BATCH, json!({ "items": jobs })),
        ("/api/dispatch-jobs/batch", json!({ "jobs": jobs })),
    ] {
        let made = api.post(path, &body).await;
        assert_eq!(made.status, StatusCode::CREATED, "{}", made.text());
        assert_eq!(words(&made), ["SUCCESS"; 3]);
        let made = made.json();
        assert_eq!((&made["count"], made["jobs"].as_array().unwrap().len()), (&json!(3), 3));
        for (result, job) in made["results"].as_array().unwrap().iter().zip(made["jobs"].as_array().unwrap()) {
            assert_eq!((&result["id"], &result["storedId"]), (&job["id"], &job["id"]));
            assert_eq!(job["status"], "PENDING");
        }
        let read = api.get(&format!("/api/dispatch/jobs/{}", made["jobs"][2]["id"].as_str().unwrap())).await.json();
        assert_eq!((&read["groupId"], &read["createdAt"]), (&json!("a"), &made["jobs"][2]["createdAt"]));
    }
    let order =
        "SELECT array_agg(sequence_id ORDER BY outbox_id) FROM payment_outbox_pending WHERE participant_id = 'a'";
    let numbers: Vec<i64> = api.sql.query_one(order, &[]).await.unwrap().get(0);
    assert_eq!(numbers, [1, 2, 3, 4, 5, 6], "ids of one call go up in its order");
    let none = api.post(BATCH, &json!([])).await;
    assert_eq!((none.status, none.json()), (StatusCode::OK, json!({"results": [], "jobs": [], "count": 0})));
}

/// What is wrong with an item is named there, and the others are stored.
#[tokio::test]
async fn s3_39_a_bad_item_poisons_no_other() {
    let api = Api::new().await;
    let bad = [
        (json!({"type": 7, "groupId": "g"}), vec!["type"]),
        (json!({"credentialsId": "00000000-0000-7000-8000-000000000000"}), vec!["credentialsId"]),
        (json!({"railType": "payment_webhook", "groupId": "g", "payload": "[]"}), vec!["payload"]),
        (json!({"colour": "red", "targetUrl": "ftp://x"}), vec!["colour", "targetUrl"]),
        (json!({"expiresAt": "2001-01-01T00:00:00Z"}), vec!["expiresAt"]),
        (json!({"protocol": "SMTP"}), vec!["protocol"]),
    ];
    let mut items = vec![json!(7), Value::Null, json!([])];
    for (change, _) in &bad {
        items.push(api.job_with(json!({"groupId": "g"})));
        items.push(api.job_with(change.clone()));
    }
    let made = api.post(BATCH, &json!(items)).await;
    assert_eq!(made.status, StatusCode::CREATED);
    let results = made.json()["results"].as_array().unwrap().clone();
    assert_eq!(results.len(), items.len());
    assert!(results[..3].iter().all(|one| one["status"] == "BAD_REQUEST" && one["error"].is_string()), "{results:?}");
    for (pair, (change, fields)) in results[3..].chunks(2).zip(&bad) {
        assert_eq!((&pair[0]["status"], &pair[1]["status"]), (&json!("SUCCESS"), &json!("BAD_REQUEST")), "{change}");
        let named: Vec<&str> =
            pair[1]["errors"].as_array().unwrap().iter().map(|one| one["field"].as_str().unwrap()).collect();
        assert_eq!(&named, fields);
        assert!(pair[1]["error"].as_str().unwrap().contains(fields[0]));
    }
    assert_eq!(count(&api, "dispatch_job").await, 6);
    assert_eq!(made.json()["count"], 6);
    let only_bad = api.post(BATCH, &json!([{}])).await;
    assert_eq!((only_bad.status, words(&only_bad)), (StatusCode::OK, vec!["BAD_REQUEST".to_owned()]));
}

/// A thousand items and 32 MiB are taken, one more is 413, and none of it is stored.
#[tokio::test]
async fn s3_39_limits_are_413() {
    let api = Api::new().await;
    let many = |count: usize| json!(vec![api.job(); count]);
    assert_eq!(api.post(BATCH, &many(1001)).await.status, StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(api.post(BATCH, &json!({ "items": many(1001) })).await.status, StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(count(&api, "dispatch_job").await, 0);
    let made = api.post(BATCH, &many(1000)).await;
    assert_eq!((made.status, &made.json()["count"]), (StatusCode::CREATED, &json!(1000)));
    let chunks = (0..33 * 1024).map(|_| Ok::<_, std::io::Error>(vec![b' '; 1024]));
    let body = Body::from_stream(futures_util::stream::iter(chunks));
    let request = asking("POST", BATCH, ADMIN).header("content-type", "application/json").body(body).unwrap();
    assert_eq!(api.call(request).await.status, StatusCode::PAYLOAD_TOO_LARGE);
    let large = json!([api.job_with(json!({"payload": "x".repeat(2 << 20)})), api.job()]);
    let made = api.post(BATCH, &large).await;
    assert_eq!(words(&made), ["BAD_REQUEST", "SUCCESS"], "a payload's own limit is its item's");
    for body in ["", "{}", "7", "[{}", "{\"items\": [], \"jobs\": []}", "{\"items\": [], \"more\": 1}"] {
        assert_eq!(api.post_text(BATCH, body).await.status, StatusCode::BAD_REQUEST, "{body}");
    }
}

/// The processor's body: an array of payloads as stored, each with its row's id. The id is the external id, and the key
/// where none is given: what is sent again is SKIPPED, other content under it is the item's error.
#[tokio::test]
async fn s4_09_an_outbox_rows_id_is_known() {
    let api = Api::new().await;
    let item = |id: &str| api.job_with(json!({"id": id, "groupId": "g"}));
    let first = api.post(BATCH, &json!([item("0HZXEQ5Y8JY5Z"), item("0HZXEQ5Y8JY60")])).await;
    assert_eq!(words(&first), ["SUCCESS", "SUCCESS"]);
    assert_eq!(first.json()["results"][0]["id"], "0HZXEQ5Y8JY5Z");
    assert_eq!(first.json()["jobs"][0]["externalId"], "0HZXEQ5Y8JY5Z");
    assert_eq!(first.json()["jobs"][0]["idempotencyKey"], "0HZXEQ5Y8JY5Z");

    let mut changed = item("0HZXEQ5Y8JY60");
    changed["payload"] = json!("other");
    let again = api.post(BATCH, &json!([item("0HZXEQ5Y8JY5Z"), changed, item("0HZXEQ5Y8JY61")])).await;
    assert_eq!(words(&again), ["SKIPPED", "BAD_REQUEST", "SUCCESS"]);
    let results = again.json()["results"].as_array().unwrap().clone();
    assert_eq!(results[0]["storedId"], first.json()["results"][0]["storedId"]);
    assert_eq!(results[1]["errors"][0]["field"], "id");
    assert_eq!(results[1]["storedId"], first.json()["results"][1]["storedId"]);
    let all_known = api.post(BATCH, &json!([item("0HZXEQ5Y8JY5Z"), item("0HZXEQ5Y8JY61")])).await;
    assert_eq!((all_known.status, words(&all_known)), (StatusCode::OK, vec!["SKIPPED".to_owned(); 2]));

    // A key of its own comes before the id; the single endpoint knows the id as well.
    let mut own = item("0HZXEQ5Y8JY62");
    own["idempotencyKey"] = json!("mine");
    let made = api.post("/api/dispatch/jobs", &own).await.json();
    assert_eq!((&made["externalId"], &made["idempotencyKey"]), (&json!("0HZXEQ5Y8JY62"), &json!("mine")));
    assert_eq!(words(&api.post(BATCH, &json!([item(&"x".repeat(33))])).await), ["BAD_REQUEST"]);
}

/// Duplicates inside one batch: the first is stored, a repeat of it is SKIPPED, other content under its key is an error.
#[tokio::test]
async fn s4_12_duplicates_inside_one_batch() {
    let api = Api::new().await;
    let item = |payload: &str| api.job_with(json!({"idempotencyKey": "k", "groupId": "g", "payload": payload}));
    let made = api.post(BATCH, &json!([item("1"), item("1"), item("2"), api.job_with(json!({"groupId": "g"}))])).await;
    assert_eq!(words(&made), ["SUCCESS", "SKIPPED", "BAD_REQUEST", "SUCCESS"]);
    let ids = made.json()["results"].as_array().unwrap().clone();
    assert_eq!(ids[0]["storedId"], ids[1]["storedId"]);
    assert_eq!(count(&api, "dispatch_job").await, 2);
    let next: i64 =
        api.sql.query_one("SELECT next_sequence_id FROM participant_outbox_sequences", &[]).await.unwrap().get(0);
    assert_eq!(next, 3, "no number is burnt");
}

/// A key that another transaction holds: its item answers RETRY, and so does what stands behind it in its group; all
/// others are stored. Sent again, everything is there once and in order.
#[tokio::test]
async fn s4_14_behind_a_retryable_failure_its_group_waits() {
    let api = Api::new().await;
    let hold = "BEGIN; INSERT INTO idempotency_key (kind, scope, key, outbox_id, content_hash) \
                VALUES ('source', 'order-service', 'a2', gen_random_uuid(), '')";
    api.sql.batch_execute(hold).await.unwrap();
    let item = |group: Option<&str>, key: &str| api.job_with(json!({"groupId": group, "idempotencyKey": key}));
    let (a, b) = (Some("a"), Some("b"));
    let batch =
        json!([item(a, "a1"), item(b, "b1"), item(a, "a2"), item(None, "n1"), item(a, "a3"), item(b, "b2"), {}]);
    let first = api.post(BATCH, &batch).await;
    assert_eq!(words(&first), ["SUCCESS", "SUCCESS", "RETRY", "SUCCESS", "RETRY", "SUCCESS", "BAD_REQUEST"]);
    assert!(first.json()["results"][4]["error"].as_str().unwrap().contains("behind"));
    api.sql.batch_execute("ROLLBACK").await.unwrap();
    let second = api.post(BATCH, &batch).await;
    assert_eq!(words(&second), ["SKIPPED", "SKIPPED", "SUCCESS", "SKIPPED", "SUCCESS", "SKIPPED", "BAD_REQUEST"]);
    let order = "SELECT string_agg(j.idempotency_key, ' ' ORDER BY p.participant_id, p.sequence_id)
                 FROM payment_outbox_pending p JOIN dispatch_job j USING (outbox_id) WHERE p.participant_id IS NOT NULL";
    assert_eq!(api.sql.query_one(order, &[]).await.unwrap().get::<_, String>(0), "a1 a2 a3 b1 b2");
}

/// An outage is the whole call's: 503 and Retry-After, no item has an answer.
#[tokio::test]
async fn s4_25_an_outage_is_the_calls_and_not_the_items() {
    let auth = Auth::new(super::kit::tokens());
    let api = Api::over(auth, ApiOptions::default(), |config| {
        config.url = "postgres://nobody@127.0.0.1:1/nothing".to_owned();
        config.acquire_timeout = std::time::Duration::from_millis(300);
    })
    .await;
    let away = api.post(BATCH, &json!([api.job()])).await;
    assert_eq!(away.status, StatusCode::SERVICE_UNAVAILABLE, "{}", away.text());
    assert_eq!(away.headers["retry-after"], "1");
    let viewer = asking("POST", BATCH, "viewer").header("content-type", "application/json").body(Body::from("[]"));
    assert_eq!(api.call(viewer.unwrap()).await.status, StatusCode::FORBIDDEN);
    let nobody = asking("POST", BATCH, "nobody").header("content-type", "application/json").body(Body::from("[]"));
    assert_eq!(api.call(nobody.unwrap()).await.status, StatusCode::UNAUTHORIZED);
}
