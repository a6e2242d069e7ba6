//! One delivery as a receiver sees it, and what its signatures are worth.

use std::fmt;
use std::time::Duration;

use axum::http::HeaderMap;
use axum::http::request::Parts;
use jiff::Timestamp;
use railyard_core::signing::{Mismatch, flowcatalyst, standard};
use serde::Serialize;

use crate::output::printable;

/// What is shown of it.
#[derive(Debug, Serialize)]
pub(super) struct Delivery {
    at: String,
    method: String,
    path: String,
    group: Option<String>,
    sequence: Option<String>,
    attempt: Option<String>,
    job: Option<String>,
    content_type: Option<String>,
    bytes: usize,
    flowcatalyst: Check,
    standard_webhooks: Check,
}

/// A scheme's verdict.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Check {
    /// It holds.
    Valid,
    /// It does not, and why.
    Failed(String),
    /// The scheme's headers are not there.
    Absent,
    /// Nobody gave a secret to check it with.
    Unchecked,
}

impl Delivery {
    /// Reads the head and checks both schemes.
    pub(super) fn of(head: &Parts, body: &[u8], secret: Option<&str>, now: Timestamp, tolerance: Duration) -> Self {
        let text = |name| head.headers.get(name).map(|value| printable(&String::from_utf8_lossy(value.as_bytes())));
        Self {
            at: railyard_core::timestamp::utc_millis(now),
            method: head.method.to_string(),
            path: printable(&head.uri.to_string()),
            group: text("x-railyard-group"),
            sequence: text("x-railyard-sequence"),
            attempt: text("x-railyard-attempt"),
            job: text("idempotency-key"),
            content_type: text("content-type"),
            bytes: body.len(),
            flowcatalyst: check(&head.headers, flowcatalyst::SIGNATURE_HEADER, secret, |secret| {
                let timestamp = one(&head.headers, flowcatalyst::TIMESTAMP_HEADER)?;
                let signature = one(&head.headers, flowcatalyst::SIGNATURE_HEADER)?;
                flowcatalyst::verify(secret.as_bytes(), timestamp, signature, body, now, tolerance)
            }),
            standard_webhooks: check(&head.headers, standard::SIGNATURE_HEADER, secret, |secret| {
                let id = one(&head.headers, standard::ID_HEADER)?;
                let timestamp = one(&head.headers, standard::TIMESTAMP_HEADER)?;
                let signature = one(&head.headers, standard::SIGNATURE_HEADER)?;
                standard::verify(secret, id, timestamp, signature, body, now, tolerance)
            }),
        }
    }

    /// A signature is wrong, or none is there although there is a secret.
    pub(super) fn is_forged(&self) -> bool {
        let failed = |check: &Check| matches!(check, Check::Failed(_));
        failed(&self.flowcatalyst)
            || failed(&self.standard_webhooks)
            || (self.flowcatalyst == Check::Absent && self.standard_webhooks == Check::Absent)
    }
}

fn check(
    headers: &HeaderMap,
    signature: &'static str,
    secret: Option<&str>,
    verify: impl FnOnce(&str) -> Result<(), Mismatch>,
) -> Check {
    match secret {
        _ if !headers.contains_key(signature) => Check::Absent,
        None => Check::Unchecked,
        // Two values of one header: a receiver that reads the first and one that reads the last would disagree.
        Some(_) if headers.get_all(signature).iter().count() > 1 => Check::Failed(format!("two headers {signature}")),
        Some(secret) => match verify(secret) {
            Ok(()) => Check::Valid,
            Err(mismatch) => Check::Failed(mismatch.to_string()),
        },
    }
}

fn one<'a>(headers: &'a HeaderMap, name: &'static str) -> Result<&'a str, Mismatch> {
    headers.get(name).and_then(|value| value.to_str().ok()).ok_or(Mismatch::Missing(name))
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Valid => f.write_str("valid"),
            Self::Failed(why) => write!(f, "NOT VALID ({why})"),
            Self::Absent => f.write_str("absent"),
            Self::Unchecked => f.write_str("unchecked"),
        }
    }
}

impl fmt::Display for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let or_none = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
        write!(f, "{} {} {} {} bytes", self.at, self.method, self.path, self.bytes)?;
        write!(f, " · group {} no. {}", or_none(&self.group), or_none(&self.sequence))?;
        write!(f, ", attempt {}, job {}", or_none(&self.attempt), or_none(&self.job))?;
        write!(f, " · flowcatalyst {}, standard webhooks {}", self.flowcatalyst, self.standard_webhooks)
    }
}

#[cfg(test)]
mod tests {
    use axum::http::Request;

    use super::*;

    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    const TOLERANCE: Duration = Duration::from_secs(300);

    fn now() -> Timestamp {
        "2025-10-04T14:30:45.123Z".parse().unwrap()
    }

    /// A request that is signed in both schemes for `body`, with further headers.
    fn head(body: &[u8], more: &[(&str, &str)]) -> Parts {
        let flow = flowcatalyst::sign(SECRET.as_bytes(), now(), body);
        let key = standard::key_of(SECRET).unwrap();
        let mut request = Request::post("/hook")
            .header(flowcatalyst::TIMESTAMP_HEADER, flow.timestamp)
            .header(flowcatalyst::SIGNATURE_HEADER, flow.signature)
            .header(standard::ID_HEADER, "id")
            .header(standard::TIMESTAMP_HEADER, now().as_second().to_string())
            .header(standard::SIGNATURE_HEADER, standard::sign(&[key], "id", now(), body));
        for (name, value) in more {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    fn delivery(head: &Parts, body: &[u8], secret: Option<&str>) -> Delivery {
        Delivery::of(head, body, secret, now(), TOLERANCE)
    }

    #[test]
    fn both_schemes_are_checked() {
        let signed = delivery(&head(b"body", &[("x-railyard-group", "g")]), b"body", Some(SECRET));
        assert_eq!((&signed.flowcatalyst, &signed.standard_webhooks), (&Check::Valid, &Check::Valid));
        assert!(!signed.is_forged());
        assert!(signed.to_string().contains("group g no. -"), "{signed}");
    }

    #[test]
    fn another_body_another_secret_and_a_second_header_fail() {
        assert!(delivery(&head(b"body", &[]), b"b0dy", Some(SECRET)).is_forged());
        assert!(delivery(&head(b"body", &[]), b"body", Some("whsec_AAAA")).is_forged());
        let twice = head(b"body", &[(flowcatalyst::SIGNATURE_HEADER, "0")]);
        assert!(matches!(delivery(&twice, b"body", Some(SECRET)).flowcatalyst, Check::Failed(_)));
    }

    #[test]
    fn unsigned_is_forged_and_no_secret_is_unchecked() {
        let bare = Request::post("/").body(()).unwrap().into_parts().0;
        assert!(delivery(&bare, b"", Some(SECRET)).is_forged());
        let unchecked = delivery(&head(b"body", &[]), b"body", None);
        assert_eq!(unchecked.flowcatalyst, Check::Unchecked);
        assert!(!unchecked.is_forged());
    }
}
