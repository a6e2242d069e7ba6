//! A private PostgreSQL server as a child process, for `railyard dev`, the demo and the tests.
//!
//! It owns one data directory, one socket directory and one postmaster, and nothing of it outlives the program that
//! started it: dropping [`PrivatePostgres`] stops the server; if the program dies without that (a panic that aborts,
//! a kill -9), an [`Undertaker`] does it, a small shell process that learns of the death by the end of a pipe.
//! PostgreSQL refuses to run as root, so a program run by root drops to an unprivileged user for it.
//! What a killed server leaves in its data directory is recovered at the next start, as always.

mod binaries;
mod claim;
mod error;
mod freeze;
mod initdb;
mod options;
mod port;
mod postmaster;
mod server;
mod undertaker;
mod user;

pub use binaries::Binaries;
pub use error::Error;
pub use freeze::{freeze, thaw};
pub use options::Options;
pub use port::free_port;
pub use server::PrivatePostgres;
pub use undertaker::{Farewell, Undertaker};
