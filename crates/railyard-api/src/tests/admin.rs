use std::sync::atomic::Ordering;

use axum::http::StatusCode;
use serde_json::{Value, json};

use super::kit::Api;

async fn filled(group: &str) -> (Api, Vec<String>) {
    let api = Api::new().await;
    let mut ids = Vec::new();
    for _ in 0..2 {
        let made = api.post("/api/dispatch/jobs", &api.job_with(json!({"groupId": group}))).await.json();
        ids.push(made["id"].as_str().unwrap().to_owned());
    }
    (api, ids)
}

#[tokio::test]
async fn a_group_is_shown_paused_resumed_and_skipped_on_record() {
    // A name that has to be escaped in a path.
    let (api, ids) = filled("grüppe/1 ?").await;
    let path = "/admin/groups/gr%C3%BCppe%2F1%20%3F";
    let shown = api.get(path).await.json();
    assert_eq!(
        (&shown["groupId"], &shown["state"], &shown["depth"]),
        (&json!("grüppe/1 ?"), &json!("ready"), &json!(2))
    );
    assert_eq!(shown["head"]["jobId"], ids[0].as_str());

    let why = json!({"reason": "the bank asked for it"});
    assert_eq!(api.post(&format!("{path}/pause"), &why).await.json(), json!({"paused": true}));
    assert_eq!(api.post(&format!("{path}/pause"), &why).await.status, StatusCode::CONFLICT);
    assert_eq!(api.get(path).await.json()["holds"][0]["kind"], "paused");
    assert_eq!(api.get("/admin/groups").await.json()["items"].as_array().unwrap().len(), 1);
    assert_eq!(api.post(&format!("{path}/release"), &why).await.status, StatusCode::CONFLICT, "a pause is resumed");
    assert_eq!(api.post(&format!("{path}/resume"), &why).await.json(), json!({"paused": false}));

    let stale = json!({"reason": "r", "jobId": ids[1]});
    assert_eq!(api.post(&format!("{path}/skip"), &stale).await.status, StatusCode::CONFLICT);
    let wakes = api.node.wakes.load(Ordering::SeqCst);
    let skipped = api.post(&format!("{path}/skip"), &json!({"reason": "r", "jobId": ids[0]})).await.json();
    assert_eq!(skipped, json!({"jobId": ids[0], "sequence": 1, "cancelled": true}));
    assert_eq!(api.node.wakes.load(Ordering::SeqCst), wakes + 1);
    assert_eq!(api.get(&format!("/api/dispatch/jobs/{}", ids[0])).await.json()["status"], "CANCELLED");

    let audit = api.get("/admin/audit?groupId=gr%C3%BCppe%2F1%20%3F").await.json();
    let actions: Vec<&Value> = audit["items"].as_array().unwrap().iter().map(|entry| &entry["action"]).collect();
    assert_eq!(actions, ["group.skip", "group.resume", "group.pause"]);
    assert_eq!((&audit["items"][2]["actor"], &audit["items"][2]["reason"]), (&json!("admin's"), &why["reason"]));
}

#[tokio::test]
async fn a_blocked_group_is_released() {
    let (api, ids) = filled("g").await;
    let block = "
        WITH p AS (DELETE FROM payment_outbox_pending WHERE sequence_id = 1 RETURNING *),
        o AS (INSERT INTO dispatch_job_outcome SELECT outbox_id, 'ERROR', participant_id, 1, 3, 'GONE', 5, now() FROM p)
        INSERT INTO group_hold SELECT participant_id, 'blocked', outbox_id, 'GONE', 'settle' FROM p;
        UPDATE ready_group SET due_at = 'infinity'";
    api.sql.batch_execute(block).await.unwrap();
    let dlq = api.get("/admin/dlq").await.json();
    assert_eq!((&dlq["items"][0]["id"], &dlq["items"][0]["lastError"]), (&json!(ids[0]), &json!("GONE")));
    let mut job = api.get(&format!("/api/dispatch/jobs/{}", ids[0])).await.json();
    job.as_object_mut().unwrap().remove("payload");
    assert_eq!(dlq["items"][0], job, "a dead letter is a job");
    assert!(api.get("/admin/dlq?status=EXPIRED").await.json()["items"].as_array().unwrap().is_empty());
    assert_eq!(api.get("/admin/dlq?status=COMPLETED").await.status, StatusCode::BAD_REQUEST);
    let wrong = api.post("/admin/groups/g/release", &json!({"kinds": ["broken"]})).await.fields();
    assert_eq!(wrong, ["reason", "kinds"]);
    let released = api.post("/admin/groups/g/release", &json!({"reason": "fixed"})).await.json();
    assert_eq!(released, json!({"released": [{"kind": "blocked", "jobId": ids[0]}]}));
    assert_eq!(api.get("/admin/groups/g").await.json()["state"], "ready");
}

