//! What every handler is given.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use prometheus::Registry;
use railyard_core::NodeId;
use railyard_core::limits::PAYLOAD_BYTES_DEFAULT;
use railyard_store::Store;
use railyard_store::crypt::MasterKeys;
use railyard_store::wakes::Wakes;
use tokio::sync::Semaphore;
use uuid::Uuid;

use crate::auth::Auth;
use crate::health::Pings;
use crate::jobs::WAITING_MAX;
use crate::metrics::ApiMetrics;
use crate::rail_cache::RailCache;

/// Requests at once; the next one gets 503 at once instead of a place in a queue that nobody sees.
pub const REQUESTS_MAX: usize = 512;
/// From the first byte of a request to its answer.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Bodies in memory at once, in KiB, beside the first 64 KiB of each; the next large one waits.
pub const BODIES_KIB_MAX: usize = 128 * 1024;
/// Groups that the metrics name: so many by depth and so many by age.
pub const NAMED_GROUPS_DEFAULT: u32 = 50;

/// What the API has to know about the node in the same process.
pub trait NodeView: Send + Sync + 'static {
    /// Whether this node takes work: it holds a lease and is not stopping.
    fn ready(&self) -> Readiness;
    /// Whether the runtime still turns; false asks for a restart.
    fn live(&self) -> bool;
    /// Work was committed: look at the database now.
    fn wake(&self);
    /// What the node's actors say about themselves, bounded in size.
    fn groups(&self) -> serde_json::Value;
    /// Read credentials, rails and switches anew, here and on all nodes that are linked.
    fn flush_caches(&self);
    /// Its membership; none while it has none.
    fn node_id(&self) -> Option<NodeId>;
    /// The links of this process; none if it takes none.
    fn links(&self) -> Option<Links>;
    /// Asks a linked process, or this one. Bounded in time; none means *don't know*.
    fn ask(&self, process: Option<Uuid>, question: Question) -> Future<Option<serde_json::Value>>;
}

/// A future that whoever asked may take elsewhere.
pub type Future<T> = Pin<Box<dyn std::future::Future<Output = T> + Send>>;

/// What nodes are asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// What the actors say about themselves: an object.
    Observe,
    /// To which processes there are links: a list of ids.
    Links,
    /// What memory holds of these groups: an object by group, those left out that are not there.
    Groups(Vec<String>),
}

/// The links of a process.
#[derive(Clone, Debug, Default)]
pub struct Links {
    /// Those that carry messages.
    pub links: Vec<LinkState>,
}

/// A link as this end sees it.
#[derive(Clone, Debug)]
pub struct LinkState {
    /// The process at the other end.
    pub process: Uuid,
    /// Its address on this connection.
    pub remote: String,
    /// Whether it was the other end that connected.
    pub incoming: bool,
    /// How long it has been there, in seconds.
    pub age_s: u64,
    /// Milliseconds since anything came.
    pub silent_ms: u64,
    /// Heartbeats missed in a row.
    pub missed: u32,
}

/// An answer to *are you ready*.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Readiness {
    /// It is.
    pub ready: bool,
    /// What is missing.
    pub reasons: Vec<String>,
}

/// What can be set.
#[derive(Clone, Debug)]
pub struct ApiOptions {
    /// Largest payload of a job, in bytes.
    pub payload_bytes_max: usize,
    /// `/metrics` without a token.
    pub open_metrics: bool,
    /// `/healthz` and `/readyz` without a token.
    pub open_health: bool,
    /// Groups that the metrics name.
    pub named_groups: u32,
    /// See [`REQUEST_TIMEOUT`].
    pub request_timeout: Duration,
    /// See [`REQUESTS_MAX`].
    pub requests_max: usize,
}

impl Default for ApiOptions {
    fn default() -> Self {
        Self {
            payload_bytes_max: PAYLOAD_BYTES_DEFAULT,
            open_metrics: true,
            open_health: true,
            named_groups: NAMED_GROUPS_DEFAULT,
            request_timeout: REQUEST_TIMEOUT,
            requests_max: REQUESTS_MAX,
        }
    }
}

/// Everything that handlers share. Cheap to clone.
#[derive(Clone)]
pub struct ApiState {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) store: Store,
    pub(crate) keys: Arc<MasterKeys>,
    pub(crate) node: Arc<dyn NodeView>,
    pub(crate) auth: Auth,
    pub(crate) options: ApiOptions,
    pub(crate) metrics: ApiMetrics,
    pub(crate) rails: RailCache,
    pub(crate) wakes: Wakes,
    pub(crate) places: Arc<Semaphore>,
    pub(crate) bodies: Arc<Semaphore>,
    pub(crate) pings: Pings,
    pub(crate) processing: Arc<Semaphore>,
}

impl ApiState {
    /// Puts the state together and registers the API's metrics beside those that the node has registered.
    ///
    /// # Errors
    /// If one of the names is taken in `registry`.
    pub fn new(
        store: Store,
        keys: Arc<MasterKeys>,
        node: Arc<dyn NodeView>,
        auth: Auth,
        registry: Registry,
        options: ApiOptions,
    ) -> Result<Self, prometheus::Error> {
        let metrics = ApiMetrics::register(registry)?;
        let inner = Inner {
            store,
            keys,
            node,
            auth,
            metrics,
            rails: RailCache::default(),
            wakes: Wakes::default(),
            places: Arc::new(Semaphore::new(options.requests_max)),
            bodies: Arc::new(Semaphore::new(BODIES_KIB_MAX)),
            pings: Pings::default(),
            processing: Arc::new(Semaphore::new(WAITING_MAX)),
            options,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    pub(crate) fn store(&self) -> &Store {
        &self.inner.store
    }

    /// Work was committed that is due: the node in this process looks at once, the others hear of it.
    pub(crate) async fn committed(&self) {
        self.inner.node.wake();
        self.inner.wakes.tell(&self.inner.store).await;
    }
}
