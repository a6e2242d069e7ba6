use axum::body::Body;
use axum::http::StatusCode;
use serde_json::{Value, json};

use super::kit::{ADMIN, Answer, Api, asking};

const CONFIG: &str = "/admin/dispatch/config/PAYMENT";

async fn put(api: &Api, path: &str, body: &Value) -> Answer {
    let request = asking("PUT", path, ADMIN).header("content-type", "application/json");
    api.call(request.body(Body::from(body.to_string())).unwrap()).await
}

#[tokio::test]
async fn s0_08_s0_09_settings_are_shown_and_changed_with_who_did_it() {
    let api = Api::new().await;
    let shown = api.get(CONFIG).await.json();
    let expected = json!({ "itemType": "PAYMENT", "enabled": true, "batchSize": 500, "dispatchIntervalSecs": 5,
        "jitterWindowMs": 4000, "preStartBufferMins": 30, "maxDispatchRetries": 5, "staleClaimThresholdMins": 2,
        "maxStaleRecoveryPerCycle": 100, "execWorkflowType": "PaymentExecWorkflow", "execTaskQueue": "payment_webhook",
        "stepRails": {}, "rateConfig": "payments" });
    assert_eq!(shown, expected);
    let change =
        json!({ "enabled": false, "batchSize": 1000, "jitterWindowMs": 0, "stepRails": { "NOTIFY": "webhook" } });
    let changed = put(&api, CONFIG, &change).await;
    assert_eq!(changed.status, StatusCode::OK, "{}", changed.text());
    let now = api.get(CONFIG).await.json();
    for (field, value) in change.as_object().unwrap() {
        assert_eq!((&changed.json()[field], &now[field]), (value, value), "{field}");
    }
    assert_eq!(now["execTaskQueue"], "payment_webhook", "what is not named stays");
    let audited = api.get("/admin/audit").await.json();
    assert_eq!(
        (&audited["items"][0]["action"], &audited["items"][0]["actor"]),
        (&json!("dispatch.set"), &json!("admin's"))
    );
    let wrong = json!({ "batchSize": 0, "dispatchIntervalSecs": 3601, "execWorkflowType": "x", "execTaskQueue": "No Rail",
        "stepRails": { "notify": "webhook" }, "more": 1 });
    let mut fields = put(&api, CONFIG, &wrong).await.fields();
    fields.sort_unstable();
    assert_eq!(fields, ["batchSize", "dispatchIntervalSecs", "execTaskQueue", "execWorkflowType", "more", "stepRails"]);
    let nothing = put(&api, CONFIG, &json!({ "stepRails": null, "rateConfig": null })).await;
    assert_eq!((nothing.status, &nothing.json()["stepRails"]["NOTIFY"]), (StatusCode::OK, &json!("webhook")));
    assert_eq!(put(&api, CONFIG, &json!({ "execTaskQueue": "nowhere" })).await.fields(), ["execTaskQueue"]);
    assert_eq!(put(&api, CONFIG, &json!({ "stepRails": { "NOTIFY": "nowhere" } })).await.fields(), ["stepRails"]);
    for name in ["no name", "nobodys"] {
        assert_eq!(put(&api, CONFIG, &json!({ "rateConfig": name })).await.fields(), ["rateConfig"]);
    }
    for path in ["/admin/dispatch/config/INVOICE", "/admin/dispatch/config/no-type"] {
        assert_eq!(api.get(path).await.status, StatusCode::NOT_FOUND);
        assert_eq!(put(&api, path, &json!({})).await.status, StatusCode::NOT_FOUND);
    }
}

#[tokio::test]
async fn nobody_else_enqueues_as_the_dispatcher() {
    let api = Api::new().await;
    let job = api.job_with(json!({ "source": "dispatch" }));
    assert_eq!(api.post("/api/dispatch/jobs", &job).await.fields(), ["source"]);
    let event = json!({ "type": "t", "source": "dispatch" });
    assert_eq!(api.post("/api/events", &event).await.fields(), ["source"]);
}

#[tokio::test]
async fn s0_27_a_dead_letter_is_requeued_once_with_its_reason() {
    let api = Api::new().await;
    let dead = "INSERT INTO payment_exec_queue (item_type, payment_id, queue_status, scheduled_exec_time, group_id, requested_time, acceptance_no, init_workflow_id, retry_count, dispatched_at)
                VALUES ('PAYMENT', 'a', 'DEAD_LETTER', now(), 'g', now(), 1, 'init', 5, now()), ('INVOICE', 'i', 'FAILED', now(), 'g', now(), 1, 'init', 0, NULL)";
    api.sql.batch_execute(dead).await.unwrap();
    let path = "/admin/dispatch/dead-letters/a/requeue";
    assert_eq!(api.post(path, &json!({ "itemType": "no" })).await.fields(), ["reason", "itemType"]);
    let reason = json!({ "reason": "bank is back" });
    let done = api.post(path, &reason).await;
    assert_eq!((done.status, done.json()), (StatusCode::OK, json!({ "requeued": true })), "{}", done.text());
    assert_eq!(api.post(path, &reason).await.status, StatusCode::CONFLICT, "it waits already");
    for unknown in ["b", "%00"] {
        let answer = api.post(&format!("/admin/dispatch/dead-letters/{unknown}/requeue"), &reason).await;
        assert_eq!(answer.status, StatusCode::NOT_FOUND, "{}", answer.text());
    }
    let invoice = json!({ "reason": "x", "itemType": "INVOICE" });
    assert_eq!(api.post("/admin/dispatch/dead-letters/i/requeue", &invoice).await.status, StatusCode::OK);
    let runs: Vec<i32> = api.sql.query_one("SELECT array_agg(run_no ORDER BY payment_id) FROM payment_exec_queue WHERE queue_status = 'READY' AND retry_count = 0", &[]).await.unwrap().get(0);
    assert_eq!(runs, [1, 0], "what was never handed over has had no run");
    let log = api.get("/admin/dispatch/audit?itemType=PAYMENT&itemId=a").await.json();
    let entry = &log["items"][0];
    assert_eq!(
        (&entry["action"], &entry["statusBefore"], &entry["statusAfter"]),
        (&json!("REQUEUED"), &json!("DEAD_LETTER"), &json!("READY"))
    );
    assert!(entry["detail"].as_str().unwrap().contains("bank is back"), "{entry}");
    let page = api.get("/admin/dispatch/audit?size=1").await.json();
    assert_eq!((&page["items"][0]["itemId"], page["items"].as_array().unwrap().len()), (&json!("i"), 1));
    let next =
        api.get(&format!("/admin/dispatch/audit?size=1&cursor={}", page["nextCursor"].as_str().unwrap())).await.json();
    assert_eq!((&next["items"][0]["itemId"], next.get("nextCursor")), (&json!("a"), None));
    assert_eq!(api.get("/admin/dispatch/audit?itemType=x&cursor=y").await.fields(), ["itemType", "cursor"]);
}
