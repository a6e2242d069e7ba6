use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::http::StatusCode;
use railyard_testkit::{Cut, Moment, eventually};
use serde_json::{Value, json};

use super::faults::{SOON, proxied};
use super::kit::{Api, tokens};
use crate::{ApiOptions, Auth};

const CONFIG: &str = "/admin/rate-limit/config";
const SLOTS: &str = "/api/v1/slots";
const AT: &str = "2031-01-01T00:00:00Z";

async fn limited(max: u32) -> Api {
    let api = Api::new().await;
    let made = api.post(CONFIG, &json!({ "configName": "default", "maxPerWindow": max, "windowSizeSecs": 4 })).await;
    assert_eq!(made.status, StatusCode::CREATED, "{}", made.text());
    api
}

fn event(id: &str) -> Value {
    json!({ "eventId": id, "configName": "default", "requestedTime": AT })
}

fn sample(scraped: &str, name: &str) -> f64 {
    let line = scraped.lines().find(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(' ')));
    line.and_then(|line| line.rsplit_once(' ')).and_then(|(_, value)| value.parse().ok()).unwrap_or(f64::NAN)
}

#[tokio::test]
async fn s1_12_the_active_configuration_is_shown_and_unknown_names_are_named() {
    let api = limited(100).await;
    assert!(api.node.flushes.load(Ordering::SeqCst) > 0, "other nodes are told");
    let twice = json!({ "maxPerWindow": 200, "windowSizeSecs": 4, "maxLookahead": 300,
        "calendar": { "timeZone": "Europe/Berlin", "hours": [{ "days": ["MON"], "from": "09:00", "until": "24:00" }] } });
    let made = api.post(CONFIG, &twice).await.json();
    let shown = api.get(&format!("{CONFIG}?name=default&history=true")).await.json();
    for field in ["configId", "maxPerWindow", "calendar", "createdBy", "active"] {
        assert_eq!(shown[field], made[field], "{field}");
    }
    assert_eq!((&shown["maxPerWindow"], &shown["createdBy"]), (&json!(200), &json!("admin's")));
    assert_eq!(shown["history"][1]["maxPerWindow"], 100);
    assert_eq!(api.get(CONFIG).await.json()["maxLookahead"], 300, "default is the one that is meant");
    for answer in [
        api.get(&format!("{CONFIG}?name=other")).await,
        api.get("/admin/rate-limit/forecast?name=other&events=1").await,
        api.post(SLOTS, &json!({ "eventId": "a", "configName": "other" })).await,
        api.post("/admin/rate-limit/replan", &json!({ "configName": "other", "preview": true })).await,
    ] {
        assert_eq!(answer.status, StatusCode::NOT_FOUND, "{}", answer.text());
        assert!(answer.json()["detail"].as_str().unwrap().ends_with("called other"), "{}", answer.text());
    }
}

#[tokio::test]
async fn s1_29_what_is_wrong_with_a_configuration_is_named() {
    let api = Api::new().await;
    let zero = api.post(CONFIG, &json!({ "maxPerWindow": 0, "windowSizeSecs": 0 })).await;
    assert_eq!(zero.fields(), ["maxPerWindow", "windowSizeSecs"]);
    let wrong = json!({ "configName": "no spaces", "maxPerWindow": -1, "maxLookahead": 0, "frontier": "off", "x": 1,
        "calendar": { "timeZone": "Atlantis", "hours": [{ "from": "9" }] } });
    let refused = api.post(CONFIG, &wrong).await.fields();
    let expected = [
        "windowSizeSecs",
        "maxPerWindow",
        "frontier",
        "calendar.timeZone",
        "calendar.hours[0].from",
        "x",
        "configName",
        "maxLookahead",
    ];
    let sorted = |mut fields: Vec<String>| {
        fields.sort();
        fields
    };
    assert_eq!(sorted(refused), sorted(expected.map(str::to_owned).to_vec()));
    let closed = json!({ "maxPerWindow": 1, "windowSizeSecs": 4, "calendar": { "timeZone": "UTC",
        "blackouts": [{ "from": "2001-01-01T00:00:00Z", "until": "2060-01-01T00:00:00Z" }] } });
    assert_eq!(api.post(CONFIG, &closed).await.fields(), ["calendar"]);
    assert_eq!(api.get(CONFIG).await.status, StatusCode::NOT_FOUND, "nothing of it was stored");
}

