//! Webhook jobs, enqueued as the API does it, and what became of them.

use bytes::Bytes;
use railyard_core::OutboxId;
use railyard_core::backoff::RetryStrategy;
use railyard_core::job::NewJob;
use railyard_core::rail::RailKind;
use railyard_store::StoreError;
use railyard_store::jobs::{self, AttemptRow, JobRow, JobStatus};
use railyard_testkit::eventually_some;

use crate::world::{SOON, World};

impl World {
    /// A webhook job that is retried at once and has five seconds a call. Not stored yet.
    pub(crate) fn draft(&self, url: &str, payload: impl Into<Bytes>) -> NewJob {
        let mut job = NewJob::new("orders", "order.created", RailKind::Webhook, url, payload.into());
        job.credentials_id = Some(self.credentials);
        job.retry = RetryStrategy::Immediate;
        job.timeout_s = 5;
        job
    }

    /// Enqueues such a job after `change`. Returns its id.
    pub(crate) async fn hook(
        &self,
        url: &str,
        payload: impl Into<Bytes>,
        change: impl FnOnce(&mut NewJob),
    ) -> OutboxId {
        let mut job = self.draft(url, payload);
        change(&mut job);
        self.enqueue(&[job]).await.unwrap()[0]
    }

    /// Enqueues jobs in one transaction and wakes the nodes, as the API does.
    pub(crate) async fn enqueue(&self, drafts: &[NewJob]) -> Result<Vec<OutboxId>, StoreError> {
        let made = jobs::create(&self.store, drafts).await?;
        jobs::notify(&self.store).await?;
        Ok(made.iter().map(|one| one.outbox_id).collect())
    }

    /// Where a job stands.
    pub(crate) async fn job(&self, id: OutboxId) -> JobRow {
        jobs::get(&self.store, id).await.unwrap().unwrap()
    }

    /// Its attempts, in order.
    pub(crate) async fn attempts(&self, id: OutboxId) -> Vec<AttemptRow> {
        jobs::attempts(&self.store, id, 0).await.unwrap()
    }

    /// Its attempts as `STATE` or `STATE/ERROR_CODE`.
    pub(crate) async fn history(&self, id: OutboxId) -> Vec<String> {
        let told = |row: AttemptRow| match row.error_code {
            Some(code) => format!("{}/{code}", row.state.as_str()),
            None => row.state.as_str().to_owned(),
        };
        self.attempts(id).await.into_iter().map(told).collect()
    }

    /// Waits until a job has ended.
    pub(crate) async fn ended(&self, id: OutboxId) -> JobRow {
        eventually_some(SOON, "the job's end", || async {
            let row = self.job(id).await;
            matches!(row.status, JobStatus::Ended(_)).then_some(row)
        })
        .await
    }
}
