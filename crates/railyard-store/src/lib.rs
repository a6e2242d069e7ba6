//! PostgreSQL, and nothing else: migrations, the statements of a message's life, leases, LISTEN.
//!
//! This is the only crate that speaks SQL to Railyard's database. It applies what `railyard-core` decides and chooses
//! nothing itself. ARCHITECTURE.md, "One message, from commit to record", says which statement does which step.
//!
//! Time is the database's `clock_timestamp()`. A node's own clock (`CLOCK_BOOTTIME`) only measures spans.

pub mod audit;
pub mod clock;
pub mod cluster;
pub mod connect;
pub mod credentials;
pub mod crypt;
pub mod discover;
pub mod dispatch;
pub mod doctor;
pub mod error;
pub mod events;
pub mod failpoint;
pub mod feeds;
pub mod gauges;
pub mod heal;
pub mod holds;
pub mod idle;
pub mod jobs;
pub mod lease;
pub mod limiter;
pub mod listen;
pub mod migrate;
pub mod ownership;
pub mod payments;
pub mod pools;
pub mod rails;
pub mod rate;
pub mod retention;
pub mod schedule;
pub mod wakes;
pub mod work;

mod row;
mod transaction;

#[cfg(test)]
mod explain;
#[cfg(test)]
mod races;
#[cfg(test)]
mod testing;

pub use connect::{Conn, Store, StoreConfig};
pub use error::StoreError;
