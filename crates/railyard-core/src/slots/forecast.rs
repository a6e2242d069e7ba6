//! What a plan would come to, without planning anything.

use jiff::Timestamp;

use super::config::RateConfig;
use super::grid::{Openings, Window};

/// So many events have been started by then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CurvePoint {
    /// The end of a window.
    pub at: Timestamp,
    /// Events of the windows up to it.
    pub events: u64,
}

/// What would become of some events that are asked for at one time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forecast {
    /// The first may start from then on.
    pub first_start: Timestamp,
    /// The last starts before then.
    pub last_start: Timestamp,
    /// Windows that take at least one of them.
    pub windows_used: u64,
    /// How many have a place; fewer than were asked for if the search ends before (no frontier, or a calendar that is
    /// closed for longer than it is looked at).
    pub events: u64,
    /// At most the points that were asked for and the last one, ascending.
    pub curve: Vec<CurvePoint>,
}

/// Looks where `events` events that are asked for at `at` would go. `counts`: windows that are planned into already, from
/// the one of `at` on, ascending.
#[must_use]
pub fn forecast(
    config: &RateConfig,
    openings: &Openings,
    counts: &[(Window, u32)],
    at: Timestamp,
    events: u64,
    points_max: usize,
) -> Forecast {
    let grid = config.grid();
    let requested = grid.window_of(at);
    let mut next = requested;
    let mut counts = counts.iter().peekable();
    let (mut placed, mut windows_used, mut searched) = (0, 0, 0);
    let (mut first_start, mut last_start) = (at, at);
    let mut curve = Curve { points: Vec::new(), every: 1, skipped: 0, points_max: points_max.max(2) };
    while placed < events {
        let Some(window) = openings.at_or_after(next) else { break };
        if !config.frontier && searched >= config.max_lookahead {
            break;
        }
        while counts.next_if(|(counted, _)| *counted < window).is_some() {}
        let taken = counts.next_if(|(counted, _)| *counted == window).map_or(0, |(_, count)| *count);
        let room = grid.capacity(config.max_per_window, window, at).saturating_sub(taken);
        // Behind everything that is counted windows are alike: as many at once as a point of the curve may stand for.
        let alike = match counts.peek() {
            None if taken == 0 && window != requested && room > 0 => {
                let step = events.div_ceil(u64::from(room)) / curve.points_max as u64;
                let left = (events - placed).div_ceil(u64::from(room));
                let allowed = if config.frontier { u64::MAX } else { u64::from(config.max_lookahead - searched) };
                step.min(left).min(openings.open_from(window)).min(allowed).clamp(1, u64::from(u32::MAX))
            }
            None | Some(_) => 1,
        };
        searched = searched.saturating_add(u32::try_from(alike).unwrap_or(u32::MAX));
        next = Window(window.0.saturating_add_unsigned(alike));
        if room == 0 {
            continue;
        }
        if placed == 0 {
            first_start = grid.start(window).max(at);
        }
        placed = events.min(placed + u64::from(room) * alike);
        windows_used += alike;
        last_start = grid.start(next);
        curve.add(CurvePoint { at: last_start, events: placed });
    }
    let curve = curve.end(CurvePoint { at: last_start, events: placed });
    Forecast { first_start, last_start, windows_used, events: placed, curve }
}

/// Keeps every nth point, with n such that they stay few.
struct Curve {
    points: Vec<CurvePoint>,
    every: u64,
    skipped: u64,
    points_max: usize,
}

impl Curve {
    fn add(&mut self, point: CurvePoint) {
        self.skipped += 1;
        if self.skipped < self.every {
            return;
        }
        self.skipped = 0;
        self.points.push(point);
        if self.points.len() >= self.points_max {
            let mut odd = false;
            self.points.retain(|_| {
                odd = !odd;
                !odd
            });
            self.every *= 2;
        }
    }

    fn end(mut self, last: CurvePoint) -> Vec<CurvePoint> {
        if last.events > 0 && self.points.last() != Some(&last) {
            self.points.push(last);
        }
        self.points
    }
}
