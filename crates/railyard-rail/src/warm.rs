//! Connections that are open before the slots of their calls begin.
//!
//! A call under a limit may start within 50 ms of its slot, and making a connection may take longer: name, TCP and TLS are
//! several round trips. So a call takes a [`Claim`] to its endpoint, and where making a connection is not known to be
//! quick, one is made and laid aside before a slot is asked for. HTTP/1 cannot open a connection without a request; what
//! opens it here is a layer around the client's connector:
//!
//! - a second client without a pool, the *warmer*, is given a request that it never gets a connection for: its layer lays
//!   the new connection aside and reports an error instead;
//! - the client's own layer hands out what was laid aside before it makes a new connection, and looks at the gate when a
//!   connection that it made is there: if the slot is over by then, nothing is sent, and the connection is laid aside.
//!
//! Names are resolved, addresses judged and certificates checked as for every call, since it is the same connector. A
//! connection is used within six seconds and if nothing came over it meanwhile, its end least of all.

use std::any::Any;
use std::collections::{HashMap, VecDeque};
use std::error::Error;
use std::future::ready;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use hyper::rt::{Read, ReadBuf};
use tower::{Layer, Service};

use crate::gate::Gate;

/// Making a connection that takes no longer than this may be left to the slot.
const QUICK: Duration = Duration::from_millis(10);
/// After this a claim wants another connection.
pub const RENEWED: Duration = Duration::from_secs(3);
/// A connection that was laid aside longer ago is not used: its receiver may be about to close it.
const KEPT: Duration = Duration::from_secs(6);
/// With more endpoints than this, those that nobody claims are forgotten.
const ENDPOINTS_MAX: usize = 4096;

tokio::task_local! {
    /// What the task's connection is for. Without it, a connection is made as if nothing of this existed.
    pub(crate) static CONNECTING: Connecting;
}

/// What a connection is for.
#[derive(Clone)]
pub(crate) struct Connecting {
    pub(crate) endpoint: Arc<str>,
    /// The gate of the call; none: it is to be laid aside.
    pub(crate) gate: Option<Arc<Gate>>,
}

/// What is known of endpoints, and the connections that were laid aside.
#[derive(Default)]
pub(crate) struct Warmth {
    endpoints: Mutex<HashMap<Arc<str>, Known>>,
}

#[derive(Default)]
struct Known {
    /// How long making its last connection took; none: nobody knows.
    took: Option<Duration>,
    claims: usize,
    /// Oldest first.
    aside: VecDeque<Aside>,
}

struct Aside {
    since: Instant,
    connection: Box<dyn Any + Send>,
}

/// A call's claim to a connection that is open before its slot. Held until the call has ended.
pub struct Claim {
    warmth: Arc<Warmth>,
    endpoint: Arc<str>,
}

impl Claim {
    /// `scheme://host:port`.
    pub(crate) fn endpoint(&self) -> &Arc<str> {
        &self.endpoint
    }

    /// Whether nobody knows how long making a connection takes.
    pub(crate) fn is_unknown(&self) -> bool {
        self.warmth.with(&self.endpoint, |known| known.took.is_none())
    }

    /// Whether making a connection takes long, and there are not enough for all claims.
    pub(crate) fn wants_one(&self) -> bool {
        self.warmth.with(&self.endpoint, |known| {
            let fresh = known.aside.iter().filter(|aside| aside.since.elapsed() < RENEWED).count();
            known.took.is_some_and(|took| took > QUICK) && fresh < known.claims
        })
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.warmth.with(&self.endpoint, |known| known.claims = known.claims.saturating_sub(1));
    }
}

impl Warmth {
    pub(crate) fn claim(self: &Arc<Self>, endpoint: &str) -> Claim {
        let endpoint: Arc<str> = Arc::from(endpoint);
        self.with(&endpoint, |known| known.claims += 1);
        Claim { warmth: Arc::clone(self), endpoint }
    }

    /// Closes what nobody has used. Called every now and then, as long as there are claims.
    pub(crate) fn sweep(&self) {
        let mut endpoints = self.lock();
        for known in endpoints.values_mut() {
            known.aside.retain(|aside| aside.since.elapsed() < KEPT);
        }
        if endpoints.len() > ENDPOINTS_MAX {
            endpoints.retain(|_, known| known.claims > 0 || !known.aside.is_empty());
        }
    }

    /// Without a claim nobody would come for it.
    fn lay_aside(&self, endpoint: &Arc<str>, connection: Box<dyn Any + Send>) {
        if let Some(known) = self.lock().get_mut(endpoint).filter(|known| known.claims > 0) {
            known.aside.push_back(Aside { since: Instant::now(), connection });
        }
    }

    fn took(&self, endpoint: &Arc<str>, took: Option<Duration>) {
        if let Some(known) = self.lock().get_mut(endpoint) {
            known.took = took;
        }
    }

