//! Limiter: asks for the slots of one set of limits, for all lanes of this node.
//!
//! Owns the queue of those that wait, each lane once. Woken by a lane that wants a slot and by the moment that the last
//! denial named. One question is under way at a time, for as many slots as there are lanes, within bounds; slots go to
//! the lanes in the order of asking. So a group with a long backlog, which is one lane, stands behind everybody who came
//! before its last call.
//!
//! What a lane does not use, since it finds nothing to begin or its partition is somebody else's by now, goes to the next
//! one while there is time for a begin; else to the limit's row, which may grant it again.
//!
//! The database away means waiting: nobody counts by himself. If it dies, whoever waits hears of it and comes to rest;
//! slots that were granted to nobody pass unused.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort};
use railyard_core::limiter::{Ask, Denial, Grant, HORIZON, LEAD, Permit, Unused, wait_after_late};
use railyard_store::clock::boottime;
use railyard_store::limiter::Answered;
use serde::Serialize;

use super::settler::answer;
use crate::context::Context;
use crate::limits::{Held, LimitSet};

/// After an error of the database, and before the first answer about its clock.
const TRY_AGAIN: Duration = Duration::from_millis(100);
/// A denial that names a moment further away is asked about earlier: a row may have started anew meanwhile.
const WAIT_MAX: Duration = Duration::from_secs(5);
/// Nodes that were told of the same moment ask within so long of it, each at a moment of its own, and who has just had
/// slots so much later, whether its lanes wait already or come when their calls are over: else the one that is nearest to
/// the database, or whose calls end when the next slot may be had, would be the first each time. Slots do not come later
/// by it, since they lie further ahead.
const SPREAD: Duration = Duration::from_millis(50);

/// Which of the moments that were set for a question.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Moment(u64);

/// What it is told.
#[derive(ractor_cluster::RactorMessage)]
pub(crate) enum Msg {
    /// A lane wants a slot.
    Want(RpcReplyPort<Turn>),
    /// It is time to ask; nothing, if another moment was set meanwhile.
    Ask(Moment),
    /// A lane will not use its slot.
    Unused(Permit, Unused),
    /// For the live view and for tests.
    Observe(RpcReplyPort<Observed>),
}

/// What a lane is told.
pub(crate) enum Turn {
    /// It may call then.
    Slot(Held),
    /// The rail is stopped.
    Paused,
}

/// Its observable state.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Observed {
    keys: Vec<String>,
    waiting: usize,
    questions: u64,
    /// Slots that a row took back.
    taken_back: u64,
    last_denial: Option<&'static str>,
}

/// The actor.
pub(crate) struct Limiter;

/// Its state.
pub(crate) struct State {
    context: Context,
    set: Arc<LimitSet>,
    queue: VecDeque<RpcReplyPort<Turn>>,
    /// The last moment that was set, and whether a question is due then.
    moment: Moment,
    scheduled: bool,
    /// Steps of the clock for which a window was burnt.
    steps_burnt: u64,
    questions: u64,
    taken_back: u64,
    /// It has had slots, and leaves the next ones to others until then.
    stands_back: Duration,
    /// Grants in a row that came too late to be used.
    late: u32,
    last_denial: Option<Denial>,
}

impl Actor for Limiter {
    type Msg = Msg;
    type State = State;
    type Arguments = (Context, Arc<LimitSet>);

    async fn pre_start(&self, _: ActorRef<Msg>, (context, set): Self::Arguments) -> Result<State, ActorProcessingErr> {
        // A limiter that comes after a step does not know what was granted before it.
        Ok(State {
            context,
            set,
            queue: VecDeque::new(),
            moment: Moment::default(),
            scheduled: false,
            steps_burnt: 0,
            questions: 0,
            taken_back: 0,
            stands_back: Duration::ZERO,
            late: 0,
            last_denial: None,
        })
    }

