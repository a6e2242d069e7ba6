//! One call. See the crate's document for the order of things.
//!
//! Nothing here outlives the call but idle connections, and nobody depends on those: a process that dies here leaves
//! an in-flight row, and whoever heals it writes *unknown*.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use railyard_core::classify::{Received, Rules, classify};
use railyard_core::job::endpoint_of;
use railyard_core::limiter::Permit;
use railyard_core::limits::{ERROR_DETAIL_CHARS_MAX, NOT_STARTED_WAIT};
use railyard_core::rail::RailKind;
use railyard_core::text::clean_str;
use railyard_core::{CallOutcome, ErrorCode, Message, payment};
use reqwest::redirect;

use crate::answer::Reading;
use crate::clock::BootInstant;
use crate::credentials::Credentials;
use crate::failure::{self, Failure};
use crate::gate::{Gate, GatedBody, MayWrite};
use crate::guard::Guard;
use crate::options::{HttpOptions, RailOptions};
use crate::request;
use crate::resolver::GuardedResolver;
use crate::tls::{self, TlsError};
use crate::warm::{CONNECTING, Claim, Connecting, WarmLayer, Warmth};

/// Idle connections are closed before most receivers close them: a request that meets a closing connection is lost,
/// and may have been read.
const IDLE_CONNECTION: Duration = Duration::from_secs(4);
/// Waking this long after a deadline means that the process stood still.
const OVERSLEPT: Duration = Duration::from_millis(100);
/// How long it then looks for an answer that came meanwhile.
const LATE_LOOK: Duration = Duration::from_millis(100);

/// The HTTP client. Cheap to clone; clones share connections.
#[derive(Clone)]
pub struct Client {
    http: reqwest::Client,
    /// Opens connections for `http` and never sends anything: see [`crate::warm`].
    warmer: reqwest::Client,
    warmth: Arc<Warmth>,
    guard: Arc<Guard>,
    deferral_cap: Duration,
}

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Certificates.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The proxy's URL, or something that the HTTP library finds wrong.
    #[error("HTTP client: {0}")]
    Http(#[from] reqwest::Error),
}

/// What both clients have in common: HTTP/1.1, no redirects, no repeats, no decompression, no proxy unless configured.
fn builder(
    options: &HttpOptions,
    guard: &Arc<Guard>,
    tls: rustls::ClientConfig,
) -> Result<reqwest::ClientBuilder, ClientError> {
    let resolver = GuardedResolver { guard: Arc::clone(guard), exempt: options.proxy_host() };
    let builder = reqwest::Client::builder()
        .tls_backend_preconfigured(tls)
        .dns_resolver(Arc::new(resolver))
        .redirect(redirect::Policy::none())
        .retry(reqwest::retry::never())
        .referer(false)
        .http1_only()
        .connect_timeout(options.connect_timeout())
        .pool_idle_timeout(IDLE_CONNECTION);
    Ok(match &options.proxy {
        // What is behind a proxy is resolved by the proxy, which must then enforce the list of networks.
        Some(proxy) => builder.proxy(reqwest::Proxy::all(proxy.url().clone())?),
        None => builder.no_proxy(),
    })
}

/// One message, and all that a call needs to know.
pub struct Call<'a> {
    /// Begun: its intent is committed.
    pub message: &'a Message,
    /// How its rail is read.
    pub rail: &'a RailOptions,
    /// What it is signed with.
    pub credentials: &'a Credentials,
    /// The caller's leave, asked at the moment of writing.
    pub may_write: MayWrite,
    /// When its first byte may leave, of a call under a limit.
    pub permit: Option<Permit>,
    /// Wall-clock time, for signatures. The database's clock is better than the node's.
    pub now: Timestamp,
}

/// What came of it.
#[derive(Debug)]
pub struct Called {
    /// What the attempt is recorded as.
    pub outcome: CallOutcome,
    /// From the start of the call to its end; none if nothing was tried.
    pub latency: Option<Duration>,
}

