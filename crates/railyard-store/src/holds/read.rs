//! Groups, read: each answer is one snapshot and bounded in rows and in time.

use jiff::Timestamp;
use railyard_core::hold::HoldKind;
use railyard_core::{AttemptId, NodeId, OutboxId, ParticipantId, PartitionId, SequenceId};
use tokio_postgres::Row;
use uuid::Uuid;

use crate::connect::{Conn, Store};
use crate::error::StoreError;
use crate::row::{count, total, word};
use crate::transaction::{begin_read, end};

/// Most groups of one answer.
pub const LIST_MAX: u32 = 100;
/// Longest look at the groups, in milliseconds.
const STATEMENT_MS_MAX: u32 = 5000;

const HELD: &str = "
    SELECT DISTINCT participant_id FROM group_hold WHERE participant_id > $1 ORDER BY participant_id LIMIT $2";
const ALL: &str = "
    SELECT participant_id FROM ready_group WHERE participant_id > $1 ORDER BY participant_id LIMIT $2";
const DEEPEST: &str = "
    SELECT participant_id FROM payment_outbox_pending WHERE participant_id > $1
    GROUP BY participant_id ORDER BY count(*) DESC, participant_id LIMIT $2";
const OLDEST: &str = "
    SELECT participant_id FROM payment_outbox_pending WHERE participant_id > $1
    GROUP BY participant_id ORDER BY min(created_at), participant_id LIMIT $2";

const DESCRIBE: &str = "
    SELECT g.participant_id, partition_of(g.participant_id) AS partition_id, s.next_sequence_id, d.depth,
      h.outbox_id AS head_id, h.sequence_id AS head_sequence, h.rail_type, h.attempt_count, h.failures,
      nullif(h.next_attempt_at, 'infinity') AS next_attempt_at, h.created_at AS head_created_at,
      extract(epoch FROM clock_timestamp() - h.created_at)::double precision AS head_age_s,
      h.next_attempt_at > clock_timestamp() AS is_later,
      f.outbox_id AS out_id, f.attempt_id, f.attempt_no, f.sequence_id AS out_sequence, f.claimed_at, f.call_deadline,
      f.node_id AS out_node, l.owner, l.epoch, n.name AS owner_name
    FROM unnest($1::text[]) WITH ORDINALITY AS g(participant_id, place)
    CROSS JOIN LATERAL (SELECT count(*) AS depth FROM payment_outbox_pending p
                        WHERE p.participant_id = g.participant_id) d
    LEFT JOIN LATERAL (SELECT * FROM payment_outbox_pending p WHERE p.participant_id = g.participant_id
                       ORDER BY p.sequence_id LIMIT 1) h ON true
    LEFT JOIN in_flight f ON f.participant_id = g.participant_id
    LEFT JOIN participant_outbox_sequences s ON s.participant_id = g.participant_id
    LEFT JOIN partition_lease l ON l.partition_id = partition_of(g.participant_id)
    LEFT JOIN node n ON n.node_id = l.owner
    ORDER BY g.place";

const HOLDS: &str = "
    SELECT participant_id, kind, outbox_id, reason, actor, since FROM group_hold
    WHERE participant_id = ANY ($1) ORDER BY participant_id, kind";

/// Which groups, in which order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    /// Held ones, by name; goes on behind a name.
    Held,
    /// All with work, by name; goes on behind a name.
    All,
    /// Those with most waiting; the first page only.
    Deepest,
    /// Those whose head was accepted first; the first page only.
    Oldest,
}

impl View {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Held, Self::All, Self::Deepest, Self::Oldest];

    /// As the API says it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::All => "all",
            Self::Deepest => "deepest",
            Self::Oldest => "oldest",
        }
    }

    /// Whether it goes on behind a name.
    #[must_use]
    pub fn has_pages(self) -> bool {
        match self {
            Self::Held | Self::All => true,
            Self::Deepest | Self::Oldest => false,
        }
    }
}

/// What stands in a group's way, the gravest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GroupState {
    /// An operator stopped it.
    Paused,
    /// A message's outcome is unknown.
    InDoubt,
    /// A message ended without success.
    Blocked,
    /// Its head is out.
    InFlight,
    /// Its head is to be tried again later.
    Waiting,
    /// Its head is due.
    Ready,
    /// Nothing is there.
    Idle,
}

