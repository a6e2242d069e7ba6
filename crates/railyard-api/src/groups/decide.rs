//! Decisions: each names its reason, and is on record with the name of the token.

use axum::Json;
use axum::extract::State;
use railyard_core::hold::HoldKind;
use railyard_core::{OutboxId, SequenceId};
use railyard_store::holds::{self, Decision};
use serde::Serialize;
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use super::group_name;
use crate::auth::{Caller, Decide};
use crate::body::JsonBody;
use crate::fields::Fields;
use crate::openapi::shape::{Shape, list, named, uuid, word};
use crate::openapi::{Conflict, words};
use crate::problem::Problem;
use crate::query::Named;
use crate::state::ApiState;

/// Whether it is stopped now.
#[derive(Serialize, ToSchema)]
#[schema(as = Switched)]
pub(crate) struct Paused {
    pub(crate) paused: bool,
}

/// Stop a group: nothing of it begins until it is resumed.
#[utoipa::path(post, path = "/admin/groups/{id}/pause", tag = "groups", operation_id = "pauseGroup",
    params(("id" = String, Path, description = "Its name")), request_body = ReasonBody,
    responses((status = 200, description = "Done", body = Paused), Conflict))]
pub(super) async fn pause(
    caller: Caller<Decide>,
    State(state): State<ApiState>,
    Named(id): Named,
    body: JsonBody,
) -> Result<Json<Paused>, Problem> {
    let reason = reason_alone(&body.bytes)?;
    let decision = Decision { actor: &caller.name, reason: &reason };
    holds::pause(state.store(), &group_name(&id)?, decision).await?;
    Ok(Json(Paused { paused: true }))
}

/// Let a paused group go on.
#[utoipa::path(post, path = "/admin/groups/{id}/resume", tag = "groups", operation_id = "resumeGroup",
    params(("id" = String, Path, description = "Its name")), request_body = ReasonBody,
    responses((status = 200, description = "Done", body = Paused), Conflict))]
pub(super) async fn resume(
    caller: Caller<Decide>,
    State(state): State<ApiState>,
    Named(id): Named,
    body: JsonBody,
) -> Result<Json<Paused>, Problem> {
    let reason = reason_alone(&body.bytes)?;
    let decision = Decision { actor: &caller.name, reason: &reason };
    holds::resume(state.store(), &group_name(&id)?, decision).await?;
    state.inner.node.wake();
    Ok(Json(Paused { paused: false }))
}

/// Which holds ended.
#[derive(Serialize, ToSchema)]
#[schema(as = Released)]
pub(super) struct ReleasedView {
    released: Vec<ReleasedHold>,
}

/// A hold that ended.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct ReleasedHold {
    #[schema(schema_with = words::hold_kind)]
    kind: HoldKind,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Uuid>)]
    job_id: Option<OutboxId>,
}

/// End a block or a doubt: the group goes on with its next message.
#[utoipa::path(post, path = "/admin/groups/{id}/release", tag = "groups", operation_id = "releaseGroup",
    params(("id" = String, Path, description = "Its name")), request_body = ReleaseBody,
    responses((status = 200, description = "What was released", body = ReleasedView), Conflict))]
pub(super) async fn release(
    caller: Caller<Decide>,
    State(state): State<ApiState>,
    Named(id): Named,
    body: JsonBody,
) -> Result<Json<ReleasedView>, Problem> {
    let mut fields = Fields::parse(&body.bytes)?;
    let reason = reason(&mut fields);
    // A pause ends by `resume`: whoever releases a block has not decided about the pause.
    let mut kinds = vec![HoldKind::Blocked, HoldKind::InDoubt];
    if let Some(named) = fields.texts("kinds") {
        kinds = named.iter().filter_map(|name| HoldKind::parse(name)).collect();
        if kinds.len() != named.len() || kinds.is_empty() {
            fields.error("kinds", "is not a list of blocked, in_doubt, paused");
        }
    }
    fields.finish()?;
    let decision = Decision { actor: &caller.name, reason: &reason };
    let released = holds::release(state.store(), &group_name(&id)?, &kinds, decision).await?;
    state.inner.node.wake();
    let released = released.holds.into_iter().map(|(kind, job_id)| ReleasedHold { kind, job_id }).collect();
    Ok(Json(ReleasedView { released }))
}

