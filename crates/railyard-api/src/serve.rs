//! The accept loop: bounds on connections and on slow headers, which axum's own has not.
//!
//! Connections are tasks of a set that this function owns: when it ends, they have ended or are aborted.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::extract::{ConnectInfo, Request};
use axum::{BoxError, Router};
use bytes::Bytes;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tower::ServiceExt;

/// How long a failed accept (no file descriptors left) makes the loop wait.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Bytes of a request's head; also the smallest buffer that the server takes.
const HEAD_BYTES_MAX: usize = 32 * 1024;

/// Bounds of the server.
#[derive(Clone, Copy, Debug)]
pub struct ServeOptions {
    /// Connections at once; the next ones wait in the kernel's queue.
    pub connections_max: usize,
    /// From the first byte of a connection, or the end of the request before, to the end of a request's head.
    pub head_timeout: Duration,
    /// From the shutdown to the end of the last request.
    pub drain_timeout: Duration,
}

impl Default for ServeOptions {
    fn default() -> Self {
        Self { connections_max: 1024, head_timeout: Duration::from_secs(20), drain_timeout: Duration::from_secs(10) }
    }
}

/// Serves until `shutdown` is ready; then takes no more connections, lets running requests end within the drain
/// timeout, and returns.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    shutdown: impl Future<Output = ()> + Send,
    options: ServeOptions,
) {
    let places = Arc::new(Semaphore::new(options.connections_max));
    let (stopping, stopped) = watch::channel(false);
    let mut connections = JoinSet::new();
    tokio::pin!(shutdown);
    loop {
        tokio::select! {
            () = &mut shutdown => break,
            accepted = accept(&listener, &places) => {
                if let Some((stream, peer, place)) = accepted {
                    connections.spawn(connection(stream, peer, router.clone(), stopped.clone(), place, options));
                }
            }
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
        }
    }
    drop(listener);
    stopping.send_replace(true);
    let drained = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(options.drain_timeout, drained).await.is_err() {
        tracing::warn!("requests were still running at the end of the drain timeout");
    }
}

/// The next connection, once there is a place for it.
async fn accept(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
) -> Option<(TcpStream, SocketAddr, OwnedSemaphorePermit)> {
    let place = places.clone().acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((stream, peer)) => Some((stream, peer, place)),
        Err(error) => {
            // A client that went away again is its own affair; no descriptors left is ours, and passes.
            tracing::debug!(%error, "accept failed");
            tokio::time::sleep(ACCEPT_PAUSE).await;
            None
        }
    }
}

async fn connection(
    stream: TcpStream,
    peer: SocketAddr,
    router: Router,
    mut stopped: watch::Receiver<bool>,
    _place: OwnedSemaphorePermit,
    options: ServeOptions,
) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "no TCP_NODELAY");
    }
    let service = router.map_request(move |request| from_peer(request, peer));
    let mut builder = Builder::new(TokioExecutor::new()).http1_only();
    builder.http1().timer(TokioTimer::new()).header_read_timeout(options.head_timeout).max_buf_size(HEAD_BYTES_MAX);
    let serving = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(service));
    tokio::pin!(serving);
    let mut draining = false;
    loop {
        tokio::select! {
            result = serving.as_mut() => {
                if let Err(error) = result {
                    tracing::trace!(%error, %peer, "connection ended");
                }
                break;
            }
            _ = stopped.wait_for(|stopping| *stopping), if !draining => {
                draining = true;
                serving.as_mut().graceful_shutdown();
            }
        }
    }
}

fn from_peer<B>(mut request: Request<B>, peer: SocketAddr) -> Request
where
    B: HttpBody<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    request.extensions_mut().insert(ConnectInfo(peer));
    request.map(Body::new)
}
