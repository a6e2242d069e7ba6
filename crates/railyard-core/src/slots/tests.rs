use jiff::Timestamp;
use jiff::civil::{date, time};
use proptest::prelude::*;
use serde_json::json;

use super::*;

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn all_open() -> Openings {
    Openings::new(None)
}

#[test]
fn s1_01_windows_are_aligned_to_the_epoch() {
    let grid = Grid::of_seconds(4);
    let window = grid.window_of(at("2026-11-28T12:00:05.999Z"));
    assert_eq!(grid.start(window), at("2026-11-28T12:00:04Z"));
    assert_eq!(grid.end(window), at("2026-11-28T12:00:08Z"));
    assert_eq!(grid.window_of(at("2026-11-28T12:00:08Z")), window.next(), "a boundary belongs to what begins there");
    assert_eq!(grid.window_of(at("1969-12-31T23:59:59Z")), Window(-1));
}

#[test]
fn s1_15_a_window_that_has_begun_takes_its_share() {
    let grid = Grid::of_seconds(4);
    let share = |asked: &str| grid.capacity(100, grid.window_of(at(asked)), at(asked));
    for (asked, expected) in [
        ("2026-11-28T12:00:00Z", 100),
        ("2026-11-28T12:00:02Z", 50),
        ("2026-11-28T12:00:03Z", 25),
        ("2026-11-28T12:00:03.96Z", 1),
        ("2026-11-28T12:00:03.961Z", 0),
    ] {
        assert_eq!(share(asked), expected, "{asked}");
    }
    let asked = at("2026-11-28T12:00:03Z");
    assert_eq!(grid.capacity(100, grid.window_of(asked).next(), asked), 100, "the next one is whole");
}

proptest! {
    #[test]
    fn s1_15_nothing_starts_before_it_was_asked_for_or_outside_its_window(
        micros in 0_i64..4_000_000_000_000_000, size in 1_u32..=WINDOW_S_MAX, random in any::<u32>(), later in 0_i64..3,
    ) {
        let grid = Grid::of_seconds(size);
        let asked = Timestamp::from_microsecond(micros).unwrap();
        let requested = grid.window_of(asked);
        prop_assert_eq!(grid.start(requested).as_second() % i64::from(size), 0);
        prop_assert!(grid.start(requested) <= asked && asked < grid.end(requested));
        let window = Window(requested.0 + later);
        let starts = grid.scheduled(window, asked, Dice::of(random));
        prop_assert!(starts >= asked && starts >= grid.start(window) && starts < grid.end(window));
        prop_assert!(grid.capacity(100, window, asked) <= 100);
    }
}

/// Chi-square over 20 equal parts with 10,000 slots: 19 degrees of freedom, 43.8 is passed once in a thousand.
#[test]
fn s1_28_starts_are_spread_evenly() {
    use proptest::test_runner::{RngAlgorithm, TestRng};
    let mut random = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let grid = Grid::of_seconds(4);
    for asked in ["2026-11-28T12:00:00Z", "2026-11-28T12:00:01.5Z"] {
        let asked = at(asked);
        let window = grid.window_of(asked);
        let span = grid.end(window).as_microsecond() - asked.as_microsecond();
        let mut parts = [0_u32; 20];
        for _ in 0..10_000 {
            let starts = grid.scheduled(window, asked, Dice::of(random.next_u32()));
            let part = (starts.as_microsecond() - asked.as_microsecond()) * 20 / span;
            parts[usize::try_from(part).unwrap()] += 1;
        }
        let chi_square: f64 = parts.iter().map(|count| (f64::from(*count) - 500.0).powi(2) / 500.0).sum();
        assert!(chi_square < 43.8, "{chi_square}: {parts:?}");
    }
}

fn office(zone: &str) -> Calendar {
    let days = DAYS[..5].iter().map(|(_, day)| *day).collect();
    let mut calendar = Calendar::in_zone(zone).unwrap();
    calendar.hours = vec![Hours { days, from: time(9, 0, 0, 0), until: Some(time(17, 0, 0, 0)) }];
    calendar
}

fn texts(calendar: &Calendar, from: &str, count: usize) -> Vec<(String, String)> {
    let spans = calendar.open_from(at(from)).take(count);
    spans.map(|(from, until)| (from.to_string(), until.to_string())).collect()
}

fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    expected.iter().map(|(from, until)| ((*from).to_owned(), (*until).to_owned())).collect()
}

