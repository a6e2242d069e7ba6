//! A job as it is accepted, from the API or from a producer's own transaction, and what is checked before it is.

use std::collections::BTreeMap;

use jiff::Timestamp;
use url::Url;

use crate::backoff::RetryStrategy;
use crate::headers;
use crate::ids::{CredentialsId, ParticipantId};
use crate::limits::{
    ATTEMPTS_MAX, ATTEMPTS_MIN, CONTENT_TYPE_BYTES_MAX, EXTERNAL_ID_CHARS_MAX, GROUP_CHARS_MAX, KEY_CHARS_MAX,
    METADATA_KEY_BYTES_MAX, METADATA_MAX, METADATA_VALUE_BYTES_MAX, NAME_BYTES_MAX, RAIL_NAME_BYTES_MAX,
    SOURCE_RESERVED, TARGET_URL_BYTES_MAX, TIMEOUT_S_DEFAULT, TIMEOUT_S_MAX, TIMEOUT_S_MIN,
};
use crate::mode::Mode;
use crate::rail::{RailKind, WEBHOOK};

/// A job with every default filled in.
#[derive(Clone, PartialEq, Eq)]
pub struct NewJob {
    /// The system that it comes from; idempotency keys are unique within it.
    pub source: String,
    /// What it is, in the producer's words (`order.created`).
    pub kind: String,
    /// The producer's own id.
    pub external_id: Option<String>,
    /// Its group.
    pub group: Option<ParticipantId>,
    /// Order and blocking.
    pub mode: Mode,
    /// The rail's name.
    pub rail_type: String,
    /// A pool with a cluster-wide limit.
    pub pool: Option<String>,
    /// Where it goes.
    pub target_url: String,
    /// The bytes to sign and send.
    pub payload: bytes::Bytes,
    /// Content-Type of the call.
    pub payload_content_type: String,
    /// Who signs.
    pub credentials_id: Option<CredentialsId>,
    /// Deliveries in all.
    pub max_attempts: u32,
    /// How long after a failure the next attempt comes.
    pub retry: RetryStrategy,
    /// Deadline of one call.
    pub timeout_s: u32,
    /// The job's own headers.
    pub headers: Vec<(String, String)>,
    /// For search.
    pub metadata: BTreeMap<String, String>,
    /// Not before.
    pub scheduled_for: Option<Timestamp>,
    /// Not after.
    pub expires_at: Option<Timestamp>,
    /// Same key, same source, same content: the same job.
    pub idempotency_key: Option<String>,
    /// S2's instruction.
    pub instruction_id: Option<String>,
    /// W3C trace context of the producer.
    pub traceparent: Option<String>,
}

/// One thing that is wrong with a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// The field's name in the API (`targetUrl`); entries of metadata as `metadata.key`.
    pub field: String,
    /// What is wrong with it. Repeats no value but names and numbers.
    pub detail: String,
}

impl NewJob {
    /// A job with the defaults of its rail's kind.
    #[must_use]
    pub fn new(source: &str, kind: &str, rail: RailKind, target_url: &str, payload: bytes::Bytes) -> Self {
        Self {
            source: source.to_owned(),
            kind: kind.to_owned(),
            external_id: None,
            group: None,
            mode: rail.default_mode(),
            rail_type: match rail {
                RailKind::Webhook => WEBHOOK.to_owned(),
                RailKind::Payment => crate::rail::PAYMENT_WEBHOOK.to_owned(),
            },
            pool: None,
            target_url: target_url.to_owned(),
            payload,
            payload_content_type: "application/json".to_owned(),
            credentials_id: None,
            max_attempts: rail.default_max_attempts(),
            retry: RetryStrategy::Exponential,
            timeout_s: TIMEOUT_S_DEFAULT,
            headers: Vec::new(),
            metadata: BTreeMap::new(),
            scheduled_for: None,
            expires_at: None,
            idempotency_key: None,
            instruction_id: None,
            traceparent: None,
        }
    }

    /// Checks every field; how long the payload may be, the configuration says.
    ///
    /// # Errors
    /// Everything that is wrong, not only the first.
    pub fn validate(&self) -> Result<(), Vec<FieldError>> {
        let mut found = Found::default();
        self.check_names(&mut found);
        self.check_call(&mut found);
        found.budget(self.max_attempts, self.timeout_s);
        if let (Some(from), Some(to)) = (self.scheduled_for, self.expires_at)
            && to <= from
        {
            found.add("expiresAt", "is not after scheduledFor".to_owned());
        }
        found.metadata(&self.metadata, METADATA_MAX);
        found.end()
    }

    /// The target's origin, key of caps and breakers; none if the target is not one that can be called.
    #[must_use]
    pub fn endpoint(&self) -> Option<String> {
        endpoint_of(&self.target_url).ok()
    }

