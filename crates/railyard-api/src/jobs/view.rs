//! Jobs and attempts as S3 shows them. Never a secret: credentials are an id here.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use railyard_core::job::NewJob;
use railyard_core::timestamp::utc_millis;
use railyard_core::{CredentialsId, OutboxId, ParticipantId, SequenceId};
use railyard_store::jobs::{AttemptRow, Created, JobRow, JobStatus};
use serde::Serialize;
use utoipa::ToSchema;

use super::request::PROTOCOL;
use crate::openapi::words;

/// A job.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Job)]
pub(crate) struct JobView {
    #[schema(value_type = Uuid)]
    id: OutboxId,
    #[serde(skip_serializing_if = "Option::is_none")]
    external_id: Option<String>,
    source: String,
    r#type: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    group_id: Option<ParticipantId>,
    #[schema(schema_with = words::mode)]
    mode: &'static str,
    rail_type: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pool: Option<String>,
    target_url: String,
    #[schema(schema_with = words::protocol)]
    protocol: &'static str,
    headers: BTreeMap<String, String>,
    metadata: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_base64: Option<String>,
    payload_content_type: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Uuid>)]
    credentials_id: Option<CredentialsId>,
    max_retries: u32,
    #[schema(schema_with = words::retry_strategy)]
    retry_strategy: &'static str,
    timeout_seconds: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    scheduled_for: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    idempotency_key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    instruction_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Uuid>)]
    replay_of: Option<OutboxId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Uuid>)]
    replayed_by: Option<OutboxId>,
    #[schema(schema_with = words::job_status)]
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<i64>)]
    sequence: Option<SequenceId>,
    attempt_count: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_attempt_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_attempt_at: Option<String>,
    created_at: String,
    updated_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    completed_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    duration_millis: Option<i64>,
}

impl JobView {
    /// A job that was made this moment. Its payload is not sent back.
    pub(super) fn fresh(job: &NewJob, made: &Created) -> Self {
        Self {
            id: made.outbox_id,
            external_id: job.external_id.clone(),
            source: job.source.clone(),
            r#type: job.kind.clone(),
            group_id: job.group.clone(),
            mode: job.mode.as_str(),
            rail_type: job.rail_type.clone(),
            pool: job.pool.clone(),
            target_url: job.target_url.clone(),
            protocol: PROTOCOL,
            headers: job.headers.iter().cloned().collect(),
            metadata: job.metadata.clone(),
            payload: None,
            payload_base64: None,
            payload_content_type: job.payload_content_type.clone(),
            credentials_id: job.credentials_id,
            max_retries: job.max_attempts,
            retry_strategy: job.retry.as_str(),
            timeout_seconds: job.timeout_s,
            scheduled_for: time(job.scheduled_for),
            expires_at: time(job.expires_at),
            idempotency_key: job.idempotency_key.clone(),
            instruction_id: job.instruction_id.clone(),
            replay_of: None,
            replayed_by: None,
            status: JobStatus::Pending.as_str(),
            sequence: made.sequence_id,
            attempt_count: 0,
            last_attempt_at: None,
            last_error: None,
            next_attempt_at: time(job.scheduled_for.max(Some(made.created_at))),
            created_at: utc_millis(made.created_at),
            updated_at: utc_millis(made.created_at),
            completed_at: None,
            duration_millis: None,
        }
    }

    /// A job as it stands, without its payload.
    pub(crate) fn of(row: &JobRow) -> Self {
        let updated_at = row.completed_at.or(row.last_attempt_at).unwrap_or(row.created_at);
        Self {
            id: row.outbox_id,
            external_id: row.external_id.clone(),
            source: row.source.clone(),
            r#type: row.kind.clone(),
            group_id: row.group.clone(),
            mode: row.mode.as_str(),
            rail_type: row.rail_type.clone(),
            pool: row.pool.clone(),
            target_url: row.target_url.clone(),
            protocol: PROTOCOL,
            headers: row.headers.clone(),
            metadata: row.metadata.clone(),
            payload: None,
            payload_base64: None,
            payload_content_type: row.payload_content_type.clone(),
            credentials_id: Some(row.credentials_id),
            max_retries: row.max_attempts,
            retry_strategy: row.retry.as_str(),
            timeout_seconds: row.timeout_ms / 1000,
            scheduled_for: time(row.scheduled_for),
            expires_at: time(row.expires_at),
            idempotency_key: row.idempotency_key.clone(),
            instruction_id: row.instruction_id.clone(),
            replay_of: row.replay_of,
            replayed_by: row.replayed_by,
            status: row.status.as_str(),
            sequence: row.sequence_id,
            attempt_count: row.attempt_count,
            last_attempt_at: time(row.last_attempt_at),
            last_error: row.last_error.clone(),
            next_attempt_at: time(row.next_attempt_at),
            created_at: utc_millis(row.created_at),
            updated_at: utc_millis(updated_at),
            completed_at: time(row.completed_at),
            duration_millis: row.duration_millis,
        }
    }

    /// The payload beside it: as text where it is UTF-8, else as base64 under another name.
    pub(super) fn with_payload(mut self, row: &JobRow) -> Self {
        match std::str::from_utf8(&row.payload) {
            Ok(text) => self.payload = Some(text.to_owned()),
            Err(_) => self.payload_base64 = Some(STANDARD.encode(&row.payload)),
        }
        self
    }
}

/// A job that was made before.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
pub(super) enum FirstJob {
    /// As it stands.
    Whole(Box<JobView>),
    /// It is gone, but for its key.
    Id(JobRef),
}

/// A job of which nothing but the id is known.
#[derive(Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct JobRef {
    #[schema(value_type = Uuid)]
    pub(super) id: OutboxId,
}

/// An attempt.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Attempt)]
pub(super) struct AttemptView {
    id: String,
    attempt_number: u32,
    #[schema(schema_with = words::attempt_status)]
    status: &'static str,
    /// S2's word, which tells more.
    #[schema(schema_with = words::attempt_state)]
    state: &'static str,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    late: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_code: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_body: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_body_base64: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    response_truncated: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    error_code: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error_message: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rail_reference: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rail_code: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    duration_millis: Option<i32>,
    attempted_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    completed_at: Option<String>,
}

impl AttemptView {
    pub(super) fn of(row: &AttemptRow) -> Self {
        let (response_body, response_body_base64) = match row.response_body.as_deref().map(std::str::from_utf8) {
            None => (None, None),
            Some(Ok(text)) => (Some(text.to_owned()), None),
            Some(Err(_)) => (None, row.response_body.as_ref().map(|body| STANDARD.encode(body))),
        };
        Self {
            id: row.attempt_id.to_string(),
            attempt_number: row.attempt_no,
            status: row.status.as_str(),
            state: row.state.as_str(),
            late: row.late,
            response_code: row.response_code,
            response_body,
            response_body_base64,
            response_truncated: row.response_truncated,
            error_code: row.error_code.clone(),
            error_message: row.error_message.clone(),
            rail_reference: row.rail_reference.clone(),
            rail_code: row.rail_code.clone(),
            duration_millis: row.latency_ms,
            attempted_at: utc_millis(row.claimed_at),
            completed_at: time(row.completed_at),
        }
    }
}

fn time(at: Option<Timestamp>) -> Option<String> {
    at.map(utc_millis)
}
