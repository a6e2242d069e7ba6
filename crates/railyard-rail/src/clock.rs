//! The clock that deadlines are held against.
//!
//! `CLOCK_BOOTTIME` goes on while the process is stopped and while the machine sleeps. A laptop lid, a paused
//! virtual machine or SIGSTOP must not leave a deadline in the future that has passed for everybody else.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// A point on `CLOCK_BOOTTIME`. Comparable within one boot of one machine only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BootInstant(Duration);

impl BootInstant {
    /// Now.
    #[must_use]
    pub fn now() -> Self {
        let now = clock_gettime(ClockId::Boottime);
        let seconds = u64::try_from(now.tv_sec).expect("time since boot is not negative");
        let nanos = u32::try_from(now.tv_nsec).expect("the kernel keeps nanoseconds below one second");
        Self(Duration::new(seconds, nanos))
    }

    /// Later by `wait`, or as late as can be said.
    #[must_use]
    pub fn after(self, wait: Duration) -> Self {
        Self(self.0.saturating_add(wait))
    }

    /// A point that others read from the same clock.
    #[must_use]
    pub fn at(since_boot: Duration) -> Self {
        Self(since_boot)
    }

    /// How long until it comes; nothing if it lies behind us.
    #[must_use]
    pub fn wait(self) -> Duration {
        self.0.saturating_sub(Self::now().0)
    }

    /// Whether it lies behind us.
    #[must_use]
    pub fn has_passed(self) -> bool {
        Self::now() >= self
    }
}
