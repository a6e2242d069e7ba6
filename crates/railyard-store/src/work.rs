//! Begin and settle (statements 4 and 6): the transaction that everything turns on.
//!
//! One [`Batch`] is one transaction: outcomes are written first, then messages are begun, so a group's next message
//! can begin together with the end of the one before it. All of it is one call of the function `work_batch`
//! (migrations/V6): it takes the fence, writes, and claims.
//!
//! The whole transaction is sent at once, COMMIT included: it takes one round trip, and a process that dies or stands
//! still never leaves one open. So nothing in it may depend on what the client makes of an answer: without the fence
//! nothing is claimed, while outcomes are written all the same.
//!
//! What a caller must do when the answer is lost:
//! - settle: send the same batch again; the attempt ids make it idempotent;
//! - begin: ask [`Store::resolve_until`] which of the attempts were committed, and start none before it has answered.

use std::collections::HashMap;
use std::time::Duration;

use futures_util::future::{join, join3};
use railyard_core::{AttemptId, Epoch, Lane, Message, NodeId, PartitionId, SequenceId, Settlement};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use crate::connect::{Conn, Store};
use crate::discover::Head;
use crate::error::StoreError;

mod claim;
mod content;
mod outcome;
mod resolve;

#[cfg(test)]
pub(crate) use content::CONTENT;
pub(crate) use content::RECENT_CONTENT;
pub use outcome::{Late, Settled};

/// One lane that may begin its head.
#[derive(Clone, Debug)]
pub struct BeginRequest {
    /// Chosen by the node before it asks, so that it can recognise its own attempt afterwards.
    pub attempt_id: AttemptId,
    /// Whose head.
    pub lane: Lane,
    /// The lane's partition.
    pub partition: PartitionId,
    /// The epoch under which this node owns it.
    pub epoch: Epoch,
    /// Where a place is held: a head that goes elsewhere is not begun.
    pub head: Head,
    /// Where to start looking: one after the last settled sequence number, or 0.
    pub probe: SequenceId,
}

/// An outcome and when it was known.
#[derive(Clone, Debug)]
pub struct Ended {
    /// What to write.
    pub settlement: Settlement,
    /// On [`crate::clock::boottime`].
    pub ended_at: Duration,
}

/// One transaction's worth of work.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// Outcomes; written whoever owns the partition now.
    pub settle: Vec<Ended>,
    /// Lanes to begin; only under a good lease.
    pub begin: Vec<BeginRequest>,
    /// Slack added to a call's timeout to give its `call_deadline`.
    pub slack: Duration,
}

/// What became of a batch.
#[derive(Debug, Default)]
pub struct Done {
    /// One entry per outcome given.
    pub settled: HashMap<AttemptId, Settled>,
    /// One entry per lane that was begun; the others had nothing to begin.
    pub begun: HashMap<AttemptId, Message>,
    /// Begun, but their content cannot be read, for these reasons: not to be called.
    pub unreadable: HashMap<AttemptId, String>,
    /// The lease was not good: nothing was begun.
    pub fenced: bool,
}

/// A batch that did not get through.
#[derive(Debug)]
pub struct Failed {
    /// Why.
    pub error: StoreError,
    /// The transaction's id, if the claim's answer came: needed to wait until it is over.
    pub transaction: Option<String>,
    /// Whether it may have been committed, or be committed yet.
    pub in_doubt: bool,
}

impl From<StoreError> for Failed {
    fn from(error: StoreError) -> Self {
        Self { error, transaction: None, in_doubt: false }
    }
}

impl Failed {
    /// Of a transaction that was sent whole. What the server refused, it has rolled back; without its answer, nobody
    /// knows.
    fn sent(error: tokio_postgres::Error, transaction: Option<String>) -> Self {
        let error = StoreError::from(error);
        let in_doubt = matches!(error, StoreError::Unavailable { .. });
        Self { error, transaction, in_doubt }
    }
}

impl Store {
    /// Runs one batch as one transaction.
    ///
    /// # Errors
    /// [`Failed`]: if it is in doubt, what happened is unknown until [`Store::resolve_until`] or a repeat has told.
    pub async fn run(&self, node: NodeId, batch: &Batch) -> Result<Done, Failed> {
        let conn = self.work().await?;
        let done = match batch.begin.is_empty() {
            true => settle_only(&conn, batch).await?,
            false => settle_and_begin(&conn, node, batch).await?,
        };
        conn.ok();
        Ok(done)
    }
}

impl Store {
    /// Writes outcomes alone: needs no lease.
    ///
    /// # Errors
    /// [`Failed`]: send the same batch again.
    pub async fn settle(&self, batch: &Batch) -> Result<Done, Failed> {
        let conn = self.work().await?;
        let done = settle_only(&conn, batch).await?;
        conn.ok();
        Ok(done)
    }

    /// An outcome that the database refuses by itself, or a begun message that cannot be read: its lane is held in doubt,
    /// its in-flight row stays as it is.
    ///
    /// # Errors
    /// [`StoreError`]; nothing was held.
    pub async fn quarantine(&self, attempt: AttemptId, reason: &str) -> Result<(), StoreError> {
        let conn = self.work().await?;
        let reason = railyard_core::text::clean_str(reason, 1000);
        conn.execute(QUARANTINE, &[&attempt.0, &reason]).await?;
        conn.ok();
        Ok(())
    }
}

