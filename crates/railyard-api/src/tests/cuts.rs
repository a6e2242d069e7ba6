//! Payments and their dispatch over a connection that breaks: wherever that is, the same call again has one effect.

use axum::body::Body;
use axum::http::StatusCode;
use railyard_testkit::{Cut, Moment};
use serde_json::{Value, json};

use super::faults::proxied;
use super::kit::{ADMIN, Answer, Api, asking};

const PAYMENTS: &str = "/api/payments";
const CONFIG: &str = "/admin/dispatch/config/PAYMENT";

/// Where acceptance may be cut, and whether all is written by then.
const CUTS: [(Moment, &str, bool); 8] = [
    (Moment::BeforeIt, "rate_assign", false),
    // The slot is given; nobody knows.
    (Moment::BeforeItsAnswer, "rate_assign", false),
    (Moment::BeforeIt, "INSERT INTO payment (", false),
    (Moment::BeforeItsAnswer, "INSERT INTO payment (", false),
    (Moment::BeforeIt, "exec_enqueue", false),
    (Moment::BeforeItsAnswer, "exec_enqueue", false),
    (Moment::BeforeIt, "COMMIT", false),
    (Moment::BeforeItsAnswer, "COMMIT", true),
];

fn payment(id: &str) -> Value {
    json!({
        "paymentId": id,
        "debtorName": "Anna Example",
        "debtorIban": "DE89370400440532013000",
        "creditorName": "Bert Example",
        "creditorIban": "NL91ABNA0417164300",
        "amount": "99.90",
        "currency": "EUR",
    })
}

/// Payments, contexts, queue rows, acceptance numbers, slots that are theirs; all as many. And slots that are nobody's.
async fn rows(api: &Api) -> ([i64; 5], i64) {
    let row = api
        .sql
        .query_one(
            "SELECT (SELECT count(*) FROM payment), (SELECT count(*) FROM payment_exec_context),
                    (SELECT count(*) FROM payment_exec_queue WHERE queue_status = 'READY'),
                    (SELECT coalesce(sum(accepted), 0)::bigint FROM exec_group),
                    (SELECT count(*) FROM rate_limit_event_slot WHERE confirm_by IS NULL),
                    (SELECT count(*) FROM rate_limit_event_slot WHERE confirm_by IS NOT NULL)",
            &[],
        )
        .await
        .unwrap();
    ([0, 1, 2, 3, 4].map(|column| row.get(column)), row.get(5))
}

#[tokio::test]
async fn s0_05_a_payment_that_was_cut_between_slot_and_write_is_accepted_once() {
    let (api, proxy) = proxied().await;
    let mut accepted = 0;
    for (n, (moment, statement, written)) in CUTS.into_iter().enumerate() {
        let body = payment(&format!("pay-{n}"));
        proxy.cut_around(moment, Cut::Reset, 1, move |sql| sql.contains(statement));
        let lost = api.post(PAYMENTS, &body).await;
        assert_eq!(lost.status, StatusCode::SERVICE_UNAVAILABLE, "{moment:?} {statement}: {}", lost.text());
        assert_eq!(rows(&api).await.0, [accepted + i64::from(written); 5], "{moment:?} {statement}");
        accepted += 1;
        let expected = if written { StatusCode::OK } else { StatusCode::CREATED };
        for status in [expected, StatusCode::OK] {
            let again = api.post(PAYMENTS, &body).await;
            assert_eq!(again.status, status, "{moment:?} {statement}: {}", again.text());
            assert_eq!(rows(&api).await, ([accepted; 5], 0), "{moment:?} {statement}");
        }
    }
}

