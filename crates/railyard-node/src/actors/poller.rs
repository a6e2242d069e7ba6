//! Poller: asks the database what is due in the partitions that this node owns, as much as there is room for.
//!
//! Owns nothing but the clock between two looks. Woken by its own timer, by the Listener, by the buffer when room has
//! come free, and by anyone who committed something. A look takes its credits before it asks, offers what it found,
//! and, at its own timer, looks behind lanes whose endpoint is full; where the front is longer than one look, the next one begins at the
//! front again and then goes on where this one ended. It also puts hints right where nothing could be begun.
//!
//! If it dies, nothing is lost: its credits come back and the next one looks anew.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort};
use railyard_core::{Epoch, Lane, PartitionId};
use railyard_store::StoreError;
use railyard_store::discover::{Cursor, Search};
use railyard_store::schedule;
use serde::Serialize;

use super::global_buffer;
use super::settler::answer;
use crate::context::Context;

/// Pages looked through from one place on when what comes first has no room.
const PAGES_MAX: usize = 10;
/// While nobody behind a full endpoint's lanes has had room, only each of so many ticks looks there again.
const BARREN_TICKS: u32 = 4;
/// Hints asked for at a time.
const PAGE: usize = 256;
/// Scheduled jobs promoted in one transaction.
const PROMOTE_MAX: usize = 500;
/// Lanes tidied in one transaction.
const TIDY_MAX: usize = 200;
/// How long lanes to be tidied are gathered.
const TIDY_AFTER: Duration = Duration::from_millis(5);
/// The buffer answers within this or is being restarted.
const BUFFER_TIMEOUT: Duration = Duration::from_secs(5);

/// What it is told.
#[derive(ractor_cluster::RactorMessage)]
pub(crate) enum Msg {
    /// The poll interval has passed.
    Tick,
    /// Look now.
    Look,
    /// Put this lane's hint right.
    Tidy(Lane),
    /// Enough lanes to be tidied have gathered.
    FlushTidy,
    /// For the live view and for tests.
    Observe(RpcReplyPort<Observed>),
}

/// Its observable state.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Observed {
    looks: u64,
    hints: u64,
    promoted: u64,
    tidied: u64,
    failures: u64,
}

/// The actor.
pub(crate) struct Poller;

/// Its state.
pub(crate) struct State {
    context: Context,
    seen: Observed,
    /// Where the last look ended, if it did not see all.
    behind: Option<Cursor>,
    /// With which partition the next page begins.
    turn: PartitionId,
    /// In this look, an endpoint was found to have no room for more.
    past_full: bool,
    /// Ticks since somebody behind a full endpoint's lanes had room.
    barren: u32,
    /// Where the last round over due jobs ended: those of a group with an open producer are passed over.
    promoted_to: Option<schedule::Place>,
    untidy: BTreeSet<Lane>,
    flush_due: bool,
}

/// What follows a page.
enum Onward {
    /// More is due from there on.
    Behind(Cursor),
    /// All that is due has been seen.
    End,
    /// There is no room, or nothing is owned.
    Stop,
}

/// How far a look goes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reach {
    /// Until something has no room: under load, what is behind it has none either as a rule.
    Front,
    /// Past everything that has no room.
    Behind,
}

/// How a walk over pages ended.
enum Walked {
    /// All that is due has been seen.
    Through,
    /// There is no room for more.
    Stopped,
    /// It was long enough; more is due from here on.
    Short(Option<Cursor>),
}

/// Whether a look has been asked for and not begun: a burst of wake-ups is one look.
#[derive(Default)]
pub(crate) struct LookAsked(AtomicBool);

impl LookAsked {
    /// Whether this is the first to ask.
    pub(crate) fn ask(&self) -> bool {
        !self.0.swap(true, Ordering::SeqCst)
    }

