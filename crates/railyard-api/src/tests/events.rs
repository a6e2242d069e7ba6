//! Events: matching, fan-out in the same transaction, bytes, keys, results; subscriptions.

use axum::http::StatusCode;
use serde_json::{Value, json};

use super::kit::{Answer, Api};

const EVENTS: &str = "/api/events";
const BATCH: &str = "/api/events/batch";
const SUBSCRIPTIONS: &str = "/api/admin/subscriptions";

async fn subscribe(api: &Api, name: &str, pattern: &str, more: Value) -> String {
    let mut body = json!({ "name": name, "typePattern": pattern, "targetUrl": format!("https://{name}.example/hook"),
                           "credentialsId": api.credentials });
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let made = api.post(SUBSCRIPTIONS, &body).await;
    assert_eq!(made.status, StatusCode::CREATED, "{}", made.text());
    made.json()["id"].as_str().unwrap().to_owned()
}

fn words(answer: &Answer) -> Vec<String> {
    let results = answer.json()["results"].as_array().unwrap_or_else(|| panic!("{}", answer.text())).clone();
    results.iter().map(|one| one["status"].as_str().unwrap().to_owned()).collect()
}

/// Names of the subscriptions that got a job, with each job's type, sorted.
async fn jobs(api: &Api) -> Vec<String> {
    let sql = "SELECT m.meta_value || ' ' || j.type FROM dispatch_job j
               JOIN dispatch_job_metadata m ON m.dispatch_job_id = j.outbox_id AND m.meta_key = 'subscription' ORDER BY 1";
    api.sql.query(sql, &[]).await.unwrap().iter().map(|row| row.get(0)).collect()
}

async fn one<T: for<'a> tokio_postgres::types::FromSql<'a>>(api: &Api, sql: &str) -> T {
    api.sql.query_one(sql, &[]).await.unwrap().get(0)
}

#[tokio::test]
async fn events_go_to_whoever_matches_type_and_source() {
    let api = Api::new().await;
    subscribe(&api, "all", "*", json!({})).await;
    subscribe(&api, "orders", "order.*", json!({})).await;
    subscribe(&api, "exact", "order.created", json!({ "source": "shop" })).await;
    let off = subscribe(&api, "off", "*", json!({})).await;
    assert_eq!(api.post(&format!("{SUBSCRIPTIONS}/{off}/disable"), &json!({})).await.json()["enabled"], false);
    for (kind, source) in
        [("order.created", "shop"), ("order.created", "mail"), ("orders.x", "shop"), ("order.", "shop")]
    {
        let made = api.post(EVENTS, &json!({ "type": kind, "source": source, "data": 1 })).await;
        assert_eq!(made.status, StatusCode::CREATED, "{}", made.text());
    }
    let expected = [
        "all order.",
        "all order.created",
        "all order.created",
        "all orders.x",
        "exact order.created",
        "orders order.",
        "orders order.created",
        "orders order.created",
    ];
    assert_eq!(jobs(&api).await, expected);
    let counted: Vec<i32> = one(&api, "SELECT array_agg(jobs ORDER BY event_id) FROM event").await;
    assert_eq!(counted, [3, 2, 1, 2]);
    assert!(api.node.wakes.load(std::sync::atomic::Ordering::SeqCst) > 0);
}

