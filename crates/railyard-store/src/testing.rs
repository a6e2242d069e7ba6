//! For this crate's tests: a migrated database and a few rows put there by hand.

use std::time::Duration;

use bytes::Bytes;
use railyard_core::job::NewJob;
use railyard_core::rail::RailKind;
use railyard_core::{CredentialsId, OutboxId, ParticipantId};
use railyard_testkit::{TestDb, eventually};
use tokio_postgres::Client;
use zeroize::Zeroizing;

use crate::credentials::{self, NewCredentials, Scheme};
use crate::crypt::{MasterKey, MasterKeys};
use crate::jobs::{self, Created};
use crate::{Store, StoreConfig, migrate};

/// A database of its own, the store on it, and a superuser beside it.
pub(crate) struct TestStore {
    pub(crate) store: Store,
    pub(crate) sql: Client,
    pub(crate) keys: MasterKeys,
    pub(crate) credentials: CredentialsId,
    // Dropped last: it drops the database.
    pub(crate) db: TestDb,
}

/// A begin of message `$1`, for tests that hold one open.
pub(crate) const BEGIN: &str = "
    WITH p AS (DELETE FROM payment_outbox_pending WHERE outbox_id = $1 RETURNING *)
    INSERT INTO in_flight (attempt_id, outbox_id, participant_id, sequence_id, partition_id, epoch, node_id,
      rail_type, endpoint, mode, on_unknown, max_attempts, timeout_ms, attempt_no, failures, zombies, claimed_at,
      call_deadline, created_at)
    SELECT gen_random_uuid(), outbox_id, participant_id, sequence_id, partition_id, 1, gen_random_uuid(),
      rail_type, endpoint, mode, 'hold', max_attempts, timeout_ms, attempt_count + 1, failures, zombies,
      clock_timestamp(), clock_timestamp() + interval '35 seconds', created_at FROM p";

pub(crate) fn keys() -> MasterKeys {
    MasterKeys::new(vec![MasterKey::read("test", &"42".repeat(32)).unwrap()]).unwrap()
}

pub(crate) fn new_credentials() -> NewCredentials {
    NewCredentials {
        name: Some("test".to_owned()),
        bearer_token: Zeroizing::new("sk_test_very_private".to_owned()),
        signing_secret: Zeroizing::new("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".to_owned()),
        schemes: Scheme::ALL.to_vec(),
    }
}

async fn database() -> TestDb {
    TestDb::from_template(&migrate::fingerprint(), |url| async move {
        migrate::migrate(&url).await.unwrap();
    })
    .await
}

impl TestStore {
    pub(crate) async fn new() -> Self {
        let db = database().await;
        let store = Store::new(StoreConfig::at(db.url())).unwrap();
        let keys = keys();
        let made = credentials::create(&store, &keys, &new_credentials(), "test").await.unwrap();
        let sql = db.connect().await;
        Self { store, sql, keys, credentials: made.credentials_id, db }
    }

    /// A webhook job.
    pub(crate) fn job(&self, group: Option<&str>) -> NewJob {
        let payload = Bytes::from_static(b"{\"a\": 1}");
        let mut job = NewJob::new("shop", "order.created", RailKind::Webhook, "https://example.com/hook", payload);
        job.credentials_id = Some(self.credentials);
        job.group = group.map(ParticipantId::new);
        job
    }

    pub(crate) async fn create(&self, job: &NewJob) -> Created {
        jobs::create(&self.store, std::slice::from_ref(job)).await.unwrap()[0]
    }

    /// Until so many in this database wait for a lock.
    pub(crate) async fn waiting(&self, count: i64) {
        let waiting = "SELECT count(*) FROM pg_stat_activity
                       WHERE datname = current_database() AND wait_event_type = 'Lock'";
        let enough = || async { self.one::<i64>(waiting).await >= count };
        eventually(Duration::from_secs(20), "enough wait for a lock", enough).await;
    }

    /// Puts a waiting message in flight, as begin does.
    pub(crate) async fn begin(&self, id: OutboxId) {
        assert_eq!(self.sql.execute(BEGIN, &[&id.0]).await.unwrap(), 1);
    }

    /// Writes an attempt's end and puts the message back, with `failures` spent.
    pub(crate) async fn put_back(&self, id: OutboxId, state: &str, failures: i32) {
        let sql = "
            WITH f AS (DELETE FROM in_flight WHERE outbox_id = $1 RETURNING *),
            a AS (INSERT INTO payment_outbox_attempt_archive (outbox_id, attempt_no, late, attempt_id, state,
                    participant_id, sequence_id, rail_type, epoch, node_id, claimed_at, completed_at, recorded_at,
                    latency_ms, response_code, response_body, error_code, error_message)
                  SELECT outbox_id, attempt_no, false, attempt_id, $2, participant_id, sequence_id, rail_type, epoch,
                    node_id, claimed_at, clock_timestamp(), clock_timestamp(), 12, 503, '\\x6e6fff', 'HTTP_503', 'down'
                  FROM f)
            INSERT INTO payment_outbox_pending (outbox_id, participant_id, sequence_id, partition_id, rail_type, endpoint,
              mode, max_attempts, timeout_ms, attempt_count, failures, zombies, next_attempt_at, created_at)
            SELECT outbox_id, participant_id, sequence_id, partition_id, rail_type, endpoint, mode, max_attempts,
              timeout_ms, attempt_no, $3, zombies, clock_timestamp() + interval '1 minute', created_at FROM f";
        assert_eq!(self.sql.execute(sql, &[&id.0, &state, &failures]).await.unwrap(), 1);
    }

    /// Ends a message in flight, blocking its group if `blocks`.
    pub(crate) async fn finish(&self, id: OutboxId, status: &str, blocks: bool) {
        let sql = "
            WITH f AS (DELETE FROM in_flight WHERE outbox_id = $1 RETURNING *),
            h AS (INSERT INTO group_hold (participant_id, kind, outbox_id, reason, actor)
                  SELECT participant_id, 'blocked', outbox_id, 'failed', 'test' FROM f WHERE $3),
            r AS (UPDATE ready_group g SET due_at = CASE WHEN $3 THEN 'infinity' ELSE g.due_at END FROM f
                  WHERE g.participant_id = f.participant_id)
            INSERT INTO dispatch_job_outcome (outbox_id, status, participant_id, sequence_id, attempt_count, last_error,
              duration_millis, recorded_at)
            SELECT outbox_id, $2, participant_id, sequence_id, attempt_no, nullif('boom', CASE $2 WHEN 'COMPLETED'
              THEN 'boom' END), 7, clock_timestamp() FROM f";
        assert_eq!(self.sql.execute(sql, &[&id.0, &status, &blocks]).await.unwrap(), 1);
    }

    /// One value.
    pub(crate) async fn one<T>(&self, sql: &str) -> T
    where
        T: for<'a> tokio_postgres::types::FromSql<'a>,
    {
        self.sql.query_one(sql, &[]).await.unwrap().get(0)
    }
}
