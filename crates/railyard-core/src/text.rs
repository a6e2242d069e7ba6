//! Text from outside, made safe for a `text` column and for people's eyes.

/// Bytes as text of at most `chars_max` characters. What is not UTF-8 becomes U+FFFD, and so does NUL, which
/// PostgreSQL cannot store.
///
/// ```
/// use railyard_core::text::clean;
/// assert_eq!(clean(b"caf\xc3\xa9\0\xff!", 5), "café\u{fffd}");
/// ```
#[must_use]
pub fn clean(bytes: &[u8], chars_max: usize) -> String {
    // A character takes at most four bytes, so nothing behind this point can be part of the result; a cut inside a
    // character only changes characters past the limit.
    let head = &bytes[..bytes.len().min(chars_max.saturating_mul(4))];
    clean_str(&String::from_utf8_lossy(head), chars_max)
}

/// The same for what is UTF-8 already.
#[must_use]
pub fn clean_str(text: &str, chars_max: usize) -> String {
    text.chars().take(chars_max).map(|c| if c == '\0' { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_bytes_become_storable_text(bytes in proptest::collection::vec(any::<u8>(), 0..300), max in 0_usize..100) {
            let text = clean(&bytes, max);
            prop_assert!(text.chars().count() <= max);
            prop_assert!(!text.contains('\0'));
            let whole: String = String::from_utf8_lossy(&bytes).replace('\0', "\u{fffd}");
            prop_assert!(whole.starts_with(&text));
        }
    }
}