/// Which message was skipped.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Skipped)]
pub(super) struct SkippedView {
    #[schema(value_type = Uuid)]
    job_id: OutboxId,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<i64>)]
    sequence: Option<SequenceId>,
    /// It waited and has ended CANCELLED; otherwise it had ended before and blocked the group.
    cancelled: bool,
}

/// Give up the message that a group stands at.
#[utoipa::path(post, path = "/admin/groups/{id}/skip", tag = "groups", operation_id = "skipGroup",
    params(("id" = String, Path, description = "Its name")), request_body = SkipBody,
    responses((status = 200, description = "What was skipped", body = SkippedView), Conflict))]
pub(super) async fn skip(
    caller: Caller<Decide>,
    State(state): State<ApiState>,
    Named(id): Named,
    body: JsonBody,
) -> Result<Json<SkippedView>, Problem> {
    let mut fields = Fields::parse(&body.bytes)?;
    let reason = reason(&mut fields);
    let expected = fields.text("jobId").map(|id| id.parse().map(OutboxId));
    if matches!(expected, Some(Err(_))) {
        fields.error("jobId", "is not a UUID");
    }
    fields.finish()?;
    let expected = expected.and_then(Result::ok);
    let decision = Decision { actor: &caller.name, reason: &reason };
    let skipped = holds::skip(state.store(), &group_name(&id)?, expected, decision).await?;
    state.inner.node.wake();
    let view = SkippedView { job_id: skipped.outbox_id, sequence: skipped.sequence_id, cancelled: skipped.cancelled };
    Ok(Json(view))
}

/// A reason and nothing else.
pub(crate) struct ReasonBody;
/// A reason, or nothing.
pub(crate) struct MaybeReasonBody;
/// Which holds to end, and why.
pub(super) struct ReleaseBody;
/// Which message to give up, and why.
pub(super) struct SkipBody;

fn reasoned(what: &str) -> Shape {
    Shape::new(what).required("reason", named(holds::REASON_CHARS_MAX))
}

impl PartialSchema for ReasonBody {
    fn schema() -> RefOr<Schema> {
        reasoned("Why, for the record.").into()
    }
}

impl PartialSchema for MaybeReasonBody {
    fn schema() -> RefOr<Schema> {
        Shape::new("Why, for the record; may be left out.").optional("reason", named(holds::REASON_CHARS_MAX)).into()
    }
}

impl PartialSchema for ReleaseBody {
    fn schema() -> RefOr<Schema> {
        let kinds = list(word(&HoldKind::ALL, HoldKind::as_str));
        reasoned("Which holds to end, and why; without `kinds` blocks and doubts, never a pause.")
            .optional("kinds", kinds.min_items(Some(1)).build())
            .into()
    }
}

impl PartialSchema for SkipBody {
    fn schema() -> RefOr<Schema> {
        reasoned("The message that is meant, and why; another one at the head is a conflict.")
            .optional("jobId", uuid())
            .into()
    }
}

impl ToSchema for MaybeReasonBody {}
impl ToSchema for ReasonBody {}
impl ToSchema for ReleaseBody {}
impl ToSchema for SkipBody {}

/// A body that holds a reason and nothing else.
pub(crate) fn reason_alone(body: &[u8]) -> Result<String, Problem> {
    let mut fields = Fields::parse(body)?;
    let reason = reason(&mut fields);
    fields.finish()?;
    Ok(reason)
}

pub(crate) fn reason(fields: &mut Fields<'_>) -> String {
    let given = fields.has("reason");
    let reason = fields.required("reason");
    check_reason(fields, given, reason)
}

/// A reason that may be left out; empty then.
pub(crate) fn reason_if_any(fields: &mut Fields<'_>) -> String {
    let given = fields.has("reason");
    let reason = fields.text("reason").unwrap_or_default();
    check_reason(fields, given, reason)
}

fn check_reason(fields: &mut Fields<'_>, given: bool, reason: String) -> String {
    if given && reason.trim().is_empty() {
        fields.error("reason", "is blank: the record has to say why");
    } else if reason.contains('\0') {
        fields.error("reason", "has a NUL character");
    } else if reason.chars().count() > holds::REASON_CHARS_MAX {
        fields.error("reason", format!("has more than {} characters", holds::REASON_CHARS_MAX));
    }
    reason
}
