//! A TCP proxy that breaks what passes through it: in front of PostgreSQL or of a receiver.
//!
//! It lives on a thread of its own. Faults are switched while connections are open. In front of PostgreSQL
//! ([`FaultProxy::postgres`]) it reads the protocol along and can let a COMMIT through and cut the connection before
//! its answer comes back: the server has committed and the client cannot know.

mod backend;
mod frontend;
mod relay;
mod trap;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::background::Background;
use crate::free_port;
use trap::{Watch, is_commit};

/// How a connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// At once and rudely: RST.
    Reset,
    /// As if the other side had closed: FIN.
    Close,
}

/// What happens to bytes and to new connections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mode {
    /// They pass.
    Pass,
    /// They pass after this long, in each direction.
    Delay(Duration),
    /// Nothing passes and nothing is closed: open connections are half-open, new ones are accepted and get nothing.
    BlackHole,
    /// Only what the client sends passes; the server's answers don't.
    SwallowAnswers,
    /// New connections are reset; open ones live on.
    Refuse,
}

/// When the connection is cut around a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// The statement never reaches the server.
    BeforeIt,
    /// The server has done it and answered, and the answer does not reach the client.
    BeforeItsAnswer,
}

/// What happened so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Connections accepted.
    pub connections: u64,
    /// Connections open now.
    pub open: u64,
    /// Statements that are a COMMIT, seen on their way to the server.
    pub commits: u64,
    /// Connections cut around a statement.
    pub statement_cuts: u64,
    /// Bytes passed to the server.
    pub bytes_to_server: u64,
    /// Bytes passed to the client.
    pub bytes_to_client: u64,
}

/// The proxy. It ends, with every connection, when it is dropped.
#[derive(Debug)]
pub struct FaultProxy {
    shared: Arc<Shared>,
    address: SocketAddr,
    _background: Background,
}

#[derive(Debug)]
struct Shared {
    upstream: Mutex<SocketAddr>,
    mode: watch::Sender<Mode>,
    /// The mode of marked connections; `Pass` leaves them to the other.
    marked_mode: watch::Sender<Mode>,
    /// Raised, with the manner, to cut every open connection.
    cut: watch::Sender<(u64, Cut)>,
    watch: Mutex<Watch>,
    speaks_postgres: bool,
    tallies: Tallies,
}

#[derive(Debug, Default)]
struct Tallies {
    connections: AtomicU64,
    open: AtomicU64,
    commits: AtomicU64,
    statement_cuts: AtomicU64,
    bytes_to_server: AtomicU64,
    bytes_to_client: AtomicU64,
}

impl FaultProxy {
    /// In front of anything that speaks over TCP.
    ///
    /// # Panics
    /// When the machine has no free port.
    pub async fn tcp(upstream: SocketAddr) -> FaultProxy {
        FaultProxy::start(upstream, false).await
    }

    /// In front of PostgreSQL, whose protocol it reads along. TLS is refused in the server's name.
    ///
    /// # Panics
    /// When the machine has no free port.
    pub async fn postgres(upstream: SocketAddr) -> FaultProxy {
        FaultProxy::start(upstream, true).await
    }

