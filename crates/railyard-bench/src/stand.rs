//! All parts of a bench in one place: server, receivers, and a home directory for nodes.

use std::path::PathBuf;

use railyard_core::job::NewJob;
use railyard_postgres::{Farewell, Undertaker};
use tempfile::TempDir;

use crate::database::Database;
use crate::node::{Node, Setting};
use crate::options::Common;
use crate::progress::say;
use crate::receiver::Receiver;
use crate::server::Server;

/// A server, a receiver, and the options.
pub(crate) struct Stand {
    pub(crate) common: Common,
    pub(crate) server: Server,
    pub(crate) receiver: Receiver,
    home: PathBuf,
    /// Ends a node that outlives us; after the node, before the directory.
    undertaker: Undertaker,
    _dir: TempDir,
}

impl Stand {
    pub(crate) async fn start(common: &Common) -> anyhow::Result<Self> {
        say("starting PostgreSQL and the receiver");
        let server = Server::start(common.database_url.as_deref()).await?;
        let receiver = Receiver::start().await?;
        let dir = tempfile::Builder::new().prefix("railyard-bench-").tempdir()?;
        let home = dir.path().canonicalize()?;
        let undertaker = Undertaker::hire(Farewell::Kill, &home, &[&home])?;
        Ok(Self { common: common.clone(), server, receiver, home, undertaker, _dir: dir })
    }

    /// A node on this database, with as many calls at once as the options say, and these settings over the defaults.
    pub(crate) fn node(&self, database: &Database, settings: &[Setting]) -> anyhow::Result<Node> {
        self.named("bench", database, settings)
    }

    /// So many nodes on this database, each with as many calls of its own.
    pub(crate) fn nodes(&self, count: u32, database: &Database, settings: &[Setting]) -> anyhow::Result<Vec<Node>> {
        (0..count).map(|n| self.named(&format!("bench-{n}"), database, settings)).collect()
    }

    fn named(&self, name: &str, database: &Database, settings: &[Setting]) -> anyhow::Result<Node> {
        let concurrency = self.common.concurrency.to_string();
        let mut all =
            vec![("http.endpoint_concurrency", concurrency.clone()), ("dispatch.calls_in_flight", concurrency)];
        all.extend_from_slice(settings);
        Node::start(name, &self.home, database, &all, &[])
    }

    /// One node of several.
    pub(crate) fn node_named(
        &self,
        name: &str,
        database: &Database,
        settings: &[Setting],
        environment: &[(&str, String)],
    ) -> anyhow::Result<Node> {
        Node::start(name, &self.home, database, settings, environment)
    }

    /// A message of `payload` bytes, signed by the database's credentials, for this target.
    pub(crate) fn job(&self, database: &Database, target: &str) -> NewJob {
        let mut job = message(self.common.payload, target);
        job.credentials_id = Some(database.credentials_id);
        job
    }

    /// Puts everything away.
    pub(crate) async fn clear(self) -> anyhow::Result<()> {
        self.undertaker.dismiss();
        self.server.clear().await
    }
}

/// A message of so many bytes for this target, without credentials.
pub(crate) fn message(payload: u32, target: &str) -> NewJob {
    let filler = "x".repeat((payload as usize).saturating_sub(r#"{"data":""}"#.len()));
    let payload = bytes::Bytes::from(format!(r#"{{"data":"{filler}"}}"#));
    NewJob::new("bench", "bench.message", railyard_core::rail::RailKind::Webhook, target, payload)
}