impl GroupState {
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::Paused, Self::InDoubt, Self::Blocked, Self::InFlight, Self::Waiting, Self::Ready, Self::Idle];

    /// As the API and the metrics say it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Paused => "paused",
            Self::InDoubt => "in_doubt",
            Self::Blocked => "blocked",
            Self::InFlight => "in_flight",
            Self::Waiting => "waiting",
            Self::Ready => "ready",
            Self::Idle => "idle",
        }
    }

    /// The state that a hold of this kind makes.
    #[must_use]
    pub fn of_hold(kind: HoldKind) -> Self {
        match kind {
            HoldKind::Paused => Self::Paused,
            HoldKind::InDoubt => Self::InDoubt,
            HoldKind::Blocked => Self::Blocked,
        }
    }
}

/// One reason to stand still.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// Which.
    pub kind: HoldKind,
    /// The message that caused it.
    pub outbox_id: Option<OutboxId>,
    /// Why.
    pub reason: String,
    /// Who, or which part.
    pub actor: String,
    /// Since when.
    pub since: Timestamp,
}

/// The message that is next.
#[derive(Clone, Debug, PartialEq)]
pub struct HeadRow {
    /// Its id.
    pub outbox_id: OutboxId,
    /// Its place.
    pub sequence_id: SequenceId,
    /// Its rail.
    pub rail_type: String,
    /// Attempts begun.
    pub attempt_count: u32,
    /// Budget spent.
    pub failures: u32,
    /// When it is tried next.
    pub next_attempt_at: Option<Timestamp>,
    /// When it was accepted.
    pub created_at: Timestamp,
    /// How long ago, in seconds.
    pub age_s: f64,
}

/// The message that is out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InFlightRow {
    /// Its id.
    pub outbox_id: OutboxId,
    /// Its place.
    pub sequence_id: SequenceId,
    /// This attempt.
    pub attempt_id: AttemptId,
    /// Counts begins.
    pub attempt_no: u32,
    /// When intent was committed.
    pub claimed_at: Timestamp,
    /// When its call is over at the latest.
    pub call_deadline: Timestamp,
    /// Who calls.
    pub node_id: NodeId,
}

/// A group as it stands.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupRow {
    /// Its name. For a single message in doubt, which has no group, that message's id.
    pub group: ParticipantId,
    /// It is such a single message.
    pub single: bool,
    /// Its partition.
    pub partition: PartitionId,
    /// Messages that wait; the one that is out not counted.
    pub depth: u64,
    /// What stands in its way.
    pub state: GroupState,
    /// Who is next.
    pub head: Option<HeadRow>,
    /// Who is out.
    pub in_flight: Option<InFlightRow>,
    /// All reasons to stand still.
    pub holds: Vec<Hold>,
    /// The number that the next message gets, if there ever was one.
    pub next_sequence: Option<SequenceId>,
    /// Which node owns its partition.
    pub owner: Option<NodeId>,
    /// That node's name.
    pub owner_name: Option<String>,
}

/// One group; none if nothing was ever heard of it.
///
/// # Errors
/// Errors of the database.
pub async fn get(store: &Store, group: &ParticipantId) -> Result<Option<GroupRow>, StoreError> {
    let conn = begin_read(store, STATEMENT_MS_MAX).await?;
    let result = describe(&conn, &[group.as_str().to_owned()]).await;
    let found = end(conn, result).await?.into_iter().next();
    Ok(found.filter(|row| row.next_sequence.is_some() || !row.holds.is_empty() || row.depth > 0))
}

/// At most `limit` (clamped to [`LIST_MAX`] and the one more that tells whether there is more) groups of a view. `after` is the last name of the page before, for the
/// views that go on.
///
/// # Errors
/// Errors of the database.
pub async fn list(
    store: &Store,
    view: View,
    after: Option<&ParticipantId>,
    limit: i64,
) -> Result<Vec<GroupRow>, StoreError> {
    let conn = begin_read(store, STATEMENT_MS_MAX).await?;
    let result = list_in(&conn, view, after, limit.clamp(1, i64::from(LIST_MAX) + 1)).await;
    end(conn, result).await
}

async fn list_in(
    conn: &Conn,
    view: View,
    after: Option<&ParticipantId>,
    limit: i64,
) -> Result<Vec<GroupRow>, StoreError> {
    let (sql, after) = match view {
        View::Held => (HELD, after),
        View::All => (ALL, after),
        View::Deepest => (DEEPEST, None),
        View::Oldest => (OLDEST, None),
    };
    let after = after.map_or("", ParticipantId::as_str);
    let rows = conn.query(sql, &[&after, &limit]).await?;
    let names = rows.iter().map(|row| row.try_get(0)).collect::<Result<Vec<String>, _>>()?;
    describe(conn, &names).await
}

