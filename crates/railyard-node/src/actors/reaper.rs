//! Reaper: in-flight rows that no live call will ever settle.
//!
//! Owns nothing. At least every second it compares the in-flight rows of our own epochs with the attempts that are live in this
//! process: one that was provably never called is settled NOT_STARTED; one that nobody knows is in doubt, and healed
//! with those of dead nodes once its deadline has passed. S2's rule by age, for rows that nobody owns at all, is applied
//! once an interval. If it dies, the next one sees the same rows.

use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort};
use railyard_core::attempt::AttemptState;
use railyard_core::settlement::Next;
use railyard_core::{AttemptId, ErrorCode, Lane, Settlement};
use railyard_store::StoreError;
use railyard_store::clock::boottime;
use railyard_store::heal::{HEAL_BATCH, HealRules, OwnInFlight};
use railyard_store::work::{Batch, Ended, Settled};
use serde::Serialize;
use std::time::Duration;
use tokio::time::Instant;

use super::settler::answer;
use crate::attempts::Stage;
use crate::context::Context;

/// Rows of our own partitions wait no longer than this past their deadline.
const ROUND_EVERY: Duration = Duration::from_secs(1);

/// What it is told.
#[derive(ractor_cluster::RactorMessage)]
pub(crate) enum Msg {
    /// Compare and heal.
    Tick,
    /// For the live view and for tests.
    Observe(RpcReplyPort<Observed>),
}

/// Its observable state.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Observed {
    rounds: u64,
    healed: u64,
    held: u64,
    never_sent: u64,
    failures: u64,
}

/// The actor.
pub(crate) struct Reaper;

/// Its state.
pub(crate) struct State {
    context: Context,
    /// When the rule by age was last applied.
    aged_at: Instant,
    seen: Observed,
}

impl Actor for Reaper {
    type Msg = Msg;
    type State = State;
    type Arguments = Context;

    async fn pre_start(&self, myself: ActorRef<Msg>, context: Context) -> Result<State, ActorProcessingErr> {
        context.actors.reaper.set(myself.clone());
        myself.send_after(context.options.reaper_interval.min(ROUND_EVERY), || Msg::Tick);
        Ok(State { context, aged_at: Instant::now(), seen: Observed::default() })
    }

    async fn handle(&self, myself: ActorRef<Msg>, message: Msg, state: &mut State) -> Result<(), ActorProcessingErr> {
        match message {
            Msg::Tick => {
                if let Err(error) = state.round().await {
                    state.seen.failures += 1;
                    state.context.trouble("reaper", &error);
                }
                myself.send_after(state.context.options.reaper_interval.min(ROUND_EVERY), || Msg::Tick);
            }
            Msg::Observe(reply) => answer(reply, state.seen.clone()),
        }
        Ok(())
    }
}

impl State {
    async fn round(&mut self) -> Result<(), StoreError> {
        let Some(membership) = self.context.lease.good() else { return Ok(()) };
        self.seen.rounds += 1;
        let own = self.context.store.own_in_flight(membership.node).await?;
        let (mut never_sent, mut orphans) = (Vec::new(), Vec::new());
        for row in own {
            match self.context.attempts.stage(row.attempt_id) {
                Some(Stage::Live) => {}
                Some(Stage::NeverCalled) => never_sent.push(row),
                None => orphans.push(row.attempt_id),
            }
        }
        self.take_back(never_sent).await?;
        // A node that died with a thousand calls leaves as many rows: batch after batch.
        while self.heal(membership.node, &orphans).await? {}
        Ok(())
    }

    /// Begun, and provably not sent by this process: back into its place at once.
    async fn take_back(&mut self, rows: Vec<OwnInFlight>) -> Result<(), StoreError> {
        if rows.is_empty() {
            return Ok(());
        }
        let attempts: Vec<AttemptId> = rows.iter().map(|row| row.attempt_id).collect();
        let settle = rows.into_iter().map(|row| Ended { settlement: never_sent(row), ended_at: boottime() }).collect();
        let batch = Batch { settle, begin: Vec::new(), slack: Duration::ZERO };
        let done = self.context.store.settle(&batch).await.map_err(|failed| failed.error)?;
        for attempt in &attempts {
            self.context.attempts.forget(*attempt);
            if let Some(Settled::Applied { .. }) = done.settled.get(attempt) {
                self.context.metrics.attempts.with_label_values(&[AttemptState::NotStarted.as_str()]).inc();
            }
        }
        tracing::info!(attempts = attempts.len(), "begins whose commit was lost: taken back, nothing had been sent");
        self.seen.never_sent += u64::try_from(attempts.len()).unwrap_or(0);
        self.context.wake();
        Ok(())
    }

    /// Heals one batch; whether there may be another.
    async fn heal(&mut self, node: railyard_core::NodeId, orphans: &[AttemptId]) -> Result<bool, StoreError> {
        let options = &self.context.options;
        let aged = self.aged_at.elapsed() >= options.reaper_interval;
        let zombie_after = if aged { options.zombie_after } else { Duration::MAX };
        let rules = HealRules { lease: options.lease, zombies_max: options.zombies_max, zombie_after };
        let healed = self.context.store.heal(node, orphans, rules).await?;
        if aged {
            self.aged_at = Instant::now();
        }
        if healed.is_empty() {
            return Ok(false);
        }
        for one in &healed {
            if let Lane::Group(group) = &one.lane {
                self.context.probes.forget(group);
            }
            self.context.metrics.reaper_requeues.inc();
            let state = if one.failed { AttemptState::Failed } else { AttemptState::ZombieRequeue };
            self.context.metrics.attempts.with_label_values(&[state.as_str()]).inc();
            self.seen.healed += 1;
            self.seen.held += u64::from(one.held);
            tracing::warn!(
                attempt_id = %one.attempt_id, outbox_id = %one.outbox_id, group = %one.lane, held = one.held,
                "attempt given up: its outcome is unknown"
            );
        }
        self.context.wake();
        Ok(healed.len() >= HEAL_BATCH)
    }
}

fn never_sent(row: OwnInFlight) -> Settlement {
    Settlement {
        attempt_id: row.attempt_id,
        outbox_id: row.outbox_id,
        lane: row.lane,
        attempt_no: row.attempt_no,
        state: AttemptState::NotStarted,
        next: Next::Again { after: Duration::ZERO, spends_budget: false },
        code: Some(ErrorCode::CommitLost),
        detail: Some("the commit of its begin was not answered in time".to_owned()),
        answer: None,
        latency: None,
    }
}
