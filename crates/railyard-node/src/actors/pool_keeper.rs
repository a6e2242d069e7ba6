//! PoolKeeper: takes pools' slots for the lanes of this node and gives them back.
//!
//! Owns the queue of each pool. Woken by a lane that wants a slot, by a slot that is free again, and, while somebody
//! waits, by a timer: what other nodes free makes no sound. Slots go to lanes in the order of asking; what is freed here is
//! free for all nodes, and this one asks again a moment later, so that it does not keep a pool to itself.
//!
//! If it dies, whoever waits comes to rest; slots that it was to give back are taken by others ten seconds after they
//! were taken.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort};
use railyard_core::AttemptId;
use railyard_store::pools::Taken;
use serde::Serialize;
use uuid::Uuid;

use super::settler::answer;
use crate::context::Context;
use crate::pools::PoolSlot;

/// Slots asked for at once.
const BATCH_MAX: usize = 100;
/// After this a pool without a free slot is asked again; twice as long each time.
const AGAIN_FIRST: Duration = Duration::from_millis(20);
/// The longest of these waits.
const AGAIN_MAX: Duration = Duration::from_millis(80);

/// What it is told.
#[derive(ractor_cluster::RactorMessage)]
pub(crate) enum Msg {
    /// A lane wants a slot of this pool.
    Want(Arc<str>, RpcReplyPort<PoolSlot>),
    /// A slot is free.
    Free(Arc<str>, Taken),
    /// Free what is to be freed, take what is wanted.
    Turn(Arc<str>),
    /// For the live view and for tests.
    Observe(RpcReplyPort<Vec<Observed>>),
}

/// Its observable state, a pool each.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Observed {
    pool: String,
    waiting: usize,
    held: usize,
}

/// The actor.
pub(crate) struct PoolKeeper;

/// Its state.
pub(crate) struct State {
    context: Context,
    pools: HashMap<Arc<str>, Pool>,
}

#[derive(Default)]
struct Pool {
    waiting: VecDeque<RpcReplyPort<PoolSlot>>,
    to_free: Vec<Taken>,
    held: usize,
    /// A turn is on its way.
    scheduled: bool,
    again: Duration,
}

impl Actor for PoolKeeper {
    type Msg = Msg;
    type State = State;
    type Arguments = Context;

    async fn pre_start(&self, myself: ActorRef<Msg>, context: Context) -> Result<State, ActorProcessingErr> {
        context.actors.pool_keeper.set(myself);
        Ok(State { context, pools: HashMap::new() })
    }

    async fn handle(&self, myself: ActorRef<Msg>, message: Msg, state: &mut State) -> Result<(), ActorProcessingErr> {
        match message {
            Msg::Want(name, reply) => {
                let pool = state.pools.entry(Arc::clone(&name)).or_default();
                pool.waiting.push_back(reply);
                pool.schedule(&myself, name, Duration::ZERO);
            }
            Msg::Free(name, taken) => {
                let pool = state.pools.entry(Arc::clone(&name)).or_default();
                pool.to_free.push(taken);
                pool.held = pool.held.saturating_sub(1);
                pool.schedule(&myself, name, Duration::ZERO);
            }
            Msg::Turn(name) => state.turn(&myself, name).await,
            Msg::Observe(reply) => answer(reply, state.observe()),
        }
        Ok(())
    }
}

impl Pool {
    fn schedule(&mut self, myself: &ActorRef<Msg>, name: Arc<str>, wait: Duration) {
        if std::mem::replace(&mut self.scheduled, true) {
            return;
        }
        if wait.is_zero() {
            // An actor that is ending has no turns.
            drop(myself.cast(Msg::Turn(name)));
        } else {
            myself.send_after(wait, || Msg::Turn(name));
        }
    }
}

impl State {
    async fn turn(&mut self, myself: &ActorRef<Msg>, name: Arc<str>) {
        let Some(pool) = self.pools.get_mut(&name) else { return };
        pool.scheduled = false;
        if !pool.to_free.is_empty() {
            match self.context.store.pool_free(&name, &pool.to_free).await {
                Ok(()) => pool.to_free.clear(),
                Err(error) => self.context.trouble("pool_keeper", &error),
            }
            // Others first: they look every now and then.
            let wait = AGAIN_FIRST / 2 + rand::random_range(Duration::ZERO..AGAIN_FIRST / 2);
            if !pool.waiting.is_empty() || !pool.to_free.is_empty() {
                pool.schedule(myself, name, wait);
            }
            return;
        }
        pool.waiting.retain(|reply| !reply.is_closed());
        if pool.waiting.is_empty() {
            return;
        }
        let wanted = pool.waiting.len().min(BATCH_MAX);
        let attempts: Vec<AttemptId> = (0..wanted).map(|_| AttemptId(Uuid::now_v7())).collect();
        let taken = match self.context.store.pool_take(&name, &attempts).await {
            Ok((asked, taken)) => {
                for slot in &taken {
                    let Some(reply) = pool.waiting.pop_front() else { break };
                    pool.held += 1;
                    let keeper = self.context.actors.pool_keeper.clone();
                    // Whoever is gone meanwhile drops it, and it is freed.
                    answer(reply, PoolSlot::new(Arc::clone(&name), *slot, asked, keeper));
                }
                taken.len()
            }
            Err(error) => {
                self.context.trouble("pool_keeper", &error);
                0
            }
        };
        let doubled = if taken == wanted { AGAIN_FIRST } else { (pool.again * 2).clamp(AGAIN_FIRST, AGAIN_MAX) };
        pool.again = doubled;
        if !pool.waiting.is_empty() {
            pool.schedule(myself, name, doubled);
        }
    }

    fn observe(&self) -> Vec<Observed> {
        let pools = self.pools.iter();
        let seen = |(name, pool): (&Arc<str>, &Pool)| Observed {
            pool: name.to_string(),
            waiting: pool.waiting.len(),
            held: pool.held,
        };
        pools.map(seen).collect()
    }
}
