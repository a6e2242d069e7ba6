//! `POST /api/dispatch/process`: S3's contract with a message router of its own. The router brings a job's id; the
//! answer tells it whether to forget the message (200) or to bring it again later (400).
//!
//! Nothing is sent from here. The owner of the job is woken, and the caller waits for what becomes of it: no longer than
//! the job's timeout, without a connection to the database, which is looked at with growing pauses. A caller that gives
//! up loses nothing: the relayer does not know that anybody waited.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use railyard_core::OutboxId;
use railyard_core::settlement::EndStatus;
use railyard_store::jobs::{JobRow, JobStatus};
use serde::Serialize;
use tokio::time::{Instant, timeout, timeout_at};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::{found, job_id};
use crate::auth::{Caller, Produce};
use crate::body::JsonBody;
use crate::fields::Fields;
use crate::openapi::shape::{Shape, uuid};
use crate::problem::{Document, Problem};
use crate::state::ApiState;

/// Callers that wait at once; the next one is told to come again. Each looks at most once in [`PAUSE_MAX`].
pub(crate) const WAITING_MAX: usize = 256;
/// First pause between two looks; doubles up to [`PAUSE_MAX`].
const PAUSE_FIRST: Duration = Duration::from_millis(25);
/// Longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// Longest wait for the last look: the database may hang.
const LOOK_MAX: Duration = Duration::from_secs(1);
/// When to come again for a job of which nothing better is known.
const DELAY_S_DEFAULT: u64 = 5;

/// Outside of the general deadline of requests: a job's timeout may be longer.
pub(crate) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new().routes(routes!(process))
}

/// S3's answer to a router.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Processed)]
pub(crate) struct ProcessView {
    /// True: forget the message. False: bring it again.
    ack: bool,
    /// In words.
    message: String,
    /// Seconds until then.
    #[serde(skip_serializing_if = "Option::is_none")]
    delay_seconds: Option<u64>,
}

/// What a job's look says to the router.
enum Verdict {
    /// It has ended.
    Done(String),
    /// It failed, or was put off, and will be tried again.
    Later(String, u64),
    /// Nothing yet.
    Open,
}

/// Which job; one of the three names.
struct ProcessBody;

impl PartialSchema for ProcessBody {
    fn schema() -> RefOr<Schema> {
        let shape = Shape::new("The job's id, under one of three names.");
        shape.optional("messageId", uuid()).optional("jobId", uuid()).optional("id", uuid()).into()
    }
}

impl ToSchema for ProcessBody {}

/// For a router of its own: wait until the job ends, or fails and is to be tried again. Sends nothing itself.
#[utoipa::path(post, path = "/api/dispatch/process", tag = "jobs", operation_id = "processJob",
    request_body = ProcessBody,
    responses(
        (status = 200, description = "It has ended: delivered, exhausted, cancelled or expired", body = ProcessView),
        (status = 400, description = "It will be tried again (`ack` is false), or the request is wrong (a problem)",
            content((ProcessView = "application/json"), (Document = "application/problem+json"))),
        (status = 404, description = "There is no such job", body = Document, content_type = "application/problem+json")))]
async fn process(_: Caller<Produce>, State(state): State<ApiState>, body: JsonBody) -> Result<Response, Problem> {
    let mut fields = Fields::parse(&body.bytes)?;
    let named: Vec<(&str, String)> =
        ["messageId", "jobId", "id"].into_iter().filter_map(|name| Some((name, fields.text(name)?))).collect();
    match named.as_slice() {
        [] => fields.error("messageId", "is missing"),
        [(_, first), others @ ..] => {
            for (name, _) in others.iter().filter(|(_, id)| id != first) {
                fields.error(name, "says another job than the others");
            }
        }
    }
    fields.finish()?;
    drop(body);
    let id = job_id(named.first().map_or("", |(_, id)| id))?;
    let Ok(_place) = state.inner.processing.clone().try_acquire_owned() else {
        return Err(Problem::unavailable("too many callers wait for outcomes"));
    };
    let looking = found(state.store(), id);
    let before = timeout(state.inner.options.request_timeout, looking).await.map_err(|_| too_slow())??;
    let until = Instant::now() + Duration::from_millis(before.timeout_ms.into());
    if let Some(answer) = answer(verdict(&before, &before, until)) {
        return Ok(answer);
    }
    timeout_at(until + LOOK_MAX, wait(&state, id, &before, until)).await.map_err(|_| too_slow())?
}

fn too_slow() -> Problem {
    Problem::unavailable("the database does not answer")
}

/// Looks until the job is what the router waits for, this node stops, or it is `until`.
async fn wait(state: &ApiState, id: OutboxId, before: &JobRow, until: Instant) -> Result<Response, Problem> {
    state.committed().await;
    let mut pause = PAUSE_FIRST;
    loop {
        tokio::time::sleep_until(until.min(Instant::now() + pause)).await;
        pause = (pause * 2).min(PAUSE_MAX);
        let now = found(state.store(), id).await?;
        if let Some(answer) = answer(verdict(before, &now, until)) {
            return Ok(answer);
        }
        let why = if Instant::now() >= until {
            "no outcome within its timeout"
        } else if !state.inner.node.ready().ready {
            "this node takes no work now, another one will"
        } else {
            continue;
        };
        let message = format!("{}: {why}", now.status.as_str());
        return Ok(later(message, now.due_in.map_or(DELAY_S_DEFAULT, seconds)));
    }
}

/// `before` is what the router found: an outcome that was on record then is no news.
fn verdict(before: &JobRow, now: &JobRow, until: Instant) -> Verdict {
    let why = now.last_error.as_deref().unwrap_or("no reason on record");
    match now.status {
        JobStatus::Ended(EndStatus::Completed) => Verdict::Done("COMPLETED: delivered".to_owned()),
        JobStatus::Ended(status @ (EndStatus::Error | EndStatus::Expired | EndStatus::Cancelled)) => {
            Verdict::Done(format!("{}: {why}", status.as_str()))
        }
        JobStatus::InProgress => Verdict::Open,
        JobStatus::Pending | JobStatus::Failed => {
            let wait = until.saturating_duration_since(Instant::now());
            let due_in = now.due_in.map_or(DELAY_S_DEFAULT, seconds);
            if settled(now) > settled(before) {
                Verdict::Later(format!("{}: {why}", now.status.as_str()), due_in)
            } else if now.due_in.is_some_and(|due_in| due_in > wait) {
                let why = now.last_error.as_deref().unwrap_or("not due yet");
                Verdict::Later(format!("{}: {why}", now.status.as_str()), due_in)
            } else {
                Verdict::Open
            }
        }
    }
}

/// Attempts that are over.
fn settled(job: &JobRow) -> u32 {
    job.attempt_count.saturating_sub(u32::from(job.status == JobStatus::InProgress))
}

/// Whole seconds, upwards, at least one: zero would be a loop.
fn seconds(span: Duration) -> u64 {
    (span.as_secs() + u64::from(span.subsec_nanos() > 0)).max(1)
}

fn answer(verdict: Verdict) -> Option<Response> {
    match verdict {
        Verdict::Done(message) => {
            let view = ProcessView { ack: true, message, delay_seconds: None };
            Some((StatusCode::OK, Json(view)).into_response())
        }
        Verdict::Later(message, delay_s) => Some(later(message, delay_s)),
        Verdict::Open => None,
    }
}

fn later(message: String, delay_s: u64) -> Response {
    let view = ProcessView { ack: false, message, delay_seconds: Some(delay_s) };
    (StatusCode::BAD_REQUEST, Json(view)).into_response()
}
