//! Groups as operators see them ([`get`], [`list`]) and what they decide about them ([`pause`], [`resume`],
//! [`release`], [`skip`]).
//!
//! A hold stands until a person takes it away; several may stand at once, and a pause never swallows a block. Each
//! decision is one transaction with its audit row. Whoever takes a pending row locks its group's ready row first, as a
//! transaction does that settles one message and begins the next. The ready row is locked before it is decided whether
//! a hold remains, in a statement of its own: two releases at once would otherwise each see the other's hold and leave
//! the group at infinity for ever.

mod decide;
mod read;

pub(crate) use decide::{CANCEL, lock_hint_of, move_hint, wake};
pub use decide::{Decision, REASON_CHARS_MAX, Released, Skipped, pause, release, resume, skip};
pub use read::{GroupRow, GroupState, HeadRow, Hold, InFlightRow, LIST_MAX, View, get, list};

#[cfg(test)]
mod tests;
