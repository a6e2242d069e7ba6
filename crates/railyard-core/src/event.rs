//! An event as it is accepted, and who wants which.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::backoff::RetryStrategy;
use crate::headers::HeaderError;
use crate::ids::CredentialsId;
use crate::job::{FieldError, Found};
use crate::limits::{KEY_CHARS_MAX, METADATA_MAX, NAME_BYTES_MAX, TIMEOUT_S_DEFAULT};
use crate::mode::Mode;
use crate::rail::RailKind;

/// Entries of an event's metadata: its jobs have two of their own beside them (`eventId`, `subscription`).
pub const EVENT_METADATA_MAX: usize = METADATA_MAX - 2;
/// Characters of a subscription's name.
pub const SUBSCRIPTION_NAME_CHARS_MAX: usize = 64;
/// Headers of a subscription's own: its jobs say what event they carry beside them.
pub const SUBSCRIPTION_HEADERS_MAX: usize = 40;

/// An event.
#[derive(Clone, PartialEq, Eq)]
pub struct NewEvent {
    /// The producer's own id; its key where no `deduplication_id` is given.
    pub external_id: Option<String>,
    /// What happened (`order.created`); what subscriptions match.
    pub kind: String,
    /// The system that it comes from; keys are unique within it.
    pub source: String,
    /// What it happened to.
    pub subject: Option<String>,
    /// JSON text, byte for byte what is sent on; none is an empty body.
    pub data: Option<bytes::Bytes>,
    /// When it happened, by the producer's word.
    pub time: Option<Timestamp>,
    /// What it belongs to, for who follows a trace.
    pub correlation_id: Option<String>,
    /// Events of one group arrive in their order, at each subscriber by itself.
    pub message_group: Option<String>,
    /// Same key, same source, same content: the same event.
    pub deduplication_id: Option<String>,
    /// For search, on its jobs.
    pub metadata: BTreeMap<String, String>,
}

impl NewEvent {
    /// Checks every field; how long the data may be, the configuration says.
    ///
    /// # Errors
    /// Everything that is wrong, not only the first.
    pub fn validate(&self) -> Result<(), Vec<FieldError>> {
        let mut found = Found::default();
        found.required("type", &self.kind, NAME_BYTES_MAX);
        found.source(&self.source);
        for (field, given) in [
            ("id", &self.external_id),
            ("subject", &self.subject),
            ("correlationId", &self.correlation_id),
            ("messageGroup", &self.message_group),
            ("deduplicationId", &self.deduplication_id),
        ] {
            if let Some(text) = given {
                found.required_chars(field, text, KEY_CHARS_MAX);
            }
        }
        if self.message_group.as_deref().is_some_and(|group| group.chars().any(|c| c.is_ascii_control())) {
            found.add("messageGroup", "has a control character".to_owned());
        }
        found.metadata(&self.metadata, EVENT_METADATA_MAX);
        found.end()
    }
}

impl std::fmt::Debug for NewEvent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NewEvent").field("kind", &self.kind).field("source", &self.source).finish_non_exhaustive()
    }
}

/// Whether this is a pattern of types: `*` (all), `order.*` (all that begin with `order.`), or one type as it is.
///
/// ```
/// use railyard_core::event::pattern_is_valid;
/// assert!(pattern_is_valid("*") && pattern_is_valid("order.*") && pattern_is_valid("order.created"));
/// assert!(!pattern_is_valid("order.*.eu") && !pattern_is_valid("ord*") && !pattern_is_valid(".*"));
/// ```
#[must_use]
pub fn pattern_is_valid(pattern: &str) -> bool {
    let exact = |text: &str| !text.trim().is_empty() && !text.contains('*');
    pattern == "*" || exact(pattern.strip_suffix(".*").unwrap_or(pattern))
}

/// Who wants which events, and how they are sent there.
#[derive(Clone, PartialEq, Eq)]
pub struct NewSubscription {
    /// Its name, unique.
    pub name: String,
    /// Which types, see [`pattern_is_valid`].
    pub type_pattern: String,
    /// Of which source alone.
    pub source: Option<String>,
    /// Where its jobs go.
    pub target_url: String,
    /// Who signs.
    pub credentials_id: Option<CredentialsId>,
    /// Order and blocking of its jobs.
    pub mode: Mode,
    /// Deliveries in all.
    pub max_attempts: u32,
    /// How long after a failure the next attempt comes.
    pub retry: RetryStrategy,
    /// Deadline of one call.
    pub timeout_s: u32,
    /// Headers of its jobs.
    pub headers: Vec<(String, String)>,
}

