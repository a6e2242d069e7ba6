//! CacheKeeper: credentials, and which pools are set, as snapshots that callers read without a lock.
//!
//! A flush is also what makes this process forget its rate configurations, which the store remembers for itself.
//!
//! Owns the snapshot; replaces it when its age reaches the TTL, when a notification or an operator says so, and adds
//! single entries that a caller misses. A look-up that fails leaves what is there: a job whose credentials cannot be
//! looked up waits, and nothing is ever sent unsigned. If it dies, the last snapshot serves until it is back.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort};
use railyard_core::CredentialsId;
use railyard_rail::{Credentials, NextSecrets, Schemes, SigningSecrets};
use railyard_store::credentials::{Looked, Scheme, Secrets, load, load_all};
use serde::Serialize;

use super::settler::answer;
use crate::context::Context;

/// After a load that failed, while it is not known which pools are set: nothing is called until then.
const TRY_AGAIN: Duration = Duration::from_millis(250);

/// How long a caller waits for a single look-up.
const LOOK_UP_TIMEOUT: Duration = Duration::from_secs(5);

/// What it is told.
#[derive(ractor_cluster::RactorMessage)]
pub(crate) enum Msg {
    /// The TTL has passed.
    Age,
    /// Something changed: load now.
    Flush,
    /// Look one up that the snapshot does not have.
    Find(CredentialsId, RpcReplyPort<Credential>),
    /// For the live view and for tests.
    Observe(RpcReplyPort<Observed>),
}

/// One set of credentials, as far as is known.
#[derive(Clone)]
pub(crate) enum Credential {
    /// Signs.
    Good(Arc<Credentials>),
    /// Deleted by force: jobs that name it end.
    Deleted,
    /// Could not be looked up or cannot be read just now: wait.
    Unavailable(String),
}

/// Its observable state.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Observed {
    entries: usize,
    loads: u64,
    failures: u64,
}

/// The snapshot.
#[derive(Clone, Default)]
pub(crate) struct CredentialsCache {
    snapshot: Arc<ArcSwap<HashMap<CredentialsId, Credential>>>,
}

impl CredentialsCache {
    /// From the snapshot, or by one look-up.
    pub(crate) async fn find(&self, context: &Context, id: CredentialsId) -> Credential {
        if let Some(known) = self.snapshot.load().get(&id) {
            return known.clone();
        }
        let asked = context.actors.cache_keeper.ask(|reply| Msg::Find(id, reply), LOOK_UP_TIMEOUT).await;
        asked.unwrap_or_else(|| Credential::Unavailable("the credentials could not be looked up in time".to_owned()))
    }
}

/// The actor.
pub(crate) struct CacheKeeper;

/// Its state.
pub(crate) struct State {
    context: Context,
    loads: u64,
    failures: u64,
}

impl Actor for CacheKeeper {
    type Msg = Msg;
    type State = State;
    type Arguments = Context;

    async fn pre_start(&self, myself: ActorRef<Msg>, context: Context) -> Result<State, ActorProcessingErr> {
        context.actors.cache_keeper.set(myself.clone());
        let state = State { context, loads: 0, failures: 0 };
        // In `handle`: the database may be away, and the supervisor is not to wait for it.
        myself.cast(Msg::Age)?;
        Ok(state)
    }

    async fn handle(&self, myself: ActorRef<Msg>, message: Msg, state: &mut State) -> Result<(), ActorProcessingErr> {
        match message {
            Msg::Age => {
                state.reload().await;
                let ttl = state.context.options.cache_ttl;
                let wait = if state.context.pools.are_known() { ttl } else { TRY_AGAIN.min(ttl) };
                myself.send_after(wait, || Msg::Age);
            }
            Msg::Flush => {
                state.context.store.rates().flush();
                state.reload().await;
            }
            Msg::Find(id, reply) => answer(reply, state.find(id).await),
            Msg::Observe(reply) => answer(reply, state.observe()),
        }
        Ok(())
    }
}

impl State {
    async fn reload(&mut self) {
        match self.context.store.pool_codes().await {
            Ok(codes) => self.context.pools.know(codes),
            Err(error) => self.context.trouble("cache_keeper", &error),
        }
        match load_all(&self.context.store, &self.context.keys).await {
            Ok(all) => {
                let snapshot = all.into_iter().filter_map(|(id, looked)| Some((id, credential(looked)?))).collect();
                self.context.credentials.snapshot.store(Arc::new(snapshot));
                self.loads += 1;
            }
            Err(error) => {
                self.failures += 1;
                // The last snapshot serves on.
                self.context.trouble("cache_keeper", &error);
            }
        }
    }

    async fn find(&mut self, id: CredentialsId) -> Credential {
        // It may have come in while this request was waiting.
        if let Some(known) = self.context.credentials.snapshot.load().get(&id) {
            return known.clone();
        }
        match load(&self.context.store, &self.context.keys, id).await {
            Ok(looked) => match credential(looked) {
                Some(found) => {
                    let mut snapshot = HashMap::clone(&self.context.credentials.snapshot.load());
                    snapshot.insert(id, found.clone());
                    self.context.credentials.snapshot.store(Arc::new(snapshot));
                    found
                }
                None => Credential::Unavailable(format!("credentials {id} are unknown")),
            },
            Err(error) => {
                self.failures += 1;
                Credential::Unavailable(error.to_string())
            }
        }
    }

    fn observe(&self) -> Observed {
        Observed { entries: self.context.credentials.snapshot.load().len(), loads: self.loads, failures: self.failures }
    }
}

/// `None`: no such row.
fn credential(looked: Looked) -> Option<Credential> {
    Some(match looked {
        Looked::Found(secrets) => usable(secrets),
        Looked::Deleted => Credential::Deleted,
        Looked::Unknown => return None,
        Looked::Closed(error) => Credential::Unavailable(error.to_string()),
        Looked::Unreadable { detail } => Credential::Unavailable(detail),
    })
}

fn usable(secrets: Secrets) -> Credential {
    let schemes = Schemes {
        flowcatalyst: secrets.schemes.contains(&Scheme::Flowcatalyst),
        standard: secrets.schemes.contains(&Scheme::Standard),
    };
    let next = secrets.next.map(|next| NextSecrets {
        bearer_token: next.bearer_token,
        signing_secret: next.signing_secret,
        active_from: next.active_from,
        overlap_until: next.overlap_until,
    });
    let signing = SigningSecrets { current: secrets.signing_secret, next };
    match Credentials::new(Some(secrets.bearer_token), signing, schemes) {
        Ok(credentials) => Credential::Good(Arc::new(credentials)),
        Err(error) => Credential::Unavailable(error.to_string()),
    }
}
