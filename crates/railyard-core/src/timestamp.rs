//! The one way that times are written: UTC, milliseconds, three digits always.

use jiff::Timestamp;

/// `YYYY-MM-DDTHH:MM:SS.mmmZ`; what is finer than a millisecond is cut off, never rounded up.
///
/// ```
/// use railyard_core::timestamp::utc_millis;
/// let at = "2025-10-04T16:30:45.9999+02:00".parse().unwrap();
/// assert_eq!(utc_millis(at), "2025-10-04T14:30:45.999Z");
/// ```
#[must_use]
pub fn utc_millis(at: Timestamp) -> String {
    format!("{at:.3}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn s3_14_zero_milliseconds_keep_their_digits() {
        assert_eq!(utc_millis(Timestamp::from_second(1_759_588_245).unwrap()), "2025-10-04T14:30:45.000Z");
    }

    proptest! {
        #[test]
        fn always_24_characters_and_never_later_than_the_instant(ns in 0_i64..4_000_000_000_000_000_000) {
            let at = Timestamp::from_nanosecond(i128::from(ns)).unwrap();
            let text = utc_millis(at);
            prop_assert_eq!(text.len(), 24);
            let back: Timestamp = text.parse().unwrap();
            prop_assert!(back <= at);
            prop_assert_eq!(back.as_millisecond(), at.as_millisecond());
        }
    }
}
