//! The headers of a call, in this order: the job's own, then ours over them. Nothing that a job brings can stand
//! where a signature or a token belongs: its headers were checked when it was accepted, and are checked again here,
//! since a producer may have written its row by SQL.

use http::header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, USER_AGENT};
use jiff::Timestamp;
use railyard_core::job::{endpoint_of, traceparent_is_valid};
use railyard_core::signing::{flowcatalyst, standard};
use railyard_core::{Message, headers};
use url::Url;

use crate::credentials::Credentials;

/// The group, if the job has one.
pub const GROUP_HEADER: &str = "X-Railyard-Group";
/// The place in the group, if the job has one.
pub const SEQUENCE_HEADER: &str = "X-Railyard-Sequence";
/// Counts deliveries begun, from 1: a receiver that saw a higher one may refuse a lower one.
pub const ATTEMPT_HEADER: &str = "X-Railyard-Attempt";
/// The same on every attempt and every replay.
pub const IDEMPOTENCY_HEADER: &str = "Idempotency-Key";
/// W3C trace context.
pub const TRACEPARENT_HEADER: &str = "traceparent";

const AGENT: &str = concat!("Railyard/", env!("CARGO_PKG_VERSION"));

/// Why a message cannot be sent as it stands; for people, without values.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unsendable(String);

/// Where the message goes.
///
/// # Errors
/// The target is not one that can be called.
pub fn target(message: &Message) -> Result<Url, Unsendable> {
    endpoint_of(&message.target_url).map_err(|error| Unsendable(format!("target URL {error}")))?;
    Url::parse(&message.target_url).map_err(|error| Unsendable(format!("target URL: {error}")))
}

/// All headers but those that the connection makes (Host, Content-Length), signed as of `now`.
///
/// # Errors
/// A header that cannot be sent; the detail names it.
pub fn headers_of(message: &Message, credentials: &Credentials, now: Timestamp) -> Result<HeaderMap, Unsendable> {
    let mut built = Built(HeaderMap::with_capacity(message.headers.len() + 16));
    if let Some(error) = headers::check(&message.headers).err().and_then(|errors| errors.into_iter().next()) {
        return Err(Unsendable(error.to_string()));
    }
    for (name, value) in &message.headers {
        built.put(name, value, false)?;
    }
    built.put(CONTENT_TYPE.as_str(), &message.payload_content_type, false)?;
    built.put(USER_AGENT.as_str(), AGENT, false)?;
    if message.payload.is_empty() {
        // The connection leaves it out then, and some receivers answer 411.
        built.put(CONTENT_LENGTH.as_str(), "0", false)?;
    }
    if let Some(token) = credentials.bearer_token(now) {
        built.put(AUTHORIZATION.as_str(), &format!("Bearer {token}"), true)?;
    }
    let body = &message.payload;
    let id = message.outbox_id.to_string();
    if let Some(signed) = credentials.flowcatalyst(now, body) {
        built.put(flowcatalyst::TIMESTAMP_HEADER, &signed.timestamp, false)?;
        built.put(flowcatalyst::SIGNATURE_HEADER, &signed.signature, false)?;
    }
    if let Some(signature) = credentials.standard(&id, now, body) {
        built.put(standard::ID_HEADER, &id, false)?;
        built.put(standard::TIMESTAMP_HEADER, &now.as_second().to_string(), false)?;
        built.put(standard::SIGNATURE_HEADER, &signature, false)?;
    }
    built.put(IDEMPOTENCY_HEADER, &message.rail_key.to_string(), false)?;
    if let Some(group) = &message.participant_id {
        built.put(GROUP_HEADER, &printable(group.as_str()), false)?;
    }
    if let Some(sequence) = message.sequence_id {
        built.put(SEQUENCE_HEADER, &sequence.0.to_string(), false)?;
    }
    built.put(ATTEMPT_HEADER, &message.attempt_no.to_string(), false)?;
    if let Some(context) = message.traceparent.as_deref().filter(|context| traceparent_is_valid(context)) {
        built.put(TRACEPARENT_HEADER, context, false)?;
    }
    Ok(built.0)
}

struct Built(HeaderMap);

impl Built {
    /// Puts a header in the place of any other of that name.
    fn put(&mut self, name: &str, value: &str, secret: bool) -> Result<(), Unsendable> {
        let bad = |what| Unsendable(format!("header {name:?} has a bad {what}"));
        let parsed = HeaderName::from_bytes(name.as_bytes()).map_err(|_| bad("name"))?;
        let mut value = HeaderValue::from_bytes(value.as_bytes()).map_err(|_| bad("value"))?;
        value.set_sensitive(secret);
        self.0.insert(parsed, value);
        Ok(())
    }
}

/// A group's name with its control characters as `%0A`: a group that came in by SQL must not be stuck on its name.
fn printable(group: &str) -> String {
    let mut text = String::with_capacity(group.len());
    for c in group.chars() {
        if c.is_ascii_control() {
            text.push_str(&format!("%{:02X}", u32::from(c)));
        } else {
            text.push(c);
        }
    }
    text
}
