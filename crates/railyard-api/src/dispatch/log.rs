//! What dispatchers have written down.

use axum::Json;
use axum::extract::State;
use railyard_core::timestamp::utc_millis;
use railyard_store::dispatch::{self, AUDIT_MAX, AuditRow};
use serde::Serialize;
use utoipa::openapi::Object;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::item_type;
use crate::auth::{Caller, Read};
use crate::openapi::shape::formed;
use crate::problem::Problem;
use crate::query::{Ask, Asked, Pairs, VALUE_CHARS_MAX, cut, size, value, whole};
use crate::state::ApiState;

/// Rows of a page that names no size.
const SIZE_DEFAULT: u32 = 50;

pub(super) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new().routes(routes!(list))
}

/// A step of an item, or of a batch.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = DispatchAuditEntry)]
struct EntryView {
    id: String,
    at: String,
    batch_id: String,
    item_type: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    item_id: Option<String>,
    action: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    status_before: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status_after: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
}

impl From<AuditRow> for EntryView {
    fn from(row: AuditRow) -> Self {
        Self {
            id: row.audit_id.to_string(),
            at: utc_millis(row.at),
            batch_id: row.batch_id,
            item_type: row.item_type,
            item_id: row.item_id,
            action: row.action,
            status_before: row.status_before,
            status_after: row.status_after,
            detail: row.detail,
        }
    }
}

/// The youngest first.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = DispatchAuditPage)]
struct ListView {
    items: Vec<EntryView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
struct ListQuery {
    /// Items of this type alone.
    #[param(rename = "itemType", schema_with = item_type, required = false)]
    item_type: Option<String>,
    /// This item alone.
    #[param(rename = "itemId", schema_with = value, required = false)]
    item_id: Option<String>,
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
        let item_type = pairs.text("itemType");
        if item_type.as_deref().is_some_and(|of| !super::is_item_type(of)) {
            pairs.error("itemType", "is not 1 to 32 capital letters, digits and underscores");
        }
        let item_id = pairs.text("itemId");
        let before = pairs.cursor().map(|text| whole(&text));
        if before == Some(None) {
            pairs.error("cursor", "is not a cursor of this list: take nextCursor of its last answer");
        }
        Self { item_type, item_id, size: pairs.size(SIZE_DEFAULT, AUDIT_MAX), before: before.flatten() }
    }
}

/// What dispatchers did with which item, in which batch.
#[utoipa::path(get, path = "/admin/dispatch/audit", tag = "payments", operation_id = "listDispatchAudit", params(ListQuery),
    responses((status = 200, description = "A page", body = ListView)))]
async fn list(
    _: Caller<Read>,
    State(state): State<ApiState>,
    Asked(asked): Asked<ListQuery>,
) -> Result<Json<ListView>, Problem> {
    let ListQuery { item_type, item_id, size, before } = asked;
    let found = dispatch::audit_log(state.store(), item_type.as_deref(), item_id.as_deref(), before, size + 1).await;
    let mut rows = found?;
    let more = cut(&mut rows, size);
    let next_cursor = rows.last().filter(|_| more).map(|row| row.audit_id.to_string());
    Ok(Json(ListView { items: rows.into_iter().map(EntryView::from).collect(), next_cursor }))
}
