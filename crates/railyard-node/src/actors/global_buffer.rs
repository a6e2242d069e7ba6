//! GlobalBuffer: credits and routing; owns the groups.
//!
//! A hint from the Poller comes with a credit, which travels with the lane's work and comes back when that ends,
//! however it ends. A lane has at most one actor, and an actor at most one message; a key is given a new actor only
//! after the old one is known to have ended. Resting actors end after a while of idleness.
//!
//! If it dies, its groups die with it and every credit comes back; the Poller finds what is due again, and in-flight
//! rows are read by the Reaper. A group that fails is not restarted: its row goes back in the same way.

mod rooms;

use std::collections::HashMap;
use std::time::Duration;

use ractor::{Actor, ActorId, ActorProcessingErr, ActorRef, RpcReplyPort, SupervisionEvent};
use railyard_core::{Lane, ParticipantId};
use railyard_rail::Look;
use railyard_store::discover::Hint;
use serde::Serialize;
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use self::rooms::Rooms;
use super::group_actor::{self, GroupActor};
use super::poller;
use super::settler::answer;
use crate::context::Context;
use crate::metrics::Gauged;

/// A lane at which begin found nothing is not looked at again before this: a producer may be holding it.
const COOLING: Duration = Duration::from_millis(250);
/// And this is cut short, when it is known to have something due after all, at most this often.
const WARM_EVERY: Duration = Duration::from_secs(1);
/// Resting groups that make room for others at a time.
const EVICT_MAX: usize = 1000;
/// How often resting groups are looked over.
const SWEEP: Duration = Duration::from_secs(1);

/// What it is told.
#[derive(ractor_cluster::RactorMessage)]
pub(crate) enum Msg {
    /// How much room is there, and who is to be left out?
    Room(RpcReplyPort<Room>),
    /// Lanes that may have something due, with as many credits. Answered once they are at work.
    Offer(Vec<Hint>, OwnedSemaphorePermit, RpcReplyPort<Offered>),
    /// These have something due although begin found nothing: the producer that held them is done.
    Due(Vec<Lane>),
    /// A lane has come to rest.
    Rested(Lane, Rested),
    /// Passivate what has been resting too long.
    Sweep,
    /// What stands here of these groups, by name: for the live view.
    Standings(Vec<ParticipantId>, RpcReplyPort<Value>),
    /// For the live view, tests and the way out.
    Observe(RpcReplyPort<Observed>),
}

/// How a lane came to rest.
pub(crate) struct Rested {
    pub(crate) endpoint: String,
    /// Its hint has to be put right.
    pub(crate) tidy: bool,
    /// Nothing could be begun: leave it alone for a moment.
    pub(crate) cool: bool,
    /// It has more that may be due, and gave its place up for others.
    pub(crate) more: bool,
}

/// An answer to [`Msg::Offer`].
#[derive(Clone, Copy)]
pub(crate) struct Offered {
    /// One was put to work at an endpoint that was not even half full.
    pub(crate) found_idle: bool,
    /// Their endpoints have room for more.
    pub(crate) room_left: bool,
}

/// An answer to [`Msg::Room`].
pub(crate) struct Room {
    /// One credit for each lane that may be offered.
    pub(crate) credits: Option<OwnedSemaphorePermit>,
    /// Lanes to leave out.
    pub(crate) busy: Vec<Lane>,
}

/// Its observable state.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Observed {
    pub(crate) busy: usize,
    pub(crate) resident: usize,
    pub(crate) credits_free: usize,
    pub(crate) busiest_endpoints: Vec<(String, usize)>,
}

/// The actor.
pub(crate) struct GlobalBuffer;

/// Its state.
pub(crate) struct State {
    context: Context,
    credits: Arc<Semaphore>,
    groups: HashMap<Lane, Entry>,
    lanes_by_actor: HashMap<ActorId, Lane>,
    rooms: Rooms,
}

struct Entry {
    actor: ActorRef<group_actor::Msg>,
    standing: Standing,
    /// When its cooling was last cut short.
    warmed: Option<Instant>,
}

enum Standing {
    Working { endpoint: String, kind: usize, since: Instant },
    Resting { since: Instant, cool_until: Option<Instant> },
    Ending,
}

impl Actor for GlobalBuffer {
    type Msg = Msg;
    type State = State;
    type Arguments = Context;

    async fn pre_start(&self, myself: ActorRef<Msg>, context: Context) -> Result<State, ActorProcessingErr> {
        context.actors.buffer.set(myself.clone());
        myself.send_after(SWEEP, || Msg::Sweep);
        let credits = Arc::new(Semaphore::new(context.options.credits));
        let places = usize::try_from(context.options.http.endpoint_concurrency).unwrap_or(usize::MAX);
        let rooms = Rooms::new(context.options.credits, places);
        Ok(State { context, credits, groups: HashMap::new(), lanes_by_actor: HashMap::new(), rooms })
    }