    async fn handle(&self, myself: ActorRef<Msg>, message: Msg, state: &mut State) -> Result<(), ActorProcessingErr> {
        match message {
            Msg::Want(reply) => {
                state.queue.push_back(reply);
                if !state.scheduled {
                    state.schedule(&myself, state.stand_back())?;
                }
            }
            Msg::Ask(moment) if moment != state.moment => {}
            Msg::Ask(_) => {
                state.scheduled = false;
                state.queue.retain(|reply| !reply.is_closed());
                if !state.queue.is_empty() {
                    let wait = state.ask(&myself).await;
                    if !state.queue.is_empty() {
                        state.schedule(&myself, wait)?;
                    }
                }
            }
            Msg::Unused(permit, unused) => state.pass_on(&myself, permit, unused).await?,
            Msg::Observe(reply) => answer(reply, state.observe()),
        }
        Ok(())
    }
}

impl State {
    fn schedule(&mut self, myself: &ActorRef<Msg>, wait: Duration) -> Result<(), ActorProcessingErr> {
        self.moment.0 += 1;
        self.scheduled = true;
        let moment = self.moment;
        if wait.is_zero() {
            myself.cast(Msg::Ask(moment))?;
        } else {
            myself.send_after(wait, move || Msg::Ask(moment));
        }
        Ok(())
    }

    fn stand_back(&self) -> Duration {
        self.stands_back.saturating_sub(boottime()).min(WAIT_MAX)
    }

    /// One question. How long to wait before the next, if somebody still waits.
    async fn ask(&mut self, myself: &ActorRef<Msg>) -> Duration {
        self.questions += 1;
        if self.set.is_switch() {
            return self.ask_switch().await;
        }
        let (steps, wait) = {
            let watch = self.context.limits.watch();
            (watch.steps(), watch.wait(boottime(), self.set.window()))
        };
        match wait {
            Some(Duration::ZERO) => {}
            Some(wait) => return wait.min(WAIT_MAX),
            None => return TRY_AGAIN,
        }
        let want = u32::try_from(self.queue.len().min(self.set.batch_max)).unwrap_or(1);
        let ask = Ask { limits: &self.set.limits, want, burn: steps != self.steps_burnt };
        match self.context.store.limiter_grant(&self.set.keys, &ask).await {
            Ok(answered) => {
                // Where a row was missing, the others were left as they were.
                if !matches!(answered.answer, Grant::Denied { why: Denial::Made, .. }) {
                    self.steps_burnt = steps;
                }
                self.answered(myself, steps, &answered).await
            }
            Err(error) => {
                self.context.trouble("limiter", &error);
                TRY_AGAIN
            }
        }
    }

    async fn answered(&mut self, myself: &ActorRef<Msg>, steps: u64, answered: &Answered<Grant>) -> Duration {
        let Answered { sent, replied, answer } = *answered;
        let (Grant::Slots { now_us, .. } | Grant::Denied { now_us, .. }) = answer;
        let usable = self.context.limits.watch().usable(steps, sent, replied, now_us);
        match answer {
            Grant::Slots { now_us, first_us, spacing_us, count } => {
                self.last_denial = None;
                self.set.count_granted(count);
                let ahead = Duration::from_micros(u64::try_from(first_us - now_us).unwrap_or(0))
                    + Duration::from_micros(u64::try_from(spacing_us).unwrap_or(0)) * count;
                let next = ahead.saturating_sub(HORIZON);
                self.stands_back = match next {
                    // There is more to be had now.
                    Duration::ZERO => Duration::ZERO,
                    next => replied + next + SPREAD + SPREAD.mul_f64(rand::random()),
                };
                let mut is_late = false;
                for slot in 0..i64::from(count) {
                    let unused = Unused { slot_us: first_us + slot * spacing_us, granted_us: now_us };
                    match Permit::of(sent, replied, unused.slot_us - now_us) {
                        // The rows start anew.
                        _ if !usable => self.set.burn(),
                        Some(permit) => self.give(myself, permit, unused).await,
                        None => {
                            self.take_back(unused).await;
                            is_late = true;
                        }
                    }
                }
                self.late = if is_late { self.late.saturating_add(1) } else { 0 };
                if is_late { wait_after_late(self.late, replied.saturating_sub(sent)) } else { self.stand_back() }
            }
            Grant::Denied { now_us, ask_us, why } => {
                if self.last_denial != Some(why) && why != Denial::Full {
                    tracing::info!(keys = ?self.set.keys, why = why.as_str(), "no slots");
                }
                self.last_denial = Some(why);
                if why == Denial::Paused {
                    self.refuse_all();
                }
                let wait = Duration::from_micros(u64::try_from(ask_us - now_us).unwrap_or(0));
                self.set.denied_until(boottime() + wait);
                (wait + SPREAD.mul_f64(rand::random())).min(WAIT_MAX)
            }
        }
    }

