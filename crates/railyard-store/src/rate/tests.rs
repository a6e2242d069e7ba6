//! Slots one after the other, against a database.

use std::time::Duration;

use jiff::{Span, Timestamp};
use railyard_core::slots::{Calendar, RateConfig};
use serde_json::json;

use super::*;
use crate::testing::TestStore;

/// A boundary of every size that the tests use, ahead of any clock.
pub(super) fn later() -> Timestamp {
    "2031-01-01T00:00:00Z".parse().unwrap()
}

pub(super) fn plus(at: Timestamp, millis: i64) -> Timestamp {
    at.checked_add(Span::new().milliseconds(millis)).unwrap()
}

pub(super) fn ids(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|n| format!("{prefix}{n}")).collect()
}

impl TestStore {
    pub(super) async fn rate(&self, name: &str, max: u32, size_s: u32) -> ConfigRow {
        set(&self.store, &RateConfig::new(name, max, size_s), "test").await.unwrap()
    }

    pub(super) async fn slots(&self, config: &str, ids: &[String], at: Timestamp) -> Result<Assignment, RateError> {
        let request = SlotRequest { config, event_ids: ids, requested: Some(at), confirm_s: None };
        assign(&self.store, request).await
    }

    pub(super) async fn slot(&self, config: &str, id: &str, at: Timestamp) -> Slot {
        self.slots(config, &[id.to_owned()], at).await.unwrap().slots.remove(0)
    }

    /// Windows and how many are planned into each.
    pub(super) async fn counters(&self, config: &str) -> Vec<(Timestamp, i32)> {
        let sql =
            "SELECT window_start, slot_count FROM rate_limit_window_counter WHERE config_name = $1 AND slot_count > 0
                   ORDER BY window_start";
        self.sql.query(sql, &[&config]).await.unwrap().iter().map(|row| (row.get(0), row.get(1))).collect()
    }

    /// Everything about the active configurations' plans that does not fit together.
    pub(super) async fn is_consistent(&self, max: i32) {
        let found = self.sql.query(INCONSISTENT, &[&max]).await.unwrap();
        let found: Vec<String> = found.iter().map(|row| row.get(0)).collect();
        assert!(found.is_empty(), "{found:#?}");
    }
}

const INCONSISTENT: &str = "
WITH a AS (SELECT *, window_size_secs * interval '1 second' AS size FROM rate_limit_config WHERE is_active),
     c AS (SELECT c.*, a.size, a.max_per_window, rate_micros(c.window_start) / (a.window_size_secs * 1000000::bigint) AS n
           FROM rate_limit_window_counter c JOIN a USING (config_name, grid)),
     r AS (SELECT r.* FROM rate_limit_run r JOIN a USING (config_name, grid))
SELECT format('%s counts %s, has %s', window_start, slot_count, has) FROM (
  SELECT c.*, (SELECT count(*) FROM rate_limit_event_slot s WHERE s.config_name = c.config_name
               AND s.scheduled_time >= c.window_start AND s.scheduled_time < c.window_start + c.size) AS has FROM c) x
WHERE slot_count <> has
UNION ALL SELECT format('%s has %s of %s', window_start, slot_count, $1::integer) FROM c WHERE slot_count > $1
UNION ALL SELECT format('%s says full: %s', window_start, is_full) FROM c WHERE is_full <> (slot_count >= max_per_window)
UNION ALL SELECT format('%s has no counter', s.event_id) FROM rate_limit_event_slot s
  WHERE NOT EXISTS (SELECT 1 FROM c WHERE c.config_name = s.config_name AND s.scheduled_time >= c.window_start
                    AND s.scheduled_time < c.window_start + c.size)
UNION ALL SELECT format('%s is in no run', c.window_start) FROM c
  WHERE NOT EXISTS (SELECT 1 FROM r WHERE r.config_name = c.config_name AND c.n >= r.first_window AND c.n < r.next_window)
UNION ALL SELECT format('runs %s and %s overlap', r.first_window, o.first_window) FROM r
  JOIN r o ON o.config_name = r.config_name AND o.first_window > r.first_window AND o.first_window < r.next_window";

