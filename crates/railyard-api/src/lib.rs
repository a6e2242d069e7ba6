//! HTTP in: jobs, credentials, decisions about groups and rails, metrics, health.
//!
//! A request passes, in this order: a free place (`limits`), who it is ([`auth`]), its body (`body`: type, size,
//! every wrong field named at once), one call of the store, an answer. Errors are problem documents ([`Problem`]).
//! Nothing here is truth: a handler that dies in the middle leaves a transaction that the database rolls back, or a
//! commit whose answer was lost, which the same request with the same idempotency key finds.
//!
//! This crate never imports the node. What it needs of it comes through [`NodeView`], given by the binary.

#![allow(unused_qualifications, reason = "utoipa's macros repeat types with a path in front")]

pub mod auth;
pub mod metrics;
pub mod serve;

mod audit;
mod body;
mod cluster;
mod credentials;
mod dispatch;
mod dlq;
mod docs;
mod events;
mod fields;
mod groups;
mod health;
mod items;
mod jobs;
mod limits;
mod openapi;
mod payments;
mod pools;
mod problem;
mod query;
mod rail_cache;
mod rails;
mod rate;
mod state;

#[cfg(test)]
mod tests;

use axum::Router;
use axum::http::{Method, Uri};
use utoipa_axum::router::OpenApiRouter;

pub use auth::{Auth, Role, Token, TokenError};
pub use health::starting;
pub use openapi::openapi_json;
pub use problem::Problem;
pub use serve::{ServeOptions, serve};
pub use state::{
    ApiOptions, ApiState, BODIES_KIB_MAX, Future, LinkState, Links, NAMED_GROUPS_DEFAULT, NodeView, Question,
    REQUEST_TIMEOUT, REQUESTS_MAX, Readiness,
};

/// All routes over this state.
pub fn router(state: ApiState) -> Router {
    let admit = axum::middleware::from_fn_with_state(state.clone(), limits::admit);
    Router::from(routes_in_turn().layer(admit))
        .merge(Router::from(routes_at_once()))
        .fallback(no_such_route)
        .method_not_allowed_fallback(wrong_method)
        .layer(axum::middleware::from_fn_with_state(state.clone(), limits::count))
        .with_state(state)
}

/// Routes that take a place.
fn routes_in_turn() -> OpenApiRouter<ApiState> {
    OpenApiRouter::with_openapi(openapi::frame())
        .merge(jobs::routes())
        .merge(payments::routes())
        .merge(dispatch::routes())
        .merge(events::routes())
        .merge(credentials::routes())
        .merge(groups::routes())
        .merge(rails::routes())
        .merge(rate::routes())
        .merge(pools::routes())
        .merge(cluster::routes())
        .merge(dlq::routes())
        .merge(audit::routes())
}

/// Routes outside of the limits: a node under load still says so, and a job's timeout may be longer than a request's.
fn routes_at_once() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new()
        .merge(jobs::process_routes())
        .merge(health::routes())
        .merge(metrics::routes())
        .merge(docs::routes())
}

async fn no_such_route(uri: Uri) -> Problem {
    Problem::not_found(format!("there is nothing at {}", uri.path()))
}

async fn wrong_method(method: Method, uri: Uri) -> Problem {
    Problem::wrong_method(format!("{} takes no {method}", uri.path()))
}
