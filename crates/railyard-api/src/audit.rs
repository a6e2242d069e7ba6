//! `/admin/audit`: who decided what, and why.

use axum::Json;
use axum::extract::State;
use railyard_core::timestamp::utc_millis;
use railyard_core::{OutboxId, ParticipantId};
use railyard_store::audit::{self, AuditRow};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::auth::{Caller, Read};
use crate::problem::Problem;
use crate::query::{Asked, Cursor, Size};
use crate::state::ApiState;

/// Entries of a page that names no size.
const SIZE_DEFAULT: i64 = 50;

pub(crate) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new().routes(routes!(list))
}

/// A decision.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = AuditEntry)]
struct EntryView {
    id: String,
    at: String,
    action: String,
    actor: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    group_id: Option<ParticipantId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Uuid>)]
    job_id: Option<OutboxId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<serde_json::Value>,
}

impl From<AuditRow> for EntryView {
    fn from(row: AuditRow) -> Self {
        Self {
            id: row.audit_id.to_string(),
            at: utc_millis(row.at),
            action: row.action,
            actor: row.actor,
            reason: row.reason,
            group_id: row.group,
            job_id: row.outbox_id,
            detail: row.detail,
        }
    }
}

/// The youngest first.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = AuditPage)]
struct ListView {
    items: Vec<EntryView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[into_params(parameter_in = Query)]
struct ListQuery {
    /// Decisions about this group alone.
    #[param(pattern = r"^[^\u0000]*$")]
    group_id: Option<String>,
    #[param(schema_with = Size::schema)]
    size: Option<Size>,
    /// `nextCursor` of the page before.
    #[param(schema_with = Cursor::schema)]
    cursor: Option<Cursor>,
}

/// Who decided what, and why.
#[utoipa::path(get, path = "/admin/audit", tag = "records", operation_id = "listAudit", params(ListQuery),
    responses((status = 200, description = "A page", body = ListView)))]
async fn list(
    _: Caller<Read>,
    State(state): State<ApiState>,
    Asked(asked): Asked<ListQuery>,
) -> Result<Json<ListView>, Problem> {
    if asked.group_id.as_ref().is_some_and(|name| name.contains('\0')) {
        return Err(Problem::field("groupId", "has a NUL character"));
    }
    let size = Size::of(asked.size, SIZE_DEFAULT, audit::LIST_MAX);
    let group = asked.group_id.map(ParticipantId::new);
    let rows = audit::list(state.store(), group.as_ref(), asked.cursor.map(|cursor| cursor.0), size).await?;
    let full = i64::try_from(rows.len()).is_ok_and(|count| count == size);
    let next_cursor = if full { rows.last().map(|row| row.audit_id.to_string()) } else { None };
    Ok(Json(ListView { items: rows.into_iter().map(EntryView::from).collect(), next_cursor }))
}
