//! ClusterSupervisor: the links to the other nodes. Owns the table of links, starts the parts that make them, and ends
//! a link on which nothing comes: ractor_cluster has no sense of time.
//!
//! It never escalates and nothing waits for it: without links, the node learns by NOTIFY, poll and TTL what the links
//! would have told it. If a part fails, all of them and all links are started again.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ractor::{Actor, ActorId, ActorProcessingErr, ActorRef, SupervisionEvent};
use ractor_cluster::NodeServerMessage;
use tokio::time::Instant;
use uuid::Uuid;

use super::cluster_agent::{self, ClusterAgent, Say};
use super::lease_keeper;
use super::link_listener::LinkListener;
use super::peer_dialer::{self, PeerDialer};
use super::supervise::Restarts;
use crate::context::Context;
use crate::links::stream::{Connection, Ended, LinkStream};
use crate::links::table::Link;
use crate::links::tls::Reloading;
use crate::links::{FRAME_BYTES_MAX, HANDSHAKE, HEARTBEAT, Links, MISSES_MAX, server};

/// Looks at the certificates every so many heartbeats.
const TLS_EVERY: u64 = 5;

/// What it is told.
#[derive(ractor_cluster::RactorMessage)]
pub(crate) enum Msg {
    /// Start the parts.
    Start,
    /// A heartbeat is due.
    Beat,
    /// Somebody has shown who it is.
    Linked {
        /// Who.
        process: Uuid,
        /// How it is reached.
        connection: Box<dyn Connection>,
        /// Its address on this connection.
        remote: String,
        /// Whether it dialled.
        incoming: bool,
    },
    /// ractor_cluster can send over this link.
    Ready {
        /// To whom.
        process: Uuid,
        /// Which of the links there have been.
        serial: u64,
        /// What ractor_cluster calls it.
        session: u64,
    },
    /// ractor_cluster has ended the session on this link.
    Gone {
        /// To whom.
        process: Uuid,
        /// Which.
        serial: u64,
    },
    /// Tell all others.
    Say(Say),
}

/// The actor.
pub(crate) struct ClusterSupervisor;

/// Its state.
pub(crate) struct State {
    context: Context,
    links: Arc<Links>,
    server: Option<ActorRef<NodeServerMessage>>,
    /// The children that count.
    parts: Vec<ActorId>,
    restarts: Restarts,
    serial: u64,
    beats: u64,
    woken_at: Instant,
    /// Links whose predecessor's session has not ended yet: ractor_cluster would let either of two survive.
    next: HashMap<Uuid, (LinkStream, Link)>,
}

impl Actor for ClusterSupervisor {
    type Msg = Msg;
    type State = State;
    type Arguments = (Context, Arc<Links>);

    async fn pre_start(
        &self,
        myself: ActorRef<Msg>,
        (context, links): (Context, Arc<Links>),
    ) -> Result<State, ActorProcessingErr> {
        context.actors.cluster.set(myself.clone());
        myself.cast(Msg::Start)?;
        myself.send_after(HEARTBEAT, || Msg::Beat);
        let (restarts, next) = (Restarts::default(), HashMap::new());
        Ok(State {
            context,
            links,
            server: None,
            parts: Vec::new(),
            restarts,
            serial: 0,
            beats: 0,
            woken_at: Instant::now(),
            next,
        })
    }

