//! With work waiting and nothing going wrong, a limit lets through what it says, however few and far between: at least
//! nine tenths, also if many slots are granted to lanes that have nothing to begin.

use std::time::Duration;

use super::super::Limit;
use super::simulation::{Hole, Simulation};

/// What was used of what the limit allows, from the first start on.
fn share(limit: Limit, windows: u32, unused_one_of: usize, hole: Hole) -> f64 {
    let span = limit.window * windows;
    let run = Simulation::calm(1, hole, limit, span, unused_one_of);
    let first = run.starts[0].iter().min().copied().unwrap();
    let waited = span.as_secs_f64() - Duration::from_micros(u64::try_from(first).unwrap()).as_secs_f64();
    let allowed = f64::from(limit.starts) * waited / limit.window.as_secs_f64();
    f64::from(u32::try_from(run.starts[0].len()).unwrap()) / allowed
}

fn limit(starts: u32, window_s: u64) -> Limit {
    Limit { starts, window: Duration::from_secs(window_s) }
}

#[test]
fn nine_tenths_of_a_limit_are_used_while_work_waits() {
    for (limit, windows) in
        [(limit(400, 1), 20), (limit(50, 1), 60), (limit(10, 10), 40), (limit(1, 1), 200), (limit(1, 60), 200)]
    {
        let used = share(limit, windows, usize::MAX, Hole::None);
        assert!((0.9..=1.01).contains(&used), "{limit:?}: {used}");
    }
}

#[test]
fn a_slot_without_work_is_no_slot_lost_where_they_are_far_apart() {
    for (limit, windows) in [(limit(10, 10), 40), (limit(1, 1), 200), (limit(1, 60), 200)] {
        let used = share(limit, windows, 3, Hole::None);
        assert!((0.9..=1.01).contains(&used), "{limit:?}: {used}");
        let lost = share(limit, windows, 3, Hole::NothingBack);
        assert!(lost < 0.75, "{limit:?}: {lost} although a third is lost");
    }
}
