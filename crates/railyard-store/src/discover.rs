//! Statement 3: where is something due? Every answer is a hint; begin is the truth.

use jiff::Timestamp;
use railyard_core::{Epoch, Lane, OutboxId, ParticipantId, PartitionId, SequenceId};
use std::collections::HashMap;
use tokio_postgres::Row;

use crate::connect::Store;
use crate::error::StoreError;

mod cursor;

pub use cursor::Cursor;

/// Groups that are due, partition by partition as they are named, each oldest first from behind its place on, until the
/// page is full: partitions that are not reached cost nothing. Holds are not
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
LIMIT $6";

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
LIMIT $6";

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
    /// With which partition to begin, before it goes round.
    pub turn: PartitionId,
    /// How many groups at most, and how many messages without one.
    pub limit: usize,
}

/// One page of hints.
#[derive(Debug)]
pub struct Found {
    /// Oldest first.
    pub hints: Vec<Hint>,
    /// Where the next page begins; none if this one reached the end.
    pub next_page: Option<Cursor>,
    /// Whose turn it is then, or at the next look.
    pub turn: PartitionId,
}

impl Store {
    /// Looks once over all owned partitions, or those of the cursor.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn discover(&self, search: &Search<'_>) -> Result<Found, StoreError> {
        if search.partitions.is_empty() || search.limit == 0 {
            return Ok(Found { hints: Vec::new(), next_page: None, turn: search.turn });
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

        let turn = i16::from(search.turn.0);
        let conn = self.work().await?;
        let ask = begin.groups.ask(&epochs, turn, search.limit);
        let statement = conn.prepare_cached(DISCOVER_GROUPS).await?;
        let (share, limit) = (to_sql(ask.share), to_sql(ask.limit));
        let grouped = conn.query(&statement, &[&ask.partitions, &ask.due, &ask.ids, &groups, &share, &limit]).await?;
        let behind_groups = ask.after(&cursor::places(&grouped, "participant_id")?);
        let ask = begin.singles.ask(&epochs, turn, search.limit);
        let statement = conn.prepare_cached(DISCOVER_SINGLES).await?;
        let (share, limit) = (to_sql(ask.share), to_sql(ask.limit));
        let single = conn.query(&statement, &[&ask.partitions, &ask.due, &ask.ids, &singles, &share, &limit]).await?;
        let behind_singles = ask.after(&cursor::places(&single, "outbox_id")?);

        let next = cursor::earlier(turn, behind_groups.filled_by, behind_singles.filled_by);
        let behind = Cursor { groups: behind_groups.places, singles: behind_singles.places };
        let mut found = Found {
            hints: Vec::with_capacity(grouped.len() + single.len()),
            next_page: (!behind.is_empty()).then_some(behind),
            turn: PartitionId(u8::try_from(next).unwrap_or_default()),
        };
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
