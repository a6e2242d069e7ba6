//! GroupActor: one lane's FIFO. One message at a time, from its turn to its outcome on record.
//!
//! A thin shell around [`GroupState`]: it does what the state says and tells it what happened. It holds a place at its
//! endpoint from before a message's begin to the end of its call, and its credit for as long as it has work, and awaits
//! every step in `handle`: that is what makes it a queue. With nobody waiting for its place, it goes on with the group's
//! next message, begun in the transaction that wrote the last outcome; otherwise it gives the place up as soon as the
//! call is over, and asks for another one later.
//!
//! If it dies, its place and credit come back by themselves. An attempt that had not reached a caller is provably
//! unsent; any other is in doubt, and both are told apart by the in-flight row and [`crate::attempts`].

use ractor::{Actor, ActorProcessingErr, ActorRef};
use railyard_core::attempt::AttemptState;
use railyard_core::group::{Effect, Event, GroupState};
use railyard_core::limits::NOT_STARTED_WAIT;
use railyard_core::settlement::{EndStatus, Next, settle};
use railyard_core::{AttemptId, CallOutcome, ErrorCode, Lane, Message, NodeId, SequenceId, Settlement};
use railyard_rail::{Claim, Place};
use railyard_store::discover::{Head, Hint};
use railyard_store::work::{BeginRequest, Ended, Late, Settled};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;
use uuid::Uuid;

use super::global_buffer::{self, Rested};
use super::governor;
use super::limiter::Turn;
use super::pool_keeper;
use super::rail_caller::Job;
use super::rail_caller_pool;
use super::settler::{self, BeginAnswer, Begun, SettleAnswer};
use crate::attempts::Guard;
use crate::call_slots::CallSlot;
use crate::context::Context;
use crate::limits::{Held, LimitSet};
use crate::metrics::End;
use crate::pools::PoolSlot;

/// How often a group may ask for a place again before others take its room in memory.
const ROUNDS_MAX: u32 = 8;

/// What it is told.
#[derive(ractor_cluster::RactorMessage)]
pub(crate) enum Msg {
    /// The lane may have something due that goes there; the credit is held while that lasts.
    Hinted(Box<Hint>, Head, OwnedSemaphorePermit),
}

/// The actor.
pub(crate) struct GroupActor;

/// Its state.
pub(crate) struct State {
    context: Context,
    lane: Lane,
    state: GroupState,
}

/// What a lane holds while it works. Dropped at rest, or with the actor.
struct Work {
    hint: Hint,
    head: Head,
    place: Option<Place>,
    /// The right to have a call running, and the credit that came with the hint.
    call_slot: Option<CallSlot>,
    credit: OwnedSemaphorePermit,
    /// The limits that its calls are under, and the slot of the next one. None where there are limits: the rail is
    /// stopped, so nothing is begun, or what is begun is not called.
    set: Option<Arc<LimitSet>>,
    held: Option<Held>,
    /// To a connection that is open when that slot begins.
    claim: Option<Claim>,
    /// The slot of its rail's pool, if there is one.
    pool_slot: Option<PoolSlot>,
    /// The group may have more, and gives its room in memory to others.
    more: bool,
    /// How often it has given way and asked for a place again.
    rounds: u32,
    attempt: Option<Guard>,
    /// Under which membership and since when the current message is begun.
    begun: Option<(NodeId, Duration)>,
    outcome_at: Duration,
    epoch: railyard_core::Epoch,
    /// The job ends with this attempt, once that is written.
    end: Option<End>,
}

impl Actor for GroupActor {
    type Msg = Msg;
    type State = State;
    type Arguments = (Lane, Context);

    async fn pre_start(&self, _: ActorRef<Msg>, (lane, context): Self::Arguments) -> Result<State, ActorProcessingErr> {
        Ok(State { context, lane, state: GroupState::Resting })
    }

    async fn handle(&self, _: ActorRef<Msg>, message: Msg, state: &mut State) -> Result<(), ActorProcessingErr> {
        match message {
            Msg::Hinted(hint, head, credit) => {
                // Boxed, so that an actor at rest, of which there are many, does not keep the room that work takes.
                Box::pin(state.work(*hint, head, credit)).await?;
            }
        }
        Ok(())
    }
}

