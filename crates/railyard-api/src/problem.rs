//! Errors as RFC 9457 problem documents. What a caller did wrong is named to the last field; what went wrong on our
//! side is logged once, here, and not told.

use axum::Json;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use railyard_core::OutboxId;
use railyard_core::job::FieldError;
use railyard_core::payment::Step;
use railyard_store::StoreError;
use railyard_store::credentials::CredentialsError;
use serde::Serialize;
use utoipa::ToSchema;

use crate::openapi::words;

/// What a client waits before it tries again after 503, in seconds.
const RETRY_AFTER_S: u32 = 1;

/// An error and the answer that it gets.
#[derive(Debug)]
pub struct Problem {
    status: StatusCode,
    /// The last part of the problem's URN.
    kind: &'static str,
    title: &'static str,
    detail: String,
    errors: Vec<FieldError>,
    retry_after_s: Option<u32>,
    first: Option<OutboxId>,
    step: Option<Step>,
}

/// An error (RFC 9457).
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Problem)]
pub(crate) struct Document<'a> {
    /// A URN of ours; what a program decides by.
    r#type: String,
    title: &'a str,
    status: u16,
    #[serde(skip_serializing_if = "str::is_empty")]
    detail: &'a str,
    /// Every field that is wrong.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(inline)]
    errors: Vec<FieldDocument>,
    /// The job or the event that the key stands for.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<uuid::Uuid>)]
    first_id: Option<OutboxId>,
    /// Of a payment: at which step its acceptance ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(schema_with = words::payment_step)]
    step: Option<&'static str>,
}

/// One wrong field.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct FieldDocument {
    pub(crate) field: String,
    pub(crate) detail: String,
}

impl From<FieldError> for FieldDocument {
    fn from(error: FieldError) -> Self {
        Self { field: error.field, detail: error.detail }
    }
}

impl Problem {
    fn new(status: StatusCode, kind: &'static str, title: &'static str, detail: impl Into<String>) -> Self {
        let detail = detail.into();
        Self { status, kind, title, detail, errors: Vec::new(), retry_after_s: None, first: None, step: None }
    }

    /// The step of a payment's acceptance that ended with it.
    pub(crate) fn at(self, step: Step) -> Self {
        Self { step: Some(step), ..self }
    }

