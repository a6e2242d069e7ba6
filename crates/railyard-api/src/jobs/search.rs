//! `GET /api/dispatch/jobs`: what to look for stands in the query, every wrong parameter is named at once.

use axum::Json;
use axum::extract::State;
use railyard_core::job::FieldError;
use railyard_store::jobs::{self, Filter, JobStatus, METADATA_FILTERS_MAX, PAGE_SIZE_MAX, Page};
use serde::Serialize;
use utoipa::openapi::Object;
use utoipa::{IntoParams, ToSchema};

use super::cursor;
use super::view::JobView;
use crate::auth::{Caller, ReadJobs};
use crate::fields::rfc3339;
use crate::openapi::shape::{self, time};
use crate::openapi::words;
use crate::problem::Problem;
use crate::query::{Asked, Size, whole};
use crate::state::ApiState;

/// Jobs of a page that names no size.
const SIZE_DEFAULT: u32 = 20;
/// Longest value of a filter, in characters: nothing that is searched for is longer.
const VALUE_CHARS_MAX: usize = 1024;

/// A page of jobs.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct JobPage {
    items: Vec<JobView>,
    /// Which page, from 0; not with a cursor.
    #[serde(skip_serializing_if = "Option::is_none")]
    page: Option<u32>,
    /// Most jobs of a page.
    size: u32,
    /// How many jobs are found in all; not with a cursor.
    #[serde(skip_serializing_if = "Option::is_none")]
    total_items: Option<u64>,
    /// How many pages those are; not with a cursor.
    #[serde(skip_serializing_if = "Option::is_none")]
    total_pages: Option<u64>,
    /// For the page behind this one; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

/// What may stand in the query; it is read pair by pair, so that every wrong one is named at once.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[allow(dead_code, reason = "the document is made from it")]
#[expect(non_snake_case, reason = "names of parameters")]
struct SearchQuery {
    /// Where a job stands.
    #[param(schema_with = words::job_status)]
    status: Option<String>,
    /// Where it came from.
    #[param(schema_with = value)]
    source: Option<String>,
    /// What it is.
    #[param(schema_with = value)]
    r#type: Option<String>,
    /// Its group.
    #[param(schema_with = value)]
    groupId: Option<String>,
    /// The producer's id.
    #[param(schema_with = value)]
    externalId: Option<String>,
    /// Accepted at this time or later.
    #[param(schema_with = time)]
    createdAfter: Option<String>,
    /// Accepted before this time.
    #[param(schema_with = time)]
    createdBefore: Option<String>,
    /// `metadata.KEY=VALUE`, for each entry that a job must have.
    #[param(rename = "metadata.KEY", schema_with = value)]
    metadata: Option<String>,
    /// Which page, from 0.
    #[param(schema_with = page_number)]
    page: Option<u32>,
    #[param(schema_with = Size::schema)]
    size: Option<u32>,
    /// `nextCursor` of the page before, in place of `page`: good for deep walks, since it counts nothing. Empty: begin.
    #[param(schema_with = value)]
    cursor: Option<String>,
}

fn value() -> Object {
    shape::text(VALUE_CHARS_MAX)
}

fn page_number() -> Object {
    shape::whole_from(0)
}

/// Find jobs, newest first: a page by number with totals, or behind a cursor without.
#[utoipa::path(get, path = "/api/dispatch/jobs", tag = "jobs", operation_id = "searchJobs", params(SearchQuery),
    responses((status = 200, description = "A page", body = JobPage)))]
pub(crate) async fn search(
    _: Caller<ReadJobs>,
    State(state): State<ApiState>,
    Asked(pairs): Asked<Vec<(String, String)>>,
) -> Result<Json<JobPage>, Problem> {
    let (filter, page) = read(pairs)?;
    let found = jobs::search(state.store(), &filter, page).await?;
    let (number, size) = match page {
        Page::Number { page, size } => (Some(page), size),
        Page::Behind { size, .. } => (None, size),
    };
    Ok(Json(JobPage {
        items: found.jobs.iter().map(JobView::of).collect(),
        page: number,
        size,
        total_items: found.total,
        total_pages: found.total.map(|total| total.div_ceil(u64::from(size))),
        next_cursor: found.next.map(|id| cursor::write([id], &filter)),
    }))
}

