//! Listener: hears that something was committed and wakes the Poller.
//!
//! Owns a connection that does nothing but LISTEN. The first notification of a burst wakes at once; what comes within
//! the debounce window after it is one more wake-up at its end. After every (re)connection it wakes once, since what
//! was committed while nobody listened is not told again. A silent connection is asked for a sign of life.
//!
//! If it dies or the database is away, the poll interval finds everything all the same.

use std::sync::atomic::Ordering;
use std::time::Duration;

use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort};
use railyard_store::StoreError;
use railyard_store::listen::{Heard, Listening};
use serde::Serialize;
use tokio::time::{Instant, timeout, timeout_at};

use super::settler::answer;
use super::{cache_keeper, lease_keeper};
use crate::context::Context;

/// One turn of waiting: short enough that the actor hears a stop soon.
const TURN: Duration = Duration::from_millis(500);
/// After this much silence the connection has to answer.
const SILENCE_MAX: Duration = Duration::from_secs(5);
/// Longest wait between two connection attempts.
const RECONNECT_LONGEST: Duration = Duration::from_secs(2);

/// What it is told.
#[derive(ractor_cluster::RactorMessage)]
pub(crate) enum Msg {
    /// Wait for the next notification, or connect.
    Turn,
    /// For the live view and for tests.
    Observe(RpcReplyPort<Observed>),
}

/// Its observable state.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Observed {
    connected: bool,
    connections: u64,
    notifications: u64,
    wakeups: u64,
}

/// The actor.
pub(crate) struct Listener;

/// Its state.
pub(crate) struct State {
    context: Context,
    listening: Option<Listening>,
    reconnect: Duration,
    heard_at: Instant,
    seen: Observed,
}

impl Actor for Listener {
    type Msg = Msg;
    type State = State;
    type Arguments = Context;

    async fn pre_start(&self, myself: ActorRef<Msg>, context: Context) -> Result<State, ActorProcessingErr> {
        context.actors.listener.set(myself.clone());
        myself.cast(Msg::Turn)?;
        Ok(State {
            context,
            listening: None,
            reconnect: Duration::from_millis(50),
            heard_at: Instant::now(),
            seen: Observed::default(),
        })
    }

    async fn handle(&self, myself: ActorRef<Msg>, message: Msg, state: &mut State) -> Result<(), ActorProcessingErr> {
        match message {
            Msg::Turn => {
                if let Err(error) = state.turn().await {
                    state.lost(&error).await;
                }
                myself.cast(Msg::Turn)?;
            }
            Msg::Observe(reply) => answer(reply, state.seen.clone()),
        }
        Ok(())
    }
}

impl State {
    async fn turn(&mut self) -> Result<(), StoreError> {
        let Some(listening) = self.listening.as_mut() else { return self.connect().await };
        match timeout(TURN, listening.next()).await {
            Ok(heard) => {
                self.heard_at = Instant::now();
                self.heard(&heard?);
                self.debounce().await
            }
            Err(_) if self.heard_at.elapsed() >= SILENCE_MAX => {
                let heard = listening.check(SILENCE_MAX).await?;
                self.heard_at = Instant::now();
                if heard {
                    self.wake();
                    self.context.actors.cache_keeper.cast(cache_keeper::Msg::Flush);
                }
                Ok(())
            }
            Err(_) => Ok(()),
        }
    }

    async fn connect(&mut self) -> Result<(), StoreError> {
        self.listening = Some(self.context.store.listen().await?);
        self.seen.connected = true;
        self.context.listening.store(true, Ordering::Relaxed);
        self.seen.connections += 1;
        self.reconnect = Duration::from_millis(50);
        self.heard_at = Instant::now();
        // What was committed before LISTEN took effect.
        self.context.wake();
        self.context.actors.cache_keeper.cast(cache_keeper::Msg::Flush);
        Ok(())
    }

    fn heard(&mut self, heard: &Heard) {
        self.seen.notifications += 1;
        match heard {
            Heard::Work => self.wake(),
            Heard::Cache(_) => {
                self.context.actors.cache_keeper.cast(cache_keeper::Msg::Flush);
            }
            Heard::Members => self.members_changed(),
        }
    }

    fn members_changed(&self) {
        self.context.actors.lease_keeper.cast(lease_keeper::Msg::Look);
    }

    /// Gathers the rest of a burst: one more wake-up at the end if there was any.
    async fn debounce(&mut self) -> Result<(), StoreError> {
        let Some(listening) = self.listening.as_mut() else { return Ok(()) };
        let end = Instant::now() + self.context.options.debounce;
        let (mut work, mut cache, mut members) = (false, false, false);
        while let Ok(heard) = timeout_at(end, listening.next()).await {
            self.seen.notifications += 1;
            match heard? {
                Heard::Work => work = true,
                Heard::Cache(_) => cache = true,
                Heard::Members => members = true,
            }
        }
        if work {
            self.wake();
        }
        if cache {
            self.context.actors.cache_keeper.cast(cache_keeper::Msg::Flush);
        }
        if members {
            self.members_changed();
        }
        Ok(())
    }

    fn wake(&mut self) {
        self.seen.wakeups += 1;
        self.context.metrics.notify_wakeups.inc();
        self.context.wake();
    }

    async fn lost(&mut self, error: &StoreError) {
        // Until it is back, the Poller finds what is due.
        self.context.trouble("listener", error);
        self.listening = None;
        self.seen.connected = false;
        self.context.listening.store(false, Ordering::Relaxed);
        tokio::time::sleep(self.reconnect).await;
        self.reconnect = (self.reconnect * 2).min(RECONNECT_LONGEST);
    }
}
