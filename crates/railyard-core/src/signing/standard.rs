//! Standard Webhooks: `v1,` and base64 of HMAC-SHA256(secret, `id.timestamp.body`), the time in Unix seconds.
//!
//! The secret is base64, with or without `whsec_` in front. During a rotation two secrets sign and both signatures
//! go out, separated by a space; a receiver takes the message if one of them matches.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::Mac;
use jiff::Timestamp;

use super::{Mismatch, fresh, keyed};

/// Carries the message's id, the same on every attempt.
pub const ID_HEADER: &str = "webhook-id";
/// Carries the time that was signed, in Unix seconds.
pub const TIMESTAMP_HEADER: &str = "webhook-timestamp";
/// Carries one signature for each secret.
pub const SIGNATURE_HEADER: &str = "webhook-signature";

const VERSION: &str = "v1,";

/// The key that a secret stands for; none if the secret is not base64 or stands for nothing, and this scheme cannot
/// be used with it.
///
/// ```
/// use railyard_core::signing::standard::key_of;
/// assert!(key_of("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").is_some());
/// assert!(key_of("whsec_xyz789").is_none());
/// ```
#[must_use]
pub fn key_of(secret: &str) -> Option<Vec<u8>> {
    let key = STANDARD.decode(secret.strip_prefix("whsec_").unwrap_or(secret)).ok()?;
    (!key.is_empty()).then_some(key)
}

/// The signature header's value for an attempt that starts at `at`: one signature a key, in the order given. No key
/// gives an empty text, which must not be sent.
#[must_use]
pub fn sign(keys: &[impl AsRef<[u8]>], id: &str, at: Timestamp, body: &[u8]) -> String {
    let timestamp = at.as_second().to_string();
    let signatures: Vec<String> = keys
        .iter()
        .map(|key| {
            let mac = keyed(key.as_ref(), &[id.as_bytes(), b".", timestamp.as_bytes(), b".", body]);
            format!("{VERSION}{}", STANDARD.encode(mac.finalize().into_bytes()))
        })
        .collect();
    signatures.join(" ")
}

/// Checks what a receiver got: age first, then each signature in constant time. Signatures of other versions are
/// passed over, as the scheme demands.
///
/// # Errors
/// Which check failed.
pub fn verify(
    secret: &str,
    id: &str,
    timestamp: &str,
    signatures: &str,
    body: &[u8],
    now: Timestamp,
    tolerance: Duration,
) -> Result<(), Mismatch> {
    let key = key_of(secret).ok_or(Mismatch::SecretForm)?;
    let signed_at = timestamp
        .parse()
        .ok()
        .and_then(|seconds| Timestamp::from_second(seconds).ok())
        .ok_or(Mismatch::TimestampForm("Unix seconds"))?;
    fresh(signed_at, now, tolerance)?;
    let mac = keyed(&key, &[id.as_bytes(), b".", timestamp.as_bytes(), b".", body]);
    let mut understood = false;
    for text in signatures.split(' ').filter_map(|one| one.strip_prefix(VERSION)) {
        let Ok(given) = STANDARD.decode(text) else { continue };
        understood = true;
        if mac.clone().verify_slice(&given).is_ok() {
            return Ok(());
        }
    }
    Err(if understood { Mismatch::Wrong } else { Mismatch::SignatureForm("v1, and base64") })
}

#[cfg(test)]
mod tests {
    use super::super::TOLERANCE_DEFAULT;
    use super::*;
    use proptest::prelude::*;

    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    const ID: &str = "msg_p5jXN8AQM9LWM0D4loKWxJek";

    /// The key is `base64 -d` of the secret, the rest openssl as for the other scheme.
    #[test]
    fn s3_14_vector_of_openssl() {
        let at = Timestamp::from_second(1_614_265_330).unwrap();
        let body = br#"{"test": 2432232314}"#;
        let signature = sign(&[key_of(SECRET).unwrap()], ID, at, body);
        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
        assert_eq!(verify(SECRET, ID, "1614265330", &signature, body, at, TOLERANCE_DEFAULT), Ok(()));
    }

    #[test]
    fn a_secret_that_is_not_base64_turns_the_scheme_off() {
        for secret in ["whsec_xyz789", "", "whsec_", "klíč", "MfKQ9r8G\n", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw "] {
            assert_eq!(key_of(secret), None, "{secret:?}");
        }
        assert_eq!(key_of("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"), key_of(SECRET));
    }

    #[test]
    fn either_secret_of_a_rotation_is_enough() {
        let now = Timestamp::from_second(1_614_265_330).unwrap();
        let other = "c2Vjb25kIHNlY3JldA==";
        let both = sign(&[key_of(SECRET).unwrap(), key_of(other).unwrap()], ID, now, b"");
        for secret in [SECRET, other] {
            assert_eq!(verify(secret, ID, "1614265330", &both, b"", now, TOLERANCE_DEFAULT), Ok(()));
        }
        let foreign = verify("dGhpcmQ=", ID, "1614265330", &both, b"", now, TOLERANCE_DEFAULT);
        assert_eq!(foreign, Err(Mismatch::Wrong));
    }

    #[test]
    fn forms_and_age_are_named() {
        let now = Timestamp::from_second(1_614_265_330).unwrap();
        let good = sign(&[key_of(SECRET).unwrap()], ID, now, b"x");
        let check = |secret: &str, time: &str, signature: &str| {
            verify(secret, ID, time, signature, b"x", now, TOLERANCE_DEFAULT)
        };
        assert_eq!(check(SECRET, "1614265330", &format!("v1a,eA== {good}")), Ok(()));
        assert_eq!(check("whsec_xyz789", "1614265330", &good), Err(Mismatch::SecretForm));
        assert!(matches!(check(SECRET, "2021-02-25", &good), Err(Mismatch::TimestampForm(_))));
        assert!(matches!(check(SECRET, "99999999999999", &good), Err(Mismatch::TimestampForm(_))));
        assert!(matches!(check(SECRET, "1614265330", "v2,eA=="), Err(Mismatch::SignatureForm(_))));
        assert_eq!(check(SECRET, "1614265029", &good), Err(Mismatch::TooOld(301)));
        assert_eq!(check(SECRET, "1614265631", &good), Err(Mismatch::InFuture(301)));
    }

    proptest! {
        #[test]
        fn what_was_signed_verifies_and_a_flipped_bit_does_not(
            key in proptest::collection::vec(any::<u8>(), 1..64),
            body in proptest::collection::vec(any::<u8>(), 1..300),
            second in 0_i64..4_000_000_000,
            flip in any::<prop::sample::Index>(),
            bit in 0_u8..8,
        ) {
            let now = Timestamp::from_second(second).unwrap();
            let secret = STANDARD.encode(&key);
            let signature = sign(&[&key], "id", now, &body);
            let check = |id: &str, body: &[u8]| {
                verify(&secret, id, &second.to_string(), &signature, body, now, TOLERANCE_DEFAULT)
            };
            prop_assert_eq!(check("id", &body), Ok(()));
            prop_assert_eq!(check("id2", &body), Err(Mismatch::Wrong));
            let mut other = body.clone();
            other[flip.index(body.len())] ^= 1 << bit;
            prop_assert_eq!(check("id", &other), Err(Mismatch::Wrong));
        }
    }
}
