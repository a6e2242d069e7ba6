//! LeaseKeeper: who this node is, how long it may act, which partitions it owns.
//!
//! Owns the membership, on a thread and a connection of its own: no load on the runtime or the pools keeps it from
//! renewing. It publishes what it knows; everybody else reads [`crate::lease::Lease`]. A lease that lapsed is never
//! revived: the membership is dropped at once, running calls end and settle, and the node joins anew under a fresh id.
//!
//! If it dies, the lease runs out and nothing more is begun; if the process is stopped and goes on, the clock, which
//! ran meanwhile, says the same.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort};
use railyard_core::partition::PARTITIONS;
use railyard_core::{NodeId, PartitionId};
use railyard_store::StoreError;
use railyard_store::clock::boottime;
use railyard_store::connect::Dedicated;
use railyard_store::lease;
use uuid::Uuid;

use super::settler::answer;
use crate::context::Context;
use crate::lease::Membership;

/// What it is told.
pub(crate) enum Msg {
    /// See whether the thread is still there.
    Check,
    /// Give everything back; answered when that is done, or given up.
    Leave(RpcReplyPort<()>),
}

/// The actor.
pub(crate) struct LeaseKeeper;

/// Its state.
pub(crate) struct State {
    leave: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    context: Context,
}

const CHECK: Duration = Duration::from_secs(1);

impl Actor for LeaseKeeper {
    type Msg = Msg;
    type State = State;
    type Arguments = Context;

    async fn pre_start(&self, myself: ActorRef<Msg>, context: Context) -> Result<State, ActorProcessingErr> {
        context.actors.lease_keeper.set(myself.clone());
        let leave = Arc::new(AtomicBool::new(false));
        let keeper = Keeper { context: context.clone(), leave: Arc::clone(&leave), connection: None, membership: None };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let thread = std::thread::Builder::new()
            .name("railyard-lease".to_owned())
            .spawn(move || runtime.block_on(keeper.run()))?;
        myself.send_after(CHECK, || Msg::Check);
        Ok(State { leave, thread: Some(thread), context })
    }

    async fn handle(&self, myself: ActorRef<Msg>, message: Msg, state: &mut State) -> Result<(), ActorProcessingErr> {
        match message {
            Msg::Leave(reply) => {
                state.leave().await?;
                answer(reply, ());
            }
            Msg::Check if state.leave.load(Ordering::SeqCst) => {}
            Msg::Check => {
                if state.thread.as_ref().is_none_or(JoinHandle::is_finished) {
                    return Err("the lease thread ended".into());
                }
                let remaining = i64::try_from(state.context.lease.remaining().as_millis()).unwrap_or(i64::MAX);
                state.context.metrics.lease_remaining_ms.set(remaining);
                myself.send_after(CHECK, || Msg::Check);
            }
        }
        Ok(())
    }
}

impl State {
    /// The thread leaves the cluster on its way out; its own timeouts bound the wait.
    async fn leave(&mut self) -> Result<(), ActorProcessingErr> {
        self.leave.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            tokio::task::spawn_blocking(move || drop(thread.join())).await?;
        }
        Ok(())
    }
}

impl Drop for State {
    fn drop(&mut self) {
        // Killed or failed: the thread must not go on renewing for nobody.
        self.leave.store(true, Ordering::SeqCst);
    }
}

struct Keeper {
    context: Context,
    leave: Arc<AtomicBool>,
    connection: Option<Dedicated>,
    membership: Option<Membership>,
}

impl Keeper {
    async fn run(mut self) {
        let renewal = self.context.options.renewal;
        while !self.leave.load(Ordering::SeqCst) {
            let turn = tokio::time::timeout(self.context.options.lease, self.turn()).await;
            let wait = match turn {
                Ok(Ok(())) => renewal,
                Ok(Err(error)) => self.failed(&error),
                Err(_) => self.failed(&StoreError::Unavailable { detail: "no answer within the lease".to_owned() }),
            };
            self.rest(wait).await;
        }
        self.goodbye().await;
    }

