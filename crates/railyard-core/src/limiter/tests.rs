mod property;
mod rate;
mod simulation;

use std::time::Duration;

use super::{Ask, ClockWatch, DELTA, Denial, Grant, Limit, Permit, Row, Unused, grant, take_back, wait_after_late};

fn limit(starts: u32) -> Limit {
    Limit { starts, window: Duration::from_secs(1) }
}

fn row(next_us: i64) -> Option<Row> {
    Some(Row { next_us, asked_us: 0, paused: false })
}

/// 0.9 of N has to be possible: (W + δ + ε) / N leaves 46.7 of 50.
#[test]
fn slots_are_a_gap_apart_rounded_up() {
    assert_eq!(limit(50).gap_us(), 21_400);
    assert_eq!(limit(7).gap_us(), 152_858);
}

#[test]
fn a_slot_is_used_between_the_answer_and_the_question_plus_delta() {
    let ms = Duration::from_millis;
    let permit = Permit::of(ms(1000), ms(1030), 100_000).unwrap();
    assert_eq!((permit.not_before, permit.not_after), (ms(1130), ms(1150)));
    assert!(Permit::of(ms(1000), ms(1050), 0).is_some());
    assert_eq!(Permit::of(ms(1000), ms(1051), 0), None, "the answer took longer than a slot lasts");
}

#[test]
fn as_many_as_lie_within_the_horizon() {
    let limits = [limit(50)];
    let mut rows = [row(0)];
    let ask = Ask { limits: &limits, want: 100, burn: false };
    let granted = grant(&mut rows, &ask, 1_000_000);
    assert_eq!(
        granted,
        Grant::Slots { now_us: 1_000_000, first_us: 1_025_000, spacing_us: 21_400, count: 11 },
        "25 ms ahead and every 21.4 ms up to 250 ms"
    );
    let Some(Row { next_us, .. }) = rows[0] else { panic!() };
    assert_eq!(next_us, 1_025_000 + 11 * 21_400);
    // A denial says when the next one comes within the horizon.
    let denied = grant(&mut rows, &ask, 1_000_001);
    assert_eq!(denied, Grant::Denied { now_us: 1_000_001, ask_us: next_us - 250_000, why: Denial::Full });
}

#[test]
fn every_row_goes_on_from_the_common_slot() {
    let limits = [limit(50), limit(400)];
    let mut rows = [row(1_200_000), row(1_000_000)];
    let granted = grant(&mut rows, &Ask { limits: &limits, want: 2, burn: false }, 1_000_000);
    assert_eq!(granted, Grant::Slots { now_us: 1_000_000, first_us: 1_200_000, spacing_us: 21_400, count: 2 });
    let last = 1_200_000 + 21_400;
    assert_eq!(rows.map(|row| row.unwrap().next_us), [last + 21_400, last + limit(400).gap_us()]);
}

#[test]
fn what_is_new_or_lies_far_ahead_starts_a_window_after_everything_that_was_granted() {
    let limits = [limit(50)];
    let ask = Ask { limits: &limits, want: 1, burn: false };
    let ahead = 1_000_000 + 1_320_000;
    for (mut rows, ask, why) in [
        ([None], ask, Denial::Made),
        ([row(ahead + 50_001)], ask, Denial::Reset),
        ([Some(Row { next_us: 0, asked_us: 1_050_001, paused: false })], ask, Denial::Reset),
        ([row(0)], Ask { burn: true, ..ask }, Denial::Reset),
    ] {
        let denied = grant(&mut rows, &ask, 1_000_000);
        assert_eq!(denied, Grant::Denied { now_us: 1_000_000, ask_us: ahead - 250_000, why });
        assert_eq!(rows[0].unwrap().next_us, ahead);
    }
}

#[test]
fn a_slot_comes_back_where_nothing_was_granted_behind_it() {
    let limits = [limit(1), limit(50)];
    let slot_us = 1_100_000;
    let unused = Unused { slot_us, granted_us: 1_000_000 };
    let behind = |limit: Limit| Some(Row { next_us: slot_us + limit.gap_us(), asked_us: 1_000_000, paused: false });
    let fresh = [behind(limits[0]), behind(limits[1])];
    for (now_us, expected) in [
        (1_050_000, [slot_us, slot_us]),
        // Over: as far ahead as a slot can lie, but not later than the next one is anyway.
        (1_200_000, [1_450_000, slot_us + limit(50).gap_us()]),
    ] {
        let mut rows = fresh;
        assert!(take_back(&mut rows, &limits, unused, now_us));
        assert_eq!(rows.map(|row| row.unwrap().next_us), expected);
    }
    // Another has been granted behind it, at the same moment or later; or the row is gone, or new.
    let granted_behind = |row: Option<Row>| row.map(|row| Row { next_us: row.next_us + 1, ..row });
    let granted_later = |row: Option<Row>| row.map(|row| Row { asked_us: row.asked_us + 1, ..row });
    for rows in [fresh.map(granted_behind), fresh.map(granted_later), [None, None]] {
        let mut after = rows;
        assert!(!take_back(&mut after, &limits, unused, 1_050_000));
        assert_eq!(after, rows);
    }
}

#[test]
fn the_switch_of_one_row_is_everybodys() {
    let limits = [limit(50), limit(400)];
    let mut rows = [row(0), Some(Row { paused: true, ..row(0).unwrap() })];
    let denied = grant(&mut rows, &Ask { limits: &limits, want: 1, burn: false }, 1_000_000);
    assert!(matches!(denied, Grant::Denied { why: Denial::Paused, .. }), "{denied:?}");
    assert_eq!(rows[0], row(0), "nothing is taken");
}

#[test]
fn a_clock_that_goes_forward_shows_and_one_that_goes_back_is_followed() {
    let ms = Duration::from_millis;
    let mut watch = ClockWatch::default();
    assert_eq!(watch.wait(ms(0), ms(1000)), None);
    assert!(!watch.answered(ms(100), ms(102), 5_000_000));
    assert_eq!(watch.wait(ms(102), ms(1000)), Some(ms(1320)));
    assert_eq!(watch.wait(ms(1500), ms(1000)), Some(Duration::ZERO));
    assert!(!watch.answered(ms(600), ms(640), 5_520_000), "a slow answer is no step");
    assert!(watch.answered(ms(700), ms(702), 5_700_000), "100 ms forward");
    assert!(!watch.answered(ms(800), ms(802), 5_801_000), "the new time is the time now");
    assert!(!watch.answered(ms(900), ms(902), 1_000_000), "back");
    assert!(watch.answered(ms(1000), ms(1002), 5_900_000), "and forward again");
    assert_eq!(watch.steps(), 2);
    assert_eq!(watch.wait(ms(40_000), ms(1000)), None, "nobody looked for half a minute");
}

#[test]
fn one_late_answer_costs_its_own_time_again_and_one_after_the_other_a_second() {
    let ms = Duration::from_millis;
    assert_eq!(Permit::of(ms(0), DELTA + ms(1), 0), None, "that late, nothing can be used");
    assert_eq!(wait_after_late(1, DELTA + ms(1)), DELTA + ms(1));
    assert_eq!(wait_after_late(2, DELTA + ms(1)), ms(1000));
    assert_eq!(wait_after_late(1, ms(5000)), ms(1000), "a process that was stopped goes on soon");
}
