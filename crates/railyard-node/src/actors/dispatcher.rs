//! Dispatcher: S0's cycle for one item type. Every node has one, and one of them at a time has its turn.
//!
//! Owns nothing. Told by Dispatch that there is something to do, it reads the configuration, takes the turn, brings back what
//! a dead dispatcher had claimed, claims what is due soon and hands it over to the outbox; later steps that are due it hands
//! over without a turn, each being one node's at a time. A claim whose answer was lost is asked for by its name, and a batch
//! that the database would not take is kept and handed over first of all: nothing is wrong with its items. One that takes
//! the database too long goes back, and half as many are claimed next. If it dies in the middle, what it had claimed is
//! brought back once it is stale; if it is only stopped and goes on, the hand-over finds its lease over, or its claims gone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use ractor::{Actor, ActorProcessingErr, ActorRef};
use railyard_core::NodeId;
use railyard_core::dispatch::Bite;
use railyard_store::dispatch::{self, Claimed, DispatchConfig, STEPS_MAX, StartOrder};
use railyard_store::{StoreError, failpoint};
use serde::Serialize;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::context::Context;

/// When what is unfinished is tried again.
const AGAIN: Duration = Duration::from_millis(500);

/// After so many attempts a batch goes back without a count, and less is claimed anew: it may be too large for the database.
const HAND_OVERS_MAX: u32 = 20;

/// What it is told.
#[derive(ractor_cluster::RactorMessage)]
pub(crate) enum Msg {
    /// Its turn may be taken, or steps are due. One at a time: [`Arguments::busy`].
    Work { turn: bool, steps: bool },
    /// Finish what was not.
    Again,
}

/// Its observable state: what this node has done since the actor was started.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Seen {
    cycles: AtomicU64,
    claimed: AtomicU64,
    handed_over: AtomicU64,
    steps: AtomicU64,
    not_started: AtomicU64,
    recovered: AtomicU64,
    /// More than so many items at a time take the database too long; 0 where as many as are configured do not.
    at_a_time: AtomicU64,
}

/// The actor.
pub(crate) struct Dispatcher;

/// What it is made with.
#[derive(Clone)]
pub(crate) struct Arguments {
    pub(crate) context: Context,
    pub(crate) item_type: String,
    pub(crate) seen: Arc<Seen>,
    /// Set by who sends [`Msg::Work`], until that is done.
    pub(crate) busy: Arc<AtomicBool>,
    /// How many types' dispatchers work at once.
    pub(crate) budget: Arc<Semaphore>,
}

/// Its state.
pub(crate) struct State {
    own: Arguments,
    /// A batch that was asked for, and whether it was claimed was not heard.
    unheard: Option<String>,
    /// What is claimed and not handed over.
    held: Option<Batch>,
    /// How much the database takes at a time.
    bite: Bite,
    /// What was said last about a configuration that cannot be read.
    unreadable: Option<String>,
    /// [`Msg::Again`] is on its way.
    again: bool,
}

/// A batch and how its items are started.
struct Batch {
    id: String,
    orders: Vec<StartOrder>,
    /// Most items of a claim, as configured.
    configured: u32,
    /// What the claim took.
    claim_took: Duration,
    tries: u32,
    /// The database took too long over it.
    too_slow: bool,
}

impl Batch {
    fn count(&self) -> u32 {
        u32::try_from(self.orders.len()).unwrap_or(u32::MAX)
    }
}

impl Actor for Dispatcher {
    type Msg = Msg;
    type State = State;
    type Arguments = Arguments;

    async fn pre_start(&self, _: ActorRef<Msg>, own: Arguments) -> Result<State, ActorProcessingErr> {
        Ok(State { own, unheard: None, held: None, bite: Bite::default(), unreadable: None, again: false })
    }

    async fn handle(&self, myself: ActorRef<Msg>, message: Msg, state: &mut State) -> Result<(), ActorProcessingErr> {
        let (turn, steps) = match message {
            Msg::Work { turn, steps } => (turn, steps),
            Msg::Again => {
                state.again = false;
                (false, false)
            }
        };
        if let Err(error) = state.work(turn, steps).await {
            state.own.context.trouble("dispatcher", &error);
        }
        if turn || steps {
            state.own.busy.store(false, Ordering::Release);
        }
        if !state.again && (state.held.is_some() || state.unheard.is_some()) {
            state.again = true;
            myself.send_after(AGAIN, || Msg::Again);
        }
        Ok(())
    }
}