#[tokio::test]
async fn s1_02_a_free_window_takes_the_event_and_says_how_long_to_wait() {
    let t = TestStore::new().await;
    t.rate("default", 100, 4).await;
    let made = t.slot("default", "a", later()).await;
    assert!(made.created && made.window_start == later());
    assert!(made.scheduled >= later() && made.scheduled < plus(later(), 4000));
    let now: Timestamp = t.one("SELECT clock_timestamp()").await;
    let wait = Duration::try_from(made.scheduled.duration_since(now)).unwrap();
    assert!(made.delay >= wait && made.delay < wait + Duration::from_secs(5), "{:?} {wait:?}", made.delay);
    assert_eq!(t.counters("default").await, [(later(), 1)]);
    t.is_consistent(100).await;
}

#[tokio::test]
async fn s1_03_events_fill_consecutive_windows_exactly() {
    let t = TestStore::new().await;
    t.rate("default", 5, 4).await;
    for id in ids("e", 20) {
        t.slot("default", &id, later()).await;
    }
    let expected: Vec<_> = (0..4).map(|n| (plus(later(), n * 4000), 5)).collect();
    assert_eq!(t.counters("default").await, expected);
    t.is_consistent(5).await;
}

#[tokio::test]
async fn s1_05_the_same_event_has_the_same_slot() {
    let t = TestStore::new().await;
    t.rate("default", 100, 4).await;
    t.rate("other", 100, 4).await;
    let first = t.slot("default", "a", later()).await;
    let again = t.slot("other", "a", plus(later(), 60_000)).await;
    assert_eq!((again.scheduled, again.config_name.as_str()), (first.scheduled, "default"));
    assert!(first.created && !again.created);
    let both = t.slots("default", &["a".to_owned(), "b".to_owned(), "a".to_owned()], later()).await.unwrap();
    let created: Vec<bool> = both.slots.iter().map(|slot| slot.created).collect();
    assert_eq!(created, [false, true, false]);
    let twice = t.slots("default", &["c".to_owned(), "c".to_owned()], later()).await.unwrap();
    assert_eq!(twice.slots[0].scheduled, twice.slots[1].scheduled);
    assert_eq!(t.counters("default").await, [(later(), 3)]);
    t.is_consistent(100).await;
}

#[tokio::test]
async fn s1_07_event_ids_are_unique_and_times_are_not() {
    let t = TestStore::new().await;
    let unique = "SELECT array_agg(pg_get_indexdef(indexrelid)) FROM pg_index
                  WHERE indrelid = 'rate_limit_event_slot'::regclass AND indisunique";
    let unique: Vec<String> = t.one(unique).await;
    assert_eq!(unique.len(), 1);
    assert!(unique[0].ends_with("(event_id)"), "{unique:?}");
}

#[tokio::test]
async fn s1_08_more_capacity_fills_what_is_there_and_moves_nothing() {
    let t = TestStore::new().await;
    t.rate("default", 100, 4).await;
    t.slots("default", &ids("a", 80), later()).await.unwrap();
    let before: Vec<Timestamp> =
        t.one("SELECT array_agg(scheduled_time ORDER BY event_id) FROM rate_limit_event_slot").await;
    t.rate("default", 200, 4).await;
    t.slots("default", &ids("b", 121), later()).await.unwrap();
    assert_eq!(t.counters("default").await, [(later(), 200), (plus(later(), 4000), 1)]);
    let after =
        "SELECT array_agg(scheduled_time ORDER BY event_id) FROM rate_limit_event_slot WHERE event_id LIKE 'a%'";
    assert_eq!(t.one::<Vec<Timestamp>>(after).await, before);
    t.is_consistent(200).await;
}

#[tokio::test]
async fn s1_09_less_capacity_makes_windows_full_and_cancels_nothing() {
    let t = TestStore::new().await;
    t.rate("default", 100, 4).await;
    t.slots("default", &ids("a", 80), later()).await.unwrap();
    t.rate("default", 50, 4).await;
    assert_eq!(t.slot("default", "b", later()).await.window_start, plus(later(), 4000));
    assert_eq!(t.counters("default").await, [(later(), 80), (plus(later(), 4000), 1)]);
    t.is_consistent(80).await;
}

