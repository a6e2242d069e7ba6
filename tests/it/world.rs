//! A node in this process, a receiver, a database: the smallest whole. Tests that kill processes use
//! `railyard_testkit::Sandbox` instead.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use railyard_core::CredentialsId;
use railyard_core::rail::RailKind;
use railyard_node::{Node, NodeOptions};
use railyard_rail::{HttpOptions, RailOptions};
use railyard_store::credentials::{NewCredentials, Scheme};
use railyard_store::crypt::{MasterKey, MasterKeys};
use railyard_store::{Store, StoreConfig};
use railyard_testkit::{FakeRail, TestDb};
use tokio_postgres::Client;
use uuid::Uuid;
use zeroize::Zeroizing;

/// The secret that everything in a test is signed with.
pub(crate) const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
/// And its bearer token.
pub(crate) const TOKEN: &str = "sk_test_4242";
/// How long anything that should happen soon may take on a busy machine.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// A migrated database with one set of credentials.
pub(crate) struct World {
    pub(crate) db: TestDb,
    pub(crate) store: Store,
    pub(crate) keys: Arc<MasterKeys>,
    pub(crate) credentials: CredentialsId,
    pub(crate) sql: Client,
}

impl World {
    /// A fresh copy of a migrated database.
    pub(crate) async fn new() -> Self {
        log();
        let db = database().await;
        let url = db.url().to_owned();
        Self::at(db, &url).await
    }

    async fn at(db: TestDb, url: &str) -> Self {
        let store = Store::new(StoreConfig::at(url)).unwrap();
        let keys = Arc::new(master_keys());
        let credentials = credentials(&store, &keys).await;
        let sql = db.connect().await;
        Self { db, store, keys, credentials, sql }
    }

    /// Starts a node with both rails, loopback allowed, and short times.
    pub(crate) async fn node(&self) -> Node {
        self.node_with(|_| {}).await
    }

    /// The same with other options.
    pub(crate) async fn node_with(&self, change: impl FnOnce(&mut NodeOptions)) -> Node {
        self.node_on(self.store.clone(), change).await
    }

    /// The same on another way to the database.
    pub(crate) async fn node_on(&self, store: Store, change: impl FnOnce(&mut NodeOptions)) -> Node {
        let mut options = options();
        change(&mut options);
        Node::start(options, store, Arc::clone(&self.keys), &prometheus::Registry::new()).await.unwrap()
    }

    /// Enqueues a payment as a SQL producer does, with a valid payload. Returns its id.
    pub(crate) async fn pay(&self, rail: &FakeRail, group: &str, key: &str) -> Uuid {
        pay(&self.sql, rail, self.credentials, group, key).await
    }

    /// One value of one row.
    pub(crate) async fn one<T>(&self, sql: &str) -> T
    where
        T: for<'a> tokio_postgres::types::FromSql<'a>,
    {
        self.sql.query_one(sql, &[]).await.unwrap().get(0)
    }
}

/// A fresh copy of a migrated database and nothing in it.
pub(crate) async fn database() -> TestDb {
    TestDb::from_template(&railyard_store::migrate::fingerprint(), |url| async move {
        railyard_store::migrate::migrate(&url).await.unwrap();
    })
    .await
}

/// What the node says is part of a failed test's output.
fn log() {
    let filter = tracing_subscriber::EnvFilter::new("info,tokio_postgres=warn");
    // A second world in one test finds it set already.
    drop(tracing_subscriber::fmt().with_env_filter(filter).with_test_writer().try_init());
}

/// Options with short times; what a test is about it sets itself.
pub(crate) fn options() -> NodeOptions {
    let rails = BTreeMap::from([
        ("webhook".to_owned(), RailOptions::new(RailKind::Webhook)),
        ("payment_webhook".to_owned(), RailOptions::new(RailKind::Payment)),
    ]);
    let mut options = NodeOptions::named("test", rails);
    options.lease = Duration::from_secs(3);
    options.renewal = Duration::from_millis(500);
    options.slack = Duration::from_secs(1);
    options.reaper_interval = Duration::from_millis(200);
    options.http = HttpOptions { allow_networks: vec!["127.0.0.0/8".parse().unwrap()], ..HttpOptions::default() };
    options
}

/// The key that seals every test's credentials.
pub(crate) fn master_keys() -> MasterKeys {
    MasterKeys::new(vec![MasterKey::read("test", &"5a".repeat(32)).unwrap()]).unwrap()
}

/// Registers [`SECRET`] and [`TOKEN`].
pub(crate) async fn credentials(store: &Store, keys: &MasterKeys) -> CredentialsId {
    let new = NewCredentials {
        name: Some("test".to_owned()),
        bearer_token: Zeroizing::new(TOKEN.to_owned()),
        signing_secret: Zeroizing::new(SECRET.to_owned()),
        schemes: vec![Scheme::Flowcatalyst, Scheme::Standard],
    };
    railyard_store::credentials::create(store, keys, &new, "test").await.unwrap().credentials_id
}

/// A payment by plain SQL, with a payload that passes validation.
pub(crate) async fn pay(sql: &Client, rail: &FakeRail, credentials: CredentialsId, group: &str, key: &str) -> Uuid {
    let payload = format!(r#"{{"amount":"1.10","currency":"EUR","destination":"DE02","key":"{key}"}}"#);
    sql.query_one(
        "SELECT enqueue_payment_outbox($1, $2, $1, 'payment_webhook', $3, $4, $5)",
        &[&key, &group, &payload.as_bytes(), &rail.url(), &credentials.0],
    )
    .await
    .unwrap()
    .get(0)
}
