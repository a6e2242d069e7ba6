//! Why a group stands still. Several reasons may hold at once: a pause must not swallow a block.

use serde::{Deserialize, Serialize};

/// A reason that only a recorded decision ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HoldKind {
    /// A job with BLOCK_ON_ERROR ended without success.
    Blocked,
    /// An attempt's outcome is unknown and its rail may not be asked twice.
    InDoubt,
    /// An operator stopped it.
    Paused,
}

impl HoldKind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Blocked, Self::InDoubt, Self::Paused];

    /// As stored.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Blocked => "blocked",
            Self::InDoubt => "in_doubt",
            Self::Paused => "paused",
        }
    }

    /// Reads what `as_str` wrote.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text)
    }
}
