//! `/api/dispatch/jobs`: S3's body in, S3's job out.

mod batch;
mod cancel;
pub(crate) mod cursor;
mod filter;
mod process;
mod replay;
mod request;
mod search;
mod view;

use axum::Json;
use axum::extract::State;
use axum::http::header::LOCATION;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use railyard_core::OutboxId;
use railyard_store::Store;
use railyard_store::jobs::{self, Created, JobRow, Taken};
use utoipa::IntoParams;
use utoipa_axum::router::{OpenApiRouter, UtoipaMethodRouter};
use utoipa_axum::routes;
use uuid::Uuid;

use crate::auth::{Caller, Produce, ReadJobs};
use crate::body::JsonBody;
use crate::fields::Fields;
use crate::metrics::Posted;
use crate::openapi::Conflict;
use crate::openapi::alias::alias;
use crate::problem::Problem;
use crate::query::{Ask, Asked, Named, Pairs, number};
use crate::state::ApiState;

pub(crate) use process::{WAITING_MAX, routes as process_routes};
pub(crate) use replay::{ReplayBody, ReplayView, many as replay_many};
pub(crate) use request::{GROUP_FORM, HEADER_NAME_FORM, HEADER_VALUE_FORM, PROTOCOL};
use request::{JobBody, Request};
pub(crate) use view::JobView;
use view::{AttemptView, FirstJob, JobRef};

const ROOT: &str = "/api/dispatch/jobs";
const ALIAS: &str = "/api/dispatch-jobs";

pub(crate) fn routes() -> OpenApiRouter<ApiState> {
    let under_alias = all().map(|routes| alias(routes, ROOT, ALIAS));
    all().into_iter().chain(under_alias).fold(OpenApiRouter::new(), OpenApiRouter::routes)
}

fn all() -> [UtoipaMethodRouter<ApiState>; 7] {
    [
        routes!(create, search::search),
        routes!(batch::create_batch),
        routes!(read),
        routes!(attempts),
        routes!(cancel::cancel),
        routes!(replay::one),
        routes!(replay::many),
    ]
}

/// Create a job.
#[utoipa::path(post, path = "/api/dispatch/jobs", tag = "jobs", operation_id = "createJob", request_body = JobBody,
    params(("traceparent" = Option<String>, Header, description = "W3C trace context, where the body has none")),
    responses(
        (status = 201, description = "It is committed", body = JobView, headers(("Location" = String))),
        (status = 200, description = "Its idempotency key stood for the same content before: the first job; its id \
            alone once that job is gone", body = FirstJob),
        Conflict))]
async fn create(
    _: Caller<Produce>,
    State(state): State<ApiState>,
    headers: HeaderMap,
    body: JsonBody,
) -> Result<Response, Problem> {
    let made = make(&state, &headers, body).await;
    state.inner.metrics.job(match &made {
        Ok((_, made)) => made.taken.into(),
        Err(problem) => Posted::of_problem(problem),
    });
    let (Request { job, key_field }, made) = made?;
    let id = made.outbox_id;
    match made.taken {
        Taken::Conflict => Err(Problem::key_reused(key_field, Some(id))),
        // Keys are kept longer than jobs: of a job whose day was dropped, the id is all that is left.
        Taken::Repeated => Ok(match jobs::glance(state.store(), id).await? {
            Some(first) => Json(FirstJob::Whole(Box::new(JobView::of(&first)))).into_response(),
            None => Json(FirstJob::Id(JobRef { id })).into_response(),
        }),
        Taken::Created => {
            if job.scheduled_for.is_none_or(|at| at <= made.created_at) {
                state.committed().await;
            }
            let location = [(LOCATION, format!("{ROOT}/{id}"))];
            Ok((StatusCode::CREATED, location, Json(JobView::fresh(&job, &made))).into_response())
        }
    }
}

/// The body's share of the memory stands for the job as well, until it is stored.
async fn make(state: &ApiState, headers: &HeaderMap, body: JsonBody) -> Result<(Request, Created), Problem> {
    let traceparent = headers.get("traceparent").and_then(|value| value.to_str().ok());
    let request = request::read(state, Fields::parse(&body.bytes)?, traceparent).await?;
    let made = jobs::create(state.store(), std::slice::from_ref(&request.job)).await?;
    Ok((request, made.first().copied().ok_or_else(Problem::internal)?))
}

/// A job as it stands, with its payload.
#[utoipa::path(get, path = "/api/dispatch/jobs/{id}", tag = "jobs", operation_id = "getJob",
    params(("id" = Uuid, Path, description = "Its id")),
    responses((status = 200, description = "It", body = JobView)))]
async fn read(_: Caller<ReadJobs>, State(state): State<ApiState>, Named(id): Named) -> Result<Json<JobView>, Problem> {
    let id = job_id(&id)?;
    let row = jobs::get(state.store(), id).await?.ok_or_else(|| no_such_job(id))?;
    Ok(Json(JobView::of(&row).with_payload(&row)))
}

#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
struct After {
    /// Attempts numbered above this.
    #[param(schema_with = number, required = false)]
    after: u32,
}

impl Ask for After {
    fn read(pairs: &mut Pairs) -> Self {
        Self { after: pairs.whole("after").unwrap_or(0) }
    }
}

/// A job's attempts, in order.
#[utoipa::path(get, path = "/api/dispatch/jobs/{id}/attempts", tag = "jobs", operation_id = "listAttempts",
    params(("id" = Uuid, Path, description = "The job's id"), After),
    responses((status = 200, description = "At most a page; go on with `after`", body = Vec<AttemptView>)))]
async fn attempts(
    _: Caller<ReadJobs>,
    State(state): State<ApiState>,
    Named(id): Named,
    Asked(After { after }): Asked<After>,
) -> Result<Json<Vec<AttemptView>>, Problem> {
    let id = job_id(&id)?;
    let rows = jobs::attempts(state.store(), id, after).await?;
    if rows.is_empty() {
        found(state.store(), id).await?;
    }
    Ok(Json(rows.iter().map(AttemptView::of).collect()))
}

/// A job without its payload.
async fn found(store: &Store, id: OutboxId) -> Result<JobRow, Problem> {
    jobs::glance(store, id).await?.ok_or_else(|| no_such_job(id))
}

fn no_such_job(id: OutboxId) -> Problem {
    Problem::not_found(format!("no job has the id {id}"))
}

/// What is not an id is the id of nothing.
fn job_id(text: &str) -> Result<OutboxId, Problem> {
    let id = text.parse::<Uuid>();
    id.map(OutboxId).map_err(|_| Problem::not_found("no job has such an id: it is not a UUID"))
}
