//! Pools and connections. One pool for the node's work, one for the API; LISTEN and the lease have their own.

use std::sync::Arc;
use std::time::Duration;

use deadpool::managed::QueueMode;
use deadpool_postgres::{Manager, ManagerConfig, Object, Pool, RecyclingMethod};
use tokio::task::JoinHandle;
use tokio_postgres::NoTls;

use crate::error::StoreError;
use crate::rate::ConfigCache;

/// The role that every connection of the product runs as, whatever it logs in as.
pub const RUNTIME_ROLE: &str = "railyard_runtime";

/// How to reach the database.
#[derive(Clone, Debug)]
pub struct StoreConfig {
    /// `postgres://user@host/database`.
    pub url: String,
    /// Connections for begin, settle and discovery.
    pub work_connections: usize,
    /// Connections for the API.
    pub api_connections: usize,
    /// How long a caller waits for a connection, and a connection for the server.
    pub acquire_timeout: Duration,
    /// Longest statement.
    pub statement_timeout: Duration,
    /// Longest wait for a lock.
    pub lock_timeout: Duration,
    /// An open transaction whose client is silent is ended after this: a quarter of the lease, since a frozen owner's
    /// open transaction blocks its takeover that long.
    pub idle_in_transaction_timeout: Duration,
}

impl StoreConfig {
    /// Defaults for a database at `url`: a lease of 15 s.
    #[must_use]
    pub fn at(url: &str) -> Self {
        Self {
            url: url.to_owned(),
            work_connections: 6,
            api_connections: 8,
            acquire_timeout: Duration::from_secs(5),
            statement_timeout: Duration::from_secs(10),
            lock_timeout: Duration::from_secs(2),
            idle_in_transaction_timeout: Duration::from_millis(3750),
        }
    }
}

/// The database, as every part of a node sees it. Cheap to clone.
#[derive(Clone)]
pub struct Store {
    shared: Arc<Shared>,
}

struct Shared {
    config: StoreConfig,
    work: Pool,
    api: Pool,
    rates: ConfigCache,
}

impl Store {
    /// Prepares the pools; connects nowhere yet, so it succeeds while the database is away.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] if the URL cannot be read.
    pub fn new(config: StoreConfig) -> Result<Self, StoreError> {
        let work = pool(&config, "railyard work", config.work_connections, Use::Work)?;
        let api = pool(&config, "railyard api", config.api_connections, Use::Api)?;
        Ok(Self { shared: Arc::new(Shared { config, work, api, rates: ConfigCache::default() }) })
    }

    /// The configuration it was made with.
    #[must_use]
    pub fn config(&self) -> &StoreConfig {
        &self.shared.config
    }

    /// The rate configurations that this process remembers, and what it has counted.
    #[must_use]
    pub fn rates(&self) -> &ConfigCache {
        &self.shared.rates
    }

    /// A connection for the node's work.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] if none can be had in time.
    pub async fn work(&self) -> Result<Conn, StoreError> {
        Conn::get(&self.shared.work).await
    }

    /// A connection for the API and the admin pages: load here never starves the node's work.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] if none can be had in time.
    pub async fn api(&self) -> Result<Conn, StoreError> {
        Conn::get(&self.shared.api).await
    }

    /// Whether the database answers the API.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] if it does not.
    pub async fn ping(&self) -> Result<(), StoreError> {
        self.api().await?.batch_execute("SELECT 1").await?;
        Ok(())
    }

    /// A connection of its own, outside the pools: for the lease.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`].
    pub async fn dedicated(&self, name: &str) -> Result<Dedicated, StoreError> {
        Dedicated::open(&self.client_config(name)?, self.shared.config.acquire_timeout).await
    }

    pub(crate) fn client_config(&self, name: &str) -> Result<tokio_postgres::Config, StoreError> {
        client_config(&self.shared.config, name, Use::Dedicated)
    }
}

/// A connection outside the pools.
pub struct Dedicated {
    /// Its client.
    pub client: tokio_postgres::Client,
    task: JoinHandle<()>,
}

impl Dedicated {
    /// Connects. The connection's task ends with its owner.
    #[expect(clippy::disallowed_methods, reason = "owned by the value that is returned, and aborted with it")]
    pub(crate) async fn open(config: &tokio_postgres::Config, timeout: Duration) -> Result<Self, StoreError> {
        let (client, connection) = tokio::time::timeout(timeout, config.connect(NoTls))
            .await
            .map_err(|_| StoreError::Unavailable { detail: "no answer to a connection attempt".to_owned() })??;
        let task = tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "dedicated connection ended");
            }
        });
        Ok(Self { client, task })
    }
}

