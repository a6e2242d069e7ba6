//! PeerDialer: opens a link to each member that this node has to dial, and again when one has ended.
//!
//! Owns how often each was tried. Members come from what the LeaseKeeper saw last, so while the database is away links
//! are restored to those who were there. If it dies, links that stand are none the worse.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use ractor::{Actor, ActorProcessingErr, ActorRef};
use railyard_core::link::{dials, redial_after};
use railyard_store::lease::Door;
use tokio::task::JoinSet;
use tokio::time::Instant;
use uuid::Uuid;

use super::cluster;
use crate::context::Context;
use crate::links::refused::Refused;
use crate::links::stream::Connection;
use crate::links::{Links, greet};

/// Between two looks at who is missing.
const LOOK: Duration = Duration::from_millis(200);
/// A link that stood for so long forgets the failures before it.
const STOOD: Duration = Duration::from_secs(5);

/// What it is told.
#[derive(ractor_cluster::RactorMessage)]
pub(crate) enum Msg {
    /// See who is missing, every [`LOOK`].
    Turn,
    /// See who is missing now.
    Look,
    /// A dial has ended.
    Dialled {
        /// Whom.
        name: String,
        /// Where.
        door: Door,
        /// The link, or why there is none.
        result: Result<Box<dyn Connection>, Refused>,
    },
}

/// The actor.
pub(crate) struct PeerDialer;

/// Its state.
pub(crate) struct State {
    context: Context,
    links: Arc<Links>,
    peers: HashMap<Uuid, Tries>,
    /// Ends with the actor.
    dials: JoinSet<()>,
}

struct Tries {
    /// Dials in a row that brought no lasting link.
    count: u32,
    next: Instant,
    under_way: bool,
}

impl Actor for PeerDialer {
    type Msg = Msg;
    type State = State;
    type Arguments = (Context, Arc<Links>);

    async fn pre_start(
        &self,
        myself: ActorRef<Msg>,
        (context, links): (Context, Arc<Links>),
    ) -> Result<State, ActorProcessingErr> {
        context.actors.peer_dialer.set(myself.clone());
        myself.cast(Msg::Turn)?;
        Ok(State { context, links, peers: HashMap::new(), dials: JoinSet::new() })
    }

    async fn handle(&self, myself: ActorRef<Msg>, message: Msg, state: &mut State) -> Result<(), ActorProcessingErr> {
        match message {
            Msg::Turn => {
                state.look(&myself);
                myself.send_after(LOOK, || Msg::Turn);
            }
            Msg::Look => state.look(&myself),
            Msg::Dialled { name, door, result } => state.dialled(&name, door, result),
        }
        Ok(())
    }
}

impl State {
    fn look(&mut self, myself: &ActorRef<Msg>) {
        while self.dials.try_join_next().is_some() {}
        let (doors, now) = (self.links.doors(), Instant::now());
        self.peers.retain(|process, tries| tries.under_way || doors.iter().any(|(_, door)| door.process == *process));
        for (name, door) in doors.iter() {
            // A member that has died is listed until it is taken over; its address is its successor's by then, or ours.
            let succeeded = |other: &Door| other.address == door.address && other.process > door.process;
            if !dials(self.links.me.process, door.process)
                || self.context.stopping.is_set()
                || succeeded(&self.links.me)
                || doors.iter().any(|(_, other)| succeeded(other))
            {
                continue;
            }
            if let Some(link) = self.links.table.get(door.process) {
                if link.pulse.age() > STOOD {
                    self.peers.remove(&door.process);
                }
                continue;
            }
            let tries = self.peers.entry(door.process).or_insert(Tries { count: 0, next: now, under_way: false });
            if tries.under_way || now < tries.next {
                continue;
            }
            tries.under_way = true;
            tries.count += 1;
            let (links, myself, name, door) = (Arc::clone(&self.links), myself.clone(), name.clone(), door.clone());
            self.dials.spawn(async move {
                let result = greet::open(&links, &door).await;
                let _ = myself.cast(Msg::Dialled { name, door, result });
            });
        }
    }

    fn dialled(&mut self, name: &str, door: Door, result: Result<Box<dyn Connection>, Refused>) {
        if let Some(tries) = self.peers.get_mut(&door.process) {
            tries.under_way = false;
            tries.next = Instant::now() + redial_after(tries.count, rand::random());
        }
        match result {
            Ok(connection) => {
                let Door { process, address: remote } = door;
                self.context.actors.cluster.cast(cluster::Msg::Linked { process, connection, remote, incoming: false });
            }
            Err(refused) => {
                let reason = refused.as_str();
                self.context.metrics.links.dial_failures.with_label_values(&[reason]).inc();
                if let Some(unsaid) = self.context.troubles.met(refused.dial_topic(), Instant::now()) {
                    tracing::warn!(peer = name, address = door.address, reason, unsaid, "a peer could not be linked");
                }
            }
        }
    }
}
