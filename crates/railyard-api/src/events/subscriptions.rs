//! `/api/admin/subscriptions`: who wants which events.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::LOCATION;
use axum::response::{IntoResponse, Response};
use railyard_core::backoff::RetryStrategy;
use railyard_core::event::{NewSubscription, SUBSCRIPTION_HEADERS_MAX, SUBSCRIPTION_NAME_CHARS_MAX};
use railyard_core::limits::{
    ATTEMPTS_MAX, ATTEMPTS_MIN, HEADERS_BYTES_MAX, NAME_BYTES_MAX, TARGET_URL_BYTES_MAX, TIMEOUT_S_MAX, TIMEOUT_S_MIN,
};
use railyard_core::timestamp::utc_millis;
use railyard_core::{CredentialsId, Mode};
use railyard_store::events::subscriptions::{self, SubscriptionRow};
use serde::Serialize;
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use crate::auth::{Caller, Decide, Read};
use crate::body::JsonBody;
use crate::fields::Fields;
use crate::jobs::{HEADER_NAME_FORM, HEADER_VALUE_FORM};
use crate::openapi::shape::{Shape, formed, map, named, of_format, uuid, whole, word};
use crate::openapi::{Conflict, words};
use crate::problem::Problem;
use crate::query::Named;
use crate::state::ApiState;

const ROOT: &str = "/api/admin/subscriptions";

pub(super) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new()
        .routes(routes!(create, list))
        .routes(routes!(read, delete))
        .routes(routes!(enable))
        .routes(routes!(disable))
}

/// Who wants which events, and how they are sent there.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Subscription)]
struct SubscriptionView {
    id: Uuid,
    name: String,
    type_pattern: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<String>,
    target_url: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Uuid>)]
    credentials_id: Option<CredentialsId>,
    #[schema(schema_with = words::mode)]
    mode: &'static str,
    max_retries: u32,
    #[schema(schema_with = words::retry_strategy)]
    retry_strategy: &'static str,
    timeout_seconds: u32,
    headers: BTreeMap<String, String>,
    enabled: bool,
    created_at: String,
    updated_at: String,
}

impl SubscriptionView {
    fn of(row: SubscriptionRow) -> Self {
        let spec = row.spec;
        Self {
            id: row.subscription_id,
            name: spec.name,
            type_pattern: spec.type_pattern,
            source: spec.source,
            target_url: spec.target_url,
            credentials_id: spec.credentials_id,
            mode: spec.mode.as_str(),
            max_retries: spec.max_attempts,
            retry_strategy: spec.retry.as_str(),
            timeout_seconds: spec.timeout_s,
            headers: spec.headers.into_iter().collect(),
            enabled: row.enabled,
            created_at: utc_millis(row.created_at),
            updated_at: utc_millis(row.updated_at),
        }
    }
}

/// All subscriptions, by name.
#[derive(Serialize, ToSchema)]
#[schema(as = SubscriptionList)]
struct ListView {
    items: Vec<SubscriptionView>,
}

/// What to send where.
struct SubscriptionBody;

impl ToSchema for SubscriptionBody {}

impl PartialSchema for SubscriptionBody {
    fn schema() -> RefOr<Schema> {
        Shape::new(
            "`typePattern` is `*` (all types), `order.*` (all that begin with `order.`) or one type as it is. Without \
             a source, events of all sources are wanted.",
        )
        .required("name", formed("^[A-Za-z0-9_.-]+$", SUBSCRIPTION_NAME_CHARS_MAX))
        .required("typePattern", formed(r"^(\*|[^*\u0000]*[^*\u0000\s][^*\u0000]*(\.\*)?)$", NAME_BYTES_MAX))
        .required("targetUrl", of_format("uri", TARGET_URL_BYTES_MAX))
        .required("credentialsId", uuid())
        .optional("source", named(NAME_BYTES_MAX))
        .optional("mode", word(&Mode::ALL, Mode::as_str))
        .optional("maxRetries", whole(ATTEMPTS_MIN, ATTEMPTS_MAX))
        .optional("retryStrategy", word(&RetryStrategy::ALL, RetryStrategy::as_str))
        .optional("timeoutSeconds", whole(TIMEOUT_S_MIN, TIMEOUT_S_MAX))
        .optional(
            "headers",
            map(
                formed(HEADER_NAME_FORM, HEADERS_BYTES_MAX),
                formed(HEADER_VALUE_FORM, HEADERS_BYTES_MAX),
                SUBSCRIPTION_HEADERS_MAX,
            ),
        )
        .into()
    }
}

/// Make a subscription. It takes events that are published from now on.
#[utoipa::path(post, path = "/api/admin/subscriptions", tag = "events", operation_id = "createSubscription",
    request_body = SubscriptionBody,
    responses(
        (status = 201, description = "It is there", body = SubscriptionView, headers(("Location" = String))),
        Conflict))]
