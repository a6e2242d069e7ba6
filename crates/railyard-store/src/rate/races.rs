//! Many at once, and what the search costs.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use serde_json::Value;

use super::tests::{ids, later, plus};
use super::*;
use crate::testing::TestStore;
use crate::{Store, StoreConfig};

const TRY_WINDOW: &str = "SELECT pg_advisory_xact_lock(rate_lock_of('default'), (rate_micros($1::timestamptz) / 4000000 % 2147483648)::integer)";

#[tokio::test]
async fn s1_04_a_window_that_is_locked_is_not_waited_for() {
    let t = TestStore::new().await;
    t.rate("default", 10, 4).await;
    t.slot("default", "there", plus(later(), 4000)).await;
    // By its name as an assignment locks it, or by its counter's row.
    t.sql.batch_execute("BEGIN").await.unwrap();
    t.sql.query(TRY_WINDOW, &[&later()]).await.unwrap();
    let row = "SELECT 1 FROM rate_limit_window_counter WHERE window_start = $1 FOR UPDATE";
    t.sql.query(row, &[&plus(later(), 4000)]).await.unwrap();
    let started = Instant::now();
    let passed = t.slots("default", &ids("a", 1), later()).await.unwrap();
    assert!(started.elapsed() < Duration::from_millis(900), "it waited for no lock");
    assert_eq!((passed.slots[0].window_start, passed.contended), (plus(later(), 8000), 2));
    assert_eq!(t.store.rates().counts().contention, 2);
    t.sql.batch_execute("ROLLBACK").await.unwrap();
    assert_eq!(t.slot("default", "b", later()).await.window_start, later(), "the hole is found");
    t.is_consistent(10).await;
}

/// Ten calls with one id on two nodes.
#[tokio::test]
async fn s1_06_one_event_asked_for_at_once_has_one_slot() {
    let t = TestStore::new().await;
    t.rate("default", 10, 4).await;
    let other = Store::new(StoreConfig::at(t.db.url())).unwrap();
    for round in 0..20 {
        let event_ids = ids(&format!("r{round}-"), 1);
        let request =
            SlotRequest { config: "default", event_ids: &event_ids, requested: Some(later()), confirm_s: None };
        let calls = (0..10).map(|n| assign(if n % 2 == 0 { &t.store } else { &other }, request));
        let made: Vec<Slot> = join_all(calls).await.into_iter().map(|done| done.unwrap().slots.remove(0)).collect();
        assert_eq!(made.iter().filter(|slot| slot.created).count(), 1, "{made:?}");
        assert!(made.iter().all(|slot| slot.scheduled == made[0].scheduled));
    }
    let counted: i32 = t.counters("default").await.iter().map(|(_, count)| count).sum();
    assert_eq!(counted, 20);
    t.is_consistent(10).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn s1_18_fifty_at_once_overfill_nothing() {
    let t = Arc::new(TestStore::new().await);
    t.rate("default", 7, 4).await;
    for count in [100, 500] {
        let calls = (0..50).map(|task| {
            let t = Arc::clone(&t);
            async move {
                for id in ids(&format!("{count}-{task}-"), count / 50) {
                    t.slot("default", &id, later()).await;
                }
            }
        });
        join_all(calls).await;
        t.is_consistent(7).await;
    }
    assert_eq!(t.one::<i64>("SELECT count(*) FROM rate_limit_event_slot").await, 600);
    let runs: i64 = t.one("SELECT count(*) FROM rate_limit_run").await;
    assert!(runs < 12, "runs that touch become one again: {runs}");
}

/// Everything at once: single and many, released again, capacity and window size changed.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn s1_26_all_kinds_of_calls_at_once_keep_counters_and_slots_together() {
    let t = Arc::new(TestStore::new().await);
    t.rate("default", 9, 4).await;
    let calls = (0..8).map(|task: usize| {
        let t = Arc::clone(&t);
        async move {
            for step in 0..12 {
                let at = plus(later(), i64::try_from((task * 7 + step * 3) % 40).unwrap() * 1500);
                let many = if task.is_multiple_of(2) { 1 } else { 37 };
                let names = ids(&format!("{task}-{}-", step % 9), many);
                match t.slots("default", &names, at).await {
                    Ok(_) => {}
                    Err(RateError::Store(error)) if error.is_transient() => {}
                    Err(error) => panic!("{error}"),
                }
                if step % 5 == 4 {
                    release(&t.store, &names).await.unwrap();
                }
                if task == 1 && step % 4 == 3 {
                    t.rate("default", 5 + u32::try_from(step).unwrap() % 5, 4).await;
                }
                if task == 3 && step == 6 {
                    t.rate("default", 9, 6).await;
                }
            }
        }
    });
    join_all(calls).await;
    t.is_consistent(i32::MAX).await;
    t.rate("default", 9, 4).await;
    t.is_consistent(i32::MAX).await;
}