    async fn ask_switch(&mut self) -> Duration {
        if self.set.leave(boottime()).is_none() {
            match self.context.store.limiter_paused(&self.set.keys[0]).await {
                Ok(Answered { answer: true, .. }) => {
                    self.set.switched_off();
                    self.last_denial = Some(Denial::Paused);
                    self.refuse_all();
                    return Duration::ZERO;
                }
                Ok(Answered { sent, answer: false, .. }) => {
                    self.last_denial = None;
                    self.set.switched_on(sent);
                }
                Err(error) => {
                    self.context.trouble("limiter", &error);
                    return TRY_AGAIN;
                }
            }
        }
        while let Some(reply) = self.queue.pop_front() {
            match self.set.leave(boottime()) {
                Some(held) => answer(reply, Turn::Slot(held)),
                None => {
                    self.queue.push_front(reply);
                    return Duration::ZERO;
                }
            }
        }
        Duration::ZERO
    }

    /// To the first who still waits.
    async fn give(&mut self, myself: &ActorRef<Msg>, permit: Permit, unused: Unused) {
        while let Some(reply) = self.queue.pop_front() {
            if !reply.is_closed() {
                return answer(reply, Turn::Slot(self.set.hold(permit, unused, myself.clone())));
            }
        }
        self.take_back(unused).await;
    }

    /// A lane's slot that it does not use: whoever gets it has to begin before it.
    async fn pass_on(
        &mut self,
        myself: &ActorRef<Msg>,
        permit: Permit,
        unused: Unused,
    ) -> Result<(), ActorProcessingErr> {
        let taken_back = self.taken_back;
        if boottime() + LEAD <= permit.not_before {
            self.give(myself, permit, unused).await;
        } else {
            self.take_back(unused).await;
        }
        // What a row took back may be had before the moment that the last denial named.
        if self.taken_back > taken_back && !self.queue.is_empty() {
            self.schedule(myself, Duration::ZERO)?;
        }
        Ok(())
    }

    /// To its rows, if slots are so far apart that this helps anybody; else it is burnt.
    async fn take_back(&mut self, unused: Unused) {
        if self.set.takes_back {
            match self.context.store.limiter_take_back(&self.set.keys, &self.set.limits, unused).await {
                Ok(true) => {
                    self.taken_back += 1;
                    self.stands_back = Duration::ZERO;
                    self.set.denied_until(Duration::ZERO);
                }
                Ok(false) => {}
                Err(error) => self.context.trouble("limiter", &error),
            }
        }
        self.set.burn();
    }

    /// They come to rest by a begin that finds the rail stopped.
    fn refuse_all(&mut self) {
        for reply in self.queue.drain(..) {
            answer(reply, Turn::Paused);
        }
    }

    fn observe(&self) -> Observed {
        Observed {
            keys: self.set.keys.clone(),
            waiting: self.queue.len(),
            questions: self.questions,
            taken_back: self.taken_back,
            last_denial: self.last_denial.map(Denial::as_str),
        }
    }
}
