//! Places and breakers, one set for each endpoint (`scheme://host:port`), so that a dead receiver keeps its own
//! callers waiting and nobody else's.
//!
//! A group takes a [`Place`] before its intent is committed, so waiting is never an attempt. Places are given in the
//! order of asking; dropping one, on whatever way out, gives it to the next. The breaker is asked when a place comes
//! free, not when the queue is joined: everybody who waited for an endpoint that died meanwhile is sent away at once.
//!
//! All of this is one node's memory. A process that dies forgets it, and learns anew.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use railyard_core::breaker::{Breaker, Pass, Policy, Seen, Verdict};
use railyard_core::{CallOutcome, ErrorCode};
use serde::Serialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::options::HttpOptions;

/// Below this many entries nobody looks for idle ones.
const SWEEP_ENDPOINTS_MIN: usize = 1024;

/// All endpoints that are in use, or that something is remembered of.
pub struct Endpoints {
    places_max: usize,
    policy: Policy,
    origin: Instant,
    map: Mutex<Map>,
}

#[derive(Default)]
struct Map {
    endpoints: HashMap<Arc<str>, Arc<Endpoint>>,
    /// The size at which idle entries are dropped; twice what was left the last time, so that it costs little.
    sweep_at: usize,
}

struct Endpoint {
    name: Arc<str>,
    places_max: usize,
    places: Arc<Semaphore>,
    waiting: AtomicUsize,
    breaker: Mutex<Breaker>,
    origin: Instant,
}

/// What an endpoint would say now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// A place is free and nobody waits for it.
    Room,
    /// All places are taken.
    Full,
    /// Its breaker lets nobody through.
    Open {
        /// How long asking again is useless.
        wait: Duration,
    },
}

/// The breaker lets nobody through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the endpoint's breaker is open for another {} ms", wait.as_millis())]
pub struct Refused {
    /// How long asking again is useless.
    pub wait: Duration,
}

/// The right to call an endpoint, one call at a time. Dropping it frees the place; a call that was not reported then
/// counts neither way.
pub struct Place {
    endpoint: Arc<Endpoint>,
    pass: Option<Pass>,
    _permit: OwnedSemaphorePermit,
}

/// An endpoint, for the admin API and for tests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EndpointSeen {
    /// `scheme://host:port`.
    pub endpoint: String,
    /// Places taken.
    pub in_use: usize,
    /// Groups that wait for a place.
    pub waiting: usize,
    /// Its breaker.
    pub breaker: Seen,
}

impl Endpoints {
    /// None known yet.
    #[must_use]
    pub fn new(options: &HttpOptions) -> Self {
        Self::with_policy(options, options.breaker.policy())
    }

    fn with_policy(options: &HttpOptions, policy: Policy) -> Self {
        Self {
            places_max: usize::try_from(options.endpoint_concurrency).unwrap_or(usize::MAX).min(Semaphore::MAX_PERMITS),
            policy,
            origin: Instant::now(),
            map: Mutex::new(Map { endpoints: HashMap::new(), sweep_at: SWEEP_ENDPOINTS_MIN }),
        }
    }

    /// A look that takes nothing and waits for nothing.
    #[must_use]
    pub fn admit(&self, endpoint: &str) -> Look {
        let Some(known) = lock(&self.map).endpoints.get(endpoint).map(Arc::clone) else { return Look::Room };
        let now = known.now();
        if let Err(until) = lock(&known.breaker).look(now) {
            return Look::Open { wait: until.saturating_sub(now) };
        }
        if known.places.available_permits() == 0 || known.waiting() > 0 { Look::Full } else { Look::Room }
    }

    /// Waits for a place, in the order of asking. Dropping the future leaves the queue.
    ///
    /// # Errors
    /// The breaker is open, or opened while this waited.
    pub async fn take(&self, endpoint: &str) -> Result<Place, Refused> {
        let known = self.entry(endpoint);
        known.refuse_if_open()?;
        let places = Arc::clone(&known.places);
        let permit = {
            let _waiting = Waiting::begin(&known.waiting);
            places.acquire_owned().await.expect("the semaphore is never closed")
        };
        let pass = known.pass()?;
        Ok(Place { endpoint: known, pass: Some(pass), _permit: permit })
    }

