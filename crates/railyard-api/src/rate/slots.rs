//! Slots: given, confirmed, given back.

use std::time::Instant;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use jiff::Timestamp;
use railyard_core::slots::{CONFIG_DEFAULT, EVENT_ID_CHARS_MAX};
use railyard_core::timestamp::utc_millis;
use railyard_store::payments::SLOT_PREFIX;
use railyard_store::rate::{self, ASSIGN_MAX, Assignment, Slot, SlotRequest};
use serde::Serialize;
use utoipa::openapi::{Object, RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::config::config_name;
use crate::auth::{Caller, Produce};
use crate::body::{BatchBody, JsonBody};
use crate::fields::Fields;
use crate::openapi::Unknown;
use crate::openapi::shape::{Shape, filled, list, time, whole};
use crate::problem::Problem;
use crate::query::Named;
use crate::state::ApiState;

/// Longest time that a slot waits for its confirmation: an hour.
const CONFIRM_S_MAX: u32 = 3600;

pub(super) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new()
        .routes(routes!(assign))
        .routes(routes!(assign_many))
        .routes(routes!(confirm))
        .routes(routes!(release))
}

/// When an event is to start.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = AssignedSlot)]
struct SlotView {
    event_id: String,
    /// The configuration that it was planned by.
    config_name: String,
    window_start: String,
    scheduled_time: String,
    /// Milliseconds from this answer to the scheduled time; 0 if that is past.
    delay_ms: u64,
}

impl SlotView {
    fn of(slot: Slot) -> Self {
        // A millisecond that has begun is waited for: nothing starts early.
        let delay_ms = slot.delay.as_micros().div_ceil(1000);
        Self {
            event_id: slot.event_id,
            config_name: slot.config_name,
            window_start: utc_millis(slot.window_start),
            scheduled_time: utc_millis(slot.scheduled),
            delay_ms: u64::try_from(delay_ms).unwrap_or(u64::MAX),
        }
    }
}

/// Slots in the order of the events.
#[derive(Serialize, ToSchema)]
#[schema(as = AssignedSlots)]
struct SlotsView {
    slots: Vec<SlotView>,
}

fn event_id() -> Object {
    filled(EVENT_ID_CHARS_MAX)
}

fn shape(description: &str) -> Shape {
    Shape::new(description)
        .optional("configName", config_name())
        .optional("requestedTime", time())
        .optional("confirmWithinSeconds", whole(1, CONFIRM_S_MAX))
}

/// An event that needs a slot.
struct SlotBody;

impl ToSchema for SlotBody {}

impl PartialSchema for SlotBody {
    fn schema() -> RefOr<Schema> {
        shape(
            "An event, and the time that it shall not start before (now, if that is missing or past). The same event has \
             the same slot, whatever else a repeat says. With `confirmWithinSeconds` the slot is given back unless it is \
             confirmed.",
        )
        .required("eventId", event_id())
        .into()
    }
}

/// Many events that are asked for at one time.
struct SlotsBody;

impl ToSchema for SlotsBody {}

impl PartialSchema for SlotsBody {
    fn schema() -> RefOr<Schema> {
        let ids = list(event_id()).min_items(Some(1)).max_items(Some(ASSIGN_MAX));
        shape("As for one event. All of them have slots afterwards, or none has.")
            .required("eventIds", ids.build())
            .into()
    }
}

/// What was asked for.
struct Request {
    config: String,
    event_ids: Vec<String>,
    requested: Option<Timestamp>,
    confirm_s: Option<u32>,
}

fn request(body: &[u8], many: bool) -> Result<Request, Problem> {
    let mut fields = Fields::parse(body)?;
    let (field, event_ids) = match many {
        true => ("eventIds", fields.texts("eventIds").unwrap_or_default()),
        false => ("eventId", vec![fields.required("eventId")]),
    };
    if event_ids.is_empty() || event_ids.len() > ASSIGN_MAX {
        fields.error(field, format!("is not a list of 1 to {ASSIGN_MAX} ids"));
    }
    let good = |id: &String| !id.is_empty() && id.chars().count() <= EVENT_ID_CHARS_MAX && !id.contains('\0');
    if !event_ids.iter().all(good) {
        fields.error(field, "is empty, has a NUL character or is longer than 255 characters");
    }
    if event_ids.iter().any(|id| id.starts_with(SLOT_PREFIX)) {
        fields.error(field, "begins with payment/, as slots of scheduled payments do");
    }
    let config = fields.text("configName").unwrap_or_else(|| CONFIG_DEFAULT.to_owned());
    if !railyard_core::slots::is_config_name(&config) {
        fields.error("configName", "is not 1 to 64 letters, digits, dots, hyphens or underscores");
    }
    let requested = fields.time("requestedTime");
    let confirm_s = fields.whole("confirmWithinSeconds");
    if confirm_s.is_some_and(|seconds| !(1..=CONFIRM_S_MAX).contains(&seconds)) {
        fields.error("confirmWithinSeconds", format!("is not 1 to {CONFIRM_S_MAX}"));
    }
    fields.finish()?;
    Ok(Request { config, event_ids, requested, confirm_s })
}

