//! `/admin/dlq`: jobs that ended without success and wait for somebody to look at them.

use axum::extract::State;
use axum::routing::get;
use axum::{Json, Router};
use railyard_core::settlement::EndStatus;
use railyard_core::timestamp::utc_millis;
use railyard_core::{OutboxId, ParticipantId, SequenceId};
use railyard_store::jobs::{self, EndedRow};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::auth::{Caller, Read};
use crate::problem::Problem;
use crate::query::Asked;
use crate::state::ApiState;

/// Jobs of a page that names no size.
const SIZE_DEFAULT: i64 = 20;

pub(crate) fn routes() -> Router<ApiState> {
    Router::new().route("/admin/dlq", get(list))
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct EndedView {
    id: OutboxId,
    status: &'static str,
    source: String,
    r#type: String,
    rail_type: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    group_id: Option<ParticipantId>,
    #[serde(skip_serializing_if = "Option::is_none")]
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

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ListView {
    items: Vec<EndedView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<OutboxId>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ListQuery {
    size: Option<i64>,
    cursor: Option<Uuid>,
    #[serde(default)]
    status: StatusName,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
enum StatusName {
    #[default]
    Error,
    Expired,
    Cancelled,
}

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
    let size = asked.size.unwrap_or(SIZE_DEFAULT).clamp(1, jobs::ENDED_LIST_MAX);
    let rows = jobs::ended(state.store(), status, asked.cursor.map(OutboxId), size).await?;
    let full = i64::try_from(rows.len()).is_ok_and(|count| count == size);
    let next_cursor = if full { rows.last().map(|row| row.outbox_id) } else { None };
    Ok(Json(ListView { items: rows.into_iter().map(EndedView::from).collect(), next_cursor }))
}
