//! Who is linked: written by the ClusterSupervisor alone, read by everybody.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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