async fn assigned(state: &ApiState, request: &Request) -> Result<Assignment, Problem> {
    let started = Instant::now();
    let Request { config, event_ids, requested, confirm_s } = request;
    let asked = SlotRequest { config, event_ids, requested: *requested, confirm_s: *confirm_s };
    let done = rate::assign(state.store(), asked).await;
    state.inner.metrics.assigned(started.elapsed(), done.as_ref().ok().map(|done| done.depth));
    Ok(done?)
}

fn status(done: &Assignment) -> StatusCode {
    match done.slots.iter().any(|slot| slot.created) {
        true => StatusCode::CREATED,
        false => StatusCode::OK,
    }
}

/// Give an event a slot.
#[utoipa::path(post, path = "/api/v1/slots", tag = "rate", operation_id = "assignSlot", request_body = SlotBody,
    responses(
        (status = 201, description = "It has a slot now", body = SlotView),
        (status = 200, description = "It had one already", body = SlotView), Unknown))]
async fn assign(
    _: Caller<Produce>,
    State(state): State<ApiState>,
    body: JsonBody,
) -> Result<(StatusCode, Json<SlotView>), Problem> {
    let request = request(&body.bytes, false)?;
    drop(body);
    let mut done = assigned(&state, &request).await?;
    let status = status(&done);
    let slot = done.slots.pop().ok_or_else(Problem::internal)?;
    Ok((status, Json(SlotView::of(slot))))
}

/// Give many events slots, all or none, whole windows at a time.
#[utoipa::path(post, path = "/api/v1/slots/batch", tag = "rate", operation_id = "assignSlots",
    request_body = SlotsBody,
    responses(
        (status = 201, description = "All have slots, some of them new", body = SlotsView),
        (status = 200, description = "All had one already", body = SlotsView), Unknown))]
async fn assign_many(
    _: Caller<Produce>,
    State(state): State<ApiState>,
    body: BatchBody,
) -> Result<(StatusCode, Json<SlotsView>), Problem> {
    let request = request(&body.bytes, true)?;
    drop(body);
    let done = assigned(&state, &request).await?;
    Ok((status(&done), Json(SlotsView { slots: done.slots.into_iter().map(SlotView::of).collect() })))
}

/// Slots of payments are theirs alone.
fn is_callers(id: &str) -> bool {
    !id.contains('\0') && !id.starts_with(SLOT_PREFIX)
}

fn unknown() -> Problem {
    Problem::not_found("no event of this id has a slot")
}

/// Keep a slot that was given on condition.
#[utoipa::path(post, path = "/api/v1/slots/{id}/confirm", tag = "rate", operation_id = "confirmSlot",
    params(("id" = String, Path, description = "The event's id")),
    responses((status = 204, description = "It is the event's")))]
async fn confirm(_: Caller<Produce>, State(state): State<ApiState>, Named(id): Named) -> Result<StatusCode, Problem> {
    let kept = is_callers(&id) && rate::confirm(state.store(), &id).await?;
    if kept { Ok(StatusCode::NO_CONTENT) } else { Err(unknown()) }
}

/// Give a slot back whose work will not be done.
#[utoipa::path(delete, path = "/api/v1/slots/{id}", tag = "rate", operation_id = "releaseSlot",
    params(("id" = String, Path, description = "The event's id")),
    responses((status = 204, description = "Its place is free again")))]
async fn release(_: Caller<Produce>, State(state): State<ApiState>, Named(id): Named) -> Result<StatusCode, Problem> {
    let gone = is_callers(&id) && rate::release(state.store(), &[id]).await? > 0;
    if gone { Ok(StatusCode::NO_CONTENT) } else { Err(unknown()) }
}