const QUARANTINE: &str = "
WITH held AS (
  INSERT INTO group_hold (participant_id, kind, outbox_id, reason, actor)
  SELECT coalesce(participant_id, outbox_id::text), 'in_doubt', outbox_id, $2, 'settle' FROM in_flight WHERE attempt_id = $1
  ON CONFLICT DO NOTHING RETURNING participant_id
)
UPDATE ready_group SET due_at = 'infinity' WHERE participant_id IN (SELECT participant_id FROM held)";

/// One function (migrations/V6), called under names that say what for: in `pg_stat_activity`, and to tests that cut a
/// connection around one of them.
macro_rules! work {
    ($what:literal) => {
        concat!(
            "SELECT /* ",
            $what,
            " */ * FROM work_batch($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, ",
            "$20, $21, $22, $23, $24, $25)"
        )
    };
}
pub(crate) const BEGIN: &str = work!("begin");
pub(crate) const SETTLE: &str = work!("settle");
pub(crate) const SETTLE_AND_BEGIN: &str = work!("settle and begin");

/// A batch as the function takes it.
struct Params {
    node: Uuid,
    slack_ms: i64,
    begins: claim::Params,
    outcomes: outcome::Params,
}

impl Params {
    fn of(node: NodeId, settle: &[Ended], begin: &[BeginRequest], slack: Duration) -> Self {
        Self {
            node: node.0,
            slack_ms: i64::try_from(slack.as_millis()).unwrap_or(i64::MAX),
            begins: claim::Params::of(begin),
            outcomes: outcome::Params::of(settle),
        }
    }

    fn as_sql(&self) -> Vec<&(dyn ToSql + Sync)> {
        let own: [&(dyn ToSql + Sync); 2] = [&self.node, &self.slack_ms];
        own.into_iter().chain(self.begins.as_sql()).chain(self.outcomes.as_sql()).collect()
    }
}

/// An answer's rows by their kind.
#[derive(Default)]
struct Answer<'a> {
    settled: Vec<&'a Row>,
    begun: Vec<&'a Row>,
    fenced: bool,
}

impl<'a> Answer<'a> {
    fn of(rows: &'a [Row]) -> Result<Self, StoreError> {
        let mut answer = Self::default();
        for row in rows {
            match row.try_get("kind")? {
                "settled" => answer.settled.push(row),
                "begun" => answer.begun.push(row),
                "fenced" => answer.fenced = true,
                kind => return Err(StoreError::Unreadable { detail: format!("kind is {kind:?}") }),
            }
        }
        Ok(answer)
    }
}

/// Nobody's transaction but its own: it is one statement, and idempotent.
async fn settle_only(conn: &Conn, batch: &Batch) -> Result<Done, Failed> {
    let mut done = Done::default();
    if batch.settle.is_empty() {
        return Ok(done);
    }
    let statement = conn.prepare_cached(SETTLE).await.map_err(StoreError::from)?;
    let params = Params::of(NodeId(Uuid::nil()), &batch.settle, &[], batch.slack);
    crate::failpoint::reached("settle_before_sent");
    let rows = conn.query(&statement, &params.as_sql()).await.map_err(|error| Failed::sent(error, None))?;
    crate::failpoint::reached("settle_after_commit");
    done.settled = outcome::read(Answer::of(&rows)?.settled)?;
    outcome::write_late(conn, &batch.settle, &mut done.settled).await?;
    Ok(done)
}

async fn settle_and_begin(conn: &Conn, node: NodeId, batch: &Batch) -> Result<Done, Failed> {
    let sql = if batch.settle.is_empty() { BEGIN } else { SETTLE_AND_BEGIN };
    let statement = conn.prepare_cached(sql).await.map_err(StoreError::from)?;
    let content = conn.prepare_cached(RECENT_CONTENT).await.map_err(StoreError::from)?;
    let attempts: Vec<Uuid> = batch.begin.iter().map(|request| request.attempt_id.0).collect();
    let (since, until) = batch.begin.first().map(|request| content::recent(request.attempt_id)).unwrap_or_default();
    let params = Params::of(node, &batch.settle, &batch.begin, batch.slack);
    let params = params.as_sql();
    crate::failpoint::reached("begin_before_sent");
    if !batch.settle.is_empty() {
        crate::failpoint::reached("settle_before_sent");
    }
    // The answer comes before the commit, and with it the number by which a lost commit is waited for.
    let (begun, rows, (committed, contents)) = join3(
        conn.batch_execute("BEGIN"),
        conn.query(&statement, &params),
        // Content is immutable: read after the commit, outside any transaction.
        join(conn.batch_execute("COMMIT"), conn.query(&content, &[&attempts, &since, &until])),
    )
    .await;
    let transaction = rows
        .as_ref()
        .ok()
        .and_then(|rows| rows.iter().find_map(|row| row.try_get::<_, Option<String>>("transaction").ok().flatten()));
    let sent = |error| Failed::sent(error, transaction.clone());
    begun.map_err(sent)?;
    let rows = rows.map_err(sent)?;
    committed.map_err(sent)?;
    crate::failpoint::reached("begin_after_commit");
    if !batch.settle.is_empty() {
        crate::failpoint::reached("settle_after_commit");
    }
    // What follows comes after the commit: should it fail, what was begun stands in the database and is looked up.
    let after = async {
        let answer = Answer::of(&rows)?;
        let mut done = Done { settled: outcome::read(answer.settled)?, fenced: answer.fenced, ..Done::default() };
        outcome::write_late(conn, &batch.settle, &mut done.settled).await?;
        let claims = claim::read(answer.begun, &mut done)?;
        content::load(conn, claims, contents?, &mut done).await?;
        Ok(done)
    };
    after.await.map_err(|error: StoreError| Failed { error, transaction, in_doubt: true })
}
