//! `[api]`: where HTTP is served, and to whom.

use std::net::SocketAddr;

use railyard_core::limits::{PAYLOAD_BYTES_DEFAULT, PAYLOAD_BYTES_MAX};
use serde::Deserialize;

use super::Problems;

/// `[api]`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Api {
    /// Address and port. Without a token only loopback addresses are allowed.
    pub(crate) listen: SocketAddr,
    /// Largest payload of a job, in bytes.
    pub(crate) payload_bytes_max: usize,
    /// Who may call.
    pub(crate) tokens: Vec<Token>,
    /// Serves `/metrics` without a token.
    pub(crate) open_metrics: bool,
    /// Serves `/healthz` and `/readyz` without a token.
    pub(crate) open_health: bool,
}

/// One of `api.tokens`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Token {
    /// Who it is: the name in the audit.
    pub(crate) name: String,
    /// What it may do.
    pub(crate) role: Role,
    /// SHA-256 of the token, 64 hex digits; the token itself is stored nowhere.
    pub(crate) sha256: String,
}

/// What a token may do: a producer makes jobs and reads them, a viewer reads everything, an admin does everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Role {
    /// Create jobs and read them.
    Producer,
    /// Read everything.
    Viewer,
    /// Decide.
    Admin,
}

impl Default for Api {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 8080)),
            payload_bytes_max: PAYLOAD_BYTES_DEFAULT,
            tokens: Vec::new(),
            open_metrics: true,
            open_health: true,
        }
    }
}

impl Api {
    pub(super) fn check(&self, problems: &mut Problems) {
        problems.range("api.payload_bytes_max", &self.payload_bytes_max, 1..=PAYLOAD_BYTES_MAX);
        if self.tokens.is_empty() && !self.listen.ip().is_loopback() {
            let what = format!("is empty, and api.listen = {} is not a loopback address", self.listen);
            problems.add("api.tokens", what);
        }
        for (index, token) in self.tokens.iter().enumerate() {
            let key = |field: &str| format!("api.tokens[{index}].{field}");
            if token.name.trim().is_empty() || token.name.len() > 100 || token.name.chars().any(char::is_control) {
                problems.add(&key("name"), "is blank, longer than 100 bytes or has a control character");
            }
            if self.tokens[..index].iter().any(|before| before.name == token.name) {
                problems.add(&key("name"), "stands there twice: the audit could not tell who it was");
            }
            if token.sha256.len() != 64 || !token.sha256.bytes().all(|b| b.is_ascii_hexdigit()) {
                problems.add(&key("sha256"), "is not 64 hex digits (printf %s TOKEN | sha256sum)");
            }
        }
    }
}