    fn begin(&self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

impl Actor for Poller {
    type Msg = Msg;
    type State = State;
    type Arguments = Context;

    async fn pre_start(&self, myself: ActorRef<Msg>, context: Context) -> Result<State, ActorProcessingErr> {
        context.actors.poller.set(myself.clone());
        context.look_asked.begin();
        myself.cast(Msg::Tick)?;
        Ok(State {
            context,
            seen: Observed::default(),
            behind: None,
            turn: PartitionId(0),
            past_full: false,
            barren: 0,
            promoted_to: None,
            untidy: BTreeSet::new(),
            flush_due: false,
        })
    }

    async fn handle(&self, myself: ActorRef<Msg>, message: Msg, state: &mut State) -> Result<(), ActorProcessingErr> {
        match message {
            Msg::Tick => {
                state.promote().await;
                let reach = state.reach();
                state.look(reach).await;
                myself.send_after(state.context.options.poll, || Msg::Tick);
            }
            Msg::Look => state.look(Reach::Front).await,
            Msg::Tidy(lane) => state.tidy_later(&myself, lane),
            Msg::FlushTidy => state.tidy(&myself).await,
            Msg::Observe(reply) => answer(reply, state.seen.clone()),
        }
        Ok(())
    }
}

impl State {
    /// A tick's: to go through what has no room costs as much as to deliver some of it.
    fn reach(&mut self) -> Reach {
        self.barren += 1;
        match self.barren == 1 || self.barren.is_multiple_of(BARREN_TICKS) {
            true => Reach::Behind,
            false => Reach::Front,
        }
    }

    async fn look(&mut self, reach: Reach) {
        self.context.look_asked.begin();
        self.seen.looks += 1;
        self.past_full = false;
        let walked = match self.walk(None, reach).await {
            Ok(Walked::Short(here)) if reach == Reach::Behind => {
                let place = self.behind.take().or(here);
                self.behind.clone_from(&place);
                self.walk(place, reach).await
            }
            other => other,
        };
        match walked {
            Ok(Walked::Through) => self.behind = None,
            Ok(Walked::Short(here)) if reach == Reach::Behind => self.behind = here,
            Ok(Walked::Short(_) | Walked::Stopped) => {}
            Err(error) => self.failed(&error),
        }
    }

    /// Page by page from a place on.
    async fn walk(&mut self, mut place: Option<Cursor>, reach: Reach) -> Result<Walked, StoreError> {
        for _ in 0..PAGES_MAX {
            match self.page(place.as_ref(), reach).await? {
                Onward::Behind(next) => place = Some(next),
                Onward::End => return Ok(Walked::Through),
                Onward::Stop => return Ok(Walked::Stopped),
            }
        }
        Ok(Walked::Short(place))
    }

    async fn page(&mut self, behind: Option<&Cursor>, reach: Reach) -> Result<Onward, StoreError> {
        let Some(partitions) = self.owned() else { return Ok(Onward::Stop) };
        let Some(room) = self.context.actors.buffer.ask(global_buffer::Msg::Room, BUFFER_TIMEOUT).await else {
            return Ok(Onward::Stop);
        };
        let Some(credits) = room.credits else { return Ok(Onward::Stop) };
        let limit = credits.num_permits().min(PAGE);
        let probes = &self.context.probes;
        let search = Search {
            partitions: &partitions,
            busy: &room.busy,
            probe: &|group, epoch| probes.get(group, epoch),
            behind,
            turn: self.turn,
            limit,
        };
        let found = self.context.store.discover(&search).await?;
        self.turn = found.turn;
        self.seen.hints += u64::try_from(found.hints.len()).unwrap_or(0);
        let offered = self
            .context
            .actors
            .buffer
            .ask(|reply| global_buffer::Msg::Offer(found.hints, credits, reply), BUFFER_TIMEOUT);
        let Some(offered) = offered.await else { return Ok(Onward::Stop) };
        if self.past_full && offered.found_idle {
            self.barren = 0;
        }
        self.past_full |= !offered.room_left;
        Ok(match found.next_page {
            None => Onward::End,
            Some(_) if reach == Reach::Front && !offered.room_left => Onward::Stop,
            Some(next) => Onward::Behind(next),
        })
    }

    fn owned(&self) -> Option<Vec<(PartitionId, Epoch)>> {
        if self.context.stopping.is_set() {
            return None;
        }
        let membership = self.context.lease.good()?;
        let owned: Vec<(PartitionId, Epoch)> = membership.partitions.iter().map(|(p, e)| (*p, *e)).collect();
        (!owned.is_empty()).then_some(owned)
    }

    async fn promote(&mut self) {
        let Some(partitions) = self.owned() else { return };
        let Some(membership) = self.context.lease.good() else { return };
        for _ in 0..PAGES_MAX {
            let promoted =
                self.context.store.promote(membership.node, &partitions, self.promoted_to, PROMOTE_MAX).await;
            match promoted {
                Ok(promoted) => {
                    self.seen.promoted += u64::try_from(promoted.jobs).unwrap_or(0);
                    self.promoted_to = promoted.next_page;
                }
                Err(error) => return self.failed(&error),
            }
            if self.promoted_to.is_none() {
                return;
            }
        }
    }

    fn tidy_later(&mut self, myself: &ActorRef<Msg>, lane: Lane) {
        self.untidy.insert(lane);
        if !self.flush_due {
            self.flush_due = true;
            myself.send_after(TIDY_AFTER, || Msg::FlushTidy);
        }
    }

    async fn tidy(&mut self, myself: &ActorRef<Msg>) {
        self.flush_due = false;
        let lanes: Vec<Lane> = self.untidy.iter().take(TIDY_MAX).cloned().collect();
        for lane in &lanes {
            self.untidy.remove(lane);
        }
        if !self.untidy.is_empty() {
            self.flush_due = true;
            drop(myself.cast(Msg::FlushTidy));
        }
        match self.context.store.tidy(&lanes).await {
            Ok(due) => {
                self.seen.tidied += u64::try_from(lanes.len()).unwrap_or(0);
                if !due.is_empty() {
                    self.context.actors.buffer.cast(global_buffer::Msg::Due(due));
                    self.context.wake();
                }
            }
            // Their hints are as early as before: they are found, and tidied, again.
            Err(error) => self.failed(&error),
        }
    }

    fn failed(&mut self, error: &StoreError) {
        self.seen.failures += 1;
        self.context.trouble("poller", error);
    }
}
