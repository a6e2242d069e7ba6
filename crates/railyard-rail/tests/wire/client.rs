//! A client, a message and a call, with everything that a test does not care about filled in.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use railyard_core::backoff::RetryStrategy;
use railyard_core::ids::{AttemptId, Epoch, Lane, OutboxId, ParticipantId, PartitionId, SequenceId};
use railyard_core::limiter::Permit;
use railyard_core::rail::RailKind;
use railyard_core::{CallOutcome, ErrorCode, Message, Mode};
use railyard_rail::{Call, Called, Client, Credentials, HttpOptions, MayWrite, RailOptions};

/// A secret that both schemes can use.
pub(crate) const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// Options that let the tests' own receivers be called.
pub(crate) fn options() -> HttpOptions {
    HttpOptions { allow_networks: vec!["127.0.0.0/8".parse().unwrap()], ..HttpOptions::default() }
}

pub(crate) fn client() -> Client {
    Client::new(&options()).unwrap()
}

pub(crate) fn message(target_url: &str) -> Message {
    let group = ParticipantId::new("debtor-1");
    Message {
        attempt_id: AttemptId(uuid::Uuid::from_u128(1)),
        outbox_id: OutboxId(uuid::Uuid::from_u128(2)),
        lane: Lane::Group(group.clone()),
        participant_id: Some(group),
        sequence_id: Some(SequenceId(7)),
        partition: PartitionId(0),
        epoch: Epoch(1),
        attempt_no: 3,
        failures: 0,
        max_attempts: 3,
        mode: Mode::NextOnError,
        source: "orders".to_owned(),
        kind: "order.created".to_owned(),
        rail_type: "webhook".to_owned(),
        endpoint: String::new(),
        target_url: target_url.to_owned(),
        headers: Vec::new(),
        payload: Bytes::from_static(b"{\"orderId\":\"12345\",\"amount\":99.99}"),
        payload_content_type: "application/json".to_owned(),
        credentials_id: None,
        timeout: Duration::from_secs(10),
        retry: RetryStrategy::Exponential,
        rail_key: OutboxId(uuid::Uuid::from_u128(2)),
        claimed_at: now(),
        expires_at: None,
        traceparent: None,
        known_success: false,
    }
}

pub(crate) fn now() -> Timestamp {
    "2025-10-04T14:30:45.123Z".parse().unwrap()
}

pub(crate) fn always() -> MayWrite {
    Arc::new(|| Ok(()))
}

/// One call as a webhook.
pub(crate) async fn deliver(message: &Message) -> Called {
    deliver_with(&client(), message, always()).await
}

pub(crate) async fn deliver_with(client: &Client, message: &Message, may_write: MayWrite) -> Called {
    deliver_as(client, message, may_write, None).await
}

/// In a slot, if there is one.
pub(crate) async fn deliver_as(
    client: &Client,
    message: &Message,
    may_write: MayWrite,
    permit: Option<Permit>,
) -> Called {
    let rail = RailOptions::new(RailKind::Webhook);
    let credentials = Credentials::with_secret(SECRET).unwrap();
    client.call(Call { message, rail: &rail, credentials: &credentials, may_write, permit, now: now() }).await
}

/// One call as a payment.
pub(crate) async fn pay(message: &Message, rail: &RailOptions) -> CallOutcome {
    let credentials = Credentials::with_secret(SECRET).unwrap();
    let call = Call { message, rail, credentials: &credentials, may_write: always(), permit: None, now: now() };
    client().call(call).await.outcome
}

/// The code and the detail of a failure, which must be of the kind to be tried again.
pub(crate) fn retryable(outcome: &CallOutcome) -> (ErrorCode, &str) {
    let CallOutcome::Failed { code, detail, retryable: true, .. } = outcome else {
        panic!("not a failure to be tried again: {outcome:?}")
    };
    (*code, detail)
}