impl State {
    /// From a hint to rest.
    async fn work(&mut self, hint: Hint, head: Head, credit: OwnedSemaphorePermit) -> Result<(), ActorProcessingErr> {
        let epoch = hint.epoch;
        let mut work = Work {
            hint,
            head,
            place: None,
            call_slot: None,
            credit,
            set: None,
            held: None,
            claim: None,
            pool_slot: None,
            more: false,
            rounds: 0,
            attempt: None,
            begun: None,
            outcome_at: Duration::ZERO,
            epoch,
            end: None,
        };
        let mut event = Event::Hinted;
        loop {
            let (state, effect) = self.state.apply(event)?;
            self.state = state;
            event = match effect {
                Effect::TakePlace => self.take_place(&mut work).await,
                Effect::Begin => self.begin(&mut work).await,
                Effect::Call(message) => self.call(&mut work, *message).await,
                Effect::Settle(settlement) => self.settle(&mut work, *settlement).await,
                Effect::Rest { tidy } => {
                    self.rest(work, tidy);
                    return Ok(());
                }
            };
        }
    }

    async fn take_place(&self, work: &mut Work) -> Event {
        work.pool_slot = None;
        let head = &work.head;
        let place = tokio::select! {
            place = self.context.endpoints.take(&head.endpoint) => place,
            () = self.context.stopping.wait() => return Event::Refused,
        };
        match place {
            Ok(place) => {
                work.set = self.context.limits.of(&head.rail_type, &head.endpoint);
                tokio::select! {
                    taken = self.take_slots(work) => {
                        work.place = Some(place);
                        if taken { Event::PlaceTaken } else { Event::Refused }
                    }
                    () = self.context.stopping.wait() => Event::Refused,
                }
            }
            Err(refused) => {
                tracing::debug!(lane = %self.lane, endpoint = head.endpoint, %refused, "no place");
                Event::Refused
            }
        }
    }

    /// A call slot, and a slot of its limits, if there are any. Whoever waits for the latter holds a call slot, so only as
    /// many do as there may be slots soon. False: nobody is there to ask.
    async fn take_slots(&self, work: &mut Work) -> bool {
        // A switch is looked at when the call is made.
        let limits = work.set.clone().filter(|set| !set.is_switch());
        if limits.is_some() {
            // An endpoint that may be dead takes nothing but its own places.
            let claim = self.context.client.claim(&work.head.endpoint);
            self.context.client.open(&claim).await;
            work.claim = Some(claim);
        }
        if let Some(pool) = self.context.pools.of(&work.head.rail_type).await {
            let keeper = &self.context.actors.pool_keeper;
            work.pool_slot = keeper.ask(|reply| pool_keeper::Msg::Want(pool, reply), NEVER).await;
            if work.pool_slot.is_none() {
                return false;
            }
        }
        let set = work.set.clone();
        let _turn = match &set {
            Some(set) => Some(set.turns.acquire().await),
            None => None,
        };
        work.call_slot = self.context.call_slots.take(&work.head.rail_type).await;
        // What became somebody else's while it waited needs no slot.
        if !self.context.lease.owns(work.hint.partition, work.hint.epoch) {
            return false;
        }
        if let Some(set) = &limits
            && !self.take_permit(work, set).await
        {
            return false;
        }
        self.keep_pool_slot(work).await
    }

    /// A slot that has waited for the others' may be about to become somebody else's.
    async fn keep_pool_slot(&self, work: &mut Work) -> bool {
        let Some(slot) = work.pool_slot.as_mut().filter(|slot| slot.has_aged()) else { return true };
        match self.context.store.pool_keep(&slot.pool, slot.taken).await {
            Ok(Some(asked)) => {
                slot.asked = asked;
                true
            }
            Ok(None) => false,
            Err(error) => {
                self.context.trouble("group_actor", &error);
                false
            }
        }
    }