#[tokio::test]
async fn s1_10_a_change_adds_a_row_and_deactivates_the_one_before() {
    let t = TestStore::new().await;
    t.rate("default", 100, 4).await;
    t.rate("default", 200, 4).await;
    let rows = history(&t.store, "default").await.unwrap();
    let seen: Vec<_> = rows.iter().map(|row| (row.spec.max_per_window, row.active)).collect();
    assert_eq!(seen, [(200, true), (100, false)]);
    assert!(rows[1].deactivated_at.is_some() && rows[1].created_by == "test");
    let refused = t.sql.batch_execute("SET ROLE railyard_runtime; DELETE FROM rate_limit_config").await;
    assert!(refused.is_err(), "history is not deleted");
}

/// Another store is another process: what it remembers is refused by the database and read anew.
#[tokio::test]
async fn s1_10_old_capacity_is_never_planned_with() {
    let t = TestStore::new().await;
    t.rate("default", 100, 4).await;
    let other = crate::Store::new(crate::StoreConfig::at(t.db.url())).unwrap();
    let (a, b) = (ids("a", 1), ids("b", 1));
    let request = |event_ids| SlotRequest { config: "default", event_ids, requested: Some(later()), confirm_s: None };
    assign(&other, request(&a)).await.unwrap();
    t.rate("default", 1, 4).await;
    assign(&other, request(&b)).await.unwrap();
    assert_eq!(t.counters("default").await, [(later(), 1), (plus(later(), 4000), 1)]);
    let counts = other.rates().counts();
    assert_eq!((counts.misses, counts.hits), (2, 1));
}

#[tokio::test]
async fn s1_12_an_unknown_name_is_named() {
    let t = TestStore::new().await;
    let refused = t.slots("nothing", &ids("a", 1), later()).await.unwrap_err();
    assert_eq!(refused.to_string(), "no rate configuration is called nothing");
    assert!(active(&t.store, "nothing").await.unwrap().is_none());
    assert!(forecast(&t.store, "nothing", 1, None).await.is_err());
}

#[tokio::test]
async fn s1_13_s1_14_without_a_frontier_200_windows_are_searched() {
    let t = TestStore::new().await;
    let spec = RateConfig { frontier: false, ..RateConfig::new("default", 100, 4) };
    set(&t.store, &spec, "test").await.unwrap();
    for part in 0..2 {
        t.slots("default", &ids(&format!("{part}-"), 10_000), later()).await.unwrap();
    }
    let refused = t.slots("default", &ids("one", 1), later()).await.unwrap_err();
    assert!(matches!(refused, RateError::Exhausted { searched: 200 }), "{refused}");
    let refused = t.slots("default", &ids("many", 101), plus(later(), 4000)).await.unwrap_err();
    assert!(matches!(refused, RateError::Exhausted { searched: 200 }), "all or none: {refused}");
    assert_eq!(t.one::<i64>("SELECT count(*) FROM rate_limit_event_slot").await, 20_000);
    assert_eq!(t.store.rates().counts().failures, 2);
    t.slots("default", &ids("many", 100), plus(later(), 4000)).await.unwrap();
    t.is_consistent(100).await;
}

#[tokio::test]
async fn s1_15_in_the_middle_of_a_window_half_of_it_is_left() {
    let t = TestStore::new().await;
    t.rate("default", 100, 4).await;
    let asked = plus(later(), 2000);
    let made = t.slots("default", &ids("a", 60), asked).await.unwrap();
    assert!(made.slots.iter().all(|slot| slot.scheduled >= asked));
    assert_eq!(t.counters("default").await, [(later(), 50), (plus(later(), 4000), 10)]);
    assert_eq!(t.slot("default", "b", plus(later(), 3000)).await.window_start, plus(later(), 4000), "a quarter is 25");
    assert_eq!(t.slot("default", "c", later()).await.window_start, later(), "at the boundary there is room");
    t.is_consistent(100).await;
}

