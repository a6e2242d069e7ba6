//! The thread: a turn at each renewal, at each change among the members, and at the moment when a lease may lapse.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use railyard_core::ownership::{Moves, Pace, moves};
use railyard_core::{Epoch, NodeId, PartitionId};
use railyard_store::StoreError;
use railyard_store::clock::boottime;
use railyard_store::connect::Dedicated;
use railyard_store::lease;
use railyard_store::ownership::{self, View};
use tokio::time::timeout;
use uuid::Uuid;

use super::Orders;
use crate::actors::cluster_agent::Say;
use crate::actors::peer_dialer;
use crate::context::Context;
use crate::lease::Membership;

/// Renewals after which a member counts as stable.
const STABLE_RENEWALS: u32 = 3;
/// A renewal takes a third of a lease at most and a turn two, so that a connection which has gone dead without a word
/// leaves a third to renew on another one.
const THIRDS: u32 = 3;
/// Renewals for which an owner keeps a partition at least.
const KEEP_RENEWALS: u32 = 2;
/// Shortest time between two turns, and how long after a lease's end it is taken for lapsed.
const BREATH: Duration = Duration::from_millis(20);

/// Owns the membership.
pub(super) struct Keeper {
    context: Context,
    orders: Arc<Orders>,
    connection: Option<Dedicated>,
    membership: Option<Membership>,
}

impl Keeper {
    pub(super) fn new(context: Context, orders: Arc<Orders>) -> Self {
        Self { context, orders, connection: None, membership: None }
    }

    pub(super) async fn run(mut self) {
        while !self.orders.leaves() {
            let turn = timeout(self.context.options.lease * 2 / THIRDS, self.turn()).await;
            let wait = match turn {
                Ok(Ok(wait)) => wait,
                Ok(Err(error)) => self.failed(&error),
                Err(_) => self.failed(&no_answer()),
            };
            self.rest(wait).await;
        }
        self.goodbye().await;
    }

    /// Waits for the next turn or an order; a lease that lapses meanwhile is given up at that moment.
    async fn rest(&mut self, wait: Duration) {
        let end = boottime() + wait;
        let lapse = self.membership.as_ref().map(|membership| membership.lease_until).filter(|lapse| *lapse < end);
        if let Some(lapse) = lapse {
            self.orders.rest(lapse.saturating_sub(boottime())).await;
            self.drop_lapsed();
        } else {
            self.orders.rest(wait).await;
        }
        if !self.orders.leaves() {
            tokio::time::sleep(BREATH).await;
        }
    }

    /// One turn. Returns when the next one is due.
    async fn turn(&mut self) -> Result<Duration, StoreError> {
        let began = boottime();
        self.drop_lapsed();
        if self.connection.as_ref().is_none_or(|connection| connection.client.is_closed()) {
            self.connection = Some(self.context.store.dedicated("railyard lease").await?);
        }
        let Some(node) = self.renew().await? else { return Ok(BREATH) };
        if self.orders.retires() {
            self.retire(node).await?;
            return Ok(self.context.options.renewal);
        }
        let mut view = self.view(node).await?;
        if view.dead {
            self.take_over(node).await?;
            view = self.view(node).await?;
        }
        self.carry_out(node, &view).await?;
        // From when it was renewed: what a turn takes is not added to the wait.
        let renewal = self.context.options.renewal.saturating_sub(boottime().saturating_sub(began));
        Ok(view.next_lapse.map_or(renewal, |lapse| renewal.min(lapse + BREATH)))
    }

    /// Renews the lease, or joins. None: the membership is over.
    async fn renew(&mut self) -> Result<Option<NodeId>, StoreError> {
        let options = &self.context.options;
        let Some(connection) = self.connection.as_mut() else { return Ok(None) };
        // Counted from before the statement: never later than what the database will say.
        let before = boottime();
        let node = match &self.membership {
            Some(membership) => {
                let renewing = lease::renew(&connection.client, membership.node, options.lease);
                let renewed = timeout(options.lease / THIRDS, renewing).await.map_err(|_| no_answer())?;
                if !renewed? {
                    self.lose("the database no longer has it");
                    return Ok(None);
                }
                membership.node
            }
            None => {
                let node = NodeId(Uuid::new_v4());
                let (client, name) = (&connection.client, &options.name);
                match &self.context.links {
                    Some(links) => lease::join_with_door(client, node, name, options.lease, &links.me).await?,
                    None => lease::join(client, node, name, options.lease).await?,
                }
                tracing::info!(node_id = %node, name = options.name, "joined");
                node
            }
        };
        let lease_until = before + options.lease;
        let partitions = self.membership.as_ref().map(|known| Arc::clone(&known.partitions)).unwrap_or_default();
        self.publish(Membership { node, lease_until, partitions });
        Ok(Some(node))
    }

