//! Governor: one [`Limiter`] for each set of limits, and a look at the database's clock.
//!
//! Owns the limiters; a set has one as soon as a lane asks. Twice a second, if there are limits at all, it reads the
//! database's clock, so that a step of it shows before slots are used ([`railyard_core::limiter::ClockWatch`]), and closes
//! connections that were opened for slots and not used.
//!
//! If it dies, its limiters die with it, and whoever waits comes to rest and is found again. A limiter that falls is
//! started again by the next lane that asks.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort, SupervisionEvent};
use railyard_rail::Claim;
use railyard_rail::warm::RENEWED;
use railyard_store::clock::boottime;
use serde::Serialize;

use super::limiter::{self, Limiter, Turn};
use super::settler::answer;
use crate::context::Context;
use crate::limits::LimitSet;
use crate::observe::OBSERVE_TIMEOUT;

/// How often the clock is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Lanes wait for their turn as long as it takes; if the Governor dies, they hear of it.
const FOREVER: Duration = Duration::from_secs(24 * 3600);

/// What it is told.
#[derive(ractor_cluster::RactorMessage)]
pub(crate) enum Msg {
    /// A lane wants a slot of this set.
    Want(Arc<LimitSet>, RpcReplyPort<Turn>),
    /// Read the clock.
    Look,
    /// For the live view and for tests.
    Observe(RpcReplyPort<Observed>),
}

/// Its observable state.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Observed {
    clock_steps: u64,
    limiters: Vec<limiter::Observed>,
}

/// The actor.
pub(crate) struct Governor;

/// Its state.
pub(crate) struct State {
    context: Context,
    limiters: HashMap<Vec<String>, ActorRef<limiter::Msg>>,
}

impl Actor for Governor {
    type Msg = Msg;
    type State = State;
    type Arguments = Context;

    async fn pre_start(&self, myself: ActorRef<Msg>, context: Context) -> Result<State, ActorProcessingErr> {
        context.actors.governor.set(myself.clone());
        if context.limits.any() {
            myself.cast(Msg::Look)?;
        }
        Ok(State { context, limiters: HashMap::new() })
    }

    async fn handle(&self, myself: ActorRef<Msg>, message: Msg, state: &mut State) -> Result<(), ActorProcessingErr> {
        match message {
            Msg::Want(set, reply) => state.want(&myself, &set, reply).await?,
            Msg::Look => {
                state.context.client.sweep();
                state.look().await;
                myself.send_after(LOOK_EVERY, || Msg::Look);
            }
            Msg::Observe(reply) => answer(reply, state.observe().await),
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
            SupervisionEvent::ActorFailed(cell, error) => {
                tracing::error!(%error, "limiter failed");
                state.context.metrics.actor_restarts.with_label_values(&["limiter"]).inc();
                state.limiters.retain(|_, limiter| limiter.get_id() != cell.get_id());
            }
            SupervisionEvent::ActorTerminated(cell, _, _) => {
                state.limiters.retain(|_, limiter| limiter.get_id() != cell.get_id());
            }
            SupervisionEvent::ActorStarted(_)
            | SupervisionEvent::ProcessGroupChanged(_)
            | SupervisionEvent::PidLifecycleEvent(_) => {}
        }
        Ok(())
    }
}

/// A slot of this set, or word that its rail is stopped; none: nobody is there to ask.
pub(crate) async fn permit(context: &Context, set: &Arc<LimitSet>) -> Option<Turn> {
    if let Some(held) = set.leave(boottime()) {
        return Some(Turn::Slot(held));
    }
    context.actors.governor.ask(|reply| Msg::Want(Arc::clone(set), reply), FOREVER).await
}

/// The same, for a call that finds an open connection when its slot begins: opened before the slot is asked for, since a slot
/// lies a quarter of a second ahead at most, and kept fresh while the lane waits.
pub(crate) async fn permit_on(context: &Context, set: &Arc<LimitSet>, claim: &Claim) -> Option<Turn> {
    context.client.keep_open(claim).await;
    tokio::select! {
        turn = permit(context, set) => turn,
        never = keep_warm(context, set, claim) => match never {},
    }
}

async fn keep_warm(context: &Context, set: &LimitSet, claim: &Claim) -> Infallible {
    loop {
        // Of a slot that is far away nobody needs a connection yet.
        tokio::time::sleep(set.wait(boottime()).saturating_sub(RENEWED).max(RENEWED)).await;
        context.client.keep_open(claim).await;
    }
}

impl State {
    async fn want(
        &mut self,
        myself: &ActorRef<Msg>,
        set: &Arc<LimitSet>,
        reply: RpcReplyPort<Turn>,
    ) -> Result<(), ActorProcessingErr> {
        let limiter = match self.limiters.get(&set.keys) {
            Some(limiter) => limiter,
            None => {
                let arguments = (self.context.clone(), Arc::clone(set));
                let (limiter, _) = Actor::spawn_linked(None, Limiter, arguments, myself.get_cell()).await?;
                self.limiters.entry(set.keys.clone()).or_insert(limiter)
            }
        };
        // One that has just fallen drops the reply, and the lane comes to rest.
        drop(limiter.cast(limiter::Msg::Want(reply)));
        Ok(())
    }

    async fn look(&self) {
        match self.context.store.clock_us().await {
            Ok(read) => {
                if self.context.limits.watch().answered(read.sent, read.replied, read.answer) {
                    tracing::warn!("the database's clock was set forward: no slots for a window");
                }
            }
            Err(error) => self.context.trouble("governor", &error),
        }
    }

    async fn observe(&self) -> Observed {
        let mut limiters = Vec::new();
        for limiter in self.limiters.values() {
            // One that is asking the database answers when that does.
            let seen = limiter.call(limiter::Msg::Observe, Some(OBSERVE_TIMEOUT / 4)).await;
            if let Ok(ractor::rpc::CallResult::Success(seen)) = seen {
                limiters.push(seen);
            }
        }
        Observed { clock_steps: self.context.limits.watch().steps(), limiters }
    }
}
