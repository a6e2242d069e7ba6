//! After a lost COMMIT: which attempts are in flight? Asked on a new connection, before anything is called.

use std::time::Duration;

use railyard_core::AttemptId;
use tokio_postgres::error::SqlState;
use uuid::Uuid;

use super::{Done, claim, content};
use crate::connect::Store;
use crate::error::StoreError;

const IN_FLIGHT: &str = "
SELECT attempt_id, outbox_id, participant_id, sequence_id, partition_id, epoch, attempt_no, failures, max_attempts,
  mode, rail_type, endpoint, timeout_ms, claimed_at, known_success
FROM in_flight WHERE attempt_id = ANY ($1)";

/// The fate of a transaction whose COMMIT was not answered.
enum Resolved {
    /// It is still running on the server: ask again.
    InProgress,
    /// It is over. These were begun, the others were not and never will be.
    Over(Done),
}

impl Store {
    /// Looks once.
    ///
    /// `pg_xact_status` only says whether to wait: after a crash of the server, transaction numbers can come again,
    /// so what was committed is told by the attempt ids alone.
    async fn resolve(&self, transaction: Option<&str>, attempts: &[AttemptId]) -> Result<Resolved, StoreError> {
        let conn = self.work().await?;
        if let Some(transaction) = transaction {
            // A number that the server has not given out yet (22023), or has forgotten (null), is not running.
            let status = conn.query_one("SELECT pg_xact_status($1::text::xid8)", &[&transaction]).await;
            match status {
                Ok(row) => {
                    let status: Option<String> = row.try_get(0)?;
                    if status.as_deref() == Some("in progress") {
                        conn.ok();
                        return Ok(Resolved::InProgress);
                    }
                }
                Err(error) if error.code() == Some(&SqlState::INVALID_PARAMETER_VALUE) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let ids: Vec<Uuid> = attempts.iter().map(|attempt| attempt.0).collect();
        let statement = conn.prepare_cached(IN_FLIGHT).await?;
        let mut done = Done::default();
        let claims = claim::read(&conn.query(&statement, &[&ids]).await?, &mut done)?;
        content::load(&conn, claims, Vec::new(), &mut done).await?;
        conn.ok();
        Ok(Resolved::Over(done))
    }

    /// Waits until a lost COMMIT has a fate, through outages; `give_up` ends the wait. `transaction` is what
    /// [`super::Failed`] carried.
    ///
    /// # Errors
    /// The last error, once `give_up` has passed.
    pub async fn resolve_until(
        &self,
        transaction: Option<&str>,
        attempts: &[AttemptId],
        give_up: Duration,
    ) -> Result<Done, StoreError> {
        let end = tokio::time::Instant::now() + give_up;
        loop {
            let error = match self.resolve(transaction, attempts).await {
                Ok(Resolved::Over(done)) => return Ok(done),
                Ok(Resolved::InProgress) => StoreError::Busy { detail: "the transaction is still running".to_owned() },
                Err(error) if error.is_transient() => error,
                Err(error) => return Err(error),
            };
            if tokio::time::Instant::now() >= end {
                return Err(error);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}
