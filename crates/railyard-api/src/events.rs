//! `/api/events`: what happened goes in, a job for everybody who wants it comes of it.

pub(crate) mod subscriptions;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use railyard_core::OutboxId;
use railyard_core::event::{EVENT_METADATA_MAX, NewEvent};
use railyard_core::limits::{KEY_CHARS_MAX, METADATA_KEY_BYTES_MAX, METADATA_VALUE_BYTES_MAX, NAME_BYTES_MAX};
use railyard_core::timestamp::utc_millis;
use railyard_store::events;
use railyard_store::jobs::{Placed, Taken};
use serde::Serialize;
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::auth::{Caller, Produce};
use crate::body::{BatchBody, JsonBody};
use crate::fields::Fields;
use crate::items::{self, ItemResult};
use crate::jobs::GROUP_FORM;
use crate::metrics::Posted;
use crate::openapi::Conflict;
use crate::openapi::shape::{Shape, anything, formed, map, named, text, time};
use crate::problem::Problem;
use crate::state::ApiState;

pub(crate) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new().routes(routes!(publish)).routes(routes!(publish_batch)).merge(subscriptions::routes())
}

/// An event.
struct EventBody;

impl ToSchema for EventBody {}

impl PartialSchema for EventBody {
    fn schema() -> RefOr<Schema> {
        Shape::new(
            "Something that happened. `data` may be any JSON; its text goes out byte for byte. `deduplicationId`, or \
             else `id`, makes a repeat of it the same event, within its source.",
        )
        .required("type", named(NAME_BYTES_MAX))
        .required("source", named(NAME_BYTES_MAX))
        .optional("id", named(KEY_CHARS_MAX))
        .optional("subject", named(KEY_CHARS_MAX))
        .optional("data", anything())
        .optional("time", time())
        .optional("correlationId", named(KEY_CHARS_MAX))
        .optional("messageGroup", formed(GROUP_FORM, KEY_CHARS_MAX))
        .optional("deduplicationId", named(KEY_CHARS_MAX))
        .optional("metadata", map(named(METADATA_KEY_BYTES_MAX), text(METADATA_VALUE_BYTES_MAX), EVENT_METADATA_MAX))
        .into()
    }
}

/// Many events in one of three forms.
struct EventBatch;

impl ToSchema for EventBatch {}

impl PartialSchema for EventBatch {
    fn schema() -> RefOr<Schema> {
        items::batch_of(&EventBody::schema(), "events")
    }
}

/// An event that is stored.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Event)]
struct EventView {
    #[schema(value_type = Uuid)]
    id: OutboxId,
    r#type: String,
    source: String,
    created_at: String,
}

/// Results in the order of the items, and how many events this call stored.
#[derive(Serialize, ToSchema)]
#[schema(as = EventBatchResult)]
struct BatchView {
    results: Vec<ItemResult>,
    count: usize,
}

/// Publish an event: it is stored with a job for every subscription that matches it, or not at all.
#[utoipa::path(post, path = "/api/events", tag = "events", operation_id = "publishEvent", request_body = EventBody,
    responses(
        (status = 201, description = "It is stored, with its jobs", body = EventView),
        (status = 200, description = "It was stored before, with the same content", body = EventView),
        Conflict))]
