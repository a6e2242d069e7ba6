//! The states of an attempt, in S2's words, and what S3's API calls them.

use serde::{Deserialize, Serialize};

/// One row of `payment_outbox_attempts`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum AttemptState {
    /// Intent on record, outcome not yet: the in-flight row.
    Dispatching,
    /// The receiver took it.
    Dispatched,
    /// It failed and will be tried again.
    Retryable,
    /// It failed for good.
    Failed,
    /// Nobody knows: the node died or the call was never answered.
    ZombieRequeue,
    /// The receiver asked for it later; no budget is spent.
    Deferred,
    /// It was begun and never sent; no budget is spent.
    NotStarted,
}

impl AttemptState {
    /// All states.
    pub const ALL: [Self; 7] = [
        Self::Dispatching,
        Self::Dispatched,
        Self::Retryable,
        Self::Failed,
        Self::ZombieRequeue,
        Self::Deferred,
        Self::NotStarted,
    ];

    /// As stored.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Dispatching => "DISPATCHING",
            Self::Dispatched => "DISPATCHED",
            Self::Retryable => "RETRYABLE",
            Self::Failed => "FAILED",
            Self::ZombieRequeue => "ZOMBIE_REQUEUE",
            Self::Deferred => "DEFERRED",
            Self::NotStarted => "NOT_STARTED",
        }
    }

    /// Reads what `as_str` wrote.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == text)
    }

    /// The message's last attempt: at most one of these per message, counting no late results.
    #[must_use]
    pub fn is_terminal(self) -> bool {
        match self {
            Self::Dispatched | Self::Failed => true,
            Self::Dispatching | Self::Retryable | Self::ZombieRequeue | Self::Deferred | Self::NotStarted => false,
        }
    }

    /// S3's word for it; a failure whose deadline passed is a TIMEOUT.
    #[must_use]
    pub fn api_status(self, timed_out: bool) -> &'static str {
        match self {
            Self::Dispatching => "IN_PROGRESS",
            Self::Dispatched => "SUCCESS",
            Self::Retryable | Self::Failed if timed_out => "TIMEOUT",
            Self::Retryable | Self::Failed => "FAILURE",
            Self::ZombieRequeue => "UNKNOWN",
            Self::Deferred => "DEFERRED",
            Self::NotStarted => "NOT_STARTED",
        }
    }
}
