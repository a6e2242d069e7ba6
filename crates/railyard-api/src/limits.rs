//! Places and deadlines for requests.

use axum::extract::{MatchedPath, Request, State};
use axum::http::Method;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::problem::Problem;
use crate::state::ApiState;

/// Lets a request in if there is a place for it, and ends it at its deadline. A handler that is dropped in the middle
/// closes its connection to the database, which rolls back.
pub(crate) async fn admit(State(state): State<ApiState>, request: Request, next: Next) -> Response {
    let Ok(_place) = state.inner.places.clone().try_acquire_owned() else {
        return Problem::unavailable("the node is busy with other requests").into_response();
    };
    match tokio::time::timeout(state.inner.options.request_timeout, next.run(request)).await {
        Ok(response) => response,
        Err(_) => Problem::unavailable("the request took too long").into_response(),
    }
}

/// Counts answers by route, never by path: paths hold ids.
pub(crate) async fn count(State(state): State<ApiState>, request: Request, next: Next) -> Response {
    let path = request.extensions().get::<MatchedPath>().map_or("none", MatchedPath::as_str).to_owned();
    let method = method(request.method());
    let response = next.run(request).await;
    state.inner.metrics.answered(method, &path, response.status());
    response
}

/// A method that nobody knows is one label, not a new one each.
fn method(method: &Method) -> &'static str {
    match method.as_str() {
        "GET" => "GET",
        "POST" => "POST",
        "DELETE" => "DELETE",
        _ => "other",
    }
}
