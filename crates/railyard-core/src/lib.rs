//! What Railyard decides, without the means to do it: ids, states, retry, classification, signing bytes.
//!
//! Nothing here does IO, reads a clock or draws a random number: `now` and randomness are arguments, so every
//! decision can be replayed in a test. The store applies what this crate decides and never chooses itself.

pub mod attempt;
pub mod backoff;
pub mod breaker;
pub mod classify;
pub mod dispatch;
pub mod error_code;
pub mod event;
pub mod group;
pub mod headers;
pub mod hold;
pub mod ids;
pub mod job;
mod json_fields;
pub mod limiter;
pub mod limits;
pub mod link;
pub mod message;
pub mod mode;
pub mod outcome;
pub mod ownership;
pub mod partition;
pub mod payment;
pub mod rail;
pub mod retry_after;
pub mod rotation;
pub mod settlement;
pub mod signing;
pub mod slots;
#[cfg(test)]
mod testing;
pub mod text;
pub mod timestamp;

pub use error_code::ErrorCode;
pub use ids::{AttemptId, CredentialsId, Epoch, Lane, NodeId, OutboxId, ParticipantId, PartitionId, SequenceId};
pub use message::Message;
pub use mode::Mode;
pub use outcome::{Answer, CallOutcome};
pub use settlement::Settlement;
