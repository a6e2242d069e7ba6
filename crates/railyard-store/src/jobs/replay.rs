//! Jobs that ended without success, made again: new jobs with the same bytes, each on record with its reason.
//!
//! A job is replayed once, for ever (`job_replay`): whoever asks a second time is shown the replay. What failed again is
//! replayed itself, so no click, however often repeated, sends anything twice. What a search finds is replayed oldest
//! first, so much at a time, up to the moment at which the walk began: what fails again meanwhile is not met again.

use railyard_core::OutboxId;
use railyard_core::settlement::EndStatus;
use railyard_core::text::clean_str;
use tokio_postgres::Row;
use uuid::Uuid;

use super::read::JobStatus;
use super::search::{self, Filter, Order};
use crate::connect::{Conn, Store};
use crate::error::StoreError;
use crate::holds::{Decision, REASON_CHARS_MAX};
use crate::row::word;
use crate::transaction::{begin, begin_read, end, repeated};

/// Most jobs of one call: its transaction holds their groups' sequences.
pub const REPLAY_MAX: usize = 500;
/// Most payload bytes of one call; a job that has more goes alone.
const BYTES_MAX: i64 = 32 * 1024 * 1024;
/// No NOTIFY inside: whoever calls tells the owners after the commit.
const SETTINGS: &str = "SET LOCAL railyard.notify = 'off'; SET LOCAL statement_timeout = '20s'";
/// Longest preview, in milliseconds.
const PREVIEW_MS_MAX: u32 = 10_000;

const REPLAY: &str = "SELECT replay_of, outbox_id, result, detail FROM replay_jobs($1, $2, nullif($3, ''))";

const PREVIEW: &str = "
    SELECT i.id AS replay_of, r.outbox_id,
      CASE WHEN r.outbox_id IS NOT NULL THEN 'EXISTING' ELSE coalesce(w.result, 'CREATED') END AS result,
      CASE WHEN r.outbox_id IS NULL THEN w.detail END AS detail
    FROM unnest($1::uuid[]) WITH ORDINALITY AS i(id, n)
    CROSS JOIN LATERAL replay_refusal(i.id) w
    LEFT JOIN LATERAL (SELECT * FROM job_replay d WHERE d.replay_of = i.id LIMIT 1) r ON true
    ORDER BY i.n";

/// A payload that is kept outside of its row tells its length without being read. What was replayed costs nothing.
const BYTES: &str = "
    SELECT coalesce(j.bytes, 0) AS bytes FROM unnest($1::uuid[]) WITH ORDINALITY AS i(id, n)
    LEFT JOIN LATERAL (SELECT octet_length(d.payload)::bigint AS bytes FROM dispatch_job d
                       WHERE d.outbox_id = i.id AND NOT EXISTS (SELECT 1 FROM job_replay r WHERE r.replay_of = i.id)
                       LIMIT 1) j ON true
    ORDER BY i.n";

/// What became of one job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplayResult {
    /// It was made again.
    Created,
    /// It had been made again before.
    Existing,
    /// It is not made again: it is open, was delivered, or its content is not accepted any more.
    Refused,
    /// There is no such job.
    Unknown,
}

impl ReplayResult {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Created, Self::Existing, Self::Refused, Self::Unknown];

    /// As the database and the API say it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Created => "CREATED",
            Self::Existing => "EXISTING",
            Self::Refused => "REFUSED",
            Self::Unknown => "UNKNOWN",
        }
    }

    fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|result| result.as_str() == text)
    }
}

/// A job and its replay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replayed {
    /// The job that ended without success.
    pub of: OutboxId,
    /// The new one, or the one that was made before.
    pub by: Option<OutboxId>,
    /// What became of it.
    pub result: ReplayResult,
    /// Why not.
    pub detail: Option<String>,
}

/// Where a walk over what a search finds stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Walk {
    /// The last job that was looked at; from the oldest on if none was.
    pub above: Option<OutboxId>,
    /// The walk ends here.
    pub up_to: OutboxId,
}

/// One call's part of a walk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplayStep {
    /// Oldest first.
    pub results: Vec<Replayed>,
    /// How many of what is searched for are left.
    pub remaining: u64,
    /// Where to go on, if any are left.
    pub next: Option<Walk>,
}

/// Makes these jobs again, at most [`REPLAY_MAX`]; results in their order. Payloads of many megabytes end the call
/// early: results then cover the first of them, and the same call again goes on.
///
/// # Errors
/// [`StoreError::Busy`]: nothing was made; other errors of the database.
pub async fn replay(store: &Store, ids: &[OutboxId], decision: Decision<'_>) -> Result<Vec<Replayed>, StoreError> {
    let ids: Vec<Uuid> = ids.iter().take(REPLAY_MAX).map(|id| id.0).collect();
    repeated(|| async {
        let conn = begin(store, SETTINGS).await?;
        let result = replay_in(&conn, &ids, decision).await;
        end(conn, result).await
    })
    .await
}

