//! What a job's end without success means for those behind it in its group.

use serde::{Deserialize, Serialize};

/// Order and blocking, in S3's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Mode {
    /// No order: the group is kept on the job for search alone.
    Immediate,
    /// In order; after a failure the group goes on.
    NextOnError,
    /// In order; a failure holds the group until a person decides.
    BlockOnError,
}

impl Mode {
    /// All of them, for messages that list what is allowed.
    pub const ALL: [Self; 3] = [Self::Immediate, Self::NextOnError, Self::BlockOnError];

    /// As stored and as sent.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Immediate => "IMMEDIATE",
            Self::NextOnError => "NEXT_ON_ERROR",
            Self::BlockOnError => "BLOCK_ON_ERROR",
        }
    }

    /// Reads what `as_str` wrote.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.as_str() == text)
    }
}