#[tokio::test]
async fn slots_are_given_confirmed_and_given_back() {
    let api = limited(2).await;
    let made = api.post(SLOTS, &event("a/b c")).await;
    assert_eq!(made.status, StatusCode::CREATED, "{}", made.text());
    let slot = made.json();
    assert_eq!((&slot["windowStart"], &slot["configName"]), (&json!("2031-01-01T00:00:00.000Z"), &json!("default")));
    assert!(slot["delayMs"].as_u64().unwrap() > 1_000_000);
    let again = api.post(SLOTS, &json!({ "eventId": "a/b c" })).await;
    assert_eq!((again.status, &again.json()["scheduledTime"]), (StatusCode::OK, &slot["scheduledTime"]));
    let many = json!({ "eventIds": ["c", "a/b c", "d"], "requestedTime": AT });
    let many = api.post(&format!("{SLOTS}/batch"), &many).await;
    assert_eq!(many.status, StatusCode::CREATED, "{}", many.text());
    let windows: Vec<Value> =
        many.json()["slots"].as_array().unwrap().iter().map(|s| s["windowStart"].clone()).collect();
    assert_eq!(windows, ["2031-01-01T00:00:00.000Z", "2031-01-01T00:00:00.000Z", "2031-01-01T00:00:04.000Z"]);
    let path = format!("{SLOTS}/a%2Fb%20c");
    let confirmed = api.post_text(&format!("{path}/confirm"), "").await;
    assert_eq!(confirmed.status, StatusCode::NO_CONTENT, "{}", confirmed.text());
    assert_eq!(api.delete(&path).await.status, StatusCode::NO_CONTENT);
    assert_eq!(api.delete(&path).await.status, StatusCode::NOT_FOUND);
    assert_eq!(api.post_text(&format!("{path}/confirm"), "").await.status, StatusCode::NOT_FOUND);
    assert_eq!(api.post(SLOTS, &event("e")).await.json()["windowStart"], "2031-01-01T00:00:00.000Z");
}

#[tokio::test]
async fn what_is_wrong_with_a_request_for_slots_is_named() {
    let api = limited(2).await;
    let wrong =
        json!({ "eventId": "", "requestedTime": "tomorrow", "confirmWithinSeconds": 0, "configName": "?", "y": 1 });
    let fields = api.post(SLOTS, &wrong).await.fields();
    for field in ["eventId", "requestedTime", "confirmWithinSeconds", "configName", "y"] {
        assert!(fields.iter().any(|named| named == field), "{field}: {fields:?}");
    }
    let batch = format!("{SLOTS}/batch");
    assert_eq!(api.post(&batch, &json!({ "eventIds": [] })).await.fields(), ["eventIds"]);
    assert_eq!(
        api.post(&batch, &json!({ "eventIds": ["payment/a"] })).await.fields(),
        ["eventIds"],
        "not the caller's"
    );
    assert_eq!(api.post(&batch, &json!({ "eventIds": ["a", ""] })).await.fields(), ["eventIds"]);
    assert_eq!(api.post("/admin/rate-limit/replan", &json!({})).await.fields(), ["reason"]);
    for query in ["", "?events=0", "?events=10000001", "?events=many"] {
        let refused = api.get(&format!("/admin/rate-limit/forecast{query}")).await;
        assert_eq!(refused.fields(), ["events"], "{query}");
    }
    assert_eq!(api.get("/admin/rate-limit/forecast?events=1&at=now").await.fields(), ["at"]);
}

#[tokio::test]
async fn s1_13_an_exhausted_search_is_503_and_says_how_far_it_went() {
    let api = Api::new().await;
    let config = json!({ "maxPerWindow": 1, "windowSizeSecs": 4, "frontier": false, "maxLookahead": 3 });
    api.post(CONFIG, &config).await;
    for id in ["a", "b", "c"] {
        assert_eq!(api.post(SLOTS, &event(id)).await.status, StatusCode::CREATED);
    }
    let refused = api.post(SLOTS, &event("d")).await;
    assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE);
    let problem = refused.json();
    assert_eq!(problem["title"], "SlotAssignmentException");
    assert!(problem["detail"].as_str().unwrap().contains("searched 3 windows"), "{problem}");
    let slots: i64 = api.sql.query_one("SELECT count(*) FROM rate_limit_event_slot", &[]).await.unwrap().get(0);
    assert_eq!(slots, 3);
    let seen = api.get(&format!("/admin/rate-limit/forecast?events=9&at={AT}")).await.json();
    assert_eq!(seen["events"], 0, "{seen}");
}

