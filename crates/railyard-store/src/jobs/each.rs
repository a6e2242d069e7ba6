//! The way in for a batch whose items stand for themselves: what is wrong with one, or in one's way, keeps no other out.
//!
//! All items are tried in one transaction. Only if that fails for a reason that may be one item's alone, a lock that
//! somebody holds for long or an error of the database, the batch is halved, by lane, until the reason stands alone.
//! Behind the first item of a lane that could not be stored nothing of that lane is, so that the order of the lane is
//! the order of the batch when the rest is sent again.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use railyard_core::job::NewJob;
use railyard_core::{Mode, ParticipantId};
use tokio_postgres::types::ToSql;

use super::columns::Columns;
use super::create::{Created, MANY, created, give_back};
use crate::connect::{Conn, Store};
use crate::error::StoreError;
use crate::transaction::repeated;

/// How long the whole batch waits for a lock, and each part of one that has waited in vain.
const WHOLE_LOCK_TIMEOUT_MS: u32 = 1000;
const PART_LOCK_TIMEOUT_MS: u32 = 100;
/// After this the parts that have not had their turn are to come again: the caller has a deadline of its own.
const PATIENCE: Duration = Duration::from_secs(10);

/// What became of one item.
#[derive(Clone, Debug, PartialEq)]
pub enum Placed {
    /// It was made, or found, or its key stands for other content.
    Taken(Created),
    /// It was refused; the same item is refused again.
    Refused {
        /// Which field, in the database's spelling.
        field: String,
        /// What is wrong with it.
        detail: String,
    },
    /// It was not stored, and may be with the next call.
    Later {
        /// Why.
        detail: String,
    },
    /// The database failed at this item.
    Failed {
        /// Its words, for our log.
        detail: String,
    },
}

impl Placed {
    /// What stands before it took too long.
    #[must_use]
    pub fn not_tried() -> Self {
        Self::Later { detail: "was not tried: what stands before it took too long".to_owned() }
    }
}

/// Indices of items that must keep their order among themselves.
pub(crate) type Lane = Vec<usize>;

/// Makes what can be made of the jobs. Answers in their order.
///
/// # Errors
/// [`StoreError::Unavailable`] if nothing is known to be stored: whether anything is, the same call with the same
/// idempotency keys finds out.
pub async fn create_each(store: &Store, jobs: &[NewJob]) -> Result<Vec<Placed>, StoreError> {
    let lane = |job: &NewJob| job.group.clone().filter(|_| job.mode != Mode::Immediate);
    place(&Jobs { store, jobs }, lanes(jobs.iter().map(lane)), jobs.len()).await
}

/// Stores items of these indices, in this order, in one transaction that waits so many milliseconds for a lock.
pub(crate) trait Together: Sync {
    /// Answers in the order of the indices.
    fn together(
        &self,
        indices: &[usize],
        lock_timeout_ms: u32,
    ) -> impl Future<Output = Result<Vec<Placed>, StoreError>> + Send;
}

struct Jobs<'a> {
    store: &'a Store,
    jobs: &'a [NewJob],
}

impl Together for Jobs<'_> {
    async fn together(&self, indices: &[usize], lock_timeout_ms: u32) -> Result<Vec<Placed>, StoreError> {
        let columns = Columns::of(indices.iter().map(|index| &self.jobs[*index]))?;
        let lock_timeout = lock_timeout_ms.to_string();
        let mut parameters = columns.many().to_vec();
        parameters.extend_from_slice(&[&true, &lock_timeout]);
        one_statement(self.store, MANY, &parameters).await
    }
}

/// One statement, which is its own transaction: a row an item.
pub(crate) async fn one_statement(
    store: &Store,
    sql: &str,
    parameters: &[&(dyn ToSql + Sync)],
) -> Result<Vec<Placed>, StoreError> {
    let conn = store.api().await?;
    let result = rows(&conn, sql, parameters).await;
    give_back(conn, result)
}