    async fn handle(&self, myself: ActorRef<Msg>, message: Msg, state: &mut State) -> Result<(), ActorProcessingErr> {
        match message {
            Msg::Start => {
                state.end_all();
                if let Err(error) = state.start(&myself).await {
                    tracing::warn!(%error, "the links could not be started");
                    state.again(&myself);
                }
            }
            Msg::Beat => {
                state.beat();
                myself.send_after(HEARTBEAT, || Msg::Beat);
            }
            Msg::Linked { process, connection, remote, incoming } => {
                state.linked(process, connection, remote, incoming);
            }
            Msg::Ready { process, serial, session } => state.ready(process, serial, session),
            Msg::Gone { process, serial } => state.gone(process, serial),
            Msg::Say(Say::Wake) => state.wake(&myself),
            Msg::Say(say) => cluster_agent::tell_all(&state.links, say),
        }
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        myself: ActorRef<Msg>,
        event: SupervisionEvent,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        let (cell, why) = match event {
            SupervisionEvent::ActorFailed(cell, error) => (cell, error.to_string()),
            SupervisionEvent::ActorTerminated(cell, _, why) => (cell, why.unwrap_or_else(|| "ended".to_owned())),
            SupervisionEvent::ActorStarted(_)
            | SupervisionEvent::ProcessGroupChanged(_)
            | SupervisionEvent::PidLifecycleEvent(_) => return Ok(()),
        };
        // Those that were told to end are none of ours any more.
        if state.parts.contains(&cell.get_id()) && !state.context.stopping.is_set() {
            tracing::error!(why, "a part of the links fell: starting them again");
            state.context.metrics.actor_restarts.with_label_values(&["cluster"]).inc();
            state.again(&myself);
        }
        Ok(())
    }
}

impl State {
    async fn start(&mut self, myself: &ActorRef<Msg>) -> Result<(), ActorProcessingErr> {
        let (context, links) = (self.context.clone(), Arc::clone(&self.links));
        let server = server::start(&links, &context.options.name, myself.clone(), myself.get_cell()).await?;
        self.parts.push(server.get_id());
        self.server = Some(server);
        let (agent, _) = Actor::spawn_linked(None, ClusterAgent, context.clone(), myself.get_cell()).await?;
        self.parts.push(agent.get_id());
        let both = (context, links);
        let (listener, _) = Actor::spawn_linked(None, LinkListener, both.clone(), myself.get_cell()).await?;
        self.parts.push(listener.get_id());
        let (dialer, _) = Actor::spawn_linked(None, PeerDialer, both, myself.get_cell()).await?;
        self.parts.push(dialer.get_id());
        Ok(())
    }

    /// Ends what is left and starts everything again in a while.
    fn again(&mut self, myself: &ActorRef<Msg>) {
        self.parts.clear();
        self.server = None;
        self.end_all();
        myself.stop_children(None);
        // Never at once: the parts that were told to stop need a moment to do so.
        let wait = self.restarts.wait().max(HEARTBEAT);
        myself.send_after(wait, || Msg::Start);
    }

    fn end_all(&mut self) {
        self.next.clear();
        for (_, link) in self.links.table.lock().drain() {
            link.pulse.cut(Ended::Closed);
        }
        self.count();
    }

    fn linked(&mut self, process: Uuid, connection: Box<dyn Connection>, remote: String, incoming: bool) {
        self.serial += 1;
        let serial = self.serial;
        let (stream, pulse) = LinkStream::new(connection, server::label(process, serial), FRAME_BYTES_MAX);
        let link = Link { serial, pulse, remote, incoming, session: None, misses: 0 };
        let known = self.links.table.get(process);
        match known {
            // The peer has opened a new one, so it has given up the old one. ractor_cluster, shown two at once, would
            // let either of them survive.
            Some(old) => {
                old.pulse.cut(Ended::Replaced);
                self.next.insert(process, (stream, link));
            }
            None => self.feed(process, stream, link),
        }
    }

    fn feed(&mut self, process: Uuid, stream: LinkStream, link: Link) {
        let Some(server) = &self.server else { return };
        let is_server = link.incoming;
        self.links.table.lock().insert(process, link);
        // A server that has ended takes the connection with it; its end is an event of its own.
        let _ = server.cast(NodeServerMessage::ConnectionOpenedExternal { stream: Box::new(stream), is_server });
    }

    fn ready(&self, process: Uuid, serial: u64, session: u64) {
        let mut table = self.links.table.lock();
        let Some(link) = table.get_mut(&process).filter(|link| link.serial == serial) else { return };
        if link.session.is_none() {
            tracing::info!(peer = self.links.name_of(process), %process, remote = link.remote, "linked");
        }
        link.session = Some(session);
        drop(table);
        self.count();
    }

