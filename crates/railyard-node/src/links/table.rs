//! Who is linked: written by the ClusterSupervisor alone, read by everybody.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use uuid::Uuid;

use super::stream::Pulse;

/// A link, by the process at its other end.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    /// Tells this link from others to the same process.
    pub(crate) serial: u64,
    pub(crate) pulse: Arc<Pulse>,
    /// The peer's address on this connection.
    pub(crate) remote: String,
    /// Whether it was the peer that dialled.
    pub(crate) incoming: bool,
    /// What ractor_cluster calls the session, once it is ready for messages.
    pub(crate) session: Option<u64>,
    /// Heartbeats missed in a row.
    pub(crate) misses: u32,
}

/// A link as others may see it.
#[derive(Clone, Debug)]
pub struct LinkState {
    /// The process at the other end.
    pub process: Uuid,
    /// Its address on this connection.
    pub remote: String,
    /// Whether it was the other end that connected.
    pub incoming: bool,
    /// How long it has been there.
    pub age: Duration,
    /// How long nothing has come.
    pub silence: Duration,
    /// Heartbeats missed in a row.
    pub misses: u32,
}

impl LinkState {
    pub(crate) fn new(process: Uuid, link: &Link) -> Self {
        Self {
            process,
            remote: link.remote.clone(),
            incoming: link.incoming,
            age: link.pulse.age(),
            silence: link.pulse.silence(),
            misses: link.misses,
        }
    }
}

/// All links.
#[derive(Default)]
pub(crate) struct Table {
    links: Mutex<HashMap<Uuid, Link>>,
}

impl Table {
    pub(crate) fn lock(&self) -> MutexGuard<'_, HashMap<Uuid, Link>> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn get(&self, process: Uuid) -> Option<Link> {
        self.lock().get(&process).cloned()
    }
}
