//! Maintenance: days ahead, days gone, items and feeds past their retention, contexts without one, secrets whose rotation is over,
//! slots that nobody confirmed, and the sweep that should find nothing.
//!
//! Owns nothing. If it dies, the next one starts over; every node does the same work, and the database lets one at a
//! time through.

use std::time::Duration;

use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort};
use railyard_store::{StoreError, credentials, feeds, payments, rate};
use serde::Serialize;
use tokio::time::Instant;

use super::settler::answer;
use crate::context::Context;

const TICK: Duration = Duration::from_secs(30);
const DAYS_EVERY: Duration = Duration::from_secs(3600);
const SWEEP_EVERY: Duration = Duration::from_secs(300);
/// A transaction this old keeps so many dead rows alive that scans of the hot tables slow down.
const SNAPSHOT_ALARM: Duration = Duration::from_secs(600);

/// What it is told.
#[derive(ractor_cluster::RactorMessage)]
pub(crate) enum Msg {
    /// See what is due.
    Tick,
    /// For the live view and for tests.
    Observe(RpcReplyPort<Observed>),
}

/// Its observable state.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Observed {
    partitions_missing: i32,
    partitions_dropped: u64,
    repairs: u64,
    contexts_swept: u64,
    items_dropped: u64,
    feeds_dropped: u64,
    secrets_wiped: u64,
    slots_given_back: u64,
    failures: u64,
}

/// The actor.
pub(crate) struct Maintenance;

/// Its state.
pub(crate) struct State {
    context: Context,
    days_at: Option<Instant>,
    items_at: Option<Instant>,
    feeds_at: Option<Instant>,
    /// How far the contexts are looked through, and when that was done last.
    contexts: payments::Sweep,
    contexts_at: Option<Instant>,
    swept_at: Instant,
    seen: Observed,
}

impl Actor for Maintenance {
    type Msg = Msg;
    type State = State;
    type Arguments = Context;

    async fn pre_start(&self, myself: ActorRef<Msg>, context: Context) -> Result<State, ActorProcessingErr> {
        context.actors.maintenance.set(myself.clone());
        myself.cast(Msg::Tick)?;
        Ok(State {
            context,
            days_at: None,
            items_at: None,
            feeds_at: None,
            contexts: payments::Sweep::default(),
            contexts_at: None,
            swept_at: Instant::now(),
            seen: Observed::default(),
        })
    }

    async fn handle(&self, myself: ActorRef<Msg>, message: Msg, state: &mut State) -> Result<(), ActorProcessingErr> {
        match message {
            Msg::Tick => {
                state.round().await;
                myself.send_after(TICK, || Msg::Tick);
            }
            Msg::Observe(reply) => answer(reply, state.seen.clone()),
        }
        Ok(())
    }
}

impl State {
    /// Each step by itself: one that keeps failing keeps none of the others from being done.
    async fn round(&mut self) {
        let steps = [
            self.days().await,
            self.items().await,
            self.feeds().await,
            self.contexts().await,
            self.secrets().await,
            self.slots().await,
            self.sweep().await,
            self.look_at_snapshots().await,
        ];
        for outcome in steps {
            if let Err(error) = outcome {
                self.seen.failures += 1;
                self.context.trouble("maintenance", &error);
            }
        }
    }

    async fn days(&mut self) -> Result<(), StoreError> {
        if self.days_at.is_some_and(|at| at.elapsed() < DAYS_EVERY && self.seen.partitions_missing == 0) {
            return Ok(());
        }
        self.seen.partitions_missing = self.context.store.make_days().await?;
        let dropped = self.context.store.drop_days(self.context.options.retention).await?;
        if !dropped.is_empty() {
            tracing::info!(?dropped, "days past their retention dropped");
        }
        rate::tidy(&self.context.store).await?;
        self.seen.partitions_dropped += u64::try_from(dropped.len()).unwrap_or(0);
        self.days_at = Some(Instant::now());
        Ok(())
    }

    async fn items(&mut self) -> Result<(), StoreError> {
        if self.items_at.is_some_and(|at| at.elapsed() < DAYS_EVERY) {
            return Ok(());
        }
        self.items_at = Some(Instant::now());
        let dropped = payments::drop_completed(&self.context.store, self.context.options.retention.items_days).await?;
        if dropped > 0 {
            tracing::info!(dropped, "scheduled items that were completed and are past their retention are gone");
        }
        self.seen.items_dropped += dropped;
        Ok(())
    }

    /// After the items: what these leave behind of a feed is what decides.
    async fn feeds(&mut self) -> Result<(), StoreError> {
        if self.feeds_at.is_some_and(|at| at.elapsed() < DAYS_EVERY) {
            return Ok(());
        }
        self.feeds_at = Some(Instant::now());
        let dropped = feeds::drop_old(&self.context.store, self.context.options.retention.feeds_days).await?;
        if dropped > 0 {
            tracing::info!(dropped, "feeds that are past their retention are gone");
        }
        self.seen.feeds_dropped += dropped;
        Ok(())
    }

    /// A page at every tick, and once all were looked at, from the first again an hour later.
    async fn contexts(&mut self) -> Result<(), StoreError> {
        if self.contexts_at.is_some_and(|at| at.elapsed() < DAYS_EVERY) {
            return Ok(());
        }
        let swept = payments::sweep_contexts(&self.context.store, &mut self.contexts).await?;
        if swept > 0 {
            tracing::info!(swept, "contexts that nothing in the queue asks for are gone");
        }
        self.contexts_at = self.contexts.is_through.then(Instant::now);
        self.seen.contexts_swept += u64::from(swept);
        Ok(())
    }

    /// At every tick: what was replaced leaves the database within half a minute of its overlap.
    async fn secrets(&mut self) -> Result<(), StoreError> {
        let wiped = credentials::wipe_retired(&self.context.store, &self.context.keys).await?;
        if wiped > 0 {
            tracing::info!(wiped, "secrets whose rotation is over were wiped");
        }
        self.seen.secrets_wiped += u64::try_from(wiped).unwrap_or(0);
        Ok(())
    }

    /// At every tick: slots that nobody confirmed in time are free again within half a minute.
    async fn slots(&mut self) -> Result<(), StoreError> {
        let given_back = rate::give_back(&self.context.store).await?;
        if given_back > 0 {
            tracing::info!(given_back, "slots that were not confirmed in time are free again");
        }
        self.seen.slots_given_back += given_back;
        Ok(())
    }

    async fn sweep(&mut self) -> Result<(), StoreError> {
        if self.swept_at.elapsed() < SWEEP_EVERY {
            return Ok(());
        }
        self.swept_at = Instant::now();
        for group in self.context.store.sweep().await? {
            tracing::error!(group, "discovery had lost this group: repaired; this is a bug");
            self.context.metrics.repairs.inc();
            self.seen.repairs += 1;
        }
        Ok(())
    }

    async fn look_at_snapshots(&mut self) -> Result<(), StoreError> {
        let oldest = self.context.store.oldest_snapshot().await?;
        self.context.metrics.oldest_snapshot_seconds.set(i64::try_from(oldest.as_secs()).unwrap_or(i64::MAX));
        if oldest >= SNAPSHOT_ALARM {
            tracing::warn!(age_s = oldest.as_secs(), "an old transaction keeps dead rows of the hot tables alive");
        }
        Ok(())
    }
}
