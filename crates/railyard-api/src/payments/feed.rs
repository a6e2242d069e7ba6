//! `/api/payments/feeds`: files of payments. Whoever has the file reads it and sends its instructions in order, with their
//! numbers; here they are accepted like those of a batch, and what became of each is recorded.

mod line;

use std::collections::HashMap;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use railyard_core::payment::is_payment_id;
use railyard_core::timestamp::utc_millis;
use railyard_store::feeds::{self, Feed, FeedFormat, Known, NewFeed};
use railyard_store::payments;
use serde::Serialize;
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::auth::{Caller, Produce, ReadJobs};
use crate::body::{BatchBody, JsonBody};
use crate::fields::Fields;
use crate::items;
use crate::openapi::Conflict;
use crate::openapi::shape::{Shape, formed, named, whole, word};
use crate::openapi::words;
use crate::problem::Problem;
use crate::query::Named;
use crate::state::ApiState;
use line::{Fate, FeedLines, Line, LinesView};

const NAME_CHARS_MAX: usize = 255;

pub(super) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new().routes(routes!(open, read)).routes(routes!(send))
}

/// A file.
struct FeedBody;

impl ToSchema for FeedBody {}

impl PartialSchema for FeedBody {
    fn schema() -> RefOr<Schema> {
        Shape::new("A file of payments that is about to be sent. A feed's name never stands for another file.")
            .required("format", word(&FeedFormat::ALL, FeedFormat::as_str))
            .required("name", named(NAME_CHARS_MAX))
            .required("sha256", formed("^[0-9a-f]{64}$", 64))
            .required("items", whole(0, u32::MAX))
            .into()
    }
}

/// A feed, and how many of its instructions have been answered.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Feed)]
pub(super) struct FeedView {
    feed_id: String,
    #[schema(schema_with = words::feed_format)]
    format: &'static str,
    /// What the file was called.
    name: String,
    sha256: String,
    /// Instructions that it holds.
    items: u64,
    accepted: u64,
    rejected: u64,
    created_at: String,
    /// Whose token it was.
    created_by: String,
}

impl FeedView {
    pub(super) fn of(feed: Feed) -> Self {
        Self {
            feed_id: feed.feed_id,
            format: feed.format.as_str(),
            name: feed.name,
            sha256: hex::encode(feed.sha256),
            items: feed.items,
            accepted: feed.accepted,
            rejected: feed.rejected,
            created_at: utc_millis(feed.created_at),
            created_by: feed.created_by,
        }
    }
}

/// A feed by its name.
pub(super) async fn found(state: &ApiState, id: &str) -> Result<Feed, Problem> {
    let feed = match is_payment_id(id) {
        true => feeds::get(state.store(), id).await?,
        false => None,
    };
    feed.ok_or_else(unknown)
}

fn unknown() -> Problem {
    Problem::not_found("no feed has this name")
}

/// Open a feed, or find it open.
#[utoipa::path(put, path = "/api/payments/feeds/{id}", tag = "payments", operation_id = "openFeed",
    params(("id" = String, Path, description = "Its name: 1 to 64 letters, digits and ._:-")), request_body = FeedBody,
    responses(
        (status = 201, description = "It is open", body = FeedView),
        (status = 200, description = "The same file was opened under this name before: as it stands now", body = FeedView),
        Conflict))]
async fn open(
    caller: Caller<Produce>,
    State(state): State<ApiState>,
    Named(id): Named,
    body: JsonBody,
) -> Result<(StatusCode, Json<FeedView>), Problem> {
    if !is_payment_id(&id) {
        return Err(Problem::not_found("a feed's name has 1 to 64 letters, digits and ._:-"));
    }
    let mut fields = Fields::parse(&body.bytes)?;
    let format = fields.word("format", &FeedFormat::ALL, FeedFormat::as_str);
    let name = fields.text("name").unwrap_or_default();
    let named = !name.trim().is_empty() && name.chars().count() <= NAME_CHARS_MAX && !name.contains('\0');
    if !named && !fields.is_wrong("name") {
        fields.error("name", format!("is not 1 to {NAME_CHARS_MAX} characters"));
    }
    let mut sha256 = [0; 32];
    let digest = fields.text("sha256").unwrap_or_default();
    let decoded = hex::decode_to_slice(&digest, &mut sha256).is_ok() && digest == hex::encode(sha256);
    if !decoded && !fields.is_wrong("sha256") {
        fields.error("sha256", "is not 64 hex digits");
    }
    let items = fields.whole("items");
    for (field, given) in [("format", format.is_some()), ("items", items.is_some())] {
        if !given && !fields.is_wrong(field) {
            fields.error(field, "is missing");
        }
    }
    fields.finish()?;
    let (Some(format), Some(items)) = (format, items) else { return Err(Problem::internal()) };
    let new = NewFeed { feed_id: &id, format, name: &name, sha256, items: items.into(), actor: &caller.name };
    let opened = feeds::open(state.store(), new).await?;
    let status = if opened { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, Json(FeedView::of(found(&state, &id).await?))))
}

/// A feed, and how many of its instructions have been answered.
#[utoipa::path(get, path = "/api/payments/feeds/{id}", tag = "payments", operation_id = "getFeed",
    params(("id" = String, Path, description = "Its name")),
    responses((status = 200, description = "It", body = FeedView)))]
async fn read(_: Caller<ReadJobs>, State(state): State<ApiState>, Named(id): Named) -> Result<Json<FeedView>, Problem> {
    Ok(Json(FeedView::of(found(&state, &id).await?)))
}

/// Accept instructions of a feed, each answered for itself and on record.
#[utoipa::path(post, path = "/api/payments/feeds/{id}/lines", tag = "payments", operation_id = "sendFeedLines",
    params(("id" = String, Path, description = "The feed's name")), request_body = FeedLines,
    responses((status = 200, description = "Each result says what became of its instruction", body = LinesView)))]
async fn send(
    caller: Caller<Produce>,
    State(state): State<ApiState>,
    Named(id): Named,
    body: BatchBody,
) -> Result<Json<LinesView>, Problem> {
    let items_max = match is_payment_id(&id) {
        true => feeds::items(state.store(), &id).await?.ok_or_else(unknown)?,
        false => return Err(unknown()),
    };
    let mut lines = Line::read_all(items::read(&body.bytes, "lines")?, items_max)?;
    // Its share of the memory stands for the payments as well.
    let numbers: Vec<i64> = lines.iter().filter_map(|line| line.item).collect();
    let known = feeds::accepted(state.store(), &id, &numbers).await?;
    let known: HashMap<i64, Known> = known.into_iter().map(|known| (known.item, known)).collect();
    let mut good = Vec::new();
    for line in &mut lines {
        if let Some(known) = line.item.and_then(|item| known.get(&item)) {
            line.hold_to(known)?;
        }
        if let Fate::Payment(payment) = &line.fate {
            good.push((**payment).clone());
        }
    }
    let mut accepted = payments::accept(state.store(), &good, &caller.name).await.into_iter();
    let mut results = Vec::with_capacity(lines.len());
    let mut records = Vec::with_capacity(lines.len());
    for line in lines {
        let (result, record) = line.end(|| accepted.next().ok_or_else(Problem::internal))?;
        results.push(result);
        records.extend(record);
    }
    // What was accepted and could not be recorded is found again by the same call.
    feeds::record(state.store(), &id, &records).await?;
    drop(body);
    Ok(Json(LinesView { results }))
}