/// S1-17, and S1-31 in kind: shared buffers that one assignment touches behind so many full windows, whatever the tables
/// held when its statements were planned.
#[tokio::test]
async fn s1_17_the_search_costs_the_same_behind_ten_thousand_full_windows() {
    let t = TestStore::new().await;
    let config = t.rate("default", 100, 4).await;
    let one = |id: &str| {
        format!(
            "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON)
             SELECT * FROM rate_assign({}, '{{\"{id}\"}}', '{}', '{{1}}', NULL, NULL, NULL)",
            config.config_id,
            later()
        )
    };
    t.sql.batch_execute("SET plan_cache_mode = force_generic_plan").await.unwrap();
    let mut touched = Vec::new();
    let fill = "
        INSERT INTO rate_limit_window_counter
        SELECT 'default', $1, timestamptz '2031-01-01' + n * interval '4 seconds', 100, true FROM generate_series(1, 10000) n";
    let run = "UPDATE rate_limit_run SET next_window = next_window + 10000";
    for step in ["on empty tables", "behind one", "behind 10,000", "with statistics"] {
        match step {
            "behind 10,000" => {
                let full = "UPDATE rate_limit_window_counter SET slot_count = 100, is_full = true";
                t.sql.batch_execute(full).await.unwrap();
                t.sql.execute(fill, &[&config.grid]).await.unwrap();
                t.sql.batch_execute(run).await.unwrap();
                let slots = "INSERT INTO rate_limit_event_slot SELECT 'x' || n, 'default', 1, now(), now(), now()
                             FROM generate_series(1, 50000) n";
                t.sql.batch_execute(slots).await.unwrap();
            }
            "with statistics" => t.sql.batch_execute("VACUUM ANALYZE").await.unwrap(),
            _ => {}
        }
        // What the first one touches besides is the catalog, for its plans.
        t.sql.query(&one(&format!("{step}, planned")), &[]).await.unwrap();
        // Scans of the statements before, which the connection has not told yet, are not the search's.
        t.sql.batch_execute("SELECT pg_stat_force_next_flush()").await.unwrap();
        let plan: Value = t.sql.query_one(&one(step), &[]).await.unwrap().get(0);
        let root = &plan[0]["Plan"];
        let of = |name: &str| root[name].as_u64().unwrap();
        touched.push((step, of("Shared Hit Blocks") + of("Shared Read Blocks")));
        let scans =
            "SELECT coalesce(sum(seq_scan), 0)::bigint FROM pg_stat_xact_user_tables WHERE relname LIKE 'rate_limit_%'
                     AND relname <> 'rate_limit_config'";
        assert_eq!(t.one::<i64>(scans).await, 0, "{step}");
    }
    println!("{touched:?}");
    assert!(touched[2..].iter().all(|(_, buffers)| *buffers < touched[1].1 + 40), "{touched:?}");
}

