//! Typed ids. A bare `Uuid`, `i64` or `String` never stands for an id in a public signature.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

macro_rules! uuid_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub Uuid);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

uuid_id! {
    /// A message and a dispatch job: one id for both, a UUIDv7 whose time is the database's.
    OutboxId
}
uuid_id! {
    /// One attempt at one message. The node chooses it before it begins, so that it can ask afterwards whether it did.
    AttemptId
}
uuid_id! {
    /// One membership of one process: fresh at every join, never a host name.
    NodeId
}
uuid_id! {
    /// A set of webhook credentials.
    CredentialsId
}

/// How a group is named: participant (S2), message group (S4) and `groupId` (S3) are one thing.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ParticipantId(Arc<str>);

impl ParticipantId {
    /// Takes the name as it was given; its bounds are checked where a job is accepted.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self(name.into())
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ParticipantId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A message's place in its group: starts at 1, goes up by 1, has no gaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SequenceId(pub i64);

impl SequenceId {
    /// The place after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

/// One of the 256 partitions that nodes own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PartitionId(pub u8);

/// A partition's ownership number: every change of owner raises it, so an old owner is recognised by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Epoch(pub i64);

/// What has a turn of its own: a group, whose messages go one by one, or a single message without order.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub enum Lane {
    /// A group: strictly in sequence.
    Group(ParticipantId),
    /// A message without a group, or with mode IMMEDIATE.
    Single(OutboxId),
}

impl fmt::Display for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Group(group) => group.fmt(f),
            Self::Single(id) => id.fmt(f),
        }
    }
}
