//! Events from the API to their receivers.

use railyard_testkit::{FakeRail, eventually};
use serde_json::{Value, json};

use crate::api::Api;
use crate::world::SOON;

/// One subscriber fails at the head of a group and blocks it; the other gets all events of the group, in order, and the
/// blocked one's later events of other groups come too. What arrives is what was sent, with what it is in headers.
#[tokio::test(flavor = "multi_thread")]
async fn s4_05_one_subscribers_failure_holds_its_own_group_alone() {
    let api = Api::new().await;
    let (good, bad) = (FakeRail::start().await, FakeRail::start().await.status(410).forever());
    for (name, rail) in [("good", &good), ("bad", &bad)] {
        let body = json!({ "name": name, "typePattern": "order.*", "targetUrl": rail.url(), "mode": "BLOCK_ON_ERROR",
                           "credentialsId": api.credentials, "retryStrategy": "immediate" });
        api.http().post("/api/admin/subscriptions", &body).await.unwrap().expect_status(201);
    }
    let text = r#"{"amount":1.10,  "a":1, "a":2}"#;
    let event = |n: usize, group: &str| {
        format!(r#"{{"id":"e{n}","type":"order.created","source":"shop","messageGroup":"{group}","data":{text}}}"#)
    };
    let batch = format!("[{},{},{},{}]", event(1, "g"), event(2, "g"), event(3, "g"), event(4, "h"));
    let made = api.http().post_text("/api/events/batch", &batch).await.unwrap().expect_status(201).json();
    let words: Vec<&Value> = made["results"].as_array().unwrap().iter().map(|one| &one["status"]).collect();
    assert_eq!(words, ["SUCCESS"; 4]);
    let receipts = good.await_answered(4, SOON).await;
    assert!(receipts.iter().all(|receipt| receipt.body == text.as_bytes()), "to the byte");
    let ordered: Vec<Option<i64>> = receipts
        .iter()
        .filter(|receipt| receipt.header("x-railyard-group").is_some_and(|group| group.ends_with(":g")))
        .map(|receipt| receipt.sequence())
        .collect();
    assert_eq!(ordered, [Some(1), Some(2), Some(3)]);
    assert_eq!(receipts[0].header("ce-type"), Some("order.created"));
    assert_eq!(receipts[0].header("ce-source"), Some("shop"));
    // At the failing one: the head of g, and h.
    let receipts = bad.await_answered(2, SOON).await;
    let sql = api.db.connect().await;
    eventually(SOON, "the failing subscriber's groups are held, and nobody else's", || async {
        let held = "SELECT count(*) FROM group_hold h JOIN event_subscription s
                    ON starts_with(h.participant_id, s.subscription_id || ':') WHERE s.name = 'bad'";
        let all: i64 = sql.query_one("SELECT count(*) FROM group_hold", &[]).await.unwrap().get(0);
        sql.query_one(held, &[]).await.unwrap().get::<_, i64>(0) == 2 && all == 2
    })
    .await;
    assert_eq!(receipts.iter().filter_map(|receipt| receipt.sequence()).collect::<Vec<_>>(), [1, 1]);
    assert_eq!(bad.receipts().len(), 2);
}
