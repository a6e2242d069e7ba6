//! `/healthz`: the runtime turns. `/readyz`: this node takes work.

use axum::Json;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::auth::{self, ReadJobs};
use crate::problem::Problem;
use crate::state::ApiState;

pub(crate) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new().routes(routes!(live)).routes(routes!(ready))
}

/// How a node is.
#[derive(Serialize, ToSchema)]
struct Health {
    status: &'static str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    reasons: Vec<String>,
}

/// Whether the runtime turns.
#[utoipa::path(get, path = "/healthz", tag = "operation", operation_id = "getLiveness", security((), ("bearer" = [])),
    responses((status = 200, description = "It does", body = Health), (status = 503, description = "It does not; restart it", body = Health)))]
async fn live(State(state): State<ApiState>, request: Request) -> Result<Response, Problem> {
    let (parts, _) = request.into_parts();
    auth::check::<ReadJobs>(&parts, &state, state.inner.options.open_health)?;
    let (code, status) = match state.inner.node.live() {
        true => (StatusCode::OK, "live"),
        false => (StatusCode::SERVICE_UNAVAILABLE, "not live"),
    };
    Ok((code, Json(Health { status, reasons: Vec::new() })).into_response())
}

/// Whether this node takes work.
#[utoipa::path(get, path = "/readyz", tag = "operation", operation_id = "getReadiness", security((), ("bearer" = [])),
    responses((status = 200, description = "It does", body = Health), (status = 503, description = "It does not, and why", body = Health)))]
async fn ready(State(state): State<ApiState>, request: Request) -> Result<Response, Problem> {
    let (parts, _) = request.into_parts();
    auth::check::<ReadJobs>(&parts, &state, state.inner.options.open_health)?;
    let found = state.inner.node.ready();
    let (code, status) = match found.ready {
        true => (StatusCode::OK, "ready"),
        false => (StatusCode::SERVICE_UNAVAILABLE, "not ready"),
    };
    Ok((code, Json(Health { status, reasons: found.reasons })).into_response())
}
