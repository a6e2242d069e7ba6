//! What an answer means: one table, the same for tests, documents and the rail.
//!
//! | answer | outcome |
//! | --- | --- |
//! | 2xx | delivered; a whole JSON body with `"ack": false` is a deferral, no budget spent |
//! | 429; 503 with a readable Retry-After | deferral, no budget spent |
//! | 3xx, 410 | terminal |
//! | 4xx and 5xx on a payment rail whose body says so | as the body says: `retryable`, else the code |
//! | 408, 425, 5xx and what is no known class | retryable |
//! | other 4xx | webhook: retryable; payment without a code: [`TERMINAL_WITHOUT_CODE`] terminal, the rest retryable |
//!
//! The body of a refusal is read field by field and compared letter for letter; the word "declined" somewhere in a
//! text means nothing.

use std::time::{Duration, SystemTime};

use crate::error_code::ErrorCode;
use crate::json_fields::{Field, Fields, string_of};
use crate::limits::{DEFERRAL_DEFAULT, DEFERRAL_MIN, RAIL_CODE_CHARS_MAX, RAIL_REFERENCE_CHARS_MAX};
use crate::outcome::{Answer, CallOutcome};
use crate::rail::RailKind;
use crate::retry_after::retry_after;
use crate::text::clean_str;

/// Refusals of a payment rail that a repeat cannot change, where the rail gives no code.
pub const TERMINAL_WITHOUT_CODE: [u16; 9] = [400, 401, 403, 404, 405, 409, 413, 415, 422];

const FIELDS: &[&str] = &["ack", "delaySeconds", "railCode", "code", "railReference", "reference", "retryable"];

/// How a rail's answers are read.
#[derive(Clone, Copy, Debug)]
pub struct Rules<'a> {
    /// Its kind.
    pub kind: RailKind,
    /// Codes that end a payment, letter for letter. Codes that are not here are retryable.
    pub terminal_codes: &'a [String],
    /// The longest wait that a receiver may ask for.
    pub deferral_cap: Duration,
}

/// What came back.
#[derive(Clone, Debug, Default)]
pub struct Received {
    /// HTTP status.
    pub status: u16,
    /// The first Retry-After header.
    pub retry_after: Option<String>,
    /// The Date header.
    pub date: Option<String>,
    /// The body, as far as it was kept.
    pub body: Vec<u8>,
    /// More came than was kept.
    pub truncated: bool,
}

/// Decides what an answer means. `now` is only held against a Retry-After date that comes without a Date.
#[must_use]
pub fn classify(rules: Rules<'_>, received: Received, now: SystemTime) -> CallOutcome {
    let said = Said::read(rules.kind, &received.body);
    let wait = |asked: Option<Duration>| asked.unwrap_or(DEFERRAL_DEFAULT).min(rules.deferral_cap).max(DEFERRAL_MIN);
    let asked = received
        .retry_after
        .as_deref()
        .and_then(|value| retry_after(value, received.date.as_deref(), now, rules.deferral_cap));
    let status = received.status;
    let answer = Answer {
        status,
        rail_reference: said.reference,
        rail_code: said.code.as_deref().map(|code| clean_str(code, RAIL_CODE_CHARS_MAX)),
        body: received.body,
        truncated: received.truncated,
    };
    let failed = |code, detail: &str, answer, retryable| CallOutcome::Failed {
        code,
        detail: format!("the receiver answered {status}{detail}"),
        answer: Some(answer),
        retryable,
    };
    match status {
        200..=299 => match said.not_acknowledged {
            Some(delay) => CallOutcome::Deferred { answer, after: wait(delay), code: ErrorCode::NotAcknowledged },
            None => CallOutcome::Delivered(answer),
        },
        429 => CallOutcome::Deferred { answer, after: wait(asked), code: ErrorCode::RateLimited },
        503 if asked.is_some() => {
            CallOutcome::Deferred { answer, after: wait(asked), code: ErrorCode::ServiceUnavailable }
        }
        300..=399 => failed(ErrorCode::RedirectRefused(status), "; redirects are not followed", answer, false),
        410 => failed(ErrorCode::Gone, ": gone for good", answer, false),
        400..=599 => {
            let verdict = match rules.kind {
                RailKind::Webhook => None,
                RailKind::Payment => {
                    said.retryable.or_else(|| said.code.as_ref().map(|code| !rules.terminal_codes.contains(code)))
                }
            };
            let no_code_ends = rules.kind == RailKind::Payment && TERMINAL_WITHOUT_CODE.contains(&status);
            match verdict {
                Some(false) => failed(ErrorCode::RailRefused, " and that a retry is useless", answer, false),
                Some(true) => failed(ErrorCode::HttpStatus(status), "", answer, true),
                None => failed(ErrorCode::HttpStatus(status), "", answer, !no_code_ends),
            }
        }
        0..=199 | 600.. => failed(ErrorCode::HttpStatus(status), ", which is no final status", answer, true),
    }
}

/// What the body says, as far as anybody may rely on it.
#[derive(Default)]
struct Said {
    /// `"ack": false`, with the wait it asks for.
    not_acknowledged: Option<Option<Duration>>,
    code: Option<String>,
    reference: Option<String>,
    retryable: Option<bool>,
}

impl Said {
    fn read(kind: RailKind, body: &[u8]) -> Self {
        let fields = Fields::read(body, FIELDS);
        // A body that broke off is no body: the status is all that came.
        let refused = fields.complete && fields.get("ack").once() == Some("false");
        let mut said = Self {
            not_acknowledged: refused.then(|| fields.get("delaySeconds").once().and_then(seconds)),
            ..Self::default()
        };
        if kind == RailKind::Payment {
            let text = |first, second| {
                let field = if fields.get(first) == Field::Missing { fields.get(second) } else { fields.get(first) };
                field.once().and_then(code_of)
            };
            said.code = text("railCode", "code");
            said.reference = text("railReference", "reference").map(|it| clean_str(&it, RAIL_REFERENCE_CHARS_MAX));
            said.retryable = match fields.get("retryable").once() {
                Some("true") => Some(true),
                Some("false") => Some(false),
                Some(_) | None => None,
            };
        }
        said
    }
}

/// A string that is not blank, or a number as it is written: rails have both kinds of codes.
fn code_of(json: &str) -> Option<String> {
    match json.as_bytes().first()? {
        b'"' => string_of(json).filter(|text| !text.trim().is_empty()),
        b'-' | b'0'..=b'9' => Some(json.to_owned()),
        _ => None,
    }
}

/// A wait in seconds. Fractions are taken, negative numbers and whatever is no number are not.
fn seconds(json: &str) -> Option<Duration> {
    let seconds: f64 = serde_json::from_str(json).ok()?;
    if seconds < 0.0 {
        return None;
    }
    // Out of range is only a very long wait; the caller caps it.
    Some(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX))
}

#[cfg(test)]
mod tests;
