//! RailCallerPool: a bounded number of callers, and who waits for one.
//!
//! Owns the RailCallers and the queue of messages that wait for a free one; the queue is bounded by the credits.
//! Order is the group's, which has one call out at a time, so any caller will do. A caller that fails is replaced by
//! the next that is needed; whoever waited for its answer hears that it is gone. If the pool dies, the pipeline
//! behind it starts anew.

use std::collections::{HashMap, VecDeque};

use ractor::{Actor, ActorId, ActorProcessingErr, ActorRef, RpcReplyPort, SupervisionEvent};
use serde::Serialize;

use super::rail_caller::{self, Job, RailCaller, Result as CallResult};
use super::settler::answer;
use crate::call_slots::BUDGETS;
use crate::context::Context;

/// What it is told.
#[derive(ractor_cluster::RactorMessage)]
pub(crate) enum Msg {
    /// Make this call.
    Call(Box<Job>, RpcReplyPort<CallResult>),
    /// A caller has nothing to do.
    Idle(ActorRef<rail_caller::Msg>),
    /// For the live view and for tests.
    Observe(RpcReplyPort<Observed>),
}

/// Its observable state.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Observed {
    callers: usize,
    idle: usize,
    queued: usize,
}

/// The actor.
pub(crate) struct RailCallerPool;

/// Its state.
pub(crate) struct State {
    context: Context,
    callers: HashMap<ActorId, ActorRef<rail_caller::Msg>>,
    idle: Vec<ActorRef<rail_caller::Msg>>,
    queue: VecDeque<(Box<Job>, RpcReplyPort<CallResult>)>,
}

impl Actor for RailCallerPool {
    type Msg = Msg;
    type State = State;
    type Arguments = Context;

    async fn pre_start(&self, myself: ActorRef<Msg>, context: Context) -> Result<State, ActorProcessingErr> {
        context.actors.callers.set(myself);
        Ok(State { context, callers: HashMap::new(), idle: Vec::new(), queue: VecDeque::new() })
    }

    async fn handle(&self, myself: ActorRef<Msg>, message: Msg, state: &mut State) -> Result<(), ActorProcessingErr> {
        match message {
            Msg::Call(job, reply) => state.queue.push_back((job, reply)),
            Msg::Idle(caller) => state.idle.push(caller),
            Msg::Observe(reply) => answer(reply, state.observe()),
        }
        state.assign(&myself).await
    }

    async fn handle_supervisor_evt(
        &self,
        myself: ActorRef<Msg>,
        event: SupervisionEvent,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        match event {
            SupervisionEvent::ActorFailed(cell, error) => {
                tracing::error!(%error, "rail caller failed: its call is in doubt");
                state.context.metrics.actor_restarts.with_label_values(&["rail_caller"]).inc();
                state.lose(cell.get_id());
                state.assign(&myself).await
            }
            SupervisionEvent::ActorTerminated(cell, _, _) => {
                state.lose(cell.get_id());
                state.assign(&myself).await
            }
            SupervisionEvent::ActorStarted(_)
            | SupervisionEvent::ProcessGroupChanged(_)
            | SupervisionEvent::PidLifecycleEvent(_) => Ok(()),
        }
    }
}

impl State {
    async fn assign(&mut self, myself: &ActorRef<Msg>) -> Result<(), ActorProcessingErr> {
        while !self.queue.is_empty() {
            let caller = match self.idle.pop() {
                Some(caller) => caller,
                None if self.callers.len() < self.context.options.calls_in_flight * BUDGETS => {
                    let arguments = (self.context.clone(), myself.clone());
                    let (caller, _) = Actor::spawn_linked(None, RailCaller, arguments, myself.get_cell()).await?;
                    self.callers.insert(caller.get_id(), caller.clone());
                    caller
                }
                None => return Ok(()),
            };
            let Some((job, reply)) = self.queue.pop_front() else { return Ok(()) };
            // A caller that has just died drops the reply: whoever waits hears of it.
            drop(caller.cast(rail_caller::Msg(job, reply)));
        }
        Ok(())
    }

    fn lose(&mut self, id: ActorId) {
        self.callers.remove(&id);
        self.idle.retain(|caller| caller.get_id() != id);
    }

    fn observe(&self) -> Observed {
        Observed { callers: self.callers.len(), idle: self.idle.len(), queued: self.queue.len() }
    }
}
