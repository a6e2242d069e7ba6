//! One migrated database, the product's store on it, credentials to sign with, and looks at its tables from outside.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use railyard_core::{CredentialsId, Lane, ParticipantId};
use railyard_rail::{Credentials, Schemes, SigningSecrets};
use railyard_store::credentials::{self, NewCredentials, Scheme};
use railyard_store::crypt::{MasterKey, MasterKeys};
use railyard_store::{Store, StoreConfig, migrate};
use zeroize::Zeroizing;

use crate::client::Client;

/// The name of the master key, in the node's configuration and beside what it sealed.
pub(crate) const MASTER_KEY_ID: &str = "bench";
/// For the bench's own use of the store: a load in big batches may take longer than the product allows itself.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(120);
/// Lanes that are tidied in one transaction.
const TIDY_BATCH: usize = 1000;

/// One database.
pub(crate) struct Database {
    pub(crate) url: String,
    pub(crate) store: Store,
    pub(crate) sql: Client,
    pub(crate) credentials_id: CredentialsId,
    /// What is stored under that id.
    pub(crate) credentials: Credentials,
    pub(crate) master_key: Zeroizing<String>,
    /// Whether the server counts statements.
    pub(crate) counts_statements: bool,
}

impl Database {
    pub(super) async fn prepare(url: &str) -> anyhow::Result<Self> {
        migrate::migrate(url).await?;
        let sql = Client::connect(url).await?;
        // Without the library there are no counters of statements, and the profile goes without them.
        drop(sql.run("CREATE EXTENSION IF NOT EXISTS pg_stat_statements").await);
        let counts_statements = sql.run("SELECT pg_stat_statements_reset()").await.is_ok();
        // What is compared with a bare commit of the same server.
        sql.run("CREATE TABLE bare_commit (n bigint)").await?;
        let store = Store::new(StoreConfig { statement_timeout: STATEMENT_TIMEOUT, ..StoreConfig::at(url) })?;
        let master_key = MasterKey::generate()?;
        let keys = MasterKeys::new(vec![MasterKey::read(MASTER_KEY_ID, &master_key)?])?;
        let token = Zeroizing::new(hex::encode(rand::random::<[u8; 32]>()));
        let secret = Zeroizing::new(hex::encode(rand::random::<[u8; 32]>()));
        let new = NewCredentials {
            name: Some("bench".to_owned()),
            bearer_token: token.clone(),
            signing_secret: secret.clone(),
            schemes: Scheme::ALL.to_vec(),
        };
        let row = credentials::create(&store, &keys, &new, "bench").await?;
        let secrets = SigningSecrets { current: secret, next: None };
        let credentials = Credentials::new(Some(token), secrets, Schemes::default())?;
        let credentials_id = row.credentials_id;
        Ok(Self { url: url.to_owned(), store, sql, credentials_id, credentials, master_key, counts_statements })
    }

    /// The server's clock.
    pub(crate) async fn now(&self) -> anyhow::Result<Timestamp> {
        self.sql.one("SELECT clock_timestamp()").await
    }

    /// Writes dirty pages out, so that a round does not pay for the one before it.
    pub(crate) async fn checkpoint(&self) -> anyhow::Result<()> {
        self.sql.run("CHECKPOINT").await
    }

    /// As after a quiet minute: no hints of groups that have nothing, fresh statistics, no dead rows, nothing to write.
    pub(crate) async fn rest(&self) -> anyhow::Result<()> {
        self.tidy().await?;
        self.sql.run("VACUUM ANALYZE").await?;
        self.checkpoint().await
    }

    /// Puts right what a node that was stopped, or transactions without a node, left: the node's own step after a
    /// group's last message. Without it, the next round would first look through the groups of the one before it.
    async fn tidy(&self) -> anyhow::Result<()> {
        let sql = "SELECT participant_id FROM ready_group r
                   WHERE NOT EXISTS (SELECT 1 FROM payment_outbox_pending p WHERE p.participant_id = r.participant_id)";
        let idle = self.sql.rows(sql, &[]).await?;
        let lanes = idle.iter().map(|row| Ok(Lane::Group(ParticipantId::new(row.try_get::<_, String>(0)?))));
        for some in lanes.collect::<anyhow::Result<Vec<Lane>>>()?.chunks(TIDY_BATCH) {
            self.store.tidy(some).await?;
        }
        Ok(())
    }

    /// The next number of the groups of this name, which all have equally many.
    pub(crate) async fn next_sequences(&self, prefix: &str) -> anyhow::Result<u64> {
        let sql = "SELECT coalesce(max(next_sequence_id), 1) FROM participant_outbox_sequences
                   WHERE starts_with(participant_id, $1)";
        Ok(u64::try_from(self.sql.value::<i64>(sql, &[&prefix]).await?)?)
    }

    /// Messages that were delivered.
    pub(crate) async fn completed(&self) -> anyhow::Result<i64> {
        self.sql.one("SELECT count(*) FROM dispatch_job_outcome WHERE status = 'COMPLETED'").await
    }

    /// Whether a call to this endpoint has no outcome yet.
    pub(crate) async fn unsettled(&self, endpoint: &str) -> anyhow::Result<bool> {
        self.sql.value("SELECT EXISTS (SELECT 1 FROM in_flight WHERE endpoint = $1)", &[&endpoint]).await
    }

    /// Whether a node owns every partition.
    pub(crate) async fn owned(&self) -> anyhow::Result<bool> {
        let sql = "SELECT count(owner) = count(*) FROM partition_lease WHERE EXISTS (SELECT 1 FROM node)";
        self.sql.one(sql).await
    }

    /// Whether so many nodes own all partitions between them, and none has moved for so long.
    pub(crate) async fn shared(&self, nodes: u32, quiet: Duration) -> anyhow::Result<bool> {
        let sql = "SELECT count(owner) = count(*) AND count(DISTINCT owner) = $1
                     AND max(moved_at) < clock_timestamp() - $2 * interval '1 second' FROM partition_lease";
        self.sql.value(sql, &[&i64::from(nodes), &quiet.as_secs_f64()]).await
    }

    /// How many partitions the node with the fewest has.
    pub(crate) async fn smallest_share(&self) -> anyhow::Result<i64> {
        let sql = "SELECT min(share) FROM (SELECT count(*) AS share FROM partition_lease GROUP BY owner) shares";
        self.sql.one(sql).await
    }

    /// Milliseconds of each of `count` bare commits: one small row, one connection, the disk waited for.
    pub(crate) async fn bare_commits_ms(&self, count: u64) -> anyhow::Result<Vec<f64>> {
        let insert = self.sql.prepare("INSERT INTO bare_commit VALUES (1)").await?;
        let mut times = Vec::new();
        for _ in 0..count {
            let started = Instant::now();
            self.sql.execute(&insert, &[]).await?;
            times.push(started.elapsed().as_secs_f64() * 1000.0);
        }
        Ok(times)
    }

    /// Bytes of a table and of its indexes.
    pub(crate) async fn sizes(&self, table: &str) -> anyhow::Result<(i64, i64)> {
        let sql = "SELECT pg_table_size($1::text::regclass) AS rows, pg_indexes_size($1::text::regclass) AS indexes";
        let rows = self.sql.rows(sql, &[&table]).await?;
        let row = rows.first().ok_or_else(|| anyhow::anyhow!("no size of {table}"))?;
        Ok((row.try_get(0)?, row.try_get(1)?))
    }
}
