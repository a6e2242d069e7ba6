//! Statement 3: where is something due? Every answer is a hint; begin is the truth.

use jiff::Timestamp;
use railyard_core::{Epoch, Lane, OutboxId, ParticipantId, PartitionId, SequenceId};
use std::collections::{BTreeMap, HashMap};
use tokio_postgres::Row;
use tokio_postgres::types::FromSql;
use uuid::Uuid;

use crate::connect::Store;
use crate::error::StoreError;

/// Groups that are due, of the owned partitions, oldest first, each partition from behind its place on. Holds are not
/// looked at: a held group's hint stands at infinity. `statement_timestamp()`, since a bare `clock_timestamp()` is no
/// index condition.
pub(crate) const DISCOVER_GROUPS: &str = "
SELECT r.participant_id, p.partition_id, r.due_at
FROM unnest($1::smallint[], $2::timestamptz[], $3::text[]) AS p(partition_id, due_at, participant_id)
CROSS JOIN LATERAL (
  SELECT g.participant_id, g.due_at FROM ready_group g
  WHERE g.partition_id = p.partition_id AND g.due_at <= statement_timestamp()
    AND (g.due_at, g.participant_id) > (p.due_at, p.participant_id)
    AND g.participant_id NOT IN (SELECT unnest($4::text[]))
    AND NOT EXISTS (SELECT 1 FROM in_flight f WHERE f.participant_id = g.participant_id OFFSET 0)
  ORDER BY g.due_at, g.participant_id LIMIT $5) r
ORDER BY r.due_at, r.participant_id";

/// The same for messages without order.
pub(crate) const DISCOVER_SINGLES: &str = "
SELECT r.outbox_id, p.partition_id, r.next_attempt_at AS due_at, r.endpoint, r.rail_type
FROM unnest($1::smallint[], $2::timestamptz[], $3::uuid[]) AS p(partition_id, due_at, outbox_id)
CROSS JOIN LATERAL (
  SELECT q.outbox_id, q.next_attempt_at, q.endpoint, q.rail_type FROM payment_outbox_pending q
  WHERE q.participant_id IS NULL AND q.partition_id = p.partition_id AND q.next_attempt_at <= statement_timestamp()
    AND (q.next_attempt_at, q.outbox_id) > (p.due_at, p.outbox_id)
    AND q.outbox_id NOT IN (SELECT unnest($4::uuid[]))
  ORDER BY q.next_attempt_at, q.outbox_id LIMIT $5) r
ORDER BY r.next_attempt_at, r.outbox_id";

/// Where each group's head goes, from its probe on.
pub(crate) const PEEK: &str = "
SELECT g.participant_id, p.endpoint, p.rail_type
FROM unnest($1::text[], $2::bigint[]) AS g(participant_id, probe)
CROSS JOIN LATERAL (
  SELECT q.endpoint, q.rail_type FROM payment_outbox_pending q
  WHERE q.participant_id = g.participant_id AND q.sequence_id >= g.probe ORDER BY q.sequence_id LIMIT 1) p";

/// Where a lane's first message goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// Its endpoint, at which a place is needed.
    pub endpoint: String,
    /// Its rail, which may have a bound of its own.
    pub rail_type: String,
}

/// A lane that may have something due.
#[derive(Clone, Debug)]
pub struct Hint {
    /// Whose.
    pub lane: Lane,
    /// Its partition.
    pub partition: PartitionId,
    /// The epoch under which this node owns the partition.
    pub epoch: Epoch,
    /// Where its head goes; none if the group has nothing pending (its hint is to be tidied away).
    pub head: Option<Head>,
    /// Since when it is due.
    pub due_at: Timestamp,
    /// Where begin starts to look.
    pub probe: SequenceId,
}

/// What to look for.
pub struct Search<'a> {
    /// Owned partitions and their epochs.
    pub partitions: &'a [(PartitionId, Epoch)],
    /// Lanes that this node has in memory with work: left out.
    pub busy: &'a [Lane],
    /// Where a known group's unsettled messages begin (its last settled number + 1), if this epoch settled one.
    pub probe: &'a (dyn Fn(&ParticipantId, Epoch) -> Option<SequenceId> + Sync),
    /// Where to begin; from the front if not given.
    pub behind: Option<&'a Cursor>,
    /// About how many hints.
    pub limit: usize,
}

/// One page of hints.
#[derive(Debug, Default)]
pub struct Found {
    /// Oldest first.
    pub hints: Vec<Hint>,
    /// Where the next page begins; none if this one reached the end.
    pub next_page: Option<Cursor>,
}

/// A place behind a page, in each partition that may have more; the others have been seen to their end.
#[derive(Clone, Debug, Default)]
pub struct Cursor {
    groups: BTreeMap<i16, (Timestamp, String)>,
    singles: BTreeMap<i16, (Timestamp, Uuid)>,
}

impl Cursor {
    /// Before everything.
    fn front(partitions: impl Iterator<Item = i16> + Clone) -> Self {
        let start = Timestamp::UNIX_EPOCH;
        Self {
            groups: partitions.clone().map(|partition| (partition, (start, String::new()))).collect(),
            singles: partitions.map(|partition| (partition, (start, Uuid::nil()))).collect(),
        }
    }

    fn is_empty(&self) -> bool {
        self.groups.is_empty() && self.singles.is_empty()
    }
}

/// What each of so many partitions gives to a page: its part, so that a page costs about `limit` however many there are.
/// The next page asks only those that gave all of it.
fn share(limit: usize, partitions: usize) -> usize {
    limit.div_ceil(partitions.max(1))
}