    /// Everything that is known, busiest first.
    #[must_use]
    pub fn seen(&self) -> Vec<EndpointSeen> {
        let known: Vec<Arc<Endpoint>> = lock(&self.map).endpoints.values().map(Arc::clone).collect();
        let mut seen: Vec<EndpointSeen> = known.iter().map(|endpoint| endpoint.seen()).collect();
        seen.sort_by(|a, b| (b.waiting, b.in_use, &a.endpoint).cmp(&(a.waiting, a.in_use, &b.endpoint)));
        seen
    }

    fn entry(&self, endpoint: &str) -> Arc<Endpoint> {
        let mut map = lock(&self.map);
        if let Some(known) = map.endpoints.get(endpoint) {
            return Arc::clone(known);
        }
        if map.endpoints.len() >= map.sweep_at {
            // Whoever uses an entry holds it, and new holders come by this lock only.
            map.endpoints.retain(|_, known| Arc::strong_count(known) > 1 || !known.is_blank());
            map.sweep_at = SWEEP_ENDPOINTS_MIN.max(map.endpoints.len() * 2);
        }
        let name: Arc<str> = Arc::from(endpoint);
        let made = Arc::new(Endpoint {
            name: Arc::clone(&name),
            places_max: self.places_max,
            places: Arc::new(Semaphore::new(self.places_max)),
            waiting: AtomicUsize::new(0),
            breaker: Mutex::new(Breaker::new(self.policy)),
            origin: self.origin,
        });
        map.endpoints.insert(name, Arc::clone(&made));
        made
    }
}

impl Endpoint {
    /// The breaker's clock.
    fn now(&self) -> Duration {
        self.origin.elapsed()
    }

    fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    fn refuse_if_open(&self) -> Result<(), Refused> {
        let now = self.now();
        lock(&self.breaker).look(now).map_err(|until| Refused { wait: until.saturating_sub(now) })
    }

    fn pass(&self) -> Result<Pass, Refused> {
        let now = self.now();
        lock(&self.breaker).admit(now).map_err(|until| Refused { wait: until.saturating_sub(now) })
    }

    fn report(&self, pass: Pass, verdict: Verdict) {
        let now = self.now();
        lock(&self.breaker).report(pass, verdict, now);
    }

    fn is_blank(&self) -> bool {
        lock(&self.breaker).is_blank(self.now())
    }

    fn seen(&self) -> EndpointSeen {
        EndpointSeen {
            endpoint: self.name.as_ref().to_owned(),
            in_use: self.places_max - self.places.available_permits().min(self.places_max),
            waiting: self.waiting(),
            breaker: lock(&self.breaker).seen(self.now()),
        }
    }
}

impl Place {
    /// Tells the breaker how the call went. Only the first report after [`Endpoints::take`] or [`Place::renew`]
    /// counts.
    pub fn report(&mut self, outcome: &CallOutcome) {
        if let Some(pass) = self.pass.take() {
            self.endpoint.report(pass, verdict(outcome));
        }
    }

    /// Asks for another call on the same place: a group that goes on with its next message, while nobody waits.
    ///
    /// # Errors
    /// The breaker is open. The place is to be dropped.
    pub fn renew(&mut self) -> Result<(), Refused> {
        if self.pass.is_none() {
            self.pass = Some(self.endpoint.pass()?);
        }
        Ok(())
    }

    /// Whether somebody waits for this place, so that a group with more to send should give it up.
    #[must_use]
    pub fn has_waiters(&self) -> bool {
        self.endpoint.waiting() > 0
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(pass) = self.pass.take() {
            self.endpoint.report(pass, Verdict::Neutral);
        }
    }
}

impl std::fmt::Debug for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Place").field("endpoint", &self.endpoint.name).finish_non_exhaustive()
    }
}

/// Counts somebody in the queue for as long as it lives: a waiting future may be dropped at any moment.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn begin(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What an outcome tells about the endpoint, which is not what it tells about the message: a receiver that refuses a
/// message is well.
fn verdict(outcome: &CallOutcome) -> Verdict {
    match outcome {
        CallOutcome::Delivered(_) => Verdict::Success,
        CallOutcome::Deferred { .. } | CallOutcome::NotStarted { .. } => Verdict::Neutral,
        CallOutcome::Failed { code, answer, .. } => match (code, answer) {
            (ErrorCode::HttpStatus(status), _) if *status >= 500 || matches!(status, 408 | 425) => Verdict::Failure,
            (_, Some(_)) => Verdict::Success,
            (code, None) if code.blames_endpoint() => Verdict::Failure,
            (_, None) => Verdict::Neutral,
        },
    }
}

/// A panic while the lock was held cannot have left these maps and counters half-done.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