    async fn start(upstream: SocketAddr, speaks_postgres: bool) -> FaultProxy {
        let background = Background::start("fault-proxy");
        let (listener, address) = crate::eventually_some(Duration::from_secs(5), "a free port", || async {
            let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
            let listener = std::net::TcpListener::bind(address).ok()?;
            listener.set_nonblocking(true).ok()?;
            Some((listener, address))
        })
        .await;
        let shared = Arc::new(Shared {
            upstream: Mutex::new(upstream),
            mode: watch::Sender::new(Mode::Pass),
            marked_mode: watch::Sender::new(Mode::Pass),
            cut: watch::Sender::new((0, Cut::Reset)),
            watch: Mutex::default(),
            speaks_postgres,
            tallies: Tallies::default(),
        });
        background.handle().spawn(accept_loop(listener, Arc::clone(&shared)));
        FaultProxy { shared, address, _background: background }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The same URL, but through this proxy: replaces host and port.
    ///
    /// # Panics
    /// When the URL has no scheme.
    pub fn url(&self, direct: &str) -> String {
        let (scheme, rest) = direct.split_once("://").expect("a URL has a scheme");
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let user = rest[..end].rsplit_once('@').map(|(user, _)| format!("{user}@")).unwrap_or_default();
        format!("{scheme}://{user}{}{}", self.address, &rest[end..])
    }

    /// Switches what happens to bytes and new connections, from now on.
    pub fn set(&self, mode: Mode) {
        self.shared.mode.send_replace(mode);
    }

    /// Sends new connections elsewhere; open ones stay where they are.
    pub fn set_upstream(&self, upstream: SocketAddr) {
        *self.shared.upstream.lock().expect("held for moments only") = upstream;
    }

    /// Ends every open connection, on both sides.
    pub fn cut(&self, manner: Cut) {
        self.shared.cut.send_modify(|(count, how)| {
            *count += 1;
            *how = manner;
        });
    }

    /// Lets the next `times` COMMITs through and cuts each connection before the answer.
    pub fn cut_on_commit_answer(&self, times: u32) {
        self.cut_around(Moment::BeforeItsAnswer, Cut::Reset, times, is_commit);
    }

    /// Cuts the connections of the next `times` COMMITs before they reach the server.
    pub fn cut_before_commit(&self, times: u32) {
        self.cut_around(Moment::BeforeIt, Cut::Reset, times, is_commit);
    }

    /// Cuts around the next `times` statements whose text satisfies `matches`. The text of a prepared statement is
    /// remembered from its preparation. Replaces an earlier trap.
    pub fn cut_around(&self, moment: Moment, manner: Cut, times: u32, matches: impl Fn(&str) -> bool + Send + 'static) {
        self.shared.watch().set_trap(moment, manner, times, Box::new(matches));
    }

    /// Marks every connection that says, from now on, a statement whose text satisfies `matches` (`LISTEN`, for
    /// example), for [`FaultProxy::set_marked`]. Replaces an earlier mark's condition; marks themselves stay.
    pub fn mark(&self, matches: impl Fn(&str) -> bool + Send + 'static) {
        self.shared.watch().set_mark(Box::new(matches));
    }

    /// Switches what happens to the bytes of marked connections, whatever happens to others: a black hole makes them
    /// half-open while the rest goes on. `Pass` leaves them to [`FaultProxy::set`] again.
    pub fn set_marked(&self, mode: Mode) {
        self.shared.marked_mode.send_replace(mode);
    }

    /// What happened so far.
    pub fn counters(&self) -> Counters {
        let tallies = &self.shared.tallies;
        let read = |tally: &AtomicU64| tally.load(Ordering::SeqCst);
        Counters {
            connections: read(&tallies.connections),
            open: read(&tallies.open),
            commits: read(&tallies.commits),
            statement_cuts: read(&tallies.statement_cuts),
            bytes_to_server: read(&tallies.bytes_to_server),
            bytes_to_client: read(&tallies.bytes_to_client),
        }
    }
}

impl Shared {
    fn watch(&self) -> MutexGuard<'_, Watch> {
        self.watch.lock().expect("held for moments only, by code that panics if a test's condition does")
    }

    /// Looks at a statement on its way to the server, and springs the trap if it is meant.
    fn on_statement(&self, sql: &str) -> Option<(Moment, Cut)> {
        if is_commit(sql) {
            self.tallies.commits.fetch_add(1, Ordering::SeqCst);
        }
        let sprung = self.watch().spring(sql)?;
        self.tallies.statement_cuts.fetch_add(1, Ordering::SeqCst);
        Some(sprung)
    }
}

async fn accept_loop(listener: std::net::TcpListener, shared: Arc<Shared>) {
    let listener = TcpListener::from_std(listener).expect("a listener that does not block, on a runtime with IO");
    let mut connections = tokio::task::JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                if let Ok((client, _)) = accepted {
                    connections.spawn(relay::connection(client, Arc::clone(&shared)));
                }
            }
            Some(_) = connections.join_next() => {}
        }
    }
}