/// The last row of each partition that gave its full share: it may have more behind that. Rows are in order.
fn ends<'a, T: FromSql<'a>>(
    rows: &'a [Row],
    id: &str,
    share: usize,
) -> Result<BTreeMap<i16, (Timestamp, T)>, StoreError> {
    let mut last: BTreeMap<i16, (usize, &Row)> = BTreeMap::new();
    for row in rows {
        let entry = last.entry(row.try_get("partition_id")?).or_insert((0, row));
        *entry = (entry.0 + 1, row);
    }
    let full = last.into_iter().filter(|(_, (count, _))| *count >= share);
    full.map(|(partition, (_, row))| Ok((partition, (row.try_get("due_at")?, row.try_get(id)?)))).collect()
}

/// Partitions, and where to begin in each: as columns.
fn columns<T: Clone>(
    places: &BTreeMap<i16, (Timestamp, T)>,
    owned: &HashMap<i16, Epoch>,
) -> (Vec<i16>, Vec<Timestamp>, Vec<T>) {
    let owned = places.iter().filter(|(partition, _)| owned.contains_key(partition));
    let mut columns = (Vec::new(), Vec::new(), Vec::new());
    for (partition, (due, id)) in owned {
        columns.0.push(*partition);
        columns.1.push(*due);
        columns.2.push(id.clone());
    }
    columns
}

impl Store {
    /// Looks once over all owned partitions, or those of the cursor.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn discover(&self, search: &Search<'_>) -> Result<Found, StoreError> {
        if search.partitions.is_empty() || search.limit == 0 {
            return Ok(Found::default());
        }
        let epochs: HashMap<i16, Epoch> =
            search.partitions.iter().map(|(partition, epoch)| (i16::from(partition.0), *epoch)).collect();
        let mut groups = Vec::new();
        let mut singles = Vec::new();
        for lane in search.busy {
            match lane {
                Lane::Group(group) => groups.push(group.as_str()),
                Lane::Single(id) => singles.push(id.0),
            }
        }
        let front = Cursor::front(epochs.keys().copied());
        let begin = search.behind.unwrap_or(&front);

        let conn = self.work().await?;
        let group_share = share(search.limit, begin.groups.len());
        let (partitions, due, ids) = columns(&begin.groups, &epochs);
        let statement = conn.prepare_cached(DISCOVER_GROUPS).await?;
        let grouped = conn.query(&statement, &[&partitions, &due, &ids, &groups, &to_sql(group_share)]).await?;
        let single_share = share(search.limit, begin.singles.len());
        let (partitions, due, ids) = columns(&begin.singles, &epochs);
        let statement = conn.prepare_cached(DISCOVER_SINGLES).await?;
        let single = conn.query(&statement, &[&partitions, &due, &ids, &singles, &to_sql(single_share)]).await?;

        let behind = Cursor {
            groups: ends(&grouped, "participant_id", group_share)?,
            singles: ends(&single, "outbox_id", single_share)?,
        };
        let mut found = Found { hints: Vec::new(), next_page: (!behind.is_empty()).then_some(behind) };
        let mut names: Vec<String> = Vec::with_capacity(grouped.len());
        let mut probes: Vec<i64> = Vec::with_capacity(grouped.len());
        for row in &grouped {
            let name: String = row.try_get("participant_id")?;
            let group = ParticipantId::new(name.as_str());
            let epoch = epochs.get(&row.try_get("partition_id")?).copied();
            let probe = epoch.and_then(|epoch| (search.probe)(&group, epoch)).unwrap_or(SequenceId(0));
            names.push(name);
            probes.push(probe.0);
            found.hints.push(hint(row, &epochs, Lane::Group(group), None, probe)?);
        }
        if !names.is_empty() {
            let statement = conn.prepare_cached(PEEK).await?;
            let mut heads: HashMap<String, Head> = HashMap::with_capacity(names.len());
            for row in conn.query(&statement, &[&names, &probes]).await? {
                heads.insert(row.try_get("participant_id")?, head(&row)?);
            }
            for (hint, name) in found.hints.iter_mut().zip(&names) {
                hint.head = heads.remove(name);
            }
        }
        for row in &single {
            let lane = Lane::Single(OutboxId(row.try_get("outbox_id")?));
            found.hints.push(hint(row, &epochs, lane, Some(head(row)?), SequenceId(0))?);
        }
        found.hints.sort_by_key(|hint| hint.due_at);
        conn.ok();
        crate::failpoint::reached("discovered");
        Ok(found)
    }
}

fn to_sql(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

fn head(row: &Row) -> Result<Head, StoreError> {
    Ok(Head { endpoint: row.try_get("endpoint")?, rail_type: row.try_get("rail_type")? })
}

fn hint(
    row: &Row,
    epochs: &HashMap<i16, Epoch>,
    lane: Lane,
    head: Option<Head>,
    probe: SequenceId,
) -> Result<Hint, StoreError> {
    let partition: i16 = row.try_get("partition_id")?;
    let unreadable = || StoreError::Unreadable { detail: format!("partition_id is {partition}") };
    Ok(Hint {
        lane,
        partition: PartitionId(u8::try_from(partition).map_err(|_| unreadable())?),
        epoch: epochs.get(&partition).copied().ok_or_else(unreadable)?,
        head,
        due_at: row.try_get("due_at")?,
        probe,
    })
}
