//! A message that has been begun: the intent is committed, the call may start.

use std::time::Duration;

use jiff::Timestamp;

use crate::backoff::RetryStrategy;
use crate::ids::{AttemptId, CredentialsId, Epoch, Lane, OutboxId, ParticipantId, PartitionId, SequenceId};
use crate::mode::Mode;

/// What `begin` returns: the in-flight row and the job's content. Its payload is never part of `Debug`.
#[derive(Clone)]
pub struct Message {
    /// This attempt.
    pub attempt_id: AttemptId,
    /// The message; also the job's id.
    pub outbox_id: OutboxId,
    /// Its turn.
    pub lane: Lane,
    /// The group as the job names it; an unordered job may have one too.
    pub participant_id: Option<ParticipantId>,
    /// Its place in the group, for ordered messages.
    pub sequence_id: Option<SequenceId>,
    /// The partition of its lane.
    pub partition: PartitionId,
    /// The epoch it was begun under.
    pub epoch: Epoch,
    /// Counts begins, from 1.
    pub attempt_no: u32,
    /// Retry budget spent before this attempt: answered failures and unknowns.
    pub failures: u32,
    /// Budget in all.
    pub max_attempts: u32,
    /// What a failure means for the group.
    pub mode: Mode,
    /// Which service it comes from.
    pub source: String,
    /// What it is.
    pub kind: String,
    /// The rail's name.
    pub rail_type: String,
    /// The target's origin: key of caps and breakers.
    pub endpoint: String,
    /// Where it goes.
    pub target_url: String,
    /// The job's own headers, as given.
    pub headers: Vec<(String, String)>,
    /// The bytes that were committed: signed and sent as they are.
    pub payload: bytes::Bytes,
    /// Content-Type of the call.
    pub payload_content_type: String,
    /// Who signs.
    pub credentials_id: Option<CredentialsId>,
    /// From connect to the last byte of the answer.
    pub timeout: Duration,
    /// How long after a failure the next attempt comes.
    pub retry: RetryStrategy,
    /// The rail's idempotency key: the first id in a chain of replays.
    pub rail_key: OutboxId,
    /// When intent was committed, on the database's clock.
    pub claimed_at: Timestamp,
    /// Not started after this.
    pub expires_at: Option<Timestamp>,
    /// W3C trace context, handed on to the receiver.
    pub traceparent: Option<String>,
    /// A later success of an earlier attempt is already on record: this one's failure ends the message too.
    pub known_success: bool,
}

impl std::fmt::Debug for Message {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Message")
            .field("attempt_id", &self.attempt_id)
            .field("outbox_id", &self.outbox_id)
            .field("lane", &self.lane)
            .field("sequence_id", &self.sequence_id)
            .field("attempt_no", &self.attempt_no)
            .field("rail_type", &self.rail_type)
            .field("endpoint", &self.endpoint)
            .field("payload_bytes", &self.payload.len())
            .finish_non_exhaustive()
    }
}
