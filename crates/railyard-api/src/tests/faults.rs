//! The database goes away in the middle, clients go away in the middle, too many come at once.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::body::Body;
use axum::http::StatusCode;
use futures_util::StreamExt;
use railyard_testkit::{Cut, FaultProxy, Mode, Moment, eventually};
use serde_json::json;

use super::kit::{ADMIN, Api, asking, call, tokens};
use crate::{ApiOptions, Auth};

const JOBS: &str = "/api/dispatch/jobs";
pub(super) const SOON: Duration = Duration::from_secs(10);

/// The API behind a proxy in front of the database.
pub(super) async fn proxied() -> (Api, Arc<FaultProxy>) {
    let proxy = Arc::new(FaultProxy::postgres(([127, 0, 0, 1], 1).into()).await);
    let given = Arc::clone(&proxy);
    let api = Api::over(Auth::new(tokens()), ApiOptions::default(), move |config| {
        let direct: tokio_postgres::Config = config.url.parse().unwrap();
        given.set_upstream(([127, 0, 0, 1], direct.get_ports()[0]).into());
        config.url = given.url(&config.url);
    })
    .await;
    (api, proxy)
}

/// The statement that makes a job: it commits itself.
fn creates(sql: &str) -> bool {
    sql.contains("enqueue_one")
}

async fn jobs(api: &Api) -> i64 {
    api.sql.query_one("SELECT count(*) FROM dispatch_job", &[]).await.unwrap().get(0)
}

#[tokio::test]
async fn a_commit_whose_answer_was_lost_is_found_by_the_same_request() {
    let (api, proxy) = proxied().await;
    let body = api.job_with(json!({"idempotencyKey": "k", "groupId": "g"}));
    proxy.cut_around(Moment::BeforeItsAnswer, Cut::Reset, 1, creates);
    let lost = api.post(JOBS, &body).await;
    assert_eq!((lost.status, &lost.headers["retry-after"]), (StatusCode::SERVICE_UNAVAILABLE, &"1".parse().unwrap()));
    assert_eq!(jobs(&api).await, 1, "it had committed");
    assert_eq!(api.post(JOBS, &body).await.status, StatusCode::OK);
    assert_eq!(jobs(&api).await, 1);
}

#[tokio::test]
async fn a_commit_that_never_arrived_is_made_by_the_same_request() {
    let (api, proxy) = proxied().await;
    let body = api.job_with(json!({"idempotencyKey": "k", "groupId": "g"}));
    proxy.cut_around(Moment::BeforeIt, Cut::Reset, 1, creates);
    assert_eq!(api.post(JOBS, &body).await.status, StatusCode::SERVICE_UNAVAILABLE);
    let made = api.post(JOBS, &body).await;
    assert_eq!((made.status, &made.json()["sequence"]), (StatusCode::CREATED, &json!(1)));
    assert_eq!(jobs(&api).await, 1);
}

#[tokio::test]
async fn s3_34_pools_set_over_a_connection_that_breaks_are_set_whole_or_not_at_all() {
    let (api, proxy) = proxied().await;
    let pools = json!({ "processingPools": [{ "code": "A", "concurrency": 1 }, { "code": "B", "concurrency": 2 }] });
    for (moment, statement, set) in [
        // Of the first, before the second.
        (Moment::BeforeItsAnswer, "INSERT INTO pool_slot", 0),
        (Moment::BeforeIt, "COMMIT", 0),
        (Moment::BeforeItsAnswer, "COMMIT", 2),
    ] {
        proxy.cut_around(moment, Cut::Reset, 1, move |sql| sql.contains(statement));
        let lost = api.post("/api/config", &pools).await;
        assert_eq!(lost.status, StatusCode::SERVICE_UNAVAILABLE, "{statement}: {}", lost.text());
        assert!(lost.headers.contains_key("retry-after"));
        let there = "SELECT (SELECT count(*) FROM dispatch_pool), (SELECT count(*) FROM pool_slot)";
        let row = api.sql.query_one(there, &[]).await.unwrap();
        assert_eq!((row.get::<_, i64>(0), row.get::<_, i64>(1)), (set, set * 3 / 2), "{moment:?} {statement}");
    }
    let again = api.post("/api/config", &pools).await;
    assert_eq!((again.status, &again.json()["processingPools"]), (StatusCode::OK, &pools["processingPools"]));
    let audited = "SELECT count(*) FROM admin_audit WHERE action = 'pool.set'";
    assert_eq!(api.sql.query_one(audited, &[]).await.unwrap().get::<_, i64>(0), 2, "once each");
}

