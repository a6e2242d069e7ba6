//! `/admin/audit`: who decided what, and why.

use axum::Json;
use axum::extract::State;
use railyard_core::timestamp::utc_millis;
use railyard_core::{OutboxId, ParticipantId};
use railyard_store::audit::{self, AuditRow};
use serde::Serialize;
use utoipa::openapi::Object;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::auth::{Caller, Read};
use crate::openapi::shape::formed;
use crate::problem::Problem;
use crate::query::{Ask, Asked, Pairs, VALUE_CHARS_MAX, cut, size, value, whole};
use crate::state::ApiState;

/// Entries of a page that names no size.
const SIZE_DEFAULT: u32 = 50;

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

#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
struct ListQuery {
    /// Decisions about this group alone.
    #[param(rename = "groupId", schema_with = value, required = false)]
    group: Option<ParticipantId>,
    #[param(schema_with = size, required = false)]
    size: u32,
    /// `nextCursor` of the page before; empty like none begins.
    #[param(rename = "cursor", schema_with = digits, required = false)]
    before: Option<i64>,
}

fn digits() -> Object {
    formed("^[0-9]*$", VALUE_CHARS_MAX)
}

impl Ask for ListQuery {
    fn read(pairs: &mut Pairs) -> Self {
        let group = pairs.text("groupId").map(ParticipantId::new);
        let before = pairs.cursor().map(|text| whole(&text));
        if before == Some(None) {
            pairs.error("cursor", "is not a cursor of this list: take nextCursor of its last answer");
        }
        Self { group, size: pairs.size(SIZE_DEFAULT, audit::LIST_MAX), before: before.flatten() }
    }
}

/// Who decided what, and why.
#[utoipa::path(get, path = "/admin/audit", tag = "records", operation_id = "listAudit", params(ListQuery),
    responses((status = 200, description = "A page", body = ListView)))]
async fn list(
    _: Caller<Read>,
    State(state): State<ApiState>,
    Asked(asked): Asked<ListQuery>,
) -> Result<Json<ListView>, Problem> {
    let ListQuery { group, size, before } = asked;
    let mut rows = audit::list(state.store(), group.as_ref(), before, i64::from(size) + 1).await?;
    let more = cut(&mut rows, size);
    let next_cursor = rows.last().filter(|_| more).map(|row| row.audit_id.to_string());
    Ok(Json(ListView { items: rows.into_iter().map(EntryView::from).collect(), next_cursor }))
}
