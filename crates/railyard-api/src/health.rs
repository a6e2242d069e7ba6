//! `/healthz`: the runtime turns. `/readyz`: this node takes work, and the database answers.
//!
//! A process that waits for its database says both as well ([`starting`]): who gets no answer starts it again, which
//! brings no database back.

use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use railyard_store::Store;
use serde::Serialize;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::auth::{self, ReadJobs};
use crate::problem::Problem;
use crate::state::{ApiState, Readiness};

/// Longest wait for the database; shorter than a probe waits.
const PING_MAX: Duration = Duration::from_secs(1);
/// How long an answer holds: whoever asks, and however often, costs no more than this.
const PING_EVERY: Duration = Duration::from_millis(500);

/// Whether the database has answered lately. One question at a time.
#[derive(Default)]
pub(crate) struct Pings {
    last: Mutex<Option<(Instant, bool)>>,
}

impl Pings {
    async fn answered(&self, store: &Store) -> bool {
        let mut last = self.last.lock().await;
        match *last {
            Some((at, answered)) if at.elapsed() < PING_EVERY => answered,
            _ => {
                let answered = matches!(timeout(PING_MAX, store.ping()).await, Ok(Ok(())));
                *last = Some((Instant::now(), answered));
                answered
            }
        }
    }
}

pub(crate) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new().routes(routes!(live)).routes(routes!(ready))
}

/// What a process answers before there is a node: it lives and is not ready, and everything else is to be asked later.
/// Nothing of it needs a token.
pub fn starting() -> Router {
    let live = || async { Json(Health { status: "live", reasons: Vec::new() }) };
    let ready = || async {
        let reasons = vec!["it is starting, or waiting for the database".to_owned()];
        (StatusCode::SERVICE_UNAVAILABLE, Json(Health { status: "not ready", reasons }))
    };
    let later = || async { Problem::unavailable("this node is starting, or waiting for the database") };
    Router::new().route("/healthz", get(live)).route("/readyz", get(ready)).fallback(later)
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

/// Whether this node takes work and the database answers.
#[utoipa::path(get, path = "/readyz", tag = "operation", operation_id = "getReadiness", security((), ("bearer" = [])),
    responses((status = 200, description = "It does", body = Health), (status = 503, description = "It does not, and why", body = Health)))]
async fn ready(State(state): State<ApiState>, request: Request) -> Result<Response, Problem> {
    let (parts, _) = request.into_parts();
    auth::check::<ReadJobs>(&parts, &state, state.inner.options.open_health)?;
    let mut found = state.inner.node.ready();
    if found.ready && !state.inner.pings.answered(state.store()).await {
        found = Readiness { ready: false, reasons: vec!["the database does not answer".to_owned()] };
    }
    let (code, status) = match found.ready {
        true => (StatusCode::OK, "ready"),
        false => (StatusCode::SERVICE_UNAVAILABLE, "not ready"),
    };
    Ok((code, Json(Health { status, reasons: found.reasons })).into_response())
}