async fn create(caller: Caller<Decide>, State(state): State<ApiState>, body: JsonBody) -> Result<Response, Problem> {
    let new = request(&body.bytes)?;
    drop(body);
    let view = SubscriptionView::of(subscriptions::create(state.store(), &new, &caller.name).await?);
    let location = format!("{ROOT}/{}", view.id);
    Ok((StatusCode::CREATED, [(LOCATION, location)], Json(view)).into_response())
}

fn request(body: &[u8]) -> Result<NewSubscription, Problem> {
    let mut fields = Fields::parse(body)?;
    let (name, pattern) = (fields.required("name"), fields.required("typePattern"));
    let mut new = NewSubscription::new(&name, &pattern, &fields.required("targetUrl"));
    new.source = fields.text("source");
    let credentials = fields.required("credentialsId");
    new.credentials_id = credentials.parse().ok().map(CredentialsId);
    if new.credentials_id.is_none() && !credentials.is_empty() {
        fields.error("credentialsId", "is unknown: it is not a UUID");
    }
    if let Some(mode) = fields.word("mode", &Mode::ALL, Mode::as_str) {
        new.mode = mode;
    }
    if let Some(retry) = fields.word("retryStrategy", &RetryStrategy::ALL, RetryStrategy::as_str) {
        new.retry = retry;
    }
    new.max_attempts = fields.whole("maxRetries").unwrap_or(new.max_attempts);
    new.timeout_s = fields.whole("timeoutSeconds").unwrap_or(new.timeout_s);
    new.headers = fields.map("headers");
    fields.checked(new.validate())?;
    Ok(new)
}

/// All subscriptions.
#[utoipa::path(get, path = "/api/admin/subscriptions", tag = "events", operation_id = "listSubscriptions",
    responses((status = 200, description = "All of them", body = ListView)))]
async fn list(_: Caller<Read>, State(state): State<ApiState>) -> Result<Json<ListView>, Problem> {
    let rows = subscriptions::list(state.store()).await?;
    Ok(Json(ListView { items: rows.into_iter().map(SubscriptionView::of).collect() }))
}

/// A subscription.
#[utoipa::path(get, path = "/api/admin/subscriptions/{id}", tag = "events", operation_id = "getSubscription",
    params(("id" = Uuid, Path, description = "Its id")),
    responses((status = 200, description = "It", body = SubscriptionView)))]
async fn read(_: Caller<Read>, State(state): State<ApiState>, Named(id): Named) -> Found {
    shown(subscriptions::get(state.store(), parse(&id)?).await?)
}

/// Take a subscription away. Its jobs stay.
#[utoipa::path(delete, path = "/api/admin/subscriptions/{id}", tag = "events", operation_id = "deleteSubscription",
    params(("id" = Uuid, Path, description = "Its id")),
    responses((status = 204, description = "It takes no more events")))]
async fn delete(
    caller: Caller<Decide>,
    State(state): State<ApiState>,
    Named(id): Named,
) -> Result<StatusCode, Problem> {
    let gone = subscriptions::delete(state.store(), parse(&id)?, &caller.name).await?;
    gone.map(|_| StatusCode::NO_CONTENT).ok_or_else(unknown)
}

/// Let a subscription take events again.
#[utoipa::path(post, path = "/api/admin/subscriptions/{id}/enable", tag = "events",
    operation_id = "enableSubscription", params(("id" = Uuid, Path, description = "Its id")),
    responses((status = 200, description = "It takes events", body = SubscriptionView), Conflict))]
async fn enable(caller: Caller<Decide>, State(state): State<ApiState>, Named(id): Named) -> Found {
    shown(subscriptions::switch(state.store(), parse(&id)?, true, &caller.name).await?)
}

/// Let a subscription take no events for a while; those of the time are not made up for.
#[utoipa::path(post, path = "/api/admin/subscriptions/{id}/disable", tag = "events",
    operation_id = "disableSubscription", params(("id" = Uuid, Path, description = "Its id")),
    responses((status = 200, description = "It takes none", body = SubscriptionView)))]
async fn disable(caller: Caller<Decide>, State(state): State<ApiState>, Named(id): Named) -> Found {
    shown(subscriptions::switch(state.store(), parse(&id)?, false, &caller.name).await?)
}

type Found = Result<Json<SubscriptionView>, Problem>;

fn shown(row: Option<SubscriptionRow>) -> Found {
    row.map(|row| Json(SubscriptionView::of(row))).ok_or_else(unknown)
}

fn unknown() -> Problem {
    Problem::not_found("no subscription has this id")
}

fn parse(id: &str) -> Result<Uuid, Problem> {
    id.parse().map_err(|_| unknown())
}
