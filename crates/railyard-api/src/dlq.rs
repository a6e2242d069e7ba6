//! `/admin/dlq`: jobs that ended without success, and that nobody has made again yet.

use axum::Json;
use axum::extract::State;
use railyard_core::settlement::EndStatus;
use railyard_core::timestamp::utc_millis;
use railyard_core::{OutboxId, ParticipantId, SequenceId};
use railyard_store::jobs::{self, Filter, JobRow, JobStatus, Page};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::auth::{Caller, Decide, Read};
use crate::body::JsonBody;
use crate::jobs::{ReplayBody, ReplayView, cursor, replay_many};
use crate::openapi::words;
use crate::problem::Problem;
use crate::query::{Asked, Size};
use crate::state::ApiState;

/// Jobs of a page that names no size.
const SIZE_DEFAULT: i64 = 20;

pub(crate) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(replay))
}

/// A job that ended without success.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = EndedJob)]
struct EndedView {
    #[schema(value_type = Uuid)]
    id: OutboxId,
    #[schema(schema_with = words::end_status)]
    status: &'static str,
    source: String,
    r#type: String,
    rail_type: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    group_id: Option<ParticipantId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<i64>)]
    sequence: Option<SequenceId>,
    attempt_count: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_error: Option<String>,
    created_at: String,
    completed_at: String,
}

impl From<JobRow> for EndedView {
    fn from(row: JobRow) -> Self {
        Self {
            id: row.outbox_id,
            status: row.status.as_str(),
            source: row.source,
            r#type: row.kind,
            rail_type: row.rail_type,
            group_id: row.group,
            sequence: row.sequence_id,
            attempt_count: row.attempt_count,
            last_error: row.last_error,
            created_at: utc_millis(row.created_at),
            completed_at: row.completed_at.map(utc_millis).unwrap_or_default(),
        }
    }
}

/// The youngest first.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = EndedJobPage)]
struct ListView {
    items: Vec<EndedView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct ListQuery {
    #[param(schema_with = Size::schema)]
    size: Option<Size>,
    /// `nextCursor` of the page before.
    cursor: Option<String>,
    /// How they ended.
    #[serde(default)]
    #[param(inline)]
    status: StatusName,
}

#[derive(Clone, Copy, Default, Deserialize, ToSchema)]
#[serde(rename_all = "UPPERCASE")]
enum StatusName {
    #[default]
    Error,
    Expired,
    Cancelled,
}

/// Jobs that ended without success and wait for somebody to look at them.
#[utoipa::path(get, path = "/admin/dlq", tag = "records", operation_id = "listDeadLetters", params(ListQuery),
    responses((status = 200, description = "A page", body = ListView)))]
async fn list(
    _: Caller<Read>,
    State(state): State<ApiState>,
    Asked(asked): Asked<ListQuery>,
) -> Result<Json<ListView>, Problem> {
    let status = match asked.status {
        StatusName::Error => EndStatus::Error,
        StatusName::Expired => EndStatus::Expired,
        StatusName::Cancelled => EndStatus::Cancelled,
    };
    let filter = jobs::failed(&Filter { status: Some(JobStatus::Ended(status)), ..Filter::default() });
    let job = match asked.cursor.as_deref() {
        None | Some("") => None,
        Some(text) => match cursor::read(text, &filter) {
            Some([id]) => Some(id),
            None => return Err(Problem::field("cursor", "is not a cursor of this list: take nextCursor")),
        },
    };
    let size = Size::of(asked.size, SIZE_DEFAULT, jobs::PAGE_SIZE_MAX.into());
    let size = u32::try_from(size).unwrap_or(jobs::PAGE_SIZE_MAX);
    let found = jobs::search(state.store(), &filter, Page::Behind { job, size }).await?;
    let next_cursor = found.next.map(|id| cursor::write([id], &filter));
    Ok(Json(ListView { items: found.jobs.into_iter().map(EndedView::from).collect(), next_cursor }))
}

/// Make jobs again that ended without success, as under `/api/dispatch/jobs/replay`.
#[utoipa::path(post, path = "/admin/dlq/replay", tag = "records", operation_id = "replayDeadLetters",
    request_body = ReplayBody,
    responses((status = 200, description = "What was done, job by job", body = ReplayView)))]
async fn replay(caller: Caller<Decide>, state: State<ApiState>, body: JsonBody) -> Result<Json<ReplayView>, Problem> {
    replay_many(caller, state, body).await
}
