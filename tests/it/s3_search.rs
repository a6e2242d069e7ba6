//! Search while deliveries run (S3-08), by metadata (S3-10), and what people's SQL finds on the views (S3-35, S3-36).

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use railyard_core::job::NewJob;
use railyard_core::rail::RailKind;
use railyard_core::{CredentialsId, ParticipantId};
use railyard_store::{Store, StoreConfig, jobs};
use railyard_testkit::{FakeRail, Http, eventually};
use serde_json::{Value, json};
use tokio_postgres::Client;

use crate::api::{Api, JOBS};
use crate::world::{SOON, World};

const BATCHES: usize = 10;
const BATCH: usize = 1000;

/// Ten batches, each of one created_at.
async fn make(api: &Api, rail: &FakeRail) -> BTreeSet<String> {
    let store = Store::new(StoreConfig::at(api.db.url())).unwrap();
    let mut made = BTreeSet::new();
    for batch in 0..BATCHES {
        let jobs: Vec<NewJob> = (0..BATCH)
            .map(|n| {
                let mut job = NewJob::new("walk", "t", RailKind::Webhook, &rail.url(), Bytes::from_static(b"{}"));
                job.credentials_id = Some(CredentialsId(api.credentials.parse().unwrap()));
                job.group = Some(ParticipantId::new(format!("g{}", (batch * BATCH + n) % 2000)));
                job
            })
            .collect();
        made.extend(jobs::create(&store, &jobs).await.unwrap().iter().map(|one| one.outbox_id.to_string()));
    }
    made
}

/// Takes the pages of one walk together: strictly in (createdAt, id) order, newest first.
#[derive(Default)]
struct Walk {
    ids: BTreeSet<String>,
    last: Option<(String, String)>,
    statuses: BTreeSet<String>,
}

impl Walk {
    fn add(&mut self, page: &Value) {
        for job in page["items"].as_array().unwrap() {
            let text = |field: &str| job[field].as_str().unwrap().to_owned();
            let place = (text("createdAt"), text("id"));
            assert!(self.last.as_ref().is_none_or(|last| *last > place), "{place:?} after {:?}", self.last);
            assert!(self.ids.insert(text("id")), "{place:?} twice");
            self.statuses.insert(text("status"));
            self.last = Some(place);
        }
    }
}

async fn page(http: &Http, query: &str) -> Value {
    http.get(&format!("{JOBS}?{query}")).await.unwrap().expect_status(200).json()
}

async fn by_number(http: &Http, size: usize) -> Walk {
    let mut walk = Walk::default();
    let pages = (BATCHES * BATCH).div_ceil(size);
    for n in 0..pages {
        let found = page(http, &format!("page={n}&size={size}")).await;
        assert_eq!((&found["totalItems"], &found["totalPages"]), (&json!(BATCHES * BATCH), &json!(pages)));
        walk.add(&found);
    }
    walk
}

async fn by_cursor(http: &Http, size: usize) -> Walk {
    let mut walk = Walk::default();
    let mut cursor = String::new();
    loop {
        let found = page(http, &format!("cursor={cursor}&size={size}")).await;
        walk.add(&found);
        match found["nextCursor"].as_str() {
            Some(next) => next.clone_into(&mut cursor),
            None => return walk,
        }
    }
}

/// 10,000 jobs, walked with sizes 7, 20 and 100, by page number and by cursor, while they are delivered: each id exactly
/// once, in order, and the totals right on every page.
#[tokio::test(flavor = "multi_thread")]
async fn s3_08_a_walk_meets_each_job_once_while_deliveries_run() {
    let api = Api::with(|sandbox| sandbox.set("http.endpoint_concurrency", 2)).await;
    let rail = FakeRail::start().await.takes(Duration::from_millis(50));
    let all = make(&api, &rail).await;
    assert_eq!(all.len(), BATCHES * BATCH);
    let http = api.http();
    let before = rail.receipts().len();
    let (a, b, c, d, e, f) = tokio::join!(
        by_number(&http, 7),
        by_cursor(&http, 7),
        by_number(&http, 20),
        by_cursor(&http, 20),
        by_number(&http, 100),
        by_cursor(&http, 100),
    );
    let during = rail.receipts().len() - before;
    println!("{during} deliveries during the walks");
    assert!(during > 100, "deliveries ran: {during}");
    assert!(rail.receipts().len() < all.len(), "and were still running at the end");
    for walk in [a, b, c, d, e, f] {
        assert!(walk.ids == all, "{} of {}", walk.ids.len(), all.len());
    }
}