#[test]
fn calendars_follow_their_time_zone() {
    // Friday; summer time has ended on Sunday.
    let open = texts(&office("Europe/Berlin"), "2026-10-23T10:00:00Z", 3);
    let expected = [
        ("2026-10-23T10:00:00Z", "2026-10-23T15:00:00Z"),
        ("2026-10-26T08:00:00Z", "2026-10-26T16:00:00Z"),
        ("2026-10-27T08:00:00Z", "2026-10-27T16:00:00Z"),
    ];
    assert_eq!(open, pairs(&expected));
}

#[test]
fn holidays_and_blackouts_close_and_nights_do_not_cut() {
    let mut calendar = Calendar::in_zone("Europe/Berlin").unwrap();
    calendar.holidays = vec![date(2026, 12, 25)];
    calendar.blackouts = vec![Closing { from: at("2026-12-24T11:00:00Z"), until: at("2026-12-24T12:00:00Z") }];
    let open = texts(&calendar, "2026-12-23T00:00:00Z", 3);
    assert_eq!(
        open[..2],
        pairs(&[("2026-12-23T00:00:00Z", "2026-12-24T11:00:00Z"), ("2026-12-24T12:00:00Z", "2026-12-24T23:00:00Z"),])
    );
    assert_eq!(open[2].0, "2026-12-25T23:00:00Z", "the 25th is closed from local midnight to local midnight");
    let whole = Calendar::in_zone("UTC").unwrap();
    assert_eq!(whole.open_from(at("2026-01-01T00:00:00Z")).count(), 1, "days that touch are one stretch");
}

/// Half past two is there twice on the day that summer time ends, and not at all when it begins.
#[test]
fn hours_where_clocks_are_set() {
    let mut calendar = Calendar::in_zone("Europe/Berlin").unwrap();
    let days = DAYS.iter().map(|(_, day)| *day).collect();
    calendar.hours = vec![Hours { days, from: time(2, 30, 0, 0), until: Some(time(4, 0, 0, 0)) }];
    assert_eq!(texts(&calendar, "2026-10-25T00:00:00Z", 1), pairs(&[("2026-10-25T00:30:00Z", "2026-10-25T03:00:00Z")]));
    assert_eq!(texts(&calendar, "2026-03-29T00:00:00Z", 1), pairs(&[("2026-03-29T01:30:00Z", "2026-03-29T02:00:00Z")]));
}

#[test]
fn a_window_is_open_if_all_of_it_is() {
    let mut config = RateConfig::new("rail", 10, 3600);
    let mut calendar = office("UTC");
    calendar.hours[0].from = time(9, 30, 0, 0);
    config.calendar = Some(calendar);
    let monday = at("2026-11-30T00:00:00Z");
    let openings = config.openings(monday, 3);
    let first = openings.at_or_after(config.grid().window_of(monday)).unwrap();
    assert_eq!(config.grid().start(first), at("2026-11-30T10:00:00Z"));
    let evening = config.grid().window_of(at("2026-11-30T17:00:00Z"));
    assert_eq!(config.grid().start(openings.at_or_after(evening).unwrap()), at("2026-12-01T10:00:00Z"));
    config.window_size_s = WINDOW_S_MAX;
    assert!(!config.opens(monday), "no day is open from end to end");
}

#[test]
fn s1_29_bounds_are_named_by_their_fields() {
    let mut config = RateConfig::new("no spaces", 0, 0);
    config.max_lookahead = 0;
    let wrong = config.validate().unwrap_err();
    let fields: Vec<&str> = wrong.iter().map(|error| error.field.as_str()).collect();
    assert_eq!(fields, ["configName", "maxPerWindow", "windowSizeSecs", "maxLookahead"]);
    assert_eq!(RateConfig::new("default", 100, 4).validate(), Ok(()));
}

#[test]
fn a_calendar_comes_back_from_its_json() {
    let mut calendar = office("America/New_York");
    calendar.hours.push(Hours { days: vec![DAYS[5].1], from: time(22, 0, 0, 0), until: None });
    calendar.holidays = vec![date(2026, 12, 25)];
    calendar.blackouts = vec![Closing { from: at("2026-12-24T11:00:00Z"), until: at("2026-12-24T12:00:00Z") }];
    assert_eq!(Calendar::read(&calendar.to_json()).unwrap(), calendar);
    let wrong = json!({
        "timeZone": "Europe/Atlantis", "holidays": ["soon"], "open": 1,
        "hours": [{ "days": ["MO"], "from": "9:00" }, { "from": "17:00", "until": "09:00" }],
        "blackouts": [{ "from": "2026-12-24T11:00:00Z", "until": "2026-12-24T11:00:00Z" }],
    });
    let fields: Vec<String> = Calendar::read(&wrong).unwrap_err().into_iter().map(|error| error.field).collect();
    let expected =
        ["open", "timeZone", "hours[0].days", "hours[0].from", "hours[1].until", "holidays[0]", "blackouts[0]"];
    assert_eq!(fields, expected);
}

