//! What the links are told at start.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use zeroize::Zeroizing;

/// `[cluster]` of the configuration, read and checked.
#[derive(Clone, Debug)]
pub struct LinkOptions {
    /// Where this node takes links.
    pub listen: SocketAddr,
    /// Where others find it: `host:port`.
    pub advertise: String,
    /// What all nodes know and nobody else.
    pub cookie: Cookie,
    /// None: plaintext.
    pub tls: Option<TlsFiles>,
}

/// A secret: shown by nobody, wiped when dropped.
#[derive(Clone)]
pub struct Cookie(Arc<Zeroizing<Vec<u8>>>);

impl Cookie {
    /// Takes it.
    #[must_use]
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(Arc::new(Zeroizing::new(bytes)))
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Cookie {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Cookie(..)")
    }
}

/// PEM files, read at start and again when they change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// This node's certificate and those between it and the authority.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// The authorities that nodes' certificates come from.
    pub authority: PathBuf,
    /// The name that every node's certificate carries.
    pub name: String,
}
