//! Rails: where a message goes out. A rail has a name (the `rail_type` of a job) and a kind.

use serde::{Deserialize, Serialize};

use crate::limits::RAIL_NAME_BYTES_MAX;
use crate::mode::Mode;

/// What a rail checks before a call, and how it reads a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RailKind {
    /// A webhook: any payload; every refusal but 3xx and 410 is retried (S3).
    Webhook,
    /// A payment instruction: the payload is checked first and refusals are read by the rail's codes (S2).
    Payment,
}

impl RailKind {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Webhook, Self::Payment];

    /// As stored.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Webhook => "webhook",
            Self::Payment => "payment",
        }
    }

    /// The mode of a job that names none: webhooks go on after a failure, payments do not.
    #[must_use]
    pub fn default_mode(self) -> Mode {
        match self {
            Self::Webhook => Mode::NextOnError,
            Self::Payment => Mode::BlockOnError,
        }
    }

    /// Deliveries in all that a job gets which names no number (S3: 3; S2: 20).
    #[must_use]
    pub fn default_max_attempts(self) -> u32 {
        match self {
            Self::Webhook => 3,
            Self::Payment => 20,
        }
    }
}

/// What is done with an attempt whose outcome nobody knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnUnknown {
    /// Deliver again: the receiver recognises a repeat.
    Retry,
    /// Hold the group until a person knows.
    Hold,
}

impl OnUnknown {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Retry, Self::Hold];

    /// As stored.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Retry => "retry",
            Self::Hold => "hold",
        }
    }
}

/// The rail that jobs take which name none.
pub const WEBHOOK: &str = "webhook";
/// The payment rail that every installation has.
pub const PAYMENT_WEBHOOK: &str = "payment_webhook";

/// The pool of webhook rails that name none (S3).
pub const DISPATCH_POOL: &str = "DISPATCH-POOL";

/// Whether this is a name that a pool may have.
#[must_use]
pub fn is_pool_code(code: &str) -> bool {
    (1..=RAIL_NAME_BYTES_MAX).contains(&code.len())
        && code.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte))
}
