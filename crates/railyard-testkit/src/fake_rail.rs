//! A real HTTP receiver that misbehaves on demand and remembers everything it was sent.
//!
//! ```no_run
//! # async fn test() {
//! # use railyard_testkit::FakeRail;
//! # use std::time::Duration;
//! let rail = FakeRail::start().await.fails(3).then_ok();
//! let rail = FakeRail::start().await.each_message().fails(1).then_ok().for_group("slow").ok().delay(Duration::from_secs(2));
//! # }
//! ```
//!
//! It speaks HTTP/1.1 over plain sockets, so tests see the bytes as they came and send bytes no library would. It
//! lives on a thread of its own and ends when the last clone is dropped. A *script* is a list of steps for a scope
//! (a message, a group, a path, each message by itself, or anything); a request takes the next step of the narrowest
//! scope that has one left, else the answer of [`FakeRail::fails_randomly`], else 200 with an empty body.

mod connection;
mod gate;
mod log;
mod receipt;
mod reply;
mod script;
mod tls;
mod wire;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use crate::background::Background;
use log::Log;
use script::{Scope, Script};

pub use gate::Gate;
pub use receipt::{ConnectionRecord, Receipt};
pub use reply::Reply;
pub use tls::{Authority, Cert, TlsClient};

/// A receiver. Clones are the same receiver; each clone has its own scope for the steps that are added through it.
#[derive(Debug, Clone)]
pub struct FakeRail {
    shared: Arc<Shared>,
    scope: Scope,
    /// Ends the receiver with the last clone.
    home: Arc<Home>,
}

/// What the connections share with the test.
#[derive(Debug)]
struct Shared {
    address: SocketAddr,
    host: &'static str,
    ca_pem: Option<String>,
    tls: Option<TlsAcceptorDebug>,
    handshake: Mutex<Duration>,
    script: Mutex<Script>,
    log: Log,
    /// Raised when open connections must be reset.
    cut: watch::Sender<u64>,
}

/// The accept loop and the thread it runs on.
#[derive(Debug)]
struct Home {
    accepting: Mutex<Option<JoinHandle<()>>>,
    background: Background,
}

/// The acceptor has no Debug of its own.
#[derive(Clone)]
struct TlsAcceptorDebug(TlsAcceptor);

impl std::fmt::Debug for TlsAcceptorDebug {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TlsAcceptor")
    }
}

impl FakeRail {
    /// Starts a plain HTTP receiver on a free port of 127.0.0.1.
    ///
    /// # Panics
    /// When the machine has no free port.
    pub async fn start() -> FakeRail {
        FakeRail::start_with(None).await
    }

    /// Starts an HTTPS receiver that shows `cert`; clients that trust [`FakeRail::ca_pem`] accept a good one.
    ///
    /// # Panics
    /// When the machine has no free port.
    pub async fn tls(cert: Cert) -> FakeRail {
        FakeRail::start_with(Some(cert)).await
    }

    async fn start_with(cert: Option<Cert>) -> FakeRail {
        let background = Background::start("fake-rail");
        let (listener, address) = bind(None).await;
        let shared = Arc::new(Shared {
            address,
            host: if cert.is_some() { "localhost" } else { "127.0.0.1" },
            ca_pem: cert.as_ref().map(|cert| cert.ca_pem().to_owned()),
            tls: cert.as_ref().map(|cert| TlsAcceptorDebug(cert.acceptor())),
            handshake: Mutex::default(),
            script: Mutex::new(Script::default()),
            log: Log::new(),
            cut: watch::Sender::new(0),
        });
        let home = Home { accepting: Mutex::new(None), background };
        let rail = FakeRail { shared, scope: Scope::Any, home: Arc::new(home) };
        rail.accept(listener);
        rail
    }

    fn accept(&self, listener: std::net::TcpListener) {
        let shared = Arc::clone(&self.shared);
        let loop_ = connection::accept_loop(listener, shared);
        *self.home.accepting.lock().expect("held for moments only") = Some(self.home.background.handle().spawn(loop_));
    }

    /// Stops listening and resets every open connection: connects are refused until [`FakeRail::come_back`].
    ///
    /// # Panics
    /// Never in practice: only if a thread panicked while it held the accept loop's place.
    pub async fn go_down(&self) {
        let accepting = self.home.accepting.lock().expect("held for moments only").take();
        if let Some(accepting) = accepting {
            accepting.abort();
            let _ = accepting.await;
        }
        self.cut_connections();
    }

