//! `/admin/groups`: what stands where, and what an operator decides about it.

mod decide;
mod view;

use axum::Json;
use axum::extract::State;
use railyard_core::ParticipantId;
use railyard_store::cluster;
use railyard_store::holds::{self, View};
use serde::Serialize;
use utoipa::openapi::Object;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::auth::{Caller, Read};
use crate::cluster::gather;
use crate::openapi::shape::word;
use crate::problem::Problem;
use crate::query::{Ask, Asked, Named, Pairs, cut, size, value};
use crate::state::{ApiState, Question};

pub(crate) use decide::{MaybeReasonBody, Paused, ReasonBody, reason, reason_alone, reason_if_any};
use view::GroupView;

/// Groups of a page that names no size.
const SIZE_DEFAULT: u32 = 20;

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
    /// Nodes that did not answer when they were asked what they hold of these groups, in words.
    gaps: Vec<String>,
}

/// Asks all nodes what they hold of these groups.
async fn live(state: &ApiState, groups: Vec<GroupView>) -> Result<(Vec<GroupView>, Vec<String>), Problem> {
    let cluster = cluster::read(state.store()).await?;
    let names = groups.iter().map(GroupView::name).collect();
    let gathered = gather(state, &cluster.members, &Question::Groups(names)).await;
    let groups = groups.into_iter().map(|group| group.with(&cluster, &gathered)).collect();
    Ok((groups, gathered.gaps))
}

#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
struct ListQuery {
    /// Which groups, in which order; the held ones if it is not said.
    #[param(schema_with = views, required = false)]
    view: View,
    #[param(schema_with = size, required = false)]
    size: u32,
    /// `nextCursor` of the page before; empty like none begins.
    #[param(rename = "cursor", schema_with = value, required = false)]
    after: Option<ParticipantId>,
}

fn views() -> Object {
    word(&View::ALL, View::as_str)
}

impl Ask for ListQuery {
    fn read(pairs: &mut Pairs) -> Self {
        Self {
            view: pairs.word("view", &View::ALL, View::as_str).unwrap_or(View::Held),
            size: pairs.size(SIZE_DEFAULT, holds::LIST_MAX),
            after: pairs.cursor().map(ParticipantId::new),
        }
    }
}

/// Groups: the held ones, all, the deepest, those that wait longest.
#[utoipa::path(get, path = "/admin/groups", tag = "groups", operation_id = "listGroups", params(ListQuery),
    responses((status = 200, description = "A page", body = ListView)))]
async fn list(
    _: Caller<Read>,
    State(state): State<ApiState>,
    Asked(asked): Asked<ListQuery>,
) -> Result<Json<ListView>, Problem> {
    let ListQuery { view, size, after } = asked;
    let mut rows = holds::list(state.store(), view, after.as_ref(), i64::from(size) + 1).await?;
    let more = cut(&mut rows, size) && view.has_pages();
    let next_cursor = rows.last().filter(|_| more).map(|row| row.group.clone());
    let (items, gaps) = live(&state, rows.into_iter().map(GroupView::from).collect()).await?;
    Ok(Json(ListView { items, next_cursor, gaps }))
}

/// A group as it stands.
#[utoipa::path(get, path = "/admin/groups/{id}", tag = "groups", operation_id = "getGroup",
    params(("id" = String, Path, description = "Its name")),
    responses((status = 200, description = "Depth, head, attempt in flight, holds", body = GroupView)))]
async fn read(_: Caller<Read>, State(state): State<ApiState>, Named(id): Named) -> Result<Json<GroupView>, Problem> {
    let found = holds::get(state.store(), &group_name(&id)?).await?;
    let row = found.ok_or_else(|| Problem::not_found("nothing was ever heard of this group"))?;
    let (mut groups, gaps) = live(&state, vec![row.into()]).await?;
    let group = groups.pop().ok_or_else(Problem::internal)?;
    Ok(Json(group.with_gaps(gaps)))
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
