//! Dispatch: a Dispatcher for each item type that has a configuration; a new row is found within seconds.
//!
//! Owns nothing but its children. One that falls is started again with the next look. If it dies, Root starts it again,
//! and it starts them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ractor::{Actor, ActorCell, ActorProcessingErr, ActorRef, RpcReplyPort, SupervisionEvent};
use railyard_store::{StoreError, dispatch};

use super::dispatcher::{Dispatcher, Seen};
use super::settler::answer;
use crate::context::Context;

const LOOK_EVERY: Duration = Duration::from_secs(5);

/// What it is told.
#[derive(ractor_cluster::RactorMessage)]
pub(crate) enum Msg {
    /// See which types there are.
    Tick,
    /// For the live view and for tests: each type's figures.
    Observe(RpcReplyPort<BTreeMap<String, Arc<Seen>>>),
}

/// The actor.
pub(crate) struct Dispatch;

/// Its state.
pub(crate) struct State {
    context: Context,
    dispatchers: BTreeMap<String, (ActorCell, Arc<Seen>)>,
}

impl Actor for Dispatch {
    type Msg = Msg;
    type State = State;
    type Arguments = Context;

    async fn pre_start(&self, myself: ActorRef<Msg>, context: Context) -> Result<State, ActorProcessingErr> {
        context.actors.dispatch.set(myself.clone());
        myself.cast(Msg::Tick)?;
        Ok(State { context, dispatchers: BTreeMap::new() })
    }

    async fn handle(&self, myself: ActorRef<Msg>, message: Msg, state: &mut State) -> Result<(), ActorProcessingErr> {
        match message {
            Msg::Tick => {
                match state.types().await {
                    Ok(types) => state.start(&myself, types).await?,
                    Err(error) => state.context.trouble("dispatch", &error),
                }
                myself.send_after(LOOK_EVERY, || Msg::Tick);
            }
            Msg::Observe(reply) => {
                let seen = |(name, (_, seen)): (&String, &(ActorCell, Arc<Seen>))| (name.clone(), Arc::clone(seen));
                answer(reply, state.dispatchers.iter().map(seen).collect());
            }
        }
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        _: ActorRef<Msg>,
        event: SupervisionEvent,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        match event {
            SupervisionEvent::ActorFailed(cell, error) => state.fell(&cell, &error.to_string()),
            SupervisionEvent::ActorTerminated(cell, _, reason) => {
                state.fell(&cell, reason.as_deref().unwrap_or("ended"));
            }
            SupervisionEvent::ActorStarted(_)
            | SupervisionEvent::ProcessGroupChanged(_)
            | SupervisionEvent::PidLifecycleEvent(_) => {}
        }
        Ok(())
    }
}

impl State {
    async fn types(&self) -> Result<Vec<String>, StoreError> {
        dispatch::item_types(&self.context.store).await
    }

    async fn start(&mut self, myself: &ActorRef<Msg>, types: Vec<String>) -> Result<(), ActorProcessingErr> {
        for item_type in types {
            if !self.dispatchers.contains_key(&item_type) {
                let seen = Arc::new(Seen::default());
                let arguments = (self.context.clone(), item_type.clone(), Arc::clone(&seen));
                let (child, _) = Actor::spawn_linked(None, Dispatcher, arguments, myself.get_cell()).await?;
                self.dispatchers.insert(item_type, (child.get_cell(), seen));
            }
        }
        Ok(())
    }

    fn fell(&mut self, cell: &ActorCell, why: &str) {
        self.dispatchers.retain(|item_type, (child, _)| {
            let it = child.get_id() == cell.get_id();
            if it && !self.context.stopping.is_set() {
                tracing::error!(item_type, why, "dispatcher fell: starting it again");
                self.context.metrics.actor_restarts.with_label_values(&["dispatcher"]).inc();
            }
            !it
        });
    }
}