#[tokio::test]
async fn s1_16_a_far_event_disturbs_no_near_one() {
    let t = TestStore::new().await;
    t.rate("default", 2, 4).await;
    let far = plus(later(), 365 * 86_400_000);
    assert_eq!(t.slot("default", "far", far).await.window_start, far);
    assert_eq!(t.slot("default", "near", later()).await.window_start, later());
    t.slots("default", &ids("many", 9), later()).await.unwrap();
    assert_eq!(t.counters("default").await.len(), 6);
    t.is_consistent(2).await;
}

/// A burst in front of what is planned already goes around it.
#[tokio::test]
async fn s1_26_many_at_once_fill_gaps_and_go_on_behind_what_is_there() {
    let t = TestStore::new().await;
    t.rate("default", 10, 4).await;
    for (n, window) in [(1, 3), (2, 5), (10, 6)] {
        t.slots("default", &ids(&format!("w{window}-"), n), plus(later(), window * 4000)).await.unwrap();
    }
    let made = t.slots("default", &ids("many", 77), later()).await.unwrap();
    assert_eq!(made.depth, 8);
    let counts: Vec<i32> = t.counters("default").await.into_iter().map(|(_, count)| count).collect();
    assert_eq!(counts, [10, 10, 10, 10, 10, 10, 10, 10, 10]);
    assert_eq!(t.one::<i64>("SELECT count(*) FROM rate_limit_run").await, 1, "they have become one");
    t.is_consistent(10).await;
}

#[tokio::test]
async fn s1_22_what_is_asked_for_in_the_past_is_asked_for_now() {
    let t = TestStore::new().await;
    t.rate("default", 3, 4).await;
    let past = "2020-01-01T00:00:00Z".parse().unwrap();
    let before: Timestamp = t.one("SELECT clock_timestamp()").await;
    let made = t.slots("default", &ids("a", 30), past).await.unwrap();
    assert!(made.slots.iter().all(|slot| slot.scheduled >= before));
    t.is_consistent(3).await;
}

#[tokio::test]
async fn s1_23_two_names_share_no_counter() {
    let t = TestStore::new().await;
    t.rate("one", 1, 4).await;
    t.rate("two", 1, 4).await;
    assert_eq!(t.slot("one", "a", later()).await.window_start, later());
    assert_eq!(t.slot("two", "b", later()).await.window_start, later());
    assert_eq!(t.slot("one", "c", later()).await.window_start, plus(later(), 4000));
}

/// Of another size the windows count what starts in them, whatever it was planned by.
#[tokio::test]
async fn s1_24_another_window_size_mixes_no_boundaries() {
    let t = TestStore::new().await;
    t.rate("default", 10, 4).await;
    t.slots("default", &ids("a", 100), later()).await.unwrap();
    t.rate("default", 25, 10).await;
    t.is_consistent(i32::MAX).await;
    let counted: i32 = t.counters("default").await.iter().map(|(_, count)| count).sum();
    assert_eq!(counted, 100);
    t.slots("default", &ids("b", 150), later()).await.unwrap();
    t.is_consistent(i32::MAX).await;
    let over = "SELECT count(*) FROM rate_limit_window_counter c WHERE slot_count > 25 AND EXISTS (
                  SELECT 1 FROM rate_limit_event_slot s WHERE s.event_id LIKE 'b%' AND s.window_start = c.window_start)";
    assert_eq!(t.one::<i64>(over).await, 0, "nothing was added to what is full");
    t.rate("default", 10, 4).await;
    t.is_consistent(i32::MAX).await;
    release(&t.store, &ids("b", 150)).await.unwrap();
    t.is_consistent(i32::MAX).await;
}

fn mornings() -> Calendar {
    Calendar::read(&json!({
        "timeZone": "UTC", "hours": [{ "from": "08:00", "until": "08:01" }], "holidays": ["2031-01-02"],
    }))
    .unwrap()
}