#[tokio::test]
async fn a_decision_needs_a_reason_and_a_group_that_exists() {
    let (api, _) = filled("g").await;
    for action in ["pause", "resume", "release", "skip"] {
        let path = format!("/admin/groups/g/{action}");
        assert_eq!(api.post(&path, &json!({})).await.fields(), ["reason"]);
        assert_eq!(api.post(&path, &json!({"reason": " "})).await.fields(), ["reason"]);
        assert_eq!(api.post(&path, &json!({"reason": "x".repeat(1001)})).await.fields(), ["reason"]);
    }
    assert_eq!(api.get("/admin/groups/nobody").await.status, StatusCode::NOT_FOUND);
    assert_eq!(api.post("/admin/groups/nobody/skip", &json!({"reason": "r"})).await.status, StatusCode::CONFLICT);
    for name in ["a%00b", "a%ff", &"x".repeat(513)] {
        let answer = api.get(&format!("/admin/groups/{name}")).await;
        assert_eq!(answer.status, StatusCode::NOT_FOUND, "{name}");
        assert_eq!(answer.headers["content-type"], "application/problem+json");
    }
}

#[tokio::test]
async fn lists_name_their_views_and_their_next_page() {
    let api = Api::new().await;
    for group in ["a", "b", "b", "c"] {
        api.post("/api/dispatch/jobs", &api.job_with(json!({"groupId": group}))).await;
    }
    let page = api.get("/admin/groups?view=all&size=2").await.json();
    assert_eq!((&page["items"][1]["groupId"], &page["nextCursor"]), (&json!("b"), &json!("b")));
    let page = api.get("/admin/groups?view=all&size=2&cursor=b").await.json();
    assert_eq!((&page["items"][0]["groupId"], &page["nextCursor"]), (&json!("c"), &Value::Null));
    assert_eq!(api.get("/admin/groups?view=deepest&size=1").await.json()["items"][0]["groupId"], "b");
    assert_eq!(api.get("/admin/groups?view=oldest").await.json()["items"][0]["groupId"], "a");
    let all = api.get("/admin/groups?view=all&size=3&cursor=").await.json();
    assert_eq!(
        (all["items"].as_array().unwrap().len(), &all["nextCursor"]),
        (3, &Value::Null),
        "a full page is the last"
    );
    assert_eq!(api.get("/admin/groups?view=new&size=ten&page=1").await.fields(), ["view", "size", "page"]);
    for group in ["a", "b"] {
        api.post(&format!("/admin/groups/{group}/pause"), &json!({ "reason": "r" })).await;
    }
    let entries = api.get("/admin/audit").await.json()["items"].as_array().unwrap().len();
    let audit = api.get(&format!("/admin/audit?cursor=&size={entries}")).await.json();
    assert_eq!(audit.get("nextCursor"), None, "a full page is the last");
    let first = api.get("/admin/audit?size=1").await.json();
    let second = api.get(&format!("/admin/audit?size=1&cursor={}", first["nextCursor"].as_str().unwrap())).await.json();
    assert_eq!(second["items"][0], audit["items"][1]);
    assert_eq!(api.get("/admin/audit?cursor=x&size=0&groupId=%00").await.fields(), ["groupId", "cursor", "size"]);
    assert_eq!(
        api.get("/admin/dlq?status=COMPLETED&cursor=x&size=&size=2").await.fields(),
        ["status", "size", "cursor"]
    );
    assert_eq!(api.get("/admin/node").await.json(), json!({"groups": []}));
}

#[tokio::test]
async fn a_rail_is_paused_and_resumed() {
    let api = Api::new().await;
    let why = json!({"reason": "cut-off"});
    assert_eq!(api.post("/admin/rails/webhook/pause", &why).await.json(), json!({"paused": true}));
    assert_eq!(api.post("/admin/rails/webhook/pause", &why).await.status, StatusCode::CONFLICT);
    let rails = api.get("/admin/rails").await.json();
    let webhook = rails["items"].as_array().unwrap().iter().find(|rail| rail["railType"] == "webhook").unwrap();
    assert_eq!((&webhook["paused"], &webhook["switched"]["reason"]), (&json!(true), &json!("cut-off")));
    assert_eq!(api.post("/admin/rails/webhook/resume", &why).await.json(), json!({"paused": false}));
    assert_eq!(api.post("/admin/rails/pigeon/pause", &why).await.status, StatusCode::NOT_FOUND);
    assert_eq!(api.post("/admin/rails/webhook/pause", &json!({})).await.fields(), ["reason"]);
}
