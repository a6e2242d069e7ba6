//! Many jobs made again over HTTP: what a body may say, and what a preview tells.

use axum::http::StatusCode;
use serde_json::{Value, json};

use super::kit::Api;

const REPLAY: &str = "/api/dispatch/jobs/replay";

/// Jobs that have ended in ERROR; a late answer says of the last one that it was delivered.
async fn ended(api: &Api, count: usize) -> Vec<String> {
    let mut ids = Vec::new();
    for _ in 0..count {
        let made = api.post("/api/dispatch/jobs", &api.job()).await.json();
        ids.push(made["id"].as_str().unwrap().to_owned());
    }
    let end = "
        WITH p AS (DELETE FROM payment_outbox_pending RETURNING outbox_id)
        INSERT INTO dispatch_job_outcome (outbox_id, status, attempt_count, last_error, recorded_at)
        SELECT outbox_id, 'ERROR', 3, 'GONE', now() FROM p";
    api.sql.batch_execute(end).await.unwrap();
    let late = "
        INSERT INTO payment_outbox_attempt_archive (outbox_id, attempt_no, late, attempt_id, state, rail_type, epoch,
          node_id, claimed_at, completed_at, recorded_at)
        SELECT $1::text::uuid, 3, true, gen_random_uuid(), 'DISPATCHED', 'webhook', 1, gen_random_uuid(), now(), now(), now()";
    api.sql.execute(late, &[ids.last().unwrap()]).await.unwrap();
    ids
}

fn counts(answer: &Value) -> [u64; 4] {
    ["replayed", "existing", "refused", "remaining"].map(|name| answer[name].as_u64().unwrap())
}

/// A preview is the answer that the same call would give, with nothing done.
#[tokio::test]
async fn s3_32_a_preview_tells_what_the_same_call_does() {
    let api = Api::new().await;
    let ids = ended(&api, 4).await;
    let mut body = json!({ "filter": {}, "limit": 3, "reason": "back" });
    for expected in [[3, 0, 0, 1], [0, 0, 1, 0]] {
        let mut preview = body.clone();
        preview["preview"] = json!(true);
        let told = api.post(REPLAY, &preview).await;
        assert_eq!(told.status, StatusCode::OK, "{}", told.text());
        let told = told.json();
        assert_eq!((counts(&told), &told["preview"]), (expected, &json!(true)), "{told}");
        let done = api.post(REPLAY, &body).await.json();
        assert_eq!((counts(&done), done.get("nextCursor").is_some()), (expected, expected[3] > 0), "{done}");
        assert_eq!(told.get("nextCursor").is_some(), expected[3] > 0, "{told}");
        let of = |answer: &Value| -> Vec<(Value, Value)> {
            let results = answer["results"].as_array().cloned().unwrap_or_default();
            results.iter().map(|one| (one["id"].clone(), one["result"].clone())).collect()
        };
        assert_eq!(of(&done), of(&told));
        if expected[0] == 3 {
            assert_eq!(told["sample"].as_array().unwrap().len(), 4);
            let first = &done["results"][0];
            let job = api.get(&format!("/api/dispatch/jobs/{}", ids[0])).await.json();
            assert_eq!((&first["id"], &first["replayedBy"]), (&json!(ids[0]), &job["replayedBy"]));
        }
        body["cursor"] = done["nextCursor"].clone();
    }
}

#[tokio::test]
async fn the_body_of_a_replay_is_bounded_as_it_is_described() {
    let api = Api::new().await;
    let id = ended(&api, 1).await.remove(0);
    let long = "x".repeat(1025);
    for (body, fields) in [
        (json!({ "filter": { "source": long } }), vec!["filter.source"]),
        (json!({ "filter": { "metadata": { "a": long } } }), vec!["filter.metadata"]),
        (json!({ "filter": {}, "cursor": long }), vec!["cursor"]),
        (json!({ "filter": {}, "cursor": "x" }), vec!["cursor"]),
        (json!({ "ids": [id], "filter": {}, "limit": 3, "cursor": "x" }), vec!["filter", "limit", "cursor"]),
    ] {
        let mut body = body;
        body["preview"] = json!(true);
        assert_eq!(api.post(REPLAY, &body).await.fields(), fields, "{body}");
    }
    for body in [
        json!({ "ids": [id], "preview": true, "filter": null, "limit": null, "cursor": null }),
        json!({ "filter": {}, "preview": true, "cursor": "" }),
    ] {
        let told = api.post(REPLAY, &body).await;
        assert_eq!((told.status, counts(&told.json())), (StatusCode::OK, [0, 0, 1, 0]), "{}", told.text());
    }
}
