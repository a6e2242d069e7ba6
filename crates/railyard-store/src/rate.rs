//! The planner's tables: configurations with their history, counters of windows, slots of events.
//!
//! A slot is given by one statement (`rate_assign`, migration V11), which is its own transaction: no business transaction
//! holds a window, and a process that stops in the middle leaves nothing behind. What windows are, the core says
//! (`railyard_core::slots`); the statement searches and counts.

mod assign;
mod cache;
mod config;
mod forecast;
mod replan;
mod slots;

#[cfg(test)]
mod races;
#[cfg(test)]
mod tests;

pub use assign::{ASSIGN_MAX, Assignment, Slot, SlotRequest, assign};
pub use cache::{CONFIG_TTL, ConfigCache, Counts, flush};
pub use config::{ConfigRow, active, history, set};
pub use forecast::{EVENTS_MAX, forecast};
pub use replan::{REPLAN_LEAD, REPLAN_MAX, Replanned, replan};
pub use slots::{SLOTS_KEPT, confirm, give_back, release, tidy};

use crate::error::StoreError;

/// Why an event has no slot.
#[derive(Debug, thiserror::Error)]
pub enum RateError {
    /// The database.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// No active configuration has this name.
    #[error("no rate configuration is called {name}")]
    UnknownConfig {
        /// The name.
        name: String,
    },
    /// Nothing free was found. Nobody was given a slot.
    #[error("no free slot: searched {searched} windows")]
    Exhausted {
        /// How many windows.
        searched: u64,
    },
}

impl From<tokio_postgres::Error> for RateError {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Store(error.into())
    }
}
