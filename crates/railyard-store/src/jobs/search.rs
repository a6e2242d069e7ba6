//! Jobs by what they are and where they stand: a page by number with exact totals, or a walk by cursor.
//!
//! Every list goes by id, newest first: the order of ids is that of (`created_at`, id) (`uuid7_nth` in the migrations),
//! and a job's id never changes, so a page neither skips nor repeats a job while messages move from place to place. A
//! search begins at whatever knows least: the place that a status names, the index of a metadata entry, or the jobs.
//! Page, totals and jobs are of one snapshot.

use jiff::Timestamp;
use railyard_core::OutboxId;
use railyard_core::settlement::EndStatus;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::read::{self, JobRow, JobStatus};
use crate::connect::{Conn, Store};
use crate::error::StoreError;
use crate::transaction::{begin_read, end};

/// Most jobs of one page.
pub const PAGE_SIZE_MAX: u32 = 100;
/// Most metadata entries of one search.
pub const METADATA_FILTERS_MAX: usize = 16;
/// Longest search, in milliseconds.
const STATEMENT_MS_MAX: u32 = 10_000;

/// What to look for; everything that is given must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Where it stands.
    pub status: Option<JobStatus>,
    /// Only jobs that nobody has replayed.
    pub unreplayed: bool,
    /// Where it came from.
    pub source: Option<String>,
    /// What it is.
    pub kind: Option<String>,
    /// Its group.
    pub group: Option<String>,
    /// The producer's id.
    pub external_id: Option<String>,
    /// Accepted at this moment or later. Moments are whole milliseconds here: a part of one counts as the next.
    pub created_after: Option<Timestamp>,
    /// Accepted before this moment.
    pub created_before: Option<Timestamp>,
    /// Entries that it has.
    pub metadata: Vec<(String, String)>,
}

/// Which part of what is found. Sizes are clamped to 1 … [`PAGE_SIZE_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Page {
    /// By number, from 0, with totals.
    Number {
        /// Which.
        page: u32,
        /// Jobs of a page.
        size: u32,
    },
    /// Behind a job, or from the newest on: counts nothing, and costs the same however deep.
    After {
        /// The last job of the page before.
        job: Option<OutboxId>,
        /// Jobs of a page.
        size: u32,
    },
}

/// A page.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// Newest first.
    pub jobs: Vec<JobRow>,
    /// How many there are in all, where the page was asked for by number.
    pub total: Option<u64>,
    /// Behind which job the next page begins, if there is more.
    pub next: Option<OutboxId>,
}

/// Looks.
///
/// # Errors
/// [`StoreError::TooSlow`] if it took too long, and other errors of the database.
pub async fn search(store: &Store, filter: &Filter, page: Page) -> Result<Found, StoreError> {
    let conn = begin_read(store, STATEMENT_MS_MAX).await?;
    let result = search_in(&conn, filter, page).await;
    end(conn, result).await
}

async fn search_in(conn: &Conn, filter: &Filter, page: Page) -> Result<Found, StoreError> {
    let (behind, size, offset) = match page {
        Page::Number { page, size } => (None, clamped(size), i64::from(page) * clamped(size)),
        Page::After { job, size } => (job, clamped(size), 0),
    };
    let total = match page {
        Page::Number { .. } => Some(count_in(conn, filter, None).await?),
        Page::After { .. } => None,
    };
    // One more than the page tells whether there is more.
    let mut ids = ids_in(conn, filter, Order::NewestFirst { below: behind }, size + 1, offset).await?;
    let more = i64::try_from(ids.len()).is_ok_and(|found| found > size);
    if more {
        ids.pop();
    }
    let next = ids.last().copied().filter(|_| more).map(OutboxId);
    Ok(Found { jobs: read::read_in(conn, &ids, false).await?, total, next })
}

fn clamped(size: u32) -> i64 {
    i64::from(size.clamp(1, PAGE_SIZE_MAX))
}

/// Which way a list goes, and where it begins.
#[derive(Clone, Copy, Debug)]
pub(super) enum Order {
    NewestFirst { below: Option<OutboxId> },
    OldestFirst { above: Option<OutboxId>, up_to: OutboxId },
}

/// The ids of what is found.
pub(super) async fn ids_in(
    conn: &Conn,
    filter: &Filter,
    order: Order,
    limit: i64,
    offset: i64,
) -> Result<Vec<Uuid>, StoreError> {
    let (bounds, direction) = match order {
        Order::NewestFirst { below } => (Bounds::of(filter).below(below), "DESC"),
        Order::OldestFirst { above, up_to } => (Bounds::of(filter).above(above).up_to(up_to), "ASC"),
    };
    let mut sql = Sql::of(filter, &bounds);
    let tail = format!(" ORDER BY 1 {direction} LIMIT {limit} OFFSET {offset}");
    sql.text = format!("SELECT {} {}{tail}", sql.id, sql.text);
    // Planned for these values: which days to open and where to begin depend on them.
    let rows = conn.query(&sql.text, &sql.parameters).await?;
    Ok(rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?)
}

/// How many are found, of those above and up to these ids where they are given.
pub(super) async fn count_in(
    conn: &Conn,
    filter: &Filter,
    among: Option<(Option<OutboxId>, OutboxId)>,
) -> Result<u64, StoreError> {
    let bounds = Bounds::of(filter);
    let bounds = match among {
        Some((above, up_to)) => bounds.above(above).up_to(up_to),
        None => bounds,
    };
    let mut sql = Sql::of(filter, &bounds);
    sql.text = format!("SELECT count(*) AS total {}", sql.text);
    let row = conn.query_one(&sql.text, &sql.parameters).await?;
    crate::row::total(&row, "total")
}

