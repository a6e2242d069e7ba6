use std::sync::Arc;

use axum::body::Body;
use axum::http::StatusCode;
use prometheus::Registry;
use railyard_store::{Store, StoreConfig};
use serde_json::json;

use super::kit::{ADMIN, Api, FakeNode, asking, call, keys, token};
use crate::{ApiOptions, ApiState, Auth, Role, router};

/// The value of a sample, by its name and labels as they are written.
fn sample(scraped: &str, name: &str) -> Option<f64> {
    scraped.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
}

#[tokio::test]
async fn s2_28_a_scrape_says_what_the_tables_say() {
    let api = Api::new().await;
    for group in ["a", "a", "b"] {
        api.post("/api/dispatch/jobs", &api.job_with(json!({"groupId": group}))).await;
    }
    api.post("/api/dispatch/jobs", &api.job()).await;
    api.post("/admin/groups/b/pause", &json!({"reason": "r"})).await;
    let scraped = api.get("/metrics").await;
    assert!(scraped.headers["content-type"].to_str().unwrap().starts_with("text/plain"));
    let scraped = scraped.text();
    for (name, value) in [
        ("outbox_pending_depth", 4.0),
        ("railyard_pending_held", 1.0),
        ("dlq_depth", 0.0),
        ("stuck_dispatching_count", 0.0),
        ("railyard_database_up", 1.0),
        ("railyard_group_depth{group=\"a\"}", 2.0),
        ("railyard_group_depth{group=\"other\"}", 1.0),
        ("railyard_group_in_flight{group=\"a\"}", 0.0),
        ("railyard_group_state{group=\"b\",state=\"paused\"}", 1.0),
        ("railyard_held_groups{kind=\"paused\"}", 1.0),
        ("railyard_api_jobs_total{result=\"created\"}", 4.0),
    ] {
        assert_eq!(sample(&scraped, name), Some(value), "{name}\n{scraped}");
    }
    assert!(sample(&scraped, "oldest_pending_age_seconds").unwrap() > 0.0);
    assert!(sample(&scraped, "railyard_group_head_age_seconds{group=\"a\"}").unwrap() > 0.0);
    assert!(scraped.contains("route=\"/api/dispatch/jobs\",status=\"201\""), "routes, not paths");
    assert!(!scraped.contains("private"));
    assert_eq!(api.get("/q/metrics").await.status, StatusCode::OK);
}

#[tokio::test]
async fn a_scrape_shows_the_members_that_the_database_knows() {
    let api = Api::new().await;
    let joined = "INSERT INTO node (node_id, name, lease_until, leaving) VALUES
        ('00000000-0000-0000-0000-000000000001', 'n0', clock_timestamp() + interval '10 seconds', false),
        ('00000000-0000-0000-0000-000000000002', 'n1', clock_timestamp() - interval '10 seconds', false),
        ('00000000-0000-0000-0000-000000000003', 'n2', clock_timestamp() + interval '10 seconds', true);
        UPDATE partition_lease SET owner = '00000000-0000-0000-0000-000000000001' WHERE partition_id < 100;
        UPDATE partition_lease SET owner = '00000000-0000-0000-0000-000000000009' WHERE partition_id = 100";
    api.sql.batch_execute(joined).await.unwrap();
    let scraped = api.get("/metrics").await.text();
    for (name, value) in [
        ("railyard_members{state=\"good\"}", 1.0),
        ("railyard_members{state=\"leaving\"}", 1.0),
        ("railyard_members{state=\"lapsed\"}", 1.0),
        ("railyard_member_partitions{node=\"n0\"}", 100.0),
        ("railyard_member_partitions{node=\"n1\"}", 0.0),
        ("railyard_partitions_unowned", 156.0),
    ] {
        assert_eq!(sample(&scraped, name), Some(value), "{name}\n{scraped}");
    }
    let left =
        |node: &str| sample(&scraped, &format!("railyard_member_lease_remaining_ms{{node=\"{node}\"}}")).unwrap();
    assert!((1.0..=10_000.0).contains(&left("n0")) && left("n1") <= -10_000.0, "{scraped}");
}