    /// Waits, watching the lease and the way out.
    async fn rest(&mut self, wait: Duration) {
        let end = boottime() + wait;
        while boottime() < end && !self.leave.load(Ordering::SeqCst) {
            self.drop_lapsed();
            tokio::time::sleep(Duration::from_millis(20).min(wait)).await;
        }
    }

    async fn turn(&mut self) -> Result<(), StoreError> {
        self.drop_lapsed();
        if self.connection.as_ref().is_none_or(|connection| connection.client.is_closed()) {
            self.connection = Some(self.context.store.dedicated("railyard lease").await?);
        }
        let options = &self.context.options;
        let Some(connection) = self.connection.as_mut() else { return Ok(()) };
        // Counted from before the statement: never later than what the database will say.
        let before = boottime();
        let node = match &self.membership {
            Some(membership) => {
                if !lease::renew(&connection.client, membership.node, options.lease).await? {
                    self.lose("the database no longer has it");
                    return Ok(());
                }
                membership.node
            }
            None => {
                let node = NodeId(Uuid::new_v4());
                lease::join(&connection.client, node, &options.name, options.lease).await?;
                tracing::info!(node_id = %node, name = options.name, "joined");
                node
            }
        };
        let lease_until = before + options.lease;
        let known = self.membership.as_ref().map(|m| Arc::clone(&m.partitions)).unwrap_or_default();
        self.publish(Membership { node, lease_until, partitions: known });
        self.take_partitions(node, lease_until).await
    }

    async fn take_partitions(&mut self, node: NodeId, lease_until: Duration) -> Result<(), StoreError> {
        let Some(connection) = self.connection.as_mut() else { return Ok(()) };
        let dead = lease::take_over(&mut connection.client, node).await?;
        for gone in &dead {
            tracing::warn!(node_id = %gone, "took over a member whose lease had lapsed");
            self.context.metrics.takeovers.inc();
        }
        let all: Vec<PartitionId> = (0..PARTITIONS).filter_map(|n| u8::try_from(n).ok()).map(PartitionId).collect();
        let taken = lease::take_free(&mut connection.client, node, &all).await?;
        let owned = lease::owned(&connection.client, node).await?;
        self.publish(Membership {
            node,
            lease_until,
            partitions: Arc::new(owned.into_iter().collect::<BTreeMap<_, _>>()),
        });
        if taken > 0 {
            tracing::info!(taken, "partitions taken");
            self.context.wake();
        }
        Ok(())
    }

    fn publish(&mut self, membership: Membership) {
        self.context.metrics.partitions_owned.set(i64::try_from(membership.partitions.len()).unwrap_or(i64::MAX));
        self.membership = Some(membership.clone());
        // A keeper on its way out says nothing more: another one may speak for this node already.
        if !self.leave.load(Ordering::SeqCst) {
            self.context.lease.publish(membership);
        }
    }

    fn drop_lapsed(&mut self) {
        if self.membership.as_ref().is_some_and(|membership| boottime() >= membership.lease_until) {
            self.lose("it lapsed");
        }
    }

    fn lose(&mut self, why: &str) {
        if let Some(membership) = self.membership.take() {
            self.context.lease.withdraw(membership.node);
            self.context.metrics.lease_losses.inc();
            self.context.metrics.partitions_owned.set(0);
            tracing::error!(node_id = %membership.node, why, "lease lost: nothing more is begun under it");
        }
    }

    fn failed(&mut self, error: &StoreError) -> Duration {
        self.context.trouble("lease_keeper", error);
        self.connection = None;
        self.drop_lapsed();
        // Often enough that a short outage costs no lease.
        (self.context.options.renewal / 10).max(Duration::from_millis(100))
    }

    async fn goodbye(&mut self) {
        let Some(membership) = self.membership.take() else { return };
        self.context.lease.withdraw(membership.node);
        let Some(connection) = self.connection.as_mut() else { return };
        let left =
            tokio::time::timeout(self.context.options.renewal, lease::leave(&mut connection.client, membership.node));
        match left.await {
            Ok(Ok(())) => tracing::info!(node_id = %membership.node, "left"),
            Ok(Err(error)) => tracing::warn!(%error, "could not say goodbye: the lease runs out"),
            Err(_) => tracing::warn!("could not say goodbye in time: the lease runs out"),
        }
    }
}