#[tokio::test]
async fn a_demoted_primary_is_503_until_it_is_back_without_a_restart() {
    let api = Api::new().await;
    let leave = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
                 WHERE application_name = 'railyard api' AND datname = current_database()";
    let name: String = api.sql.query_one("SELECT current_database()::text", &[]).await.unwrap().get(0);
    api.sql.batch_execute(&format!("ALTER DATABASE {name} SET default_transaction_read_only = on")).await.unwrap();
    api.sql.query(leave, &[]).await.unwrap();
    let body = api.job();
    eventually(SOON, "503 while the database takes no writes", || async {
        api.post(JOBS, &body).await.status == StatusCode::SERVICE_UNAVAILABLE && jobs(&api).await == 0
    })
    .await;
    assert_eq!(api.get("/admin/groups").await.status, StatusCode::OK, "it can be read");
    api.sql.batch_execute("SET default_transaction_read_only = off").await.unwrap();
    api.sql.batch_execute(&format!("ALTER DATABASE {name} RESET default_transaction_read_only")).await.unwrap();
    eventually(SOON, "201 again", || async { api.post(JOBS, &body).await.status == StatusCode::CREATED }).await;
}

#[tokio::test]
async fn a_client_that_goes_away_leaves_no_open_transaction() {
    let auth = Auth::new(tokens());
    let api = Api::over(auth, ApiOptions::default(), |config| config.api_connections = 1).await;
    // Its key is in use, so the request waits in the middle of its transaction.
    let hold = "BEGIN; INSERT INTO idempotency_key (kind, scope, key, outbox_id, content_hash) \
                VALUES ('source', 'order-service', 'k', gen_random_uuid(), '')";
    api.sql.batch_execute(hold).await.unwrap();
    let body = api.job_with(json!({"idempotencyKey": "k"}));
    let gone = tokio::time::timeout(Duration::from_millis(300), api.post(JOBS, &body)).await;
    assert!(gone.is_err());
    let made = api.post(JOBS, &api.job()).await;
    assert_eq!(made.status, StatusCode::CREATED, "{}", made.text());
    let open = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'railyard api' \
                AND datname = current_database() AND xact_start IS NOT NULL";
    eventually(SOON, "no transaction is open", || async {
        // Inside a transaction the first look would be shown again and again.
        api.sql.batch_execute("SELECT pg_stat_clear_snapshot()").await.unwrap();
        api.sql.query_one(open, &[]).await.unwrap().get::<_, i64>(0) == 0
    })
    .await;
    api.sql.batch_execute("ROLLBACK").await.unwrap();
    assert_eq!(jobs(&api).await, 1);
}

#[tokio::test]
async fn one_request_too_many_is_503_at_once_and_metrics_go_on() {
    let api = Api::with(Auth::new(tokens()), ApiOptions { requests_max: 1, ..ApiOptions::default() }).await;
    let hold = "BEGIN; INSERT INTO idempotency_key (kind, scope, key, outbox_id, content_hash) \
                VALUES ('source', 'order-service', 'k', gen_random_uuid(), '')";
    api.sql.batch_execute(hold).await.unwrap();
    let body = api.job_with(json!({"idempotencyKey": "k"}));
    let second = async {
        eventually(Duration::from_millis(800), "the place is taken", || async {
            api.get("/admin/groups").await.status == StatusCode::SERVICE_UNAVAILABLE
        })
        .await;
        api.get("/metrics").await.status
    };
    let (first, metrics) = tokio::join!(api.post(JOBS, &body), second);
    assert_eq!(first.status, StatusCode::SERVICE_UNAVAILABLE, "its key was in use");
    assert_eq!(metrics, StatusCode::OK);
    api.sql.batch_execute("ROLLBACK").await.unwrap();
    assert_eq!(api.get("/admin/groups").await.status, StatusCode::OK);
}

#[tokio::test]
async fn a_request_ends_at_its_deadline() {
    let options = ApiOptions { request_timeout: Duration::from_millis(200), ..ApiOptions::default() };
    let api = Api::with(Auth::new(tokens()), options).await;
    let stalled = Body::from_stream(futures_util::stream::pending::<Result<Vec<u8>, std::io::Error>>());
    let request = asking("POST", JOBS, ADMIN).header("content-type", "application/json").body(stalled).unwrap();
    assert_eq!(call(&api.router, request).await.status, StatusCode::SERVICE_UNAVAILABLE);
}

