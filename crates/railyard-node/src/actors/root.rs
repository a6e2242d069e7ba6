//! Root: the supervisor of a node. Starts its children in order, starts each again when it falls.
//!
//! Nothing it does is needed for correctness: without it, a fallen actor's work waits in the database.

use ractor::{Actor, ActorCell, ActorProcessingErr, ActorRef, SupervisionEvent};

use super::cache_keeper::CacheKeeper;
use super::cluster::ClusterSupervisor;
use super::dispatch::Dispatch;
use super::governor::Governor;
use super::lease_keeper::LeaseKeeper;
use super::maintenance::Maintenance;
use super::pipeline::Pipeline;
use super::pool_keeper::PoolKeeper;
use super::reaper::Reaper;
use super::settler::Settler;
use super::supervise::Restarts;
use crate::context::Context;

/// What it is told.
#[derive(ractor_cluster::RactorMessage)]
pub(crate) enum Msg {
    /// Start this child again.
    Start(usize),
}

/// The actor.
pub(crate) struct Root;

/// Its state.
pub(crate) struct State {
    context: Context,
    children: Vec<Option<ActorCell>>,
    restarts: Vec<Restarts>,
}

pub(crate) const NAMES: [&str; 10] = [
    "cache_keeper",
    "settler",
    "governor",
    "pool_keeper",
    "lease_keeper",
    "pipeline",
    "reaper",
    "maintenance",
    "dispatch",
    "cluster",
];

impl Actor for Root {
    type Msg = Msg;
    type State = State;
    type Arguments = Context;

    async fn pre_start(&self, myself: ActorRef<Msg>, context: Context) -> Result<State, ActorProcessingErr> {
        let restarts = NAMES.map(|_| Restarts::default()).into();
        let mut state = State { context, children: vec![None; NAMES.len()], restarts };
        for index in 0..NAMES.len() {
            state.start(&myself, index).await?;
        }
        Ok(state)
    }

    async fn handle(&self, myself: ActorRef<Msg>, message: Msg, state: &mut State) -> Result<(), ActorProcessingErr> {
        match message {
            Msg::Start(index) => {
                if let Err(error) = state.start(&myself, index).await {
                    tracing::error!(%error, actor = NAMES[index], "actor could not be started");
                    let wait = state.restarts[index].wait();
                    myself.send_after(wait, move || Msg::Start(index));
                }
            }
        }
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        myself: ActorRef<Msg>,
        event: SupervisionEvent,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        match event {
            SupervisionEvent::ActorFailed(cell, error) => state.fell(&myself, &cell, &error.to_string()),
            SupervisionEvent::ActorTerminated(cell, _, reason) => {
                state.fell(&myself, &cell, reason.as_deref().unwrap_or("ended"));
            }
            SupervisionEvent::ActorStarted(_)
            | SupervisionEvent::ProcessGroupChanged(_)
            | SupervisionEvent::PidLifecycleEvent(_) => {}
        }
        Ok(())
    }
}

impl State {
    fn fell(&mut self, myself: &ActorRef<Msg>, cell: &ActorCell, why: &str) {
        let id = cell.get_id();
        let Some(index) = self.children.iter().position(|child| child.as_ref().is_some_and(|c| c.get_id() == id))
        else {
            return;
        };
        self.children[index] = None;
        if self.context.stopping.is_set() {
            return;
        }
        tracing::error!(actor = NAMES[index], why, "actor fell: starting it again");
        self.context.metrics.actor_restarts.with_label_values(&[NAMES[index]]).inc();
        let wait = self.restarts[index].wait();
        myself.send_after(wait, move || Msg::Start(index));
    }

    async fn start(&mut self, myself: &ActorRef<Msg>, index: usize) -> Result<(), ActorProcessingErr> {
        let (context, parent) = (self.context.clone(), myself.get_cell());
        let child = match index {
            0 => Actor::spawn_linked(None, CacheKeeper, context, parent).await?.0.get_cell(),
            1 => Actor::spawn_linked(None, Settler, context, parent).await?.0.get_cell(),
            2 => Actor::spawn_linked(None, Governor, context, parent).await?.0.get_cell(),
            3 => Actor::spawn_linked(None, PoolKeeper, context, parent).await?.0.get_cell(),
            4 => Actor::spawn_linked(None, LeaseKeeper, context, parent).await?.0.get_cell(),
            5 => Actor::spawn_linked(None, Pipeline, context, parent).await?.0.get_cell(),
            6 => Actor::spawn_linked(None, Reaper, context, parent).await?.0.get_cell(),
            7 => Actor::spawn_linked(None, Maintenance, context, parent).await?.0.get_cell(),
            8 => Actor::spawn_linked(None, Dispatch, context, parent).await?.0.get_cell(),
            _ => match context.links.clone() {
                Some(links) => {
                    Actor::spawn_linked(None, ClusterSupervisor, (context, links), parent).await?.0.get_cell()
                }
                None => return Ok(()),
            },
        };
        self.children[index] = Some(child);
        Ok(())
    }
}
