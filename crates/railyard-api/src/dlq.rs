//! `/admin/dlq`: jobs that ended without success and wait for somebody to look at them.

use axum::Json;
use axum::extract::State;
use railyard_core::settlement::EndStatus;
use railyard_core::timestamp::utc_millis;
use railyard_core::{OutboxId, ParticipantId, SequenceId};
use railyard_store::jobs::{self, EndedRow};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use crate::auth::{Caller, Read};
use crate::openapi::words;
use crate::problem::Problem;
use crate::query::{Asked, Size};
use crate::state::ApiState;

/// Jobs of a page that names no size.
const SIZE_DEFAULT: i64 = 20;

pub(crate) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new().routes(routes!(list))
}

/// A job that ended without success.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = EndedJob)]
struct EndedView {
    #[schema(value_type = Uuid)]
    id: OutboxId,
    #[schema(schema_with = words::end_status)]
    status: &'static str,
    source: String,
    r#type: String,
    rail_type: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    group_id: Option<ParticipantId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<i64>)]
    sequence: Option<SequenceId>,
    attempt_count: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_error: Option<String>,
    created_at: String,
    completed_at: String,
}

impl From<EndedRow> for EndedView {
    fn from(row: EndedRow) -> Self {
        Self {
            id: row.outbox_id,
            status: row.status.as_str(),
            source: row.source,
            r#type: row.kind,
            rail_type: row.rail_type,
            group_id: row.group,
            sequence: row.sequence_id,
            attempt_count: row.attempt_count,
            last_error: row.last_error,
            created_at: utc_millis(row.created_at),
            completed_at: utc_millis(row.completed_at),
        }
    }
}

/// The youngest first.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = EndedJobPage)]
struct ListView {
    items: Vec<EndedView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Uuid>)]
    next_cursor: Option<OutboxId>,
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct ListQuery {
    #[param(schema_with = Size::schema)]
    size: Option<Size>,
    /// `nextCursor` of the page before.
    cursor: Option<Uuid>,
    /// How they ended.
    #[serde(default)]
    #[param(inline)]
    status: StatusName,
}

#[derive(Clone, Copy, Default, Deserialize, ToSchema)]
#[serde(rename_all = "UPPERCASE")]
enum StatusName {
    #[default]
    Error,
    Expired,
    Cancelled,
}

/// Jobs that ended without success and wait for somebody to look at them.
#[utoipa::path(get, path = "/admin/dlq", tag = "records", operation_id = "listDeadLetters", params(ListQuery),
    responses((status = 200, description = "A page", body = ListView)))]
async fn list(
    _: Caller<Read>,
    State(state): State<ApiState>,
    Asked(asked): Asked<ListQuery>,
) -> Result<Json<ListView>, Problem> {
    let status = match asked.status {
        StatusName::Error => EndStatus::Error,
        StatusName::Expired => EndStatus::Expired,
        StatusName::Cancelled => EndStatus::Cancelled,
    };
    let size = Size::of(asked.size, SIZE_DEFAULT, jobs::ENDED_LIST_MAX);
    let rows = jobs::ended(state.store(), status, asked.cursor.map(OutboxId), size).await?;
    let full = i64::try_from(rows.len()).is_ok_and(|count| count == size);
    let next_cursor = if full { rows.last().map(|row| row.outbox_id) } else { None };
    Ok(Json(ListView { items: rows.into_iter().map(EndedView::from).collect(), next_cursor }))
}