/// Nobody holds a lock against a statement that is ended at its time limit, and nobody is told so.
#[tokio::test]
async fn what_takes_too_long_is_not_told_as_a_lock() {
    let change = |config: &mut railyard_store::StoreConfig| config.statement_timeout = Duration::from_millis(400);
    let api = Api::over(Auth::new(tokens()), ApiOptions::default(), change).await;
    // The wait stands for work: the limit ends both alike.
    api.sql.batch_execute("BEGIN; LOCK TABLE event_subscription").await.unwrap();
    let slow = api.get("/api/admin/subscriptions").await;
    assert_eq!(slow.status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(slow.text().contains("took too long"), "{}", slow.text());
    api.sql.batch_execute("ROLLBACK").await.unwrap();
    assert_eq!(api.get("/api/admin/subscriptions").await.status, StatusCode::OK);
}

#[tokio::test]
async fn bad_input_costs_no_connection() {
    let auth = Auth::new(tokens());
    let api = Api::over(auth, ApiOptions::default(), |config| config.api_connections = 1).await;
    let pid =
        "SELECT pid FROM pg_stat_activity WHERE application_name = 'railyard api' AND datname = current_database()";
    let before: i32 = api.sql.query_one(pid, &[]).await.unwrap().get(0);
    let unknown = api.job_with(json!({"credentialsId": "00000000-0000-7000-8000-000000000000"}));
    for _ in 0..3 {
        assert_eq!(api.post(JOBS, &unknown).await.fields(), ["credentialsId"]);
        assert_eq!(api.post("/admin/groups/g/skip", &json!({"reason": "r"})).await.status, StatusCode::CONFLICT);
    }
    let after: i32 = api.sql.query_one(pid, &[]).await.unwrap().get(0);
    assert_eq!(before, after);
}

/// A body that never ends, with or without a length in front, takes the room of what has arrived of it and no more.
#[tokio::test]
async fn trap_bodies_that_stall_hold_up_nobody() {
    let api = Api::new().await;
    let stalled = |length: bool| {
        let mut request = asking("POST", "/api/dispatch/jobs/batch", ADMIN).header("content-type", "application/json");
        if length {
            request = request.header("content-length", 30 * 1024 * 1024);
        }
        let begun = futures_util::stream::iter([Ok::<_, std::io::Error>("[".as_bytes())]);
        let body = begun.chain(futures_util::stream::pending());
        call(&api.router, request.body(Body::from_stream(body)).unwrap())
    };
    let all = futures_util::future::join_all((0..10).map(|n| stalled(n % 2 == 0)));
    let job = api.job();
    let others = async {
        let batch = api.post("/api/dispatch/jobs/batch", &json!([job])).await.status;
        (batch, api.post(JOBS, &job).await.status)
    };
    let made = tokio::select! {
        _ = all => panic!("they stall for longer than this test runs"),
        made = tokio::time::timeout(SOON, others) => made.expect("nobody waits for them"),
    };
    assert_eq!(made, (StatusCode::CREATED, StatusCode::CREATED));
}

#[tokio::test]
async fn a_database_that_hangs_is_not_ready_and_holds_up_no_router() {
    let (api, proxy) = proxied().await;
    api.node.works.store(true, Ordering::SeqCst);
    let made = api.post(JOBS, &api.job_with(json!({"timeoutSeconds": 1}))).await;
    assert_eq!(api.get("/readyz").await.status, StatusCode::OK);
    let id = json!({"id": made.json()["id"]});
    let router = api.post("/api/dispatch/process", &id);
    let hang = async {
        // It has looked once and waits.
        eventually(SOON, "the owner is woken", || async { api.node.wakes.load(Ordering::SeqCst) >= 2 }).await;
        proxy.set(Mode::BlackHole);
        eventually(SOON, "not ready", || async { api.get("/readyz").await.status == StatusCode::SERVICE_UNAVAILABLE })
            .await;
    };
    let (answer, ()) = tokio::time::timeout(SOON, async { tokio::join!(router, hang) }).await.expect("answered");
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE, "{}", answer.text());
}

#[tokio::test]
async fn a_router_is_told_at_once_to_ask_another_node_when_this_one_stops() {
    let api = Api::new().await;
    api.node.works.store(true, Ordering::SeqCst);
    let made = api.post(JOBS, &api.job_with(json!({"timeoutSeconds": 60}))).await;
    let id = json!({"id": made.json()["id"]});
    let router = api.post("/api/dispatch/process", &id);
    let stop = async {
        eventually(SOON, "the owner is woken", || async { api.node.wakes.load(Ordering::SeqCst) >= 2 }).await;
        api.node.works.store(false, Ordering::SeqCst);
    };
    let (answer, ()) = tokio::time::timeout(SOON, async { tokio::join!(router, stop) }).await.expect("answered");
    assert_eq!((answer.status, &answer.json()["ack"]), (StatusCode::BAD_REQUEST, &json!(false)), "{}", answer.text());
}