    pub(crate) fn step(&self) -> Option<&'static str> {
        self.step.map(Step::as_str)
    }

    pub(crate) fn status(&self) -> StatusCode {
        self.status
    }

    pub(crate) fn detail(&self) -> &str {
        &self.detail
    }

    /// The fields that it names.
    pub(crate) fn into_errors(self) -> Vec<FieldError> {
        self.errors
    }

    /// 400, and each field that is wrong.
    pub(crate) fn fields(errors: Vec<FieldError>) -> Self {
        let names: Vec<&str> = errors.iter().map(|error| error.field.as_str()).collect();
        let detail = format!("refused: {}", names.join(", "));
        Self { errors, ..Self::invalid(detail) }
    }

    /// 400 for one field.
    pub(crate) fn field(field: &str, detail: impl Into<String>) -> Self {
        Self::fields(vec![FieldError { field: field.to_owned(), detail: detail.into() }])
    }

    /// 400 for a request that has no fields to name.
    pub(crate) fn invalid(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid-input", "Invalid input", detail)
    }

    /// 401, without detail.
    pub(crate) fn unauthorized() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "unauthorized", "Unauthorized", "")
    }

    /// 403.
    pub(crate) fn forbidden(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "forbidden", "Forbidden", detail)
    }

    /// 404.
    pub(crate) fn not_found(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not-found", "Not found", detail)
    }

    /// 405.
    pub(crate) fn wrong_method(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "method-not-allowed", "Method not allowed", detail)
    }

    /// 408.
    pub(crate) fn body_timeout() -> Self {
        let detail = "the body did not arrive in time";
        Self::new(StatusCode::REQUEST_TIMEOUT, "request-timeout", "Request timeout", detail)
    }

    /// 409.
    pub(crate) fn conflict(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, "conflict", "Conflict", detail)
    }

    /// 409 for a key that stands for other content; `field` is where it was given.
    pub(crate) fn key_reused(field: &str, first: Option<OutboxId>) -> Self {
        let detail = format!("{field} was used before for other content; a repeat must carry the same content");
        let kind = "idempotency-key-reused";
        let found = Self::new(StatusCode::CONFLICT, kind, "Idempotency key reused", detail);
        Self { first, ..found }
    }

    /// 413.
    pub(crate) fn too_large(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "too-large", "Too large", detail)
    }

    /// 415.
    pub(crate) fn media_type() -> Self {
        let detail = "the body must be sent as application/json, without a content coding";
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported-media-type", "Unsupported media type", detail)
    }

    /// 429.
    pub(crate) fn too_many_failures(retry_after_s: u32) -> Self {
        let found = Self::new(StatusCode::TOO_MANY_REQUESTS, "too-many-requests", "Too many requests", "");
        Self { retry_after_s: Some(retry_after_s), ..found }
    }

    /// 503 and when to come again.
    pub(crate) fn unavailable(detail: impl Into<String>) -> Self {
        let found = Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", "Unavailable", detail);
        Self { retry_after_s: Some(RETRY_AFTER_S), ..found }
    }

    /// 503 for an error that is over soon.
    fn later(error: &StoreError) -> Self {
        Self::unavailable(error.why_later().unwrap_or_default())
    }

    /// 503 where nothing free was found: more capacity, or a later time, would help.
    pub(crate) fn no_slot(detail: impl Into<String>) -> Self {
        let status = StatusCode::SERVICE_UNAVAILABLE;
        let found = Self::new(status, "slot-assignment", "SlotAssignmentException", detail);
        Self { retry_after_s: Some(RETRY_AFTER_S), ..found }
    }

    /// 500, of which the caller learns nothing.
    pub(crate) fn internal() -> Self {
        let detail = "the request could not be carried out; the log of the node says why";
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "Internal error", detail)
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Invalid { field, detail, .. } => Self::field(&api_name(&field), detail),
            StoreError::KeyReused { first } => Self::key_reused("idempotencyKey", first),
            error @ (StoreError::Busy { .. } | StoreError::Repeat { .. }) => Self::later(&error),
            error @ StoreError::TooSlow { .. } => {
                let mut problem = Self::later(&error);
                problem
                    .detail
                    .push_str(": ask for less, narrow a search, or walk it with `cursor`, which counts nothing");
                problem
            }
            error @ StoreError::Unavailable { .. } => {
                tracing::debug!(%error);
                Self::later(&error)
            }
            StoreError::Conflict { detail } => Self::conflict(detail),
            error @ (StoreError::Unreadable { .. } | StoreError::Database { .. }) => {
                tracing::error!(%error, "request failed");
                Self::internal()
            }
        }
    }
}

impl From<CredentialsError> for Problem {
    fn from(error: CredentialsError) -> Self {
        match error {
            CredentialsError::Store(error) => error.into(),
            CredentialsError::Crypt(error) => {
                tracing::error!(%error, "credentials could not be sealed or opened");
                Self::internal()
            }
        }
    }
}

/// The API's name for a column.
pub(crate) fn api_name(column: &str) -> String {
    match column {
        "participant_id" => "groupId".to_owned(),
        "max_attempts" => "maxRetries".to_owned(),
        "timeout_ms" => "timeoutSeconds".to_owned(),
        other => {
            let mut name = String::with_capacity(other.len());
            let mut upper = false;
            for c in other.chars() {
                match (c, upper) {
                    ('_', _) => upper = true,
                    (c, true) => {
                        name.extend(c.to_uppercase());
                        upper = false;
                    }
                    (c, false) => name.push(c),
                }
            }
            name
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let errors = self.errors.into_iter().map(FieldDocument::from).collect();
        let document = Document {
            r#type: format!("urn:railyard:problem:{}", self.kind),
            title: self.title,
            status: self.status.as_u16(),
            detail: &self.detail,
            errors,
            first_id: self.first,
            step: self.step.map(Step::as_str),
        };
        let mut response = (self.status, Json(document)).into_response();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(seconds) = self.retry_after_s {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::api_name;

    #[test]
    fn columns_have_the_names_of_the_api() {
        for (column, name) in [
            ("target_url", "targetUrl"),
            ("type", "type"),
            ("participant_id", "groupId"),
            ("payload_content_type", "payloadContentType"),
        ] {
            assert_eq!(api_name(column), name);
        }
    }
}