impl Drop for Dedicated {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A pooled connection that goes back to the pool only after [`Conn::ok`]. Everything else, an error or a caller that
/// was cancelled in the middle, closes it: nobody ever gets a connection with somebody's open transaction.
pub struct Conn {
    object: Option<Object>,
    ok: bool,
}

impl Conn {
    async fn get(pool: &Pool) -> Result<Self, StoreError> {
        Ok(Self { object: Some(pool.get().await?), ok: false })
    }

    /// Gives it back in good order: no transaction is open and every answer was read.
    pub fn ok(mut self) {
        self.ok = true;
    }
}

impl std::ops::Deref for Conn {
    type Target = deadpool_postgres::ClientWrapper;

    fn deref(&self) -> &Self::Target {
        self.object.as_ref().expect("the object is taken in drop alone")
    }
}

impl std::ops::DerefMut for Conn {
    fn deref_mut(&mut self) -> &mut Self::Target {
        self.object.as_mut().expect("the object is taken in drop alone")
    }
}

impl Drop for Conn {
    fn drop(&mut self) {
        if let Some(object) = self.object.take()
            && !self.ok
        {
            drop(Object::take(object));
        }
    }
}

fn pool(config: &StoreConfig, name: &str, size: usize, for_what: Use) -> Result<Pool, StoreError> {
    let manager = Manager::from_config(
        client_config(config, name, for_what)?,
        NoTls,
        ManagerConfig { recycling_method: RecyclingMethod::Fast },
    );
    Pool::builder(manager)
        .max_size(size)
        // The one used last: its server process has the statements' plans and tables in its caches.
        .queue_mode(QueueMode::Lifo)
        .runtime(deadpool_postgres::Runtime::Tokio1)
        .wait_timeout(Some(config.acquire_timeout))
        .create_timeout(Some(config.acquire_timeout))
        .recycle_timeout(Some(config.acquire_timeout))
        .build()
        .map_err(|error| StoreError::Unavailable { detail: error.to_string() })
}

/// What a connection is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    Work,
    Api,
    Dedicated,
}

fn client_config(config: &StoreConfig, name: &str, for_what: Use) -> Result<tokio_postgres::Config, StoreError> {
    let mut client: tokio_postgres::Config = config.url.parse().map_err(|error: tokio_postgres::Error| {
        StoreError::Invalid { field: "database.url".to_owned(), detail: error.to_string(), ordinal: 1 }
    })?;
    let lock_timeout = match for_what {
        Use::Api => config.lock_timeout.min(crate::transaction::LOCK_TIMEOUT),
        Use::Work | Use::Dedicated => config.lock_timeout,
    };
    // No JIT: over a month of partitions the planner thinks every look is dear, and compiles it for longer than it runs.
    let mut options = format!(
        "-c role={RUNTIME_ROLE} -c timezone=UTC -c jit=off -c statement_timeout={} -c lock_timeout={} \
         -c idle_in_transaction_session_timeout={}",
        config.statement_timeout.as_millis(),
        lock_timeout.as_millis(),
        config.idle_in_transaction_timeout.as_millis()
    );
    if for_what == Use::Api {
        // The API wakes owners itself, once for all that was committed meanwhile: a NOTIFY in each transaction would
        // make commits queue behind each other.
        options.push_str(" -c railyard.notify=off");
    }
    if for_what == Use::Work {
        // To plan begin and settle takes as long as to run them, so each connection plans them once, whatever the
        // tables hold at that moment. A plan made while a hot table was empty would read it from end to end ever
        // after; one made without statistics would take a bitmap of everything due for cheaper than the first few rows
        // of the index. No statement of the work pool is ever well served by either.
        options.push_str(" -c plan_cache_mode=force_generic_plan -c enable_bitmapscan=off -c enable_seqscan=off");
    }
    if let Some(given) = client.get_options() {
        options = format!("{given} {options}");
    }
    client
        .options(options)
        .application_name(name)
        .connect_timeout(config.acquire_timeout)
        .tcp_user_timeout(config.statement_timeout)
        .keepalives_idle(Duration::from_secs(5));
    Ok(client)
}
