//! Pipeline: the four actors that a message passes on its way out, started in that order.
//!
//! Rest for one: a child that fails takes those behind it along, since they work with what it held. What they had in
//! memory is found again in the database.

use ractor::{Actor, ActorCell, ActorProcessingErr, ActorRef, SupervisionEvent};

use super::global_buffer::GlobalBuffer;
use super::listener::Listener;
use super::poller::Poller;
use super::rail_caller_pool::RailCallerPool;
use super::supervise::Restarts;
use crate::context::Context;

/// What it is told.
#[derive(ractor_cluster::RactorMessage)]
pub(crate) enum Msg {
    /// Start the children from this one on.
    StartFrom(usize),
}

/// The actor.
pub(crate) struct Pipeline;

/// Its state.
pub(crate) struct State {
    context: Context,
    /// In order; those behind a failed one are missing until they are started again.
    children: Vec<ActorCell>,
    restarts: Restarts,
}

pub(crate) const NAMES: [&str; 4] = ["rail_caller_pool", "global_buffer", "poller", "listener"];

impl Actor for Pipeline {
    type Msg = Msg;
    type State = State;
    type Arguments = Context;

    async fn pre_start(&self, myself: ActorRef<Msg>, context: Context) -> Result<State, ActorProcessingErr> {
        let mut state = State { context, children: Vec::new(), restarts: Restarts::default() };
        state.start_from(&myself, 0).await?;
        Ok(state)
    }

    async fn handle(&self, myself: ActorRef<Msg>, message: Msg, state: &mut State) -> Result<(), ActorProcessingErr> {
        match message {
            Msg::StartFrom(first) => state.start_from(&myself, first).await,
        }
    }

    async fn handle_supervisor_evt(
        &self,
        myself: ActorRef<Msg>,
        event: SupervisionEvent,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        match event {
            SupervisionEvent::ActorFailed(cell, error) => {
                tracing::error!(%error, actor = state.name_of(&cell), "actor failed");
                state.fell(&myself, &cell).await;
            }
            SupervisionEvent::ActorTerminated(cell, _, _) => state.fell(&myself, &cell).await,
            SupervisionEvent::ActorStarted(_)
            | SupervisionEvent::ProcessGroupChanged(_)
            | SupervisionEvent::PidLifecycleEvent(_) => {}
        }
        Ok(())
    }
}

impl State {
    fn name_of(&self, cell: &ActorCell) -> &'static str {
        let index = self.children.iter().position(|child| child.get_id() == cell.get_id());
        index.and_then(|index| NAMES.get(index).copied()).unwrap_or("unknown")
    }

    /// One fell: those behind it are ended, and all of them started again after a wait.
    async fn fell(&mut self, myself: &ActorRef<Msg>, cell: &ActorCell) {
        let Some(first) = self.children.iter().position(|child| child.get_id() == cell.get_id()) else { return };
        if self.context.stopping.is_set() {
            return;
        }
        self.context.metrics.actor_restarts.with_label_values(&[NAMES[first]]).inc();
        for child in self.children.drain(first..).rev() {
            if child.get_id() != cell.get_id() {
                child.unlink(myself.get_cell());
                // Killed, not drained: what it was working on stands in the database.
                drop(child.kill_and_wait(None).await);
            }
        }
        let wait = self.restarts.wait();
        myself.send_after(wait, move || Msg::StartFrom(first));
    }

    async fn start_from(&mut self, myself: &ActorRef<Msg>, first: usize) -> Result<(), ActorProcessingErr> {
        for index in first..NAMES.len() {
            if self.children.len() != index {
                continue;
            }
            let (context, parent) = (self.context.clone(), myself.get_cell());
            let child = match index {
                0 => Actor::spawn_linked(None, RailCallerPool, context, parent).await?.0.get_cell(),
                1 => Actor::spawn_linked(None, GlobalBuffer, context, parent).await?.0.get_cell(),
                2 => Actor::spawn_linked(None, Poller, context, parent).await?.0.get_cell(),
                _ => Actor::spawn_linked(None, Listener, context, parent).await?.0.get_cell(),
            };
            self.children.push(child);
        }
        Ok(())
    }
}
