//! Dispatcher: S0's cycle for one item type. Every node has one, and one of them at a time has its turn.
//!
//! Owns nothing. It reads the configuration, brings back what a dead dispatcher had claimed, claims what is due soon and
//! hands it over to the outbox. A batch that the database would not take is kept and handed over first of all, at the next
//! look: nothing is wrong with its items. If it dies in the middle, what it had claimed is brought back once it is stale; if it is
//! only stopped and goes on, the hand-over finds its claims gone.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ractor::{Actor, ActorProcessingErr, ActorRef};
use railyard_core::NodeId;
use railyard_store::dispatch::{self, DispatchConfig, StartOrder};
use railyard_store::{StoreError, failpoint};
use serde::Serialize;
use tokio::time::Instant;

use crate::context::Context;

/// How often it is asked whose turn it is.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// After so many attempts a batch goes back without a count, to be claimed anew: it may be too large for the database.
const HAND_OVERS_MAX: u32 = 20;

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
    /// What is claimed and not handed over.
    held: Option<Batch>,
}

/// A batch and how its items are started.
struct Batch {
    id: String,
    orders: Vec<StartOrder>,
    tries: u32,
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
        Ok(State { context, item_type, seen, held: None })
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
    async fn look(&mut self) -> Result<(), StoreError> {
        let Some(membership) = self.context.lease.good() else { return Ok(()) };
        if self.context.stopping.is_set() {
            return Ok(());
        }
        self.hand_over_held().await?;
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

    async fn cycle(&mut self, config: &DispatchConfig) -> Result<(), StoreError> {
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
        self.held = Some(Batch { id: claimed.batch, orders, tries: 0 });
        self.hand_over().await
    }

    /// Its claims are kept alive meanwhile. Handing over twice does no harm: what is not claimed any more is left alone.
    async fn hand_over_held(&mut self) -> Result<(), StoreError> {
        let Some(batch) = &self.held else { return Ok(()) };
        let store = &self.context.store;
        if batch.tries >= HAND_OVERS_MAX {
            dispatch::put_back(store, &self.item_type, &batch.id).await?;
            self.held = None;
            return Ok(());
        }
        dispatch::keep(store, &self.item_type, &batch.id).await?;
        self.hand_over().await
    }

    /// Trouble that passes keeps the batch; after any other its claims become stale, and count.
    async fn hand_over(&mut self) -> Result<(), StoreError> {
        let Some(mut batch) = self.held.take() else { return Ok(()) };
        let done = match dispatch::hand_over(&self.context.store, &self.item_type, &batch.id, &batch.orders).await {
            Ok(done) => done,
            Err(error) => {
                batch.tries += 1;
                self.held = Some(batch).filter(|_| error.is_transient());
                return Err(error);
            }
        };
        let metrics = &self.context.metrics.dispatch;
        let add = |figure: &AtomicU64, more: u32| figure.fetch_add(u64::from(more), Ordering::Relaxed);
        metrics.started.inc_by(u64::from(done.dispatched));
        add(&self.seen.handed_over, done.dispatched);
        add(&self.seen.not_started, done.failed);
        metrics.start_failures.inc_by(u64::from(done.failed));
        metrics.dead_letters.inc_by(u64::from(done.dead));
        if done.lost > 0 {
            tracing::warn!(batch = batch.id, lost = done.lost, "claims of this batch were somebody else's by then");
        }
        if done.failed > 0 {
            tracing::warn!(batch = batch.id, failed = done.failed, dead = done.dead, "items could not be started");
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
