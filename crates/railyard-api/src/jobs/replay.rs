//! Jobs that ended without success are made again, one or many. One by its id; many by their ids or by a filter, so many
//! a call, with a preview.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::LOCATION;
use axum::response::{IntoResponse, Response};
use railyard_core::OutboxId;
use railyard_store::holds::{self, Decision};
use railyard_store::jobs::{self, Filter, Page, REPLAY_MAX, ReplayResult, Replayed, Walk};
use serde::Serialize;
use utoipa::openapi::schema::Type;
use utoipa::openapi::{ObjectBuilder, RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};
use uuid::Uuid;

use super::view::JobView;
use super::{cursor, filter, found, job_id, no_such_job};
use crate::auth::{Caller, Decide};
use crate::body::{JsonBody, OptionalBody};
use crate::fields::Fields;
use crate::groups::{MaybeReasonBody, reason, reason_if_any};
use crate::openapi::shape::{Shape, list, named, uuid, whole};
use crate::openapi::{Conflict, words};
use crate::problem::Problem;
use crate::query::{Named, value};
use crate::state::ApiState;

/// Jobs of a call that names no limit.
const LIMIT_DEFAULT: u32 = 100;
/// Jobs that a preview by filter shows.
const SAMPLE_SIZE: u32 = 10;

/// Make a job again that ended without success. Each is made again once: a repeat is shown the job that was made.
#[utoipa::path(post, path = "/api/dispatch/jobs/{id}/replay", tag = "jobs", operation_id = "replayJob",
    params(("id" = Uuid, Path, description = "Its id")), request_body = Option<MaybeReasonBody>,
    responses(
        (status = 201, description = "The new job", body = JobView, headers(("Location" = String))),
        (status = 200, description = "It was made before: that job, as it stands", body = JobView,
            headers(("Location" = String))),
        Conflict))]
pub(crate) async fn one(
    caller: Caller<Decide>,
    State(state): State<ApiState>,
    Named(id): Named,
    body: OptionalBody,
) -> Result<Response, Problem> {
    let id = job_id(&id)?;
    let mut fields = Fields::parse(body.bytes())?;
    let reason = reason_if_any(&mut fields);
    fields.finish()?;
    let decision = Decision { actor: &caller.name, reason: &reason };
    let made = jobs::replay(state.store(), &[id], decision).await?;
    let made = made.into_iter().next().ok_or_else(Problem::internal)?;
    let (status, by) = match (made.result, made.by) {
        (ReplayResult::Created, Some(by)) => (StatusCode::CREATED, by),
        (ReplayResult::Existing, Some(by)) => (StatusCode::OK, by),
        (ReplayResult::Unknown, _) => return Err(no_such_job(id)),
        (ReplayResult::Refused, _) => return Err(Problem::conflict(made.detail.unwrap_or_default())),
        (ReplayResult::Created | ReplayResult::Existing, None) => return Err(Problem::internal()),
    };
    if status == StatusCode::CREATED {
        state.committed().await;
    }
    let job = found(state.store(), by).await?;
    let location = format!("/api/dispatch/jobs/{by}");
    Ok((status, [(LOCATION, location)], Json(JobView::of(&job))).into_response())
}

/// What a call about many jobs did; of a preview, what it would do at this moment.
#[derive(Default, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Replay)]
pub(crate) struct ReplayView {
    /// True: nothing was done.
    preview: bool,
    /// What became of each job that was looked at.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    results: Vec<ReplayedView>,
    /// Of a preview by filter: the newest of all that it finds.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    sample: Vec<JobView>,
    /// Jobs made again.
    replayed: u64,
    /// Jobs that had been made again before.
    existing: u64,
    /// Jobs that are not made again; each says why.
    refused: u64,
    /// Jobs that are left for further calls.
    remaining: u64,
    /// For the next call with the same filter; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

/// One of them.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = ReplayedJob)]
struct ReplayedView {
    #[schema(value_type = Uuid)]
    id: OutboxId,
    /// CREATED, EXISTING, REFUSED or UNKNOWN.
    #[schema(schema_with = words::replay_result)]
    result: &'static str,
    /// The new job, or the one that was made before.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Uuid>)]
    replayed_by: Option<OutboxId>,
    /// Why not.
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
}

impl ReplayView {
    fn of(results: Vec<Replayed>) -> Self {
        let mut view = Self::default();
        for one in results {
            let counter = match one.result {
                ReplayResult::Created => &mut view.replayed,
                ReplayResult::Existing => &mut view.existing,
                ReplayResult::Refused | ReplayResult::Unknown => &mut view.refused,
            };
            *counter += 1;
            let result = one.result.as_str();
            view.results.push(ReplayedView { id: one.of, result, replayed_by: one.by, detail: one.detail });
        }
        view
    }
}

/// Which jobs, and why.
pub(crate) struct ReplayBody;

impl PartialSchema for ReplayBody {
    fn schema() -> RefOr<Schema> {
        let ids = list(uuid()).min_items(Some(1)).max_items(Some(REPLAY_MAX)).unique_items(true).build();
        Shape::new(
            "Jobs by `ids`, or by a `filter` with `limit` and `cursor`. A `reason` must be given but for a preview.",
        )
        .optional("ids", ids)
        .optional("filter", filter::schema())
        .optional("preview", ObjectBuilder::new().schema_type(Type::Boolean).build())
        .optional("reason", named(holds::REASON_CHARS_MAX))
        .optional("limit", whole(1, u32::try_from(REPLAY_MAX).unwrap_or(u32::MAX)))
        .optional("cursor", value())
        .into()
    }
}

impl ToSchema for ReplayBody {}

/// Make jobs again that ended without success: so many a call, oldest first; `preview` tells how many and shows some.
#[utoipa::path(post, path = "/api/dispatch/jobs/replay", tag = "jobs", operation_id = "replayJobs",
    request_body = ReplayBody,
    responses((status = 200, description = "What was done, job by job", body = ReplayView)))]
