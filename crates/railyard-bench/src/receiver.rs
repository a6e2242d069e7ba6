//! The receiver: a lean HTTP/1.1 server in a process of its own, which answers 200 with an empty JSON object, or 503
//! below `/fail`. It keeps connections, checks nothing and counts.
//!
//! Its parent talks to it over standard input and output, a line each way ([`control`]), so that no question of ours
//! competes with the calls. It ends when its standard input does: it never outlives a bench.

mod control;
mod process;

use std::collections::HashMap;
use std::convert::Infallible;
use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinSet;

pub(crate) use process::{Receiver, Starts};

/// What the node sends with every call, and the bench knows a message by.
const KEY_HEADER: &str = "Idempotency-Key";

/// What was received, since the last reset.
#[derive(Default)]
struct Seen {
    delivered: AtomicU64,
    refused: AtomicU64,
    first_ns: AtomicU64,
    /// Whether moments are kept by message.
    stamping: AtomicBool,
    /// When each message came first, on CLOCK_BOOTTIME; grows with the messages of one run.
    stamps: Mutex<HashMap<String, u64>>,
    stamped: Notify,
    /// When each call came, repeats among them, while moments are kept.
    starts: Mutex<Vec<u64>>,
    /// How late this process woke for a timer, at worst: what its moments may be off by.
    late_ns: AtomicU64,
}

/// Runs until standard input ends.
pub(crate) async fn serve() -> anyhow::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let seen = Arc::new(Seen::default());
    let mut out = std::io::stdout();
    writeln!(out, "{}", listener.local_addr()?)?;
    out.flush()?;
    tokio::select! {
        () = accept(listener, Arc::clone(&seen)) => Ok(()),
        () = watch_itself(&seen) => Ok(()),
        result = control::answer(&seen) => result,
    }
}

async fn accept(listener: TcpListener, seen: Arc<Seen>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                if let Ok((stream, _)) = accepted {
                    connections.spawn(connection(stream, Arc::clone(&seen)));
                }
            }
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
        }
    }
}

async fn connection(stream: TcpStream, seen: Arc<Seen>) {
    // Without it, answers would wait for the client's acknowledgement.
    drop(stream.set_nodelay(true));
    let service = service_fn(move |request| receive(request, Arc::clone(&seen)));
    // A client that goes away is its own affair.
    drop(Builder::new(TokioExecutor::new()).http1_only().serve_connection(TokioIo::new(stream), service).await);
}

/// While moments are kept, looks how much later than asked for this process runs.
async fn watch_itself(seen: &Seen) {
    const NAP: Duration = Duration::from_millis(5);
    loop {
        let before = now_ns();
        tokio::time::sleep(NAP).await;
        if seen.stamping.load(Ordering::Relaxed) {
            let late = (now_ns() - before).saturating_sub(u64::try_from(NAP.as_nanos()).unwrap_or(0));
            seen.late_ns.fetch_max(late, Ordering::Relaxed);
        }
    }
}

/// The moment of a call is when its head was read: microseconds after its first byte.
async fn receive(request: Request<Incoming>, seen: Arc<Seen>) -> Result<Response<Full<Bytes>>, Infallible> {
    let at = now_ns();
    let refuse = request.uri().path().starts_with("/fail");
    if refuse {
        seen.refused.fetch_add(1, Ordering::Relaxed);
    } else {
        seen.delivered(&request, at);
    }
    // The body is read to its end, or the connection could not be kept.
    drop(request.into_body().collect().await);
    let mut response = Response::new(Full::new(Bytes::from_static(b"{}")));
    if refuse {
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    }
    Ok(response)
}

impl Seen {
    fn delivered(&self, request: &Request<Incoming>, at: u64) {
        // Refused by all but the first: then it stands.
        let _ = self.first_ns.compare_exchange(0, at, Ordering::Relaxed, Ordering::Relaxed);
        if self.stamping.load(Ordering::Relaxed) {
            self.starts.lock().unwrap_or_else(PoisonError::into_inner).push(at);
        }
        if self.stamping.load(Ordering::Relaxed)
            && let Some(key) = request.headers().get(KEY_HEADER).and_then(|key| key.to_str().ok())
        {
            self.stamps.lock().unwrap_or_else(PoisonError::into_inner).entry(key.to_owned()).or_insert(at);
            self.stamped.notify_waiters();
        }
        // Last: who sees the count may ask for the rest.
        self.delivered.fetch_add(1, Ordering::Release);
    }
}

fn now_ns() -> u64 {
    u64::try_from(railyard_store::clock::boottime().as_nanos()).unwrap_or(u64::MAX)
}