#[tokio::test]
async fn forecast_shows_the_end_before_the_beginning() {
    let api = limited(100).await;
    let seen = api.get(&format!("/admin/rate-limit/forecast?events=500000&at={AT}")).await.json();
    assert_eq!((&seen["windowsUsed"], &seen["events"]), (&json!(5000), &json!(500_000)));
    assert_eq!(seen["firstStart"], "2031-01-01T00:00:00.000Z");
    assert_eq!((&seen["lastStart"], &seen["durationSeconds"]), (&json!("2031-01-01T05:33:20.000Z"), &json!(20_000)));
    let curve = seen["curve"].as_array().unwrap();
    assert!(curve.len() <= 101 && curve.last().unwrap()["events"] == 500_000, "{}", curve.len());
    let none: i64 = api.sql.query_one("SELECT count(*) FROM rate_limit_window_counter", &[]).await.unwrap().get(0);
    assert_eq!(none, 0, "nothing was planned");
}

#[tokio::test]
async fn s1_20_the_six_metrics_have_their_types_and_count() {
    let api = limited(1).await;
    for id in ["a", "b"] {
        api.post(SLOTS, &event(id)).await;
    }
    let scraped = api.get("/metrics").await.text();
    for (name, kind) in [
        ("rate_limiter_slot_assignment_duration_seconds", "histogram"),
        ("rate_limiter_window_contention_total", "counter"),
        ("rate_limiter_window_lookahead_depth", "histogram"),
        ("rate_limiter_config_cache_hits_total", "counter"),
        ("rate_limiter_config_cache_misses_total", "counter"),
        ("rate_limiter_slot_assignment_failures_total", "counter"),
    ] {
        assert!(scraped.contains(&format!("# TYPE {name} {kind}\n")), "{name}");
    }
    for (name, value) in [
        ("rate_limiter_slot_assignment_duration_seconds_count", 2.0),
        ("rate_limiter_window_lookahead_depth_sum", 1.0),
        ("rate_limiter_config_cache_hits_total", 1.0),
        ("rate_limiter_config_cache_misses_total", 1.0),
    ] {
        assert!((sample(&scraped, name) - value).abs() < 1e-9, "{name}: {}", sample(&scraped, name));
    }
}

/// A database that keeps everybody waiting: the caller is told to come again, nothing is half done, and the time is seen.
#[tokio::test]
async fn s1_27_a_slow_database_is_seen_and_leaves_nothing_behind() {
    let api = limited(10).await;
    let hold = "SELECT pg_advisory_lock(rate_lock_of('default'), -1)";
    api.sql.execute(hold, &[]).await.unwrap();
    let refused = api.post(SLOTS, &event("a")).await;
    assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE, "{}", refused.text());
    assert!(refused.headers.contains_key("retry-after"));
    api.sql.execute("SELECT pg_advisory_unlock_all()", &[]).await.unwrap();
    let left = "SELECT (SELECT count(*) FROM rate_limit_event_slot) + (SELECT count(*) FROM rate_limit_window_counter)
                + (SELECT count(*) FROM rate_limit_run)";
    assert_eq!(api.sql.query_one(left, &[]).await.unwrap().get::<_, i64>(0), 0);
    let scraped = api.get("/metrics").await.text();
    let slow = "rate_limiter_slot_assignment_duration_seconds_bucket{le=\"0.5\"}";
    assert!(sample(&scraped, slow) < 0.5, "the wait is in the histogram: {scraped}");
    assert_eq!(api.post(SLOTS, &event("a")).await.status, StatusCode::CREATED);
}

