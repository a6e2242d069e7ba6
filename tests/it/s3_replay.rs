//! Jobs that ended without success, sent again by an operator's decision (S3-32), at the receiver.

use railyard_testkit::{FakeRail, eventually};
use serde_json::json;

use crate::api::{Api, JOBS};
use crate::world::SOON;

/// A blocked payment is replayed: it goes out in its own place, before those that waited behind it, with the key that the
/// rail knows and the same bytes. A second click sends nothing.
#[tokio::test(flavor = "multi_thread")]
async fn s3_32_a_replay_unblocks_its_group_in_order() {
    let api = Api::new().await;
    let rail = FakeRail::start().await.status(410).then_ok();
    let of_group = json!({ "groupId": "g", "mode": "BLOCK_ON_ERROR" });
    let payload = r#"{"a":1.10,  "a":2}"#;
    let head = api.post(&api.job(&rail, payload, &of_group)).await.expect_status(201);
    let failed = api.ended(&head).await;
    assert_eq!(failed["status"], "ERROR");
    api.post(&api.job(&rail, "behind", &of_group)).await.expect_status(201);
    let id = failed["id"].as_str().unwrap();
    let path = format!("{JOBS}/{id}/replay");
    let why = json!({ "reason": "the receiver is back" });
    let made = api.http().post(&path, &why).await.unwrap().expect_status(201);
    assert_eq!((&made.json()["replayOf"], &made.json()["sequence"]), (&json!(id), &json!(1)));
    let again = api.http().post(&path, &why).await.unwrap().expect_status(200);
    assert_eq!(again.json()["id"], made.json()["id"]);
    assert_eq!(api.ended(&made).await["status"], "COMPLETED");
    let receipts = rail.await_answered(3, SOON).await;
    let bodies: Vec<&[u8]> = receipts.iter().map(|receipt| receipt.body.as_ref()).collect();
    assert_eq!(bodies, [payload.as_bytes(), payload.as_bytes(), b"behind"]);
    assert_eq!(receipts[0].header("Idempotency-Key"), receipts[1].header("Idempotency-Key"));
    assert_eq!(receipts[1].header("webhook-id"), made.json()["id"].as_str());
    let late = api.http().post(&path, &why).await.unwrap().expect_status(200);
    assert_eq!(late.json()["status"], "COMPLETED");
    let delivered = format!("{JOBS}/{}/replay", made.json()["id"].as_str().unwrap());
    api.http().post(&delivered, &why).await.unwrap().expect_status(409);
    assert_eq!(rail.receipts().len(), 3);
}

/// Many at once over HTTP: a preview that does nothing, then so many a call until none is left; the dead letters go.
#[tokio::test(flavor = "multi_thread")]
async fn s3_32_many_are_replayed_after_a_preview() {
    let api = Api::new().await;
    let rail = FakeRail::start().await.status(410).status(410).status(410).then_ok();
    for n in 0..3 {
        let made = api.post(&api.job(&rail, &n.to_string(), &json!({}))).await.expect_status(201);
        assert_eq!(api.ended(&made).await["status"], "ERROR");
    }
    let many = async |body: serde_json::Value| api.http().post("/admin/dlq/replay", &body).await.unwrap();
    let preview = many(json!({ "filter": {}, "preview": true })).await.expect_status(200).json();
    assert_eq!((&preview["preview"], &preview["replayed"]), (&json!(true), &json!(3)));
    assert_eq!(preview["sample"].as_array().unwrap().len(), 3);
    assert_eq!(rail.receipts().len(), 3, "a preview does nothing");
    let mut body = json!({ "filter": {}, "reason": "back", "limit": 2 });
    let first = many(body.clone()).await.expect_status(200).json();
    assert_eq!((&first["replayed"], &first["remaining"]), (&json!(2), &json!(1)));
    body["cursor"] = first["nextCursor"].clone();
    let second = many(body).await.expect_status(200).json();
    assert_eq!((&second["replayed"], &second["remaining"]), (&json!(1), &json!(0)));
    assert!(second.get("nextCursor").is_none());
    rail.await_answered(6, SOON).await;
    let letters = api.http().get("/admin/dlq").await.unwrap().expect_status(200).json();
    assert_eq!(letters["items"], json!([]), "what was replayed is no dead letter any more");
    eventually(SOON, "all are delivered", || async {
        let done = api.http().get(&format!("{JOBS}?status=COMPLETED")).await.unwrap().json();
        done["totalItems"] == 3
    })
    .await;
}
