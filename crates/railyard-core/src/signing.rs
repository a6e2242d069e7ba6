//! The bytes that are signed, and how a receiver checks them.
//!
//! Two schemes go out side by side: S3's own ([`flowcatalyst`]) and Standard Webhooks ([`standard`]). The signed
//! bytes are the payload as it was committed; nothing is parsed or printed on the way. Each attempt signs afresh:
//! a signature kept for the retry is too old for a receiver that looks at its age.

use std::time::Duration;

use hmac::{Hmac, KeyInit, Mac};
use jiff::Timestamp;
use sha2::Sha256;

pub mod flowcatalyst;
pub mod standard;

/// How far a signature's time may lie from the receiver's clock (S3's example: 300 s).
pub const TOLERANCE_DEFAULT: Duration = Duration::from_secs(300);

/// Which check a signature failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Mismatch {
    /// A header that the scheme needs is not there.
    #[error("header {0} is missing")]
    Missing(&'static str),
    /// The time is not in the scheme's form.
    #[error("timestamp is not {0}")]
    TimestampForm(&'static str),
    /// Signed too long ago.
    #[error("timestamp is {0} s old")]
    TooOld(u64),
    /// Signed by a clock that is ahead.
    #[error("timestamp lies {0} s in the future")]
    InFuture(u64),
    /// The signature is not in the scheme's form.
    #[error("signature is not {0}")]
    SignatureForm(&'static str),
    /// The secret cannot be used with this scheme.
    #[error("secret is not base64, with or without whsec_")]
    SecretForm,
    /// Everything is well formed, and the bytes or the secret are others than those that were signed.
    #[error("signature does not match the body and the secret")]
    Wrong,
}

/// HMAC-SHA256 over the parts as if they stood together.
pub(crate) fn keyed(secret: &[u8], parts: &[&[u8]]) -> Hmac<Sha256> {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret).expect("HMAC takes a key of any length");
    for part in parts {
        mac.update(part);
    }
    mac
}

/// Refuses what was signed further from `now` than `tolerance`, either way.
fn fresh(signed_at: Timestamp, now: Timestamp, tolerance: Duration) -> Result<(), Mismatch> {
    let distance = now.duration_since(signed_at);
    if distance.unsigned_abs() <= tolerance {
        return Ok(());
    }
    let seconds = distance.unsigned_abs().as_secs();
    Err(if distance.is_negative() { Mismatch::InFuture(seconds) } else { Mismatch::TooOld(seconds) })
}
