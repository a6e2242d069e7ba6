//! Dispatch: a Dispatcher for each item type that has a configuration; a new row is found within seconds.
//!
//! It asks for all types at once whether there is anything to do, when one of their turns is due at the latest, and tells the
//! dispatchers that have something: an idle node costs that one statement. Owns nothing but its children. One that falls is started again with the next look. If it dies, Root starts it again,
//! and it starts them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ractor::{Actor, ActorCell, ActorProcessingErr, ActorRef, RpcReplyPort, SupervisionEvent};
use railyard_store::dispatch::{self, Due};
use tokio::sync::Semaphore;

use super::dispatcher::{self, Arguments, Dispatcher, Seen};
use super::settler::answer;
use crate::context::Context;

/// Where there is no type at all.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Where nothing could be asked.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// However soon the next turn is due.
const LOOK_AT_MOST_EVERY: Duration = Duration::from_millis(50);

/// What it is told.
#[derive(ractor_cluster::RactorMessage)]
pub(crate) enum Msg {
    /// See what there is to do.
    Look,
    /// For the live view and for tests: each type's figures.
    Observe(RpcReplyPort<BTreeMap<String, Arc<Seen>>>),
}

/// The actor.
pub(crate) struct Dispatch;

/// Its state.
pub(crate) struct State {
    context: Context,
    dispatchers: BTreeMap<String, Child>,
    /// Dispatchers at work at once: however many types there are, most of the node's connections are for its calls.
    budget: Arc<Semaphore>,
}

struct Child {
    actor: ActorRef<dispatcher::Msg>,
    seen: Arc<Seen>,
    /// It has a message that it has not done with.
    busy: Arc<AtomicBool>,
}

impl Actor for Dispatch {
    type Msg = Msg;
    type State = State;
    type Arguments = Context;

    async fn pre_start(&self, myself: ActorRef<Msg>, context: Context) -> Result<State, ActorProcessingErr> {
        context.actors.dispatch.set(myself.clone());
        myself.cast(Msg::Look)?;
        let budget = Arc::new(Semaphore::new((context.store.config().work_connections / 3).max(1)));
        Ok(State { context, dispatchers: BTreeMap::new(), budget })
    }

    async fn handle(&self, myself: ActorRef<Msg>, message: Msg, state: &mut State) -> Result<(), ActorProcessingErr> {
        match message {
            Msg::Look => {
                let again = state.look(&myself).await?;
                myself.send_after(again.max(LOOK_AT_MOST_EVERY), || Msg::Look);
            }
            Msg::Observe(reply) => {
                let seen = |(name, child): (&String, &Child)| (name.clone(), Arc::clone(&child.seen));
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
    /// Tells whoever has something to do. When to look again.
    async fn look(&mut self, myself: &ActorRef<Msg>) -> Result<Duration, ActorProcessingErr> {
        let Some(membership) = self.context.lease.good() else { return Ok(LOOK_AGAIN) };
        if self.context.stopping.is_set() {
            return Ok(LOOK_AGAIN);
        }
        let due = match dispatch::look(&self.context.store, membership.node).await {
            Ok(due) => due,
            Err(error) => {
                self.context.trouble("dispatch", &error);
                return Ok(LOOK_AGAIN);
            }
        };
        for Due { item_type, turn, steps, .. } in &due {
            let child = self.child(myself, item_type).await?;
            if (*turn || *steps) && !child.busy.swap(true, Ordering::AcqRel) {
                // One that has just fallen drops it: its successor is told at the next look.
                drop(child.actor.cast(dispatcher::Msg::Work { turn: *turn, steps: *steps }));
            }
        }
        Ok(due.iter().map(|one| one.again).min().unwrap_or(LOOK_EVERY))
    }

    async fn child(&mut self, myself: &ActorRef<Msg>, item_type: &str) -> Result<&Child, ActorProcessingErr> {
        if !self.dispatchers.contains_key(item_type) {
            let (seen, busy) = (Arc::new(Seen::default()), Arc::new(AtomicBool::new(false)));
            let arguments = Arguments {
                context: self.context.clone(),
                item_type: item_type.to_owned(),
                seen: Arc::clone(&seen),
                busy: Arc::clone(&busy),
                budget: Arc::clone(&self.budget),
            };
            let (actor, _) = Actor::spawn_linked(None, Dispatcher, arguments, myself.get_cell()).await?;
            self.dispatchers.insert(item_type.to_owned(), Child { actor, seen, busy });
        }
        Ok(&self.dispatchers[item_type])
    }

    fn fell(&mut self, cell: &ActorCell, why: &str) {
        self.dispatchers.retain(|item_type, child| {
            let it = child.actor.get_id() == cell.get_id();
            if it && !self.context.stopping.is_set() {
                tracing::error!(item_type, why, "dispatcher fell: starting it again");
                self.context.metrics.actor_restarts.with_label_values(&["dispatcher"]).inc();
            }
            !it
        });
    }
}
