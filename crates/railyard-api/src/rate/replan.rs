//! Planning anew what has a slot already.

use axum::Json;
use axum::extract::State;
use railyard_core::slots::CONFIG_DEFAULT;
use railyard_core::timestamp::utc_millis;
use railyard_store::rate;
use serde::Serialize;
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::config::config_name;
use crate::auth::{Caller, Decide};
use crate::body::JsonBody;
use crate::fields::Fields;
use crate::openapi::shape::{Shape, flag, named};
use crate::openapi::{Conflict, Unknown};
use crate::problem::Problem;
use crate::query::VALUE_CHARS_MAX;
use crate::state::ApiState;

pub(super) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new().routes(routes!(replan))
}

/// Which plan, and why.
struct ReplanBody;

impl ToSchema for ReplanBody {}

impl PartialSchema for ReplanBody {
    fn schema() -> RefOr<Schema> {
        Shape::new("With `preview` nothing is moved; without it a reason is asked for.")
            .optional("configName", config_name())
            .optional("preview", flag())
            .optional("reason", named(VALUE_CHARS_MAX))
            .into()
    }
}

/// What became of it, or would become.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Replanned)]
struct ReplannedView {
    preview: bool,
    /// Slots that lie more than a minute ahead.
    slots: u64,
    /// Those of them that get another window.
    moved: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_before: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_after: Option<String>,
}

/// Move slots that lie ahead to where they would be given now. Who was told the old time learns the new one by asking again.
#[utoipa::path(post, path = "/admin/rate-limit/replan", tag = "rate", operation_id = "replanRate",
    request_body = ReplanBody,
    responses((status = 200, description = "Done, or previewed", body = ReplannedView), Unknown, Conflict))]
async fn replan(
    caller: Caller<Decide>,
    State(state): State<ApiState>,
    body: JsonBody,
) -> Result<Json<ReplannedView>, Problem> {
    let mut fields = Fields::parse(&body.bytes)?;
    let name = fields.text("configName").unwrap_or_else(|| CONFIG_DEFAULT.to_owned());
    let preview = fields.flag("preview").unwrap_or(false);
    let reason = fields.text("reason");
    let storable = |text: &String| !text.trim().is_empty() && crate::query::is_storable(text);
    match &reason {
        None if !preview => fields.error("reason", "is missing"),
        Some(text) if !storable(text) => fields.error("reason", "is blank, has a NUL character or is too long"),
        Some(_) | None => {}
    }
    fields.finish()?;
    drop(body);
    let decided = reason.as_deref().filter(|_| !preview);
    let done = rate::replan(state.store(), &name, decided, &caller.name).await?;
    Ok(Json(ReplannedView {
        preview,
        slots: done.slots,
        moved: done.moved,
        last_before: done.last_before.map(utc_millis),
        last_after: done.last_after.map(utc_millis),
    }))
}
