//! Restarting children, which ractor leaves to each parent: with back-off, and an end to it.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

/// Failures within this time count together.
const WINDOW: Duration = Duration::from_secs(60);
/// Longest wait before a restart.
const LONGEST: Duration = Duration::from_secs(5);

/// How often a child has failed lately.
#[derive(Default)]
pub(crate) struct Restarts {
    failures: VecDeque<Instant>,
}

impl Restarts {
    /// Notes a failure; how long to wait before the restart: nothing for the first, then 100 ms, doubling.
    pub(crate) fn wait(&mut self) -> Duration {
        self.wait_at(Instant::now())
    }

    fn wait_at(&mut self, now: Instant) -> Duration {
        self.failures.push_back(now);
        while self.failures.front().is_some_and(|at| now.duration_since(*at) > WINDOW) {
            self.failures.pop_front();
        }
        let before = u32::try_from(self.failures.len() - 1).unwrap_or(u32::MAX).min(10);
        if before == 0 { Duration::ZERO } else { (Duration::from_millis(50) * 2_u32.pow(before)).min(LONGEST) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_longer_each_time_and_forgets() {
        let mut restarts = Restarts::default();
        let start = Instant::now();
        let waits: Vec<u128> = (0..9).map(|_| restarts.wait_at(start).as_millis()).collect();
        assert_eq!(waits, [0, 100, 200, 400, 800, 1600, 3200, 5000, 5000]);
        assert_eq!(restarts.wait_at(start + WINDOW * 2), Duration::ZERO);
    }
}
