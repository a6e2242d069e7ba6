//! What can go wrong with a private server, by what the caller can do about it.

use std::path::PathBuf;

/// Why a private server could not be started, stopped or asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No PostgreSQL installation was found; the text says where was looked and how to install one.
    #[error(
        "no PostgreSQL server binaries found (looked in {looked_in}); install them (Debian and Ubuntu: \
         apt-get install postgresql) or set RAILYARD_PG_BIN to the directory that holds initdb and postgres"
    )]
    NoBinaries {
        /// The places that were tried, in order.
        looked_in: String,
    },
    /// The unprivileged user that must run the server cannot get to a directory.
    #[error("user {user} cannot enter {dir}, and PostgreSQL does not run as root; choose another data directory")]
    Unreachable {
        /// Who would run the server.
        user: String,
        /// The closed directory.
        dir: PathBuf,
    },
    /// Another program has a server in this data directory.
    #[error("{dir} is in use by another server")]
    InUse {
        /// The data directory.
        dir: PathBuf,
    },
    /// A program of PostgreSQL failed; its own words follow.
    #[error("{program} failed ({status}): {said}")]
    Program {
        /// initdb, postgres or psql.
        program: &'static str,
        /// Exit status.
        status: String,
        /// The end of what it printed or logged.
        said: String,
    },
    /// The server did not come up, or did not end, within its time.
    #[error("postgres did not {what} within {seconds} s: {said}")]
    Timeout {
        /// "start" or "stop".
        what: &'static str,
        /// The time it was given.
        seconds: u64,
        /// The end of its log.
        said: String,
    },
    /// A database name that is not a plain lower-case identifier of at most 63 characters.
    #[error("{0:?} is not a plain lower-case database name")]
    BadName(String),
    /// Files, processes, signals.
    #[error("{what}: {source}")]
    Io {
        /// What was being done.
        what: String,
        /// The system's error.
        source: std::io::Error,
    },
}

impl Error {
    /// Wraps a system error with what was being done.
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Error {
        let what = what.into();
        move |source| Error::Io { what, source }
    }
}
