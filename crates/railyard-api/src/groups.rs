//! `/admin/groups`: what stands where, and what an operator decides about it.

use axum::extract::{Path, State};
use axum::routing::{get, post};
use axum::{Json, Router};
use jiff::Timestamp;
use railyard_core::hold::HoldKind;
use railyard_core::timestamp::utc_millis;
use railyard_core::{NodeId, OutboxId, ParticipantId, SequenceId};
use railyard_store::holds::{self, Decision, GroupRow, HeadRow, Hold, InFlightRow, View};
use serde::{Deserialize, Serialize};

use crate::auth::{Caller, Decide, Read};
use crate::body::JsonBody;
use crate::fields::Fields;
use crate::problem::Problem;
use crate::query::Asked;
use crate::state::ApiState;

/// Groups of a page that names no size.
const SIZE_DEFAULT: i64 = 20;

pub(crate) fn routes() -> Router<ApiState> {
    Router::new()
        .route("/admin/groups", get(list))
        .route("/admin/groups/{id}", get(read))
        .route("/admin/groups/{id}/pause", post(pause))
        .route("/admin/groups/{id}/resume", post(resume))
        .route("/admin/groups/{id}/release", post(release))
        .route("/admin/groups/{id}/skip", post(skip))
        .route("/admin/node", get(node))
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct GroupView {
    group_id: ParticipantId,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    single: bool,
    state: &'static str,
    depth: u64,
    partition: u8,
    #[serde(skip_serializing_if = "Option::is_none")]
    head: Option<HeadView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    in_flight: Option<InFlightView>,
    holds: Vec<HoldView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_sequence: Option<SequenceId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    owner_node_id: Option<NodeId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    owner_name: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct HeadView {
    job_id: OutboxId,
    sequence: SequenceId,
    rail_type: String,
    attempt_count: u32,
    failures: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_attempt_at: Option<String>,
    created_at: String,
    age_seconds: f64,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct InFlightView {
    job_id: OutboxId,
    sequence: SequenceId,
    attempt_id: String,
    attempt_number: u32,
    claimed_at: String,
    call_deadline: String,
    node_id: NodeId,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct HoldView {
    kind: HoldKind,
    #[serde(skip_serializing_if = "Option::is_none")]
    job_id: Option<OutboxId>,
    reason: String,
    actor: String,
    since: String,
}

impl From<GroupRow> for GroupView {
    fn from(row: GroupRow) -> Self {
        Self {
            group_id: row.group,
            single: row.single,
            state: row.state.as_str(),
            depth: row.depth,
            partition: row.partition.0,
            head: row.head.map(HeadView::from),
            in_flight: row.in_flight.map(InFlightView::from),
            holds: row.holds.into_iter().map(HoldView::from).collect(),
            next_sequence: row.next_sequence,
            owner_node_id: row.owner,
            owner_name: row.owner_name,
        }
    }
}

impl From<HeadRow> for HeadView {
    fn from(row: HeadRow) -> Self {
        Self {
            job_id: row.outbox_id,
            sequence: row.sequence_id,
            rail_type: row.rail_type,
            attempt_count: row.attempt_count,
            failures: row.failures,
            next_attempt_at: row.next_attempt_at.map(utc_millis),
            created_at: utc_millis(row.created_at),
            age_seconds: row.age_s,
        }
    }
}

impl From<InFlightRow> for InFlightView {
    fn from(row: InFlightRow) -> Self {
        Self {
            job_id: row.outbox_id,
            sequence: row.sequence_id,
            attempt_id: row.attempt_id.to_string(),
            attempt_number: row.attempt_no,
            claimed_at: utc_millis(row.claimed_at),
            call_deadline: utc_millis(row.call_deadline),
            node_id: row.node_id,
        }
    }
}

impl From<Hold> for HoldView {
    fn from(row: Hold) -> Self {
        let since: Timestamp = row.since;
        Self { kind: row.kind, job_id: row.outbox_id, reason: row.reason, actor: row.actor, since: utc_millis(since) }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ListView {
    items: Vec<GroupView>,
    /// `cursor` of the next page; none at the end, and for views that have no second page.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<ParticipantId>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ListQuery {
    #[serde(default)]
    view: ViewName,
    size: Option<i64>,
    cursor: Option<String>,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ViewName {
    #[default]
    Held,
    All,
    Deepest,
    Oldest,
}

async fn list(
    _: Caller<Read>,
    State(state): State<ApiState>,
    Asked(asked): Asked<ListQuery>,
) -> Result<Json<ListView>, Problem> {
    let (view, pages) = match asked.view {
        ViewName::Held => (View::Held, true),
        ViewName::All => (View::All, true),
        ViewName::Deepest => (View::Deepest, false),
        ViewName::Oldest => (View::Oldest, false),
    };
    let size = asked.size.unwrap_or(SIZE_DEFAULT).clamp(1, holds::LIST_MAX);
    let after = asked.cursor.map(|name| group_name(&name)).transpose()?;
    let rows = holds::list(state.store(), view, after.as_ref(), size).await?;
    let full = i64::try_from(rows.len()).is_ok_and(|count| count == size);
    let next_cursor = if pages && full { rows.last().map(|row| row.group.clone()) } else { None };
    Ok(Json(ListView { items: rows.into_iter().map(GroupView::from).collect(), next_cursor }))
}

async fn read(
    _: Caller<Read>,
    State(state): State<ApiState>,
    Path(id): Path<String>,
) -> Result<Json<GroupView>, Problem> {
    let found = holds::get(state.store(), &group_name(&id)?).await?;
    found.map(|row| Json(row.into())).ok_or_else(|| Problem::not_found("nothing was ever heard of this group"))
}

/// What this node's actors say about themselves.
async fn node(_: Caller<Read>, State(state): State<ApiState>) -> Json<serde_json::Value> {
    Json(state.inner.node.groups())
}

#[derive(Serialize)]
struct Paused {
    paused: bool,
}

async fn pause(
    caller: Caller<Decide>,
    State(state): State<ApiState>,
    Path(id): Path<String>,
    body: JsonBody,
) -> Result<Json<Paused>, Problem> {
    let reason = reason_alone(&body.bytes)?;
    let decision = Decision { actor: &caller.name, reason: &reason };
    holds::pause(state.store(), &group_name(&id)?, decision).await?;
    Ok(Json(Paused { paused: true }))
}

async fn resume(
    caller: Caller<Decide>,
    State(state): State<ApiState>,
    Path(id): Path<String>,
    body: JsonBody,
) -> Result<Json<Paused>, Problem> {
    let reason = reason_alone(&body.bytes)?;
    let decision = Decision { actor: &caller.name, reason: &reason };
    holds::resume(state.store(), &group_name(&id)?, decision).await?;
    state.inner.node.wake();
    Ok(Json(Paused { paused: false }))
}

#[derive(Serialize)]
struct ReleasedView {
    released: Vec<ReleasedHold>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ReleasedHold {
    kind: HoldKind,
    #[serde(skip_serializing_if = "Option::is_none")]
    job_id: Option<OutboxId>,
}

async fn release(
    caller: Caller<Decide>,
    State(state): State<ApiState>,
    Path(id): Path<String>,
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
struct SkippedView {
    job_id: OutboxId,
    #[serde(skip_serializing_if = "Option::is_none")]
    sequence: Option<SequenceId>,
    /// It waited and has ended CANCELLED; otherwise it had ended before and blocked the group.
    cancelled: bool,
}

async fn skip(
    caller: Caller<Decide>,
    State(state): State<ApiState>,
    Path(id): Path<String>,
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

fn group_name(name: &str) -> Result<ParticipantId, Problem> {
    if name.is_empty() || name.contains('\0') || name.len() > railyard_core::limits::GROUP_BYTES_MAX {
        return Err(Problem::not_found("no group has such a name"));
    }
    Ok(ParticipantId::new(name))
}
