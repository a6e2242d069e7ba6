//! What a node shows of itself.

use std::time::Duration;

use railyard_core::ParticipantId;
use serde_json::{Value, json};

use crate::actors::cluster_agent::Question;
use crate::actors::{
    cache_keeper, dispatch, global_buffer, governor, listener, maintenance, poller, pool_keeper, rail_caller_pool,
    reaper, settler,
};
use crate::context::Shared;

/// How long an actor has to show its state.
pub(crate) const OBSERVE_TIMEOUT: Duration = Duration::from_secs(1);

impl Shared {
    /// What memory says to a question; none: *don't know*.
    pub(crate) async fn answer(&self, question: Question) -> Option<Value> {
        match question {
            Question::Observe => Some(self.observe().await),
            Question::Links => {
                // A node that takes no links has none.
                let Some(links) = &self.links else { return Some(json!([])) };
                let table = links.table.lock();
                Some(
                    table
                        .iter()
                        .filter(|(_, link)| link.session.is_some())
                        .map(|(process, _)| json!(process))
                        .collect(),
                )
            }
            Question::Groups(names) => {
                let groups = names.into_iter().map(ParticipantId::new).collect();
                self.actors.buffer.ask(|reply| global_buffer::Msg::Standings(groups, reply), OBSERVE_TIMEOUT).await
            }
        }
    }

    /// What every actor shows of itself; those that do not answer in time are null.
    pub(crate) async fn observe(&self) -> Value {
        let actors = &self.actors;
        let lease = self.lease.good();
        json!({
            "node": {
                "name": self.options.name,
                "id": lease.as_ref().map(|membership| membership.node),
                "leaseRemainingMs": u64::try_from(self.lease.remaining().as_millis()).unwrap_or(u64::MAX),
                "partitions": lease.map_or(0, |membership| membership.partitions.len()),
                "liveAttempts": self.attempts.live(),
                "stopping": self.stopping.is_set(),
            },
            "actors": {
                "cacheKeeper": actors.cache_keeper.ask(cache_keeper::Msg::Observe, OBSERVE_TIMEOUT).await,
                "governor": actors.governor.ask(governor::Msg::Observe, OBSERVE_TIMEOUT).await,
                "pools": actors.pool_keeper.ask(pool_keeper::Msg::Observe, OBSERVE_TIMEOUT).await,
                "settler": actors.settler.ask(settler::Msg::Observe, OBSERVE_TIMEOUT).await,
                "railCallers": actors.callers.ask(rail_caller_pool::Msg::Observe, OBSERVE_TIMEOUT).await,
                "globalBuffer": actors.buffer.ask(global_buffer::Msg::Observe, OBSERVE_TIMEOUT).await,
                "poller": actors.poller.ask(poller::Msg::Observe, OBSERVE_TIMEOUT).await,
                "listener": actors.listener.ask(listener::Msg::Observe, OBSERVE_TIMEOUT).await,
                "reaper": actors.reaper.ask(reaper::Msg::Observe, OBSERVE_TIMEOUT).await,
                "dispatchers": actors.dispatch.ask(dispatch::Msg::Observe, OBSERVE_TIMEOUT).await,
                "maintenance": actors.maintenance.ask(maintenance::Msg::Observe, OBSERVE_TIMEOUT).await,
            },
            "endpoints": self.endpoints.seen().into_iter().take(50).collect::<Vec<_>>(),
        })
    }
}
