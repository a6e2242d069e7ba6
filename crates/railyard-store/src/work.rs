//! Begin and settle (statements 4 and 6): the transaction that everything turns on.
//!
//! One [`Batch`] is one transaction: outcomes are written first, then messages are begun, so a group's next message
//! can begin together with the end of the one before it. The fence and the claim are two statements: the claim needs
//! a snapshot that is younger than the moment the fence was taken.
//!
//! What a caller must do when the answer is lost:
//! - settle: send the same batch again; the attempt ids make it idempotent;
//! - begin: ask [`Store::resolve_until`] which of the attempts were committed, and start none before it has answered.

use std::collections::HashMap;
use std::time::Duration;

use futures_util::future::{try_join, try_join3};
use railyard_core::{AttemptId, Epoch, Lane, Message, NodeId, PartitionId, SequenceId, Settlement};
use tokio_postgres::Row;

use crate::connect::{Conn, Store};
use crate::discover::Head;
use crate::error::StoreError;
use crate::lease::FENCE;

mod claim;
mod content;
mod outcome;
mod resolve;

pub(crate) use claim::CLAIM;
#[cfg(test)]
pub(crate) use content::CONTENT;
pub(crate) use outcome::SETTLE;
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
    /// The transaction's id, if the claim ran: needed to wait until it is over.
    pub transaction: Option<String>,
    /// Whether COMMIT was sent: only then can it have happened.
    pub commit_sent: bool,
}

impl From<StoreError> for Failed {
    fn from(error: StoreError) -> Self {
        Self { error, transaction: None, commit_sent: false }
    }
}

impl From<tokio_postgres::Error> for Failed {
    fn from(error: tokio_postgres::Error) -> Self {
        StoreError::from(error).into()
    }
}

impl Store {
    /// Runs one batch as one transaction.
    ///
    /// # Errors
    /// [`Failed`]: with `commit_sent`, what happened is unknown until [`Store::resolve_until`] or a repeat has told.
    pub async fn run(&self, node: NodeId, batch: &Batch) -> Result<Done, Failed> {
        let conn = self.work().await?;
        let done = if batch.begin.is_empty() {
            settle_only(&conn, batch).await?
        } else {
            crate::failpoint::reached("begin_before_fence");
            match settle_and_begin(&conn, node, batch).await? {
                Some(done) => done,
                None => {
                    // The lease is gone: the outcomes are true all the same.
                    conn.batch_execute("ROLLBACK").await?;
                    let mut done = settle_only(&conn, batch).await?;
                    done.fenced = true;
                    done
                }
            }
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

async fn settle_only(conn: &Conn, batch: &Batch) -> Result<Done, Failed> {
    let mut done = Done::default();
    if batch.settle.is_empty() {
        return Ok(done);
    }
    let statement = conn.prepare_cached(SETTLE).await?;
    let params = outcome::Params::of(&batch.settle);
    let (_, rows) = try_join(conn.batch_execute("BEGIN"), conn.query(&statement, &params.as_sql())).await?;
    done.settled = outcome::read(conn, &batch.settle, &rows).await?;
    crate::failpoint::reached("settle_before_commit");
    commit(conn, None).await?;
    crate::failpoint::reached("settle_after_commit");
    Ok(done)
}

/// `None` if the fence refused: the transaction is still open and has to be rolled back.
async fn settle_and_begin(conn: &Conn, node: NodeId, batch: &Batch) -> Result<Option<Done>, Failed> {
    let fence = conn.prepare_cached(FENCE).await?;
    let claim = conn.prepare_cached(CLAIM).await?;
    let params = claim::Params::of(node, batch);
    let mut done = Done::default();

    let (fenced, settled_rows, claimed): (Vec<Row>, Vec<Row>, Vec<Row>) = if batch.settle.is_empty() {
        let ((), fenced, claimed) = try_join3(
            conn.batch_execute("BEGIN"),
            conn.query(&fence, &[&node.0]),
            conn.query(&claim, &params.as_sql()),
        )
        .await?;
        (fenced, Vec::new(), claimed)
    } else {
        let settle = conn.prepare_cached(SETTLE).await?;
        let outcomes = outcome::Params::of(&batch.settle);
        let outcomes = outcomes.as_sql();
        let ((), fenced, (settled, claimed)) = try_join3(
            conn.batch_execute("BEGIN"),
            conn.query(&fence, &[&node.0]),
            try_join(conn.query(&settle, &outcomes), conn.query(&claim, &params.as_sql())),
        )
        .await?;
        (fenced, settled, claimed)
    };
    if fenced.is_empty() {
        return Ok(None);
    }
    done.settled = outcome::read(conn, &batch.settle, &settled_rows).await?;
    if !batch.settle.is_empty() {
        crate::failpoint::reached("settle_before_commit");
    }
    if claimed.is_empty() {
        commit(conn, None).await?;
        return Ok(Some(done));
    }
    crate::failpoint::reached("begin_before_commit");
    let transaction: String = claimed[0].try_get("transaction").map_err(StoreError::from)?;
    let claims = claim::read(&claimed)?;
    commit(conn, Some(&transaction)).await?;
    crate::failpoint::reached("begin_after_commit");
    if !batch.settle.is_empty() {
        crate::failpoint::reached("settle_after_commit");
    }
    // Content is immutable: read after the commit, outside any transaction.
    let loaded = content::load(conn, claims, &mut done).await;
    loaded.map_err(|error| Failed { error, transaction: Some(transaction), commit_sent: true })?;
    Ok(Some(done))
}

async fn commit(conn: &Conn, transaction: Option<&str>) -> Result<(), Failed> {
    conn.batch_execute("COMMIT").await.map_err(|error| Failed {
        error: StoreError::from(error),
        transaction: transaction.map(str::to_owned),
        commit_sent: true,
    })
}
