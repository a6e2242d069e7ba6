//! Settler: turns begins and outcomes into transactions.
//!
//! Owns the queue of both, and two lanes to the database. Woken by a submission and by a lane that has come free, which
//! takes whatever has gathered, up to a hundred: batches grow with the load. With both lanes free, a lone message waits
//! for nobody; beside a busy lane, the other waits for a batch of a good size, and for no more than a few milliseconds.
//!
//! If it dies, whoever waits for an answer hears that it is gone: a begin counts as failed (its attempt was never
//! called, which the Reaper can prove), an outcome's in-flight row stays and is healed when its deadline has passed.
//! A lane that meets an outage holds its outcomes and sends them again until they are in: they are true whoever owns
//! the partition by then.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort};
use railyard_core::{Message, NodeId};
use railyard_store::work::{BeginRequest, Ended, Settled};
use serde::Serialize;

use crate::context::Context;
use crate::runtime::{self, Task};

mod begins;
mod lane;

/// Items in one transaction.
const BATCH_MAX: usize = 100;
/// Transactions at once: one commits while the next is gathered and sent.
const LANES: usize = 2;
/// While one lane is busy, the other waits for a batch of this size: what a transaction costs by itself is shared.
const BATCH_GOOD: usize = 32;
/// But not for longer than this: the busy one may stand at somebody's lock.
const GATHER_MAX: Duration = Duration::from_millis(2);

/// What it is told.
#[derive(ractor_cluster::RactorMessage)]
pub(crate) enum Msg {
    /// Begin a lane's head.
    Begin(BeginRequest, RpcReplyPort<BeginAnswer>),
    /// Write an outcome and, if asked, begin the lane's next in the same transaction.
    Settle(Box<Ended>, Option<BeginRequest>, RpcReplyPort<SettleAnswer>),
    /// A lane has come free.
    LaneFree(usize),
    /// The queue has waited long enough.
    Gathered,
    /// For the live view and for tests.
    Observe(RpcReplyPort<Observed>),
}

/// A message whose intent is committed.
#[derive(Debug)]
pub(crate) struct Begun {
    pub(crate) message: Message,
    /// The membership it was begun under: no later one may call for it.
    pub(crate) node: NodeId,
    /// Before the begin was sent, on `boottime`: deadlines count from here.
    pub(crate) since: Duration,
}

/// What became of a begin.
#[derive(Debug)]
pub(crate) enum BeginAnswer {
    /// Committed.
    Begun(Box<Begun>),
    /// Nothing to begin.
    Nothing,
    /// Did not get through, and nothing of it stands in the database.
    NotBegun,
    /// Nobody knows whether it got through; nothing of it will ever be called.
    Failed,
}

/// What became of an outcome.
#[derive(Debug)]
pub(crate) struct SettleAnswer {
    pub(crate) settled: Settled,
    pub(crate) next: BeginAnswer,
}

/// Its observable state.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Observed {
    queued: usize,
    lanes_busy: usize,
}

impl Observed {
    pub(crate) fn is_idle(&self) -> bool {
        self.queued == 0 && self.lanes_busy == 0
    }
}

/// A submission that waits for its turn.
pub(crate) enum Item {
    Begin(BeginRequest, RpcReplyPort<BeginAnswer>),
    Settle(Box<Ended>, Option<BeginRequest>, RpcReplyPort<SettleAnswer>),
}

/// The actor.
pub(crate) struct Settler;

/// Its state.
pub(crate) struct State {
    context: Context,
    queue: VecDeque<Item>,
    lanes: [Option<Task>; LANES],
    /// Since when the queue has been waiting for a batch of a good size.
    gathering: Option<Instant>,
}

impl Actor for Settler {
    type Msg = Msg;
    type State = State;
    type Arguments = Context;

    async fn pre_start(&self, myself: ActorRef<Msg>, context: Context) -> Result<State, ActorProcessingErr> {
        context.actors.settler.set(myself);
        Ok(State { context, queue: VecDeque::new(), lanes: [const { None }; LANES], gathering: None })
    }

    async fn handle(&self, myself: ActorRef<Msg>, message: Msg, state: &mut State) -> Result<(), ActorProcessingErr> {
        match message {
            Msg::Begin(request, reply) => state.queue.push_back(Item::Begin(request, reply)),
            Msg::Settle(ended, next, reply) => state.queue.push_back(Item::Settle(ended, next, reply)),
            Msg::LaneFree(lane) => state.lanes[lane] = None,
            Msg::Gathered => {}
            Msg::Observe(reply) => answer(reply, state.observe()),
        }
        state.fill_lanes(&myself);
        Ok(())
    }
}

impl State {
    fn fill_lanes(&mut self, myself: &ActorRef<Msg>) {
        for lane in 0..LANES {
            if self.queue.is_empty() || self.gathers(myself) {
                return;
            }
            if self.lanes[lane].is_none() {
                self.gathering = None;
                let batch: Vec<Item> = self.queue.drain(..self.queue.len().min(BATCH_MAX)).collect();
                let free = Free { settler: myself.clone(), lane };
                let context = self.context.clone();
                self.lanes[lane] = Some(runtime::spawn(async move {
                    let _free = free;
                    lane::run(&context, batch).await;
                }));
            }
        }
    }

    /// Whether it is better to wait for more.
    fn gathers(&mut self, myself: &ActorRef<Msg>) -> bool {
        if self.queue.len() >= BATCH_GOOD || self.lanes.iter().all(Option::is_none) {
            return false;
        }
        match self.gathering {
            Some(since) => since.elapsed() < GATHER_MAX,
            None => {
                self.gathering = Some(Instant::now());
                myself.send_after(GATHER_MAX, || Msg::Gathered);
                true
            }
        }
    }

    fn observe(&self) -> Observed {
        Observed { queued: self.queue.len(), lanes_busy: self.lanes.iter().flatten().count() }
    }
}

/// Says that the lane is free, also when it ends by a panic.
struct Free {
    settler: ActorRef<Msg>,
    lane: usize,
}

impl Drop for Free {
    fn drop(&mut self) {
        // A settler that is gone has no lanes.
        drop(self.settler.cast(Msg::LaneFree(self.lane)));
    }
}

/// Answers; whoever asked may be gone, and what it asked about stands in the database.
pub(super) fn answer<T: Send + 'static>(reply: RpcReplyPort<T>, value: T) {
    drop(reply.send(value));
}
