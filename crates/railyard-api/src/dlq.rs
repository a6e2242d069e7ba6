//! `/admin/dlq`: jobs that ended without success, and that nobody has made again yet.

use axum::Json;
use axum::extract::State;
use railyard_core::settlement::EndStatus;
use railyard_store::jobs::{self, Filter, JobStatus, Page};
use serde::Serialize;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::auth::{Caller, Decide, Read};
use crate::body::JsonBody;
use crate::jobs::{JobView, ReplayBody, ReplayView, cursor, replay_many};
use crate::openapi::words;
use crate::problem::Problem;
use crate::query::{Ask, Asked, Pairs, size, value};
use crate::state::ApiState;

/// Jobs of a page that names no size.
const SIZE_DEFAULT: u32 = 20;

pub(crate) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(replay))
}

/// The youngest first.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = EndedJobPage)]
struct ListView {
    items: Vec<JobView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[allow(dead_code, reason = "the document is made from it")]
struct ListQuery {
    #[param(schema_with = size)]
    size: Option<u32>,
    /// `nextCursor` of the page before; empty like none begins.
    #[param(schema_with = value)]
    cursor: Option<String>,
    /// How they ended; in ERROR if it is not said.
    #[param(schema_with = words::end_without_success)]
    status: Option<String>,
}

/// Which page of which dead letters.
struct Letters {
    filter: Filter,
    page: Page,
}

impl Ask for Letters {
    fn read(pairs: &mut Pairs) -> Self {
        let status = pairs.word("status", &EndStatus::WITHOUT_SUCCESS, EndStatus::as_str).map(JobStatus::Ended);
        let filter = jobs::dead_letters(&Filter { status, ..Filter::default() });
        let size = pairs.size(SIZE_DEFAULT, jobs::PAGE_SIZE_MAX);
        let job = cursor::job(&pairs.cursor().unwrap_or_default(), &filter).unwrap_or_else(|detail| {
            pairs.error("cursor", detail);
            None
        });
        Self { filter, page: Page::After { job, size } }
    }
}

/// Jobs that ended without success and wait for somebody to look at them.
#[utoipa::path(get, path = "/admin/dlq", tag = "records", operation_id = "listDeadLetters", params(ListQuery),
    responses((status = 200, description = "A page", body = ListView)))]
async fn list(
    _: Caller<Read>,
    State(state): State<ApiState>,
    Asked(Letters { filter, page }): Asked<Letters>,
) -> Result<Json<ListView>, Problem> {
    let found = jobs::search(state.store(), &filter, page).await?;
    let next_cursor = found.next.map(|id| cursor::write([id], &filter));
    Ok(Json(ListView { items: found.jobs.iter().map(JobView::of).collect(), next_cursor }))
}

/// Make jobs again that ended without success, as under `/api/dispatch/jobs/replay`.
#[utoipa::path(post, path = "/admin/dlq/replay", tag = "records", operation_id = "replayDeadLetters",
    request_body = ReplayBody,
    responses((status = 200, description = "What was done, job by job", body = ReplayView)))]
async fn replay(caller: Caller<Decide>, state: State<ApiState>, body: JsonBody) -> Result<Json<ReplayView>, Problem> {
    replay_many(caller, state, body).await
}
