//! LinkListener: takes connections of other nodes and lets each show who it is.
//!
//! Owns the socket and those who have not shown it yet: at most so many, each for a bounded time and in bounded memory.
//! Whoever is refused is counted; the log says so once a minute, by reason. If it dies, it listens again a moment later.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::cluster;
use crate::context::Context;
use crate::links::refused::Refused;
use crate::links::{Links, STRANGERS_MAX, greet};

/// One turn of waiting: short enough that the actor hears a stop soon.
const TURN: Duration = Duration::from_millis(500);
/// After a socket that could not be had, or a connection that could not be taken.
const BREATH: Duration = Duration::from_millis(200);

/// What it is told.
#[derive(ractor_cluster::RactorMessage)]
pub(crate) enum Msg {
    /// Wait for the next connection.
    Turn,
}

/// The actor.
pub(crate) struct LinkListener;

/// Its state.
pub(crate) struct State {
    context: Context,
    links: Arc<Links>,
    socket: Option<TcpListener>,
    places: Arc<Semaphore>,
    /// Ends with the actor.
    strangers: JoinSet<()>,
}

impl Actor for LinkListener {
    type Msg = Msg;
    type State = State;
    type Arguments = (Context, Arc<Links>);

    async fn pre_start(
        &self,
        myself: ActorRef<Msg>,
        (context, links): (Context, Arc<Links>),
    ) -> Result<State, ActorProcessingErr> {
        myself.cast(Msg::Turn)?;
        let places = Arc::new(Semaphore::new(STRANGERS_MAX));
        Ok(State { context, links, socket: None, places, strangers: JoinSet::new() })
    }

    async fn handle(&self, myself: ActorRef<Msg>, _: Msg, state: &mut State) -> Result<(), ActorProcessingErr> {
        if let Err(error) = state.turn().await {
            if let Some(unsaid) = state.context.troubles.met("link: listen", Instant::now()) {
                let listen = state.links.options.listen;
                tracing::warn!(%error, %listen, unsaid, "cluster.listen: links cannot be taken");
            }
            tokio::time::sleep(BREATH).await;
        }
        myself.cast(Msg::Turn)?;
        Ok(())
    }
}

impl State {
    async fn turn(&mut self) -> std::io::Result<()> {
        let Some(socket) = &self.socket else {
            self.socket = Some(TcpListener::bind(self.links.options.listen).await?);
            return Ok(());
        };
        let Ok(accepted) = timeout(TURN, socket.accept()).await else { return Ok(()) };
        let (stream, remote) = accepted?;
        while self.strangers.try_join_next().is_some() {}
        let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else {
            refused(&self.context, remote, Refused::Full);
            return Ok(());
        };
        let (context, links) = (self.context.clone(), Arc::clone(&self.links));
        self.strangers.spawn(async move {
            greet(&context, &links, stream, remote).await;
            drop(place);
        });
        Ok(())
    }
}

async fn greet(context: &Context, links: &Links, stream: TcpStream, remote: SocketAddr) {
    // A connection that cannot do it is gone; the next step will say so.
    let _ = stream.set_nodelay(true);
    match greet::take(links, stream).await {
        Ok((process, connection)) => {
            let remote = remote.to_string();
            context.actors.cluster.cast(cluster::Msg::Linked { process, connection, remote, incoming: true });
        }
        Err(reason) => refused(context, remote, reason),
    }
}

fn refused(context: &Context, remote: SocketAddr, refused: Refused) {
    let reason = refused.as_str();
    context.metrics.links.refused.with_label_values(&[reason]).inc();
    if let Some(unsaid) = context.troubles.met(refused.topic(), Instant::now()) {
        tracing::warn!(%remote, reason, unsaid, "a link was refused");
    }
}
