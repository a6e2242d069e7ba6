//! Decisions: each names its reason, and is on record with the name of the token.

use axum::Json;
use axum::extract::State;
use railyard_core::hold::HoldKind;
use railyard_core::{OutboxId, SequenceId};
use railyard_store::holds::{self, Decision};
use serde::Serialize;

use super::group_name;
use crate::auth::{Caller, Decide};
use crate::body::JsonBody;
use crate::fields::Fields;
use crate::problem::Problem;
use crate::query::Named;
use crate::state::ApiState;

#[derive(Serialize)]
pub(super) struct Paused {
    paused: bool,
}

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

#[derive(Serialize)]
pub(super) struct ReleasedView {
    released: Vec<ReleasedHold>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ReleasedHold {
    kind: HoldKind,
    #[serde(skip_serializing_if = "Option::is_none")]
    job_id: Option<OutboxId>,
}

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

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SkippedView {
    job_id: OutboxId,
    #[serde(skip_serializing_if = "Option::is_none")]
    sequence: Option<SequenceId>,
    /// It waited and has ended CANCELLED; otherwise it had ended before and blocked the group.
    cancelled: bool,
}

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

/// A body that holds a reason and nothing else.
pub(crate) fn reason_alone(body: &[u8]) -> Result<String, Problem> {
    let mut fields = Fields::parse(body)?;
    let reason = reason(&mut fields);
    fields.finish()?;
    Ok(reason)
}

fn reason(fields: &mut Fields<'_>) -> String {
    let given = fields.has("reason");
    let reason = fields.required("reason");
    if given && reason.trim().is_empty() {
        fields.error("reason", "is blank: the record has to say why");
    } else if reason.chars().count() > holds::REASON_CHARS_MAX {
        fields.error("reason", format!("has more than {} characters", holds::REASON_CHARS_MAX));
    }
    reason
}
