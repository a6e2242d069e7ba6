//! `/admin/rails`: which there are, and the switch of each.

use axum::extract::State;
use axum::routing::{get, post};
use axum::{Json, Router};
use railyard_core::CredentialsId;
use railyard_core::timestamp::utc_millis;
use railyard_store::StoreError;
use railyard_store::holds::Decision;
use railyard_store::rails::{self, RailRow};
use serde::Serialize;

use crate::auth::{Caller, Decide, Read};
use crate::body::JsonBody;
use crate::groups::reason_alone;
use crate::problem::Problem;
use crate::query::Named;
use crate::state::ApiState;

pub(crate) fn routes() -> Router<ApiState> {
    Router::new()
        .route("/admin/rails", get(list))
        .route("/admin/rails/{rail}/pause", post(pause))
        .route("/admin/rails/{rail}/resume", post(resume))
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RailView {
    rail_type: String,
    kind: &'static str,
    on_unknown: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    target_url: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    credentials_id: Option<CredentialsId>,
    paused: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    switched: Option<SwitchView>,
}

#[derive(Serialize)]
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

#[derive(Serialize)]
struct ListView {
    items: Vec<RailView>,
}

async fn list(_: Caller<Read>, State(state): State<ApiState>) -> Result<Json<ListView>, Problem> {
    let rows = rails::list(state.store()).await?;
    Ok(Json(ListView { items: rows.into_iter().map(RailView::from).collect() }))
}

#[derive(Serialize)]
struct Paused {
    paused: bool,
}

async fn pause(
    caller: Caller<Decide>,
    State(state): State<ApiState>,
    Named(rail): Named,
    body: JsonBody,
) -> Result<Json<Paused>, Problem> {
    switch(&state, &rail, true, &caller.name, &body.bytes).await
}

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
