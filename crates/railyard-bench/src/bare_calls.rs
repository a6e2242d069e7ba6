//! The ceiling of HTTP: the node's own client with the same signed requests and the same receiver, and nothing else.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use jiff::Timestamp;
use railyard_core::job::NewJob;
use railyard_core::rail::RailKind;
use railyard_core::{AttemptId, CallOutcome, Epoch, Lane, Message, OutboxId, ParticipantId, PartitionId, SequenceId};
use railyard_rail::{Call, Client, Credentials, HttpOptions, RailOptions};
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::database::Database;
use crate::stand::Stand;
use crate::statistics::ratio;

/// A client and what it sends.
pub(crate) struct BareCalls {
    client: Client,
    credentials: Credentials,
    job: NewJob,
    rail: RailOptions,
    now: Timestamp,
    concurrency: u32,
}

impl BareCalls {
    /// As the node would call for `job`.
    pub(crate) async fn prepare(stand: &Stand, database: &Database, job: &NewJob) -> anyhow::Result<Arc<Self>> {
        let concurrency = stand.common.concurrency;
        let options = HttpOptions {
            allow_networks: vec!["127.0.0.0/8".parse()?],
            endpoint_concurrency: concurrency,
            ..HttpOptions::default()
        };
        Ok(Arc::new(Self {
            client: Client::new(&options)?,
            credentials: database.credentials.clone(),
            job: job.clone(),
            rail: RailOptions::new(RailKind::Webhook),
            now: database.now().await?,
            concurrency,
        }))
    }

    /// Calls per second, of `calls` calls, as many at once as the options say.
    pub(crate) async fn per_second(self: &Arc<Self>, calls: u64) -> anyhow::Result<f64> {
        let left = Arc::new(AtomicU64::new(calls));
        let mut callers = JoinSet::new();
        let started = Instant::now();
        for _ in 0..self.concurrency {
            let (bare, left) = (Arc::clone(self), Arc::clone(&left));
            callers.spawn(async move {
                while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1)).is_ok() {
                    bare.call().await?;
                }
                Ok::<(), anyhow::Error>(())
            });
        }
        while let Some(ended) = callers.join_next().await {
            ended.context("a caller")??;
        }
        Ok(ratio(calls as f64, started.elapsed().as_secs_f64()))
    }

    /// Milliseconds of each of `calls` calls, one after the other.
    pub(crate) async fn round_trips_ms(&self, calls: u64) -> anyhow::Result<Vec<f64>> {
        let mut times = Vec::new();
        for _ in 0..calls {
            let started = Instant::now();
            self.call().await?;
            times.push(started.elapsed().as_secs_f64() * 1000.0);
        }
        Ok(times)
    }

    async fn call(&self) -> anyhow::Result<()> {
        let message = self.message();
        let call = Call {
            message: &message,
            rail: &self.rail,
            credentials: &self.credentials,
            may_write: Arc::new(|| Ok(())),
            permit: None,
            now: self.now,
        };
        let outcome = self.client.call(call).await.outcome;
        anyhow::ensure!(matches!(outcome, CallOutcome::Delivered(_)), "a bare call failed: {outcome:?}");
        Ok(())
    }

    /// As begin would give it.
    fn message(&self) -> Message {
        let id = OutboxId(Uuid::new_v4());
        let group = ParticipantId::new("bare");
        Message {
            attempt_id: AttemptId(Uuid::new_v4()),
            outbox_id: id,
            lane: Lane::Group(group.clone()),
            participant_id: Some(group),
            sequence_id: Some(SequenceId(1)),
            partition: PartitionId(0),
            epoch: Epoch(1),
            attempt_no: 1,
            failures: 0,
            max_attempts: self.job.max_attempts,
            mode: self.job.mode,
            source: self.job.source.clone(),
            kind: self.job.kind.clone(),
            rail_type: self.job.rail_type.clone(),
            endpoint: self.job.endpoint().unwrap_or_default(),
            target_url: self.job.target_url.clone(),
            headers: Vec::new(),
            payload: self.job.payload.clone(),
            payload_content_type: self.job.payload_content_type.clone(),
            credentials_id: self.job.credentials_id,
            timeout: Duration::from_secs(self.job.timeout_s.into()),
            retry: self.job.retry,
            rail_key: id,
            claimed_at: self.now,
            expires_at: None,
            traceparent: None,
            known_success: false,
        }
    }
}
