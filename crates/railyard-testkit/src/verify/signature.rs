//! The receiver's side of both signature schemes, written from the contract and not from Railyard's code.

use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::Receipt;

/// How old a timestamp may be when the request is complete; receivers in the field allow 300 s.
const TOLERANCE: Duration = Duration::from_secs(60);

/// Requests whose `X-FLOWCATALYST-*` signature is missing, repeated, wrong, or stale.
pub fn signature_failures(receipts: &[Receipt], secret: &str) -> Vec<String> {
    receipts.iter().filter_map(|r| flowcatalyst(r, secret).err().map(|why| format!("{why}: {}", r.line()))).collect()
}

/// Requests whose Standard Webhooks signature is missing, repeated, wrong, or stale. The secret is base64, with or
/// without `whsec_`.
pub fn standard_webhook_failures(receipts: &[Receipt], secret: &str) -> Vec<String> {
    let check = |r: &Receipt| standard_webhook(r, secret).err().map(|why| format!("{why}: {}", r.line()));
    receipts.iter().filter_map(check).collect()
}

fn flowcatalyst(receipt: &Receipt, secret: &str) -> Result<(), String> {
    let timestamp = only(receipt, "X-FLOWCATALYST-TIMESTAMP")?;
    let signature = only(receipt, "X-FLOWCATALYST-SIGNATURE")?;
    let signed_at = parse_timestamp(timestamp).ok_or_else(|| format!("timestamp {timestamp:?} has another form"))?;
    fresh(receipt.clock, signed_at)?;
    let expected = hex::encode(hmac(secret.as_bytes(), &[timestamp.as_bytes(), &receipt.body]));
    if expected != signature { Err(format!("signature {signature:?} is not {expected:?}")) } else { Ok(()) }
}

fn standard_webhook(receipt: &Receipt, secret: &str) -> Result<(), String> {
    let id = only(receipt, "webhook-id")?;
    let timestamp = only(receipt, "webhook-timestamp")?;
    let signatures = only(receipt, "webhook-signature")?;
    let seconds = timestamp.parse().map_err(|_| format!("timestamp {timestamp:?} is no number of seconds"))?;
    // Whole seconds: truncated, so up to one second older than it was.
    fresh(receipt.clock, SystemTime::UNIX_EPOCH + Duration::from_secs(seconds))?;
    let key = BASE64.decode(secret.strip_prefix("whsec_").unwrap_or(secret)).map_err(|error| error.to_string())?;
    let mac = hmac(&key, &[id.as_bytes(), b".", timestamp.as_bytes(), b".", &receipt.body]);
    let expected = format!("v1,{}", BASE64.encode(mac));
    let found = signatures.split(' ').any(|signature| signature == expected);
    if found { Ok(()) } else { Err(format!("no signature of {signatures:?} is {expected:?}")) }
}

fn only<'a>(receipt: &'a Receipt, name: &str) -> Result<&'a str, String> {
    match receipt.headers_named(name)[..] {
        [value] => Ok(value),
        [] => Err(format!("no {name}")),
        _ => Err(format!("{name} more than once")),
    }
}

fn fresh(clock: SystemTime, signed_at: SystemTime) -> Result<(), String> {
    let apart = clock.duration_since(signed_at).unwrap_or_else(|ahead| ahead.duration());
    if apart > TOLERANCE { Err(format!("signed {apart:?} away from its arrival")) } else { Ok(()) }
}

fn hmac(key: &[u8], parts: &[&[u8]]) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
    for part in parts {
        mac.update(part);
    }
    mac.finalize().into_bytes().to_vec()
}

/// Exactly `YYYY-MM-DDTHH:MM:SS.mmmZ`.
fn parse_timestamp(text: &str) -> Option<SystemTime> {
    let shape = |(at, c): (usize, char)| match at {
        4 | 7 => c == '-',
        10 => c == 'T',
        13 | 16 => c == ':',
        19 => c == '.',
        23 => c == 'Z',
        _ => c.is_ascii_digit(),
    };
    if text.len() != 24 || !text.char_indices().all(shape) {
        return None;
    }
    let field = |from: usize, to: usize| text[from..to].parse::<u64>().ok();
    let (year, month, day) = (field(0, 4)?, field(5, 7)?, field(8, 10)?);
    if year < 1970 || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let seconds = days_since_1970(year, month, day) * 86_400 + field(11, 13)? * 3_600 + field(14, 16)? * 60;
    let millis = (seconds + field(17, 19)?) * 1_000 + field(20, 23)?;
    Some(SystemTime::UNIX_EPOCH + Duration::from_millis(millis))
}

/// Years begin in March, so that the leap day is the last: the months then have a fixed pattern (31, 30, 31, 30, 31).
fn days_since_1970(year: u64, month: u64, day: u64) -> u64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let leap_days = year / 4 - year / 100 + year / 400;
    year * 365 + leap_days + (153 * month + 2) / 5 + day - 1 - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_have_one_form() {
        let at = |text| parse_timestamp(text).and_then(|t| t.duration_since(SystemTime::UNIX_EPOCH).ok());
        assert_eq!(at("2025-10-04T14:30:45.123Z"), Some(Duration::from_millis(1_759_588_245_123)));
        assert_eq!(at("2024-02-29T00:00:00.000Z"), Some(Duration::from_secs(1_709_164_800)));
        for other in [
            "2025-10-04T14:30:45Z",
            "2025-10-04T14:30:45.12Z",
            "2025-10-04 14:30:45.123Z",
            "2025-10-04T14:30:45.123+00:00",
        ] {
            assert_eq!(at(other), None, "{other}");
        }
    }

    #[test]
    fn the_contracts_vector_holds() {
        // printf '%s%s' TIMESTAMP BODY | openssl dgst -sha256 -hmac SECRET
        let parts: [&[u8]; 2] = [b"2025-10-04T14:30:45.123Z", br#"{"orderId":"12345","amount":99.99}"#];
        let expected = "2501382cba528add2eb4c6e93131fd7967093bb6d8f80af96fe6df4357407988";
        assert_eq!(hex::encode(hmac(b"whsec_xyz789", &parts)), expected);
    }
}
