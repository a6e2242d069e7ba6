//! Never N + 1 starts in any sliding W, whatever happens; and with each guard left out, some run shows it.

use super::simulation::{Hole, Simulation};

/// Runs with all guards.
const RUNS: u64 = 400;
/// Runs that a hole may hide in.
const RUNS_TO_SHOW: u64 = 2000;

/// The first N + 1 starts of a row that lie within a window, if there are any.
fn too_many(run: &Simulation) -> Option<String> {
    for (row, limit) in run.limits().into_iter().enumerate() {
        let mut starts = run.starts[row].clone();
        starts.sort_unstable();
        let n = usize::try_from(limit.starts).unwrap();
        let window = i64::try_from(limit.window.as_micros()).unwrap();
        for (first, last) in starts.iter().zip(starts.iter().skip(n)) {
            if last - first < window {
                return Some(format!("{} starts of row {row} within {} µs, the first at {first}", n + 1, last - first));
            }
        }
    }
    None
}

#[test]
fn never_more_than_n_starts_in_any_sliding_window() {
    let mut starts = 0;
    for seed in 0..RUNS {
        let run = Simulation::run(seed, Hole::None);
        assert_eq!(too_many(&run), None, "seed {seed}");
        starts += run.starts[0].len() + run.starts[1].len();
    }
    assert!(starts > 50_000, "only {starts} starts: the runs show nothing");
}

/// Each of the holes that the design names, by itself.
#[test]
fn every_guard_is_needed() {
    for hole in [
        Hole::Midpoint,
        Hole::SlowTrip,
        Hole::LateUse,
        Hole::BareGap,
        Hole::OwnSlot,
        Hole::MissingNow,
        Hole::BackNow,
        Hole::RowKept,
        Hole::ForwardUnseen,
        Hole::StepForgotten,
        Hole::FreshNode,
        Hole::NoHorizon,
        Hole::UsedAndBack,
        Hole::BackBlind,
        Hole::BackEarly,
    ] {
        let shown = (0..RUNS_TO_SHOW).find(|seed| too_many(&Simulation::run(*seed, hole)).is_some());
        assert!(shown.is_some(), "{hole:?} was not noticed in {RUNS_TO_SHOW} runs");
    }
}
