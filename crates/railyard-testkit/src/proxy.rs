//! A TCP proxy that breaks what passes through it: in front of PostgreSQL or of a receiver.
//!
//! It lives on a thread of its own. Faults are switched while connections are open. In front of PostgreSQL
//! ([`FaultProxy::postgres`]) it reads the protocol along and can let a COMMIT through and cut the connection before
//! its answer comes back: the server has committed and the client cannot know.

mod backend;
mod frontend;
mod relay;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::background::Background;
use crate::free_port;

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
    /// Raised, with the manner, to cut every open connection.
    cut: watch::Sender<(u64, Cut)>,
    trap: Mutex<Option<Trap>>,
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

/// Waits for statements; taken away after it went off `left` times.
struct Trap {
    matches: Box<dyn Fn(&str) -> bool + Send>,
    moment: Moment,
    manner: Cut,
    left: u32,
}

impl std::fmt::Debug for Trap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Trap {{ {:?}, {} left }}", self.moment, self.left)
    }
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
            cut: watch::Sender::new((0, Cut::Reset)),
            trap: Mutex::new(None),
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
        let trap = (times > 0).then(|| Trap { matches: Box::new(matches), moment, manner, left: times });
        *self.shared.trap() = trap;
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
    fn trap(&self) -> MutexGuard<'_, Option<Trap>> {
        self.trap.lock().expect("held for moments only")
    }

    /// Looks at a statement on its way to the server, and springs the trap if it is meant.
    fn on_statement(&self, sql: &str) -> Option<(Moment, Cut)> {
        if is_commit(sql) {
            self.tallies.commits.fetch_add(1, Ordering::SeqCst);
        }
        let mut place = self.trap();
        let trap = place.as_mut().filter(|trap| (trap.matches)(sql))?;
        let sprung = (trap.moment, trap.manner);
        trap.left -= 1;
        if trap.left == 0 {
            *place = None;
        }
        self.tallies.statement_cuts.fetch_add(1, Ordering::SeqCst);
        Some(sprung)
    }
}

/// Whether a statement, alone or as the last of several, commits.
fn is_commit(sql: &str) -> bool {
    let last = sql.trim().trim_end_matches(';').rsplit(';').next().unwrap_or_default();
    last.split_whitespace().next().is_some_and(|word| word.eq_ignore_ascii_case("commit"))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commits_are_told_from_other_statements() {
        for sql in ["COMMIT", "commit;", " Commit ", "insert into t values (1); COMMIT", "COMMIT AND CHAIN"] {
            assert!(is_commit(sql), "{sql}");
        }
        for sql in ["", "select 'commit'", "commit_log", "BEGIN", "COMMIT; select 1"] {
            assert!(!is_commit(sql), "{sql}");
        }
    }
}
