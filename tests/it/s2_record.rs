//! S2-20, S2-28 and S2-29: the record that nobody can change, and what the figures say of it.

use std::collections::BTreeMap;
use std::time::Duration;

use railyard_core::OutboxId;
use railyard_testkit::{FakeRail, NodeProcess, Sandbox, eventually};
use tokio_postgres::Client;

use crate::hand::{Hand, LONG, delivered};
use crate::producer::{Item, sqlstate};
use crate::world::{SOON, World};

const NOWHERE: &str = "http://127.0.0.1:9/";

/// SQLSTATE of a statement that must be refused.
async fn refusal(sql: &Client, statement: &str) -> String {
    let error = sql.batch_execute(statement).await.expect_err(statement);
    sqlstate(&error).to_owned()
}

/// Neither the table, nor one of its days, nor the view can be changed, by the owner or a superuser; the runtime role
/// has no right to try, and cannot empty it.
#[tokio::test]
async fn s2_20_attempts_are_append_only() {
    let world = World::new().await;
    let hand = Hand::join(&world.store, LONG).await;
    Item::payment(&world, NOWHERE, "g", "one").by(&world.sql).await.unwrap();
    let message = hand.begin(&world.sql, "g").await.unwrap();
    hand.settle(&message, delivered()).await;
    let day: String = world.one("SELECT tableoid::regclass::text FROM payment_outbox_attempt_archive").await;

    let sql = world.db.connect().await;
    for role in ["postgres", "railyard_owner"] {
        sql.batch_execute(&format!("SET ROLE {role}")).await.unwrap();
        for table in ["payment_outbox_attempt_archive", day.as_str(), "payment_outbox_attempts"] {
            for change in [format!("UPDATE {table} SET state = 'FAILED'"), format!("DELETE FROM {table}")] {
                assert_eq!(refusal(&sql, &change).await, "P0001", "{role}: {change}");
            }
        }
        let insert = "INSERT INTO payment_outbox_attempts (attempt_id) VALUES (gen_random_uuid())";
        assert_eq!(refusal(&sql, insert).await, "P0001", "{role}: the view takes nothing in");
        assert_eq!(refusal(&sql, "TRUNCATE payment_outbox_attempt_archive").await, "P0001", "{role}");
    }
    sql.batch_execute("SET ROLE railyard_runtime").await.unwrap();
    for table in ["payment_outbox_attempt_archive", day.as_str(), "payment_outbox_attempts"] {
        for change in ["UPDATE {} SET state = 'FAILED'", "DELETE FROM {}", "TRUNCATE {}"] {
            let change = change.replace("{}", table);
            // A view cannot be truncated by anybody.
            let expected = if change == "TRUNCATE payment_outbox_attempts" { "42809" } else { "42501" };
            assert_eq!(refusal(&sql, &change).await, expected, "the runtime: {change}");
        }
    }
    for change in ["DROP TABLE {}", "ALTER TABLE {} DISABLE TRIGGER ALL", "ALTER TABLE {} ADD COLUMN x int"] {
        let change = change.replace("{}", &day);
        assert_eq!(refusal(&sql, &change).await, "42501", "the runtime: {change}");
    }
    assert_eq!(world.history(message.outbox_id).await, ["DISPATCHED"]);
}

/// One scrape: value by name and labels.
async fn scrape(node: &NodeProcess) -> BTreeMap<String, f64> {
    let answer = node.http().without_token().get("/metrics").await.unwrap();
    assert_eq!(answer.status, 200);
    let text = String::from_utf8(answer.body.to_vec()).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .filter_map(|line| line.rsplit_once(' '))
        .map(|(name, value)| (name.to_owned(), value.parse().unwrap()))
        .collect()
}

