//! How long to wait after a failure.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A job's `retryStrategy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RetryStrategy {
    /// Webhooks: 5, 15, 30, 60, 120 s, then doubling to the cap (S3-25). Payment rails: 1, 2, 4 … (S2-11).
    Exponential,
    /// The first step, every time.
    Fixed,
    /// At once.
    Immediate,
}

impl RetryStrategy {
    /// All of them, for messages that list what is allowed.
    pub const ALL: [Self; 3] = [Self::Exponential, Self::Fixed, Self::Immediate];

    /// As stored and as sent.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Exponential => "exponential",
            Self::Fixed => "fixed",
            Self::Immediate => "immediate",
        }
    }

    /// Reads what `as_str` wrote.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|strategy| strategy.as_str() == text)
    }
}

/// A rail's steps and their cap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// Waits after the first, second, … failure; past the end the last one doubles.
    pub steps: Vec<Duration>,
    /// Never longer than this, jitter included.
    pub cap: Duration,
}

impl Backoff {
    /// S3's: 5, 15, 30, 60, 120 s.
    #[must_use]
    pub fn webhook() -> Self {
        Self { steps: [5, 15, 30, 60, 120].map(Duration::from_secs).to_vec(), cap: Duration::from_secs(120) }
    }

    /// S2's: 1, 2, 4 … 60 s.
    #[must_use]
    pub fn payment() -> Self {
        Self { steps: vec![Duration::from_secs(1)], cap: Duration::from_secs(60) }
    }

    /// The wait after the `failures`th failure (from 1), with ±10 % jitter; `roll` is uniform in [0, 1).
    ///
    /// ```
    /// use std::time::Duration;
    /// use railyard_core::backoff::{Backoff, RetryStrategy};
    /// let webhook = Backoff::webhook();
    /// assert_eq!(webhook.wait(RetryStrategy::Exponential, 2, 0.5), Duration::from_secs(15));
    /// assert_eq!(webhook.wait(RetryStrategy::Fixed, 9, 0.5), Duration::from_secs(5));
    /// assert_eq!(Backoff::payment().wait(RetryStrategy::Exponential, 3, 0.5), Duration::from_secs(4));
    /// ```
    #[must_use]
    pub fn wait(&self, strategy: RetryStrategy, failures: u32, roll: f64) -> Duration {
        let base = match strategy {
            RetryStrategy::Immediate => return Duration::ZERO,
            RetryStrategy::Fixed => self.step(1),
            RetryStrategy::Exponential => self.step(failures),
        };
        let jitter = 0.9 + 0.2 * roll.clamp(0.0, 1.0);
        base.mul_f64(jitter).min(self.cap)
    }

    /// The step after the nth failure, before jitter.
    fn step(&self, failures: u32) -> Duration {
        let index = failures.saturating_sub(1) as usize;
        let Some(last) = self.steps.last() else { return Duration::ZERO };
        match self.steps.get(index) {
            Some(step) => (*step).min(self.cap),
            None => {
                let doublings = u32::try_from(index - (self.steps.len() - 1)).unwrap_or(u32::MAX);
                1_u32.checked_shl(doublings).map_or(self.cap, |factor| last.saturating_mul(factor)).min(self.cap)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn s3_25_webhook_steps_then_cap() {
        let webhook = Backoff::webhook();
        let seconds: Vec<u64> = (1..=7).map(|n| webhook.wait(RetryStrategy::Exponential, n, 0.5).as_secs()).collect();
        assert_eq!(seconds, [5, 15, 30, 60, 120, 120, 120]);
    }

    #[test]
    fn s2_11_payment_steps_double_to_the_cap() {
        let payment = Backoff::payment();
        let seconds: Vec<u64> = (1..=8).map(|n| payment.wait(RetryStrategy::Exponential, n, 0.5).as_secs()).collect();
        assert_eq!(seconds, [1, 2, 4, 8, 16, 32, 60, 60]);
    }

    proptest! {
        #[test]
        fn never_over_the_cap_and_never_shrinks(n in 1_u32..u32::MAX, cap_s in 0_u64..100_000, roll in 0.0_f64..1.0) {
            let backoff = Backoff { steps: vec![Duration::from_secs(5), Duration::from_secs(15)], cap: Duration::from_secs(cap_s) };
            let wait = backoff.wait(RetryStrategy::Exponential, n, roll);
            prop_assert!(wait <= backoff.cap);
            prop_assert!(backoff.step(n.saturating_add(1)) >= backoff.step(n));
        }
    }
}
