//! `/admin/groups`: what stands where, and what an operator decides about it.

mod decide;
mod view;

use axum::Json;
use axum::extract::State;
use railyard_core::ParticipantId;
use railyard_store::holds::{self, View};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::auth::{Caller, Read};
use crate::problem::Problem;
use crate::query::{Asked, Named, Size};
use crate::state::ApiState;

pub(crate) use decide::{MaybeReasonBody, ReasonBody, reason, reason_alone, reason_if_any};
use view::GroupView;

/// Groups of a page that names no size.
const SIZE_DEFAULT: i64 = 20;

pub(crate) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(read))
        .routes(routes!(decide::pause))
        .routes(routes!(decide::resume))
        .routes(routes!(decide::release))
        .routes(routes!(decide::skip))
        .routes(routes!(node))
}

/// A page of groups.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = GroupPage)]
struct ListView {
    items: Vec<GroupView>,
    /// `cursor` of the next page; none at the end, and for views that have no second page.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    next_cursor: Option<ParticipantId>,
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct ListQuery {
    /// Which groups, in which order.
    #[serde(default)]
    #[param(inline)]
    view: ViewName,
    #[param(schema_with = Size::schema)]
    size: Option<Size>,
    /// `nextCursor` of the page before.
    #[param(min_length = 1, pattern = r"^[^\u0000]*$")]
    cursor: Option<String>,
}

#[derive(Clone, Copy, Default, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum ViewName {
    #[default]
    Held,
    All,
    Deepest,
    Oldest,
}

/// Groups: the held ones, all, the deepest, those that wait longest.
#[utoipa::path(get, path = "/admin/groups", tag = "groups", operation_id = "listGroups", params(ListQuery),
    responses((status = 200, description = "A page", body = ListView)))]
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
    let size = Size::of(asked.size, SIZE_DEFAULT, holds::LIST_MAX);
    if asked.cursor.as_ref().is_some_and(|name| name.is_empty() || name.contains('\0')) {
        return Err(Problem::field("cursor", "is empty or has a NUL character"));
    }
    let after = asked.cursor.map(ParticipantId::new);
    let rows = holds::list(state.store(), view, after.as_ref(), size).await?;
    let full = i64::try_from(rows.len()).is_ok_and(|count| count == size);
    let next_cursor = if pages && full { rows.last().map(|row| row.group.clone()) } else { None };
    Ok(Json(ListView { items: rows.into_iter().map(GroupView::from).collect(), next_cursor }))
}

/// A group as it stands.
#[utoipa::path(get, path = "/admin/groups/{id}", tag = "groups", operation_id = "getGroup",
    params(("id" = String, Path, description = "Its name")),
    responses((status = 200, description = "Depth, head, attempt in flight, holds", body = GroupView)))]
async fn read(_: Caller<Read>, State(state): State<ApiState>, Named(id): Named) -> Result<Json<GroupView>, Problem> {
    let found = holds::get(state.store(), &group_name(&id)?).await?;
    found.map(|row| Json(row.into())).ok_or_else(|| Problem::not_found("nothing was ever heard of this group"))
}

/// What this node's actors say about themselves.
#[utoipa::path(get, path = "/admin/node", tag = "operation", operation_id = "getNode",
    responses((status = 200, description = "Not a contract: it follows the code", body = Object)))]
async fn node(_: Caller<Read>, State(state): State<ApiState>) -> Json<serde_json::Value> {
    Json(state.inner.node.groups())
}

fn group_name(name: &str) -> Result<ParticipantId, Problem> {
    if name.is_empty() || name.contains('\0') || name.chars().count() > railyard_core::limits::GROUP_CHARS_MAX {
        return Err(Problem::not_found("no group has such a name"));
    }
    Ok(ParticipantId::new(name))
}
