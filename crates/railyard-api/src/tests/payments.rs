use axum::body::Body;
use axum::http::StatusCode;
use serde_json::{Value, json};

use super::kit::{Api, asking};

const PAYMENTS: &str = "/api/payments";

fn payment(id: &str) -> Value {
    json!({
        "paymentId": id,
        "debtorName": "Anna Example",
        "debtorIban": "DE89 3704 0044 0532 0130 00",
        "creditorName": "Bert Example",
        "creditorIban": "NL91ABNA0417164300",
        "amount": "99.9",
        "currency": "EUR",
    })
}

fn with(id: &str, field: &str, value: Value) -> Value {
    let mut payment = payment(id);
    payment[field] = value;
    payment
}

#[tokio::test]
async fn s0_01_a_payment_is_enqueued_at_once_and_can_be_read() {
    let api = Api::new().await;
    let at: jiff::Timestamp =
        api.sql.query_one("SELECT date_trunc('minute', now()) + interval '2 hours'", &[]).await.unwrap().get(0);
    let body = with("pay-1", "requestedTime", json!(at.to_string()));
    let made = api.post(PAYMENTS, &body).await;
    assert_eq!(made.status, StatusCode::CREATED, "{}", made.text());
    assert_eq!(made.headers["location"], "/api/payments/pay-1");
    let answer = made.json();
    for (field, value) in [
        ("result", json!("ENQUEUED")),
        ("status", json!("SCHEDULED")),
        ("queueStatus", json!("READY")),
        ("amount", json!("99.90")),
        ("acceptanceNo", json!("1")),
        ("createdBy", json!("admin's")),
        ("requestedTime", json!(railyard_core::timestamp::utc_millis(at))),
    ] {
        assert_eq!(answer[field], value, "{field}");
    }
    let scheduled: jiff::Timestamp = answer["scheduledTime"].as_str().unwrap().parse().unwrap();
    assert!(scheduled >= at && scheduled.duration_since(at).as_secs() < 5, "{scheduled}");
    let read = api.get("/api/payments/pay-1").await.json();
    assert_eq!(read["debtor"], json!({ "name": "Anna Example", "iban": "DE89370400440532013000" }));
    let again = api.post(PAYMENTS, &body).await;
    assert_eq!((again.status, &again.json()["result"]), (StatusCode::OK, &json!("KNOWN")), "{}", again.text());
    assert_eq!(again.json()["scheduledTime"], answer["scheduledTime"]);
    let other = api.post(PAYMENTS, &payment("pay-1")).await;
    assert_eq!(other.status, StatusCode::CONFLICT, "{}", other.text());
    for unknown in ["/api/payments/pay-2", "/api/payments/%20"] {
        assert_eq!(api.get(unknown).await.status, StatusCode::NOT_FOUND);
    }
}

#[tokio::test]
async fn s0_02_what_is_wrong_is_named_with_its_step() {
    let api = Api::new().await;
    let wrong = json!({ "paymentId": "a b", "debtorName": "", "debtorIban": 7, "creditorName": "x", "creditorIban": "NL92ABNA0417164300",
        "amount": 99.9, "currency": "XXX", "requestedTime": "soon", "debtorBic": "nobank", "extra": 1 });
    let refused = api.post(PAYMENTS, &wrong).await;
    assert_eq!(refused.json()["step"], "VALIDATE", "{}", refused.text());
    let mut fields = refused.fields();
    fields.sort_unstable();
    let expected = [
        "amount",
        "creditorIban",
        "currency",
        "debtorBic",
        "debtorIban",
        "debtorName",
        "extra",
        "paymentId",
        "requestedTime",
    ];
    assert_eq!(fields, expected);
    let far = api.post(PAYMENTS, &with("a", "requestedTime", json!("2400-01-01T00:00:00Z"))).await;
    assert_eq!((far.fields(), &far.json()["step"]), (vec!["requestedTime".to_owned()], &json!("ENRICH")));
    let rule = "INSERT INTO payment_rule (kind, currency, max_amount, reason) VALUES ('limit', 'EUR', 99.895, 'test')";
    api.sql.batch_execute(rule).await.unwrap();
    let above = api.post(PAYMENTS, &payment("a")).await;
    assert_eq!((above.fields(), &above.json()["step"]), (vec!["amount".to_owned()], &json!("APPLY_RULES")));
    assert_eq!(above.json()["errors"][0]["detail"], "is above the limit of 99.89 EUR");
    api.sql.batch_execute("DELETE FROM payment_rule; UPDATE rate_limit_config SET is_active = false").await.unwrap();
    let failed = api.post(PAYMENTS, &payment("a")).await;
    assert_eq!((failed.status, &failed.json()["step"]), (StatusCode::INTERNAL_SERVER_ERROR, &json!("ASSIGN_SLOT")));
    assert!(!failed.text().contains("rate configuration"), "our mistakes are for the log: {}", failed.text());
    let left: i64 = api.sql.query_one("SELECT count(*) FROM payment", &[]).await.unwrap().get(0);
    assert_eq!(left, 0);
}

#[tokio::test]
async fn each_payment_of_a_batch_is_answered_for_itself() {
    let api = Api::new().await;
    api.post(PAYMENTS, &payment("known")).await;
    let wrong = json!([
        payment("a"),
        1,
        with("b", "amount", json!("0")),
        payment("known"),
        with("known", "amount", json!("1")),
        payment("c")
    ]);
    let answer = api.post(&format!("{PAYMENTS}/batch"), &wrong).await;
    assert_eq!(answer.status, StatusCode::CREATED, "{}", answer.text());
    let answer = answer.json();
    let results = answer["results"].as_array().unwrap();
    let words: Vec<&str> = results.iter().map(|result| result["status"].as_str().unwrap()).collect();
    assert_eq!(words, ["SUCCESS", "BAD_REQUEST", "BAD_REQUEST", "SKIPPED", "BAD_REQUEST", "SUCCESS"]);
    assert_eq!((&answer["count"], &results[2]["step"]), (&json!(2), &json!("VALIDATE")));
    assert_eq!((&results[2]["paymentId"], &results[2]["errors"][0]["field"]), (&json!("b"), &json!("amount")));
    assert!(results[0]["scheduledTime"].is_string() && results[3].get("scheduledTime").is_none());
    assert!(results[4]["error"].as_str().unwrap().contains("used before"), "{}", results[4]);
    let none = api.post(&format!("{PAYMENTS}/batch"), &json!({ "payments": [payment("a")] })).await;
    assert_eq!((none.status, &none.json()["count"]), (StatusCode::OK, &json!(0)), "{}", none.text());
}

#[tokio::test]
async fn who_only_reads_schedules_nothing() {
    let api = Api::new().await;
    let post = |token: &str| {
        let request = asking("POST", PAYMENTS, token).header("content-type", "application/json");
        request.body(Body::from(payment("a").to_string())).unwrap()
    };
    assert_eq!(api.call(post("viewer")).await.status, StatusCode::FORBIDDEN);
    assert_eq!(api.call(post("producer")).await.status, StatusCode::CREATED);
    let read = asking("GET", "/api/payments/a", "viewer").body(Body::empty()).unwrap();
    assert_eq!(api.call(read).await.status, StatusCode::OK);
}
