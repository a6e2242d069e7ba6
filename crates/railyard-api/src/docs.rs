//! `/openapi.json` and `/docs`: the API's description, for machines and for people. Both say nothing that is not in
//! the source, so they need no token; the page works without any other network.

use std::sync::{Arc, LazyLock};

use axum::extract::Path;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use utoipa_swagger_ui::Config;

use crate::openapi::openapi_json;
use crate::problem::Problem;
use crate::state::ApiState;

/// Where the page's own files are.
pub(crate) const FILES: &str = "/docs/{*file}";

pub(crate) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new()
        .routes(routes!(document))
        .routes(routes!(page))
        .route("/docs", get(to_page))
        .route(FILES, get(file))
}

/// This document.
#[utoipa::path(get, path = "/openapi.json", tag = "operation", operation_id = "getOpenapi", security(()),
    responses((status = 200, description = "OpenAPI 3.1", body = Object)))]
async fn document() -> Response {
    ([(CONTENT_TYPE, "application/json")], openapi_json()).into_response()
}

/// This document as a page to read and try.
#[utoipa::path(get, path = "/docs/", tag = "operation", operation_id = "getDocs", security(()),
    responses((status = 200, description = "The page", body = String, content_type = "text/html")))]
async fn page() -> Result<Response, Problem> {
    shown("index.html")
}

async fn to_page() -> Redirect {
    Redirect::to("/docs/")
}

async fn file(Path(file): Path<String>) -> Result<Response, Problem> {
    shown(&file)
}

fn shown(file: &str) -> Result<Response, Problem> {
    static CONFIG: LazyLock<Arc<Config<'static>>> =
        LazyLock::new(|| Arc::new(Config::from("/openapi.json").try_it_out_enabled(true).persist_authorization(false)));
    match utoipa_swagger_ui::serve(file, Arc::clone(&CONFIG)) {
        Ok(Some(found)) => Ok(([(CONTENT_TYPE, found.content_type)], found.bytes.into_owned()).into_response()),
        Ok(None) => Err(Problem::not_found("the page has no such file")),
        Err(error) => {
            tracing::error!(%error, "a file of the documentation could not be read");
            Err(Problem::internal())
        }
    }
}