fn sandbox(world: &World) -> Sandbox {
    Sandbox::new(world.db.url())
        .env("RAILYARD_MASTER_KEY", "5a".repeat(32))
        .set("http.allow_networks", r#"["127.0.0.0/8"]"#)
        .set("http.breaker.calls_min", 10_000)
}

/// What the database says, under the names of the metrics.
async fn figures(world: &World) -> BTreeMap<String, f64> {
    let mut figures = BTreeMap::new();
    for row in world
        .sql
        .query(
            "SELECT 'outbox_pending_depth', count(*)::float8 FROM payment_outbox_pending
             UNION ALL SELECT 'dlq_depth', count(*) FROM dispatch_job_outcome WHERE status = 'ERROR'
             UNION ALL SELECT 'reaper_requeues_total', count(*) FROM payment_outbox_attempts WHERE state = 'ZOMBIE_REQUEUE'
             UNION ALL SELECT 'stuck_dispatching_count', count(*) FROM in_flight
               WHERE call_deadline < clock_timestamp() - interval '30 s'
             UNION ALL SELECT format('attempts_total{state=\"%s\"}', s), (SELECT count(*) FROM payment_outbox_attempts
                 WHERE NOT late AND (state = s OR (s = 'DISPATCHING' AND attempt_id NOT IN (SELECT attempt_id FROM given_up))))
               FROM unnest(ARRAY['DISPATCHING', 'DISPATCHED', 'RETRYABLE', 'FAILED', 'ZOMBIE_REQUEUE', 'DEFERRED', 'NOT_STARTED']) s",
            &[],
        )
        .await
        .unwrap()
    {
        figures.insert(row.get(0), row.get(1));
    }
    figures
}

/// Every state there is, on a real node: the nine metrics say what the database says.
#[tokio::test(flavor = "multi_thread")]
async fn s2_28_the_nine_metrics_match_the_database() {
    let world = World::new().await;
    // A call whose worker is long dead: stuck until somebody repairs it.
    let dead = Hand::join(&world.store, LONG).await;
    Item::webhook(&world, NOWHERE, "dead", "dead").by(&world.sql).await.unwrap();
    dead.begin(&world.sql, "dead").await.unwrap();
    world
        .sql
        .batch_execute(
            "CREATE TABLE given_up AS SELECT attempt_id FROM in_flight;
             UPDATE in_flight SET claimed_at = claimed_at - interval '1 hour', call_deadline = claimed_at - interval '50 min';
             DELETE FROM node",
        )
        .await
        .unwrap();
    assert_eq!(railyard_store::gauges::read(&world.store, 10).await.unwrap().stuck, 1);

    let rail = FakeRail::start().await.for_group("dead").ok().forever();
    world.sql.execute("UPDATE dispatch_job SET target_url = $1", &[&rail.url()]).await.unwrap();
    let rail = rail.for_group("retried").fails(1).then_ok();
    let rail = rail.for_group("refused").status(410).forever();
    let rail = rail.for_group("deferred").retry_after(429, "1").then_ok();
    for group in ["plain", "retried", "refused", "deferred", "expired"] {
        for key in ["one", "two"] {
            Item::payment(&world, &rail.url(), group, &format!("{group}-{key}")).by(&world.sql).await.unwrap();
        }
    }
    let expire = "UPDATE dispatch_job SET expires_at = clock_timestamp() WHERE participant_id = 'expired'";
    world.sql.execute(expire, &[]).await.unwrap();
    let sandbox = sandbox(&world);
    let node = sandbox.node().await;

    eventually(SOON, "everything but what is behind a refusal has ended", || async {
        world.one::<i64>("SELECT count(*) FROM dispatch_job_outcome").await == 9
    })
    .await;
    eventually(SOON, "the figures are those of the database", || async {
        let (shown, counted) = (scrape(&node).await, figures(&world).await);
        counted.iter().all(|(name, value)| shown.get(name) == Some(value))
    })
    .await;
    let (shown, counted) = (scrape(&node).await, figures(&world).await);
    for (name, value) in &counted {
        assert_eq!(shown.get(name), Some(value), "{name}");
        let at_rest = ["stuck_dispatching_count"].contains(&name.as_str());
        assert_eq!(*value > 0.0, !at_rest, "{name} was put to no test");
    }
    let age: f64 = world
        .one("SELECT extract(epoch FROM clock_timestamp() - min(created_at))::float8 FROM payment_outbox_pending")
        .await;
    let shown_age = shown["oldest_pending_age_seconds"];
    assert!((age - 3.0..=age).contains(&shown_age), "{shown_age} s is shown, {age} s it is");
    let calls = f64::from(u32::try_from(rail.receipts().len()).unwrap());
    let timed: f64 =
        shown.iter().filter(|(name, _)| name.starts_with("dispatch_latency_ms_count")).map(|(_, n)| n).sum();
    assert!((timed - calls).abs() < 0.5, "{timed} latencies of {calls} calls");
    assert!(shown["claim_batches_total"] >= 1.0);
    let heard = shown["notify_wakeups_total"];
    Item::payment(&world, &rail.url(), "late", "late").by(&world.sql).await.unwrap();
    eventually(SOON, "the notice is counted", || async { scrape(&node).await["notify_wakeups_total"] > heard }).await;
}

/// What each of the four alerts looks at moves when its reason occurs, and stands at rest before.
#[tokio::test(flavor = "multi_thread")]
async fn s2_29_the_four_alerts_can_be_derived() {
    let world = World::new().await;
    let rail =
        FakeRail::start().await.for_group("retried").status(500).forever().for_group("refused").status(410).forever();
    let sandbox = sandbox(&world);
    let node = sandbox.node().await;
    let inputs =
        ["oldest_pending_age_seconds", "dlq_depth", "stuck_dispatching_count", "attempts_total{state=\"RETRYABLE\"}"];
    let quiet = scrape(&node).await;
    assert!(inputs.iter().all(|name| quiet[*name] == 0.0), "not at rest: {quiet:?}");

    for (group, keys) in [("retried", 1), ("refused", 2)] {
        for key in 0..keys {
            let item = Item::payment(&world, &rail.url(), group, &format!("{group}{key}")).retry("immediate");
            item.max_attempts(100).by(&world.sql).await.unwrap();
        }
    }
    // A living member that neither ends its call nor gives it up.
    let stuck = Hand::join(&world.store, LONG).await;
    world
        .sql
        .execute(
            "UPDATE partition_lease SET owner = $1, epoch = epoch + 1 WHERE partition_id = partition_of('stuck')",
            &[&stuck.node.0],
        )
        .await
        .unwrap();
    Item::payment(&world, NOWHERE, "stuck", "stuck").by(&world.sql).await.unwrap();
    assert!(stuck.begin(&world.sql, "stuck").await.is_some());
    world
        .sql
        .execute(
            "UPDATE in_flight SET call_deadline = clock_timestamp() - interval '31 s' WHERE participant_id = 'stuck'",
            &[],
        )
        .await
        .unwrap();

    eventually(SOON, "all four inputs move", || async {
        let shown = scrape(&node).await;
        inputs.iter().all(|name| shown[*name] > 0.0) && shown["attempts_total{state=\"RETRYABLE\"}"] >= 3.0
    })
    .await;
    let shown = scrape(&node).await;
    assert_eq!((shown["dlq_depth"], shown["stuck_dispatching_count"]), (1.0, 1.0));
    let first = shown["oldest_pending_age_seconds"];
    eventually(Duration::from_secs(10), "the age grows", || async {
        scrape(&node).await["oldest_pending_age_seconds"] > first + 0.5
    })
    .await;
    let blocked = OutboxId(world.one("SELECT outbox_id FROM group_hold WHERE kind = 'blocked'").await);
    assert_eq!(world.history(blocked).await, ["FAILED/GONE"]);
}