    /// The oldest one that is still open.
    fn take<C: Read + Unpin + 'static>(&self, endpoint: &Arc<str>) -> Option<C> {
        loop {
            let aside = self.lock().get_mut(endpoint)?.aside.pop_front()?;
            let Ok(mut connection) = aside.connection.downcast::<C>() else { continue };
            if aside.since.elapsed() < KEPT && is_open(connection.as_mut()) {
                return Some(*connection);
            }
        }
    }

    fn with<T>(&self, endpoint: &Arc<str>, look: impl FnOnce(&mut Known) -> T) -> T {
        look(self.lock().entry(Arc::clone(endpoint)).or_default())
    }

    /// A panic while the lock was held cannot have left these counters and queues half-done.
    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, Known>> {
        self.endpoints.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Nothing has come, neither the end nor an answer that nobody asked for.
fn is_open<C: Read + Unpin>(connection: &mut C) -> bool {
    let mut byte = [MaybeUninit::uninit(); 1];
    let mut buffer = ReadBuf::uninit(&mut byte);
    Pin::new(connection).poll_read(&mut Context::from_waker(Waker::noop()), buffer.unfilled()).is_pending()
}

/// The layer around a client's connector.
#[derive(Clone)]
pub(crate) struct WarmLayer {
    pub(crate) warmth: Arc<Warmth>,
    /// The warmer's: whatever it connects is laid aside.
    pub(crate) never_sends: bool,
}

/// A connector with the layer around it.
#[derive(Clone)]
pub(crate) struct Warming<S> {
    inner: S,
    layer: WarmLayer,
}

/// Instead of a connection, to the warmer: it is laid aside, or nobody knows for whom it is.
#[derive(Debug, thiserror::Error)]
#[error("the connection is laid aside")]
struct LaidAside;

type BoxError = Box<dyn Error + Send + Sync>;

impl<S> Layer<S> for WarmLayer {
    type Service = Warming<S>;

    fn layer(&self, inner: S) -> Warming<S> {
        Warming { inner, layer: self.clone() }
    }
}

impl<S, D> Service<D> for Warming<S>
where
    S: Service<D, Error = BoxError>,
    S::Response: Read + Unpin + Send + 'static,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, target: D) -> Self::Future {
        let warmth = Arc::clone(&self.layer.warmth);
        // hyper calls this within the poll of the request that needs a connection.
        let (endpoint, gate) = match CONNECTING.try_with(Connecting::clone) {
            Ok(Connecting { endpoint, gate }) => (endpoint, gate),
            Err(_) if self.layer.never_sends => return Box::pin(ready(Err(BoxError::from(LaidAside)))),
            Err(_) => return Box::pin(self.inner.call(target)),
        };
        if let Some(gate) = &gate
            && let Some(connection) = warmth.take::<S::Response>(&endpoint)
        {
            let leave = gate.connected();
            return Box::pin(async move {
                match leave {
                    Ok(()) => Ok(connection),
                    Err(refused) => {
                        warmth.lay_aside(&endpoint, Box::new(connection));
                        Err(BoxError::from(refused))
                    }
                }
            });
        }
        let connecting = self.inner.call(target);
        Box::pin(async move {
            let began = Instant::now();
            let connection = match connecting.await {
                Ok(connection) => connection,
                Err(error) => {
                    warmth.took(&endpoint, None);
                    return Err(error);
                }
            };
            warmth.took(&endpoint, Some(began.elapsed()));
            let refused: BoxError = match gate {
                None => LaidAside.into(),
                Some(gate) => match gate.connected() {
                    Ok(()) => return Ok(connection),
                    Err(refused) => refused.into(),
                },
            };
            warmth.lay_aside(&endpoint, Box::new(connection));
            Err(refused)
        })
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    fn warmth() -> (Arc<Warmth>, Arc<str>) {
        (Arc::default(), Arc::from("https://a:443"))
    }

    #[test]
    fn a_claim_wants_a_connection_where_making_one_takes_long() {
        let (warmth, endpoint) = warmth();
        let claim = warmth.claim(&endpoint);
        assert!(claim.is_unknown() && !claim.wants_one());
        warmth.took(&endpoint, Some(QUICK));
        assert!(!claim.is_unknown() && !claim.wants_one());
        warmth.took(&endpoint, Some(QUICK * 2));
        assert!(claim.wants_one());
        warmth.lay_aside(&endpoint, Box::new(()));
        assert!(!claim.wants_one());
        let another = warmth.claim(&endpoint);
        assert!(another.wants_one(), "one for two");
        drop(claim);
        assert!(!another.wants_one());
    }

    #[tokio::test]
    async fn what_was_closed_meanwhile_is_not_handed_out() {
        let (warmth, endpoint) = warmth();
        let _claim = warmth.claim(&endpoint);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (closed, closing) = connection(&listener).await;
        let (open, _other_end) = connection(&listener).await;
        drop(closing);
        closed.readable().await.unwrap();
        let open_port = open.local_addr().unwrap();
        warmth.lay_aside(&endpoint, Box::new(Stream(closed)));
        warmth.lay_aside(&endpoint, Box::new(Stream(open)));
        let taken = warmth.take::<Stream>(&endpoint).unwrap();
        assert_eq!(taken.0.local_addr().unwrap(), open_port);
        assert!(warmth.take::<Stream>(&endpoint).is_none());
    }

    async fn connection(listener: &TcpListener) -> (TcpStream, TcpStream) {
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (stream, listener.accept().await.unwrap().0)
    }

    struct Stream(TcpStream);

    impl Read for Stream {
        fn poll_read(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
            _: hyper::rt::ReadBufCursor<'_>,
        ) -> Poll<std::io::Result<()>> {
            let mut byte = [0; 1];
            let mut buffer = tokio::io::ReadBuf::new(&mut byte);
            tokio::io::AsyncRead::poll_read(Pin::new(&mut self.0), context, &mut buffer)
        }
    }
}
