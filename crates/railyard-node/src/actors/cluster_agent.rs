//! ClusterAgent: the one actor that other nodes can send to, and how they are told and asked.
//!
//! What is said is a hint: it makes a node look at the database earlier than it would have. What is asked is what
//! memory holds; no answer in time means *don't know*. Bodies are JSON, and what a node does not understand it leaves
//! alone, so that nodes of two versions can be linked.

use std::time::Duration;

use ractor::rpc::CallResult;
use ractor::{Actor, ActorId, ActorProcessingErr, ActorRef, RpcReplyPort, pg};
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;
use uuid::Uuid;

use super::settler::answer;
use super::{cache_keeper, lease_keeper};
use crate::context::Context;
use crate::links::Links;

/// The process group that all agents are in.
const GROUP: &str = "railyard agents";

/// What goes over a link: two variants, for ever. Both carry JSON.
#[derive(ractor_cluster::RactorClusterMessage)]
pub(crate) enum Msg {
    /// A [`Say`].
    Tell(Vec<u8>),
    /// A [`Question`], and its answer.
    #[rpc]
    Ask(Vec<u8>, RpcReplyPort<Vec<u8>>),
}

/// What nodes tell each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Say {
    /// I am here.
    Beat,
    /// Something was committed. Slower: NOTIFY, then the poll.
    Wake,
    /// Something that is cached has changed. Slower: NOTIFY, then the TTL.
    FlushCaches,
    /// Partitions are free, mine or a dead member's. Slower: NOTIFY, then the next renewal.
    Freed,
}

/// What nodes ask each other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Question {
    /// What its actors show of themselves.
    Observe,
    /// To which processes it is linked.
    Links,
    /// What its memory holds of these groups.
    Groups(Vec<String>),
}

/// The actor.
pub(crate) struct ClusterAgent;

/// Its state.
pub(crate) struct State {
    context: Context,
    /// Answers on their way; they end with the actor.
    answers: JoinSet<()>,
}

impl Actor for ClusterAgent {
    type Msg = Msg;
    type State = State;
    type Arguments = Context;

    async fn pre_start(&self, myself: ActorRef<Msg>, context: Context) -> Result<State, ActorProcessingErr> {
        pg::join(GROUP.to_owned(), vec![myself.get_cell()]);
        Ok(State { context, answers: JoinSet::new() })
    }

    async fn handle(&self, _: ActorRef<Msg>, message: Msg, state: &mut State) -> Result<(), ActorProcessingErr> {
        match message {
            Msg::Tell(body) => match serde_json::from_slice(&body) {
                Ok(say) => heard(&state.context, say),
                Err(error) => tracing::debug!(%error, "a peer said something unknown"),
            },
            Msg::Ask(body, reply) => match serde_json::from_slice(&body) {
                // Beside the mailbox: an actor of ours that does not answer must not keep the next one waiting.
                Ok(question) => {
                    while state.answers.try_join_next().is_some() {}
                    let context = state.context.clone();
                    state.answers.spawn(async move {
                        // Who cannot say is silent: no answer means *don't know*.
                        if let Some(seen) = context.answer(question).await {
                            answer(reply, seen.to_string().into_bytes());
                        }
                    });
                }
                Err(error) => tracing::debug!(%error, "a peer asked something unknown"),
            },
        }
        Ok(())
    }
}

fn heard(context: &Context, say: Say) {
    match say {
        Say::Beat => {}
        // Whoever hears notifications has heard of it: a second look would find nothing new.
        Say::Wake if context.listening() => {}
        Say::Wake => context.wake(),
        Say::FlushCaches => {
            context.actors.cache_keeper.cast(cache_keeper::Msg::Flush);
        }
        Say::Freed => {
            context.actors.lease_keeper.cast(lease_keeper::Msg::Look);
        }
    }
}

/// Agents of linked peers, by the session.
fn agents() -> impl Iterator<Item = (u64, ActorRef<Msg>)> {
    pg::get_members(&GROUP.to_owned()).into_iter().filter_map(|cell| match cell.get_id() {
        ActorId::Remote { node_id, .. } => Some((node_id, cell.into())),
        ActorId::Local(_) => None,
    })
}

/// Tells every linked peer. One that has missed heartbeats is told those alone: what is sent to a frozen peer piles up.
pub(crate) fn tell_all(links: &Links, say: Say) {
    let Ok(body) = serde_json::to_vec(&say) else { return };
    let may: Vec<u64> = {
        let table = links.table.lock();
        table.values().filter(|link| link.misses == 0 || say == Say::Beat).filter_map(|link| link.session).collect()
    };
    for (session, agent) in agents() {
        if may.contains(&session) {
            // A session that has just ended.
            let _ = agent.cast(Msg::Tell(body.clone()));
        }
    }
}

/// Asks one peer. None means *don't know*: it is not linked, or did not answer in time.
pub(crate) async fn ask(links: &Links, peer: Uuid, question: &Question, within: Duration) -> Option<serde_json::Value> {
    let body = serde_json::to_vec(question).ok()?;
    let session = links.table.get(peer)?.session?;
    let (_, agent) = agents().find(|(known, _)| *known == session)?;
    match agent.call(|reply| Msg::Ask(body, reply), Some(within)).await {
        Ok(CallResult::Success(seen)) => serde_json::from_slice(&seen).ok(),
        Ok(CallResult::Timeout | CallResult::SenderError) | Err(_) => None,
    }
}