/// What was sent in as `data` is what goes out, to the byte; nothing is an empty body, null is `null`.
#[tokio::test]
async fn trap_the_bytes_of_data_are_kept() {
    let api = Api::new().await;
    subscribe(&api, "all", "*", json!({})).await;
    let tricky = r#"{"bb": 1, "a":1.10,  "a":2, "e":1e2, "big":12345678901234567890.000, "u":"\u00e9\u001B\/"}"#;
    for data in [tricky, "[ ]", "\"text\"", "null", "1.0"] {
        let made = api.post_text(EVENTS, &format!(r#"{{"type":"t","source":"s", "data" : {data} }}"#)).await;
        assert_eq!(made.status, StatusCode::CREATED, "{}", made.text());
        let stored: Vec<u8> = one(&api, "SELECT payload FROM dispatch_job ORDER BY outbox_id DESC LIMIT 1").await;
        assert_eq!(String::from_utf8(stored).unwrap(), data);
        let batch = format!(r#"[{{"type":"t","source":"s","data":{data}}}]"#);
        assert_eq!(words(&api.post_text(BATCH, &batch).await), ["SUCCESS"]);
        let stored: Vec<u8> = one(&api, "SELECT data FROM event ORDER BY event_id DESC LIMIT 1").await;
        assert_eq!(String::from_utf8(stored).unwrap(), data);
    }
    api.post(EVENTS, &json!({ "type": "t", "source": "s" })).await;
    let empty: Vec<u8> = one(&api, "SELECT payload FROM dispatch_job ORDER BY outbox_id DESC LIMIT 1").await;
    assert_eq!(empty, b"");
}

/// The same key and content is the same event, once with its jobs; other content is 409, or the item's error.
#[tokio::test]
async fn s4_12_an_events_key_is_its_deduplication_id_or_its_id() {
    let api = Api::new().await;
    subscribe(&api, "all", "*", json!({})).await;
    let event = |more: Value| {
        let mut event = json!({ "type": "t", "source": "s", "data": {"a": 1}, "messageGroup": "g" });
        event.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        event
    };
    let first = api.post(EVENTS, &event(json!({ "id": "e1" }))).await;
    let again = api.post(EVENTS, &event(json!({ "id": "e1" }))).await;
    assert_eq!((first.status, again.status), (StatusCode::CREATED, StatusCode::OK));
    assert_eq!(first.json(), again.json());
    let other = api.post(EVENTS, &event(json!({ "id": "e1", "data": {"a": 2} }))).await;
    assert_eq!((other.status, &other.json()["firstId"]), (StatusCode::CONFLICT, &first.json()["id"]));
    assert!(other.json()["detail"].as_str().unwrap().starts_with("id was used"), "{}", other.text());
    let batch = json!({ "events": [
        event(json!({ "id": "e1" })), event(json!({ "id": "e2" })), event(json!({ "id": "e2" })),
        event(json!({ "id": "e3", "deduplicationId": "d" })), event(json!({ "id": "e4", "deduplicationId": "d" })),
        event(json!({ "id": "e2", "type": "other" })), event(json!({ "source": "elsewhere", "id": "e1" })),
        event(json!({})), event(json!({})), {"type": "t"}, 7,
    ]});
    let made = api.post(BATCH, &batch).await;
    let expected = [
        "SKIPPED",
        "SUCCESS",
        "SKIPPED",
        "SUCCESS",
        "BAD_REQUEST",
        "BAD_REQUEST",
        "SUCCESS",
        "SUCCESS",
        "SUCCESS",
        "BAD_REQUEST",
        "BAD_REQUEST",
    ];
    assert_eq!(words(&made), expected);
    assert_eq!((made.status, &made.json()["count"]), (StatusCode::CREATED, &json!(5)));
    assert_eq!(
        (&made.json()["results"][1]["id"], &made.json()["results"][9]["errors"][0]["field"]),
        (&json!("e2"), &json!("source"))
    );
    let key = |n: usize| made.json()["results"][n]["errors"][0]["field"].clone();
    assert_eq!([key(4), key(5)], ["deduplicationId", "id"]);
    let counted = api.get("/metrics").await.text();
    for line in ["created\"} 6", "repeated\"} 3", "conflict\"} 3", "refused\"} 2"] {
        assert!(counted.contains(&format!("railyard_api_events_total{{result=\"{line}")), "{line}: {counted}");
    }
    assert_eq!(jobs(&api).await.len(), 6);
    assert_eq!(one::<i64>(&api, "SELECT count(*) FROM event").await, 6);
    assert_eq!(words(&api.post(BATCH, &json!([event(json!({ "id": "e2" }))])).await), ["SKIPPED"]);
    assert_eq!(api.post(BATCH, &json!(vec![event(json!({})); 1001])).await.status, StatusCode::PAYLOAD_TOO_LARGE);
}

/// Each subscriber has the event's group for itself, in the order of the events; without a group there is no order.
#[tokio::test]
async fn s4_05_a_message_group_is_each_subscribers_own() {
    let api = Api::new().await;
    let a = subscribe(&api, "a", "*", json!({})).await;
    let b = subscribe(&api, "b", "*", json!({})).await;
    let event =
        |group: Option<&str>, n: usize| json!({ "type": format!("t{n}"), "source": "s", "messageGroup": group });
    let long = "x".repeat(255);
    let batch =
        json!([event(Some("g"), 1), event(Some("h"), 2), event(Some("g"), 3), event(None, 4), event(Some(&long), 5)]);
    assert_eq!(words(&api.post(BATCH, &batch).await), ["SUCCESS"; 5]);
    let order = |id: &str| {
        format!(
            "SELECT string_agg(j.type, ' ' ORDER BY p.sequence_id) FROM payment_outbox_pending p
                 JOIN dispatch_job j USING (outbox_id) WHERE p.participant_id = '{id}:g'"
        )
    };
    for id in [a, b] {
        assert_eq!(one::<String>(&api, &order(&id)).await, "t1 t3");
    }
    let unordered: i64 = one(&api, "SELECT count(*) FROM payment_outbox_pending WHERE participant_id IS NULL").await;
    assert_eq!(unordered, 2);
}

/// A key that another transaction holds: RETRY for its item and what stands behind it in its group, nothing else.
#[tokio::test]
async fn s4_14_behind_an_event_that_must_come_again_its_group_waits() {
    let api = Api::new().await;
    subscribe(&api, "all", "*", json!({})).await;
    let hold = "BEGIN; INSERT INTO idempotency_key (kind, scope, key, outbox_id, content_hash) \
                VALUES ('event', 's', 'a2', gen_random_uuid(), '')";
    api.sql.batch_execute(hold).await.unwrap();
    let event = |group: &str, id: &str| json!({ "type": id, "source": "s", "id": id, "messageGroup": group });
    let batch = json!([event("a", "a1"), event("a", "a2"), event("b", "b1"), event("a", "a3")]);
    assert_eq!(words(&api.post(BATCH, &batch).await), ["SUCCESS", "RETRY", "SUCCESS", "RETRY"]);
    assert_eq!(api.post(EVENTS, &event("a", "a2")).await.status, StatusCode::SERVICE_UNAVAILABLE);
    api.sql.batch_execute("ROLLBACK").await.unwrap();
    assert_eq!(words(&api.post(BATCH, &batch).await), ["SKIPPED", "SUCCESS", "SKIPPED", "SUCCESS"]);
    let order = "SELECT string_agg(j.type, ' ' ORDER BY p.sequence_id) FROM payment_outbox_pending p
                 JOIN dispatch_job j USING (outbox_id) WHERE p.participant_id LIKE '%:a'";
    assert_eq!(one::<String>(&api, order).await, "a1 a2 a3");
}

/// What a subscription may say, its jobs may be: none is taken that would turn events away.
#[tokio::test]
async fn a_subscription_whose_jobs_would_be_refused_is_refused_itself() {
    let api = Api::new().await;
    let with = |more: Value| {
        let mut body = json!({ "name": "a", "typePattern": "*", "targetUrl": "https://a.example/",
                               "credentialsId": api.credentials });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    for (more, field) in [
        (json!({ "headers": { "X-Long": "x".repeat(7800) } }), "headers"),
        (json!({ "headers": { "CE-ID": "mine" } }), "headers"),
        (json!({ "targetUrl": "https:example.com" }), "targetUrl"),
        (json!({ "targetUrl": "https:///example.com" }), "targetUrl"),
    ] {
        assert_eq!(api.post(SUBSCRIPTIONS, &with(more.clone())).await.fields(), [field], "{more}");
    }
    let most = with(json!({ "headers": { "X-Long": "x".repeat(7600) } }));
    assert_eq!(api.post(SUBSCRIPTIONS, &most).await.status, StatusCode::CREATED);
    let longest = json!({ "type": "t".repeat(200), "source": "s".repeat(200) });
    let made = api.post(EVENTS, &longest).await;
    assert_eq!(made.status, StatusCode::CREATED, "{}", made.text());
    assert_eq!(jobs(&api).await.len(), 1);
}

#[tokio::test]
async fn subscriptions_are_validated_audited_and_hold_their_credentials() {
    let api = Api::new().await;
    let id =
        subscribe(&api, "a", "order.*", json!({ "maxRetries": 7, "headers": {"X-A": "b"}, "mode": "BLOCK_ON_ERROR" }))
            .await;
    let path = format!("{SUBSCRIPTIONS}/{id}");
    let read = api.get(&path).await.json();
    assert_eq!(
        (&read["maxRetries"], &read["mode"], &read["enabled"]),
        (&json!(7), &json!("BLOCK_ON_ERROR"), &json!(true))
    );
    assert_eq!(api.get(SUBSCRIPTIONS).await.json()["items"], json!([read]));
    let body = json!({ "name": "a", "typePattern": "*", "targetUrl": "https://x/", "credentialsId": api.credentials });
    assert_eq!(api.post(SUBSCRIPTIONS, &body).await.status, StatusCode::CONFLICT, "its name is taken");
    let bad = json!({ "name": "a b", "typePattern": "a*", "targetUrl": "ftp://x", "credentialsId": "x", "mode": "LATER",
                      "maxRetries": 0, "colour": "red" });
    let mut named = api.post(SUBSCRIPTIONS, &bad).await.fields();
    named.sort();
    assert_eq!(named, ["colour", "credentialsId", "maxRetries", "mode", "name", "targetUrl", "typePattern"]);
    let unknown = json!({ "name": "b", "typePattern": "*", "targetUrl": "https://x/",
                          "credentialsId": "00000000-0000-7000-8000-000000000000" });
    assert_eq!(api.post(SUBSCRIPTIONS, &unknown).await.fields(), ["credentialsId"]);

    let credentials = format!("/api/admin/dispatch/credentials/{}", api.credentials);
    let refused = api.delete(&credentials).await;
    assert_eq!(refused.status, StatusCode::CONFLICT, "{}", refused.text());
    assert!(refused.text().contains("subscription"), "{}", refused.text());
    assert_eq!(api.delete(&format!("{credentials}?force=true")).await.status, StatusCode::NO_CONTENT);
    assert_eq!(api.get(&path).await.json()["enabled"], false, "nothing is sent unsigned");
    let enable = api.post(&format!("{path}/enable"), &json!({})).await;
    assert_eq!(enable.status, StatusCode::CONFLICT, "{}", enable.text());
    assert_eq!(api.post(EVENTS, &json!({ "type": "order.x", "source": "s" })).await.status, StatusCode::CREATED);

    assert_eq!(api.delete(&path).await.status, StatusCode::NO_CONTENT);
    assert_eq!(api.delete(&path).await.status, StatusCode::NOT_FOUND);
    assert_eq!(api.get(&path).await.status, StatusCode::NOT_FOUND);
    let audited =
        "SELECT string_agg(action, ' ' ORDER BY audit_id) FROM admin_audit WHERE action LIKE 'subscription.%'";
    assert_eq!(one::<String>(&api, audited).await, "subscription.create subscription.delete");
}