    fn gone(&mut self, process: Uuid, serial: u64) {
        let known = self.links.table.get(process).filter(|link| link.serial == serial);
        let Some(link) = known else { return };
        self.links.table.lock().remove(&process);
        // Both halves of the connection, whatever became of the session.
        link.pulse.cut(Ended::Closed);
        let why = link.pulse.ended().as_str();
        self.context.metrics.links.ended.with_label_values(&[why]).inc();
        let (ended, peer) = (link.pulse.ended(), self.links.name_of(process));
        match ended {
            Ended::Closed | Ended::Replaced if link.session.is_some() => {
                tracing::info!(peer, %process, why, "link ended");
            }
            Ended::Closed | Ended::Replaced => {}
            Ended::Silent | Ended::Frame | Ended::Deadline => {
                if let Some(unsaid) = self.context.troubles.met(ended.topic(), Instant::now()) {
                    tracing::warn!(peer, %process, remote = link.remote, why, unsaid, "a link was ended");
                }
            }
        }
        self.count();
        if let Some((stream, link)) = self.next.remove(&process) {
            self.feed(process, stream, link);
        }
        self.context.actors.peer_dialer.cast(peer_dialer::Msg::Look);
        // It may have left: then all that it had is free.
        self.context.actors.lease_keeper.cast(lease_keeper::Msg::Look);
    }

    /// One wake-up for all that was asked for within the debounce window.
    fn wake(&mut self, myself: &ActorRef<Msg>) {
        let left = self.context.options.debounce.saturating_sub(self.woken_at.elapsed());
        if left.is_zero() {
            self.woken_at = Instant::now();
            self.links.wake_asked.store(false, Ordering::SeqCst);
            cluster_agent::tell_all(&self.links, Say::Wake);
        } else {
            myself.send_after(left, || Msg::Say(Say::Wake));
        }
    }

    /// A sign of life to everybody, and an end to the links that show none.
    fn beat(&mut self) {
        self.beats += 1;
        self.refresh_tls();
        let mut lost = Vec::new();
        for (process, link) in self.links.table.lock().iter_mut() {
            if link.pulse.is_cut() {
                // Cut before this turn, and the session has not ended: there never was one.
                lost.push((*process, link.serial));
                continue;
            }
            let silence = link.pulse.silence();
            // One miss a turn: whoever was stopped itself finds everybody silent, and hears them a moment later.
            if link.session.is_some() && silence > HEARTBEAT + HEARTBEAT / 2 {
                link.misses += 1;
                self.context.metrics.links.heartbeats_missed.inc();
            } else {
                link.misses = 0;
            }
            if link.misses >= MISSES_MAX {
                link.pulse.cut(Ended::Silent);
            } else if link.session.is_none() && link.pulse.age() > HANDSHAKE {
                link.pulse.cut(Ended::Deadline);
            }
        }
        for (process, serial) in lost {
            self.gone(process, serial);
        }
        cluster_agent::tell_all(&self.links, Say::Beat);
    }

    fn refresh_tls(&self) {
        if !self.beats.is_multiple_of(TLS_EVERY) || self.links.tls.is_none() {
            return;
        }
        let (context, links) = (self.context.clone(), Arc::clone(&self.links));
        tokio::task::spawn_blocking(move || match links.tls.as_ref().map(Reloading::refresh) {
            Some(Ok(true)) => tracing::info!("the certificates of the links were read anew"),
            Some(Ok(false)) | None => {}
            Some(Err(error)) => {
                if let Some(unsaid) = context.troubles.met("link: certificates", Instant::now()) {
                    tracing::warn!(error, unsaid, "new certificates cannot be used: the old ones stay");
                }
            }
        });
    }

    fn count(&self) {
        let up = self.links.table.lock().values().filter(|link| link.session.is_some()).count();
        self.context.metrics.links.up.set(i64::try_from(up).unwrap_or(i64::MAX));
    }
}