    async fn take_permit(&self, work: &mut Work, set: &Arc<LimitSet>) -> bool {
        let turn = match &work.claim {
            Some(claim) => governor::permit_on(&self.context, set, claim).await,
            None => governor::permit(&self.context, set).await,
        };
        match turn {
            Some(Turn::Slot(held)) => {
                work.held = Some(held);
                true
            }
            // The begin finds the rail stopped, and its hint is put right; if it was begun before, it is not called.
            Some(Turn::Paused) => true,
            None => false,
        }
    }

    async fn begin(&self, work: &mut Work) -> Event {
        // A look that was under way when the node was told to stop may offer work after it was found quiet. And what is
        // somebody else's by now is found by its new owner.
        let stopping = self.context.stopping.is_set();
        if stopping || !self.context.lease.owns(work.hint.partition, work.hint.epoch) {
            return Event::BeginFailed;
        }
        let (request, guard) = self.request(work);
        let asked = self.context.actors.settler.ask(|reply| settler::Msg::Begin(request, reply), NEVER).await;
        match asked {
            Some(BeginAnswer::Begun(begun)) => Event::Begun(take(work, *begun, guard)),
            Some(BeginAnswer::Nothing) => {
                guard.done();
                Event::NothingToBegin
            }
            Some(BeginAnswer::NotBegun) => {
                guard.done();
                Event::BeginFailed
            }
            // The guard's end says that nothing was sent: should the row exist after all, the Reaper takes it back.
            Some(BeginAnswer::Failed) | None => Event::BeginFailed,
        }
    }

    async fn call(&self, work: &mut Work, message: Message) -> Event {
        self.context.metrics.attempts.with_label_values(&[AttemptState::Dispatching.as_str()]).inc();
        let Some((node, since)) = work.begun else { return Event::CallLost };
        let renewed = work.place.as_mut().map_or(Ok(()), Place::renew);
        let switch = work.set.clone().filter(|set| set.is_switch());
        let mut held = work.held.take();
        let not_started = |code, detail, after| {
            let outcome = CallOutcome::NotStarted { code, detail, after };
            (outcome, None, railyard_store::clock::boottime())
        };
        let (outcome, latency, ended_at) = match renewed {
            Err(refused) => not_started(ErrorCode::CircuitOpen, refused.to_string(), refused.wait),
            Ok(()) if held.is_none() && work.set.is_some() && switch.is_none() => {
                let detail = "its rail was stopped when it asked for a slot".to_owned();
                not_started(ErrorCode::PermitBurnt, detail, NOT_STARTED_WAIT)
            }
            Ok(()) if work.pool_slot.as_ref().is_some_and(|slot| !slot.is_fresh()) => {
                let detail = "it was begun long after its pool's slot was taken".to_owned();
                not_started(ErrorCode::PermitBurnt, detail, NOT_STARTED_WAIT)
            }
            Ok(()) => {
                if let Some(guard) = work.attempt.as_mut() {
                    guard.calling();
                }
                if let Some(slot) = work.pool_slot.as_mut() {
                    slot.calling();
                }
                let permit = held.as_ref().map(|held| held.permit);
                if let Some(held) = held.as_mut() {
                    held.calling();
                }
                let job = Box::new(Job { message: message.clone(), node, since, permit, switch });
                let called =
                    self.context.actors.callers.ask(|reply| rail_caller_pool::Msg::Call(job, reply), NEVER).await;
                let Some(called) = called else { return Event::CallLost };
                if let Some(slot) = work.pool_slot.as_mut() {
                    slot.ended();
                }
                if let Some(place) = work.place.as_mut() {
                    place.report(&called.outcome);
                }
                match (held, &called.outcome) {
                    (None, _) => {}
                    (Some(held), CallOutcome::NotStarted { code, .. }) if is_of_the_moment(*code) => held.not_used(),
                    // What is wrong for longer costs its slot, or one lane after the other would try in vain.
                    (Some(held), CallOutcome::NotStarted { .. }) => drop(held),
                    (Some(held), _) => held.used(),
                }
                (called.outcome, called.latency, called.ended_at)
            }
        };
        work.outcome_at = ended_at;
        let settlement = self.decide(&message, outcome, latency, since);
        tracing::info!(
            outbox_id = %message.outbox_id, group = %self.lane, sequence = message.sequence_id.map(|s| s.0),
            attempt = message.attempt_no, state = settlement.state.as_str(),
            code = settlement.code.map(|code| code.to_string()), latency_ms = latency.map(|l| l.as_millis()),
            "attempt ended"
        );
        self.remember(work, &message, &settlement);
        Event::CallEnded(Box::new(settlement))
    }

