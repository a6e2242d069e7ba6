//! The one clock that spans are measured on: it runs while the machine sleeps and while the process is stopped.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Time since boot, `CLOCK_BOOTTIME`.
#[must_use]
pub fn boottime() -> Duration {
    let now = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    let nanoseconds = u32::try_from(now.tv_nsec).unwrap_or(0);
    Duration::new(seconds, nanoseconds)
}
