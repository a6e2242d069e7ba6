//! `/metrics`: what the node has counted, and what the database says, in one scrape.
//!
//! The names and their meaning stand in `config/metrics.md`. The database's figures are read at most once a second,
//! and no more often than lets the reading take a twentieth of the time, but always after ten seconds: figures older than
//! that are of no use to an alert. While the database is away the last figures stay, and `railyard_database_up` is 0.

mod figures;
mod members;
mod rate;

use std::time::{Duration, Instant};

use axum::extract::{Request, State};
use axum::http;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use prometheus::{IntCounter, IntCounterVec, Opts, Registry, TextEncoder};
use railyard_store::StoreError;
use railyard_store::cluster::{self, ClusterRow};
use railyard_store::gauges::{self, Gauges};
use railyard_store::jobs::{Placed, Taken};
use tokio::sync::Mutex;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::auth::{self, Read};
use crate::openapi::alias::alias;
use crate::problem::Problem;
use crate::state::ApiState;
use figures::Figures;
use rate::RateMetrics;

/// Figures younger than this are shown again.
const REFRESH_MIN: Duration = Duration::from_secs(1);
/// A reading that took t is not repeated before t times this has passed.
const REFRESH_SHARE: u32 = 20;
/// But it is after this: one slow reading must not blind the node.
const REFRESH_MAX: Duration = Duration::from_secs(10);
/// A scrape waits no longer than this for the database.
const REFRESH_TIMEOUT: Duration = Duration::from_secs(4);

pub(crate) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new().routes(routes!(scrape)).routes(alias(routes!(scrape), "/metrics", "/q/metrics"))
}

/// What became of a job or an event that was posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Posted {
    /// It was stored.
    Created,
    /// Its key was known, with the same content.
    Repeated,
    /// Its key was known, with other content.
    Conflict,
    /// It was refused.
    Refused,
    /// It was not stored, and may be with the next call.
    Later,
    /// We failed at it.
    Failed,
}

impl Posted {
    const ALL: [Self; 6] = [Self::Created, Self::Repeated, Self::Conflict, Self::Refused, Self::Later, Self::Failed];

    fn as_str(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Repeated => "repeated",
            Self::Conflict => "conflict",
            Self::Refused => "refused",
            Self::Later => "later",
            Self::Failed => "failed",
        }
    }

    /// What an answer tells that names no more.
    pub(crate) fn of_problem(problem: &Problem) -> Self {
        match problem.status() {
            StatusCode::SERVICE_UNAVAILABLE => Self::Later,
            status if status.is_client_error() => Self::Refused,
            _ => Self::Failed,
        }
    }

    /// What became of one of many.
    pub(crate) fn of_placed(placed: &Placed) -> Self {
        match placed {
            Placed::Taken(made) => made.taken.into(),
            Placed::Refused { .. } => Self::Refused,
            Placed::Later { .. } => Self::Later,
            Placed::Failed { .. } => Self::Failed,
        }
    }
}

impl From<Taken> for Posted {
    fn from(taken: Taken) -> Self {
        match taken {
            Taken::Created => Self::Created,
            Taken::Repeated => Self::Repeated,
            Taken::Conflict => Self::Conflict,
        }
    }
}

/// The API's own metrics and the database's figures.
pub struct ApiMetrics {
    registry: Registry,
    requests: IntCounterVec,
    jobs: IntCounterVec,
    events: IntCounterVec,
    auth_failures: IntCounter,
    rate: RateMetrics,
    figures: Mutex<(Figures, Option<Instant>)>,
}