    fn decide(
        &self,
        message: &Message,
        outcome: CallOutcome,
        latency: Option<Duration>,
        since: Duration,
    ) -> Settlement {
        let backoff = match self.context.options.rails.get(&message.rail_type) {
            Some(rail) => rail.backoff(),
            None => railyard_core::backoff::Backoff::webhook(),
        };
        let elapsed = railyard_store::clock::boottime().saturating_sub(since);
        let now = message.claimed_at.checked_add(elapsed).unwrap_or(message.claimed_at);
        settle(message, outcome, latency, &backoff, now, rand::random())
    }

    /// A plain success moves the probe; anything else forgets it.
    fn remember(&self, work: &mut Work, message: &Message, settlement: &Settlement) {
        work.epoch = message.epoch;
        work.end = match settlement.next {
            Next::End { status, .. } => {
                Some(End { source: message.source.clone(), kind: message.kind.clone(), status })
            }
            Next::Again { .. } => None,
        };
        let Lane::Group(group) = &self.lane else { return };
        match (settlement.next, message.sequence_id) {
            (Next::End { status: EndStatus::Completed, .. }, Some(sequence)) => work.hint.probe = sequence.next(),
            (Next::End { .. } | Next::Again { .. }, _) => {
                work.hint.probe = SequenceId(0);
                self.context.probes.forget(group);
            }
        }
    }

    async fn settle(&self, work: &mut Work, settlement: Settlement) -> Event {
        let state = settlement.state;
        let may_have_more = self.may_have_more(&settlement);
        let (request, guard) = match may_have_more && self.goes_on(work) {
            true => {
                let (request, guard) = self.request(work);
                (Some(request), Some(guard))
            }
            false => {
                // The call is over: its place is the next one's, however long the outcome takes to be written.
                work.place = None;
                work.call_slot = None;
                work.pool_slot = None;
                work.claim = None;
                (None, None)
            }
        };
        let ended = Box::new(Ended { settlement, ended_at: work.outcome_at });
        let asked = self.context.actors.settler.ask(|reply| settler::Msg::Settle(ended, request, reply), NEVER).await;
        let Some(SettleAnswer { settled, next }) = asked else { return Event::SettleFailed };
        if let Some(guard) = work.attempt.take() {
            guard.done();
        }
        if let Settled::Applied { .. } = settled {
            self.context.metrics.attempts.with_label_values(&[state.as_str()]).inc();
            if let Some(end) = work.end.take() {
                self.context.metrics.ended_jobs.count(end);
            }
        }
        self.keep_probe(work, &settled);
        if may_have_more && !self.context.lease.owns(work.hint.partition, work.hint.epoch) {
            self.context.hand_on().await;
        }
        match (next, guard) {
            (BeginAnswer::Begun(begun), Some(guard)) => Event::Settled(Some(take(work, *begun, guard))),
            (BeginAnswer::Nothing, Some(guard)) => {
                guard.done();
                Event::Drained
            }
            (BeginAnswer::NotBegun, Some(guard)) => {
                guard.done();
                Event::Settled(None)
            }
            (BeginAnswer::Failed | BeginAnswer::Begun(_), _) => Event::Settled(None),
            (BeginAnswer::NotBegun | BeginAnswer::Nothing, None) if may_have_more => self.given_way(work, &settled),
            (BeginAnswer::NotBegun | BeginAnswer::Nothing, None) => Event::Settled(None),
        }
    }