/// By one entry, and by several that must hold together; the index of entries is what is read.
#[tokio::test(flavor = "multi_thread")]
async fn s3_10_metadata_finds_by_one_and_by_several() {
    let api = Api::new().await;
    let rail = FakeRail::start().await;
    let mut ids = Vec::new();
    for (tenant, priority) in [("acme", "high"), ("acme", "low"), ("other", "high")] {
        let metadata = json!({ "metadata": { "tenantId": tenant, "priority": priority } });
        let made = api.post(&api.job(&rail, "{}", &metadata)).await.expect_status(201);
        ids.push(made.json()["id"].clone());
    }
    let http = api.http();
    let found = async |query: &str| {
        let items = page(&http, query).await["items"].as_array().unwrap().clone();
        items.iter().map(|job| job["id"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(found("metadata.tenantId=acme").await, [ids[1].clone(), ids[0].clone()]);
    assert_eq!(found("metadata.tenantId=acme&metadata.priority=high").await, [ids[0].clone()]);
    assert!(found("metadata.tenantId=acme&metadata.priority=none").await.is_empty());
    // S3's own SQL, on the view of jobs.
    let sql = "SELECT j.id::text FROM dispatch_job_view j
        WHERE EXISTS (SELECT 1 FROM dispatch_job_metadata m WHERE m.dispatch_job_id = j.id
                      AND m.meta_key = 'tenantId' AND m.meta_value = 'acme')
          AND EXISTS (SELECT 1 FROM dispatch_job_metadata m WHERE m.dispatch_job_id = j.id
                      AND m.meta_key = 'priority' AND m.meta_value = 'high')";
    let row: String = api.db.connect().await.query_one(sql, &[]).await.unwrap().get(0);
    assert_eq!(ids[0], row);
}

/// The names of the source's indexes, and not one foreign key.
#[tokio::test]
async fn s3_35_the_sources_indexes_exist_and_no_foreign_key() {
    let world = World::new().await;
    for name in [
        "idx_dispatch_external_id",
        "idx_dispatch_status",
        "idx_dispatch_source",
        "idx_dispatch_type",
        "idx_dispatch_group_id",
        "idx_dispatch_scheduled",
        "idx_dispatch_created",
        "idx_metadata_job_id",
        "idx_metadata_key_value",
        "idx_attempt_job_id",
        "idx_attempt_status",
        "idx_attempt_attempted_at",
    ] {
        let valid = format!(
            "SELECT coalesce(bool_and(indisvalid), false) FROM pg_index WHERE indexrelid = to_regclass('{name}')"
        );
        assert!(world.one::<bool>(&valid).await, "{name}");
    }
    assert_eq!(world.one::<i64>("SELECT count(*) FROM pg_constraint WHERE contype = 'f'").await, 0);
}

/// Thirty days of 1,000 ended jobs and attempts each, one in a hundred without success, and some that wait.
const FILL: &str = "
SELECT create_day_partitions((clock_timestamp() AT TIME ZONE 'UTC')::date - 31, 31);
INSERT INTO dispatch_job (outbox_id, source, type, participant_id, mode, rail_type, target_url, payload,
  payload_content_type, credentials_id, max_attempts, retry_strategy, timeout_ms, rail_key, created_at)
SELECT uuid7_nth(t, n), 's' || n % 5, 't' || n % 3, 'g' || n, 'NEXT_ON_ERROR', 'webhook', 'http://h/x',
  convert_to(repeat('x', 500), 'UTF8'), 'application/json', gen_random_uuid(), 3, 'exponential', 30000, gen_random_uuid(),
  date_trunc('milliseconds', t)
FROM (SELECT n, clock_timestamp() - n * interval '86 seconds' AS t FROM generate_series(1, 30000) n) x;
INSERT INTO dispatch_job_metadata (dispatch_job_id, meta_key, meta_value)
SELECT outbox_id, 'tenant', 'acme' || row_number() OVER () % 1000 FROM dispatch_job;
INSERT INTO payment_outbox_pending (outbox_id, participant_id, sequence_id, partition_id, rail_type, endpoint, mode,
  max_attempts, timeout_ms, attempt_count, failures, next_attempt_at, created_at)
SELECT outbox_id, participant_id, 1, partition_of(participant_id), rail_type, 'http://h', mode, 3, 30000,
  n % 3, n % 3, clock_timestamp(), created_at
FROM (SELECT *, row_number() OVER (ORDER BY outbox_id DESC)::integer AS n FROM dispatch_job) j WHERE n <= 30;
INSERT INTO dispatch_job_outcome (outbox_id, status, participant_id, sequence_id, attempt_count, duration_millis, recorded_at)
SELECT outbox_id, CASE WHEN row_number() OVER (ORDER BY outbox_id DESC) % 100 = 0 THEN 'ERROR' ELSE 'COMPLETED' END,
  participant_id, 1, 1, 100, created_at
FROM dispatch_job j WHERE NOT EXISTS (SELECT 1 FROM payment_outbox_pending p WHERE p.outbox_id = j.outbox_id);
INSERT INTO payment_outbox_attempt_archive (outbox_id, attempt_no, late, attempt_id, state, rail_type, epoch, node_id,
  claimed_at, completed_at, recorded_at, latency_ms, response_code, error_code)
SELECT outbox_id, 1, false, gen_random_uuid(), CASE status WHEN 'ERROR' THEN 'FAILED' ELSE 'DISPATCHED' END, 'webhook', 1,
  gen_random_uuid(), recorded_at, recorded_at, recorded_at, 100, 200, CASE status WHEN 'ERROR' THEN 'HTTP_500' END
FROM dispatch_job_outcome;
VACUUM ANALYZE";

async fn filled() -> World {
    let world = World::new().await;
    for statement in FILL.split(";\n") {
        world.sql.batch_execute(statement).await.unwrap();
    }
    world
}

/// What is read. A thousand rows a day are faster read whole, so that is made dear: what is asked is whether an index
/// serves, as it has to with a million.
async fn plan(sql: &Client, query: &str) -> String {
    sql.batch_execute("SET enable_seqscan = off").await.unwrap();
    let rows = sql.query(&format!("EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) {query}"), &[]).await.unwrap();
    let lines: Vec<String> =
        rows.iter().map(|row| row.get(0)).filter(|line: &String| !line.contains("never executed")).collect();
    lines.join("\n")
}

const SUCCESS_RATE: &str = "
SELECT source, COUNT(*) AS total, SUM(CASE WHEN status = 'COMPLETED' THEN 1 ELSE 0 END) AS successful,
  ROUND(100.0 * SUM(CASE WHEN status = 'COMPLETED' THEN 1 ELSE 0 END) / COUNT(*), 2) AS success_rate
FROM dispatch_job_view WHERE created_at > NOW() - INTERVAL '24 hours' GROUP BY source";
const DURATION: &str = "
SELECT type, AVG(duration_millis) AS avg_duration_ms, MAX(duration_millis) AS max_duration_ms
FROM dispatch_job_view WHERE status = 'COMPLETED' GROUP BY type";
const ATTENTION: &str = "
SELECT * FROM dispatch_job_view
WHERE status = 'ERROR' OR (status = 'FAILED' AND attempt_count >= max_retries - 1)";

/// S3's dashboard queries, word for word but for the table's name, give S3's answers.
#[tokio::test]
async fn s3_36_the_dashboards_queries_run_as_they_are() {
    let world = filled().await;
    let rates =
        world.sql.query(&format!("SELECT total, successful, success_rate::float8 FROM ({SUCCESS_RATE}) q"), &[]).await;
    let rates = rates.unwrap();
    assert_eq!(rates.len(), 5);
    let total: i64 = rates.iter().map(|row| row.get::<_, i64>(0)).sum();
    assert!((1003..=1005).contains(&total), "{total} in 24 hours");
    let successful: i64 = rates.iter().map(|row| row.get::<_, i64>(1)).sum();
    assert!((960..=970).contains(&successful), "{successful}: 30 wait, one in a hundred failed");
    assert!(rates.iter().all(|row| (80.0..=100.0).contains(&row.get::<_, f64>(2))));
    let durations =
        world.sql.query(&format!("SELECT avg_duration_ms = 100, max_duration_ms FROM ({DURATION}) q"), &[]).await;
    let durations = durations.unwrap();
    assert_eq!(durations.len(), 3);
    assert!(durations.iter().all(|row| row.get::<_, bool>(0) && row.get::<_, i64>(1) == 100));
    let attention =
        world.sql.query(&format!("SELECT status, count(*) FROM ({ATTENTION}) q GROUP BY 1 ORDER BY 1"), &[]).await;
    let attention: Vec<(String, i64)> = attention.unwrap().iter().map(|row| (row.get(0), row.get(1))).collect();
    assert_eq!(attention, [("ERROR".to_owned(), 299), ("FAILED".to_owned(), 10)]);
    let attempts = "SELECT status, count(*) FROM dispatch_attempt GROUP BY 1 ORDER BY 1";
    let attempts = world.sql.query(attempts, &[]).await.unwrap();
    let attempts: Vec<(String, i64)> = attempts.iter().map(|row| (row.get(0), row.get(1))).collect();
    assert_eq!(attempts, [("FAILURE".to_owned(), 299), ("SUCCESS".to_owned(), 29671)]);
}

/// What they read: the ends without success by their index, the attempts by theirs, and of the days that a bound leaves
/// out next to nothing.
#[tokio::test]
async fn s3_35_lists_and_dashboards_use_the_indexes() {
    let world = filled().await;
    let day =
        world.one::<String>("SELECT to_char((clock_timestamp() AT TIME ZONE 'UTC')::date - 10, 'YYYYMMDD')").await;
    let holds = |plan: &str, what: &str| assert!(plan.contains(what), "{what} is not in\n{plan}");
    let lacks = |plan: &str, what: &str| assert!(!plan.contains(what), "{what} is in\n{plan}");

    let attention = plan(&world.sql, ATTENTION).await;
    holds(&attention, &format!("dispatch_job_outcome_p{day}_status_outbox_id_idx"));
    lacks(&attention, &format!("Seq Scan on dispatch_job_outcome_p{day}"));
    lacks(&attention, "in_flight");
    let rate = plan(&world.sql, SUCCESS_RATE).await;
    holds(&rate, &format!("dispatch_job_p{day}_created_at_idx"));
    lacks(&rate, &format!("Seq Scan on dispatch_job_p{day}"));
    let failures = plan(&world.sql, "SELECT * FROM dispatch_attempt WHERE status = 'FAILURE'").await;
    lacks(&failures, &format!("Seq Scan on payment_outbox_attempt_archive_p{day}"));
    let recent = "SELECT count(*) FROM dispatch_attempt WHERE attempted_at > NOW() - INTERVAL '1 hour'";
    lacks(&plan(&world.sql, recent).await, &format!("Seq Scan on payment_outbox_attempt_archive_p{day}"));
    let tenant = "SELECT dispatch_job_id FROM dispatch_job_metadata WHERE meta_key = 'tenant' AND meta_value = 'acme7'";
    holds(&plan(&world.sql, tenant).await, "meta_key_meta_value_dispatch_");
}

/// A search with bounds on the time opens their days and no others; its filters use their indexes.
#[tokio::test]
async fn s3_35_a_search_opens_the_days_it_is_about() {
    let world = filled().await;
    let http_free = Store::new(StoreConfig::at(world.db.url())).unwrap();
    let at: jiff::Timestamp = world.one("SELECT clock_timestamp() - interval '10 days'").await;
    let filter = jobs::Filter {
        source: Some("s1".to_owned()),
        created_after: Some(at),
        created_before: Some(at + jiff::SignedDuration::from_hours(1)),
        ..jobs::Filter::default()
    };
    let found = jobs::search(&http_free, &filter, jobs::Page::Number { page: 0, size: 100 }).await.unwrap();
    assert!((8..=9).contains(&found.jobs.len()), "{} of an hour", found.jobs.len());
    assert_eq!(found.total, Some(u64::try_from(found.jobs.len()).unwrap()));
    let read = "SELECT count(*) FROM pg_stat_user_tables
                WHERE relname ~ '^dispatch_job_p[0-9]{8}$' AND coalesce(seq_scan, 0) + coalesce(idx_scan, 0) > 0";
    // What the fill touched is forgotten; then one search.
    world.sql.batch_execute("SELECT pg_stat_reset()").await.unwrap();
    eventually(SOON, "the counters are at zero", || async { world.one::<i64>(read).await == 0 }).await;
    jobs::search(&http_free, &filter, jobs::Page::Number { page: 0, size: 100 }).await.unwrap();
    drop(http_free);
    eventually(SOON, "the search is counted", || async { (1..=2).contains(&world.one::<i64>(read).await) }).await;
}
