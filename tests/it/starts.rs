//! What a receiver saw of a limit: how many starts lay in any window, on its own monotonic clock.

use std::time::{Duration, Instant};

use railyard_testkit::{FakeRail, Receipt};

/// First bytes, in order.
pub(crate) fn starts(receipts: &[Receipt]) -> Vec<Instant> {
    let mut starts: Vec<Instant> = receipts.iter().map(|receipt| receipt.first_byte_at).collect();
    starts.sort_unstable();
    starts
}

/// All that ever began there.
pub(crate) fn all_starts(rail: &FakeRail) -> Vec<Instant> {
    starts(&rail.exchanges())
}

/// The most starts in any window of this length, wherever it begins. `starts` are in order.
pub(crate) fn most_within(starts: &[Instant], window: Duration) -> usize {
    let mut most = 0;
    let mut first = 0;
    for (last, at) in starts.iter().enumerate() {
        while *at - starts[first] >= window {
            first += 1;
        }
        most = most.max(last + 1 - first);
    }
    most
}

/// How many of them there were a second. They are in order; at least two.
pub(crate) fn per_second(starts: &[Instant]) -> f64 {
    let gaps = f64::from(u32::try_from(starts.len() - 1).unwrap());
    gaps / starts[starts.len() - 1].duration_since(starts[0]).as_secs_f64()
}

#[test]
fn windows_are_counted_wherever_they_begin() {
    let origin = Instant::now();
    let at = |ms: &[u64]| ms.iter().map(|ms| origin + Duration::from_millis(*ms)).collect::<Vec<_>>();
    let second = Duration::from_secs(1);
    assert_eq!(most_within(&at(&[0, 999, 1000, 1998]), second), 3, "999 and 1000 and 1998 lie within a second");
    assert_eq!(most_within(&at(&[0, 1000, 2000]), second), 1);
    assert_eq!(most_within(&[], second), 0);
}