    /// A group that has more asks for a place again, behind those that wait; after a few rounds its room in memory is
    /// others' too.
    fn given_way(&self, work: &mut Work, settled: &Settled) -> Event {
        match settled {
            Settled::Applied { more: true, .. } if work.rounds < ROUNDS_MAX && !self.context.stopping.is_set() => {
                work.rounds += 1;
                work.begun = None;
                Event::More
            }
            Settled::Applied { more: true, .. } | Settled::Late(_) => {
                work.more = true;
                Event::Settled(None)
            }
            Settled::Applied { more: false, .. } => Event::Drained,
        }
    }

    /// Only what was written as this node's own plain success is a bound for the next look.
    fn keep_probe(&self, work: &Work, settled: &Settled) {
        let Lane::Group(group) = &self.lane else { return };
        match settled {
            Settled::Applied { ended: Some(EndStatus::Completed), known_success: false, .. }
                if work.hint.probe.0 > 0 =>
            {
                self.context.probes.settled(group, work.epoch, SequenceId(work.hint.probe.0 - 1));
            }
            Settled::Applied { .. } => self.context.probes.forget(group),
            Settled::Late(late) => {
                self.context.probes.forget(group);
                match late {
                    Late::Already => {}
                    Late::Failure | Late::Flagged | Late::Taken | Late::Ended | Late::Unknown | Late::Foreign => {
                        tracing::warn!(lane = %self.lane, ?late, "the attempt had been given up before its result came");
                    }
                }
            }
        }
    }

    /// Whether another message of the group may be due now.
    fn may_have_more(&self, settlement: &Settlement) -> bool {
        let ends = match settlement.next {
            Next::End { blocks, .. } => !blocks,
            Next::Again { .. } => false,
        };
        ends && matches!(self.lane, Lane::Group(_))
    }

    /// Whether the next one may take this one's place: nobody waits for it, calls are not scarce, and the group is still
    /// this node's.
    fn goes_on(&self, work: &Work) -> bool {
        self.context.lease.owns(work.hint.partition, work.hint.epoch)
            && self.context.call_slots.is_free(&work.head.rail_type)
            && !self.context.stopping.is_set()
            // Where there are slots, each call has its turn.
            && work.set.as_ref().is_none_or(|set| set.is_switch())
            && work.pool_slot.is_none()
            && work.place.as_ref().is_some_and(|place| !place.has_waiters())
    }

    fn request(&self, work: &Work) -> (BeginRequest, Guard) {
        let attempt_id = match &work.pool_slot {
            Some(slot) => slot.taken.attempt_id,
            None => AttemptId(Uuid::now_v7()),
        };
        let request = BeginRequest {
            attempt_id,
            lane: self.lane.clone(),
            partition: work.hint.partition,
            epoch: work.hint.epoch,
            head: work.head.clone(),
            probe: work.hint.probe,
        };
        (request, self.context.attempts.register(attempt_id))
    }

    fn rest(&self, work: Work, tidy: bool) {
        let endpoint = work.head.endpoint.clone();
        // What was just taken over may have a call in flight elsewhere, whose end is told.
        let cool = tidy && work.begun.is_none() && !self.context.lease.is_fresh();
        let more = work.more;
        // Its hint is as old as its first message: it has to follow the head, or the group is always found first.
        let tidy = tidy || more;
        // Place, slot and credit are free before the buffer hears of it.
        let Work { place, call_slot, pool_slot, credit, .. } = work;
        drop((place, call_slot, pool_slot, credit));
        self.context
            .actors
            .buffer
            .cast(global_buffer::Msg::Rested(self.lane.clone(), Rested { endpoint, tidy, cool, more }));
    }
}

/// The Settler answers every submission, however long the database is away; if it dies, the reply port closes.
const NEVER: Duration = Duration::from_secs(24 * 3600);

fn take(work: &mut Work, begun: Begun, guard: Guard) -> Box<Message> {
    work.attempt = Some(guard);
    work.begun = Some((begun.node, begun.since));
    Box::new(begun.message)
}

/// Nothing is wrong with the job: the moment was.
fn is_of_the_moment(code: ErrorCode) -> bool {
    matches!(code, ErrorCode::PermitBurnt | ErrorCode::LeaseLost | ErrorCode::DeadlineTooClose | ErrorCode::Expired)
}