    fn check_names(&self, found: &mut Found) {
        found.source(&self.source);
        found.required("type", &self.kind, NAME_BYTES_MAX);
        if let Some(id) = &self.external_id {
            found.text("externalId", id, EXTERNAL_ID_CHARS_MAX * 4);
            let chars = id.chars().count();
            if chars > EXTERNAL_ID_CHARS_MAX {
                found.add("externalId", format!("has {chars} characters; at most {EXTERNAL_ID_CHARS_MAX} are taken"));
            }
        }
        if let Some(group) = &self.group {
            found.required_chars("groupId", group.as_str(), GROUP_CHARS_MAX);
            // The group's name goes out in a header.
            if group.as_str().chars().any(|c| c.is_ascii_control() && c != '\0') {
                found.add("groupId", "has a control character".to_owned());
            }
        }
        found.name("railType", &self.rail_type, RAIL_NAME_BYTES_MAX);
        if let Some(pool) = &self.pool {
            found.name("pool", pool, RAIL_NAME_BYTES_MAX);
        }
        if let Some(key) = &self.idempotency_key {
            found.required_chars("idempotencyKey", key, KEY_CHARS_MAX);
        }
        if let Some(id) = &self.instruction_id {
            found.required_chars("instructionId", id, KEY_CHARS_MAX);
        }
        if self.traceparent.as_deref().is_some_and(|text| !traceparent_is_valid(text)) {
            found.add("traceparent", "is not a W3C trace context".to_owned());
        }
    }

    fn check_call(&self, found: &mut Found) {
        found.target(&self.target_url);
        let content_type = &self.payload_content_type;
        found.text("payloadContentType", content_type, CONTENT_TYPE_BYTES_MAX);
        if !content_type_is_valid(content_type) {
            found.add("payloadContentType", "is not a media type".to_owned());
        }
        found.credentials(self.credentials_id);
        found.headers(&self.headers);
    }
}

impl std::fmt::Debug for NewJob {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NewJob")
            .field("source", &self.source)
            .field("kind", &self.kind)
            .field("external_id", &self.external_id)
            .field("group", &self.group)
            .field("rail_type", &self.rail_type)
            .field("payload_bytes", &self.payload.len())
            .finish_non_exhaustive()
    }
}

/// Why a target cannot be called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// No URL at all, or none with `://` and a host behind its scheme: parsers supply what is missing, SQL does not.
    #[error("is not a URL like https://host/path")]
    NotAUrl,
    /// Over [`TARGET_URL_BYTES_MAX`].
    #[error("is longer than {TARGET_URL_BYTES_MAX} bytes")]
    TooLong,
    /// Whitespace and control characters, which URL parsers drop in silence.
    #[error("has a space or a control character")]
    Characters,
    /// Neither of the two.
    #[error("is neither http nor https")]
    Scheme,
    /// No host, or port 0.
    #[error("has no host and port that can be called")]
    Host,
    /// `user:password@`: secrets belong into credentials, where they are encrypted.
    #[error("has a user name or password in it")]
    UserInfo,
}

/// The origin of a target with its port, `https://example.com:443`: what caps and breakers count by.
///
/// ```
/// use railyard_core::job::endpoint_of;
/// assert_eq!(endpoint_of("HTTPS://Example.com./a?b=c").unwrap(), "https://example.com:443");
/// ```
///
/// # Errors
/// Why it cannot be called. Whether the address behind it may be is decided when connecting.
pub fn endpoint_of(target_url: &str) -> Result<String, TargetError> {
    if target_url.len() > TARGET_URL_BYTES_MAX {
        return Err(TargetError::TooLong);
    }
    if target_url.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return Err(TargetError::Characters);
    }
    let url = Url::parse(target_url).map_err(|_| TargetError::NotAUrl)?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(TargetError::Scheme);
    }
    let behind = target_url.get(url.scheme().len()..).and_then(|rest| rest.strip_prefix("://")).unwrap_or_default();
    let authority = behind.split(['/', '?', '#']).next().unwrap_or_default();
    if authority.is_empty() || authority.contains('\\') {
        return Err(TargetError::NotAUrl);
    }
    if authority.contains('@') {
        return Err(TargetError::UserInfo);
    }
    // The dot at the end of `example.com.` changes the look-up and not the receiver.
    let host = url.host_str().map(|host| host.trim_end_matches('.')).filter(|host| !host.is_empty());
    match (host, url.port_or_known_default()) {
        (Some(host), Some(port)) if port > 0 => Ok(format!("{}://{host}:{port}", url.scheme())),
        (Some(_) | None, Some(_) | None) => Err(TargetError::Host),
    }
}

