use axum::body::Body;
use axum::http::StatusCode;

use super::kit::{ADMIN, Api, asking, from, token};
use crate::{ApiOptions, Auth, Role, Token};

/// Every route, and who may use it: producer, viewer, admin.
const ROUTES: [(&str, &str, &str); 18] = [
    ("POST", "/api/dispatch/jobs", "p-a"),
    ("POST", "/api/dispatch-jobs", "p-a"),
    ("GET", "/api/dispatch/jobs/x", "pva"),
    ("GET", "/api/dispatch/jobs/x/attempts", "pva"),
    ("POST", "/api/admin/dispatch/credentials", "--a"),
    ("GET", "/api/admin/dispatch/credentials", "-va"),
    ("GET", "/api/admin/dispatch/credentials/x", "-va"),
    ("DELETE", "/api/admin/dispatch/credentials/x", "--a"),
    ("GET", "/admin/groups", "-va"),
    ("GET", "/admin/groups/x", "-va"),
    ("POST", "/admin/groups/x/pause", "--a"),
    ("POST", "/admin/groups/x/skip", "--a"),
    ("POST", "/admin/groups/x/release", "--a"),
    ("GET", "/admin/node", "-va"),
    ("GET", "/admin/rails", "-va"),
    ("POST", "/admin/rails/x/pause", "--a"),
    ("GET", "/admin/dlq", "-va"),
    ("GET", "/admin/audit", "-va"),
];

#[tokio::test]
async fn each_route_asks_who_it_is_before_it_reads_anything() {
    let api = Api::new().await;
    for (method, path, may) in ROUTES {
        let stranger = api.call(from("10.0.0.1:1", method, path).body(Body::from("{")).unwrap()).await;
        assert_eq!(stranger.status, StatusCode::UNAUTHORIZED, "{method} {path}");
        assert_eq!(stranger.headers["www-authenticate"], "Bearer");
        assert!(stranger.json().get("detail").is_none(), "no reason is told");
        for (role, letter) in [("producer", 'p'), ("viewer", 'v'), (ADMIN, 'a')] {
            let answer = api.call(asking(method, path, role).body(Body::empty()).unwrap()).await;
            let refused = answer.status == StatusCode::FORBIDDEN;
            assert_eq!(refused, !may.contains(letter), "{role}: {method} {path}: {}", answer.status);
            assert_ne!(answer.status, StatusCode::UNAUTHORIZED);
        }
    }
}

#[tokio::test]
async fn tokens_are_taken_as_they_are_written_and_not_otherwise() {
    let api = Api::new().await;
    let status = async |value: &str| {
        let request = from("127.0.0.1:1", "GET", "/admin/groups").header("authorization", value);
        api.call(request.body(Body::empty()).unwrap()).await.status
    };
    assert_eq!(status("bearer admin").await, StatusCode::OK);
    for wrong in ["Bearer", "Bearer ", "Basic admin", "admin", "Bearer Admin", "Bearer admin viewer", "Bearer adminx"] {
        assert_eq!(status(wrong).await, StatusCode::UNAUTHORIZED, "{wrong}");
    }
    let two = from("127.0.0.1:1", "GET", "/admin/groups").header("authorization", "Bearer admin");
    let two = two.header("authorization", "Bearer viewer").body(Body::empty()).unwrap();
    assert_eq!(api.call(two).await.status, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn whoever_guesses_waits_and_whoever_knows_does_not() {
    let api = Api::new().await;
    let guess = async |peer: &str| {
        let request = from(peer, "GET", "/admin/groups").header("authorization", "Bearer guess");
        api.call(request.body(Body::empty()).unwrap()).await
    };
    for _ in 0..20 {
        assert_eq!(guess("10.0.0.1:1").await.status, StatusCode::UNAUTHORIZED);
    }
    let refused = guess("10.0.0.1:2").await;
    assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS);
    assert!(refused.headers["retry-after"].to_str().unwrap().parse::<u32>().unwrap() <= 60);
    assert_eq!(guess("10.0.0.2:1").await.status, StatusCode::UNAUTHORIZED);
    let known = from("10.0.0.1:1", "GET", "/admin/groups").header("authorization", "Bearer admin");
    assert_eq!(api.call(known.body(Body::empty()).unwrap()).await.status, StatusCode::OK);
    let without = from("10.0.0.1:1", "GET", "/admin/groups").body(Body::empty()).unwrap();
    assert_eq!(api.call(without).await.status, StatusCode::UNAUTHORIZED, "no token is no guess");
    let scraped = api.get("/metrics").await.text();
    assert!(scraped.contains("railyard_api_auth_failures_total 23"), "{scraped}");
}

#[tokio::test]
async fn without_tokens_this_machine_alone_is_served() {
    let api = Api::with(Auth::default(), ApiOptions::default()).await;
    let ask = async |peer: &str, host: &str| {
        let mut request = from(peer, "GET", "/admin/groups").body(Body::empty()).unwrap();
        request.headers_mut().insert("host", host.parse().unwrap());
        api.call(request).await.status
    };
    for (peer, host) in
        [("127.0.0.1:1", "localhost"), ("[::1]:1", "[::1]:8080"), ("[::ffff:127.0.0.1]:1", "127.0.0.1:1")]
    {
        assert_eq!(ask(peer, host).await, StatusCode::OK, "{peer} {host}");
    }
    assert_eq!(ask("10.0.0.1:1", "localhost").await, StatusCode::UNAUTHORIZED);
    assert_eq!(ask("127.0.0.1:1", "rebound.example:8080").await, StatusCode::UNAUTHORIZED, "a browser's page");
}

#[tokio::test]
async fn health_and_metrics_are_open_only_where_configured() {
    let options = ApiOptions { open_health: false, open_metrics: false, ..ApiOptions::default() };
    let tokens = vec![token(Role::Viewer, "viewer"), token(Role::Producer, "producer")];
    let api = Api::with(Auth::new(tokens), options).await;
    for path in ["/healthz", "/readyz", "/metrics", "/q/metrics"] {
        let stranger = api.call(from("127.0.0.1:1", "GET", path).body(Body::empty()).unwrap()).await;
        assert_eq!(stranger.status, StatusCode::UNAUTHORIZED, "{path}");
        let viewer = api.call(asking("GET", path, "viewer").body(Body::empty()).unwrap()).await;
        assert_ne!(viewer.status, StatusCode::UNAUTHORIZED, "{path}");
    }
}

#[test]
fn a_hash_is_64_hex_digits() {
    assert!(Token::new("a", Role::Admin, &"ab".repeat(32)).is_ok());
    for wrong in ["", "ab", &"xy".repeat(32), &"ab".repeat(33)] {
        assert!(Token::new("a", Role::Admin, wrong).is_err());
    }
}
