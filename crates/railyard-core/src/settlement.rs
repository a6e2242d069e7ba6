//! From a call's outcome to what is written about it. The store applies a settlement and chooses nothing.

use std::time::Duration;

use jiff::Timestamp;

use crate::attempt::AttemptState;
use crate::backoff::Backoff;
use crate::error_code::ErrorCode;
use crate::ids::{AttemptId, Lane, OutboxId};
use crate::message::Message;
use crate::mode::Mode;
use crate::outcome::{Answer, CallOutcome};

/// How a message ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EndStatus {
    /// Delivered.
    Completed,
    /// Failed for good.
    Error,
    /// Its `expiresAt` passed first.
    Expired,
    /// An operator ended it.
    Cancelled,
}

impl EndStatus {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Completed, Self::Error, Self::Expired, Self::Cancelled];
    /// Those that can be replayed.
    pub const WITHOUT_SUCCESS: [Self; 3] = [Self::Error, Self::Expired, Self::Cancelled];

    /// As stored and as S3's API says it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "COMPLETED",
            Self::Error => "ERROR",
            Self::Expired => "EXPIRED",
            Self::Cancelled => "CANCELLED",
        }
    }

    /// Reads what `as_str` wrote.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == text)
    }
}

/// What happens to the message next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// It ends; `blocks` holds its group until a person decides.
    End {
        /// How.
        status: EndStatus,
        /// BLOCK_ON_ERROR and no success.
        blocks: bool,
    },
    /// It waits in its place.
    Again {
        /// How long, from the settle on the database's clock.
        after: Duration,
        /// Whether this attempt counts against `max_attempts`.
        spends_budget: bool,
    },
}

/// One attempt's result, ready to be written.
#[derive(Clone, Debug)]
pub struct Settlement {
    /// Whose.
    pub attempt_id: AttemptId,
    /// Of which message.
    pub outbox_id: OutboxId,
    /// Whose turn it was.
    pub lane: Lane,
    /// Which attempt.
    pub attempt_no: u32,
    /// What the archive row says.
    pub state: AttemptState,
    /// What follows.
    pub next: Next,
    /// Why not, if not.
    pub code: Option<ErrorCode>,
    /// For people.
    pub detail: Option<String>,
    /// What the receiver said.
    pub answer: Option<Answer>,
    /// From the start of the call to its end; none if nothing was sent.
    pub latency: Option<Duration>,
}

/// Decides what an outcome means for the message. `roll` is uniform in [0, 1); `now` is only held against
/// `expires_at`.
#[must_use]
pub fn settle(
    message: &Message,
    outcome: CallOutcome,
    latency: Option<Duration>,
    backoff: &Backoff,
    now: Timestamp,
    roll: f64,
) -> Settlement {
    let decided = decide(message, &outcome, backoff, now, roll);
    let (code, detail, answer) = match outcome {
        CallOutcome::Delivered(answer) => (None, None, Some(answer)),
        CallOutcome::Deferred { answer, code, .. } => (Some(code), None, Some(answer)),
        CallOutcome::Failed { code, detail, answer, .. } => (Some(code), Some(detail), answer),
        CallOutcome::NotStarted { code, detail, .. } => (Some(code), Some(detail), None),
    };
    let (code, detail) = match decided.ceiling {
        // The ceiling is the reason that the message ended; the failure that reached it stays in the text.
        Some(ceiling) => {
            let last = code.map(|code| code.to_string()).unwrap_or_default();
            let text = detail.unwrap_or_default();
            (Some(ceiling), Some(format!("{last}: {text}")))
        }
        None => (code, detail),
    };
    Settlement {
        attempt_id: message.attempt_id,
        outbox_id: message.outbox_id,
        lane: message.lane.clone(),
        attempt_no: message.attempt_no,
        state: decided.state,
        next: decided.next,
        code,
        detail,
        answer,
        latency,
    }
}

struct Decided {
    state: AttemptState,
    next: Next,
    ceiling: Option<ErrorCode>,
}

fn decide(message: &Message, outcome: &CallOutcome, backoff: &Backoff, now: Timestamp, roll: f64) -> Decided {
    let plain = |state, next| Decided { state, next, ceiling: None };
    match outcome {
        CallOutcome::Delivered(_) => {
            plain(AttemptState::Dispatched, Next::End { status: EndStatus::Completed, blocks: false })
        }
        CallOutcome::Deferred { after, .. } => {
            plain(AttemptState::Deferred, Next::Again { after: *after, spends_budget: false })
        }
        CallOutcome::NotStarted { code: ErrorCode::Expired, .. } => {
            plain(AttemptState::NotStarted, failed(message, EndStatus::Expired))
        }
        CallOutcome::NotStarted { after, .. } => {
            plain(AttemptState::NotStarted, Next::Again { after: *after, spends_budget: false })
        }
        CallOutcome::Failed { retryable: false, .. } => plain(AttemptState::Failed, failed(message, EndStatus::Error)),
        CallOutcome::Failed { retryable: true, .. } => {
            let failures = message.failures.saturating_add(1);
            if failures >= message.max_attempts {
                return Decided {
                    state: AttemptState::Failed,
                    next: failed(message, EndStatus::Error),
                    ceiling: Some(ErrorCode::RetryCeilingExceeded),
                };
            }
            if message.expires_at.is_some_and(|expires_at| expires_at <= now) {
                return plain(AttemptState::Failed, failed(message, EndStatus::Expired));
            }
            let after = backoff.wait(message.retry, failures, roll);
            plain(AttemptState::Retryable, Next::Again { after, spends_budget: true })
        }
    }
}

