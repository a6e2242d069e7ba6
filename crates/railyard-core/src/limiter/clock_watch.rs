//! Watches the database's clock against the node's own, which never steps.
//!
//! Each answer of the database bounds the difference of the two clocks from both sides: it was read after the question
//! was sent and before the answer came. The smallest upper bound is kept. An answer whose lower bound lies above it shows
//! that the database's clock was set forward. A step smaller than the round trips involved does not show; EPSILON has to
//! carry it.

use std::time::Duration;

use super::{SPENT, us};

/// The database's clock may run faster than the node's by so much, while it is being slewed: a thousandth.
const DRIFT: i64 = 1000;
/// Without an answer for so long, the drift would hide too much: watching begins anew.
const GAP_MAX: Duration = Duration::from_secs(30);
/// A node that has just started watches for a window before it asks; for long windows, for so long.
const WATCH_MAX: Duration = Duration::from_secs(10);

/// One node's view of the database's clock.
#[derive(Clone, Debug, Default)]
pub struct ClockWatch {
    seen: Option<Seen>,
    steps: u64,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    /// Since when it has been watched without a gap, on the node's clock.
    since: Duration,
    /// The last answer, on the node's clock.
    at: Duration,
    /// The most that the database's clock can be ahead of the node's, as of `at`.
    ahead_max_us: i64,
}

impl ClockWatch {
    /// Takes an answer: the node's clock before the question and after the answer, the database's in between. Whether it
    /// shows a step forward since the last one.
    pub fn answered(&mut self, sent: Duration, replied: Duration, now_us: i64) -> bool {
        let (least, most) = (now_us - us(replied), now_us - us(sent));
        let Some(seen) = self.seen.filter(|seen| replied.saturating_sub(seen.at) <= GAP_MAX) else {
            self.seen = Some(Seen { since: replied, at: replied, ahead_max_us: most });
            return false;
        };
        let known = seen.ahead_max_us + us(replied.saturating_sub(seen.at)) / DRIFT;
        let stepped = least > known;
        self.steps += u64::from(stepped);
        let ahead_max_us = if stepped { most } else { most.min(known) };
        self.seen = Some(Seen { since: seen.since, at: replied.max(seen.at), ahead_max_us });
        stepped
    }

    /// Takes the answer to a question for slots, which was sent when `steps_asked` steps had been seen. Whether its slots
    /// may be used: not if it shows a step, nor if another answer has shown one meanwhile, since nobody knows on which side
    /// of it these were granted.
    pub fn usable(&mut self, steps_asked: u64, sent: Duration, replied: Duration, now_us: i64) -> bool {
        self.answered(sent, replied, now_us);
        self.steps == steps_asked
    }

    /// How often the clock was seen to step. Whoever holds slots from before a step burns a window.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// How long the node has to wait at `at` before it may ask for slots of this window; none: it has to get an answer
    /// first.
    #[must_use]
    pub fn wait(&self, at: Duration, window: Duration) -> Option<Duration> {
        let seen = self.seen.filter(|seen| at.saturating_sub(seen.at) <= GAP_MAX)?;
        Some((seen.since + window.min(WATCH_MAX) + SPENT).saturating_sub(at))
    }
}