/// Makes up to `limit` again of the jobs that the filter finds and that nobody has replayed. Without a `walk`, begins
/// one. The filter's status is that of an end without success, ERROR if it names none.
///
/// # Errors
/// As [`replay`].
pub async fn replay_found(
    store: &Store,
    filter: &Filter,
    walk: Option<Walk>,
    limit: usize,
    decision: Decision<'_>,
) -> Result<ReplayStep, StoreError> {
    let filter = dead_letters(filter);
    repeated(|| async {
        let conn = begin(store, SETTINGS).await?;
        let result = step_in(&conn, &filter, walk, limit, Some(decision)).await;
        end(conn, result).await
    })
    .await
}

/// What [`replay_found`] would do, of the same jobs at this moment.
///
/// # Errors
/// [`StoreError::TooSlow`] and other errors of the database.
pub async fn preview_found(
    store: &Store,
    filter: &Filter,
    walk: Option<Walk>,
    limit: usize,
) -> Result<ReplayStep, StoreError> {
    let conn = begin_read(store, PREVIEW_MS_MAX).await?;
    let result = step_in(&conn, &dead_letters(filter), walk, limit, None).await;
    end(conn, result).await
}

/// What [`replay`] would do, of the same jobs at this moment.
///
/// # Errors
/// Errors of the database.
pub async fn replay_preview(store: &Store, ids: &[OutboxId]) -> Result<Vec<Replayed>, StoreError> {
    let conn = begin_read(store, PREVIEW_MS_MAX).await?;
    let ids: Vec<Uuid> = ids.iter().take(REPLAY_MAX).map(|id| id.0).collect();
    let result = preview_in(&conn, &ids).await;
    end(conn, result).await
}

async fn preview_in(conn: &Conn, ids: &[Uuid]) -> Result<Vec<Replayed>, StoreError> {
    conn.query(PREVIEW, &[&ids]).await?.iter().map(replayed).collect()
}

/// The filter of [`replay_found`], as a search takes it.
#[must_use]
pub fn dead_letters(filter: &Filter) -> Filter {
    let status = filter.status.or(Some(JobStatus::Ended(EndStatus::Error)));
    Filter { status, unreplayed: true, ..filter.clone() }
}

/// A step of a walk; without a decision, what it would be.
async fn step_in(
    conn: &Conn,
    filter: &Filter,
    walk: Option<Walk>,
    limit: usize,
    decision: Option<Decision<'_>>,
) -> Result<ReplayStep, StoreError> {
    let walk = match walk {
        Some(walk) => walk,
        None => {
            let now = conn.query_one("SELECT uuid7_floor(clock_timestamp())", &[]).await?;
            Walk { above: None, up_to: OutboxId(now.try_get(0)?) }
        }
    };
    let order = Order::OldestFirst { above: walk.above, up_to: walk.up_to };
    let limit = i64::try_from(limit.clamp(1, REPLAY_MAX)).unwrap_or(i64::MAX);
    let ids = search::ids_in(conn, filter, order, limit, 0).await?;
    let results = match decision {
        Some(decision) => replay_in(conn, &ids, decision).await?,
        None => preview_in(conn, within_bytes(conn, &ids).await?).await?,
    };
    let above = results.last().map(|last| last.of).or(walk.above);
    let remaining = search::count_in(conn, filter, Some((above, walk.up_to))).await?;
    let next = (remaining > 0).then_some(Walk { above, up_to: walk.up_to });
    Ok(ReplayStep { results, remaining, next })
}

async fn replay_in(conn: &Conn, ids: &[Uuid], decision: Decision<'_>) -> Result<Vec<Replayed>, StoreError> {
    let ids = within_bytes(conn, ids).await?;
    let reason = clean_str(decision.reason, REASON_CHARS_MAX);
    conn.query(REPLAY, &[&ids, &decision.actor, &reason]).await?.iter().map(replayed).collect()
}

/// The first of these jobs, so many as have [`BYTES_MAX`] together; at least one.
async fn within_bytes<'a>(conn: &Conn, ids: &'a [Uuid]) -> Result<&'a [Uuid], StoreError> {
    let mut total = 0_i64;
    for (n, row) in conn.query(BYTES, &[&ids]).await?.iter().enumerate() {
        total = total.saturating_add(row.try_get("bytes")?);
        if total > BYTES_MAX && n > 0 {
            return Ok(&ids[..n]);
        }
    }
    Ok(ids)
}

fn replayed(row: &Row) -> Result<Replayed, StoreError> {
    Ok(Replayed {
        of: OutboxId(row.try_get("replay_of")?),
        by: row.try_get::<_, Option<Uuid>>("outbox_id")?.map(OutboxId),
        result: word(row, "result", ReplayResult::parse)?,
        detail: row.try_get("detail")?,
    })
}

#[cfg(test)]
mod tests;