fn failed(message: &Message, status: EndStatus) -> Next {
    let blocks = match (message.mode, &message.lane) {
        (Mode::BlockOnError, Lane::Group(_)) => true,
        (Mode::BlockOnError, Lane::Single(_)) | (Mode::NextOnError | Mode::Immediate, _) => false,
    };
    Next::End { status, blocks }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::message;
    use proptest::prelude::*;

    fn failed_call(retryable: bool) -> CallOutcome {
        CallOutcome::Failed { code: ErrorCode::HttpStatus(500), detail: "HTTP 500".to_owned(), answer: None, retryable }
    }

    fn settled(message: &Message, outcome: CallOutcome) -> Settlement {
        settle(message, outcome, None, &Backoff::webhook(), Timestamp::UNIX_EPOCH, 0.5)
    }

    #[test]
    fn success_ends_whatever_the_mode() {
        for mode in Mode::ALL {
            let message = Message { mode, ..message() };
            let settlement = settled(&message, CallOutcome::Delivered(Answer::default()));
            assert_eq!(settlement.state, AttemptState::Dispatched);
            assert_eq!(settlement.next, Next::End { status: EndStatus::Completed, blocks: false });
        }
    }

    #[test]
    fn s2_22_the_last_failure_ends_with_the_ceiling_and_keeps_its_cause() {
        let message = Message { failures: 2, max_attempts: 3, ..message() };
        let settlement = settled(&message, failed_call(true));
        assert_eq!(settlement.state, AttemptState::Failed);
        assert_eq!(settlement.code, Some(ErrorCode::RetryCeilingExceeded));
        assert_eq!(settlement.detail.as_deref(), Some("HTTP_500: HTTP 500"));
        assert_eq!(settlement.next, Next::End { status: EndStatus::Error, blocks: true });
    }

    #[test]
    fn only_ordered_block_on_error_blocks() {
        for (mode, lane, blocks) in [
            (Mode::BlockOnError, message().lane, true),
            (Mode::NextOnError, message().lane, false),
            (Mode::Immediate, message().lane, false),
            (Mode::BlockOnError, Lane::Single(message().outbox_id), false),
        ] {
            let message = Message { mode, lane, ..message() };
            assert_eq!(settled(&message, failed_call(false)).next, Next::End { status: EndStatus::Error, blocks });
        }
    }

    #[test]
    fn expiry_ends_a_message_that_was_not_started_and_one_that_just_failed() {
        let message = Message { expires_at: Some(Timestamp::UNIX_EPOCH), ..message() };
        let expired =
            CallOutcome::NotStarted { code: ErrorCode::Expired, detail: String::new(), after: Duration::ZERO };
        for (outcome, state) in [(expired, AttemptState::NotStarted), (failed_call(true), AttemptState::Failed)] {
            let settlement = settled(&message, outcome);
            assert_eq!(settlement.state, state);
            assert_eq!(settlement.next, Next::End { status: EndStatus::Expired, blocks: true });
        }
    }

    proptest! {
        /// Deferrals and what was never sent spend nothing and never end a message; a retryable failure spends one and
        /// ends it exactly at the ceiling.
        #[test]
        fn the_budget(failures in 0_u32..100, max_attempts in 1_u32..100, roll in 0.0_f64..1.0) {
            let message = Message { failures, max_attempts, ..message() };
            let deferred = CallOutcome::Deferred { answer: Answer::default(), after: Duration::from_secs(7), code: ErrorCode::RateLimited };
            prop_assert_eq!(settled(&message, deferred).next, Next::Again { after: Duration::from_secs(7), spends_budget: false });
            let unsent = CallOutcome::NotStarted { code: ErrorCode::LeaseLost, detail: String::new(), after: Duration::from_secs(1) };
            prop_assert_eq!(settled(&message, unsent).next, Next::Again { after: Duration::from_secs(1), spends_budget: false });
            let failed = settle(&message, failed_call(true), None, &Backoff::webhook(), Timestamp::UNIX_EPOCH, roll);
            let ended = matches!(failed.next, Next::End { .. });
            prop_assert_eq!(ended, failures + 1 >= max_attempts);
            let spends = matches!(failed.next, Next::Again { spends_budget: true, .. });
            prop_assert_eq!(spends, !ended);
        }
    }
}
