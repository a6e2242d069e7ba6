//! `GET /api/dispatch/jobs`: what to look for stands in the query, every wrong parameter is named at once.

use axum::Json;
use axum::extract::State;
use railyard_store::jobs::{self, Filter, PAGE_SIZE_MAX, Page};
use serde::Serialize;
use utoipa::{IntoParams, ToSchema};

use super::view::JobView;
use super::{cursor, filter};
use crate::auth::{Caller, ReadJobs};
use crate::openapi::shape::time;
use crate::openapi::words;
use crate::problem::Problem;
use crate::query::{Ask, Asked, Pairs, number, size, value};
use crate::state::ApiState;

/// Jobs of a page that names no size.
const SIZE_DEFAULT: u32 = 20;

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
    #[param(schema_with = number)]
    page: Option<u32>,
    #[param(schema_with = size)]
    size: Option<u32>,
    /// `nextCursor` of the page before, in place of `page`: good for deep walks, since it counts nothing. Empty: begin.
    #[param(schema_with = value)]
    cursor: Option<String>,
}

/// Find jobs, newest first: a page by number with totals, or behind a cursor without.
#[utoipa::path(get, path = "/api/dispatch/jobs", tag = "jobs", operation_id = "searchJobs", params(SearchQuery),
    responses((status = 200, description = "A page", body = JobPage)))]
pub(crate) async fn search(
    _: Caller<ReadJobs>,
    State(state): State<ApiState>,
    Asked(Search { filter, page }): Asked<Search>,
) -> Result<Json<JobPage>, Problem> {
    let found = jobs::search(state.store(), &filter, page).await?;
    let (number, size) = match page {
        Page::Number { page, size } => (Some(page), size),
        Page::After { size, .. } => (None, size),
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

/// What to look for, and which part of what is found.
pub(crate) struct Search {
    filter: Filter,
    page: Page,
}

impl Ask for Search {
    fn read(pairs: &mut Pairs) -> Self {
        let filter = filter::of_query(pairs);
        let size = pairs.size(SIZE_DEFAULT, PAGE_SIZE_MAX);
        let number = pairs.whole("page");
        let Some(text) = pairs.text("cursor") else {
            return Self { filter, page: Page::Number { page: number.unwrap_or(0), size } };
        };
        if number.is_some() {
            pairs.error("page", "says nothing beside a cursor");
        }
        let job = cursor::job(&text, &filter).unwrap_or_else(|detail| {
            pairs.error("cursor", detail);
            None
        });
        Self { filter, page: Page::After { job, size } }
    }
}