/// Gaps of one window, each between two full ones: what each costs does not grow with how many there are, and a run is
/// changed once.
#[tokio::test]
async fn s1_26_thousands_of_gaps_cost_the_same_each() {
    let mut costs = Vec::new();
    for gaps in [250_u32, 2500] {
        let t = TestStore::new().await;
        let config = t.rate("default", 1, 4).await;
        let wide = i32::try_from(gaps).unwrap();
        let full = "WITH n AS (SELECT n, timestamptz '2031-01-01' + n * interval '8 seconds' AS at FROM generate_series(0, $2::integer) n),
              counters AS (INSERT INTO rate_limit_window_counter SELECT 'default', $1, n.at, 1, true FROM n),
              slots AS (INSERT INTO rate_limit_event_slot SELECT 'x' || n.n, 'default', $3, n.at, n.at, n.at FROM n)
            INSERT INTO rate_limit_run
            SELECT 'default', $1, rate_micros(n.at) / 4000000, rate_micros(n.at) / 4000000 + 1 FROM n";
        t.sql.execute(full, &[&config.grid, &wide, &config.config_id]).await.unwrap();
        t.sql.batch_execute("SELECT pg_stat_force_next_flush()").await.unwrap();
        t.sql.batch_execute("BEGIN").await.unwrap();
        let explain = format!(
            "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON)
             SELECT * FROM rate_assign({}, ARRAY(SELECT 'e' || n FROM generate_series(1, {gaps}) n), '{}',
               array_fill(1::bigint, ARRAY[{gaps}]), NULL, NULL, NULL)",
            config.config_id,
            later()
        );
        let plan: Value = t.sql.query_one(&explain, &[]).await.unwrap().get(0);
        let runs = "SELECT n_tup_ins + n_tup_upd + n_tup_del, idx_scan FROM pg_stat_xact_user_tables
                    WHERE relname = 'rate_limit_run'";
        let runs = t.sql.query_one(runs, &[]).await.unwrap();
        let (changed, scans): (i64, i64) = (runs.get(0), runs.get(1));
        t.sql.batch_execute("COMMIT").await.unwrap();
        t.is_consistent(1).await;
        assert_eq!(t.counters("default").await.len(), 2 * gaps as usize + 1);
        assert_eq!(t.one::<i64>("SELECT count(*) FROM rate_limit_run").await, 1);
        assert!(changed <= i64::from(gaps) + 2, "{changed} rows of runs were changed for {gaps} gaps");
        assert!(scans < 100, "runs were looked at {scans} times for {gaps} gaps");
        let of = |name: &str| plan[0]["Plan"][name].as_u64().unwrap();
        costs.push((of("Shared Hit Blocks") + of("Shared Read Blocks")) / u64::from(gaps));
    }
    println!("{costs:?} pages a gap");
    assert!(costs[1] <= costs[0] + costs[0] / 4, "{costs:?} pages a gap");
}

/// The source's burst: 500,000 events for one instant take 5,000 windows, five and a half hours, and the last ones cost what
/// the first ones did. (`railyard bench slots` measures the same with a million, in time.)
#[tokio::test]
async fn s1_31_half_a_million_events_for_one_instant_cost_the_same_to_the_end() {
    const CALL: usize = 10_000;
    let t = TestStore::new().await;
    let config = t.rate("default", 100, 4).await;
    let pages = async |id: &str| {
        let explain = format!(
            "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON)
             SELECT * FROM rate_assign({}, '{{\"{id}\"}}', '{}', '{{1}}', NULL, NULL, NULL)",
            config.config_id,
            later()
        );
        let plan: Value = t.sql.query_one(&explain, &[]).await.unwrap().get(0);
        plan[0]["Plan"]["Shared Hit Blocks"].as_u64().unwrap() + plan[0]["Plan"]["Shared Read Blocks"].as_u64().unwrap()
    };
    pages("planned").await;
    let first = pages("first").await;
    let mut last = later();
    for call in 0..50 {
        // Whoever came one at a time has its place in the first window.
        let events = if call == 49 { CALL - 2 } else { CALL };
        let made = t.slots("default", &ids(&format!("c{call}-"), events), later()).await.unwrap();
        last = made.slots.iter().map(|slot| slot.window_start).max().unwrap().max(last);
    }
    assert_eq!(last, plus(later(), 4999 * 4000));
    let windows: i64 = t.one("SELECT count(*) FROM rate_limit_window_counter WHERE slot_count = 100").await;
    assert_eq!(windows, 5000);
    let mut at_the_end = Vec::new();
    for n in 0..21 {
        at_the_end.push(pages(&format!("last{n}")).await);
    }
    at_the_end.sort_unstable();
    println!("{first} pages at first, {at_the_end:?} at the end");
    // Now and then a statement is planned anew, since autovacuum has looked at its tables: that reads the catalog.
    assert!(at_the_end[10] <= first + 40, "{first} pages at first, {at_the_end:?} at the end");
}
