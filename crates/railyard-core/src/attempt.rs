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
}

/// What S3's API calls them. The view `dispatch_attempt` decides which it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AttemptStatus {
    /// Out at this moment.
    InProgress,
    /// The receiver took it.
    Success,
    /// It failed.
    Failure,
    /// It failed since its deadline passed.
    Timeout,
    /// Nobody knows.
    Unknown,
    /// The receiver asked for it later.
    Deferred,
    /// It was never sent.
    NotStarted,
}

impl AttemptStatus {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::InProgress,
        Self::Success,
        Self::Failure,
        Self::Timeout,
        Self::Unknown,
        Self::Deferred,
        Self::NotStarted,
    ];

    /// As the view and the API say it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::InProgress => "IN_PROGRESS",
            Self::Success => "SUCCESS",
            Self::Failure => "FAILURE",
            Self::Timeout => "TIMEOUT",
            Self::Unknown => "UNKNOWN",
            Self::Deferred => "DEFERRED",
            Self::NotStarted => "NOT_STARTED",
        }
    }

    /// Reads what `as_str` wrote.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == text)
    }
}
