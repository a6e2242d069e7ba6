//! How a look goes over the owned partitions, page by page.
//!
//! A page takes its fill from as few partitions as give it: to look into one costs about the same whether one lane is
//! wanted or ten, since the index is read by leaves. So each look begins at another partition, in turn, and none waits
//! for longer than a round. Within a partition, oldest first.

use std::collections::{BTreeMap, HashMap};

use jiff::Timestamp;
use railyard_core::Epoch;
use tokio_postgres::Row;
use tokio_postgres::types::FromSql;
use uuid::Uuid;

use crate::error::StoreError;

/// Partitions that share a page, if all of them have enough.
const SPREAD: usize = 16;
const PARTITIONS: i16 = 256;

/// A place behind a page, in each partition that may have more; the others have been seen to their end.
#[derive(Clone, Debug, Default)]
pub struct Cursor {
    pub(super) groups: Places<String>,
    pub(super) singles: Places<Uuid>,
}

impl Cursor {
    /// Before everything.
    pub(super) fn front(partitions: impl Iterator<Item = i16> + Clone) -> Self {
        Self {
            groups: Places::front(partitions.clone(), &String::new()),
            singles: Places::front(partitions, &Uuid::nil()),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.groups.0.is_empty() && self.singles.0.is_empty()
    }
}

/// Since when a lane is due, and its id: what orders a partition's lanes.
type Place<T> = (Timestamp, T);

/// One kind of lane: behind which it is looked for, by partition.
#[derive(Clone, Debug)]
pub(super) struct Places<T>(BTreeMap<i16, Place<T>>);

impl<T> Default for Places<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

/// What a page is asked for.
pub(super) struct Ask<T> {
    pub(super) partitions: Vec<i16>,
    pub(super) due: Vec<Timestamp>,
    pub(super) ids: Vec<T>,
    /// Rows that each partition gives at most.
    pub(super) share: usize,
    /// Rows of the page.
    pub(super) limit: usize,
}

/// What follows a page.
pub(super) struct After<T> {
    pub(super) places: Places<T>,
    /// The partition that filled the page; none if all were looked into.
    pub(super) filled_by: Option<i16>,
}

impl<T: Clone> Places<T> {
    fn front(partitions: impl Iterator<Item = i16>, first: &T) -> Self {
        Self(partitions.map(|partition| (partition, (Timestamp::UNIX_EPOCH, first.clone()))).collect())
    }

    /// The owned ones, from a partition on and round.
    pub(super) fn ask(&self, owned: &HashMap<i16, Epoch>, turn: i16, limit: usize) -> Ask<T> {
        let round = self.0.range(turn..).chain(self.0.range(..turn));
        let mut ask = Ask { partitions: Vec::new(), due: Vec::new(), ids: Vec::new(), share: 0, limit };
        for (partition, (due, id)) in round.filter(|(partition, _)| owned.contains_key(partition)) {
            ask.partitions.push(*partition);
            ask.due.push(*due);
            ask.ids.push(id.clone());
        }
        ask.share = share(limit, ask.partitions.len());
        ask
    }
}

/// So much that a page is filled by some partitions, not by all, and not by one while others have work.
fn share(limit: usize, partitions: usize) -> usize {
    limit.div_ceil(partitions.clamp(1, SPREAD))
}

impl<T: Clone> Ask<T> {
    /// Behind the rows that came, each given as its partition and its place, in the order of the partitions asked.
    pub(super) fn after(&self, rows: &[(i16, Place<T>)]) -> After<T> {
        let mut last: HashMap<i16, (usize, &Place<T>)> = HashMap::new();
        for (partition, place) in rows {
            let entry = last.entry(*partition).or_insert((0, place));
            *entry = (entry.0 + 1, place);
        }
        let filled_by = rows.last().filter(|_| rows.len() >= self.limit).map(|(partition, _)| *partition);
        let mut places = BTreeMap::new();
        let mut looked_into = true;
        for ((partition, due), id) in self.partitions.iter().zip(&self.due).zip(&self.ids) {
            let fills = filled_by == Some(*partition);
            let may_have_more = |count: usize| fills || count >= self.share;
            if !looked_into {
                places.insert(*partition, (*due, id.clone()));
            } else if let Some((count, place)) = last.get(partition)
                && may_have_more(*count)
            {
                places.insert(*partition, (*place).clone());
            }
            looked_into &= !fills;
        }
        After { places: Places(places), filled_by }
    }
}

/// Whose turn it is next: the partition behind the first, from `turn` on, that filled a page. If none did, all were
/// looked into, and the turn stays.
pub(super) fn earlier(turn: i16, one: Option<i16>, other: Option<i16>) -> i16 {
    let filled = one.into_iter().chain(other).min_by_key(|partition| (partition - turn).rem_euclid(PARTITIONS));
    filled.map_or(turn, |partition| (partition + 1).rem_euclid(PARTITIONS))
}

/// Partition and place of each row.
pub(super) fn places<'a, T: FromSql<'a>>(rows: &'a [Row], id: &str) -> Result<Vec<(i16, Place<T>)>, StoreError> {
    rows.iter().map(|row| Ok((row.try_get("partition_id")?, (row.try_get("due_at")?, row.try_get(id)?)))).collect()
}

#[cfg(test)]
mod tests;