async fn describe(conn: &Conn, names: &[String]) -> Result<Vec<GroupRow>, StoreError> {
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let rows = conn.query(DESCRIBE, &[&names]).await?;
    let holds = conn.query(HOLDS, &[&names]).await?;
    let mut groups = rows.iter().map(group).collect::<Result<Vec<_>, _>>()?;
    for row in &holds {
        let name: &str = row.try_get("participant_id")?;
        if let Some(group) = groups.iter_mut().find(|group| group.group.as_str() == name) {
            group.holds.push(hold(row)?);
        }
    }
    for group in &mut groups {
        let named = |hold: &Hold| hold.outbox_id.is_some_and(|id| id.to_string() == group.group.as_str());
        group.single = group.next_sequence.is_none() && group.holds.iter().any(named);
        let gravest = [HoldKind::Paused, HoldKind::InDoubt, HoldKind::Blocked];
        if let Some(kind) = gravest.into_iter().find(|kind| group.holds.iter().any(|hold| hold.kind == *kind)) {
            group.state = GroupState::of_hold(kind);
        }
    }
    Ok(groups)
}

/// A group without its holds.
fn group(row: &Row) -> Result<GroupRow, StoreError> {
    let partition: i16 = row.try_get("partition_id")?;
    let partition = u8::try_from(partition)
        .map_err(|_| StoreError::Unreadable { detail: format!("partition_id is {partition}") })?;
    let head = head(row)?;
    let in_flight = in_flight(row)?;
    let later = row.try_get::<_, Option<bool>>("is_later")?;
    let state = match (&in_flight, later) {
        (Some(_), _) => GroupState::InFlight,
        (None, Some(true)) => GroupState::Waiting,
        (None, Some(false)) => GroupState::Ready,
        (None, None) => GroupState::Idle,
    };
    Ok(GroupRow {
        group: ParticipantId::new(row.try_get::<_, String>("participant_id")?),
        single: false,
        partition: PartitionId(partition),
        depth: total(row, "depth")?,
        state,
        head,
        in_flight,
        holds: Vec::new(),
        next_sequence: row.try_get::<_, Option<i64>>("next_sequence_id")?.map(SequenceId),
        owner: row.try_get::<_, Option<Uuid>>("owner")?.map(NodeId),
        owner_name: row.try_get("owner_name")?,
    })
}

fn head(row: &Row) -> Result<Option<HeadRow>, StoreError> {
    let Some(outbox_id) = row.try_get::<_, Option<Uuid>>("head_id")? else { return Ok(None) };
    Ok(Some(HeadRow {
        outbox_id: OutboxId(outbox_id),
        sequence_id: SequenceId(row.try_get("head_sequence")?),
        rail_type: row.try_get("rail_type")?,
        attempt_count: count(row, "attempt_count")?,
        failures: count(row, "failures")?,
        next_attempt_at: row.try_get("next_attempt_at")?,
        created_at: row.try_get("head_created_at")?,
        age_s: row.try_get("head_age_s")?,
    }))
}

fn in_flight(row: &Row) -> Result<Option<InFlightRow>, StoreError> {
    let Some(outbox_id) = row.try_get::<_, Option<Uuid>>("out_id")? else { return Ok(None) };
    Ok(Some(InFlightRow {
        outbox_id: OutboxId(outbox_id),
        sequence_id: SequenceId(row.try_get("out_sequence")?),
        attempt_id: AttemptId(row.try_get("attempt_id")?),
        attempt_no: count(row, "attempt_no")?,
        claimed_at: row.try_get("claimed_at")?,
        call_deadline: row.try_get("call_deadline")?,
        node_id: NodeId(row.try_get("out_node")?),
    }))
}

fn hold(row: &Row) -> Result<Hold, StoreError> {
    Ok(Hold {
        kind: word(row, "kind", HoldKind::parse)?,
        outbox_id: row.try_get::<_, Option<Uuid>>("outbox_id")?.map(OutboxId),
        reason: row.try_get("reason")?,
        actor: row.try_get("actor")?,
        since: row.try_get("since")?,
    })
}
