//! How many items are taken at a time where the database takes too long over as many as are configured.

use std::time::Duration;

/// What took longer than so many parts of its time limit is not doubled: it would be too much again.
const QUICK_PARTS: u32 = 3;

/// A bound that halves where so many took too long, down to one, and doubles where so many were quick, until it is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bite {
    most: u32,
}

impl Default for Bite {
    fn default() -> Self {
        Self { most: u32::MAX }
    }
}

impl Bite {
    /// How many may be taken, of as many as are configured; never none of some.
    #[must_use]
    pub fn of(self, configured: u32) -> u32 {
        self.most.min(configured)
    }

    /// Whether there is no bound but the configuration's.
    #[must_use]
    pub fn is_whole(self) -> bool {
        self.most == u32::MAX
    }

    /// So many at a time were too many.
    pub fn halve(&mut self, tried: u32) {
        self.most = (tried / 2).max(1);
    }

    /// So many were done, of as many as are `configured`, and it took so long of what it may. Whether the bound has grown:
    /// fewer than it allows say nothing about more.
    pub fn done(&mut self, done: u32, configured: u32, took: Duration, limit: Duration) -> bool {
        if done < self.most || took.saturating_mul(QUICK_PARTS) > limit {
            return false;
        }
        let most = self.most.saturating_mul(2);
        self.most = if most >= configured { u32::MAX } else { most };
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(9);
    const QUICK: Duration = Duration::from_secs(3);
    const SLOW: Duration = Duration::from_millis(3001);

    #[test]
    fn it_halves_down_to_one_and_doubles_back() {
        let mut bite = Bite::default();
        assert!(bite.is_whole());
        let mut seen = Vec::new();
        for _ in 0..5 {
            bite.halve(bite.of(10));
            seen.push(bite.of(10));
        }
        assert_eq!(seen, [5, 2, 1, 1, 1]);
        assert!(!bite.is_whole());
        seen.clear();
        while bite.done(bite.of(10), 10, QUICK, LIMIT) {
            seen.push(bite.of(10));
        }
        assert_eq!(seen, [2, 4, 8, 10]);
        assert!(bite.is_whole());
    }

    #[test]
    fn it_stays_where_more_would_be_too_much_again_and_where_there_was_no_more() {
        let mut bite = Bite::default();
        bite.halve(1000);
        assert!(!bite.done(500, 1000, SLOW, LIMIT));
        assert!(!bite.done(499, 1000, Duration::ZERO, LIMIT));
        assert_eq!(bite.of(1000), 500);
        assert!(bite.done(500, 1000, QUICK, LIMIT));
        assert!(bite.is_whole());
    }

    #[test]
    fn a_small_batch_that_was_too_much_counts_as_what_it_was() {
        let mut bite = Bite::default();
        bite.halve(30);
        assert_eq!((bite.of(1000), bite.of(10)), (15, 10));
    }
}