/// Query parameters that are being read.
#[derive(Default)]
struct Query {
    filter: Filter,
    page: Option<u32>,
    size: Option<u32>,
    cursor: Option<String>,
    seen: Vec<String>,
    errors: Vec<FieldError>,
}

fn read(pairs: Vec<(String, String)>) -> Result<(Filter, Page), Problem> {
    let mut query = Query::default();
    for (name, value) in pairs {
        query.take(name, value);
    }
    query.finish()
}

impl Query {
    fn error(&mut self, field: &str, detail: impl Into<String>) {
        let field = railyard_core::text::clean_str(field, 100);
        self.errors.push(FieldError { field, detail: detail.into() });
    }

    fn take(&mut self, name: String, value: String) {
        if let Some(key) = name.strip_prefix("metadata.").filter(|key| !key.is_empty()) {
            if is_text(key) && is_text(&value) {
                return self.filter.metadata.push((key.to_owned(), value));
            }
            return self.error(&name, "has a NUL character or is too long");
        }
        if self.seen.contains(&name) {
            return self.error(&name, "stands there twice");
        }
        if !is_text(&value) {
            return self.error(&name, "has a NUL character or is too long");
        }
        self.take_known(&name, value);
        self.seen.push(name);
    }

    fn take_known(&mut self, name: &str, value: String) {
        let filter = &mut self.filter;
        match name {
            "source" => filter.source = Some(value),
            "type" => filter.kind = Some(value),
            "groupId" => filter.group = Some(value),
            "externalId" => filter.external_id = Some(value),
            "cursor" => self.cursor = Some(value),
            "status" => match JobStatus::parse(&value) {
                Some(status) => filter.status = Some(status),
                None => self.error(name, format!("is not one of {}", names())),
            },
            "createdAfter" | "createdBefore" => match rfc3339(&value) {
                Some(at) if name == "createdAfter" => filter.created_from = Some(at),
                Some(at) => filter.created_before = Some(at),
                None => self.error(name, "is not a time like 2025-10-04T15:00:00Z (a `+` is written %2B in a query)"),
            },
            // However many digits: a page past the end is empty, and no page is larger than it may be.
            "page" => match whole(&value) {
                Some(page) => self.page = Some(u32::try_from(page).unwrap_or(u32::MAX)),
                None => self.error(name, "is not a whole number from 0 up"),
            },
            "size" => match whole(&value).filter(|size| *size > 0) {
                Some(size) => self.size = Some(u32::try_from(size).unwrap_or(u32::MAX)),
                None => self.error(name, "is not a whole number from 1 up"),
            },
            unknown => self.error(unknown, "is not a known parameter"),
        }
    }

    fn finish(mut self) -> Result<(Filter, Page), Problem> {
        if self.filter.metadata.len() > METADATA_FILTERS_MAX {
            self.error("metadata", format!("has more than {METADATA_FILTERS_MAX} entries"));
        }
        let size = self.size.unwrap_or(SIZE_DEFAULT).min(PAGE_SIZE_MAX);
        let mut page = Page::Number { page: self.page.unwrap_or(0), size };
        if let Some(text) = self.cursor.take() {
            if self.page.is_some() {
                self.error("page", "says nothing beside a cursor");
            }
            let job = match text.as_str() {
                "" => Some(None),
                text => cursor::read(text, &self.filter).map(|[id]| Some(id)),
            };
            match job {
                Some(job) => page = Page::Behind { job, size },
                None => self.error("cursor", "is not a cursor of this search: take nextCursor of its last answer"),
            }
        }
        if self.errors.is_empty() { Ok((self.filter, page)) } else { Err(Problem::fields(self.errors)) }
    }
}

/// The database takes no NUL.
fn is_text(value: &str) -> bool {
    !value.contains('\0') && value.chars().count() <= VALUE_CHARS_MAX
}

fn names() -> String {
    let names: Vec<&str> = JobStatus::ALL.into_iter().map(JobStatus::as_str).collect();
    names.join(", ")
}
