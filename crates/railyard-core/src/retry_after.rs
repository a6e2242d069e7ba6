//! How long a receiver asks us to wait.

use std::time::{Duration, SystemTime};

/// Reads a `Retry-After` header: seconds, or a date, which is held against the answer's own `Date` header where it
/// has one, since only the distance between two times of one clock means anything. Longer than `cap` becomes `cap`;
/// a date in the past is no wait at all.
///
/// None: the value is neither form (fractions, signs and units included) and is to be ignored.
///
/// ```
/// use std::time::{Duration, SystemTime};
/// use railyard_core::retry_after::retry_after;
/// let (now, cap) = (SystemTime::UNIX_EPOCH, Duration::from_secs(3600));
/// assert_eq!(retry_after("120", None, now, cap), Some(Duration::from_secs(120)));
/// assert_eq!(retry_after("99999999999999999999999", None, now, cap), Some(cap));
/// assert_eq!(retry_after("Thu, 01 Jan 1970 00:00:07 GMT", None, now, cap), Some(Duration::from_secs(7)));
/// assert_eq!(retry_after("-5", None, now, cap), None);
/// ```
#[must_use]
pub fn retry_after(value: &str, date: Option<&str>, now: SystemTime, cap: Duration) -> Option<Duration> {
    let value = value.trim_matches([' ', '\t']);
    if !value.is_empty() && value.bytes().all(|b| b.is_ascii_digit()) {
        // Digits that overflow are only a very long wait.
        return Some(value.parse().map_or(cap, Duration::from_secs).min(cap));
    }
    let until = httpdate::parse_http_date(value).ok()?;
    let from = date.and_then(|date| httpdate::parse_http_date(date).ok()).unwrap_or(now);
    Some(until.duration_since(from).unwrap_or(Duration::ZERO).min(cap))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CAP: Duration = Duration::from_secs(3600);

    fn read(value: &str) -> Option<u64> {
        let now = httpdate::parse_http_date("Sat, 04 Oct 2025 14:30:00 GMT").unwrap();
        retry_after(value, None, now, CAP).map(|wait| wait.as_secs())
    }

    #[test]
    fn s3_27_seconds_dates_and_what_is_neither() {
        for (value, expect) in [
            ("0", Some(0)),
            (" 7 ", Some(7)),
            ("3601", Some(3600)),
            ("18446744073709551616", Some(3600)),
            ("Sat, 04 Oct 2025 14:31:30 GMT", Some(90)),
            ("Saturday, 04-Oct-25 14:31:30 GMT", Some(90)),
            ("Sat Oct  4 14:31:30 2025", Some(90)),
            ("Sat, 04 Oct 2025 14:29:00 GMT", Some(0)),
            ("Fri, 31 Dec 9999 23:59:59 GMT", Some(3600)),
            ("", None),
            ("soon", None),
            ("-1", None),
            ("+1", None),
            ("1.5", None),
            ("1e3", None),
            ("10s", None),
            ("١٢", None),
            ("2025-10-04T14:31:30Z", None),
        ] {
            assert_eq!(read(value), expect, "{value:?}");
        }
    }

    #[test]
    fn a_date_counts_from_the_receivers_own_clock() {
        let two_hours_off = SystemTime::UNIX_EPOCH;
        let wait = |date| retry_after("Sat, 04 Oct 2025 14:31:30 GMT", date, two_hours_off, CAP);
        assert_eq!(wait(Some("Sat, 04 Oct 2025 14:31:00 GMT")), Some(Duration::from_secs(30)));
        assert_eq!(wait(Some("no date")), Some(CAP));
    }

    proptest! {
        #[test]
        fn never_over_the_cap_and_never_a_panic(value in ".{0,40}", date in ".{0,40}", cap_s in 0_u64..10_000) {
            let cap = Duration::from_secs(cap_s);
            if let Some(wait) = retry_after(&value, Some(&date), SystemTime::UNIX_EPOCH, cap) {
                prop_assert!(wait <= cap);
            }
        }
    }
}
