//! S1 over several nodes: processes of the real binary on one database.

use std::time::Duration;

use futures_util::future::join_all;
use railyard_testkit::{FakeRail, Http, NodeProcess, eventually};
use serde_json::{Value, json};

use crate::fleet::{Fleet, LATER};
use crate::linked::{metric, said};
use crate::world::SOON;

const CONFIG: &str = "/admin/rate-limit/config";
const SLOTS: &str = "/api/v1/slots";
const AT: &str = "2031-01-01T00:00:00Z";
const MISSES: &str = "rate_limiter_config_cache_misses_total";
const HITS: &str = "rate_limiter_config_cache_hits_total";

async fn limit(node: &NodeProcess, max: u32) {
    let config = json!({ "configName": "default", "maxPerWindow": max, "windowSizeSecs": 4 });
    node.http().post(CONFIG, &config).await.unwrap().expect_status(201);
}

async fn slot(http: &Http, id: &str) -> Option<Value> {
    let event = json!({ "eventId": id, "requestedTime": AT });
    let answer = http.post(SLOTS, &event).await.ok()?;
    matches!(answer.status, 200 | 201).then(|| answer.json())
}

fn is(seen: f64, expected: f64) -> bool {
    (seen - expected).abs() < 0.5
}

/// No links: nodes hear of it by NOTIFY alone, long before what they remember is old.
#[tokio::test(flavor = "multi_thread")]
async fn s1_11_a_flush_on_one_node_reaches_all() {
    let fleet = Fleet::new().await;
    let (a, b) = (fleet.ready("a").await, fleet.ready("b").await);
    limit(&a, 100).await;
    slot(&b.http(), "first").await.unwrap();
    eventually(SOON, "b has heard of the change", || async {
        let before = metric(&b, HITS).await;
        slot(&b.http(), "second").await.unwrap();
        metric(&b, HITS).await > before
    })
    .await;
    let misses = metric(&b, MISSES).await;
    a.http().post("/admin/rate-limit/cache/flush", &json!(null)).await.unwrap().expect_status(204);
    // Well within the five seconds after which it would have read anew by itself.
    eventually(Duration::from_secs(3), "b reads anew", || async {
        slot(&b.http(), "third").await.unwrap();
        metric(&b, MISSES).await > misses
    })
    .await;
}

/// With what SQL changed, nobody is told: what a node remembers is refused by the database all the same.
#[tokio::test(flavor = "multi_thread")]
async fn s1_10_a_change_holds_on_all_nodes_from_the_next_assignment_on() {
    let fleet = Fleet::new().await;
    let (a, b) = (fleet.ready("a").await, fleet.ready("b").await);
    limit(&a, 100).await;
    let first = slot(&b.http(), "first").await.unwrap();
    limit(&a, 1).await;
    let second = slot(&b.http(), "second").await.unwrap();
    assert_ne!(first["windowStart"], second["windowStart"]);
    assert_eq!(b.http().get(CONFIG).await.unwrap().json()["maxPerWindow"], 1);
    assert_eq!(b.http().get(&format!("{CONFIG}?name=other")).await.unwrap().status, 404);
}

