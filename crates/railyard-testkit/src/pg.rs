//! A database per test, on one server per run where there is one.
//!
//! `RAILYARD_TEST_PG` names a server that the whole run shares (`scripts/test` starts it). Without it each test
//! process starts a private one on first use, which costs a second and ends with the process. A test that restarts
//! or kills its server takes an [`OwnServer`].

use std::future::Future;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use railyard_postgres::PrivatePostgres;
use tokio::sync::OnceCell;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, NoTls};

use crate::eventually_some;

/// A fresh database, dropped with this value. `RAILYARD_KEEP_DB=1` keeps it and prints its URL.
#[derive(Debug)]
pub struct TestDb {
    url: String,
    name: String,
    maintenance_url: String,
    keep: bool,
}

impl TestDb {
    /// An empty database of its own.
    ///
    /// # Panics
    /// When no server can be had, with the reason.
    pub async fn create() -> TestDb {
        let admin = Admin::connect().await;
        admin.create_database(None).await
    }

    /// A database made as a copy of a template, which `setup` fills once per server: tests that need migrations pay
    /// for them once. `name` must change with what `setup` does. Concurrent callers wait for the first; a `setup`
    /// that fails leaves no template.
    ///
    /// # Panics
    /// When no server can be had or the template cannot be copied.
    pub async fn from_template<F, Fut>(name: &str, setup: F) -> TestDb
    where
        F: FnOnce(String) -> Fut,
        Fut: Future<Output = ()>,
    {
        let admin = Admin::connect().await;
        let template = admin.template(name, setup).await;
        admin.create_database(Some(&template)).await
    }

    /// URL of the superuser's access.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// URL of another role's access, without a password (local connections are trusted).
    pub fn url_as(&self, role: &str) -> String {
        let (_, rest) = self.url.split_once('@').expect("our URLs name a user");
        format!("postgres://{role}@{rest}")
    }

    /// The database's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A connection of the superuser; it closes when the client is dropped.
    ///
    /// # Panics
    /// When the server cannot be reached.
    pub async fn connect(&self) -> Client {
        connect(&self.url).await
    }
}

impl Drop for TestDb {
    fn drop(&mut self) {
        if self.keep {
            eprintln!("kept {}", self.url);
            return;
        }
        let (url, name) = (self.maintenance_url.clone(), self.name.clone());
        // A test's runtime cannot be awaited here. What is not dropped goes with the server at the end of the run.
        let dropper = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
            runtime.block_on(async {
                let work = async {
                    let (client, connection) = tokio_postgres::connect(&url, NoTls).await.ok()?;
                    let sql = format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)");
                    tokio::select! {
                        _ = connection => {}
                        _ = client.batch_execute(&sql) => {}
                    }
                    Some(())
                };
                tokio::time::timeout(Duration::from_secs(10), work).await.ok()?
            })
        });
        let _ = dropper.join();
    }
}

/// A server of this test alone, to be restarted, frozen, killed; with one database `railyard`.
#[derive(Debug)]
pub struct OwnServer {
    server: PrivatePostgres,
}

impl OwnServer {
    /// Starts one without fsync, with the given extra settings.
    ///
    /// # Panics
    /// When it cannot be started, with the reason.
    pub async fn start(settings: &[(&str, &str)]) -> OwnServer {
        let mut options = private_options();
        for (name, value) in settings {
            options = options.setting(name, *value);
        }
        let server = options.start().await.unwrap_or_else(|error| panic!("no private database: {error}"));
        server.create_database("railyard").await.expect("a fresh server takes a new database");
        OwnServer { server }
    }

    /// URL of the database `railyard`; the same over restarts.
    pub fn url(&self) -> String {
        self.server.url("railyard")
    }

    /// A connection of the superuser to the database `railyard`.
    ///
    /// # Panics
    /// When the server cannot be reached.
    pub async fn connect(&self) -> Client {
        connect(&self.url()).await
    }

    /// The server, for what may be done to it.
    pub fn server(&self) -> &PrivatePostgres {
        &self.server
    }

    /// Address of the server for a proxy in front of it.
    pub fn address(&self) -> std::net::SocketAddr {
        (std::net::Ipv4Addr::LOCALHOST, self.server.port()).into()
    }
}

fn private_options() -> railyard_postgres::Options {
    // Tests wait for deadlocks and dead tuples; production's second and minute would be their run time.
    PrivatePostgres::options().fsync(false).setting("deadlock_timeout", "200ms").setting("autovacuum_naptime", "2s")
}

/// The connection that makes and copies databases.
struct Admin {
    client: Client,
    url: String,
}

impl Admin {
    async fn connect() -> Admin {
        let url = server_url().await;
        Admin { client: connect(&url).await, url }
    }

    async fn create_database(&self, template: Option<&str>) -> TestDb {
        let name = format!("t_{}_{:016x}", std::process::id(), rand::random::<u64>());
        let from = template.map(|template| format!(" TEMPLATE {template}")).unwrap_or_default();
        let sql = format!("CREATE DATABASE {name}{from}");
        // A template that somebody is still leaving (a backend that has not noticed its client's end) is in use for
        // a moment longer.
        eventually_some(Duration::from_secs(20), "the template is free", || async {
            match self.client.batch_execute(&sql).await {
                Ok(()) => Some(()),
                Err(error) if error.code() == Some(&SqlState::OBJECT_IN_USE) => None,
                Err(error) => panic!("{sql}: {error:?}"),
            }
        })
        .await;
        let keep = environment("RAILYARD_KEEP_DB").is_some();
        TestDb { url: with_database(&self.url, &name), name, maintenance_url: self.url.clone(), keep }
    }

