//! A circuit breaker for one endpoint: pure, `now` is the time since any fixed origin.
//!
//! ```text
//!          half of ten calls fail                open for 5 s
//!  Closed ───────────────────────▶ Open ───────────────────────▶ HalfOpen
//!     ▲                              ▲           a probe fails        │
//!     │                              └────────────────────────────────┤
//!     └───────────────────────────────────────────────────────────────┘
//!                               three probes succeed
//! ```
//!
//! Deferrals are neutral: an endpoint that says *later* is alive. A result only counts for the state that let its
//! call through, so that the stragglers of a bad minute do not end the probing after it.

use std::time::Duration;

use serde::Serialize;

/// How long the answer "not now" holds while all probes are out.
const PROBE_WAIT: Duration = Duration::from_millis(100);
/// The window is counted in this many slices: bounded memory at any rate of calls.
const SLICES: u32 = 30;

/// When it opens and how it closes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Opens when at least this share of the window's calls failed, in percent.
    pub failure_percent: u32,
    /// Never opens on fewer calls than this.
    pub calls_min: u32,
    /// How far back calls count.
    pub window: Duration,
    /// How long it lets nothing through.
    pub open: Duration,
    /// Probes that have to succeed, and that are let through at a time.
    pub probes: u32,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            failure_percent: 50,
            calls_min: 10,
            window: Duration::from_secs(30),
            open: Duration::from_secs(5),
            probes: 3,
        }
    }
}

/// What a call told about its endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It answered as it should.
    Success,
    /// It did not.
    Failure,
    /// Nothing either way: a deferral, or a call that never started.
    Neutral,
}

/// The right to make one call; goes back with [`Breaker::report`].
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a pass that is not reported blocks a probe for ever"]
pub struct Pass {
    /// Which stretch between two changes of state it belongs to.
    stretch: u64,
}

/// What anybody may see.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum Seen {
    /// Calls go through.
    Closed {
        /// Calls in the window.
        calls: u32,
        /// Failures among them.
        failures: u32,
    },
    /// Nothing goes through.
    Open {
        /// For how much longer, in milliseconds.
        remaining_ms: u64,
    },
    /// Probes go through.
    HalfOpen {
        /// Probes under way.
        in_flight: u32,
        /// Probes that succeeded.
        succeeded: u32,
    },
}

/// One endpoint's breaker.
#[derive(Clone, Debug)]
pub struct Breaker {
    policy: Policy,
    state: State,
    stretch: u64,
}

#[derive(Clone, Debug)]
enum State {
    Closed { slices: Box<[Slice; SLICES as usize]> },
    Open { until: Duration },
    HalfOpen { in_flight: u32, succeeded: u32 },
}

/// Calls of one thirtieth of the window.
#[derive(Clone, Copy, Debug, Default)]
struct Slice {
    number: u128,
    calls: u32,
    failures: u32,
}

impl Breaker {
    /// Closed, with nothing counted.
    #[must_use]
    pub fn new(policy: Policy) -> Self {
        Self { policy, state: State::closed(), stretch: 0 }
    }

    /// Whether a call would get through.
    ///
    /// # Errors
    /// The time, on the same clock as `now`, before which asking again is useless.
    pub fn look(&self, now: Duration) -> Result<(), Duration> {
        match self.state {
            State::Closed { .. } => Ok(()),
            State::Open { until } if now < until => Err(until),
            State::Open { .. } => Ok(()),
            State::HalfOpen { in_flight, succeeded } if in_flight + succeeded < self.policy.probes => Ok(()),
            State::HalfOpen { .. } => Err(now + PROBE_WAIT),
        }
    }

    /// Lets a call through, or does not.
    ///
    /// # Errors
    /// As [`Breaker::look`].
    pub fn admit(&mut self, now: Duration) -> Result<Pass, Duration> {
        self.look(now)?;
        match &mut self.state {
            State::Closed { .. } => {}
            State::Open { .. } => self.change(State::HalfOpen { in_flight: 1, succeeded: 0 }),
            State::HalfOpen { in_flight, .. } => *in_flight += 1,
        }
        Ok(Pass { stretch: self.stretch })
    }

