//! S3's request body.

use std::collections::BTreeMap;

use bytes::Bytes;
use railyard_core::backoff::RetryStrategy;
use railyard_core::job::{FieldError, NewJob, traceparent_is_valid};
use railyard_core::limits::{
    ATTEMPTS_MAX, ATTEMPTS_MIN, CONTENT_TYPE_BYTES_MAX, EXTERNAL_ID_CHARS_MAX, GROUP_CHARS_MAX, HEADERS_BYTES_MAX,
    HEADERS_MAX, KEY_CHARS_MAX, METADATA_KEY_BYTES_MAX, METADATA_MAX, METADATA_VALUE_BYTES_MAX, NAME_BYTES_MAX,
    RAIL_NAME_BYTES_MAX, TARGET_URL_BYTES_MAX, TIMEOUT_S_MAX, TIMEOUT_S_MIN,
};
use railyard_core::rail::{RailKind, WEBHOOK};
use railyard_core::{CredentialsId, Mode, ParticipantId};
use railyard_store::rails::RailSpec;
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use crate::fields::Fields;
use crate::openapi::shape::{
    Shape, any_text, anything, filled, formed, map, named, of_format, text, time, uuid, whole, word,
};
use crate::problem::Problem;
use crate::state::ApiState;

/// The one protocol there is (S3-03).
pub(crate) const PROTOCOL: &str = "HTTP_WEBHOOK";

/// Names that stand in configuration files.
const NAME_FORM: &str = "^[A-Za-z0-9_.-]+$";
/// A group's name goes out in a header.
pub(crate) const GROUP_FORM: &str = r"^[^\u0000-\u001f\u007f]*[^\u0000-\u001f\u007f\s][^\u0000-\u001f\u007f]*$";
pub(crate) const HEADER_NAME_FORM: &str = r"^[A-Za-z0-9!#$%&'*+.^_`|~-]+$";
pub(crate) const HEADER_VALUE_FORM: &str = r"^[^\u0000-\u0008\u000a-\u001f\u007f]*$";
const TRACE_FORM: &str = "^(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}$";
const TRACE_CHARS: usize = 55;

/// S3's body, and what we add to it. What it leaves out comes from its rail.
pub(super) struct JobBody;

impl ToSchema for JobBody {}

impl PartialSchema for JobBody {
    fn schema() -> RefOr<Schema> {
        Shape::new(
            "A job. What it leaves out comes from its rail. Bounds of `externalId`, `id`, `groupId`, `idempotencyKey` \
             and `instructionId` count characters, other bounds of text bytes of UTF-8. `id` is the `externalId` and \
             the `idempotencyKey` where those are missing. `pool` is kept and shown and has no effect yet, `queueUrl` \
             is taken and has none.",
        )
        .required("source", named(NAME_BYTES_MAX))
        .required("type", named(NAME_BYTES_MAX))
        .required("targetUrl", of_format("uri", TARGET_URL_BYTES_MAX))
        .required("payload", any_text())
        .optional("payloadContentType", of_format("media-type", CONTENT_TYPE_BYTES_MAX))
        .optional("credentialsId", uuid())
        .optional("serviceAccountId", uuid())
        .optional("externalId", filled(EXTERNAL_ID_CHARS_MAX))
        .optional("id", named(EXTERNAL_ID_CHARS_MAX))
        .optional("groupId", formed(GROUP_FORM, GROUP_CHARS_MAX))
        .optional("mode", word(&Mode::ALL, Mode::as_str))
        .optional("railType", formed(NAME_FORM, RAIL_NAME_BYTES_MAX))
        .optional("pool", formed(NAME_FORM, RAIL_NAME_BYTES_MAX))
        .optional("protocol", word(&[PROTOCOL], |said| said))
        .optional(
            "headers",
            map(formed(HEADER_NAME_FORM, HEADERS_BYTES_MAX), formed(HEADER_VALUE_FORM, HEADERS_BYTES_MAX), HEADERS_MAX),
        )
        .optional("metadata", map(named(METADATA_KEY_BYTES_MAX), text(METADATA_VALUE_BYTES_MAX), METADATA_MAX))
        .optional("maxRetries", whole(ATTEMPTS_MIN, ATTEMPTS_MAX))
        .optional("retryStrategy", word(&RetryStrategy::ALL, RetryStrategy::as_str))
        .optional("timeoutSeconds", whole(TIMEOUT_S_MIN, TIMEOUT_S_MAX))
        .optional("scheduledFor", time())
        .optional("expiresAt", time())
        .optional("idempotencyKey", named(KEY_CHARS_MAX))
        .optional("instructionId", named(KEY_CHARS_MAX))
        .optional("traceparent", formed(TRACE_FORM, TRACE_CHARS))
        .optional("queueUrl", anything())
        .into()
    }
}

/// A job that was asked for, and how.
pub(super) struct Request {
    pub(super) job: NewJob,
    /// The field that its idempotency key was given by.
    pub(super) key_field: &'static str,
}

