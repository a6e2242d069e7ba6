//! `/api/events`: what happened goes in, a job for everybody who wants it comes of it.

pub(crate) mod subscriptions;

use std::collections::VecDeque;

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
use railyard_store::jobs::Placed;
use serde::Serialize;
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::auth::{Caller, Produce};
use crate::body::{BatchBody, JsonBody};
use crate::fields::Fields;
use crate::items::{self, ItemResult, ItemStatus};
use crate::jobs::GROUP_FORM;
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
    let event = read(&state, &mut Fields::parse(&body.bytes)?)?;
    let mut placed = events::publish(state.store(), std::slice::from_ref(&event)).await?;
    drop(body);
    match placed.pop() {
        Some(Placed::Taken(made)) if made.conflict => Err(Problem::key_reused(Some(made.outbox_id))),
        Some(Placed::Taken(made)) => {
            let status = if made.created { StatusCode::CREATED } else { StatusCode::OK };
            if made.created {
                wake(&state).await;
            }
            let created_at = utc_millis(made.created_at);
            let view = EventView { id: made.outbox_id, r#type: event.kind, source: event.source, created_at };
            Ok((status, Json(view)).into_response())
        }
        Some(Placed::Later { detail }) => Err(Problem::unavailable(detail)),
        Some(Placed::Refused { detail, .. } | Placed::Failed { detail }) => {
            tracing::error!(detail, "an event could not be stored");
            Err(Problem::internal())
        }
        None => Err(Problem::internal()),
    }
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
    let mut ids = Vec::new();
    let mut good = Vec::new();
    for item in items::read(&body.bytes, "events")? {
        let read = match Fields::parse(item.get().as_bytes()) {
            Ok(mut fields) => (fields.peek_text("id"), read(&state, &mut fields)),
            Err(problem) => (None, Err(problem)),
        };
        match read {
            (id, Ok(event)) => {
                good.push(event);
                ids.push(Ok(id));
            }
            (id, Err(problem)) => ids.push(Err(ItemResult::of_problem(id, problem)?)),
        }
    }
    let mut placed = VecDeque::from(events::publish(state.store(), &good).await?);
    drop(body);
    let mut count = 0;
    let mut results = Vec::new();
    for item in ids {
        let result = match item {
            Err(refused) => refused,
            Ok(id) => answer(id, placed.pop_front(), &mut count),
        };
        results.push(result);
    }
    let status = if count > 0 { StatusCode::CREATED } else { StatusCode::OK };
    if count > 0 {
        wake(&state).await;
    }
    Ok((status, Json(BatchView { results, count })).into_response())
}

fn answer(id: Option<String>, placed: Option<Placed>, count: &mut usize) -> ItemResult {
    match placed {
        Some(Placed::Taken(made)) if made.conflict => ItemResult::reused(id, "deduplicationId", made.outbox_id),
        Some(Placed::Taken(made)) if !made.created => ItemResult::stored(id, made.outbox_id, ItemStatus::Skipped),
        Some(Placed::Taken(made)) => {
            *count += 1;
            ItemResult::stored(id, made.outbox_id, ItemStatus::Success)
        }
        Some(Placed::Later { detail }) => ItemResult::unstored(id, ItemStatus::Retry, detail),
        Some(Placed::Refused { detail, .. } | Placed::Failed { detail }) => {
            tracing::error!(detail, "an event of a batch could not be stored");
            let said = "could not be stored; the log of the node says why";
            ItemResult::unstored(id, ItemStatus::InternalError, said)
        }
        None => ItemResult::unstored(id, ItemStatus::Retry, "was not tried"),
    }
}

async fn wake(state: &ApiState) {
    state.inner.node.wake();
    state.inner.wakes.tell(state.store()).await;
}

fn read(state: &ApiState, fields: &mut Fields<'_>) -> Result<NewEvent, Problem> {
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
    let mut errors = fields.take_errors();
    for error in event.validate_within(data_bytes_max).err().into_iter().flatten() {
        if !errors.iter().any(|known| known.field == error.field) {
            errors.push(error);
        }
    }
    if errors.is_empty() { Ok(event) } else { Err(Problem::fields(errors)) }
}