impl NewSubscription {
    /// With the defaults of webhooks.
    #[must_use]
    pub fn new(name: &str, type_pattern: &str, target_url: &str) -> Self {
        Self {
            name: name.to_owned(),
            type_pattern: type_pattern.to_owned(),
            source: None,
            target_url: target_url.to_owned(),
            credentials_id: None,
            mode: RailKind::Webhook.default_mode(),
            max_attempts: RailKind::Webhook.default_max_attempts(),
            retry: RetryStrategy::Exponential,
            timeout_s: TIMEOUT_S_DEFAULT,
            headers: Vec::new(),
        }
    }

    /// Checks every field.
    ///
    /// # Errors
    /// Everything that is wrong, not only the first.
    pub fn validate(&self) -> Result<(), Vec<FieldError>> {
        let mut found = Found::default();
        found.name("name", &self.name, SUBSCRIPTION_NAME_CHARS_MAX);
        found.required("typePattern", &self.type_pattern, NAME_BYTES_MAX);
        if !pattern_is_valid(&self.type_pattern) {
            found.add("typePattern", "is neither *, nor a type, nor the beginning of one with .* behind it".to_owned());
        }
        if let Some(source) = &self.source {
            found.required("source", source, NAME_BYTES_MAX);
        }
        found.target(&self.target_url);
        found.credentials(self.credentials_id);
        found.budget(self.max_attempts, self.timeout_s);
        if self.headers.len() > SUBSCRIPTION_HEADERS_MAX {
            found.add("headers", format!("has more than {SUBSCRIPTION_HEADERS_MAX} entries"));
        }
        found.headers(&self.headers);
        for (name, _) in self.headers.iter().filter(|(name, _)| is_about_event(name)) {
            found.add("headers", HeaderError::Reserved(name.clone()).to_string());
        }
        found.end()
    }
}

/// `ce-*`, in whatever letters: its jobs say so which event they carry. Other jobs may have such headers of their own.
fn is_about_event(name: &str) -> bool {
    name.get(..3).is_some_and(|start| start.eq_ignore_ascii_case("ce-"))
}

impl std::fmt::Debug for NewSubscription {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NewSubscription").field("name", &self.name).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(change: impl FnOnce(&mut NewEvent)) -> Vec<String> {
        let mut event = NewEvent {
            external_id: None,
            kind: "order.created".to_owned(),
            source: "shop".to_owned(),
            subject: None,
            data: Some(bytes::Bytes::from_static(b"{}")),
            time: None,
            correlation_id: None,
            message_group: None,
            deduplication_id: None,
            metadata: BTreeMap::new(),
        };
        change(&mut event);
        let errors = event.validate().err().unwrap_or_default();
        errors.into_iter().map(|error| error.field).collect()
    }

    #[test]
    fn every_wrong_field_of_an_event_is_named() {
        assert!(refused(|_| ()).is_empty());
        let fields = refused(|event| {
            event.kind = " ".to_owned();
            event.source = "a\0".to_owned();
            event.external_id = Some("x".repeat(KEY_CHARS_MAX + 1));
            event.message_group = Some("a\nb".to_owned());
        });
        assert_eq!(fields, ["type", "source", "id", "messageGroup"]);
        assert_eq!(refused(|event| event.source = "dispatch".to_owned()), ["source"]);
        let many = (0..49).map(|n| (n.to_string(), String::new())).collect();
        assert_eq!(refused(|event| event.metadata = many), ["metadata"]);
    }

    #[test]
    fn every_wrong_field_of_a_subscription_is_named() {
        let mut subscription = NewSubscription::new("a b", "ord*", "ftp://x");
        subscription.max_attempts = 0;
        let fields: Vec<String> = subscription.validate().unwrap_err().into_iter().map(|error| error.field).collect();
        assert_eq!(fields, ["name", "typePattern", "targetUrl", "credentialsId", "maxRetries"]);
    }

    #[test]
    fn the_headers_of_events_are_not_a_subscriptions_own() {
        let mut subscription = NewSubscription::new("a", "*", "https://x");
        subscription.credentials_id = Some(CredentialsId(uuid::Uuid::nil()));
        for (name, refused) in
            [("CE-ID", true), ("ce-other", true), ("ce", false), ("cer-a", false), ("x-ce-id", false)]
        {
            subscription.headers = vec![(name.to_owned(), "x".to_owned())];
            assert_eq!(subscription.validate().is_err(), refused, "{name}");
        }
    }
}
