//! The configuration: defaults, then a file, then the environment; checked as a whole before anything starts.
//!
//! Every key is documented in `config/railyard.toml`, with its default; a test holds that file to these types. A key
//! that nobody knows, a value out of range and settings that contradict each other stop the start, all of them named
//! at once. Secrets are never in here: keys and tokens come by file, by environment or as hashes.

mod api;
mod cluster;
mod database;
mod dispatch;
mod environment;
mod limits;
mod load;
mod log;
mod membership;
mod parts;
mod problems;
mod rails;
mod secrets;
#[cfg(test)]
mod tests;

use railyard_rail::HttpOptions;
use serde::Deserialize;

pub(crate) use api::{Api, Role, Token};
pub(crate) use cluster::Cluster;
pub(crate) use database::{Database, Retention};
pub(crate) use dispatch::Dispatch;
pub(crate) use environment::Environment;
pub(crate) use limits::Limits;
pub(crate) use log::{Log, LogFormat};
pub(crate) use membership::{Cache, Lease, Node, Reaper};
pub(crate) use problems::{ConfigError, Problems};
pub(crate) use rails::Rails;
pub(crate) use secrets::Secrets;

/// Everything that can be set. `Default` is what runs when nothing is.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Config {
    pub(crate) node: Node,
    pub(crate) database: Database,
    pub(crate) lease: Lease,
    pub(crate) cluster: Cluster,
    pub(crate) dispatch: Dispatch,
    pub(crate) reaper: Reaper,
    pub(crate) cache: Cache,
    pub(crate) retention: Retention,
    pub(crate) http: HttpOptions,
    pub(crate) rails: Rails,
    pub(crate) limits: Limits,
    pub(crate) api: Api,
    pub(crate) secrets: Secrets,
    pub(crate) log: Log,
}

impl Config {
    /// Checks each value against its bounds, and the values against each other.
    ///
    /// # Errors
    /// Everything that is wrong; each line names its key.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let mut problems = Problems::default();
        self.node.check(&mut problems);
        self.database.check(&mut problems);
        self.lease.check(&mut problems);
        self.cluster.check(&mut problems);
        self.dispatch.check(&mut problems);
        self.reaper.check(&mut problems);
        self.cache.check(&mut problems);
        self.retention.check(&mut problems);
        problems.extend(self.http.check("http"));
        self.rails.check(&mut problems);
        self.limits.check(&mut problems);
        self.api.check(&mut problems);
        self.secrets.check(&mut problems);
        self.log.check(&mut problems);
        problems.into_result()
    }
}