async fn rows(conn: &Conn, sql: &str, parameters: &[&(dyn ToSql + Sync)]) -> Result<Vec<Placed>, StoreError> {
    let statement = conn.prepare_cached(sql).await?;
    conn.query(&statement, parameters).await?.iter().map(placed_row).collect()
}

/// Places `count` items that stand in these lanes.
pub(crate) async fn place(way: &impl Together, lanes: Vec<Lane>, count: usize) -> Result<Vec<Placed>, StoreError> {
    let mut placed: Vec<Placed> = (0..count).map(|_| Placed::not_tried()).collect();
    let mut any = false;
    let mut parts: VecDeque<Vec<Lane>> = VecDeque::from([lanes]);
    let mut lock_timeout_ms = WHOLE_LOCK_TIMEOUT_MS;
    let started = Instant::now();
    while let Some(part) = parts.pop_front() {
        if started.elapsed() > PATIENCE {
            break;
        }
        // As they came, so that of two items with one key the first is the first.
        let mut indices: Lane = part.iter().flatten().copied().collect();
        indices.sort_unstable();
        if indices.is_empty() {
            continue;
        }
        match repeated(|| way.together(&indices, lock_timeout_ms)).await {
            Ok(rows) => {
                any = true;
                for (index, one) in indices.into_iter().zip(rows) {
                    placed[index] = one;
                }
            }
            Err(StoreError::Unavailable { detail }) if !any => return Err(StoreError::Unavailable { detail }),
            Err(StoreError::Unavailable { detail }) => {
                tracing::debug!(detail, "database unavailable in the middle of a batch");
                break;
            }
            Err(error) => {
                lock_timeout_ms = PART_LOCK_TIMEOUT_MS;
                match <[Lane; 1]>::try_from(part) {
                    Ok([lane]) => one_by_one(way, &lane, &mut placed, error).await,
                    Err(mut part) => {
                        let second = part.split_off(part.len() / 2);
                        parts.push_front(second);
                        parts.push_front(part);
                    }
                }
            }
        }
    }
    Ok(placed)
}

/// A lane that failed as a whole with `error`: item after item, up to the first that cannot be stored.
async fn one_by_one(way: &impl Together, lane: &[usize], placed: &mut [Placed], error: StoreError) {
    let mut error = error;
    for &index in lane {
        if lane.len() > 1 {
            let only = [index];
            match repeated(|| way.together(&only, PART_LOCK_TIMEOUT_MS)).await {
                Ok(mut rows) => {
                    if let Some(row) = rows.pop() {
                        placed[index] = row;
                    }
                    continue;
                }
                Err(found) => error = found,
            }
        }
        placed[index] = match error.why_later() {
            Some(why) => Placed::Later { detail: why.to_owned() },
            None => Placed::Failed { detail: error.to_string() },
        };
        for &behind in lane.iter().skip_while(|other| **other != index).skip(1) {
            placed[behind] = Placed::Later { detail: "stands behind one of its group that was not stored".to_owned() };
        }
        return;
    }
}

/// A row of an item that was taken or refused.
fn placed_row(row: &tokio_postgres::Row) -> Result<Placed, StoreError> {
    let fault: Option<String> = row.try_get("fault")?;
    match fault {
        None => Ok(Placed::Taken(created(row)?)),
        Some(fault) => {
            let (field, detail) = fault.split_once(": ").unwrap_or(("item", &fault));
            Ok(Placed::Refused { field: field.to_owned(), detail: detail.to_owned() })
        }
    }
}

/// Groups in the order of their first items; what has no order is a lane of its own.
pub(crate) fn lanes(groups: impl Iterator<Item = Option<ParticipantId>>) -> Vec<Lane> {
    let mut lanes: Vec<Lane> = Vec::new();
    let mut of_group: HashMap<ParticipantId, usize> = HashMap::new();
    for (index, group) in groups.enumerate() {
        let lane = group.map_or(lanes.len(), |group| *of_group.entry(group).or_insert(lanes.len()));
        match lanes.get_mut(lane) {
            Some(lane) => lane.push(index),
            None => lanes.push(vec![index]),
        }
    }
    lanes
}