#[tokio::test]
async fn calendars_close_windows() {
    let t = TestStore::new().await;
    let spec = RateConfig { calendar: Some(mornings()), ..RateConfig::new("default", 10, 4) };
    set(&t.store, &spec, "test").await.unwrap();
    // Fifteen windows a morning.
    t.slots("default", &ids("a", 160), later()).await.unwrap();
    let counters = t.counters("default").await;
    let opening: Timestamp = "2031-01-01T08:00:00Z".parse().unwrap();
    assert_eq!((counters[0], counters[14]), ((opening, 10), (plus(opening, 56_000), 10)));
    assert_eq!(counters[15], (plus(opening, 2 * 86_400_000), 10), "the second is a holiday");
    assert_eq!(t.slot("default", "b", later()).await.window_start, plus(opening, 2 * 86_400_000 + 4000));
    t.is_consistent(10).await;
    let seen = forecast(&t.store, "default", 1000, Some(later())).await.unwrap().1;
    assert_eq!(seen.first_start, plus(opening, 2 * 86_400_000 + 4000));
    // A day later the holiday is gone: the plan is counted anew and has room there.
    set(&t.store, &RateConfig::new("default", 10, 4), "test").await.unwrap();
    assert_eq!(t.slot("default", "c", later()).await.window_start, later());
    t.is_consistent(10).await;
}

#[tokio::test]
async fn calendars_end_a_search_that_would_find_nothing() {
    let t = TestStore::new().await;
    let far = json!({ "timeZone": "UTC", "blackouts": [{ "from": "2031-01-01T00:00:00Z", "until": "2040-01-01T00:00:00Z" }] });
    let calendar = Some(Calendar::read(&far).unwrap());
    set(&t.store, &RateConfig { calendar, ..RateConfig::new("default", 10, 4) }, "test").await.unwrap();
    let refused = t.slots("default", &ids("a", 1), later()).await.unwrap_err();
    assert!(matches!(refused, RateError::Exhausted { .. }), "{refused}");
    let closed = json!({ "timeZone": "UTC", "blackouts": [{ "from": "2001-01-01T00:00:00Z", "until": "2060-01-01T00:00:00Z" }] });
    let calendar = Some(Calendar::read(&closed).unwrap());
    let refused =
        set(&t.store, &RateConfig { calendar, ..RateConfig::new("default", 10, 4) }, "test").await.unwrap_err();
    assert!(refused.to_string().starts_with("calendar: leaves no window open"), "{refused}");
}

/// Without a frontier it is open windows that are counted.
#[tokio::test]
async fn calendars_do_not_shorten_the_look_ahead() {
    let t = TestStore::new().await;
    let spec = RateConfig {
        calendar: Some(mornings()),
        frontier: false,
        max_lookahead: 20,
        ..RateConfig::new("default", 10, 4)
    };
    set(&t.store, &spec, "test").await.unwrap();
    t.slots("default", &ids("a", 200), later()).await.unwrap();
    let refused = t.slots("default", &ids("b", 1), later()).await.unwrap_err();
    assert!(matches!(refused, RateError::Exhausted { searched: 20 }), "{refused}");
    assert_eq!(t.counters("default").await.len(), 20);
}

#[tokio::test]
async fn released_slots_are_free_again() {
    let t = TestStore::new().await;
    t.rate("default", 10, 4).await;
    let made = t.slots("default", &ids("a", 40), later()).await.unwrap();
    assert_eq!(release(&t.store, &[made.slots[12].event_id.clone(), "unknown".to_owned()]).await.unwrap(), 1);
    t.is_consistent(10).await;
    assert_eq!(t.slot("default", "b", later()).await.window_start, plus(later(), 4000));
    assert_eq!(release(&t.store, &ids("a", 40)).await.unwrap(), 39);
    assert_eq!(t.counters("default").await, [(plus(later(), 4000), 1)]);
    t.is_consistent(10).await;
}

