//! S3's scheme: hex of HMAC-SHA256(secret, timestamp bytes followed by body bytes), lower case.

use std::time::Duration;

use hmac::Mac;
use jiff::Timestamp;

use super::{Mismatch, fresh, keyed};
use crate::timestamp::utc_millis;

/// Carries [`sign`]'s answer.
pub const SIGNATURE_HEADER: &str = "X-FLOWCATALYST-SIGNATURE";
/// Carries the time that was signed, letter for letter.
pub const TIMESTAMP_HEADER: &str = "X-FLOWCATALYST-TIMESTAMP";

/// The two headers' values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signed {
    /// `YYYY-MM-DDTHH:MM:SS.mmmZ`.
    pub timestamp: String,
    /// 64 lower-case hex digits.
    pub signature: String,
}

/// Signs for an attempt that starts at `at`. The secret is used byte for byte as it was given.
#[must_use]
pub fn sign(secret: &[u8], at: Timestamp, body: &[u8]) -> Signed {
    let timestamp = utc_millis(at);
    let mac = keyed(secret, &[timestamp.as_bytes(), body]);
    Signed { signature: hex::encode(mac.finalize().into_bytes()), timestamp }
}

/// Checks what a receiver got: age first, then the bytes in constant time.
///
/// # Errors
/// Which check failed.
pub fn verify(
    secret: &[u8],
    timestamp: &str,
    signature: &str,
    body: &[u8],
    now: Timestamp,
    tolerance: Duration,
) -> Result<(), Mismatch> {
    let signed_at: Timestamp = timestamp.parse().map_err(|_| Mismatch::TimestampForm("RFC 3339"))?;
    fresh(signed_at, now, tolerance)?;
    let lower = signature.len() == 64 && signature.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    if !lower {
        return Err(Mismatch::SignatureForm("64 lower-case hex digits"));
    }
    let given = hex::decode(signature).map_err(|_| Mismatch::SignatureForm("64 lower-case hex digits"))?;
    keyed(secret, &[timestamp.as_bytes(), body]).verify_slice(&given).map_err(|_| Mismatch::Wrong)
}

#[cfg(test)]
mod tests {
    use super::super::TOLERANCE_DEFAULT;
    use super::*;
    use proptest::prelude::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    /// Computed with `printf '%s%s' "$timestamp" "$body" | openssl dgst -sha256 -hmac "$secret"`.
    #[test]
    fn s3_14_vectors_of_openssl() {
        let order = br#"{"orderId":"12345","amount":99.99}"#.as_slice();
        let names = r#"{"name":"Žofie Müller 東京 🚆"}"#.as_bytes();
        for (secret, time, body, expect) in [
            (
                "whsec_xyz789",
                "2025-10-04T14:30:45.123Z",
                order,
                "2501382cba528add2eb4c6e93131fd7967093bb6d8f80af96fe6df4357407988",
            ),
            (
                "klíč-ключ-🔑",
                "2025-10-04T14:30:45.123Z",
                names,
                "525bcfbe192ce7bcc8f0bc4404a985256e41652adcb267ae2b52d38a687a118a",
            ),
            (
                "whsec_xyz789",
                "2025-10-04T14:30:45.000Z",
                b"",
                "c5d084957ed5feef8d056a95c861f6c4eff71049c91c58e55125372b4d19c57c",
            ),
            // A newline at the end of the secret is part of it.
            (
                "whsec_xyz789\n",
                "2025-10-04T14:30:45.123Z",
                order,
                "63b28397a551c13d483c70f2085b658e24ead4640177aa256f43e4ece481486c",
            ),
        ] {
            let signed = sign(secret.as_bytes(), at(time), body);
            assert_eq!(signed.timestamp, time);
            assert_eq!(signed.signature, expect, "{secret:?}");
            assert_eq!(verify(secret.as_bytes(), time, expect, body, at(time), TOLERANCE_DEFAULT), Ok(()));
        }
    }

    #[test]
    fn s3_42_age_is_checked_both_ways() {
        let now = at("2025-10-04T14:30:45.123Z");
        let check = |time: &str| {
            let signed = sign(b"s", at(time), b"body");
            verify(b"s", &signed.timestamp, &signed.signature, b"body", now, TOLERANCE_DEFAULT)
        };
        assert_eq!(check("2025-10-04T14:25:45.123Z"), Ok(()));
        assert_eq!(check("2025-10-04T14:25:45.122Z"), Err(Mismatch::TooOld(300)));
        assert_eq!(check("2025-10-04T14:36:00.000Z"), Err(Mismatch::InFuture(314)));
    }

    #[test]
    fn forms_are_named() {
        let now = at("2025-10-04T14:30:45.123Z");
        let signed = sign(b"s", now, b"body");
        let check = |time: &str, signature: &str| verify(b"s", time, signature, b"body", now, TOLERANCE_DEFAULT);
        assert!(matches!(check("yesterday", &signed.signature), Err(Mismatch::TimestampForm(_))));
        assert!(matches!(check(&signed.timestamp, ""), Err(Mismatch::SignatureForm(_))));
        assert!(matches!(check(&signed.timestamp, &signed.signature.to_uppercase()), Err(Mismatch::SignatureForm(_))));
        // The same instant in other letters was not what was signed.
        assert_eq!(check("2025-10-04T14:30:45.1230Z", &signed.signature), Err(Mismatch::Wrong));
    }

    proptest! {
        #[test]
        fn what_was_signed_verifies_and_a_flipped_bit_does_not(
            secret in proptest::collection::vec(any::<u8>(), 1..100),
            body in proptest::collection::vec(any::<u8>(), 1..300),
            ms in 0_i64..4_000_000_000_000,
            flip in any::<prop::sample::Index>(),
            bit in 0_u8..8,
        ) {
            let now = Timestamp::from_millisecond(ms).unwrap();
            let Signed { timestamp, signature } = sign(&secret, now, &body);
            let check = |secret: &[u8], body: &[u8]| {
                verify(secret, &timestamp, &signature, body, now, TOLERANCE_DEFAULT)
            };
            prop_assert_eq!(check(&secret, &body), Ok(()));
            let mut other = body.clone();
            other[flip.index(body.len())] ^= 1 << bit;
            prop_assert_eq!(check(&secret, &other), Err(Mismatch::Wrong));
            let mut other = secret.clone();
            other[flip.index(secret.len())] ^= 1 << bit;
            prop_assert_eq!(check(&other, &body), Err(Mismatch::Wrong));
        }
    }
}
