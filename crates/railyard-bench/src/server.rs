//! PostgreSQL: one of our own, durable and gone afterwards, or a given one on which databases are made and dropped.

use std::sync::Mutex;

use anyhow::Context;
use railyard_postgres::PrivatePostgres;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use url::Url;

use crate::client::Client;
use crate::database::Database;
use crate::processes;

/// What the private server is started with beyond its defaults: memory and log space that do not limit a bench, and
/// the counters of statements.
const SETTINGS: [(&str, &str); 4] = [
    ("shared_buffers", "512MB"),
    ("max_wal_size", "8GB"),
    ("pg_stat_statements.max", "1000"),
    ("shared_preload_libraries", "pg_stat_statements"),
];
const STATISTICS_LIBRARY: &str = "pg_stat_statements";

/// A server and the databases made on it.
pub(crate) struct Server {
    private: Option<PrivatePostgres>,
    url: Url,
    version: String,
    made: Mutex<Vec<String>>,
}

impl Server {
    /// Starts a private one, or looks at the given one.
    pub(crate) async fn start(given: Option<&str>) -> anyhow::Result<Self> {
        let (private, url) = match given {
            Some(url) => (None, Url::parse(url).context("--database-url")?),
            None => {
                let server = start_private().await?;
                let url = Url::parse(&server.url("postgres"))?;
                (Some(server), url)
            }
        };
        let version = Client::connect(url.as_str()).await?.one("SHOW server_version").await?;
        Ok(Self { private, url, version, made: Mutex::new(Vec::new()) })
    }

    pub(crate) fn version(&self) -> &str {
        &self.version
    }

    /// A new, migrated database.
    pub(crate) async fn database(&self) -> anyhow::Result<Database> {
        let name = format!("railyard_bench_{}", uuid::Uuid::new_v4().simple());
        Client::connect(self.url.as_str()).await?.run(&format!("CREATE DATABASE {name}")).await?;
        if let Ok(mut made) = self.made.lock() {
            made.push(name.clone());
        }
        let mut url = self.url.clone();
        url.set_path(&name);
        Database::prepare(url.as_str()).await
    }

    /// Processor time of the whole server; none if it is not ours to look at.
    pub(crate) fn processor_ms(&self) -> Option<f64> {
        let postmaster = processes::postmaster(self.private.as_ref()?.data_dir()).ok()?;
        Some(processes::tree_time(postmaster).ok()?.as_secs_f64() * 1000.0)
    }

    /// Whether it is ours to be hurt.
    pub(crate) fn is_private(&self) -> bool {
        self.private.is_some()
    }

    /// SIGKILL to one backend of a node on this database: the server ends all others, recovers, and goes on.
    pub(crate) async fn crash(&self, database: &Database) -> anyhow::Result<()> {
        let sql = "SELECT pid FROM pg_stat_activity
                   WHERE datname = current_database() AND pid <> pg_backend_pid() AND application_name = 'railyard work' LIMIT 1";
        let process = Pid::from_raw(database.sql.one(sql).await?).context("a backend")?;
        Ok(kill_process(process, Signal::KILL)?)
    }

    /// Settings that figures depend on.
    pub(crate) async fn settings(&self) -> anyhow::Result<Value> {
        let client = Client::connect(self.url.as_str()).await?;
        let mut shown = serde_json::Map::new();
        for name in ["fsync", "synchronous_commit", "full_page_writes", "shared_buffers", "max_wal_size"] {
            shown.insert(name.to_owned(), json!(client.one::<String>(&format!("SHOW {name}")).await?));
        }
        Ok(Value::Object(shown))
    }

    /// Drops what was made on a given server; a private one goes as a whole.
    pub(crate) async fn clear(self) -> anyhow::Result<()> {
        if let Some(private) = &self.private {
            return Ok(private.stop().await?);
        }
        let made = self.made.lock().map(|made| made.clone()).unwrap_or_default();
        let client = Client::connect(self.url.as_str()).await?;
        for name in made {
            client.run(&format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)")).await?;
        }
        Ok(())
    }
}

async fn start_private() -> anyhow::Result<PrivatePostgres> {
    let options = |with_statistics: bool| {
        let settings = SETTINGS.iter().filter(|(name, value)| {
            with_statistics || !(name.starts_with(STATISTICS_LIBRARY) || *value == STATISTICS_LIBRARY)
        });
        settings.fold(PrivatePostgres::options().fsync(true), |options, (name, value)| options.setting(name, *value))
    };
    match options(true).start().await {
        Ok(server) => Ok(server),
        // An installation without the contrib modules: everything but the profile of statements is measured.
        Err(railyard_postgres::Error::Program { said, .. }) if said.contains(STATISTICS_LIBRARY) => {
            Ok(options(false).start().await?)
        }
        Err(error) => Err(error.into()),
    }
}
