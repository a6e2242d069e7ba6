//! The feed against an API that is slow, away and refuses: a real server on a real port.

use std::collections::{BTreeSet, HashMap};
use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::super::lines::Lines;
use super::*;
use crate::cli::{ApiArgs, JobFields};

#[derive(Default)]
struct Seen {
    /// Keys of jobs, in order of creation, with the group.
    jobs: Vec<(String, String)>,
    /// Requests by key.
    tries: HashMap<String, u32>,
    out: HashMap<String, u32>,
    requests_out: u32,
    requests: u32,
    out_max: u32,
    overlaps: u32,
}

type Api = Arc<Mutex<Seen>>;

/// Answers each item for itself: refuses the payload "bad" and fails on "poison"; answers each key's first sending as to
/// be sent again, after having created the job for every other one, and what stands behind such a one in its group as
/// well. Every third request dies before its answer, with everything done.
async fn create(State(api): State<Api>, body: Bytes) -> Response {
    let items: Vec<Value> = serde_json::from_slice(&body).unwrap();
    let text = |job: &Value, field: &str| job[field].as_str().unwrap_or_default().to_owned();
    let groups: BTreeSet<String> =
        items.iter().map(|job| text(job, "groupId")).filter(|group| !group.is_empty()).collect();
    {
        let mut seen = api.lock().unwrap();
        seen.requests_out += 1;
        seen.out_max = seen.out_max.max(seen.requests_out);
        for group in &groups {
            let out = seen.out.entry(group.clone()).or_default();
            *out += 1;
            if *out > 1 {
                seen.overlaps += 1;
            }
        }
    }
    tokio::task::yield_now().await;
    let mut seen = api.lock().unwrap();
    seen.requests_out -= 1;
    seen.requests += 1;
    for group in &groups {
        *seen.out.get_mut(group).unwrap() -= 1;
    }
    let mut behind: BTreeSet<String> = BTreeSet::new();
    let results: Vec<Value> = items.iter().map(|job| answer(&mut seen, &mut behind, job)).collect();
    if seen.requests % 3 == 0 {
        return (StatusCode::SERVICE_UNAVAILABLE, [(header::RETRY_AFTER, "0")]).into_response();
    }
    (StatusCode::CREATED, json!({ "results": results, "jobs": [], "count": 0 }).to_string()).into_response()
}

fn answer(seen: &mut Seen, behind: &mut BTreeSet<String>, job: &Value) -> Value {
    let text = |field: &str| job[field].as_str().unwrap_or_default().to_owned();
    let (key, group) = (text("idempotencyKey"), text("groupId"));
    match text("payload").as_str() {
        "poison" => return json!({ "status": "INTERNAL_ERROR", "error": "no" }),
        "bad" => {
            let errors = json!([{ "field": "payload", "detail": "is bad" }]);
            return json!({ "status": "BAD_REQUEST", "error": "payload: is bad", "errors": errors });
        }
        _ => {}
    }
    let known = seen.jobs.iter().any(|(other, _)| *other == key);
    if known {
        return json!({ "status": "SKIPPED" });
    }
    let tries = seen.tries.entry(key.clone()).or_default();
    *tries += 1;
    if behind.contains(&group) || (*tries == 1 && key.len() % 2 == 0) {
        if !group.is_empty() {
            behind.insert(group);
        }
        return json!({ "status": "RETRY" });
    }
    seen.jobs.push((key, group));
    json!({ "status": "SUCCESS" })
}

async fn feed(lines: &str, strict: bool, run: impl AsyncFnOnce(Feed, Lines)) -> Api {
    let api = Api::default();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let router = Router::new().fallback(create).with_state(Arc::clone(&api));
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(lines.as_bytes()).unwrap();
    let client = Client::new(&ApiArgs { url, token: Some("t".to_owned()), token_file: None }).unwrap();
    let defaults = Defaults::of(&JobFields::default()).unwrap();
    let patience = Patience { limit: Duration::from_secs(30) };
    let feed = Feed { client, patience, defaults, concurrency: 8, strict };
    let work = run(feed, Lines::open(file.path()).unwrap());
    tokio::select! {
        served = axum::serve(listener, router) => panic!("the server ended: {served:?}"),
        () = work => api,
    }
}

#[tokio::test]
async fn outages_neither_repeat_nor_lose_nor_reorder() {
    let line = |n: usize| format!(r#"{{"groupId":"g{}","idempotencyKey":"{}"}}"#, n % 5, "k".repeat(n + 1)) + "\n";
    let lines: String = (0..60).map(line).collect();
    let api = feed(&lines, false, async |feed, lines| {
        let report = feed.run(lines).await.unwrap();
        assert_eq!(report.refused(), 0);
    })
    .await;
    let seen = api.lock().unwrap();
    assert_eq!(seen.jobs.len(), 60);
    assert_eq!(seen.overlaps, 0);
    assert!(seen.out_max <= 8, "{}", seen.out_max);
    for group in 0..5 {
        let lengths: Vec<usize> =
            seen.jobs.iter().filter(|(_, name)| *name == format!("g{group}")).map(|(key, _)| key.len()).collect();
        assert!(lengths.is_sorted() && lengths.len() == 12, "group {group}: {lengths:?}");
    }
}

const MIXED: &str = "{\"idempotencyKey\":\"a\"}\n\nnonsense\n{\"payload\":\"bad\"}\n{\"idempotencyKey\":\"b\"}\n";

#[tokio::test]
async fn bad_lines_are_counted_and_do_not_stop_the_others() {
    let api = feed(MIXED, false, async |feed, lines| {
        assert_eq!(feed.run(lines).await.unwrap().refused(), 2);
    })
    .await;
    assert_eq!(api.lock().unwrap().jobs.len(), 2);
}

#[tokio::test]
async fn a_line_that_the_api_fails_on_does_not_hold_up_the_others() {
    let api = feed("{\"payload\":\"poison\"}\n{\"idempotencyKey\":\"b\"}\n", false, async |feed, lines| {
        assert_eq!(feed.run(lines).await.unwrap().refused(), 1);
    })
    .await;
    assert_eq!(api.lock().unwrap().jobs.len(), 1);
}

#[tokio::test]
async fn strict_stops_at_the_first_bad_line() {
    let api = feed(MIXED, true, async |feed, lines| {
        assert_eq!(feed.run(lines).await.unwrap().refused(), 1);
    })
    .await;
    assert!(api.lock().unwrap().jobs.iter().all(|(key, _)| key == "a"));
}

#[tokio::test]
async fn an_api_that_stays_away_ends_the_patience() {
    let client = Client::new(&ApiArgs {
        url: format!("http://127.0.0.1:{}", railyard_postgres::free_port()),
        token: None,
        token_file: None,
    });
    let patience = Patience { limit: Duration::from_millis(300) };
    let defaults = Defaults::of(&JobFields::default()).unwrap();
    let feed = Feed { client: client.unwrap(), patience, defaults, concurrency: 1, strict: false };
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(b"{}\n").unwrap();
    let error = feed.run(Lines::open(file.path()).unwrap()).await.err().unwrap();
    assert!(format!("{error:#}").contains("line 1: the API cannot be reached: "), "{error:#}");
}
