//! The ceiling of SQL: the node's own transactions as full as they can be, and no calls between them.
//!
//! As the Settler does, two tasks run one transaction each at a time, and each transaction settles a hundred messages
//! and begins a hundred others, whose content it then reads. Looking for work is not counted.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use jiff::Timestamp;
use railyard_core::backoff::Backoff;
use railyard_core::outcome::Answer;
use railyard_core::settlement::settle;
use railyard_core::{AttemptId, CallOutcome, Epoch, Message, NodeId, PartitionId, SequenceId};
use railyard_store::clock::boottime;
use railyard_store::connect::Dedicated;
use railyard_store::discover::{Cursor, Head, Hint, Search};
use railyard_store::work::{Batch, BeginRequest, Ended};
use railyard_store::{Store, lease, ownership};
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::options::Size;
use crate::statistics::ratio;

/// As the Settler: transactions at once, and items in one.
const LANES: usize = 2;
const BATCH: usize = 100;
/// Longer than any round.
const LEASE: Duration = Duration::from_secs(3600);
const SLACK: Duration = Duration::from_secs(5);

/// A member of the cluster that calls nobody.
pub(crate) struct Member {
    pub(crate) node: NodeId,
    pub(crate) partitions: Vec<(PartitionId, Epoch)>,
    connection: Dedicated,
}

impl Member {
    /// Joins, and owns every partition.
    pub(crate) async fn join(store: &Store) -> anyhow::Result<Self> {
        let mut connection = store.dedicated("railyard bench").await?;
        let node = NodeId(Uuid::new_v4());
        lease::join(&connection.client, node, "bench", LEASE).await?;
        let all: Vec<PartitionId> = (0..=u8::MAX).map(PartitionId).collect();
        ownership::take_free(&mut connection.client, node, &all).await?;
        let partitions = ownership::owned(&connection.client, node).await?;
        anyhow::ensure!(partitions.len() == all.len(), "another node owns partitions of this database");
        Ok(Self { node, partitions, connection })
    }

    /// Gives everything back.
    pub(crate) async fn leave(mut self) -> anyhow::Result<()> {
        Ok(lease::leave(&mut self.connection.client, self.node).await?)
    }

    /// Looks page by page until it has found `limit` groups or all that are due: requests for their heads.
    pub(crate) async fn hints(&self, store: &Store, limit: usize) -> anyhow::Result<Vec<BeginRequest>> {
        let (mut hints, mut place, mut turn): (Vec<Hint>, Option<Cursor>, _) = (Vec::new(), None, PartitionId(0));
        while hints.len() < limit {
            let behind = place.as_ref();
            let search = Search { partitions: &self.partitions, busy: &[], probe: &|_, _| None, behind, turn, limit };
            let found = store.discover(&search).await?;
            hints.extend(found.hints);
            (place, turn) = (found.next_page, found.turn);
            if place.is_none() {
                break;
            }
        }
        let to_begin = |hint: Hint| Some(request(hint.lane, hint.partition, hint.epoch, hint.head?, hint.probe));
        Ok(hints.into_iter().filter_map(to_begin).collect())
    }
}

/// Messages per second of everything that is loaded: `size`, in groups that hold nothing else.
pub(crate) async fn per_second(store: &Store, size: Size, now: Timestamp) -> anyhow::Result<f64> {
    let member = Member::join(store).await?;
    let groups = usize::try_from(size.groups)?;
    // One more than there should be: all pages are looked through.
    let requests = member.hints(store, groups + 1).await?;
    anyhow::ensure!(requests.len() == groups, "{} of {groups} groups are due", requests.len());
    let mut lanes = JoinSet::new();
    let started = Instant::now();
    for lane in 0..LANES {
        let queue = requests.iter().skip(lane).step_by(LANES).cloned().collect();
        let lane =
            Lane { store: store.clone(), node: member.node, depth: i64::try_from(size.depth)?, now: Arc::new(now) };
        lanes.spawn(lane.drain(queue));
    }
    let mut messages = 0;
    while let Some(ended) = lanes.join_next().await {
        messages += ended.context("a lane")??;
    }
    let seconds = started.elapsed().as_secs_f64();
    anyhow::ensure!(messages == size.messages(), "{messages} of {} messages were settled", size.messages());
    member.leave().await?;
    Ok(ratio(messages as f64, seconds))
}

/// One of the two.
struct Lane {
    store: Store,
    node: NodeId,
    depth: i64,
    now: Arc<Timestamp>,
}

impl Lane {
    async fn drain(self, mut queue: VecDeque<BeginRequest>) -> anyhow::Result<u64> {
        let mut settled = 0;
        let mut begun: Vec<Message> = Vec::new();
        while !(queue.is_empty() && begun.is_empty()) {
            let begin: Vec<BeginRequest> = queue.drain(..queue.len().min(BATCH)).collect();
            let asked = begin.len();
            let batch = Batch { settle: begun.iter().map(|m| delivered(m, *self.now)).collect(), begin, slack: SLACK };
            let done = self.store.run(self.node, &batch).await.map_err(|failed| failed.error)?;
            settled += done.settled.len() as u64;
            anyhow::ensure!(done.begun.len() == asked, "{} of {asked} messages were begun", done.begun.len());
            queue.extend(begun.drain(..).filter_map(|message| self.next(&message)));
            begun = in_order(&batch.begin, done.begun);
        }
        Ok(settled)
    }

    /// The request for what stands behind this message in its group, if anything does.
    fn next(&self, message: &Message) -> Option<BeginRequest> {
        let after = message.sequence_id.filter(|sequence| sequence.0 < self.depth)?.next();
        let head = Head { endpoint: message.endpoint.clone(), rail_type: message.rail_type.clone() };
        Some(request(message.lane.clone(), message.partition, message.epoch, head, after))
    }
}

/// In the order that was asked for: the same on every run.
fn in_order(asked: &[BeginRequest], mut begun: HashMap<AttemptId, Message>) -> Vec<Message> {
    asked.iter().filter_map(|request| begun.remove(&request.attempt_id)).collect()
}

fn request(
    lane: railyard_core::Lane,
    partition: PartitionId,
    epoch: Epoch,
    head: Head,
    probe: SequenceId,
) -> BeginRequest {
    BeginRequest { attempt_id: AttemptId(Uuid::now_v7()), lane, partition, epoch, head, probe }
}

/// What the receiver of the other measurements would have answered.
pub(crate) fn delivered(message: &Message, now: Timestamp) -> Ended {
    let answer = Answer { status: 200, body: b"{}".to_vec(), ..Answer::default() };
    let latency = Some(Duration::from_millis(1));
    let settlement = settle(message, CallOutcome::Delivered(answer), latency, &Backoff::webhook(), now, 0.5);
    Ended { settlement, ended_at: boottime() }
}
