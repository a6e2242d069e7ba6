//! The closed lists of words that answers speak in, each from the enum that the code matches on.

use railyard_core::Mode;
use railyard_core::attempt::{AttemptState, AttemptStatus};
use railyard_core::backoff::RetryStrategy;
use railyard_core::hold::HoldKind;
use railyard_core::payment::{PaymentStatus, QueueStatus, Step};
use railyard_core::rail::{OnUnknown, RailKind};
use railyard_core::settlement::EndStatus;
use railyard_store::credentials::Scheme;
use railyard_store::feeds::{FeedFormat, STANDINGS, Standing};
use railyard_store::holds::GroupState;
use railyard_store::jobs::{JobStatus, ReplayResult};
use utoipa::openapi::{Array, Object};

use super::shape::{list, word};

/// Where a job stands.
pub(crate) fn job_status() -> Object {
    word(&JobStatus::ALL, JobStatus::as_str)
}

/// Where a payment stands.
pub(crate) fn payment_status() -> Object {
    word(&PaymentStatus::ALL, PaymentStatus::as_str)
}

/// Where it stands in the queue.
pub(crate) fn queue_status() -> Object {
    word(&QueueStatus::ALL, QueueStatus::as_str)
}

/// Where an instruction is, in the words of whoever has to account for it.
pub(crate) fn standing() -> Object {
    word(&STANDINGS, Standing::as_str)
}

/// The forms that a file of payments may have.
pub(crate) fn feed_format() -> Object {
    word(&FeedFormat::ALL, FeedFormat::as_str)
}

/// What is done with a payment before it waits for its time.
pub(crate) fn payment_step() -> Object {
    word(&Step::ALL, Step::as_str)
}

/// How a job ended that nobody took.
pub(crate) fn end_without_success() -> Object {
    word(&EndStatus::WITHOUT_SUCCESS, EndStatus::as_str)
}

/// What became of a job that was to be made again.
pub(crate) fn replay_result() -> Object {
    word(&ReplayResult::ALL, ReplayResult::as_str)
}

/// Order and blocking.
pub(crate) fn mode() -> Object {
    word(&Mode::ALL, Mode::as_str)
}

/// How long to wait between two deliveries.
pub(crate) fn retry_strategy() -> Object {
    word(&RetryStrategy::ALL, RetryStrategy::as_str)
}

/// What came of an attempt, in S3's words.
pub(crate) fn attempt_status() -> Object {
    word(&AttemptStatus::ALL, AttemptStatus::as_str)
}

/// What came of an attempt, in S2's words.
pub(crate) fn attempt_state() -> Object {
    word(&AttemptState::ALL, AttemptState::as_str)
}

/// Why a group stands still.
pub(crate) fn hold_kind() -> Object {
    word(&HoldKind::ALL, HoldKind::as_str)
}

/// What stands in a group's way.
pub(crate) fn group_state() -> Object {
    word(&GroupState::ALL, GroupState::as_str)
}

/// What a rail checks.
pub(crate) fn rail_kind() -> Object {
    word(&RailKind::ALL, RailKind::as_str)
}

/// What is done with an unknown outcome.
pub(crate) fn on_unknown() -> Object {
    word(&OnUnknown::ALL, OnUnknown::as_str)
}

/// The signatures that go out.
pub(crate) fn schemes() -> Array {
    list(word(&Scheme::ALL, Scheme::as_str)).build()
}

/// The one protocol.
pub(crate) fn protocol() -> Object {
    word(&[crate::jobs::PROTOCOL], |said| said)
}

/// The one algorithm.
pub(crate) fn algorithm() -> Object {
    word(&[railyard_store::credentials::ALGORITHM], |said| said)
}
