//! A job is taken out that waits. The decision is on record with the name of the token, and its reason if one was given.

use axum::Json;
use axum::extract::State;
use railyard_store::holds::Decision;
use railyard_store::jobs::{self, Cancelled};

use super::view::JobView;
use super::{job_id, no_such_job};
use crate::auth::{Caller, Decide};
use crate::body::OptionalBody;
use crate::fields::Fields;
use crate::groups::{MaybeReasonBody, reason_if_any};
use crate::openapi::Conflict;
use crate::problem::Problem;
use crate::query::Named;
use crate::state::ApiState;

/// Take a job out that waits: it ends as CANCELLED and is not sent (again).
#[utoipa::path(post, path = "/api/dispatch/jobs/{id}/cancel", tag = "jobs", operation_id = "cancelJob",
    params(("id" = Uuid, Path, description = "Its id")), request_body = Option<MaybeReasonBody>,
    responses((status = 200, description = "It, as it ended", body = JobView), Conflict))]
pub(crate) async fn cancel(
    caller: Caller<Decide>,
    State(state): State<ApiState>,
    Named(id): Named,
    body: OptionalBody,
) -> Result<Json<JobView>, Problem> {
    let id = job_id(&id)?;
    let mut fields = Fields::parse(body.bytes())?;
    let reason = reason_if_any(&mut fields);
    fields.finish()?;
    let decision = Decision { actor: &caller.name, reason: &reason };
    match jobs::cancel(state.store(), id, decision).await? {
        Cancelled::Done(job) => {
            state.inner.node.wake();
            Ok(Json(JobView::of(&job)))
        }
        Cancelled::Refused(status) => {
            let status = status.as_str();
            Err(Problem::conflict(format!("the job is {status}: only PENDING and FAILED ones can be cancelled")))
        }
        Cancelled::Unknown => Err(no_such_job(id)),
    }
}