#[test]
fn forecast_fills_what_is_left_of_each_window() {
    let config = RateConfig::new("rail", 100, 4);
    let asked = at("2026-11-28T12:00:02Z");
    let first = config.grid().window_of(asked);
    // Of the first one half is left, of which 20 are taken; the second is full.
    let counts = [(first, 20), (first.next(), 100), (Window(first.0 + 5), 99)];
    let seen = forecast(&config, &all_open(), &counts, asked, 30, 60);
    assert_eq!((seen.first_start, seen.last_start), (asked, at("2026-11-28T12:00:04Z")));
    assert_eq!((seen.windows_used, seen.events), (1, 30));
    let more = forecast(&config, &all_open(), &counts, asked, 331, 60);
    assert_eq!((more.windows_used, more.events), (5, 331), "30, none, 100, 100, 100 and 1");
    assert_eq!(more.last_start, at("2026-11-28T12:00:24Z"));
    assert_eq!(more.curve.last(), Some(&CurvePoint { at: more.last_start, events: 331 }));
}

#[test]
fn s1_31_half_a_million_for_one_instant_take_five_and_a_half_hours() {
    let config = RateConfig::new("rail", 100, 4);
    let asked = at("2026-11-28T12:00:00Z");
    let seen = forecast(&config, &all_open(), &[], asked, 500_000, 60);
    assert_eq!((seen.windows_used, seen.events), (5000, 500_000));
    assert_eq!(seen.last_start, at("2026-11-28T17:33:20Z"));
    assert!((30..=61).contains(&seen.curve.len()), "{}", seen.curve.len());
    assert!(seen.curve.is_sorted_by(|a, b| a.at < b.at && a.events < b.events));
}

/// However many, it is quickly done: behind what is counted nothing is walked.
#[test]
fn forecast_of_ten_million_is_no_walk() {
    let config = RateConfig::new("rail", 1, WINDOW_S_MAX);
    let asked = at("2026-11-28T00:00:00Z");
    let counts = [(config.grid().window_of(asked), 1)];
    let seen = forecast(&config, &all_open(), &counts, asked, 10_000_000, 100);
    assert_eq!((seen.windows_used, seen.events), (10_000_000, 10_000_000));
    assert!((50..=201).contains(&seen.curve.len()), "{}", seen.curve.len());
    assert_eq!(seen.first_start, at("2026-11-29T00:00:00Z"));
    assert!(seen.curve.is_sorted_by(|a, b| a.events < b.events));
}

#[test]
fn s1_14_without_a_frontier_the_search_ends() {
    let config = RateConfig { frontier: false, ..RateConfig::new("rail", 100, 4) };
    let seen = forecast(&config, &all_open(), &[], at("2026-11-28T12:00:00Z"), 20_001, 60);
    assert_eq!((seen.windows_used, seen.events), (200, 20_000));
}

proptest! {
    /// Replanned, events keep their order, start no earlier than they asked for, and no window has more than it may.
    #[test]
    fn replanning_keeps_order_and_limits(
        mut seconds in proptest::collection::vec(0_i64..60, 1..200), taken in 0_u32..8, random in any::<u64>(),
    ) {
        seconds.sort_unstable();
        let config = RateConfig::new("rail", 5, 4);
        let grid = config.grid();
        let begin = at("2026-11-28T12:00:01Z");
        let after = |seconds: i64| begin.checked_add(jiff::Span::new().seconds(seconds)).unwrap();
        let requested: Vec<_> = seconds.into_iter().map(after).collect();
        let fixed = [(grid.window_of(begin), taken), (Window(grid.window_of(begin).0 + 3), taken)];
        let dice: Vec<_> = (0..requested.len() as u64)
            .map(|n| Dice::of(u32::try_from(random.wrapping_mul(2 * n + 1) >> 32).unwrap())).collect();
        let places = replan(&config, &all_open(), &fixed, begin, &requested, &dice);
        let places: Vec<_> = places.into_iter().map(Option::unwrap).collect();
        prop_assert!(places.is_sorted_by_key(|(_, at)| *at));
        let mut counts: std::collections::BTreeMap<Window, u32> = fixed.into_iter().collect();
        for ((window, starts), asked) in places.iter().zip(&requested) {
            prop_assert!(starts >= asked && grid.window_of(*starts) == *window);
            let count = counts.entry(*window).or_default();
            *count += 1;
            prop_assert!(*count <= 5);
        }
    }
}