pub(crate) async fn many(
    caller: Caller<Decide>,
    State(state): State<ApiState>,
    body: JsonBody,
) -> Result<Json<ReplayView>, Problem> {
    let mut fields = Fields::parse(&body.bytes)?;
    let preview = fields.flag("preview").unwrap_or(false);
    let reason = if preview { reason_if_any(&mut fields) } else { reason(&mut fields) };
    let decision = Decision { actor: &caller.name, reason: &reason };
    let view = match fields.texts("ids") {
        Some(ids) => {
            let ids = read_ids(&mut fields, &ids);
            for name in ["filter", "limit", "cursor"] {
                if fields.has(name) {
                    fields.error(name, "says nothing beside ids");
                }
                fields.ignore(name);
            }
            fields.finish()?;
            by_ids(&state, &ids, preview, decision).await?
        }
        None => {
            let wanted = read_filter(&mut fields)?;
            fields.finish()?;
            by_filter(&state, wanted, preview, decision).await?
        }
    };
    if !preview && view.replayed > 0 {
        state.committed().await;
    }
    Ok(Json(view))
}

fn read_ids(fields: &mut Fields<'_>, ids: &[String]) -> Vec<OutboxId> {
    if ids.is_empty() || ids.len() > REPLAY_MAX {
        fields.error("ids", format!("has {} entries; 1 to {REPLAY_MAX} are taken", ids.len()));
    }
    let mut read = Vec::with_capacity(ids.len().min(REPLAY_MAX));
    for (n, text) in ids.iter().take(REPLAY_MAX).enumerate() {
        match text.parse::<Uuid>().map(OutboxId) {
            Ok(id) if read.contains(&id) => fields.error(&format!("ids.{n}"), "stands there twice"),
            Ok(id) => read.push(id),
            Err(_) => fields.error(&format!("ids.{n}"), "is not a UUID"),
        }
    }
    read
}

async fn by_ids(
    state: &ApiState,
    ids: &[OutboxId],
    preview: bool,
    decision: Decision<'_>,
) -> Result<ReplayView, Problem> {
    let results = match preview {
        true => jobs::replay_preview(state.store(), ids).await?,
        false => jobs::replay(state.store(), ids, decision).await?,
    };
    let remaining = u64::try_from(ids.len() - results.len()).unwrap_or(u64::MAX);
    Ok(ReplayView { preview, remaining, ..ReplayView::of(results) })
}

/// Which jobs, and how many of them.
struct Wanted {
    filter: Filter,
    walk: Option<Walk>,
    limit: u32,
}

fn read_filter(fields: &mut Fields<'_>) -> Result<Wanted, Problem> {
    let limit = fields.whole("limit").unwrap_or(LIMIT_DEFAULT);
    if limit == 0 || usize::try_from(limit).is_ok_and(|limit| limit > REPLAY_MAX) {
        fields.error("limit", format!("is not a whole number from 1 to {REPLAY_MAX}"));
    }
    if !fields.has("filter") {
        fields.error("filter", "is missing: say which jobs by `filter` ({} is all in ERROR) or by `ids`");
    }
    let mut filter = Filter::default();
    if let Some(text) = fields.object("filter") {
        let mut inner = Fields::parse(text.as_bytes())?;
        filter = filter::of_fields(&mut inner);
        for error in inner.finish().err().into_iter().flat_map(Problem::into_errors) {
            fields.error(&format!("filter.{}", error.field), error.detail);
        }
    }
    let filter = jobs::dead_letters(&filter);
    let mut walk = None;
    if let Some(text) = fields.text("cursor").filter(|text| !text.is_empty()) {
        walk = cursor::read(&text, &filter).map(|[above, up_to]| Walk { above: Some(above), up_to });
        if walk.is_none() {
            fields.error("cursor", "is not a cursor of this filter: take nextCursor of its last answer");
        }
    }
    Ok(Wanted { filter, walk, limit })
}

async fn by_filter(
    state: &ApiState,
    wanted: Wanted,
    preview: bool,
    decision: Decision<'_>,
) -> Result<ReplayView, Problem> {
    let Wanted { filter, walk, limit } = wanted;
    let limit = usize::try_from(limit).unwrap_or(REPLAY_MAX);
    let (step, sample) = if preview {
        let step = jobs::preview_found(state.store(), &filter, walk, limit).await?;
        let newest = Page::After { job: None, size: SAMPLE_SIZE };
        (step, jobs::search(state.store(), &filter, newest).await?.jobs)
    } else {
        (jobs::replay_found(state.store(), &filter, walk, limit, decision).await?, Vec::new())
    };
    // A walk that goes on has looked at something.
    let next_cursor = step.next.and_then(|walk| Some(cursor::write([walk.above?, walk.up_to], &filter)));
    let sample = sample.iter().map(JobView::of).collect();
    Ok(ReplayView { preview, sample, remaining: step.remaining, next_cursor, ..ReplayView::of(step.results) })
}
