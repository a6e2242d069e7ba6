//! One connection through the proxy: both directions, the mode of the moment, and the trap.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::watch;

use super::backend::Backend;
use super::frontend::{Frontend, Kind, Message};
use super::{Cut, Mode, Moment, Shared};

/// How long the server may take to answer the statement around which the connection is cut.
const ANSWER_PATIENCE: Duration = Duration::from_secs(30);

/// Why a direction ended.
enum End {
    /// One side closed or failed: the other is closed as well.
    Natural,
    /// The trap went off.
    Sprung(Cut),
}

/// Of this connection: ReadyForQuery messages that the client may still expect, and whether answers are swallowed
/// because a cut is coming.
struct Conversation {
    awaited: AtomicU64,
    ready: watch::Sender<u64>,
    doomed: watch::Sender<bool>,
    marked: AtomicBool,
}

impl Conversation {
    fn new() -> Conversation {
        Conversation {
            awaited: AtomicU64::new(0),
            ready: watch::Sender::new(0),
            doomed: watch::Sender::new(false),
            marked: AtomicBool::new(false),
        }
    }

    /// Looks at a statement on its way to the server.
    fn says(&self, sql: &str, shared: &Shared) -> Option<(Moment, Cut)> {
        if shared.watch().marks(sql) {
            self.marked.store(true, Ordering::SeqCst);
        }
        shared.on_statement(sql)
    }
}

pub(super) async fn connection(mut client: TcpStream, shared: Arc<Shared>) {
    let tallies = &shared.tallies;
    tallies.connections.fetch_add(1, Ordering::SeqCst);
    tallies.open.fetch_add(1, Ordering::SeqCst);
    let _open = Leaving(&tallies.open);
    let mut cut = shared.cut.subscribe();
    let manner = tokio::select! {
        // An error means that the proxy itself is going away.
        _ = cut.changed() => cut.borrow().1,
        manner = relay(&mut client, &shared) => manner,
    };
    if manner == Cut::Reset {
        let _ = client.set_zero_linger();
    }
}

/// Counts down however the connection ends.
struct Leaving<'a>(&'a AtomicU64);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Runs until the connection is to end, and says how.
async fn relay(client: &mut TcpStream, shared: &Shared) -> Cut {
    let mut mode = shared.mode.subscribe();
    if *mode.borrow_and_update() == Mode::Refuse {
        return Cut::Reset;
    }
    // A black hole accepts, as a dead host behind a living load balancer does, and does not even dial.
    let _ = mode.wait_for(|mode| *mode != Mode::BlackHole).await;
    let upstream = *shared.upstream.lock().expect("held for moments only");
    let mut frontend = Frontend::default();
    let Ok(first) = greet(client, &mut frontend, shared).await else { return Cut::Reset };
    let Ok(mut server) = TcpStream::connect(upstream).await else { return Cut::Reset };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let conversation = Conversation::new();
    let (from_client, to_client) = client.split();
    let (from_server, to_server) = server.split();
    // The first direction to end ends both: neither PostgreSQL nor HTTP/1.1 lives on half a connection.
    let end = tokio::select! {
        end = forwards(from_client, to_server, shared, &conversation, (frontend, first)) => end,
        end = backwards(from_server, to_client, shared, &conversation) => end,
    };
    match end {
        Ok(End::Sprung(manner)) => manner,
        Ok(End::Natural) => Cut::Close,
        Err(_) => Cut::Reset,
    }
}

/// Declines encryption in the server's name, since the proxy could not read along, and returns the message that
/// begins the session. Nothing to do where PostgreSQL is not spoken.
async fn greet(client: &mut TcpStream, frontend: &mut Frontend, shared: &Shared) -> io::Result<Option<Message>> {
    if !shared.speaks_postgres {
        return Ok(None);
    }
    loop {
        match frontend.next() {
            Some(message) if message.kind == Kind::EncryptionRequest => client.write_all(b"N").await?,
            Some(message) => return Ok(Some(message)),
            None if client.read_buf(frontend.buffer()).await? == 0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            None => {}
        }
    }
}

