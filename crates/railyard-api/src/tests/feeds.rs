//! Feeds, the list of payments, and reconciliation over HTTP.

use std::collections::BTreeSet;

use axum::body::Body;
use axum::http::StatusCode;
use serde_json::{Value, json};

use super::kit::{ADMIN, Answer, Api, asking};

const FEED: &str = "/api/payments/feeds/feed-1";
const LINES: &str = "/api/payments/feeds/feed-1/lines";

async fn put(api: &Api, path: &str, body: &Value) -> Answer {
    let request = asking("PUT", path, ADMIN).header("content-type", "application/json");
    api.call(request.body(Body::from(body.to_string())).unwrap()).await
}

fn feed(items: u32) -> Value {
    json!({ "format": "csv", "name": "pay.csv", "sha256": "ab".repeat(32), "items": items })
}

fn payment(id: &str, amount: &str) -> Value {
    json!({ "paymentId": id, "debtorName": "Anna", "debtorIban": "DE89370400440532013000", "creditorName": "Bert",
        "creditorIban": "NL91ABNA0417164300", "amount": amount, "currency": "EUR" })
}

fn line(item: u32, payment: &Value) -> Value {
    json!({ "item": item, "line": item + 1, "payment": payment })
}

#[tokio::test]
async fn a_feed_is_opened_once_for_one_file() {
    let api = Api::new().await;
    assert_eq!(api.get(FEED).await.status, StatusCode::NOT_FOUND);
    assert_eq!(api.post(LINES, &json!([])).await.status, StatusCode::NOT_FOUND);
    let opened = put(&api, FEED, &feed(2)).await;
    assert_eq!(opened.status, StatusCode::CREATED, "{}", opened.text());
    assert_eq!(put(&api, FEED, &feed(2)).await.status, StatusCode::OK);
    assert_eq!(put(&api, FEED, &feed(3)).await.status, StatusCode::CONFLICT);
    let shown = api.get(FEED).await.json();
    assert_eq!((&shown["items"], &shown["accepted"], &shown["createdBy"]), (&json!(2), &json!(0), &json!("admin's")));
    let wrong = json!({ "format": "xls", "name": " ", "sha256": "AB".repeat(32), "items": -1, "more": 1 });
    let mut fields = put(&api, FEED, &wrong).await.fields();
    fields.sort_unstable();
    assert_eq!(fields, ["format", "items", "more", "name", "sha256"]);
    assert_eq!(put(&api, FEED, &json!({})).await.fields().len(), 4);
    assert_eq!(put(&api, "/api/payments/feeds/no%20name", &feed(2)).await.status, StatusCode::NOT_FOUND);
    let reader = asking("PUT", FEED, "viewer").header("content-type", "application/json");
    assert_eq!(api.call(reader.body(Body::from(feed(2).to_string())).unwrap()).await.status, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn each_instruction_is_answered_and_recorded() {
    let api = Api::new().await;
    put(&api, FEED, &feed(6)).await;
    let lines = json!([
        line(1, &payment("a", "1.10")),
        line(2, &payment("b", "0")),
        { "item": 3, "line": 4, "field": "PmtInf/PmtMtd", "reason": "is CHK", "paymentId": "c" },
        line(4, &payment("a", "1.10")),
        line(7, &payment("d", "1")),
        line(1, &payment("e", "1")),
        { "item": 5, "line": 6 },
        line(6, &payment("a", "2.20")),
    ]);
    let answer = api.post(LINES, &lines).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
    let results = answer.json()["results"].as_array().cloned().unwrap();
    let words: Vec<&str> = results.iter().map(|result| result["status"].as_str().unwrap()).collect();
    let (good, bad) = ("SUCCESS", "BAD_REQUEST");
    assert_eq!(words, [good, bad, bad, "SKIPPED", bad, bad, bad, bad]);
    let blamed = |index: usize| results[index]["errors"][0]["field"].as_str().unwrap_or_default();
    let fields = [1, 2, 4, 5, 6, 7].map(blamed);
    assert_eq!(fields, ["amount", "PmtInf/PmtMtd", "item", "item", "payment", "paymentId"]);
    let shown = api.get(FEED).await.json();
    assert_eq!((&shown["accepted"], &shown["rejected"]), (&json!(2), &json!(3)), "{shown}");
    let sql = "SELECT item_no, line_no, field, reason FROM payment_feed_line WHERE NOT is_accepted ORDER BY item_no";
    let rows = api.sql.query(sql, &[]).await.unwrap();
    let recorded: Vec<(i64, i64, Option<String>, String)> =
        rows.iter().map(|row| (row.get(0), row.get(1), row.get(2), row.get(3))).collect();
    assert_eq!(recorded[0], (2, 3, Some("amount".to_owned()), "is not above zero".to_owned()));
    assert_eq!(recorded[1], (3, 4, Some("PmtInf/PmtMtd".to_owned()), "is CHK".to_owned()));
    // Again: nothing is accepted twice, and what was accepted is no other payment now.
    let again = api
        .post(LINES, &json!([line(1, &payment("a", "1.10")), line(4, &payment("z", "1")), line(5, &payment("y", "3"))]))
        .await;
    let results = again.json()["results"].as_array().cloned().unwrap();
    let words: Vec<&str> = results.iter().map(|result| result["status"].as_str().unwrap()).collect();
    assert_eq!(words, ["SKIPPED", bad, good], "{}", again.text());
    let payments: i64 = api.sql.query_one("SELECT count(*) FROM payment", &[]).await.unwrap().get(0);
    assert_eq!(payments, 2);
}

/// Completed, and gone after its retention: the same file again is told that it is known, and nothing is paid again.
#[tokio::test]
async fn what_has_gone_after_its_retention_is_known_to_its_feed() {
    let api = Api::new().await;
    put(&api, FEED, &feed(2)).await;
    let lines = json!([line(1, &payment("a", "1.10")), line(2, &payment("b", "2.20"))]);
    api.post(LINES, &lines).await;
    let gone = "SET session_replication_role = replica;
                UPDATE payment_exec_queue SET queue_status = 'COMPLETED', scheduled_exec_time = now() - interval '11 days',
                  completed_at = now() - interval '11 days' WHERE payment_id = 'a';
                SET session_replication_role = origin;
                SELECT drop_completed_items(10, 1000)";
    api.sql.batch_execute(gone).await.unwrap();
    assert_eq!(api.get("/api/payments/a").await.status, StatusCode::NOT_FOUND);
    for _ in 0..2 {
        let again = api.post(LINES, &lines).await;
        let results = again.json()["results"].as_array().cloned().unwrap();
        let words: Vec<&str> = results.iter().map(|result| result["status"].as_str().unwrap()).collect();
        assert_eq!(words, ["SKIPPED", "SKIPPED"], "{}", again.text());
    }
    // Under its number, another payment is refused, as it was before.
    let other = api.post(LINES, &json!([line(1, &payment("z", "1.10"))])).await;
    assert_eq!(other.json()["results"][0]["status"], "BAD_REQUEST", "{}", other.text());
    let payments: i64 = api.sql.query_one("SELECT count(*) FROM payment", &[]).await.unwrap().get(0);
    assert_eq!(payments, 1, "a is not accepted anew");
    let shown = api.get(FEED).await.json();
    assert_eq!((&shown["accepted"], &shown["rejected"]), (&json!(2), &json!(0)), "{shown}");
    assert_eq!(api.get(&format!("{FEED}/reconciliation")).await.json()["balanced"], true);
}

#[tokio::test]
async fn a_feed_and_a_day_are_accounted_for() {
    let api = Api::new().await;
    put(&api, FEED, &feed(3)).await;
    api.post(LINES, &json!([line(1, &payment("a", "0.10")), line(2, &payment("b", "0.20"))])).await;
    let short = api.get(&format!("{FEED}/reconciliation")).await.json();
    assert_eq!((&short["balanced"], &short["unanswered"], &short["accepted"]), (&json!(false), &json!(1), &json!(2)));
    assert_eq!(short["unaccounted"][0]["item"], 3);
    api.post(LINES, &json!([line(3, &payment("c", "0"))])).await;
    let whole = api.get(&format!("{FEED}/reconciliation")).await.json();
    assert_eq!((&whole["balanced"], &whole["unaccounted"]), (&json!(true), &json!([])));
    let standing = |answer: &Value, name: &str| {
        let all = answer["standings"].as_array().unwrap();
        all.iter().find(|one| one["standing"] == name).unwrap().clone()
    };
    let scheduled =
        json!({ "standing": "SCHEDULED", "count": 2, "totals": [{ "currency": "EUR", "count": 2, "amount": "0.30" }] });
    assert_eq!(standing(&whole, "SCHEDULED"), scheduled);
    assert_eq!(standing(&whole, "REJECTED")["count"], 1);
    let today: String = api.sql.query_one("SELECT (now() AT TIME ZONE 'UTC')::date::text", &[]).await.unwrap().get(0);
    let day = api.get(&format!("/api/payments/days/{today}/reconciliation")).await.json();
    assert_eq!((&day["balanced"], &day["day"], standing(&day, "SCHEDULED")), (&json!(true), &json!(today), scheduled));
    api.sql.batch_execute("DELETE FROM payment WHERE payment_id = 'a'").await.unwrap();
    for path in [format!("{FEED}/reconciliation"), format!("/api/payments/days/{today}/reconciliation")] {
        let lost = api.get(&path).await.json();
        assert_eq!((&lost["balanced"], &lost["unaccounted"][0]["paymentId"]), (&json!(false), &json!("a")), "{lost}");
    }
    for unknown in ["/api/payments/feeds/other/reconciliation", "/api/payments/days/2025-02-30/reconciliation"] {
        assert_eq!(api.get(unknown).await.status, StatusCode::NOT_FOUND);
    }
}

#[tokio::test]
async fn payments_are_listed_page_by_page_and_none_twice() {
    let api = Api::new().await;
    let first: String = api
        .sql
        .query_one("SELECT date_trunc('month', now() + interval '90 days')::date::text", &[])
        .await
        .unwrap()
        .get(0);
    let day = |n: usize| format!("{}{n:02}T00:00:00Z", &first[..8]);
    for n in 0..7 {
        let mut payment = payment(&format!("p{n}"), "1");
        if n == 3 {
            payment["debtorIban"] = json!("GB82WEST12345698765432");
        }
        payment["requestedTime"] = json!(day(n + 1));
        let made = api.post("/api/payments/batch", &json!([payment])).await;
        assert_eq!(made.json()["count"], 1, "{}", made.text());
    }
    // As if all had been accepted in one microsecond: the id decides.
    api.sql.batch_execute("UPDATE payment SET created_at = date_trunc('hour', created_at)").await.unwrap();
    let ids = |page: &Value| -> Vec<String> {
        page["items"].as_array().unwrap().iter().map(|one| one["paymentId"].as_str().unwrap().to_owned()).collect()
    };
    let first = api.get("/api/payments?size=3&page=0").await.json();
    assert_eq!((&first["totalItems"], &first["totalPages"]), (&json!(7), &json!(3)));
    let mut seen: Vec<String> = Vec::new();
    let mut cursor = String::new();
    loop {
        let page = api.get(&format!("/api/payments?size=3&cursor={cursor}")).await.json();
        assert!(page.get("totalItems").is_none());
        seen.extend(ids(&page));
        match page["nextCursor"].as_str() {
            Some(next) => next.clone_into(&mut cursor),
            None => break,
        }
    }
    assert_eq!(ids(&first), seen[..3]);
    assert_eq!((seen.len(), seen.iter().collect::<BTreeSet<_>>().len()), (7, 7));
    for (query, expected) in [
        ("debtorIban=GB82WEST12345698765432".to_owned(), vec!["p3"]),
        (format!("requestedAfter={}", day(6)), vec!["p6", "p5"]),
        (format!("requestedBefore={}", day(2)), vec!["p0"]),
        ("status=ACCEPTED".to_owned(), vec![]),
        (format!("queueStatus=READY&status=SCHEDULED&requestedAfter={}", day(7)), vec!["p6"]),
    ] {
        assert_eq!(ids(&api.get(&format!("/api/payments?{query}")).await.json()), expected, "{query}");
    }
    let other = api.get(&format!("/api/payments?status=SCHEDULED&cursor={cursor}")).await;
    assert_eq!(other.fields(), ["cursor"], "of another search");
    let wrong = "status=x&queueStatus=y&debtorIban=DE&requestedAfter=soon&requestedBefore=1&size=0&page=-1&more=1";
    assert_eq!(api.get(&format!("/api/payments?{wrong}")).await.fields().len(), 8);
}
