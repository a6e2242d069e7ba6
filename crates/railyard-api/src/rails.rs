//! `/admin/rails`: which there are, and the switch of each.

use axum::Json;
use axum::extract::State;
use railyard_core::CredentialsId;
use railyard_core::timestamp::utc_millis;
use railyard_store::StoreError;
use railyard_store::holds::Decision;
use railyard_store::rails::{self, RailRow};
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::auth::{Caller, Decide, Read};
use crate::body::JsonBody;
use crate::groups::{Paused, ReasonBody, reason_alone};
use crate::openapi::{Conflict, words};
use crate::problem::Problem;
use crate::query::Named;
use crate::state::ApiState;

pub(crate) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(pause)).routes(routes!(resume))
}

/// Where messages go out.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Rail)]
struct RailView {
    rail_type: String,
    #[schema(schema_with = words::rail_kind)]
    kind: &'static str,
    #[schema(schema_with = words::on_unknown)]
    on_unknown: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    target_url: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Uuid>)]
    credentials_id: Option<CredentialsId>,
    paused: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    switched: Option<SwitchView>,
}

/// Who switched it last, and why.
#[derive(Serialize, ToSchema)]
#[schema(as = RailSwitch)]
struct SwitchView {
    since: String,
    actor: String,
    reason: String,
}

impl From<RailRow> for RailView {
    fn from(row: RailRow) -> Self {
        Self {
            rail_type: row.spec.rail_type,
            kind: row.spec.kind.as_str(),
            on_unknown: row.spec.on_unknown.as_str(),
            target_url: row.spec.target_url,
            credentials_id: row.spec.credentials_id,
            paused: row.paused,
            switched: row.switched.map(|(since, actor, reason)| SwitchView { since: utc_millis(since), actor, reason }),
        }
    }
}

/// All rails, by name.
#[derive(Serialize, ToSchema)]
#[schema(as = RailList)]
struct ListView {
    items: Vec<RailView>,
}

/// Which rails there are.
#[utoipa::path(get, path = "/admin/rails", tag = "rails", operation_id = "listRails",
    responses((status = 200, description = "All of them", body = ListView)))]
async fn list(_: Caller<Read>, State(state): State<ApiState>) -> Result<Json<ListView>, Problem> {
    let rows = rails::list(state.store()).await?;
    Ok(Json(ListView { items: rows.into_iter().map(RailView::from).collect() }))
}

/// Stop a rail on all nodes: nothing of it begins until it is resumed.
#[utoipa::path(post, path = "/admin/rails/{rail}/pause", tag = "rails", operation_id = "pauseRail",
    params(("rail" = String, Path, description = "Its name")), request_body = ReasonBody,
    responses((status = 200, description = "Done", body = Paused), Conflict))]
async fn pause(
    caller: Caller<Decide>,
    State(state): State<ApiState>,
    Named(rail): Named,
    body: JsonBody,
) -> Result<Json<Paused>, Problem> {
    switch(&state, &rail, true, &caller.name, &body.bytes).await
}

/// Let a rail go on.
#[utoipa::path(post, path = "/admin/rails/{rail}/resume", tag = "rails", operation_id = "resumeRail",
    params(("rail" = String, Path, description = "Its name")), request_body = ReasonBody,
    responses((status = 200, description = "Done", body = Paused), Conflict))]
async fn resume(
    caller: Caller<Decide>,
    State(state): State<ApiState>,
    Named(rail): Named,
    body: JsonBody,
) -> Result<Json<Paused>, Problem> {
    switch(&state, &rail, false, &caller.name, &body.bytes).await
}

async fn switch(state: &ApiState, rail: &str, paused: bool, actor: &str, body: &[u8]) -> Result<Json<Paused>, Problem> {
    let reason = reason_alone(body)?;
    if rail.contains('\0') {
        return Err(unknown());
    }
    match rails::switch(state.store(), rail, paused, Decision { actor, reason: &reason }).await {
        Ok(()) => {}
        Err(StoreError::Invalid { .. }) => return Err(unknown()),
        Err(error) => return Err(error.into()),
    }
    state.inner.node.flush_caches();
    state.inner.node.wake();
    Ok(Json(Paused { paused }))
}

fn unknown() -> Problem {
    Problem::not_found("no rail has this name")
}
