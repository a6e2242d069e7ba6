//! Jobs as the parameters of `enqueue_outbox` and `enqueue_one`: one place that knows the order of an item's fields.

use std::collections::BTreeMap;

use jiff::Timestamp;
use railyard_core::ParticipantId;
use railyard_core::job::NewJob;
use serde_json::Value;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use crate::error::StoreError;

/// The fields of an item, in order.
pub(super) type Fields<'a> = [&'a (dyn ToSql + Sync); 21];

/// The jobs, turned by ninety degrees.
#[derive(Default)]
pub(super) struct Columns<'a> {
    source: Vec<&'a str>,
    kind: Vec<&'a str>,
    external_id: Vec<Option<&'a str>>,
    group: Vec<Option<&'a str>>,
    mode: Vec<&'static str>,
    rail_type: Vec<&'a str>,
    pool: Vec<Option<&'a str>>,
    target_url: Vec<&'a str>,
    payload: Vec<&'a [u8]>,
    content_type: Vec<&'a str>,
    credentials_id: Vec<Option<Uuid>>,
    max_attempts: Vec<i32>,
    retry: Vec<&'static str>,
    timeout_ms: Vec<i32>,
    headers: Vec<Option<Value>>,
    metadata: Vec<Option<Value>>,
    scheduled_for: Vec<Option<Timestamp>>,
    expires_at: Vec<Option<Timestamp>>,
    instruction_id: Vec<Option<&'a str>>,
    idempotency_key: Vec<Option<&'a str>>,
    traceparent: Vec<Option<&'a str>>,
}

impl<'a> Columns<'a> {
    pub(super) fn of(jobs: impl IntoIterator<Item = &'a NewJob>) -> Result<Self, StoreError> {
        let mut columns = Self::default();
        for (job, ordinal) in jobs.into_iter().zip(1_u32..) {
            columns.push(job, ordinal)?;
        }
        Ok(columns)
    }

    fn push(&mut self, job: &'a NewJob, ordinal: u32) -> Result<(), StoreError> {
        let number = |field: &str, value: u32| {
            i32::try_from(value).map_err(|_| StoreError::Invalid {
                field: field.to_owned(),
                detail: format!("{value} is too large"),
                ordinal,
            })
        };
        self.source.push(&job.source);
        self.kind.push(&job.kind);
        self.external_id.push(job.external_id.as_deref());
        self.group.push(job.group.as_ref().map(ParticipantId::as_str));
        self.mode.push(job.mode.as_str());
        self.rail_type.push(&job.rail_type);
        self.pool.push(job.pool.as_deref());
        self.target_url.push(&job.target_url);
        self.payload.push(&job.payload);
        self.content_type.push(&job.payload_content_type);
        self.credentials_id.push(job.credentials_id.map(|id| id.0));
        self.max_attempts.push(number("max_attempts", job.max_attempts)?);
        self.retry.push(job.retry.as_str());
        self.timeout_ms.push(number("timeout_ms", job.timeout_s.saturating_mul(1000))?);
        self.headers.push(object(job.headers.iter().map(|(name, value)| (name, value))));
        self.metadata.push(object(&job.metadata));
        self.scheduled_for.push(job.scheduled_for);
        self.expires_at.push(job.expires_at);
        self.instruction_id.push(job.instruction_id.as_deref());
        self.idempotency_key.push(job.idempotency_key.as_deref());
        self.traceparent.push(job.traceparent.as_deref());
        Ok(())
    }

    /// One array a field.
    pub(super) fn many(&self) -> Fields<'_> {
        [
            &self.source,
            &self.kind,
            &self.external_id,
            &self.group,
            &self.mode,
            &self.rail_type,
            &self.pool,
            &self.target_url,
            &self.payload,
            &self.content_type,
            &self.credentials_id,
            &self.max_attempts,
            &self.retry,
            &self.timeout_ms,
            &self.headers,
            &self.metadata,
            &self.scheduled_for,
            &self.expires_at,
            &self.instruction_id,
            &self.idempotency_key,
            &self.traceparent,
        ]
    }

    /// The fields of the first job, each by itself; none if there is no job.
    pub(super) fn one(&self) -> Option<Fields<'_>> {
        Some([
            self.source.first()?,
            self.kind.first()?,
            self.external_id.first()?,
            self.group.first()?,
            self.mode.first()?,
            self.rail_type.first()?,
            self.pool.first()?,
            self.target_url.first()?,
            self.payload.first()?,
            self.content_type.first()?,
            self.credentials_id.first()?,
            self.max_attempts.first()?,
            self.retry.first()?,
            self.timeout_ms.first()?,
            self.headers.first()?,
            self.metadata.first()?,
            self.scheduled_for.first()?,
            self.expires_at.first()?,
            self.instruction_id.first()?,
            self.idempotency_key.first()?,
            self.traceparent.first()?,
        ])
    }
}

/// A map as jsonb; an empty one and none are the same job.
fn object<'a>(entries: impl IntoIterator<Item = (&'a String, &'a String)>) -> Option<Value> {
    let entries: BTreeMap<&String, &String> = entries.into_iter().collect();
    (!entries.is_empty())
        .then(|| entries.into_iter().map(|(key, value)| (key.clone(), Value::from(value.as_str()))).collect())
}