/// Three nodes at once, one of them killed in the middle: no window over its maximum, and no count without a slot.
#[tokio::test(flavor = "multi_thread")]
async fn s1_19_three_nodes_and_a_kill_overfill_nothing() {
    const MAX: i32 = 7;
    let fleet = Fleet::new().await;
    let nodes = [fleet.ready("a").await, fleet.ready("b").await, fleet.ready("c").await];
    limit(&nodes[0], 7).await;
    let callers = (0..12).map(|caller: usize| {
        let http = nodes[caller % 3].http();
        async move {
            let mut given = 0;
            for n in 0..25 {
                // Half of the events are asked for at several nodes.
                let id = if n % 2 == 0 { format!("own-{caller}-{n}") } else { format!("shared-{}-{n}", caller / 3) };
                given += usize::from(slot(&http, &id).await.is_some());
            }
            given
        }
    });
    let killed = async {
        let slots = "SELECT count(*) FROM rate_limit_event_slot";
        eventually(SOON, "some have slots", || async { fleet.world.one::<i64>(slots).await > 40 }).await;
        nodes[2].kill9();
    };
    let (given, ()) = tokio::join!(join_all(callers), killed);
    assert!(given[0] == 25 && given[1] == 25, "the living answered all: {given:?}");
    assert!(given[2] < 25, "the killed did not: {given:?}");
    let wrong = "
        SELECT count(*) FROM rate_limit_window_counter c
        FULL JOIN (SELECT window_start, count(*) AS slots FROM rate_limit_event_slot GROUP BY 1) s USING (window_start)
        WHERE coalesce(c.slot_count, 0) <> coalesce(s.slots, 0) OR c.slot_count > $1";
    let wrong: i64 = fleet.world.sql.query_one(wrong, &[&MAX]).await.unwrap().get(0);
    assert_eq!(wrong, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn s1_20_log_lines_are_the_sources() {
    let fleet = Fleet::new().await;
    let node = fleet.ready("a").await;
    let config = json!({ "maxPerWindow": 100, "windowSizeSecs": 4, "frontier": false, "maxLookahead": 2 });
    for max in [100, 200] {
        let mut config = config.clone();
        config["maxPerWindow"] = json!(max);
        node.http().post(CONFIG, &config).await.unwrap().expect_status(201);
    }
    // By its name as an assignment locks it.
    let lock =
        "SELECT pg_advisory_lock(rate_lock_of('default'), (rate_micros('2031-01-01') / 4000000 % 2147483648)::integer)";
    fleet.world.sql.batch_execute(lock).await.unwrap();
    let passed = slot(&node.http(), "passed").await.unwrap();
    assert_eq!(passed["windowStart"], "2031-01-01T00:00:04.000Z");
    let full = "UPDATE rate_limit_window_counter SET slot_count = 200, is_full = true";
    fleet.world.sql.batch_execute(full).await.unwrap();
    assert!(slot(&node.http(), "none").await.is_none());
    for line in [
        "Window contention on 2031-01-01T00:00:00Z, skipping to next",
        "Lookahead exhausted for event none, searched 2 windows",
        "Config cache miss for default, loaded from DB",
        "Config updated: default maxPerWindow=100->200",
    ] {
        assert!(said(&node, line) > 0, "{line}");
    }
    assert!(is(metric(&node, "rate_limiter_slot_assignment_failures_total").await, 1.0));
    assert!(metric(&node, "rate_limiter_window_contention_total").await >= 1.0);
}

/// Whoever takes work in gives it a slot and leaves it in the database with its time; whoever is there then calls, and
/// writes it down. In between no process lives.
#[tokio::test(flavor = "multi_thread")]
async fn s1_30_work_waits_in_the_database_alone_and_starts_in_its_slot() {
    const EVENTS: usize = 12;
    let fleet = Fleet::new().await;
    let (a, b) = (fleet.ready("a").await, fleet.ready("b").await);
    let rail = FakeRail::start().await;
    let config = json!({ "configName": "default", "maxPerWindow": 3, "windowSizeSecs": 1 });
    a.http().post(CONFIG, &config).await.unwrap().expect_status(201);
    let soon: jiff::Timestamp = fleet.world.one("SELECT clock_timestamp() + interval '10 seconds'").await;
    for n in 0..EVENTS {
        let event = json!({ "eventId": format!("e{n}"), "requestedTime": soon.to_string() });
        let slot = a.http().post(SLOTS, &event).await.unwrap().expect_status(201).json();
        let job = json!({
            "source": "payments", "type": "payment.due", "targetUrl": rail.url(), "payload": "{}",
            "credentialsId": fleet.world.credentials.0.to_string(), "groupId": format!("g{n}"),
            "externalId": format!("e{n}"), "idempotencyKey": format!("e{n}"), "scheduledFor": slot["scheduledTime"],
        });
        a.http().post("/api/dispatch/jobs", &job).await.unwrap().expect_status(201);
    }
    [&a, &b].into_iter().for_each(NodeProcess::kill9);
    assert!(rail.exchanges().is_empty(), "nothing starts before its slot");
    [&a, &b].into_iter().for_each(NodeProcess::start);
    rail.await_answered(EVENTS, LATER).await;
    fleet.all_completed(EVENTS).await;
    // The audit row of each: begun when its slot said, by the database's clock, and never before.
    let audited = "
        SELECT count(*) FILTER (WHERE t.state = 'DISPATCHED' AND t.claimed_at >= date_trunc('milliseconds', s.scheduled_time)), count(*)
        FROM payment_outbox_attempts t JOIN dispatch_job j USING (outbox_id)
        JOIN rate_limit_event_slot s ON s.event_id = j.external_id WHERE t.state <> 'NOT_STARTED'";
    let row = fleet.world.sql.query_one(audited, &[]).await.unwrap();
    let (right, all): (i64, i64) = (row.get(0), row.get(1));
    assert_eq!((right, all), (12, 12));
}

/// A caller that dies before it starts the work leaves a slot behind; the node gives it back within half a minute of its
/// time.
#[tokio::test(flavor = "multi_thread")]
async fn s1_21_a_node_gives_back_what_nobody_confirmed() {
    let fleet = Fleet::new().await;
    let node = fleet.ready("a").await;
    limit(&node, 1).await;
    let event = json!({ "eventId": "leaked", "requestedTime": AT, "confirmWithinSeconds": 1 });
    node.http().post(SLOTS, &event).await.unwrap().expect_status(201);
    let slots = "SELECT count(*) FROM rate_limit_event_slot";
    eventually(Duration::from_secs(60), "it is given back", || async { fleet.world.one::<i64>(slots).await == 0 })
        .await;
    assert_eq!(slot(&node.http(), "next").await.unwrap()["windowStart"], "2031-01-01T00:00:00.000Z");
}

/// The command line shows and changes what the API does.
#[tokio::test(flavor = "multi_thread")]
async fn s1_12_operators_see_and_change_limits() {
    let fleet = Fleet::new().await;
    let node = fleet.ready("a").await;
    let run = async |words: &[&str]| {
        let words: Vec<&str> = ["rate"].into_iter().chain(words.iter().copied()).collect();
        fleet.sandbox.run_at(&node, &words, "").await.ok()
    };
    let made: Value = serde_json::from_str(&run(&["set", "--max-per-window", "100", "--json"]).await).unwrap();
    assert_eq!((&made["configName"], &made["windowSizeSecs"]), (&json!("default"), &json!(4)));
    let shown: Value = serde_json::from_str(&run(&["get", "--history", "--json"]).await).unwrap();
    assert_eq!(shown["history"][0]["configId"], made["configId"]);
    let plot = run(&["forecast", "10000", "--at", AT]).await;
    assert!(plot.contains("2031-01-01T00:06:40.000Z  10000  █"), "{plot}");
    let preview: Value = serde_json::from_str(&run(&["replan", "--preview", "--json"]).await).unwrap();
    assert_eq!((&preview["preview"], &preview["slots"]), (&json!(true), &json!(0)));
    assert!(run(&["flush"]).await.contains("anew"));
}
