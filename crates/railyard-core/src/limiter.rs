//! The hard cap: never more than N starts in any sliding window W, on all nodes together.
//!
//! A limit is one row in the database that hands out *slots*: moments at least `gap` apart, on the database's clock, at
//! most [`HORIZON`] ahead. A node may use a slot S no earlier than S and no later than S + [`DELTA`], by its own
//! monotonic clock:
//!
//! ```text
//!   not before  t_reply   + (S − now_db)
//!   not after   t_request + (S − now_db) + δ
//! ```
//!
//! where `now_db` was read somewhere between the two. Whatever the round trip was like, the start lies in [S, S + δ]. So
//! N + 1 starts span at least N · gap − δ, and since gap = (W + δ + ε) / N, that is W + ε; the way to the receiver may
//! add ε to one of them and nothing to another.
//!
//! A slot that no call uses is another lane's while there is time for a begin; else its row takes it back, if nothing was
//! granted behind it ([`take_back`]): where slots are far apart, one that is lost is a long time without a call.
//!
//! What that rests on, and what is done where it does not hold:
//! - a row may be lost (it is UNLOGGED): a new one starts a full window after the last moment at which a slot that was
//!   granted before may be used ([`Limit::ahead_us`]);
//! - the database's clock may go back: a row that looks far ahead, or was granted from in the future, starts anew in the
//!   same way;
//! - it may go forward: slots would come too soon, and only a node's own clock shows it ([`ClockWatch`]); what was
//!   granted is not used, and the rows start anew. A node that was not watching before does not know, so it watches for a
//!   window before it asks;
//! - a change of the limit: while slots of both sizes are about, the larger one bounds.

mod clock_watch;
mod row;
#[cfg(test)]
mod tests;

use std::time::Duration;

pub use clock_watch::ClockWatch;
pub use row::{Ask, Denial, Grant, Row, Unused, grant, take_back};

/// How far ahead of the database's clock a slot may lie.
pub const HORIZON: Duration = Duration::from_millis(250);
/// δ: how late a slot may be used.
pub const DELTA: Duration = Duration::from_millis(50);
/// ε: what the way to the receiver may add.
pub const EPSILON: Duration = Duration::from_millis(20);
/// A slot lies at least so far ahead, so that intent is committed before it comes.
pub const LEAD: Duration = Duration::from_millis(25);
/// How long a node keeps from asking whose answers come too late, one after the other.
const TOO_FAR_WAIT: Duration = Duration::from_secs(1);
/// Slots that are nearer to each other than this are not taken back by their rows: others have been granted behind them.
pub const TAKE_BACK_GAP_US_MIN: i64 = 100_000;
/// After so long, whatever was granted has reached its receiver or never will.
pub const SPENT: Duration = Duration::from_millis(320);

/// The most starts that a window may have.
pub const STARTS_MAX: u32 = 100_000;
/// The shortest window, in milliseconds.
pub const WINDOW_MS_MIN: u32 = 1000;
/// The longest window, in milliseconds.
pub const WINDOW_MS_MAX: u32 = 3_600_000;

/// At most so many starts in every window of this length, wherever it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Limit {
    /// N, at least 1.
    pub starts: u32,
    /// W.
    pub window: Duration,
}

impl Limit {
    /// One that never binds: it is there for the switch alone. Its slots are a microsecond or two apart.
    pub const UNBOUND: Self = Self { starts: 1_000_000, window: Duration::from_secs(1) };

    /// Between two slots, in microseconds, rounded up.
    #[must_use]
    pub fn gap_us(self) -> i64 {
        let span = us(self.window + DELTA + EPSILON);
        let starts = i64::from(self.starts.max(1));
        (span + starts - 1) / starts
    }

    /// The first slot of a row that starts anew at `now_us`: nothing that was granted before is used within a window of
    /// it.
    #[must_use]
    pub fn ahead_us(self, now_us: i64) -> i64 {
        now_us + us(self.window + SPENT)
    }

    /// Whether it is there to limit something.
    #[must_use]
    pub fn binds(self) -> bool {
        self != Self::UNBOUND
    }
}

/// When a slot may be used, on the node's monotonic clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Permit {
    /// No byte leaves before.
    pub not_before: Duration,
    /// And none of a call that has not started by then.
    pub not_after: Duration,
}

impl Permit {
    /// For a slot `ahead_us` after the moment that the database read its clock; `sent` and `replied` were read around the
    /// question. None: the answer took longer than δ, so no moment is certain to lie in the slot.
    #[must_use]
    pub fn of(sent: Duration, replied: Duration, ahead_us: i64) -> Option<Self> {
        let ahead = Duration::from_micros(u64::try_from(ahead_us).unwrap_or(0));
        let permit = Self { not_before: replied + ahead, not_after: sent + ahead + DELTA };
        (permit.not_before <= permit.not_after).then_some(permit)
    }
}

/// How long nobody asks after an answer that took so long that none of its slots can be used: as long again, since one stall
/// says little; a second after the next one in a row. The database is far away then, and others get their turn.
#[must_use]
pub fn wait_after_late(in_a_row: u32, took: Duration) -> Duration {
    if in_a_row > 1 { TOO_FAR_WAIT } else { took.min(TOO_FAR_WAIT) }
}

/// As the rows count time.
pub(crate) fn us(span: Duration) -> i64 {
    i64::try_from(span.as_micros()).unwrap_or(i64::MAX / 4)
}
