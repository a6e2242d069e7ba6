//! LeaseKeeper: who this node is, how long it may act, which partitions it owns.
//!
//! Owns the membership, on a thread and a connection of its own: no load on the runtime or the pools keeps it from
//! renewing. It publishes what it knows; everybody else reads [`crate::lease::Lease`]. A lease that lapsed is never
//! revived: the membership is dropped at once, running calls end and settle, and the node joins anew under a fresh id.
//!
//! If it dies, the lease runs out and nothing more is begun; if the process is stopped and goes on, the clock, which
//! ran meanwhile, says the same.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort};

use super::settler::answer;
use crate::context::Context;

mod keeper;
mod orders;

use keeper::Keeper;
use orders::Orders;

/// What it is told.
#[derive(ractor_cluster::RactorMessage)]
pub(crate) enum Msg {
    /// See whether the thread is still there.
    Check,
    /// Members or partitions have changed: look now.
    Look,
    /// Give all partitions to others; the lease stays good for the calls that run.
    Retire,
    /// Give everything back; answered when that is done, or given up.
    Leave(RpcReplyPort<()>),
}

/// The actor.
pub(crate) struct LeaseKeeper;

/// Its state.
pub(crate) struct State {
    orders: Arc<Orders>,
    thread: Option<JoinHandle<()>>,
}

const CHECK: Duration = Duration::from_secs(1);

impl Actor for LeaseKeeper {
    type Msg = Msg;
    type State = State;
    type Arguments = Context;

    async fn pre_start(&self, myself: ActorRef<Msg>, context: Context) -> Result<State, ActorProcessingErr> {
        context.actors.lease_keeper.set(myself.clone());
        let orders = Arc::new(Orders::default());
        let keeper = Keeper::new(context, Arc::clone(&orders));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let thread = std::thread::Builder::new()
            .name("railyard-lease".to_owned())
            .spawn(move || runtime.block_on(keeper.run()))?;
        myself.send_after(CHECK, || Msg::Check);
        Ok(State { orders, thread: Some(thread) })
    }

    async fn handle(&self, myself: ActorRef<Msg>, message: Msg, state: &mut State) -> Result<(), ActorProcessingErr> {
        match message {
            Msg::Look => state.orders.look(),
            Msg::Retire => state.orders.retire(),
            Msg::Leave(reply) => {
                state.leave().await?;
                answer(reply, ());
            }
            Msg::Check if state.orders.leaves() => {}
            Msg::Check => {
                if state.thread.as_ref().is_none_or(JoinHandle::is_finished) {
                    return Err("the lease thread ended".into());
                }
                myself.send_after(CHECK, || Msg::Check);
            }
        }
        Ok(())
    }
}

impl State {
    /// The thread leaves the cluster on its way out; its own timeouts bound the wait.
    async fn leave(&mut self) -> Result<(), ActorProcessingErr> {
        self.orders.leave();
        if let Some(thread) = self.thread.take() {
            tokio::task::spawn_blocking(move || drop(thread.join())).await?;
        }
        Ok(())
    }
}

impl Drop for State {
    fn drop(&mut self) {
        // Killed or failed: the thread must not go on renewing for nobody.
        self.orders.leave();
    }
}
