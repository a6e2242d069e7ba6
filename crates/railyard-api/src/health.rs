//! `/healthz`: the runtime turns. `/readyz`: this node takes work.

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde::Serialize;

use crate::auth::{self, ReadJobs};
use crate::problem::Problem;
use crate::state::ApiState;

pub(crate) fn routes() -> Router<ApiState> {
    Router::new().route("/healthz", get(live)).route("/readyz", get(ready))
}

#[derive(Serialize)]
struct Health {
    status: &'static str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    reasons: Vec<String>,
}

async fn live(State(state): State<ApiState>, request: Request) -> Result<Response, Problem> {
    let (parts, _) = request.into_parts();
    auth::check::<ReadJobs>(&parts, &state, state.inner.options.open_health)?;
    let (code, status) = match state.inner.node.live() {
        true => (StatusCode::OK, "live"),
        false => (StatusCode::SERVICE_UNAVAILABLE, "not live"),
    };
    Ok((code, Json(Health { status, reasons: Vec::new() })).into_response())
}

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