    /// Takes a call's result.
    #[expect(clippy::needless_pass_by_value, reason = "a pass is spent by reporting it")]
    pub fn report(&mut self, pass: Pass, verdict: Verdict, now: Duration) {
        if pass.stretch != self.stretch {
            return;
        }
        let policy = self.policy;
        let next = match &mut self.state {
            State::Closed { slices } => {
                count(&mut **slices, policy.window, verdict, now);
                let (calls, failures) = totals(&**slices, policy.window, now);
                let enough = calls >= policy.calls_min && failures > 0;
                let bad = u64::from(failures) * 100 >= u64::from(calls) * u64::from(policy.failure_percent);
                (enough && bad).then(|| State::Open { until: now + policy.open })
            }
            // Only passes of this stretch come here, and an open stretch gives none.
            State::Open { .. } => None,
            State::HalfOpen { in_flight, succeeded } => {
                *in_flight = in_flight.saturating_sub(1);
                match verdict {
                    Verdict::Failure => Some(State::Open { until: now + policy.open }),
                    Verdict::Neutral => None,
                    Verdict::Success => {
                        *succeeded += 1;
                        (*succeeded >= policy.probes).then(State::closed)
                    }
                }
            }
        };
        if let Some(next) = next {
            self.change(next);
        }
    }

    /// For the admin API and for tests.
    #[must_use]
    pub fn seen(&self, now: Duration) -> Seen {
        match &self.state {
            State::Closed { slices } => {
                let (calls, failures) = totals(&**slices, self.policy.window, now);
                Seen::Closed { calls, failures }
            }
            State::Open { until } => {
                let remaining = until.saturating_sub(now).as_millis();
                Seen::Open { remaining_ms: u64::try_from(remaining).unwrap_or(u64::MAX) }
            }
            State::HalfOpen { in_flight, succeeded } => Seen::HalfOpen { in_flight: *in_flight, succeeded: *succeeded },
        }
    }

    /// Nothing to remember: a new breaker would behave in the same way.
    #[must_use]
    pub fn is_blank(&self, now: Duration) -> bool {
        matches!(self.seen(now), Seen::Closed { calls: 0, .. })
    }

    fn change(&mut self, state: State) {
        self.state = state;
        self.stretch += 1;
    }
}

impl State {
    fn closed() -> Self {
        Self::Closed { slices: Box::new([Slice::default(); SLICES as usize]) }
    }
}

/// Which slice of all time `now` lies in.
fn slice_number(window: Duration, now: Duration) -> u128 {
    let length = (window.as_nanos() / u128::from(SLICES)).max(1);
    // From 1: slices that were never used are numbered 0.
    now.as_nanos() / length + 1
}

fn count(slices: &mut [Slice], window: Duration, verdict: Verdict, now: Duration) {
    let number = slice_number(window, now);
    let index = usize::try_from(number % u128::from(SLICES)).expect("a remainder below 30");
    let slice = &mut slices[index];
    if slice.number != number {
        *slice = Slice { number, ..Slice::default() };
    }
    match verdict {
        Verdict::Neutral => {}
        Verdict::Success => slice.calls = slice.calls.saturating_add(1),
        Verdict::Failure => {
            slice.calls = slice.calls.saturating_add(1);
            slice.failures = slice.failures.saturating_add(1);
        }
    }
}

fn totals(slices: &[Slice], window: Duration, now: Duration) -> (u32, u32) {
    let newest = slice_number(window, now);
    let live = slices.iter().filter(|slice| slice.number > 0 && slice.number + u128::from(SLICES) > newest);
    live.fold((0, 0), |(calls, failures), slice| {
        (calls.saturating_add(slice.calls), failures.saturating_add(slice.failures))
    })
}

#[cfg(test)]
mod tests;