/// Reads and checks a body. What it leaves out comes from its rail.
pub(super) async fn read(
    state: &ApiState,
    mut fields: Fields<'_>,
    traceparent: Option<&str>,
) -> Result<Request, Problem> {
    let named = fields.text("railType");
    let rail_type = named.unwrap_or_else(|| WEBHOOK.to_owned());
    let rail = state.inner.rails.rail(state.store(), &rail_type).await?;
    if rail.is_none() {
        fields.error("railType", "is not a configured rail");
    }
    let key_field = if fields.has("idempotencyKey") { "idempotencyKey" } else { "id" };
    let external_id_field = if fields.has("externalId") { "externalId" } else { "id" };
    let mut job = job(&mut fields, &rail_type, rail.as_ref());
    if job.traceparent.is_none() {
        job.traceparent = traceparent.filter(|text| traceparent_is_valid(text)).map(str::to_owned);
    }
    let payload_bytes_max = state.inner.options.payload_bytes_max;
    if job.payload.len() > payload_bytes_max {
        let bytes = job.payload.len();
        return Err(Problem::too_large(format!("payload has {bytes} bytes; at most {payload_bytes_max} are taken")));
    }
    // What is wrong is told by the name that it was sent under.
    let sent_as = |error: FieldError| match error.field.as_str() {
        "externalId" => FieldError { field: external_id_field.to_owned(), ..error },
        "idempotencyKey" => FieldError { field: key_field.to_owned(), ..error },
        _ => error,
    };
    fields.checked(job.validate().map_err(|errors| errors.into_iter().map(sent_as).collect()))?;
    Ok(Request { job, key_field })
}

fn job(fields: &mut Fields<'_>, rail_type: &str, rail: Option<&RailSpec>) -> NewJob {
    let kind = rail.map_or(RailKind::Webhook, |rail| rail.kind);
    let source = fields.required("source");
    let r#type = fields.required("type");
    let target_url = match rail.and_then(|rail| rail.target_url.clone()) {
        Some(of_rail) => fields.text("targetUrl").unwrap_or(of_rail),
        None => fields.required("targetUrl"),
    };
    let payload = Bytes::from(fields.required("payload"));
    let mut job = NewJob::new(&source, &r#type, kind, &target_url, payload);
    rail_type.clone_into(&mut job.rail_type);
    job.credentials_id = credentials(fields, rail);
    // An outbox row's own id: how it is found again, and what makes a second sending of it the same job.
    let id = fields.text("id");
    job.external_id = fields.text("externalId").or_else(|| id.clone());
    job.group = fields.text("groupId").map(ParticipantId::new);
    job.pool = fields.text("pool");
    job.headers = fields.map("headers");
    job.metadata = fields.map("metadata").into_iter().collect::<BTreeMap<_, _>>();
    job.scheduled_for = fields.time("scheduledFor");
    job.expires_at = fields.time("expiresAt");
    job.idempotency_key = fields.text("idempotencyKey").or(id);
    job.instruction_id = fields.text("instructionId");
    job.traceparent = fields.text("traceparent");
    options(fields, &mut job);
    job
}

fn options(fields: &mut Fields<'_>, job: &mut NewJob) {
    if let Some(mode) = fields.word("mode", &Mode::ALL, Mode::as_str) {
        job.mode = mode;
    }
    if let Some(retry) = fields.word("retryStrategy", &RetryStrategy::ALL, RetryStrategy::as_str) {
        job.retry = retry;
    }
    if let Some(attempts) = fields.whole("maxRetries") {
        job.max_attempts = attempts;
    }
    if let Some(seconds) = fields.whole("timeoutSeconds") {
        job.timeout_s = seconds;
    }
    if let Some(content_type) = fields.text("payloadContentType") {
        job.payload_content_type = content_type;
    }
    if fields.text("protocol").is_some_and(|protocol| protocol != PROTOCOL) {
        fields.error("protocol", format!("is not {PROTOCOL}, the only one there is"));
    }
    // S3's queue; there is none here.
    fields.ignore("queueUrl");
}

fn credentials(fields: &mut Fields<'_>, rail: Option<&RailSpec>) -> Option<CredentialsId> {
    let both = fields.has("credentialsId") && fields.has("serviceAccountId");
    let alias = fields.text("serviceAccountId");
    let given = match fields.text("credentialsId") {
        Some(given) => Some(("credentialsId", given)),
        None => alias.clone().map(|given| ("serviceAccountId", given)),
    };
    if both && given.as_ref().map(|(_, given)| given) != alias.as_ref() {
        fields.error("serviceAccountId", "says another than credentialsId, which it is an alias of");
    }
    let Some((field, given)) = given else { return rail.and_then(|rail| rail.credentials_id) };
    let id = given.parse().ok().map(CredentialsId);
    if id.is_none() {
        fields.error(field, "is unknown: it is not a UUID");
    }
    id
}
