//! What every actor of a node shares: the database, the beliefs about the lease, and the way to each other.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use railyard_rail::{Client, Endpoints};
use railyard_store::crypt::MasterKeys;
use railyard_store::wakes::Wakes;
use railyard_store::{Store, StoreError};

use crate::actors::cache_keeper::{self, CredentialsCache};
use crate::actors::cluster_agent::Say;
use crate::actors::{
    cluster, dispatch, global_buffer, governor, lease_keeper, listener, maintenance, peer_dialer, poller, pool_keeper,
    rail_caller_pool, reaper, settler,
};
use crate::attempts::Attempts;
use crate::call_slots::CallSlots;
use crate::handle::Handle;
use crate::lease::Lease;
use crate::limits::Limits;
use crate::links::Links;
use crate::metrics::Metrics;
use crate::options::NodeOptions;
use crate::pools::Pools;
use crate::probes::Probes;
use crate::stopping::Stopping;
use crate::trouble::Troubles;

/// Cheap to clone: everything is behind an `Arc`.
pub(crate) type Context = Arc<Shared>;

/// One per node.
pub(crate) struct Shared {
    pub(crate) options: NodeOptions,
    pub(crate) store: Store,
    pub(crate) keys: Arc<MasterKeys>,
    pub(crate) client: Client,
    pub(crate) endpoints: Arc<Endpoints>,
    pub(crate) metrics: Metrics,
    pub(crate) lease: Lease,
    pub(crate) attempts: Attempts,
    pub(crate) probes: Probes,
    pub(crate) credentials: CredentialsCache,
    pub(crate) call_slots: CallSlots,
    pub(crate) limits: Limits,
    pub(crate) pools: Pools,
    pub(crate) stopping: Stopping,
    pub(crate) troubles: Troubles,
    pub(crate) look_asked: poller::LookAsked,
    pub(crate) wakes: Wakes,
    pub(crate) actors: Directory,
    /// None: this node has no links.
    pub(crate) links: Option<Arc<Links>>,
    /// Whether notifications are heard.
    pub(crate) listening: AtomicBool,
}

/// Where the actors are.
#[derive(Default)]
pub(crate) struct Directory {
    pub(crate) cache_keeper: Handle<cache_keeper::Msg>,
    pub(crate) governor: Handle<governor::Msg>,
    pub(crate) lease_keeper: Handle<lease_keeper::Msg>,
    pub(crate) settler: Handle<settler::Msg>,
    pub(crate) callers: Handle<rail_caller_pool::Msg>,
    pub(crate) buffer: Handle<global_buffer::Msg>,
    pub(crate) poller: Handle<poller::Msg>,
    pub(crate) pool_keeper: Handle<pool_keeper::Msg>,
    pub(crate) listener: Handle<listener::Msg>,
    pub(crate) reaper: Handle<reaper::Msg>,
    pub(crate) maintenance: Handle<maintenance::Msg>,
    pub(crate) dispatch: Handle<dispatch::Msg>,
    pub(crate) cluster: Handle<cluster::Msg>,
    pub(crate) peer_dialer: Handle<peer_dialer::Msg>,
}

impl Shared {
    /// The database did not do what this part asked for. That it is away is one topic for the whole node.
    pub(crate) fn trouble(&self, part: &'static str, error: &StoreError) {
        self.metrics.database_errors.with_label_values(&[part]).inc();
        let topic = if error.is_transient() { "database" } else { part };
        if let Some(unsaid) = self.troubles.met(topic, tokio::time::Instant::now()) {
            tracing::warn!(part, %error, unsaid, "trouble with the database");
        }
    }

    /// Whether notifications of the database are heard.
    pub(crate) fn listening(&self) -> bool {
        self.listening.load(Ordering::Relaxed)
    }

    /// Tells the linked peers, if there are any.
    pub(crate) fn say(&self, say: Say) {
        let Some(links) = &self.links else { return };
        // However many ask for a wake-up, one of them waits in the mailbox.
        if say == Say::Wake && links.wake_asked.swap(true, Ordering::SeqCst) {
            return;
        }
        if !self.actors.cluster.cast(cluster::Msg::Say(say)) {
            links.wake_asked.store(false, Ordering::SeqCst);
        }
    }

    /// A group that is another node's by now may go on: its new owner looked while its call ran, and found nothing that it
    /// could begin. Slower: its poll.
    pub(crate) async fn hand_on(&self) {
        self.say(Say::Wake);
        self.wakes.tell(&self.store).await;
    }

    /// Looks at the database soon: something was committed, freed or released.
    pub(crate) fn wake(&self) {
        if self.look_asked.ask() {
            self.actors.poller.cast(poller::Msg::Look);
        }
    }
}