/// All connections are in use: who asks is told to come again, and nothing of it is there.
#[tokio::test]
async fn s1_27_without_a_free_connection_the_caller_is_told_to_come_again() {
    let one = |config: &mut railyard_store::StoreConfig| {
        config.api_connections = 1;
        config.acquire_timeout = Duration::from_millis(300);
        config.lock_timeout = Duration::from_secs(9);
    };
    let api = Api::over(Auth::new(tokens()), ApiOptions::default(), one).await;
    let config = json!({ "configName": "default", "maxPerWindow": 10, "windowSizeSecs": 4 });
    assert_eq!(api.post(CONFIG, &config).await.status, StatusCode::CREATED);
    api.sql.execute("SELECT pg_advisory_lock(rate_lock_of('default'), -1)", &[]).await.unwrap();
    let first = event("first");
    let waits = api.post(SLOTS, &first);
    let meanwhile = async {
        let waiting =
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'advisory'";
        eventually(SOON, "the only connection waits", || async {
            api.sql.query_one(waiting, &[]).await.unwrap().get::<_, i64>(0) == 1
        })
        .await;
        let refused = api.post(SLOTS, &event("second")).await;
        api.sql.execute("SELECT pg_advisory_unlock_all()", &[]).await.unwrap();
        refused
    };
    let (first, refused) = tokio::join!(waits, meanwhile);
    assert_eq!((first.status, refused.status), (StatusCode::CREATED, StatusCode::SERVICE_UNAVAILABLE));
    assert!(refused.headers.contains_key("retry-after"), "{}", refused.text());
    let known = "SELECT array_agg(event_id), (SELECT sum(slot_count) FROM rate_limit_window_counter) FROM rate_limit_event_slot";
    let row = api.sql.query_one(known, &[]).await.unwrap();
    assert_eq!((row.get::<_, Vec<String>>(0), row.get::<_, i64>(1)), (vec!["first".to_owned()], 1));
    assert_eq!(api.post(SLOTS, &event("second")).await.status, StatusCode::CREATED);
}

/// Where everything is planned, and how many each window counts.
async fn plan(api: &Api) -> String {
    let sql = "SELECT (SELECT string_agg(s.event_id || ' ' || s.scheduled_time, ',' ORDER BY s.event_id)
                       FROM rate_limit_event_slot s)
                   || (SELECT string_agg(c.window_start || ' ' || c.slot_count, ',' ORDER BY c.window_start)
                       FROM rate_limit_window_counter c WHERE c.slot_count > 0)";
    api.sql.query_one(sql, &[]).await.unwrap().get(0)
}

/// Wherever it ends before its COMMIT, no slot has moved; if only the answer is lost, the same command finds nothing to do.
#[tokio::test]
async fn a_replan_that_dies_half_way_has_moved_nothing() {
    let (api, proxy) = proxied().await;
    let config = |max: u32| json!({ "configName": "default", "maxPerWindow": max, "windowSizeSecs": 4 });
    api.post(CONFIG, &config(10)).await;
    let ids: Vec<String> = (0..100).map(|n| format!("e{n}")).collect();
    let made = api.post("/api/v1/slots/batch", &json!({ "eventIds": ids, "requestedTime": AT })).await;
    assert_eq!(made.status, StatusCode::CREATED, "{}", made.text());
    api.post(CONFIG, &config(50)).await;
    let replan = json!({ "reason": "more capacity" });
    let before = plan(&api).await;
    for (moment, statement) in [
        (Moment::BeforeIt, "UPDATE rate_limit_event_slot"),
        (Moment::BeforeItsAnswer, "UPDATE rate_limit_event_slot"),
        (Moment::BeforeItsAnswer, "rate_recount"),
        (Moment::BeforeIt, "COMMIT"),
    ] {
        proxy.cut_around(moment, Cut::Reset, 1, move |sql| sql.contains(statement));
        let lost = api.post("/admin/rate-limit/replan", &replan).await;
        assert_eq!(lost.status, StatusCode::SERVICE_UNAVAILABLE, "{statement}: {}", lost.text());
        assert_eq!(plan(&api).await, before, "{moment:?} {statement}");
    }
    proxy.cut_around(Moment::BeforeItsAnswer, Cut::Reset, 1, |sql| sql.contains("COMMIT"));
    assert_eq!(api.post("/admin/rate-limit/replan", &replan).await.status, StatusCode::SERVICE_UNAVAILABLE);
    let after = plan(&api).await;
    assert_ne!(after, before, "it had committed");
    let again = api.post("/admin/rate-limit/replan", &replan).await;
    assert_eq!((again.status, &again.json()["moved"]), (StatusCode::OK, &json!(0)));
    assert_eq!(plan(&api).await, after);
}
