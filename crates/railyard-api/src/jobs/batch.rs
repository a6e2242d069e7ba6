//! `/api/dispatch/jobs/batch`: many jobs in one request, each answered for itself.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use railyard_core::job::NewJob;
use railyard_store::jobs::{self, Placed, Taken};
use serde::Serialize;
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use super::request::{self, JobBody, Request};
use super::view::JobView;
use crate::auth::{Caller, Produce};
use crate::body::BatchBody;
use crate::fields::Fields;
use crate::items::{self, ItemResult};
use crate::metrics::Posted;
use crate::problem::Problem;
use crate::state::ApiState;

/// Results in the order of the items, the jobs that this call made, and how many they are.
#[derive(Serialize, ToSchema)]
#[schema(as = JobBatchResult)]
pub(super) struct BatchView {
    results: Vec<ItemResult>,
    jobs: Vec<JobView>,
    count: usize,
}

/// Many jobs in one of three forms.
pub(super) struct JobBatch;

impl ToSchema for JobBatch {}

impl PartialSchema for JobBatch {
    fn schema() -> RefOr<Schema> {
        items::batch_of(&JobBody::schema(), "jobs")
    }
}

/// An item that was read.
enum Item {
    Asked(Option<String>, Box<Request>),
    Answered(ItemResult),
}

/// Create many jobs, each answered for itself.
#[utoipa::path(post, path = "/api/dispatch/jobs/batch", tag = "jobs", operation_id = "createJobs",
    request_body = JobBatch,
    params(("traceparent" = Option<String>, Header, description = "W3C trace context, where an item has none")),
    responses(
        (status = 201, description = "At least one job was made; each result says what became of its item",
            body = BatchView),
        (status = 200, description = "No job was made; each result says why", body = BatchView)))]
pub(super) async fn create_batch(
    _: Caller<Produce>,
    State(state): State<ApiState>,
    headers: HeaderMap,
    body: BatchBody,
) -> Result<Response, Problem> {
    let traceparent = headers.get("traceparent").and_then(|value| value.to_str().ok());
    let mut read = Vec::new();
    for item in items::read(&body.bytes, "jobs")? {
        read.push(read_item(&state, item.get(), traceparent).await?);
    }
    let good: Vec<NewJob> = read
        .iter()
        .filter_map(|item| match item {
            Item::Asked(_, request) => Some(request.job.clone()),
            Item::Answered(_) => None,
        })
        .collect();
    let placed = jobs::create_each(state.store(), &good).await?;
    // Its share of the memory stands for the jobs as well, which are no longer needed here.
    drop(body);
    let answer = answer(&state, read, placed);
    if answer.count == 0 {
        return Ok(Json(answer).into_response());
    }
    state.committed().await;
    Ok((StatusCode::CREATED, Json(answer)).into_response())
}

async fn read_item(state: &ApiState, text: &str, traceparent: Option<&str>) -> Result<Item, Problem> {
    let fields = match Fields::parse(text.as_bytes()) {
        Ok(fields) => fields,
        Err(problem) => return Ok(Item::Answered(ItemResult::of_problem(None, problem)?)),
    };
    let id = fields.peek_text("id");
    match request::read(state, fields, traceparent).await {
        Ok(request) => Ok(Item::Asked(id, Box::new(request))),
        Err(problem) => Ok(Item::Answered(ItemResult::of_problem(id, problem)?)),
    }
}

fn answer(state: &ApiState, read: Vec<Item>, placed: Vec<Placed>) -> BatchView {
    let mut placed = placed.into_iter();
    let (mut results, mut jobs) = (Vec::new(), Vec::new());
    for item in read {
        let (id, request) = match item {
            Item::Answered(result) => {
                state.inner.metrics.job(Posted::Refused);
                results.push(result);
                continue;
            }
            Item::Asked(id, request) => (id, request),
        };
        let placed = placed.next().unwrap_or_else(Placed::not_tried);
        state.inner.metrics.job(Posted::of_placed(&placed));
        if let Placed::Taken(made) = &placed
            && made.taken == Taken::Created
        {
            jobs.push(JobView::fresh(&request.job, made));
        }
        results.push(ItemResult::of_placed(id, request.key_field, placed));
    }
    BatchView { results, count: jobs.len(), jobs }
}