impl ApiMetrics {
    /// Registers everything beside what the node has registered.
    pub(crate) fn register(registry: Registry) -> Result<Self, prometheus::Error> {
        let requests = IntCounterVec::new(
            Opts::new("railyard_api_requests_total", "answers, by method, route and status"),
            &["method", "route", "status"],
        )?;
        let jobs = IntCounterVec::new(
            Opts::new("railyard_api_jobs_total", "jobs that were posted, by what became of them"),
            &["result"],
        )?;
        let events = IntCounterVec::new(
            Opts::new("railyard_api_events_total", "events that were posted, by what became of them"),
            &["result"],
        )?;
        let auth_failures = IntCounter::new("railyard_api_auth_failures_total", "requests without a known token")?;
        registry.register(Box::new(requests.clone()))?;
        registry.register(Box::new(jobs.clone()))?;
        registry.register(Box::new(events.clone()))?;
        registry.register(Box::new(auth_failures.clone()))?;
        for posted in Posted::ALL {
            jobs.with_label_values(&[posted.as_str()]);
            events.with_label_values(&[posted.as_str()]);
        }
        let rate = RateMetrics::register(&registry)?;
        let figures = Mutex::new((Figures::register(&registry)?, None));
        Ok(Self { registry, requests, jobs, events, auth_failures, rate, figures })
    }

    pub(crate) fn answered(&self, method: &str, route: &str, status: StatusCode) {
        self.requests.with_label_values(&[method, route, status.as_str()]).inc();
    }

    pub(crate) fn job(&self, posted: Posted) {
        self.jobs.with_label_values(&[posted.as_str()]).inc();
    }

    pub(crate) fn event(&self, posted: Posted) {
        self.events.with_label_values(&[posted.as_str()]).inc();
    }

    /// A call for slots has ended; how far it had to look, if it found any.
    pub(crate) fn assigned(&self, took: Duration, depth: Option<u64>) {
        self.rate.assigned(took, depth);
    }

    pub(crate) fn auth_failed(&self) {
        self.auth_failures.inc();
    }
}

/// How long the figures stand that took so long to read.
fn rest_after(reading: Duration) -> Duration {
    (reading * REFRESH_SHARE).clamp(REFRESH_MIN, REFRESH_MAX)
}

async fn read(state: &ApiState) -> Result<(Gauges, ClusterRow), StoreError> {
    let gauges = gauges::read(state.store(), state.inner.options.named_groups).await?;
    Ok((gauges, cluster::read(state.store()).await?))
}

/// All metrics, as Prometheus reads them.
#[utoipa::path(get, path = "/metrics", tag = "operation", operation_id = "getMetrics", security((), ("bearer" = [])),
    responses((status = 200, description = "Text format 0.0.4", body = String, content_type = "text/plain")))]
async fn scrape(State(state): State<ApiState>, request: Request) -> Result<Response, Problem> {
    let (parts, _) = request.into_parts();
    auth::check::<Read>(&parts, &state, state.inner.options.open_metrics)?;
    let metrics = &state.inner.metrics;
    // Gathered under the same lock: no scrape sees figures that are being replaced.
    let mut guard = metrics.figures.lock().await;
    metrics.rate.show(state.store().rates().counts());
    let (figures, next) = &mut *guard;
    if next.is_none_or(|next| Instant::now() >= next) {
        let started = Instant::now();
        let reading = read(&state);
        match tokio::time::timeout(REFRESH_TIMEOUT, reading).await {
            Ok(Ok((gauges, cluster))) => figures.show(&gauges, &cluster),
            Ok(Err(error)) => {
                tracing::debug!(%error, "figures of the database could not be read");
                figures.database_down();
            }
            Err(_) => figures.database_down(),
        }
        *next = Some(Instant::now() + rest_after(started.elapsed()));
    }
    let families = metrics.registry.gather();
    drop(guard);
    let text = TextEncoder::new().encode_to_string(&families).map_err(|error| {
        tracing::error!(%error, "metrics could not be written");
        Problem::internal()
    })?;
    let content_type = http::HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    Ok(([(CONTENT_TYPE, content_type)], text).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reading_costs_a_twentieth_of_the_time_and_never_leaves_the_figures_old() {
        assert_eq!(rest_after(Duration::from_millis(5)), REFRESH_MIN);
        assert_eq!(rest_after(Duration::from_millis(200)), Duration::from_secs(4));
        assert_eq!(rest_after(REFRESH_TIMEOUT), REFRESH_MAX);
    }
}