    /// Makes the template once. The advisory lock is the session's, so it ends with a maker that dies; the database
    /// gets its name when it is ready, so half a template is never found.
    async fn template<F, Fut>(&self, name: &str, setup: F) -> String
    where
        F: FnOnce(String) -> Fut,
        Fut: Future<Output = ()>,
    {
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        let template = format!("tpl_{:016x}", hasher.finish());
        let lock = i64::from_be_bytes(hasher.finish().to_be_bytes());
        self.client.execute("SELECT pg_advisory_lock($1)", &[&lock]).await.expect("lock the template");
        let found = "SELECT 1 FROM pg_database WHERE datname = $1";
        if self.client.query_opt(found, &[&template]).await.expect("look for the template").is_none() {
            let draft = format!("{template}_draft");
            let run = async |sql: String| {
                eventually_some(Duration::from_secs(20), "the draft is free", || async {
                    match self.client.batch_execute(&sql).await {
                        Ok(()) => Some(()),
                        Err(error) if error.code() == Some(&SqlState::OBJECT_IN_USE) => None,
                        Err(error) => panic!("{sql}: {error:?}"),
                    }
                })
                .await;
            };
            run(format!("DROP DATABASE IF EXISTS {draft} WITH (FORCE)")).await;
            run(format!("CREATE DATABASE {draft}")).await;
            setup(with_database(&self.url, &draft)).await;
            run(format!("ALTER DATABASE {draft} RENAME TO {template}")).await;
        }
        self.client.execute("SELECT pg_advisory_unlock($1)", &[&lock]).await.expect("unlock the template");
        template
    }
}

/// The run's server, or a private one of this process. The static is never dropped; the private server's undertaker
/// ends it with the process.
async fn server_url() -> String {
    static PRIVATE: OnceCell<PrivatePostgres> = OnceCell::const_new();
    if let Some(url) = environment("RAILYARD_TEST_PG") {
        return with_database(&url, "postgres");
    }
    let start = || async { private_options().start().await.unwrap_or_else(|error| panic!("no database: {error}")) };
    PRIVATE.get_or_init(start).await.url("postgres")
}

#[expect(clippy::disallowed_methods, reason = "the test driver's connection is driven until its client is dropped")]
async fn connect(url: &str) -> Client {
    let (client, connection) = match tokio_postgres::connect(url, NoTls).await {
        Ok(pair) => pair,
        Err(error) => panic!("connect to {url}: {error:?}"),
    };
    tokio::spawn(connection);
    client
}

#[expect(clippy::disallowed_methods, reason = "switches for tests, not configuration of Railyard")]
fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// The same server, another database: replaces the path of the URL and keeps its parameters.
fn with_database(url: &str, database: &str) -> String {
    let (address, parameters) = url.split_once('?').map_or((url, None), |(a, p)| (a, Some(p)));
    let (scheme, rest) = address.split_once("://").expect("a URL has a scheme");
    let authority = rest.split('/').next().unwrap_or_default();
    let parameters = parameters.map(|text| format!("?{text}")).unwrap_or_default();
    format!("{scheme}://{authority}/{database}{parameters}")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn the_database_of_a_url_is_replaced() {
        assert_eq!(with_database("postgres://a@h:1/x?y=z", "b"), "postgres://a@h:1/b?y=z");
        assert_eq!(with_database("postgres://a@h:1", "b"), "postgres://a@h:1/b");
    }

    #[tokio::test]
    async fn a_database_is_fresh_and_gone_afterwards() {
        let one = TestDb::create().await;
        let two = TestDb::create().await;
        assert_ne!(one.name(), two.name());
        one.connect().await.batch_execute("create table t (n int)").await.unwrap();
        let name = one.name().to_owned();
        drop(one);
        let left = two.connect().await.query_opt("select 1 from pg_database where datname = $1", &[&name]).await;
        assert!(left.unwrap().is_none());
    }

    #[tokio::test]
    async fn a_template_is_filled_once_and_copied() {
        let fills = &AtomicU32::new(0);
        let name = format!("once {}", std::process::id());
        let name = &name;
        let make = || async move {
            TestDb::from_template(name, |url| async move {
                fills.fetch_add(1, Ordering::SeqCst);
                connect(&url).await.batch_execute("create table t as select 7 as n").await.unwrap();
            })
            .await
        };
        let (one, two, three) = tokio::join!(make(), make(), make());
        assert_eq!(fills.load(Ordering::SeqCst), 1);
        for db in [&one, &two, &three] {
            let n: i32 = db.connect().await.query_one("select n from t", &[]).await.unwrap().get(0);
            assert_eq!(n, 7);
        }
    }

    #[tokio::test]
    async fn an_own_server_comes_back_at_its_address() {
        let own = OwnServer::start(&[("max_connections", "20")]).await;
        let before = own.connect().await;
        own.server().restart_immediate().await.unwrap();
        assert!(before.simple_query("select 1").await.is_err(), "the old connection survived");
        let shown: String = own.connect().await.query_one("show max_connections", &[]).await.unwrap().get(0);
        assert_eq!(shown, "20");
    }
}