    async fn handle(&self, myself: ActorRef<Msg>, message: Msg, state: &mut State) -> Result<(), ActorProcessingErr> {
        match message {
            Msg::Room(reply) => answer(reply, state.room()),
            Msg::Offer(hints, credits, reply) => answer(reply, state.offer(&myself, hints, credits).await?),
            Msg::Due(lanes) => state.due(&lanes),
            Msg::Rested(lane, rested) => state.rested(&lane, &rested),
            Msg::Sweep => state.sweep(&myself),
            Msg::Standings(groups, reply) => answer(reply, state.standings(groups)),
            Msg::Observe(reply) => answer(reply, state.observe()),
        }
        state.gauge();
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        _: ActorRef<Msg>,
        event: SupervisionEvent,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        match event {
            SupervisionEvent::ActorTerminated(cell, _, _) => state.ended(cell.get_id()),
            SupervisionEvent::ActorFailed(cell, error) => {
                tracing::error!(%error, lane = state.lanes_by_actor.get(&cell.get_id()).map(ToString::to_string), "group actor failed");
                state.context.metrics.actor_restarts.with_label_values(&["group_actor"]).inc();
                state.ended(cell.get_id());
                state.context.wake();
            }
            SupervisionEvent::ActorStarted(_)
            | SupervisionEvent::ProcessGroupChanged(_)
            | SupervisionEvent::PidLifecycleEvent(_) => {}
        }
        Ok(())
    }
}

impl State {
    fn standings(&self, groups: Vec<ParticipantId>) -> Value {
        let seen = groups.into_iter().filter_map(|group| {
            let name = group.as_str().to_owned();
            let entry = self.groups.get(&Lane::Group(group))?;
            Some((name, entry.standing.seen()))
        });
        Value::Object(seen.collect())
    }

    fn room(&mut self) -> Room {
        let free = self.credits.available_permits();
        let credits = match u32::try_from(free) {
            Ok(0) | Err(_) => None,
            Ok(free) => Arc::clone(&self.credits).try_acquire_many_owned(free).ok(),
        };
        if credits.is_none() {
            self.rooms.starve_all();
        }
        let now = Instant::now();
        let busy =
            self.groups.iter().filter(|(_, entry)| entry.standing.is_busy(now)).map(|(lane, _)| lane.clone()).collect();
        Room { credits, busy }
    }

    async fn offer(
        &mut self,
        myself: &ActorRef<Msg>,
        hints: Vec<Hint>,
        mut credits: OwnedSemaphorePermit,
    ) -> Result<Offered, ActorProcessingErr> {
        let mut offered = Offered { found_idle: false, room_left: true };
        let now = Instant::now();
        for mut hint in hints {
            if self.groups.get(&hint.lane).is_some_and(|entry| entry.standing.is_busy(now)) {
                continue;
            }
            let Some(head) = hint.head.take() else {
                if let Lane::Group(group) = &hint.lane {
                    // Should the bound ever be wrong, this is where it would show: the next look starts from the first.
                    self.context.probes.forget(group);
                }
                self.context.actors.poller.cast(poller::Msg::Tidy(hint.lane));
                continue;
            };
            if self.is_crowded() && !self.groups.contains_key(&hint.lane) {
                self.end_resting(Duration::ZERO, EVICT_MAX);
                self.rooms.starve_all();
                offered.room_left = false;
                continue;
            }
            let kind = self.context.call_slots.budget_of(&head.rail_type);
            if matches!(self.context.endpoints.admit(&head.endpoint), Look::Open { .. }) {
                self.rooms.starve(&head.endpoint, kind);
                continue;
            }
            if !self.rooms.has(&head.endpoint, kind) {
                self.rooms.starve(&head.endpoint, kind);
                offered.room_left = false;
                continue;
            }
            let Some(credit) = credits.split(1) else {
                self.rooms.starve_all();
                break;
            };
            offered.found_idle |= self.rooms.is_half_empty(&head.endpoint);
            let actor = self.resident(myself, &hint.lane).await?;
            self.rooms.take(&head.endpoint, kind);
            if let Some(entry) = self.groups.get_mut(&hint.lane) {
                entry.standing = Standing::Working { endpoint: head.endpoint.clone(), kind, since: now };
            }
            if !self.rooms.endpoint_has(&head.endpoint) {
                self.rooms.starve(&head.endpoint, kind);
                offered.room_left = false;
            }
            // An actor that has just failed drops the message and with it the credit; its end is on its way to us.
            drop(actor.cast(group_actor::Msg::Hinted(Box::new(hint), head, credit)));
        }
        Ok(offered)
    }

    async fn resident(
        &mut self,
        myself: &ActorRef<Msg>,
        lane: &Lane,
    ) -> Result<ActorRef<group_actor::Msg>, ActorProcessingErr> {
        if let Some(entry) = self.groups.get(lane) {
            return Ok(entry.actor.clone());
        }
        let arguments = (lane.clone(), self.context.clone());
        let (actor, _) = Actor::spawn_linked(None, GroupActor, arguments, myself.get_cell()).await?;
        self.lanes_by_actor.insert(actor.get_id(), lane.clone());
        let standing = Standing::Resting { since: Instant::now(), cool_until: None };
        self.groups.insert(lane.clone(), Entry { actor: actor.clone(), standing, warmed: None });
        Ok(actor)
    }