impl Client {
    /// Builds the client. HTTP/1.1, no redirects, no repeats, no decompression, no proxy unless configured.
    ///
    /// # Errors
    /// Certificates or the proxy cannot be used.
    pub fn new(options: &HttpOptions) -> Result<Self, ClientError> {
        let guard = Arc::new(Guard::new(&options.allow_networks));
        let warmth = Arc::new(Warmth::default());
        let idle = usize::try_from(options.endpoint_concurrency).unwrap_or(usize::MAX);
        let layer = WarmLayer { warmth: Arc::clone(&warmth), never_sends: false };
        let tls = tls::client_config(&options.extra_roots)?;
        let http = builder(options, &guard, tls.clone())?.pool_max_idle_per_host(idle).connector_layer(layer.clone());
        let layer = WarmLayer { never_sends: true, ..layer };
        let warmer = builder(options, &guard, tls)?.pool_max_idle_per_host(0).connector_layer(layer);
        let deferral_cap = options.deferral_cap();
        Ok(Self { http: http.build()?, warmer: warmer.build()?, warmth, guard, deferral_cap })
    }

    /// Says that a call to this endpoint (`scheme://host:port`) is to come, which has a slot.
    #[must_use]
    pub fn claim(&self, endpoint: &str) -> Claim {
        self.warmth.claim(endpoint)
    }

    /// Opens a connection as [`Client::keep_open`] does, and also if nobody knows how long that takes.
    pub async fn open(&self, claim: &Claim) {
        if claim.is_unknown() || claim.wants_one() {
            self.open_for(claim).await;
        }
    }

    /// Opens a connection if that takes long and there is none for this claim. Waits for it, at most the connect timeout;
    /// that it fails is for the call to meet.
    pub async fn keep_open(&self, claim: &Claim) {
        if claim.wants_one() {
            self.open_for(claim).await;
        }
    }

    /// Closes connections that were opened and not used for seconds. To be called about every second while there are
    /// claims.
    pub fn sweep(&self) {
        self.warmth.sweep();
    }

    async fn open_for(&self, claim: &Claim) {
        let Ok(url) = reqwest::Url::parse(claim.endpoint()) else { return };
        if self.guard.check_literal(&url).is_err() {
            return;
        }
        let connecting = Connecting { endpoint: Arc::clone(claim.endpoint()), gate: None };
        let request = reqwest::Request::new(reqwest::Method::POST, url);
        // It always fails, since it never gets a connection.
        drop(CONNECTING.scope(connecting, self.warmer.execute(request)).await);
    }

    /// Makes one call and waits for its end, at most `message.timeout`. Dropping the future ends the call; whether the
    /// receiver got it is then unknown.
    pub async fn call(&self, call: Call<'_>) -> Called {
        if call.rail.kind == RailKind::Payment
            && let Err(refusal) = payment::check(&call.message.payload)
        {
            return never_sent(refusal.code, refusal.detail, false);
        }
        let request = match self.prepare(&call) {
            Ok(request) => request,
            Err(outcome) => return Called { outcome, latency: None },
        };
        // The wait for a slot is not the receiver's.
        let slot = call.permit.map_or(Duration::ZERO, |permit| BootInstant::at(permit.not_before).wait());
        let started = Instant::now() + slot;
        let outcome = self.exchange(&call, request).await;
        let latency = match outcome {
            CallOutcome::NotStarted { .. } => None,
            CallOutcome::Delivered(_) | CallOutcome::Deferred { .. } | CallOutcome::Failed { .. } => {
                Some(started.elapsed())
            }
        };
        Called { outcome, latency }
    }

    /// Everything that can be refused without a network.
    fn prepare(&self, call: &Call<'_>) -> Result<reqwest::Request, CallOutcome> {
        let unsendable = |error: request::Unsendable| failed(ErrorCode::InvalidRequest, &error.to_string(), false);
        let url = request::target(call.message).map_err(unsendable)?;
        self.guard
            .check_literal(&url)
            .map_err(|refused| failed(ErrorCode::AddressRefused, &refused.to_string(), true))?;
        let headers = request::headers_of(call.message, call.credentials, call.now).map_err(unsendable)?;
        let mut request = reqwest::Request::new(reqwest::Method::POST, url);
        *request.headers_mut() = headers;
        Ok(request)
    }