/// Client to server.
async fn forwards(
    mut client: ReadHalf<'_>,
    mut server: WriteHalf<'_>,
    shared: &Shared,
    conversation: &Conversation,
    (mut frontend, first): (Frontend, Option<Message>),
) -> io::Result<End> {
    if let Some(startup) = first {
        conversation.awaited.fetch_add(1, Ordering::SeqCst);
        send(&mut server, &startup.bytes, &shared.tallies.bytes_to_server).await?;
    }
    // Set when the trap went off at an Execute: the server answers it at the Sync.
    let mut sprung_at_sync = None;
    loop {
        if client.read_buf(frontend.buffer()).await? == 0 {
            return Ok(End::Natural);
        }
        pass_time(shared, conversation, false).await;
        if !shared.speaks_postgres {
            let bytes = frontend.buffer().split();
            send(&mut server, &bytes, &shared.tallies.bytes_to_server).await?;
            continue;
        }
        while let Some(message) = frontend.next() {
            let mut sprung = None;
            match &message.kind {
                Kind::Query(sql) => {
                    sprung = conversation.says(sql, shared);
                    conversation.awaited.fetch_add(1, Ordering::SeqCst);
                }
                Kind::Execute(sql) if sprung_at_sync.is_none() => match conversation.says(sql, shared) {
                    Some((Moment::BeforeIt, manner)) => return Ok(End::Sprung(manner)),
                    sprung => sprung_at_sync = sprung,
                },
                Kind::Sync => {
                    sprung = sprung_at_sync.take();
                    conversation.awaited.fetch_add(1, Ordering::SeqCst);
                }
                Kind::Execute(_) | Kind::Startup | Kind::EncryptionRequest | Kind::Other => {}
            }
            match sprung {
                Some((Moment::BeforeIt, manner)) => return Ok(End::Sprung(manner)),
                Some((Moment::BeforeItsAnswer, manner)) => {
                    conversation.doomed.send_replace(true);
                    send(&mut server, &message.bytes, &shared.tallies.bytes_to_server).await?;
                    answered(conversation).await;
                    return Ok(End::Sprung(manner));
                }
                None => send(&mut server, &message.bytes, &shared.tallies.bytes_to_server).await?,
            }
        }
    }
}

/// Waits until the server has answered everything that was sent to it.
async fn answered(conversation: &Conversation) {
    let mut ready = conversation.ready.subscribe();
    let awaited = conversation.awaited.load(Ordering::SeqCst);
    // Patience over: the server is stuck or gone, and the cut comes all the same.
    let _ = tokio::time::timeout(ANSWER_PATIENCE, ready.wait_for(|&ready| ready >= awaited)).await;
}

/// Server to client.
async fn backwards(
    mut server: ReadHalf<'_>,
    mut client: WriteHalf<'_>,
    shared: &Shared,
    conversation: &Conversation,
) -> io::Result<End> {
    let mut backend = Backend::default();
    let mut buffer = BytesMut::with_capacity(16 << 10);
    loop {
        buffer.clear();
        if server.read_buf(&mut buffer).await? == 0 {
            return Ok(End::Natural);
        }
        // Before they are counted: once the cut is coming, nothing more may reach the client.
        let doomed = *conversation.doomed.borrow();
        pass_time(shared, conversation, true).await;
        if shared.speaks_postgres {
            backend.read(&buffer);
            conversation.ready.send_replace(backend.ready);
        }
        if !doomed {
            send(&mut client, &buffer, &shared.tallies.bytes_to_client).await?;
        }
    }
}

/// What the mode does to bytes on their way: wait a while, or until the mode is another.
async fn pass_time(shared: &Shared, conversation: &Conversation, answers: bool) {
    let (mut all, mut marked) = (shared.mode.subscribe(), shared.marked_mode.subscribe());
    loop {
        let mut mode = all.borrow_and_update().clone();
        let special = marked.borrow_and_update().clone();
        if conversation.marked.load(Ordering::SeqCst) && special != Mode::Pass {
            mode = special;
        }
        let stuck = mode == Mode::BlackHole || (answers && mode == Mode::SwallowAnswers);
        if !stuck {
            if let Mode::Delay(delay) = mode {
                tokio::time::sleep(delay).await;
            }
            return;
        }
        // Errors mean that the proxy itself is going away.
        let _ = tokio::select! {
            changed = all.changed() => changed,
            changed = marked.changed() => changed,
        };
    }
}

async fn send(to: &mut WriteHalf<'_>, bytes: &[u8], tally: &AtomicU64) -> io::Result<()> {
    to.write_all(bytes).await?;
    tally.fetch_add(bytes.len() as u64, Ordering::SeqCst);
    Ok(())
}
