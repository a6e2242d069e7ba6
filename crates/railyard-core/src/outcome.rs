//! What became of one call, as the rail saw it.

use std::time::Duration;

use crate::error_code::ErrorCode;

/// What the receiver said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// HTTP status.
    pub status: u16,
    /// The rail's own reference, from the body (`railReference` or `reference`).
    pub rail_reference: Option<String>,
    /// The rail's own code, from the body (`railCode` or `code`).
    pub rail_code: Option<String>,
    /// At most [`crate::limits::RESPONSE_BODY_BYTES_MAX`] bytes, as they came.
    pub body: Vec<u8>,
    /// More came than was kept.
    pub truncated: bool,
}

/// The end of one attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallOutcome {
    /// 2xx: done, whatever the body did.
    Delivered(Answer),
    /// The receiver asked for it later.
    Deferred {
        /// What it said.
        answer: Answer,
        /// How much later, already capped.
        after: Duration,
        /// Why, in our words.
        code: ErrorCode,
    },
    /// It failed.
    Failed {
        /// What kind of failure.
        code: ErrorCode,
        /// For people: names what was wrong, never a secret.
        detail: String,
        /// What the receiver said, if it said anything.
        answer: Option<Answer>,
        /// Whether trying again can help.
        retryable: bool,
    },
    /// Nothing was sent: no lease, no time, no look-up. Spends nothing.
    NotStarted {
        /// Why.
        code: ErrorCode,
        /// For people.
        detail: String,
        /// When to look again.
        after: Duration,
    },
}

impl CallOutcome {
    /// For metrics and logs.
    #[must_use]
    pub fn answer(&self) -> Option<&Answer> {
        match self {
            Self::Delivered(answer) | Self::Deferred { answer, .. } => Some(answer),
            Self::Failed { answer, .. } => answer.as_ref(),
            Self::NotStarted { .. } => None,
        }
    }
}