#[tokio::test]
async fn a_hundred_members_make_a_bounded_number_of_series() {
    let api = Api::new().await;
    let joined = "INSERT INTO node (node_id, name, lease_until)
        SELECT gen_random_uuid(), 'n' || lpad(n::text, 3, '0'), clock_timestamp() + interval '1 minute'
        FROM generate_series(1, 100) n";
    api.sql.batch_execute(joined).await.unwrap();
    let scraped = api.get("/metrics").await.text();
    let named = scraped.lines().filter(|line| line.starts_with("railyard_member_partitions{")).count();
    assert_eq!((named, sample(&scraped, "railyard_members{state=\"good\"}")), (65, Some(100.0)));
    assert!(sample(&scraped, "railyard_member_lease_remaining_ms{node=\"other\"}").unwrap() > 0.0);
}

/// What `config/metrics.md` lists and what a scrape shows are the same names.
#[tokio::test]
async fn every_metric_of_the_api_is_documented() {
    let api = Api::new().await;
    let table = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../config/metrics.md")).unwrap();
    api.post("/api/dispatch/jobs", &api.job_with(json!({"groupId": "g"}))).await;
    let scraped = api.get("/metrics").await.text();
    for line in scraped.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        let name = line.split(' ').next().unwrap();
        assert!(table.contains(&format!("`{name}`")), "{name} is not in config/metrics.md");
    }
}

fn away() -> axum::Router {
    let mut config = StoreConfig::at("postgres://nobody@127.0.0.1:1/none");
    config.acquire_timeout = std::time::Duration::from_millis(500);
    let auth = Auth::new(vec![token(Role::Admin, ADMIN)]);
    let node = Arc::new(FakeNode::default());
    let store = Store::new(config).unwrap();
    router(ApiState::new(store, keys(), node, auth, Registry::new(), ApiOptions::default()).unwrap())
}

#[tokio::test]
async fn a_database_that_is_away_is_503_with_retry_after_and_not_a_missing_scrape() {
    let router = away();
    let post = |path: &str, body: &str| {
        let request = asking("POST", path, ADMIN).header("content-type", "application/json");
        request.body(Body::from(body.to_owned())).unwrap()
    };
    let get = |path: &str| asking("GET", path, ADMIN).body(Body::empty()).unwrap();
    let job = json!({"source": "a", "type": "b", "targetUrl": "http://x/", "payload": "", "credentialsId":
        "00000000-0000-7000-8000-000000000000"});
    for request in [
        post("/api/dispatch/jobs", &job.to_string()),
        get("/api/dispatch/jobs/00000000-0000-7000-8000-000000000000"),
        get("/admin/groups"),
        post("/admin/groups/g/pause", "{\"reason\": \"r\"}"),
        post("/api/admin/dispatch/credentials", "{\"bearerToken\": \"a\", \"signingSecret\": \"b\"}"),
    ] {
        let path = request.uri().path().to_owned();
        let answer = call(&router, request).await;
        assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE, "{path}");
        assert_eq!(answer.headers["retry-after"], "1");
        assert_eq!(answer.json()["status"], 503);
    }
    let scraped = call(&router, get("/metrics")).await;
    assert_eq!(scraped.status, StatusCode::OK);
    assert_eq!(sample(&scraped.text(), "railyard_database_up"), Some(0.0));
    assert_eq!(call(&router, get("/healthz")).await.status, StatusCode::OK);
}

#[tokio::test]
async fn readiness_says_what_is_missing() {
    let api = Api::new().await;
    let ready = api.get("/readyz").await;
    assert_eq!(ready.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(ready.json(), json!({"status": "not ready", "reasons": ["no lease"]}));
    assert_eq!(api.get("/healthz").await.json(), json!({"status": "live"}));
}