    async fn view(&mut self, node: NodeId) -> Result<View, StoreError> {
        let Some(connection) = self.connection.as_mut() else { return Err(not_connected()) };
        let stable_after = self.context.options.renewal * STABLE_RENEWALS;
        let mut view = ownership::view(&connection.client, node, stable_after).await?;
        if let Some(links) = &self.context.links {
            links.saw(std::mem::take(&mut view.doors));
            self.context.actors.peer_dialer.cast(peer_dialer::Msg::Look);
        }
        Ok(view)
    }

    async fn take_over(&mut self, node: NodeId) -> Result<(), StoreError> {
        let Some(connection) = self.connection.as_mut() else { return Err(not_connected()) };
        let removed = lease::take_over(&mut connection.client, node).await?;
        for gone in &removed {
            tracing::warn!(node_id = %gone, "took over a member whose lease had lapsed");
            self.context.metrics.takeovers.inc();
        }
        if !removed.is_empty() {
            self.context.say(Say::Freed);
        }
        Ok(())
    }

    /// Gives and takes what the view asks for, and publishes what is owned then.
    async fn carry_out(&mut self, node: NodeId, view: &View) -> Result<(), StoreError> {
        let renewal = self.context.options.renewal;
        let pace = Pace { keep: renewal * KEEP_RENEWALS, orphan: renewal };
        let Moves { take, give } = moves(node, &view.peers, &view.holdings, pace);
        if !give.is_empty() {
            self.keep_only(|partition| !give.contains(partition));
            let Some(connection) = self.connection.as_mut() else { return Err(not_connected()) };
            let given = ownership::give(&mut connection.client, node, &give).await?;
            self.context.metrics.partitions_given.inc_by(given);
            self.context.say(Say::Freed);
            tracing::info!(given, "partitions given to others");
        }
        let Some(connection) = self.connection.as_mut() else { return Err(not_connected()) };
        let taken = match take.is_empty() {
            true => 0,
            false => ownership::take_free(&mut connection.client, node, &take).await?,
        };
        let owned = ownership::owned(&connection.client, node).await?.into_iter().collect();
        self.own(owned);
        if taken > 0 {
            self.context.metrics.partitions_taken.inc_by(taken);
            tracing::info!(taken, "partitions taken");
            self.context.lease.taken();
            self.context.wake();
        }
        Ok(())
    }

    async fn retire(&mut self, node: NodeId) -> Result<(), StoreError> {
        if self.membership.as_ref().is_some_and(|membership| membership.partitions.is_empty()) {
            return Ok(());
        }
        let Some(connection) = self.connection.as_mut() else { return Err(not_connected()) };
        ownership::retire(&mut connection.client, node).await?;
        self.own(BTreeMap::new());
        self.context.say(Say::Freed);
        tracing::info!("all partitions given to others");
        Ok(())
    }

    fn keep_only(&mut self, keeps: impl Fn(&PartitionId) -> bool) {
        let Some(membership) = &self.membership else { return };
        let kept = membership.partitions.iter().filter(|(partition, _)| keeps(partition));
        self.own(kept.map(|(partition, epoch)| (*partition, *epoch)).collect());
    }

    fn own(&mut self, partitions: BTreeMap<PartitionId, Epoch>) {
        if let Some(membership) = &self.membership {
            self.publish(Membership { partitions: Arc::new(partitions), ..membership.clone() });
        }
    }

    fn publish(&mut self, membership: Membership) {
        self.membership = Some(membership.clone());
        // A keeper on its way out says nothing more: another one may speak for this node already.
        if !self.orders.leaves() {
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
        let left = timeout(self.context.options.renewal, lease::leave(&mut connection.client, membership.node));
        match left.await {
            Ok(Ok(())) => tracing::info!(node_id = %membership.node, "left"),
            Ok(Err(error)) => tracing::warn!(%error, "could not say goodbye: the lease runs out"),
            Err(_) => tracing::warn!("could not say goodbye in time: the lease runs out"),
        }
    }
}

fn no_answer() -> StoreError {
    StoreError::Unavailable { detail: "no answer to the lease's statements in time".to_owned() }
}

fn not_connected() -> StoreError {
    StoreError::Unavailable { detail: "not connected".to_owned() }
}