async fn publish(_: Caller<Produce>, State(state): State<ApiState>, body: JsonBody) -> Result<Response, Problem> {
    let stored = store(&state, body).await;
    state.inner.metrics.event(match &stored {
        Ok((_, placed)) => Posted::of_placed(placed),
        Err(problem) => Posted::of_problem(problem),
    });
    let (event, placed) = stored?;
    match placed {
        Placed::Taken(made) if made.taken == Taken::Conflict => {
            Err(Problem::key_reused(key_field(&event), Some(made.outbox_id)))
        }
        Placed::Taken(made) => {
            let is_new = made.taken == Taken::Created;
            let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
            if is_new {
                state.committed().await;
            }
            let created_at = utc_millis(made.created_at);
            let view = EventView { id: made.outbox_id, r#type: event.kind, source: event.source, created_at };
            Ok((status, Json(view)).into_response())
        }
        Placed::Later { detail } => Err(Problem::unavailable(detail)),
        Placed::Refused { detail, .. } | Placed::Failed { detail } => {
            tracing::error!(detail, "an event could not be stored");
            Err(Problem::internal())
        }
    }
}

/// The body's share of the memory stands for the event as well, until it is stored.
async fn store(state: &ApiState, body: JsonBody) -> Result<(NewEvent, Placed), Problem> {
    let event = read(state, Fields::parse(&body.bytes)?)?;
    let placed = events::publish(state.store(), std::slice::from_ref(&event)).await?;
    Ok((event, placed.into_iter().next().ok_or_else(Problem::internal)?))
}

/// The field that an event's key was given by.
fn key_field(event: &NewEvent) -> &'static str {
    if event.deduplication_id.is_some() { "deduplicationId" } else { "id" }
}

/// Publish many events, each answered for itself.
#[utoipa::path(post, path = "/api/events/batch", tag = "events", operation_id = "publishEvents",
    request_body = EventBatch,
    responses(
        (status = 201, description = "At least one event was stored; each result says what became of its item",
            body = BatchView),
        (status = 200, description = "No event was stored; each result says why", body = BatchView)))]
async fn publish_batch(
    _: Caller<Produce>,
    State(state): State<ApiState>,
    body: BatchBody,
) -> Result<Response, Problem> {
    let mut read_items = Vec::new();
    let mut good = Vec::new();
    for item in items::read(&body.bytes, "events")? {
        let (id, event) = match Fields::parse(item.get().as_bytes()) {
            Ok(fields) => (fields.peek_text("id"), read(&state, fields)),
            Err(problem) => (None, Err(problem)),
        };
        match event {
            Ok(event) => {
                read_items.push(Ok((id, key_field(&event))));
                good.push(event);
            }
            Err(problem) => read_items.push(Err(ItemResult::of_problem(id, problem)?)),
        }
    }
    let mut placed = events::publish(state.store(), &good).await?.into_iter();
    drop(body);
    let mut count = 0;
    let mut results = Vec::new();
    for item in read_items {
        let (posted, result) = match item {
            Err(refused) => (Posted::Refused, refused),
            Ok((id, key_field)) => {
                let placed = placed.next().unwrap_or_else(Placed::not_tried);
                (Posted::of_placed(&placed), ItemResult::of_placed(id, key_field, placed))
            }
        };
        state.inner.metrics.event(posted);
        count += usize::from(posted == Posted::Created);
        results.push(result);
    }
    let status = if count > 0 { StatusCode::CREATED } else { StatusCode::OK };
    if count > 0 {
        state.committed().await;
    }
    Ok((status, Json(BatchView { results, count })).into_response())
}

fn read(state: &ApiState, mut fields: Fields<'_>) -> Result<NewEvent, Problem> {
    let event = NewEvent {
        external_id: fields.text("id"),
        kind: fields.required("type"),
        source: fields.required("source"),
        subject: fields.text("subject"),
        // Not taken apart: what stands there is what goes out.
        data: fields.as_it_stands("data").map(|found| Bytes::copy_from_slice(found.get().as_bytes())),
        time: fields.time("time"),
        correlation_id: fields.text("correlationId"),
        message_group: fields.text("messageGroup"),
        deduplication_id: fields.text("deduplicationId"),
        metadata: fields.map("metadata").into_iter().collect(),
    };
    let data_bytes_max = state.inner.options.payload_bytes_max;
    if let Some(bytes) = event.data.as_ref().map(Bytes::len).filter(|bytes| *bytes > data_bytes_max) {
        return Err(Problem::too_large(format!("data has {bytes} bytes; at most {data_bytes_max} are taken")));
    }
    fields.checked(event.validate())?;
    Ok(event)
}
