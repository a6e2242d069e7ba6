//! How actors reach each other: a slot that always holds the newest incarnation.
//!
//! A restarted actor gets a new `ActorRef`; whoever kept the old one would talk to a corpse. A message sent while the
//! slot is empty is dropped: nothing in memory is truth, and the poll finds what a lost wake-up meant.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use ractor::{ActorRef, Message, RpcReplyPort};

/// A place for an actor of one kind.
pub(crate) struct Handle<M: Message> {
    slot: Arc<ArcSwapOption<ActorRef<M>>>,
}

impl<M: Message> Clone for Handle<M> {
    fn clone(&self) -> Self {
        Self { slot: Arc::clone(&self.slot) }
    }
}

impl<M: Message> Default for Handle<M> {
    fn default() -> Self {
        Self { slot: Arc::new(ArcSwapOption::empty()) }
    }
}

impl<M: Message> Handle<M> {
    /// Called by the actor itself in `pre_start`.
    pub(crate) fn set(&self, actor: ActorRef<M>) {
        self.slot.store(Some(Arc::new(actor)));
    }

    /// Sends, if somebody is there. Returns whether it was.
    pub(crate) fn cast(&self, message: M) -> bool {
        self.slot.load().as_ref().is_some_and(|actor| actor.cast(message).is_ok())
    }

    /// Asks and waits at most `timeout`. `None` means *don't know*.
    pub(crate) async fn ask<T, F>(&self, make: F, timeout: Duration) -> Option<T>
    where
        T: Send + 'static,
        F: FnOnce(RpcReplyPort<T>) -> M,
    {
        let actor = self.slot.load_full()?;
        match actor.call(make, Some(timeout)).await {
            Ok(ractor::rpc::CallResult::Success(answer)) => Some(answer),
            Ok(ractor::rpc::CallResult::Timeout | ractor::rpc::CallResult::SenderError) | Err(_) => None,
        }
    }

    /// The actor itself, for tests that kill it.
    #[cfg(test)]
    pub(crate) fn actor(&self) -> Option<Arc<ActorRef<M>>> {
        self.slot.load_full()
    }
}
