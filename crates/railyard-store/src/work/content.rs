//! The job behind a claim. Written once, so it is read outside the transaction.
//!
//! Most messages are young: those of the last day are read by their attempts, in the same round trip as the claim. The
//! others are read by their ids, which bound the days to look at. Either way each look-up touches the one day it
//! belongs to, and of the days outside the bounds nothing is opened.

use std::collections::HashMap;
use std::time::Duration;

use jiff::Timestamp;
use railyard_core::backoff::RetryStrategy;
use railyard_core::{AttemptId, CredentialsId, Lane, Message, OutboxId, ParticipantId};
use tokio_postgres::Row;
use uuid::Uuid;

use super::Done;
use super::claim::Claim;
use crate::connect::Conn;
use crate::error::StoreError;

/// What is in flight, if its id is between $2 and $3: the days outside are not opened, since each of them costs as much
/// as a look-up.
pub(crate) const RECENT_CONTENT: &str = "
SELECT j.outbox_id, j.source, j.type, j.participant_id, j.target_url, j.headers, j.payload, j.payload_content_type, j.credentials_id,
  j.retry_strategy, j.rail_key, j.expires_at, j.traceparent
FROM in_flight f
CROSS JOIN LATERAL (
  SELECT * FROM dispatch_job d WHERE d.outbox_id = f.outbox_id AND d.outbox_id >= $2 AND d.outbox_id < $3 LIMIT 1) j
WHERE f.attempt_id = ANY ($1)";

pub(crate) const CONTENT: &str = "
SELECT j.outbox_id, j.source, j.type, j.participant_id, j.target_url, j.headers, j.payload, j.payload_content_type, j.credentials_id,
  j.retry_strategy, j.rail_key, j.expires_at, j.traceparent
FROM unnest($1::uuid[]) AS g(outbox_id)
CROSS JOIN LATERAL (
  SELECT * FROM dispatch_job d
  WHERE d.outbox_id = g.outbox_id AND d.outbox_id >= $2 AND d.outbox_id <= $3 LIMIT 1) j";

const DAY_MS: u128 = 86_400_000;

/// The ids of the day before this attempt and of the hour after it: ids count milliseconds in their upper 48 bits. A
/// guess by this machine's clock, and no more: what it misses is read by its id.
pub(crate) fn recent(attempt: AttemptId) -> (Uuid, Uuid) {
    let at = attempt.0.as_u128() >> 80;
    let first = |ms: u128| Uuid::from_u128(ms << 80);
    (first(at.saturating_sub(DAY_MS)), first(at + DAY_MS / 24))
}

/// Joins claims with their content, `known` of it already. One that cannot be read does not keep the others from being
/// called.
pub(crate) async fn load(conn: &Conn, claims: Vec<Claim>, known: Vec<Row>, done: &mut Done) -> Result<(), StoreError> {
    let mut jobs: HashMap<Uuid, Row> = HashMap::with_capacity(claims.len());
    for row in known {
        jobs.insert(row.try_get("outbox_id")?, row);
    }
    let mut ids: Vec<Uuid> = claims.iter().map(|claim| claim.outbox_id.0).filter(|id| !jobs.contains_key(id)).collect();
    ids.sort_unstable();
    if let (Some(low), Some(high)) = (ids.first(), ids.last()) {
        let statement = conn.prepare_cached(CONTENT).await?;
        for row in conn.query(&statement, &[&ids, low, high]).await? {
            jobs.insert(row.try_get("outbox_id")?, row);
        }
    }
    for claim in claims {
        let attempt = claim.attempt_id;
        let read = match jobs.get(&claim.outbox_id.0) {
            Some(row) => message(claim, row),
            None => Err(StoreError::Unreadable { detail: "it has no job: its day was dropped".to_owned() }),
        };
        match read {
            Ok(message) => drop(done.begun.insert(attempt, message)),
            Err(error) => drop(done.unreadable.insert(attempt, error.to_string())),
        }
    }
    Ok(())
}

fn message(claim: Claim, row: &Row) -> Result<Message, StoreError> {
    let retry: String = row.try_get("retry_strategy")?;
    let headers: Option<serde_json::Value> = row.try_get("headers")?;
    let payload: Vec<u8> = row.try_get("payload")?;
    let lane = match &claim.participant_id {
        Some(group) => Lane::Group(group.clone()),
        None => Lane::Single(claim.outbox_id),
    };
    Ok(Message {
        attempt_id: claim.attempt_id,
        outbox_id: claim.outbox_id,
        lane,
        participant_id: row.try_get::<_, Option<String>>("participant_id")?.map(ParticipantId::new),
        sequence_id: claim.sequence_id,
        partition: claim.partition,
        epoch: claim.epoch,
        attempt_no: claim.attempt_no,
        failures: claim.failures,
        max_attempts: claim.max_attempts,
        mode: claim.mode,
        source: row.try_get("source")?,
        kind: row.try_get("type")?,
        rail_type: claim.rail_type,
        endpoint: claim.endpoint,
        target_url: row.try_get("target_url")?,
        headers: pairs(headers),
        payload: payload.into(),
        payload_content_type: row.try_get("payload_content_type")?,
        credentials_id: row.try_get::<_, Option<Uuid>>("credentials_id")?.map(CredentialsId),
        timeout: claim.timeout.max(Duration::from_millis(1)),
        retry: RetryStrategy::parse(&retry)
            .ok_or_else(|| StoreError::Unreadable { detail: format!("retry_strategy is {retry:?}") })?,
        rail_key: OutboxId(row.try_get("rail_key")?),
        claimed_at: claim.claimed_at,
        expires_at: row.try_get::<_, Option<Timestamp>>("expires_at")?,
        traceparent: row.try_get("traceparent")?,
        known_success: claim.known_success,
    })
}

fn pairs(headers: Option<serde_json::Value>) -> Vec<(String, String)> {
    match headers {
        Some(serde_json::Value::Object(map)) => {
            map.into_iter().filter_map(|(name, value)| value.as_str().map(|text| (name, text.to_owned()))).collect()
        }
        Some(_) | None => Vec::new(),
    }
}
