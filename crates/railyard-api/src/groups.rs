//! `/admin/groups`: what stands where, and what an operator decides about it.

mod decide;
mod view;

use axum::extract::State;
use axum::routing::{get, post};
use axum::{Json, Router};
use railyard_core::ParticipantId;
use railyard_store::holds::{self, View};
use serde::{Deserialize, Serialize};

use crate::auth::{Caller, Read};
use crate::problem::Problem;
use crate::query::{Asked, Named};
use crate::state::ApiState;

pub(crate) use decide::reason_alone;
use view::GroupView;

/// Groups of a page that names no size.
const SIZE_DEFAULT: i64 = 20;

pub(crate) fn routes() -> Router<ApiState> {
    Router::new()
        .route("/admin/groups", get(list))
        .route("/admin/groups/{id}", get(read))
        .route("/admin/groups/{id}/pause", post(decide::pause))
        .route("/admin/groups/{id}/resume", post(decide::resume))
        .route("/admin/groups/{id}/release", post(decide::release))
        .route("/admin/groups/{id}/skip", post(decide::skip))
        .route("/admin/node", get(node))
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ListView {
    items: Vec<GroupView>,
    /// `cursor` of the next page; none at the end, and for views that have no second page.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<ParticipantId>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ListQuery {
    #[serde(default)]
    view: ViewName,
    size: Option<i64>,
    cursor: Option<String>,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ViewName {
    #[default]
    Held,
    All,
    Deepest,
    Oldest,
}

async fn list(
    _: Caller<Read>,
    State(state): State<ApiState>,
    Asked(asked): Asked<ListQuery>,
) -> Result<Json<ListView>, Problem> {
    let (view, pages) = match asked.view {
        ViewName::Held => (View::Held, true),
        ViewName::All => (View::All, true),
        ViewName::Deepest => (View::Deepest, false),
        ViewName::Oldest => (View::Oldest, false),
    };
    let size = asked.size.unwrap_or(SIZE_DEFAULT).clamp(1, holds::LIST_MAX);
    let after = asked.cursor.map(|name| group_name(&name)).transpose()?;
    let rows = holds::list(state.store(), view, after.as_ref(), size).await?;
    let full = i64::try_from(rows.len()).is_ok_and(|count| count == size);
    let next_cursor = if pages && full { rows.last().map(|row| row.group.clone()) } else { None };
    Ok(Json(ListView { items: rows.into_iter().map(GroupView::from).collect(), next_cursor }))
}

async fn read(_: Caller<Read>, State(state): State<ApiState>, Named(id): Named) -> Result<Json<GroupView>, Problem> {
    let found = holds::get(state.store(), &group_name(&id)?).await?;
    found.map(|row| Json(row.into())).ok_or_else(|| Problem::not_found("nothing was ever heard of this group"))
}

/// What this node's actors say about themselves.
async fn node(_: Caller<Read>, State(state): State<ApiState>) -> Json<serde_json::Value> {
    Json(state.inner.node.groups())
}

fn group_name(name: &str) -> Result<ParticipantId, Problem> {
    if name.is_empty() || name.contains('\0') || name.len() > railyard_core::limits::GROUP_BYTES_MAX {
        return Err(Problem::not_found("no group has such a name"));
    }
    Ok(ParticipantId::new(name))
}