#[tokio::test]
async fn s0_05_a_batch_that_was_cut_between_slot_and_write_is_accepted_once() {
    let (api, proxy) = proxied().await;
    let mut accepted = 0;
    for (n, (moment, statement, written)) in CUTS.into_iter().enumerate() {
        let body: Vec<Value> = (0..20).map(|m| payment(&format!("pay-{n}-{m}"))).collect();
        let body = json!(body);
        proxy.cut_around(moment, Cut::Reset, 1, move |sql| sql.contains(statement));
        let lost = api.post(&format!("{PAYMENTS}/batch"), &body).await;
        assert_eq!(lost.json()["count"], json!(0), "{moment:?} {statement}: {}", lost.text());
        assert_eq!(rows(&api).await.0, [accepted + 20 * i64::from(written); 5], "{moment:?} {statement}");
        accepted += 20;
        for count in [if written { 0 } else { 20 }, 0] {
            let again = api.post(&format!("{PAYMENTS}/batch"), &body).await;
            assert_eq!(again.json()["count"], json!(count), "{moment:?} {statement}: {}", again.text());
            assert_eq!(rows(&api).await, ([accepted; 5], 0), "{moment:?} {statement}");
        }
    }
}

async fn put(api: &Api, body: &Value) -> Answer {
    let request = asking("PUT", CONFIG, ADMIN).header("content-type", "application/json");
    api.call(request.body(Body::from(body.to_string())).unwrap()).await
}

async fn audited(api: &Api, action: &str) -> i64 {
    api.sql.query_one("SELECT count(*) FROM admin_audit WHERE action = $1", &[&action]).await.unwrap().get(0)
}

#[tokio::test]
async fn s0_08_a_switch_whose_answer_was_lost_is_thrown_once() {
    let (api, proxy) = proxied().await;
    let off = json!({ "enabled": false, "batchSize": 7 });
    for (moment, statement, set) in [
        (Moment::BeforeItsAnswer, "UPDATE exec_rate_config", false),
        (Moment::BeforeIt, "COMMIT", false),
        (Moment::BeforeItsAnswer, "COMMIT", true),
    ] {
        proxy.cut_around(moment, Cut::Reset, 1, move |sql| sql.contains(statement));
        let lost = put(&api, &off).await;
        assert_eq!(lost.status, StatusCode::SERVICE_UNAVAILABLE, "{statement}: {}", lost.text());
        let now = api.get(CONFIG).await.json();
        assert_eq!(
            (now["enabled"] == json!(false), now["batchSize"] == json!(7)),
            (set, set),
            "{moment:?} {statement}"
        );
        assert_eq!(audited(&api, "dispatch.set").await, i64::from(set));
    }
    let again = put(&api, &off).await;
    assert_eq!((again.status, &again.json()["enabled"]), (StatusCode::OK, &json!(false)));
    assert_eq!(audited(&api, "dispatch.set").await, 1, "it changed nothing any more");
}

#[tokio::test]
async fn s0_27_a_requeue_whose_answer_was_lost_is_one_run() {
    let (api, proxy) = proxied().await;
    let dead = "INSERT INTO payment_exec_queue (item_type, payment_id, queue_status, scheduled_exec_time, group_id, requested_time, acceptance_no, init_workflow_id, retry_count, dispatched_at)
                VALUES ('PAYMENT', 'a', 'DEAD_LETTER', now(), 'g', now(), 1, 'init', 5, now())";
    api.sql.batch_execute(dead).await.unwrap();
    let (path, reason) = ("/admin/dispatch/dead-letters/a/requeue", json!({ "reason": "bank is back" }));
    for (moment, runs) in [(Moment::BeforeIt, 0), (Moment::BeforeItsAnswer, 1)] {
        proxy.cut_around(moment, Cut::Reset, 1, |sql| sql.contains("dispatch_requeue"));
        assert_eq!(api.post(path, &reason).await.status, StatusCode::SERVICE_UNAVAILABLE);
        let run: i32 = api.sql.query_one("SELECT run_no FROM payment_exec_queue", &[]).await.unwrap().get(0);
        assert_eq!((run, audited(&api, "dispatch.requeue").await), (runs, i64::from(runs)), "{moment:?}");
    }
    let again = api.post(path, &reason).await;
    assert_eq!(again.status, StatusCode::CONFLICT, "{}", again.text());
    assert!(again.text().contains("READY"), "{}", again.text());
    assert_eq!(audited(&api, "dispatch.requeue").await, 1);
}
