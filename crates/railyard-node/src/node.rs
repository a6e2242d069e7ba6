//! A running node, as the binary sees it.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use prometheus::Registry;
use ractor::{Actor, ActorRef};
use railyard_core::NodeId;
use railyard_rail::{Client, Endpoints};
use railyard_store::Store;
use railyard_store::crypt::MasterKeys;
use railyard_store::wakes::Wakes;
use serde_json::Value;

use tokio::time::Instant;
use uuid::Uuid;

use crate::actors::cluster_agent::{self, Question, Say};
use crate::actors::{cache_keeper, global_buffer, lease_keeper, poller, root, settler};
use crate::attempts::Attempts;
use crate::call_slots::CallSlots;
use crate::context::{Context, Directory, Shared};
use crate::lease::Lease;
use crate::limits::Limits;
use crate::links::Links;
use crate::links::table::LinkState;
use crate::metrics::Metrics;
use crate::observe::OBSERVE_TIMEOUT;
use crate::options::{NodeError, NodeOptions};
use crate::pools::Pools;
use crate::probes::Probes;
use crate::stopping::Stopping;
use crate::trouble::Troubles;

/// How long a node has to say what its memory holds.
const ASK_TIMEOUT: Duration = Duration::from_secs(2);

/// A running node. Dropping it stops nothing in good order: call [`Node::stop`].
pub struct Node {
    pub(crate) context: Context,
    root: ActorRef<root::Msg>,
}

impl Node {
    /// Starts the actors. The database may still be away: the node joins when it comes.
    ///
    /// # Errors
    /// [`NodeError`]: the HTTP client, the metrics or an actor could not be made.
    pub async fn start(
        options: NodeOptions,
        store: Store,
        keys: Arc<MasterKeys>,
        registry: &Registry,
    ) -> Result<Self, NodeError> {
        let links = options.links.clone().map(Links::new).transpose().map_err(NodeError::Links)?.map(Arc::new);
        let lease = Lease::default();
        let metrics = Metrics::register(registry, &lease, options.lease)?;
        let context: Context = Arc::new(Shared {
            client: Client::new(&options.http)?,
            endpoints: Arc::new(Endpoints::new(&options.http)),
            call_slots: CallSlots::new(&options),
            limits: Limits::new(&options, &metrics),
            pools: Pools::new(&options),
            metrics,
            options,
            store,
            keys,
            lease,
            attempts: Attempts::default(),
            probes: Probes::default(),
            credentials: cache_keeper::CredentialsCache::default(),
            stopping: Stopping::default(),
            troubles: Troubles::default(),
            look_asked: poller::LookAsked::default(),
            wakes: Wakes::default(),
            actors: Directory::default(),
            links,
            listening: AtomicBool::new(false),
        });
        let started = Actor::spawn(None, root::Root, context.clone()).await;
        let (root, _) = started.map_err(|error| NodeError::Actor { actor: "root", detail: error.to_string() })?;
        Ok(Self { context, root })
    }

    /// Whether it may take work, and if not, why.
    #[must_use]
    pub fn readiness(&self) -> (bool, Vec<String>) {
        let mut reasons = Vec::new();
        if self.context.stopping.is_set() {
            reasons.push("the node is stopping".to_owned());
        }
        if self.context.lease.good().is_none() {
            reasons.push("the node has no lease: the database is away, or it has not joined yet".to_owned());
        }
        if !self.context.pools.are_known() {
            reasons.push("the node has not read which pools are set".to_owned());
        }
        (reasons.is_empty(), reasons)
    }

    /// Whether its supervisor runs.
    #[must_use]
    pub fn live(&self) -> bool {
        matches!(
            self.root.get_status(),
            ractor::ActorStatus::Starting | ractor::ActorStatus::Running | ractor::ActorStatus::Upgrading
        )
    }

    /// Something was committed: look at the database.
    pub fn wake(&self) {
        self.context.wake();
        self.context.say(Say::Wake);
    }

    /// Something that is cached has changed.
    pub fn flush_caches(&self) {
        self.context.say(Say::FlushCaches);
        self.context.actors.cache_keeper.cast(cache_keeper::Msg::Flush);
    }

    /// What every actor shows of itself; those that do not answer in time are null.
    pub async fn observe(&self) -> Value {
        self.context.observe().await
    }

    /// Its membership, while its lease is good.
    #[must_use]
    pub fn node_id(&self) -> Option<NodeId> {
        self.context.lease.good().map(|membership| membership.node)
    }

    /// Its links; none if it was given no [`NodeOptions::links`].
    #[must_use]
    pub fn links(&self) -> Option<Vec<LinkState>> {
        let links = self.context.links.as_ref()?;
        let table = links.table.lock();
        let ready = table.iter().filter(|(_, link)| link.session.is_some());
        Some(ready.map(|(process, link)| LinkState::new(*process, link)).collect())
    }

    /// Asks a linked process, or this one, what its memory holds. `None` means *don't know*: it is not linked, or did
    /// not answer within two seconds.
    pub fn ask(&self, process: Option<Uuid>, question: Question) -> impl Future<Output = Option<Value>> + Send + use<> {
        let context = self.context.clone();
        async move {
            match (process, &context.links) {
                (None, _) => tokio::time::timeout(ASK_TIMEOUT, context.answer(question)).await.ok().flatten(),
                (Some(process), Some(links)) => cluster_agent::ask(links, process, &question, ASK_TIMEOUT).await,
                (Some(_), None) => None,
            }
        }
    }

    /// Takes no more work, lets running calls end and settle, gives everything back. What is not done within `grace`
    /// stays in the database for others to heal.
    pub async fn stop(self, grace: Duration) {
        let end = Instant::now() + grace;
        self.context.stopping.set();
        // Others go on at once with everything that is not in flight here.
        self.context.actors.lease_keeper.cast(lease_keeper::Msg::Retire);
        while Instant::now() < end {
            let actors = &self.context.actors;
            let buffer = actors.buffer.ask(global_buffer::Msg::Observe, OBSERVE_TIMEOUT).await;
            let settler = actors.settler.ask(settler::Msg::Observe, OBSERVE_TIMEOUT).await;
            let quiet = buffer.is_none_or(|seen| seen.busy == 0) && settler.is_none_or(|seen| seen.is_idle());
            // An actor that does not answer proves nothing: what is live here does.
            if quiet && self.context.attempts.live() == 0 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        if self.context.attempts.live() > 0 {
            tracing::warn!(attempts = self.context.attempts.live(), "stopping with calls in flight: others heal them");
        }
        let left = end.saturating_duration_since(Instant::now()).max(Duration::from_secs(1));
        // Others may take over at once; what did not end in time is theirs to heal.
        self.context.actors.lease_keeper.ask(lease_keeper::Msg::Leave, left).await;
        drop(self.root.stop_and_wait(None, Some(left)).await);
    }
}
