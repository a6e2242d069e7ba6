//! Values for the tests of this crate.

use std::time::Duration;

use jiff::Timestamp;
use uuid::Uuid;

use crate::attempt::AttemptState;
use crate::backoff::RetryStrategy;
use crate::ids::{AttemptId, Epoch, Lane, OutboxId, ParticipantId, PartitionId, SequenceId};
use crate::message::Message;
use crate::mode::Mode;
use crate::outcome::Answer;
use crate::settlement::{EndStatus, Next, Settlement};

/// A begun message of group `g`.
pub(crate) fn message() -> Message {
    let group = ParticipantId::new("g");
    Message {
        attempt_id: AttemptId(Uuid::from_u128(1)),
        outbox_id: OutboxId(Uuid::from_u128(2)),
        lane: Lane::Group(group.clone()),
        participant_id: Some(group),
        sequence_id: Some(SequenceId(1)),
        partition: PartitionId(0),
        epoch: Epoch(1),
        attempt_no: 1,
        failures: 0,
        max_attempts: 3,
        mode: Mode::BlockOnError,
        source: "orders".to_owned(),
        kind: "order.created".to_owned(),
        rail_type: "webhook".to_owned(),
        endpoint: "http://receiver".to_owned(),
        target_url: "http://receiver/hook".to_owned(),
        headers: Vec::new(),
        payload: bytes::Bytes::from_static(b"{}"),
        payload_content_type: "application/json".to_owned(),
        credentials_id: None,
        timeout: Duration::from_secs(30),
        retry: RetryStrategy::Exponential,
        rail_key: OutboxId(Uuid::from_u128(2)),
        claimed_at: Timestamp::UNIX_EPOCH,
        expires_at: None,
        traceparent: None,
        known_success: false,
    }
}

/// Its plain success.
pub(crate) fn settlement() -> Settlement {
    let message = message();
    Settlement {
        attempt_id: message.attempt_id,
        outbox_id: message.outbox_id,
        lane: message.lane,
        attempt_no: 1,
        state: AttemptState::Dispatched,
        next: Next::End { status: EndStatus::Completed, blocks: false },
        code: None,
        detail: None,
        answer: Some(Answer { status: 200, ..Answer::default() }),
        latency: Some(Duration::from_millis(3)),
    }
}
