//! `/api/dispatch/jobs`: S3's body in, S3's job out.

mod batch;
pub(crate) mod cursor;
mod decide;
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
use railyard_core::job::NewJob;
use railyard_store::jobs::{self, Created};
use railyard_store::{Store, StoreError};
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use crate::auth::{Caller, Produce, ReadJobs};
use crate::body::JsonBody;
use crate::fields::Fields;
use crate::openapi::Conflict;
use crate::openapi::alias::alias;
use crate::problem::Problem;
use crate::query::{Asked, Cursor, Named};
use crate::state::ApiState;

pub(crate) use process::{WAITING_MAX, routes as process_routes};
pub(crate) use replay::{ReplayBody, ReplayView, many as replay_many};
use request::JobBody;
pub(crate) use request::{GROUP_FORM, HEADER_NAME_FORM, HEADER_VALUE_FORM, PROTOCOL};
use view::{AttemptView, JobRef, JobView};

const ROOT: &str = "/api/dispatch/jobs";
const ALIAS: &str = "/api/dispatch-jobs";

/// Deadlocks and serialization failures did nothing: the same call again, so many times.
const REPEATS_MAX: u32 = 3;

pub(crate) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new()
        .routes(routes!(create, search::search))
        .routes(routes!(batch::create_batch))
        .routes(routes!(read))
        .routes(routes!(attempts))
        .routes(routes!(decide::cancel))
        .routes(routes!(replay::one))
        .routes(routes!(replay::many))
        .routes(alias(routes!(create, search::search), ROOT, ALIAS))
        .routes(alias(routes!(batch::create_batch), ROOT, ALIAS))
        .routes(alias(routes!(read), ROOT, ALIAS))
        .routes(alias(routes!(attempts), ROOT, ALIAS))
        .routes(alias(routes!(decide::cancel), ROOT, ALIAS))
        .routes(alias(routes!(replay::one), ROOT, ALIAS))
        .routes(alias(routes!(replay::many), ROOT, ALIAS))
}

/// Create a job.
#[utoipa::path(post, path = "/api/dispatch/jobs", tag = "jobs", operation_id = "createJob", request_body = JobBody,
    params(("traceparent" = Option<String>, Header, description = "W3C trace context, where the body has none")),
    responses(
        (status = 201, description = "It is committed", body = JobView, headers(("Location" = String))),
        (status = 200, description = "Its idempotency key stood for the same content before: the first job; its id \
            alone once that job is gone", body = JobRef),
        Conflict))]
async fn create(
    _: Caller<Produce>,
    State(state): State<ApiState>,
    headers: HeaderMap,
    body: JsonBody,
) -> Result<Response, Problem> {
    let traceparent = headers.get("traceparent").and_then(|value| value.to_str().ok());
    let job = request::read(&state, &mut Fields::parse(&body.bytes)?, traceparent).await?;
    drop(body);
    let made = enqueue(state.store(), &job).await?;
    if made.conflict {
        state.inner.metrics.job("conflict");
        return Err(Problem::key_reused(Some(made.outbox_id)));
    }
    if !made.created {
        state.inner.metrics.job("repeated");
        // Keys are kept longer than jobs: of a job whose day was dropped, the id is all that is left.
        let view = match jobs::get(state.store(), made.outbox_id).await? {
            Some(first) => Json(JobView::of(&first)).into_response(),
            None => Json(JobRef::new(made.outbox_id)).into_response(),
        };
        return Ok((StatusCode::OK, view).into_response());
    }
    state.inner.metrics.job("created");
    if job.scheduled_for.is_none_or(|at| at <= made.created_at) {
        state.inner.node.wake();
        state.inner.wakes.tell(state.store()).await;
    }
    let location = format!("{ROOT}/{}", made.outbox_id);
    Ok((StatusCode::CREATED, [(LOCATION, location)], Json(JobView::fresh(&job, &made))).into_response())
}

async fn enqueue(store: &Store, job: &NewJob) -> Result<Created, Problem> {
    let mut tries = 0;
    loop {
        tries += 1;
        match jobs::create(store, std::slice::from_ref(job)).await {
            Ok(made) => return made.first().copied().ok_or_else(Problem::internal),
            Err(StoreError::Repeat { .. }) if tries < REPEATS_MAX => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// A job as it stands, with its payload.
#[utoipa::path(get, path = "/api/dispatch/jobs/{id}", tag = "jobs", operation_id = "getJob",
    params(("id" = Uuid, Path, description = "Its id")),
    responses((status = 200, description = "It", body = JobView)))]
async fn read(_: Caller<ReadJobs>, State(state): State<ApiState>, Named(id): Named) -> Result<Json<JobView>, Problem> {
    let row = found(state.store(), job_id(&id)?).await?;
    Ok(Json(JobView::of(&row).with_payload(&row)))
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct After {
    /// Attempts numbered above this.
    #[param(schema_with = Cursor::schema)]
    after: Option<Cursor>,
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
    let after = after.map_or(0, |after| u32::try_from(after.0).unwrap_or(u32::MAX));
    let rows = jobs::attempts(state.store(), id, after).await?;
    if rows.is_empty() {
        found(state.store(), id).await?;
    }
    Ok(Json(rows.iter().map(AttemptView::of).collect()))
}

async fn found(store: &Store, id: OutboxId) -> Result<jobs::JobRow, Problem> {
    jobs::get(store, id).await?.ok_or_else(|| Problem::not_found(format!("no job has the id {id}")))
}

/// What is not an id is the id of nothing.
fn job_id(text: &str) -> Result<OutboxId, Problem> {
    let id = text.parse::<Uuid>();
    id.map(OutboxId).map_err(|_| Problem::not_found("no job has such an id: it is not a UUID"))
}
