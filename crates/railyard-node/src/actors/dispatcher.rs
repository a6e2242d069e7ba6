//! Dispatcher: S0's cycle for one item type. Every node has one, and one of them at a time has its turn.
//!
//! Owns nothing. It reads the configuration, brings back what a dead dispatcher had claimed, claims what is due soon and
//! hands it over to the outbox. If it dies in the middle, what it had claimed is brought back once it is stale; if it is
//! only stopped and goes on, the hand-over finds its claims gone.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ractor::{Actor, ActorProcessingErr, ActorRef};
use railyard_core::NodeId;
use railyard_store::dispatch::{self, DispatchConfig};
use railyard_store::{StoreError, failpoint};
use serde::Serialize;
use tokio::time::Instant;

use crate::context::Context;

/// How often it is asked whose turn it is.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// What it is told.
#[derive(ractor_cluster::RactorMessage)]
pub(crate) enum Msg {
    /// See whether there is a turn to take.
    Tick,
}

/// Its observable state: what this node has done since the actor was started.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Seen {
    cycles: AtomicU64,
    claimed: AtomicU64,
    handed_over: AtomicU64,
    not_started: AtomicU64,
    recovered: AtomicU64,
}

/// The actor.
pub(crate) struct Dispatcher;

/// Its state.
pub(crate) struct State {
    context: Context,
    item_type: String,
    seen: Arc<Seen>,
}

impl Actor for Dispatcher {
    type Msg = Msg;
    type State = State;
    type Arguments = (Context, String, Arc<Seen>);

    async fn pre_start(
        &self,
        myself: ActorRef<Msg>,
        (context, item_type, seen): (Context, String, Arc<Seen>),
    ) -> Result<State, ActorProcessingErr> {
        myself.cast(Msg::Tick)?;
        Ok(State { context, item_type, seen })
    }

    async fn handle(&self, myself: ActorRef<Msg>, message: Msg, state: &mut State) -> Result<(), ActorProcessingErr> {
        match message {
            Msg::Tick => {
                if let Err(error) = state.look().await {
                    state.context.trouble("dispatcher", &error);
                }
                myself.send_after(LOOK_EVERY, || Msg::Tick);
            }
        }
        Ok(())
    }
}

impl State {
    async fn look(&self) -> Result<(), StoreError> {
        let Some(membership) = self.context.lease.good() else { return Ok(()) };
        if self.context.stopping.is_set() {
            return Ok(());
        }
        let store = &self.context.store;
        // First, in every cycle: an UPDATE takes effect with the next one.
        let config = dispatch::config(store, &self.item_type).await?;
        if !config.enabled || !dispatch::take_turn(store, &self.item_type, membership.node).await? {
            return Ok(());
        }
        let started = Instant::now();
        let done = self.cycle(&config).await;
        self.context.metrics.dispatch.cycle_seconds.observe(started.elapsed().as_secs_f64());
        self.end(membership.node, config.interval).await?;
        done
    }

    async fn cycle(&self, config: &DispatchConfig) -> Result<(), StoreError> {
        let (store, metrics) = (&self.context.store, &self.context.metrics.dispatch);
        let add = |figure: &AtomicU64, more: u32| figure.fetch_add(u64::from(more), Ordering::Relaxed);
        add(&self.seen.cycles, 1);
        let stale = dispatch::recover(store, &self.item_type).await?;
        add(&self.seen.recovered, stale.recovered);
        metrics.stale_recovered.inc_by(u64::from(stale.recovered));
        metrics.dead_letters.inc_by(u64::from(stale.dead));
        let claimed = dispatch::claim(store, &self.item_type).await?;
        if claimed.items.is_empty() {
            return Ok(());
        }
        metrics.claimed.inc_by(claimed.items.len() as u64);
        self.seen.claimed.fetch_add(claimed.items.len() as u64, Ordering::Relaxed);
        failpoint::reached("dispatch_claimed");
        let orders = claimed.orders(config);
        let done = dispatch::hand_over(store, &self.item_type, &claimed.batch, &orders).await?;
        metrics.started.inc_by(u64::from(done.dispatched));
        add(&self.seen.handed_over, done.dispatched);
        add(&self.seen.not_started, done.failed);
        metrics.start_failures.inc_by(u64::from(done.failed));
        metrics.dead_letters.inc_by(u64::from(done.dead));
        if done.lost > 0 {
            tracing::warn!(
                batch = claimed.batch,
                lost = done.lost,
                "claims of this batch were somebody else's by then"
            );
        }
        if done.failed > 0 {
            tracing::warn!(batch = claimed.batch, failed = done.failed, dead = done.dead, "items could not be started");
        }
        self.context.wake();
        Ok(())
    }

    async fn end(&self, me: NodeId, interval: Duration) -> Result<(), StoreError> {
        if !dispatch::end_turn(&self.context.store, &self.item_type, me, interval).await? {
            tracing::warn!(
                item_type = self.item_type,
                "a cycle took so long that its turn was another node's by its end"
            );
        }
        Ok(())
    }
}