    /// Listens again at the same address.
    ///
    /// # Panics
    /// When something else took the port meanwhile.
    pub async fn come_back(&self) {
        let (listener, _) = bind(Some(self.shared.address)).await;
        self.accept(listener);
    }

    /// Resets every open connection, in whatever state its exchange is.
    pub fn cut_connections(&self) {
        self.shared.cut.send_modify(|cuts| *cuts += 1);
    }

    /// From now on, TLS handshakes begin this long after their connections.
    ///
    /// # Panics
    /// Never in practice: only if a thread panicked while it held this value.
    pub fn handshake_takes(&self, pause: Duration) {
        *self.shared.handshake.lock().expect("held for moments only") = pause;
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.shared.address
    }

    /// Its URL with path `/`, for example `http://127.0.0.1:23456/`.
    pub fn url(&self) -> String {
        self.url_for("/")
    }

    /// Its URL with the given path, which starts with `/`.
    pub fn url_for(&self, path: &str) -> String {
        let scheme = if self.shared.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}:{}{path}", self.shared.host, self.shared.address.port())
    }

    /// The certificate authority to trust, as PEM.
    ///
    /// # Panics
    /// On a receiver without TLS.
    pub fn ca_pem(&self) -> &str {
        self.shared.ca_pem.as_deref().expect("a receiver with TLS")
    }

    /// All complete requests so far, in the order in which they became complete.
    pub fn receipts(&self) -> Vec<Receipt> {
        self.shared.log.receipts()
    }

    /// Every request whose head came, complete or not, in the order of the heads.
    pub fn exchanges(&self) -> Vec<Receipt> {
        self.shared.log.exchanges()
    }

    /// Every connection that was accepted.
    pub fn connections(&self) -> Vec<ConnectionRecord> {
        self.shared.log.connections()
    }

    /// Waits for `n` complete requests and returns all there are.
    ///
    /// # Panics
    /// At the deadline, with what came instead.
    pub async fn await_receipts(&self, n: usize, deadline: Duration) -> Vec<Receipt> {
        self.await_where(&format!("{n} requests"), deadline, |receipts| receipts.len() >= n).await
    }

    /// Waits for `n` requests whose answers are out (or whose clients have gone).
    ///
    /// # Panics
    /// At the deadline, with what came instead.
    pub async fn await_answered(&self, n: usize, deadline: Duration) -> Vec<Receipt> {
        let answered = |receipts: &[Receipt]| receipts.iter().filter(|r| r.finished_at.is_some()).count() >= n;
        self.await_where(&format!("{n} answered requests"), deadline, answered).await
    }

    /// Waits until the complete requests satisfy a condition.
    ///
    /// # Panics
    /// At the deadline, with `what` and what came instead.
    pub async fn await_where(
        &self,
        what: &str,
        deadline: Duration,
        condition: impl Fn(&[Receipt]) -> bool,
    ) -> Vec<Receipt> {
        self.shared.log.await_where(what, deadline, condition).await
    }

    /// Order offences so far; see [`crate::verify::order_violations`].
    pub fn order_violations(&self) -> Vec<String> {
        crate::verify::order_violations(&self.receipts())
    }

    /// Requests of one group that were open at once, at most; see [`crate::verify::max_concurrent_per_group`].
    pub fn max_concurrent_per_group(&self) -> usize {
        crate::verify::max_concurrent_per_group(&self.exchanges())
    }

    fn script(&self) -> MutexGuard<'_, Script> {
        self.shared.script.lock().expect("held for moments only")
    }
}

/// Binds outside the ephemeral range (see [`crate::free_port`]), again and again if somebody was faster.
async fn bind(again: Option<SocketAddr>) -> (std::net::TcpListener, SocketAddr) {
    crate::eventually_some(Duration::from_secs(5), "a free port", || async {
        let address = again.unwrap_or_else(|| (Ipv4Addr::LOCALHOST, crate::free_port()).into());
        let listener = std::net::TcpListener::bind(address).ok()?;
        listener.set_nonblocking(true).ok()?;
        Some((listener, address))
    })
    .await
}

/// A listener of the runtime that calls this.
fn adopt(listener: std::net::TcpListener) -> TcpListener {
    TcpListener::from_std(listener).expect("a listener that does not block, on a runtime with IO")
}