#[tokio::test]
async fn s1_21_what_nobody_confirms_is_given_back() {
    let t = TestStore::new().await;
    t.rate("default", 10, 4).await;
    for id in ["kept", "leaked"] {
        let event_ids = [id.to_owned()];
        let request =
            SlotRequest { config: "default", event_ids: &event_ids, requested: Some(later()), confirm_s: Some(60) };
        assign(&t.store, request).await.unwrap();
    }
    t.slot("default", "unconditional", later()).await;
    assert!(confirm(&t.store, "kept").await.unwrap());
    assert!(!confirm(&t.store, "unknown").await.unwrap());
    assert_eq!(give_back(&t.store).await.unwrap(), 0, "its time has not come");
    t.sql
        .execute("UPDATE rate_limit_event_slot SET confirm_by = confirm_by - interval '61 seconds'", &[])
        .await
        .unwrap();
    assert_eq!(give_back(&t.store).await.unwrap(), 1);
    assert!(!confirm(&t.store, "leaked").await.unwrap());
    assert_eq!(t.counters("default").await, [(later(), 2)]);
    t.is_consistent(10).await;
}

#[tokio::test]
async fn replanning_moves_what_lies_ahead_and_previews_it() {
    let t = TestStore::new().await;
    t.rate("default", 10, 4).await;
    t.slots("default", &ids("a", 100), later()).await.unwrap();
    t.rate("default", 50, 4).await;
    let before: Vec<Timestamp> =
        t.one("SELECT array_agg(scheduled_time ORDER BY event_id) FROM rate_limit_event_slot").await;
    let preview = replan(&t.store, "default", None, "test").await.unwrap();
    assert_eq!((preview.slots, preview.moved), (100, 90));
    let unmoved: Vec<Timestamp> =
        t.one("SELECT array_agg(scheduled_time ORDER BY event_id) FROM rate_limit_event_slot").await;
    assert_eq!(unmoved, before, "a preview moves nothing");
    let done = replan(&t.store, "default", Some("twice the capacity"), "test").await.unwrap();
    assert_eq!((done.slots, done.moved), (100, 90));
    assert!(done.last_after.unwrap() < plus(later(), 8000) && done.last_before.unwrap() > plus(later(), 36_000));
    assert_eq!(t.counters("default").await, [(later(), 50), (plus(later(), 4000), 50)]);
    t.is_consistent(50).await;
    let again = replan(&t.store, "default", Some("once more"), "test").await.unwrap();
    assert_eq!(again.moved, 0);
    let audited: i64 = t.one("SELECT count(*) FROM admin_audit WHERE action = 'rate.replan'").await;
    assert_eq!(audited, 1);
}

/// Old rows go, and the plan goes on.
#[tokio::test]
async fn old_counters_and_slots_are_tidied_away() {
    let t = TestStore::new().await;
    t.rate("default", 10, 4).await;
    t.slots("default", &ids("a", 25), later()).await.unwrap();
    t.sql
        .batch_execute(
            "UPDATE rate_limit_event_slot SET scheduled_time = scheduled_time - interval '10 years' WHERE event_id LIKE 'a1%';
             INSERT INTO rate_limit_window_counter SELECT config_name, grid, window_start - interval '10 years', 10, true
               FROM rate_limit_window_counter;
             INSERT INTO rate_limit_run SELECT config_name, grid, 7, 9 FROM rate_limit_run",
        )
        .await
        .unwrap();
    tidy(&t.store).await.unwrap();
    assert_eq!(t.one::<i64>("SELECT count(*) FROM rate_limit_event_slot").await, 14);
    assert_eq!(t.one::<i64>("SELECT count(*) FROM rate_limit_window_counter").await, 3);
    assert_eq!(t.one::<i64>("SELECT count(*) FROM rate_limit_run").await, 1);
}

/// Their times are copies: slots alone would move, and items would start when others have the room.
#[tokio::test]
async fn what_items_are_planned_by_is_not_planned_anew() {
    let t = TestStore::new().await;
    for reason in [None, Some("more capacity")] {
        let refused = replan(&t.store, "payments", reason, "test").await.unwrap_err().to_string();
        assert!(refused.contains("PAYMENT"), "{refused}");
    }
}