    fn rested(&mut self, lane: &Lane, rested: &Rested) {
        if rested.tidy {
            self.context.actors.poller.cast(poller::Msg::Tidy(lane.clone()));
        }
        // An actor that failed right after it had said so has been accounted for.
        let Some(entry) = self.groups.get_mut(lane) else { return };
        let Standing::Working { endpoint, kind, .. } = std::mem::replace(&mut entry.standing, Standing::Ending) else {
            return;
        };
        match lane {
            Lane::Single(_) => entry.end(),
            Lane::Group(_) => {
                let now = Instant::now();
                entry.standing = Standing::Resting { since: now, cool_until: rested.cool.then(|| now + COOLING) };
            }
        }
        self.rooms.free(&endpoint, kind);
        if rested.more {
            self.rooms.starve(&rested.endpoint, kind);
        }
        self.wake_if_room(Some((rested.endpoint.as_str(), kind)));
    }

    /// Once in a while: should it be looked at in vain again, it cools.
    fn due(&mut self, lanes: &[Lane]) {
        let now = Instant::now();
        for lane in lanes {
            let Some(entry) = self.groups.get_mut(lane) else { continue };
            if let Standing::Resting { cool_until, .. } = &mut entry.standing
                && entry.warmed.is_none_or(|warmed| warmed + WARM_EVERY < now)
            {
                *cool_until = None;
                entry.warmed = Some(now);
            }
        }
    }

    /// There was more than room: look again once enough of it is free, and not for each lane.
    fn wake_if_room(&mut self, rested: Option<(&str, usize)>) {
        if self.rooms.wakes(rested, self.credits.available_permits()) {
            self.context.wake();
        }
    }

    fn ended(&mut self, id: ActorId) {
        let Some(lane) = self.lanes_by_actor.remove(&id) else { return };
        if let Lane::Group(group) = &lane {
            self.context.probes.forget(group);
        }
        match self.groups.remove(&lane) {
            Some(Entry { standing: Standing::Working { endpoint, kind, .. }, .. }) => {
                self.rooms.free(&endpoint, kind);
                self.wake_if_room(Some((endpoint.as_str(), kind)));
            }
            Some(_) | None => self.wake_if_room(None),
        }
    }

    fn sweep(&mut self, myself: &ActorRef<Msg>) {
        self.end_resting(self.context.options.idle_group, usize::MAX);
        self.gauge_groups();
        myself.send_after(SWEEP, || Msg::Sweep);
    }

    fn is_crowded(&self) -> bool {
        self.groups.len() >= self.context.options.resident_groups
    }

    fn end_resting(&mut self, idle: Duration, at_most: usize) {
        let resting = self.groups.values_mut().filter(|entry| match entry.standing {
            Standing::Resting { since, .. } => since.elapsed() >= idle,
            Standing::Working { .. } | Standing::Ending => false,
        });
        for entry in resting.take(at_most) {
            entry.end();
        }
    }

    fn gauge(&self) {
        self.context.metrics.lanes_busy.set(i64::try_from(self.rooms.working()).unwrap_or(i64::MAX));
        self.context.metrics.groups.resident(self.groups.len());
    }

    /// A look at every actor: once a second, and not with each message.
    fn gauge_groups(&self) {
        let now = Instant::now();
        let actors = self.groups.iter().map(|(lane, entry)| (lane, entry.standing.gauged(now)));
        self.context.metrics.groups.show(actors);
    }

    fn observe(&self) -> Observed {
        Observed {
            busy: self.rooms.working(),
            resident: self.groups.len(),
            credits_free: self.credits.available_permits(),
            busiest_endpoints: self.rooms.busiest(20),
        }
    }
}

impl Entry {
    fn end(&mut self) {
        self.standing = Standing::Ending;
        self.actor.stop(None);
    }
}

impl Standing {
    fn seen(&self) -> Value {
        match self {
            Self::Working { endpoint, since, .. } => {
                json!({ "state": "working", "endpoint": endpoint, "workingSeconds": since.elapsed().as_secs_f64() })
            }
            Self::Resting { since, .. } => {
                json!({ "state": "resting", "restingSeconds": since.elapsed().as_secs_f64() })
            }
            Self::Ending => json!({ "state": "ending" }),
        }
    }

    fn gauged(&self, now: Instant) -> Gauged {
        match self {
            Self::Working { since, .. } => Gauged::Working(now.duration_since(*since)),
            Self::Resting { cool_until: Some(until), .. } if now < *until => Gauged::Cooling,
            Self::Resting { .. } => Gauged::Resting,
            Self::Ending => Gauged::Ending,
        }
    }

    fn is_busy(&self, now: Instant) -> bool {
        match self {
            Self::Working { .. } | Self::Ending => true,
            Self::Resting { cool_until, .. } => cool_until.is_some_and(|until| now < until),
        }
    }
}
