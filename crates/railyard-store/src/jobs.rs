//! Jobs as the API sees them: made through the one way in ([`create`]), read with the status that follows from where
//! the message stands ([`get`]), searched ([`search()`]), cancelled ([`cancel()`]), made again ([`replay()`]), and their
//! attempts ([`attempts()`]).
//!
//! Open states are not stored: a job that waits is PENDING or FAILED, one that is out is IN_PROGRESS, and only ends
//! have a row.

mod attempts;
mod cancel;
mod columns;
mod create;
pub(crate) mod each;
mod read;
mod replay;
mod search;

pub use attempts::{ATTEMPTS_LIST_MAX, AttemptRow, attempts};
pub use cancel::{Cancelled, cancel};
pub use create::{Created, Taken, create, notify};
pub use each::{Placed, create_each};
pub use read::{JobRow, JobStatus, get, glance};
pub use replay::{
    REPLAY_MAX, ReplayResult, ReplayStep, Replayed, Walk, dead_letters, preview_found, replay, replay_found,
    replay_preview,
};
pub use search::{Filter, Found, METADATA_FILTERS_MAX, PAGE_SIZE_MAX, Page, search};

#[cfg(test)]
mod tests;