/// Ids from `low` on, up to but without `high`. They tell the days to open.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    low: Uuid,
    high: Uuid,
}

impl Bounds {
    pub(super) fn of(filter: &Filter) -> Self {
        Self {
            low: filter.created_after.map_or(Uuid::nil(), floor),
            high: filter.created_before.map_or(Uuid::max(), floor),
        }
    }

    fn below(mut self, id: Option<OutboxId>) -> Self {
        self.high = id.map_or(self.high, |id| self.high.min(id.0));
        self
    }

    fn above(mut self, id: Option<OutboxId>) -> Self {
        self.low = id.map_or(self.low, |id| self.low.max(after(id.0)));
        self
    }

    fn up_to(mut self, id: OutboxId) -> Self {
        self.high = self.high.min(after(id.0));
        self
    }
}

fn after(id: Uuid) -> Uuid {
    Uuid::from_u128(id.as_u128().saturating_add(1))
}

/// The smallest id of the first whole millisecond that is not before this moment.
fn floor(at: Timestamp) -> Uuid {
    let millis = at.as_nanosecond().div_euclid(1_000_000) + i128::from(at.as_nanosecond().rem_euclid(1_000_000) > 0);
    let millis = u128::try_from(millis.clamp(0, (1 << 48) - 1)).unwrap_or_default();
    Uuid::from_u128(millis << 80)
}

/// `FROM … WHERE …` of a search.
pub(super) struct Sql<'a> {
    /// The text.
    pub(super) text: String,
    /// The column that holds the id.
    pub(super) id: &'static str,
    /// Values for `$1` and so on.
    pub(super) parameters: Vec<&'a (dyn ToSql + Sync)>,
}

impl<'a> Sql<'a> {
    pub(super) fn of(filter: &'a Filter, bounds: &'a Bounds) -> Self {
        let mut metadata = filter.metadata.iter();
        let (from, id, place) = begin_at(filter);
        let mut sql = Self { text: format!("FROM {from}"), id, parameters: vec![&bounds.low, &bounds.high] };
        let by_entry = filter.status.is_none().then(|| metadata.next()).flatten();
        let of_job = sql.of_job(filter);
        if !of_job.is_empty() && from != JOBS {
            sql.text.push_str(&format!(" JOIN dispatch_job j ON j.outbox_id = {id} AND {}", within("j.outbox_id")));
        }
        sql.text.push_str(&format!(" WHERE {}{place}{of_job}", within(id)));
        if let Some((key, value)) = by_entry {
            let (key, value) = (sql.value(key), sql.value(value));
            sql.text.push_str(&format!(" AND x.meta_key = {key} AND x.meta_value = {value}"));
        }
        for (key, value) in metadata {
            let (key, value) = (sql.value(key), sql.value(value));
            sql.text.push_str(&format!(
                " AND EXISTS (SELECT 1 FROM dispatch_job_metadata m WHERE m.meta_key = {key} AND m.meta_value = {value} \
                 AND m.dispatch_job_id = {id} AND {})",
                within("m.dispatch_job_id")
            ));
        }
        if filter.unreplayed {
            sql.text.push_str(&format!(
                " AND NOT EXISTS (SELECT 1 FROM job_replay r WHERE r.replay_of = {id} AND {})",
                within("r.replay_of")
            ));
        }
        sql
    }

    /// What the job itself must be.
    fn of_job(&mut self, filter: &'a Filter) -> String {
        let columns = [
            ("source", &filter.source),
            ("type", &filter.kind),
            ("participant_id", &filter.group),
            ("external_id", &filter.external_id),
        ];
        let given = columns.into_iter().filter_map(|(column, value)| Some((column, value.as_ref()?)));
        given.map(|(column, value)| format!(" AND j.{column} = {}", self.value(value))).collect()
    }

    fn value(&mut self, value: &'a String) -> String {
        self.parameters.push(value);
        format!("${}", self.parameters.len())
    }
}

const JOBS: &str = "dispatch_job j";

/// Where a search begins: table, id, and a condition on its rows. Statuses stand in the text and not among the values,
/// so that a plan knows which index has them.
fn begin_at(filter: &Filter) -> (&'static str, &'static str, &'static str) {
    match filter.status {
        None if filter.metadata.is_empty() => (JOBS, "j.outbox_id", ""),
        None => ("dispatch_job_metadata x", "x.dispatch_job_id", ""),
        Some(JobStatus::InProgress) => ("in_flight x", "x.outbox_id", ""),
        Some(JobStatus::Failed) => ("payment_outbox_pending x", "x.outbox_id", " AND x.failures > 0"),
        Some(JobStatus::Pending) => (
            "(SELECT outbox_id FROM payment_outbox_pending WHERE failures = 0 \
             UNION ALL SELECT outbox_id FROM scheduled_job) x",
            "x.outbox_id",
            "",
        ),
        Some(JobStatus::Ended(status)) => ("dispatch_job_outcome x", "x.outbox_id", ended_as(status)),
    }
}

fn ended_as(status: EndStatus) -> &'static str {
    match status {
        EndStatus::Completed => " AND x.status = 'COMPLETED'",
        EndStatus::Error => " AND x.status = 'ERROR'",
        EndStatus::Cancelled => " AND x.status = 'CANCELLED'",
        EndStatus::Expired => " AND x.status = 'EXPIRED'",
    }
}

fn within(id: &str) -> String {
    format!("{id} >= $1 AND {id} < $2")
}

#[cfg(test)]
mod tests;
