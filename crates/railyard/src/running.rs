//! One node and its API, from the first look at the database to the last answer.
//!
//! Start: take the API's port, wait for the database, look at the schema, write the configured rails, start the node,
//! serve; from the first moment on the port answers that the process lives. Stop: at the first SIGTERM or SIGINT the node turns not ready, takes nothing more and lets running calls end
//! and settle, while the API still answers; then the API ends. A second signal ends the process at once, as a kill
//! would: what was in flight is on record and is healed by others, or by the next start.

mod database;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use railyard_api::{ApiState, ServeOptions};
use railyard_node::{LinkOptions, Node};
use railyard_store::Store;
use railyard_store::crypt::MasterKeys;
use tokio::net::TcpListener;
use tokio::sync::Notify;

use crate::config::Config;
use crate::node_view::View;
use crate::signals::Signals;

/// What of the grace period is kept for the API's last answers.
const API_DRAIN: Duration = Duration::from_secs(5);
/// What answers of the time before the node may take until the API follows.
const EARLY_DRAIN: Duration = Duration::from_millis(500);
/// How often the actors are asked what they do.
const OBSERVE_EVERY: Duration = Duration::from_secs(1);

/// What to run.
pub(crate) struct Running {
    pub(crate) config: Config,
    pub(crate) keys: Arc<MasterKeys>,
    /// Links to other nodes, if there are to be any.
    pub(crate) links: Option<LinkOptions>,
    /// Migrate if the schema is behind, instead of refusing to start.
    pub(crate) migrate: bool,
}

impl Running {
    /// Runs until a signal. `on_serving` is told the API's address.
    ///
    /// # Errors
    /// The start failed, or the node died.
    pub(crate) async fn run(self, mut signals: Signals, on_serving: impl FnOnce(SocketAddr)) -> anyhow::Result<()> {
        let started = tokio::select! {
            started = self.start() => started?,
            name = signals.next() => {
                tracing::info!(signal = name, "stopped before the start was complete");
                return Ok(());
            }
        };
        on_serving(started.address);
        started.serve(signals, Duration::from_secs(self.config.node.grace_s.into())).await
    }

    async fn start(&self) -> anyhow::Result<Started> {
        let config = &self.config;
        let store = Store::new(config.store()?)?;
        let listener = TcpListener::bind(config.api.listen).await;
        let listener = listener.with_context(|| format!("api.listen: cannot listen on {}", config.api.listen))?;
        let address = listener.local_addr()?;
        let listener = answering(listener, database::prepare(&store, config, self.migrate)).await?;
        let registry = prometheus::Registry::new();
        let node =
            Node::start(config.node_options(self.links.clone()), store.clone(), Arc::clone(&self.keys), &registry)
                .await;
        let node = Arc::new(node.context("start the node")?);
        let view = Arc::new(View::of(&node));
        let api = ApiState::new(
            store,
            Arc::clone(&self.keys),
            Arc::<View>::clone(&view),
            config.auth()?,
            registry,
            config.api_options(),
        )?;
        tracing::info!(%address, version = env!("CARGO_PKG_VERSION"), "started");
        Ok(Started { node, view, api, listener, address })
    }
}

/// Does what comes before the node, while the port answers that there is none yet. Returns the port.
async fn answering(
    listener: TcpListener,
    doing: impl Future<Output = anyhow::Result<()>>,
) -> anyhow::Result<TcpListener> {
    // Two handles to one socket: who connects between the two servers waits for the second.
    let listener = listener.into_std()?;
    let early = TcpListener::from_std(listener.try_clone()?)?;
    let done = Notify::new();
    let options = ServeOptions { drain_timeout: EARLY_DRAIN, ..ServeOptions::default() };
    let serving = railyard_api::serve(early, railyard_api::starting(), done.notified(), options);
    let doing = async {
        let result = doing.await;
        done.notify_one();
        result
    };
    let ((), result) = tokio::join!(serving, doing);
    result?;
    Ok(TcpListener::from_std(listener)?)
}

struct Started {
    node: Arc<Node>,
    view: Arc<View>,
    api: ApiState,
    listener: TcpListener,
    address: SocketAddr,
}

impl Started {
    async fn serve(self, mut signals: Signals, grace: Duration) -> anyhow::Result<()> {
        let Self { node, view, api, listener, .. } = self;
        let stop_api = Notify::new();
        let options = ServeOptions { drain_timeout: API_DRAIN, ..ServeOptions::default() };
        let serving = railyard_api::serve(listener, railyard_api::router(api), stop_api.notified(), options);
        let living = async {
            let result = live(&node, &view, &mut signals).await;
            tokio::select! {
                () = stop(node, grace.saturating_sub(API_DRAIN)) => {}
                name = signals.next() => leave_at_once(name),
            }
            stop_api.notify_one();
            result
        };
        let ((), result) = tokio::join!(serving, living);
        tracing::info!("stopped");
        result
    }
}

/// Until a signal or the node's death.
async fn live(node: &Node, view: &View, signals: &mut Signals) -> anyhow::Result<()> {
    loop {
        tokio::select! {
            name = signals.next() => {
                tracing::info!(signal = name, "stopping; a second signal ends the process at once");
                return Ok(());
            }
            () = view.refresh(node) => {}
        }
        if !node.live() {
            anyhow::bail!("the node's supervisor has ended: what it held is on record, start again");
        }
        tokio::select! {
            name = signals.next() => {
                tracing::info!(signal = name, "stopping; a second signal ends the process at once");
                return Ok(());
            }
            () = tokio::time::sleep(OBSERVE_EVERY) => {}
        }
    }
}

/// Stops the node in good order. The view lets it go within a request's step.
async fn stop(mut node: Arc<Node>, grace: Duration) {
    loop {
        match Arc::try_unwrap(node) {
            Ok(node) => return node.stop(grace).await,
            Err(held) => node = held,
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// The operator is in a hurry. Not a crash: nothing is lost, and the exit status says that it was not in good order.
fn leave_at_once(signal: &str) -> ! {
    tracing::warn!(signal, "leaving at once; calls in flight are healed by others or by the next start");
    std::process::exit(1);
}