impl State {
    async fn work(&mut self, turn: bool, steps: bool) -> Result<(), StoreError> {
        let budget = Arc::clone(&self.own.budget);
        let Ok(_place) = budget.acquire().await else { return Ok(()) };
        let Some(membership) = self.own.context.lease.good() else { return Ok(()) };
        if self.own.context.stopping.is_set() {
            return Ok(());
        }
        let me = membership.node;
        let finished = self.finish(me).await;
        // Either goes on whatever becomes of the other.
        let stepped = if steps { self.steps().await } else { Ok(()) };
        finished?;
        if turn && self.held.is_none() {
            self.turn(me).await?;
        }
        stepped
    }

    /// The configuration comes first, in every cycle: an UPDATE takes effect with the next one, and who cannot read it keeps
    /// no other node from its turn.
    async fn turn(&mut self, me: NodeId) -> Result<(), StoreError> {
        let context = Arc::clone(&self.own.context);
        let item_type = self.own.item_type.clone();
        let config = match dispatch::config(&context.store, &item_type).await {
            Ok(config) => config,
            Err(StoreError::Unreadable { detail }) => {
                self.cannot_read(detail);
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        self.unreadable = None;
        if !config.enabled || !dispatch::take_turn(&context.store, &item_type, me).await? {
            return Ok(());
        }
        let started = Instant::now();
        let done = self.cycle(me, &config).await;
        context.metrics.dispatch.cycle_seconds.observe(started.elapsed().as_secs_f64());
        if !dispatch::end_turn(&context.store, &item_type, me).await? {
            tracing::warn!(item_type, "a cycle took so long that its turn was another node's by its end");
        }
        done
    }

    /// Said by each type for itself, once for each fault: the log of other trouble is shared, and would hide it.
    fn cannot_read(&mut self, detail: String) {
        if self.unreadable.as_ref() != Some(&detail) {
            let item_type = &self.own.item_type;
            tracing::error!(item_type, detail, "nothing of this item type is dispatched until that is put right");
            self.unreadable = Some(detail);
        }
    }

    async fn cycle(&mut self, me: NodeId, config: &DispatchConfig) -> Result<(), StoreError> {
        let context = Arc::clone(&self.own.context);
        let (store, metrics) = (&context.store, &context.metrics.dispatch);
        self.own.seen.cycles.fetch_add(1, Ordering::Relaxed);
        let most = self.bite.of(config.batch_size);
        let stale = dispatch::recover(store, &self.own.item_type, most).await;
        let stale = stale.inspect_err(|error| self.too_much(error, most))?;
        add(&self.own.seen.recovered, stale.recovered);
        metrics.stale_recovered.inc_by(u64::from(stale.recovered));
        metrics.dead_letters.inc_by(u64::from(stale.dead));
        if context.lease.good().is_none() {
            return Ok(());
        }
        let batch = dispatch::batch_name();
        self.unheard = Some(batch.clone());
        let started = Instant::now();
        let claimed = dispatch::claim(store, &self.own.item_type, &batch, most).await;
        let claimed = claimed.inspect_err(|error| self.too_much(error, most))?;
        self.unheard = None;
        self.hold(claimed, config, started.elapsed());
        self.hand_over(me).await
    }

    fn hold(&mut self, claimed: Claimed, config: &DispatchConfig, claim_took: Duration) {
        if claimed.items.is_empty() {
            return;
        }
        let count = claimed.items.len() as u64;
        self.own.context.metrics.dispatch.claimed.inc_by(count);
        self.own.seen.claimed.fetch_add(count, Ordering::Relaxed);
        failpoint::reached("dispatch_claimed");
        let (orders, configured) = (claimed.orders(config), config.batch_size);
        self.held = Some(Batch { id: claimed.batch, orders, configured, claim_took, tries: 0, too_slow: false });
    }

    /// What an earlier message began. Claims are kept alive meanwhile, and handing over twice does no harm: what is not
    /// claimed any more is left alone.
    async fn finish(&mut self, me: NodeId) -> Result<(), StoreError> {
        let context = Arc::clone(&self.own.context);
        let store = &context.store;
        if let Some(batch) = &self.unheard {
            let config = dispatch::config(store, &self.own.item_type).await?;
            let claimed = dispatch::claimed(store, &self.own.item_type, batch).await?;
            self.unheard = None;
            // How long that took nobody heard.
            self.hold(claimed, &config, Duration::MAX);
        }
        let Some(batch) = &self.held else { return Ok(()) };
        if batch.too_slow || batch.tries >= HAND_OVERS_MAX {
            dispatch::put_back(store, &self.own.item_type, &batch.id).await?;
            let (tried, halved) = (batch.count(), batch.too_slow);
            self.held = None;
            if !halved {
                self.halve(tried);
            }
            return Ok(());
        }
        dispatch::keep(store, &self.own.item_type, &batch.id).await?;
        self.hand_over(me).await
    }

    /// Trouble that passes keeps the batch; after any other its claims become stale, and count.
    async fn hand_over(&mut self, me: NodeId) -> Result<(), StoreError> {
        let Some(mut batch) = self.held.take() else { return Ok(()) };
        let context = Arc::clone(&self.own.context);
        let started = Instant::now();
        let done = match dispatch::hand_over(&context.store, me, &self.own.item_type, &batch.id, &batch.orders).await {
            Ok(Some(done)) => done,
            // This node is no member any more: until it is one again, if the claims are still its own then.
            Ok(None) => {
                self.held = Some(batch);
                return Ok(());
            }
            Err(error) => {
                self.too_much(&error, batch.count());
                batch.tries += 1;
                batch.too_slow = matches!(error, StoreError::TooSlow { .. });
                self.held = Some(batch).filter(|_| error.is_transient());
                return Err(error);
            }
        };
        self.went_well(&batch, started.elapsed());
        let metrics = &context.metrics.dispatch;
        metrics.started.inc_by(u64::from(done.dispatched));
        add(&self.own.seen.handed_over, done.dispatched);
        add(&self.own.seen.not_started, done.failed);
        metrics.start_failures.inc_by(u64::from(done.failed));
        metrics.dead_letters.inc_by(u64::from(done.dead));
        if done.lost > 0 {
            tracing::warn!(batch = batch.id, lost = done.lost, "claims of this batch were somebody else's by then");
        }
        if done.failed > 0 {
            tracing::warn!(batch = batch.id, failed = done.failed, dead = done.dead, "items could not be started");
        }
        context.wake();
        Ok(())
    }

    /// The same again would take as long: less of it may not.
    fn too_much(&mut self, error: &StoreError, tried: u32) {
        if matches!(error, StoreError::TooSlow { .. }) {
            self.halve(tried);
        }
    }

    fn halve(&mut self, tried: u32) {
        self.bite.halve(tried);
        let at_a_time = self.bite.of(u32::MAX);
        self.own.seen.at_a_time.store(u64::from(at_a_time), Ordering::Relaxed);
        self.own.context.metrics.dispatch.batches_halved.inc();
        let item_type = &self.own.item_type;
        tracing::warn!(item_type, tried, at_a_time, "the database would not take so many items: fewer at a time now");
    }

    fn went_well(&mut self, batch: &Batch, took: Duration) {
        let (took, limit) = (took.max(batch.claim_took), self.own.context.store.config().statement_timeout);
        if self.bite.done(batch.count(), batch.configured, took, limit) {
            let at_a_time = if self.bite.is_whole() { 0 } else { self.bite.of(u32::MAX) };
            self.own.seen.at_a_time.store(u64::from(at_a_time), Ordering::Relaxed);
            let item_type = &self.own.item_type;
            tracing::info!(
                item_type,
                at_a_time,
                "that was quick: more items at a time; 0 is as many as are configured"
            );
        }
    }

    async fn steps(&self) -> Result<(), StoreError> {
        let context = &self.own.context;
        loop {
            let done = dispatch::hand_over_steps(&context.store, &self.own.item_type).await?;
            add(&self.own.seen.steps, done.started);
            context.metrics.dispatch.dead_letters.inc_by(u64::from(done.dead));
            if done.dead > 0 {
                tracing::warn!(item_type = self.own.item_type, dead = done.dead, "steps could not be started");
            }
            context.wake();
            if done.started + done.dead < STEPS_MAX {
                return Ok(());
            }
        }
    }
}

fn add(figure: &AtomicU64, more: u32) {
    figure.fetch_add(u64::from(more), Ordering::Relaxed);
}