    async fn exchange(&self, call: &Call<'_>, mut request: reqwest::Request) -> CallOutcome {
        let message = call.message;
        let deadline = BootInstant::now().after(message.timeout);
        let payload = message.payload.clone();
        let gate = Gate::new(Arc::clone(&call.may_write), deadline, call.permit, payload.is_empty());
        // An empty body is never polled, so the connection gives no hint; then it may have been read.
        let sent = || payload.is_empty() || gate.handed_out();
        *request.body_mut() = Some(reqwest::Body::wrap(GatedBody::new(payload.clone(), Arc::clone(&gate))));
        // The timer's clock is not the slot's: after it, the slot's is looked at again.
        while !gate.wait().is_zero() {
            tokio::time::sleep(gate.wait()).await;
        }
        if gate.look().is_err() {
            return refused(&gate, None).unwrap_or_else(|| failed(ErrorCode::InvalidRequest, "refused", true));
        }
        // Others are looked at when their bytes go out.
        let asks_when_connected = call.permit.is_some() || payload.is_empty();
        let endpoint = endpoint_of(&message.target_url).ok().filter(|_| asks_when_connected);
        let connecting =
            endpoint.map(|endpoint| Connecting { endpoint: endpoint.into(), gate: Some(Arc::clone(&gate)) });
        let mut reading: Option<Reading> = None;
        let ended = within(message.timeout, async {
            let response = match connecting {
                Some(connecting) => CONNECTING.scope(connecting, self.http.execute(request)).await?,
                None => self.http.execute(request).await?,
            };
            reading.insert(Reading::head(&response)).body(response).await;
            Ok::<(), reqwest::Error>(())
        })
        .await;
        // The head of an answer is the answer, whatever ended the rest.
        if let Some(reading) = reading {
            return self.read(call, reading.received);
        }
        let refusal = ended.as_ref().ok().and_then(|ended| failure::refusal(ended.as_ref().err()?));
        if let Some(outcome) = refused(&gate, refusal) {
            return outcome;
        }
        let Failure { code, detail } = match ended {
            Ok(Err(error)) => failure::of_call(&error, sent()),
            Ok(Ok(())) | Err(Elapsed) => failure::deadline(sent()),
        };
        failed(code, &detail, code != ErrorCode::InvalidRequest)
    }

    fn read(&self, call: &Call<'_>, mut received: Received) -> CallOutcome {
        call.credentials.redact(&mut received.body);
        let rules =
            Rules { kind: call.rail.kind, terminal_codes: &call.rail.terminal_codes, deferral_cap: self.deferral_cap };
        classify(rules, received, call.now.into())
    }
}

/// The deadline passed.
struct Elapsed;

/// Awaits `exchange` until its deadline. A process that was stopped wakes long after it, with the answer perhaps
/// in its socket and the connection's task not yet run: then one more short look is taken before the answer is given
/// up for lost. Nothing can be written in it, since the gate is shut by then.
async fn within<T>(timeout: Duration, exchange: impl Future<Output = T>) -> Result<T, Elapsed> {
    let mut exchange = pin!(exchange);
    let deadline = Instant::now() + timeout;
    if let Ok(ended) = tokio::time::timeout(timeout, exchange.as_mut()).await {
        return Ok(ended);
    }
    if deadline.elapsed() < OVERSLEPT {
        return Err(Elapsed);
    }
    tokio::time::timeout(LATE_LOOK, exchange).await.map_err(|_| Elapsed)
}

/// What a closed gate means for the attempt; none if it never refused. `refusal`: the one that the call failed by.
fn refused(gate: &Gate, refusal: Option<ErrorCode>) -> Option<CallOutcome> {
    let code = gate.refused().or(refusal)?;
    Some(if gate.handed_out() {
        let Failure { code, detail } = failure::cut_short(code);
        failed(code, &detail, true)
    } else {
        let detail = "not sent: the leave to write had ended".to_owned();
        CallOutcome::NotStarted { code, detail, after: NOT_STARTED_WAIT }
    })
}

fn never_sent(code: ErrorCode, detail: &str, retryable: bool) -> Called {
    Called { outcome: failed(code, detail, retryable), latency: None }
}

fn failed(code: ErrorCode, detail: &str, retryable: bool) -> CallOutcome {
    let detail = clean_str(detail, ERROR_DETAIL_CHARS_MAX);
    CallOutcome::Failed { code, detail, answer: None, retryable }
}