/// `00-` trace id `-` parent id `-` flags, all in lower-case hex, neither id zero.
#[must_use]
pub fn traceparent_is_valid(text: &str) -> bool {
    let hex =
        |part: &str, len: usize| part.len() == len && part.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    let id = |part: &str, len| hex(part, len) && part.bytes().any(|b| b != b'0');
    let parts: Vec<&str> = text.split('-').collect();
    match parts.as_slice() {
        [version, trace, parent, flags] => {
            hex(version, 2) && *version != "ff" && id(trace, 32) && id(parent, 16) && hex(flags, 2)
        }
        _ => false,
    }
}

fn content_type_is_valid(text: &str) -> bool {
    let (essence, _) = text.split_once(';').unwrap_or((text, ""));
    let known = essence.trim_end().split_once('/');
    known.is_some_and(|(kind, subtype)| headers::is_token(kind) && headers::is_token(subtype))
        && text.is_ascii()
        && headers::value_is_valid(text)
}

/// Collects errors, so that one answer names them all.
#[derive(Default)]
pub(crate) struct Found(Vec<FieldError>);

impl Found {
    /// What was found.
    pub(crate) fn end(self) -> Result<(), Vec<FieldError>> {
        if self.0.is_empty() { Ok(()) } else { Err(self.0) }
    }

    pub(crate) fn add(&mut self, field: &str, detail: String) {
        self.0.push(FieldError { field: field.to_owned(), detail });
    }

    /// Where calls go.
    pub(crate) fn target(&mut self, target_url: &str) {
        if let Err(error) = endpoint_of(target_url) {
            self.add("targetUrl", error.to_string());
        }
    }

    pub(crate) fn credentials(&mut self, id: Option<CredentialsId>) {
        if id.is_none() {
            self.add("credentialsId", "is missing; nothing is sent unsigned".to_owned());
        }
    }

    /// How often and how long.
    pub(crate) fn budget(&mut self, max_attempts: u32, timeout_s: u32) {
        if !(ATTEMPTS_MIN..=ATTEMPTS_MAX).contains(&max_attempts) {
            self.add("maxRetries", format!("is not between {ATTEMPTS_MIN} and {ATTEMPTS_MAX}"));
        }
        if !(TIMEOUT_S_MIN..=TIMEOUT_S_MAX).contains(&timeout_s) {
            self.add("timeoutSeconds", format!("is not between {TIMEOUT_S_MIN} and {TIMEOUT_S_MAX}"));
        }
    }

    pub(crate) fn headers(&mut self, given: &[(String, String)]) {
        for error in headers::check(given).err().into_iter().flatten() {
            self.add("headers", error.to_string());
        }
    }

    pub(crate) fn metadata(&mut self, entries: &BTreeMap<String, String>, entries_max: usize) {
        if entries.len() > entries_max {
            self.add("metadata", format!("has {} entries; at most {entries_max} are taken", entries.len()));
            return;
        }
        for (key, value) in entries {
            let field = format!("metadata.{}", crate::text::clean_str(key, METADATA_KEY_BYTES_MAX));
            self.required(&field, key, METADATA_KEY_BYTES_MAX);
            self.text(&field, value, METADATA_VALUE_BYTES_MAX);
        }
    }

    /// Text that PostgreSQL can store, no longer than its column's bound.
    pub(crate) fn text(&mut self, field: &str, text: &str, bytes_max: usize) {
        if text.contains('\0') {
            self.add(field, "has a NUL character".to_owned());
        }
        if text.len() > bytes_max {
            self.add(field, format!("has {} bytes; at most {bytes_max} are taken", text.len()));
        }
    }

    pub(crate) fn required(&mut self, field: &str, text: &str, bytes_max: usize) {
        if text.trim().is_empty() {
            self.add(field, "is missing or blank".to_owned());
        }
        self.text(field, text, bytes_max);
    }

    /// The system that something comes from: not Railyard itself, whose own jobs are told by it.
    pub(crate) fn source(&mut self, text: &str) {
        self.required("source", text, NAME_BYTES_MAX);
        if text == SOURCE_RESERVED {
            self.add("source", format!("is {SOURCE_RESERVED:?}, which is what scheduled items come from"));
        }
    }

    /// As [`Found::required`], for what the database bounds in characters.
    pub(crate) fn required_chars(&mut self, field: &str, text: &str, chars_max: usize) {
        self.required(field, text, usize::MAX);
        let chars = text.chars().count();
        if chars > chars_max {
            self.add(field, format!("has {chars} characters; at most {chars_max} are taken"));
        }
    }

    /// A name in the configuration's alphabet.
    pub(crate) fn name(&mut self, field: &str, text: &str, bytes_max: usize) {
        let known = text.bytes().all(|b| b.is_ascii_alphanumeric() || b"_.-".contains(&b));
        if text.is_empty() || text.len() > bytes_max || !known {
            self.add(field, format!("is not 1 to {bytes_max} letters, digits, '_', '.' or '-'"));
        }
    }
}

#[cfg(test)]
mod tests;
