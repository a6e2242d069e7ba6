//! The links between nodes: who is linked, and the parts that make a link. What they are *for* is in
//! [`crate::actors::cluster_agent`]; that nothing depends on them is the rule: each thing they carry has a slower way
//! through the database.
//!
//! ractor_cluster carries messages over a link. It is given a connection only once both sides have shown that they
//! know the cookie ([`prologue`]) over mutual TLS ([`tls`]); a link is watched and cut from below ([`stream`]), since
//! ractor_cluster waits for ever for a peer that has frozen.

pub(crate) mod greet;
pub(crate) mod options;
pub(crate) mod prologue;
pub(crate) mod refused;
pub(crate) mod server;
pub(crate) mod stream;
pub(crate) mod table;
pub(crate) mod tls;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use arc_swap::ArcSwap;
use railyard_store::lease::Door;
use uuid::Uuid;

use options::LinkOptions;
use table::Table;
use tls::Reloading;

/// Longest frame between nodes, in bytes: what a node shows of itself is far shorter.
pub(crate) const FRAME_BYTES_MAX: u64 = 1 << 20;
/// Connections at once that have not shown who they are; the next one is closed.
pub(crate) const STRANGERS_MAX: usize = 32;
/// A stranger has this long to show who he is.
pub(crate) const HANDSHAKE: Duration = Duration::from_secs(3);
/// Between two signs of life.
pub(crate) const HEARTBEAT: Duration = Duration::from_secs(1);
/// So many missed in a row end a link.
pub(crate) const MISSES_MAX: u32 = 3;

/// What all parts of the links share.
pub(crate) struct Links {
    pub(crate) options: LinkOptions,
    /// None: links are in plaintext, as configured.
    pub(crate) tls: Option<Reloading>,
    pub(crate) me: Door,
    pub(crate) table: Table,
    /// Somebody waits for peers to be woken already.
    pub(crate) wake_asked: AtomicBool,
    /// Names and doors of the other members, as the LeaseKeeper saw them last.
    doors: ArcSwap<Vec<(String, Door)>>,
}

impl Links {
    /// Reads the certificates.
    ///
    /// # Errors
    /// What is wrong with them.
    pub(crate) fn new(options: LinkOptions) -> Result<Self, String> {
        let tls = options.tls.clone().map(Reloading::load).transpose()?;
        let me = Door { process: Uuid::now_v7(), address: options.advertise.clone() };
        Ok(Self {
            options,
            tls,
            me,
            table: Table::default(),
            wake_asked: AtomicBool::new(false),
            doors: ArcSwap::default(),
        })
    }

    pub(crate) fn saw(&self, doors: Vec<(String, Door)>) {
        self.doors.store(Arc::new(doors));
    }

    pub(crate) fn doors(&self) -> Arc<Vec<(String, Door)>> {
        self.doors.load_full()
    }

    /// What the process calls itself, as far as it is known.
    pub(crate) fn name_of(&self, process: Uuid) -> String {
        let doors = self.doors();
        let known = doors.iter().find(|(_, door)| door.process == process);
        known.map_or_else(|| "unknown".to_owned(), |(name, _)| name.clone())
    }
}
