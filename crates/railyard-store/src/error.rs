//! What can go wrong at the database, sorted by what a caller does about it.

use railyard_core::OutboxId;
use tokio_postgres::error::SqlState;
use uuid::Uuid;

/// An error of the store.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The input was refused (SQLSTATE RY400). Nothing was stored.
    #[error("{field}: {detail}")]
    Invalid {
        /// Which field, in the database's spelling (`target_url`).
        field: String,
        /// What is wrong with it.
        detail: String,
        /// Which item of a batch, from 1.
        ordinal: u32,
    },
    /// The idempotency key was used before for other content (RY409).
    #[error("idempotency_key: used before for other content")]
    KeyReused {
        /// Who used it first, if known.
        first: Option<OutboxId>,
    },
    /// Somebody holds the lock: try again soon.
    #[error("busy: {detail}")]
    Busy {
        /// The database's words.
        detail: String,
    },
    /// The statement was ended at its time limit and did nothing. The same again takes as long; less of it may not.
    #[error("took too long: {detail}")]
    TooSlow {
        /// The database's words.
        detail: String,
    },
    /// Serialization failure or deadlock: the transaction did nothing and may be repeated as it is.
    #[error("transaction must be repeated: {detail}")]
    Repeat {
        /// The database's words.
        detail: String,
    },
    /// No connection, connection lost, server stopping or read-only. What the last statement did is unknown.
    #[error("database unavailable: {detail}")]
    Unavailable {
        /// What happened.
        detail: String,
    },
    /// The change does not fit the state that was found.
    #[error("{detail}")]
    Conflict {
        /// What was found.
        detail: String,
    },
    /// A row holds what this version cannot read.
    #[error("unreadable row: {detail}")]
    Unreadable {
        /// Which column and value.
        detail: String,
    },
    /// Anything else that the database refused.
    #[error("database refused ({sqlstate}): {detail}")]
    Database {
        /// Five characters.
        sqlstate: String,
        /// The database's words.
        detail: String,
    },
}

impl StoreError {
    /// Whether the same call may succeed later without any change.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        self.why_later().is_some()
    }

    /// Why not now, where the same call may succeed later without any change.
    #[must_use]
    pub fn why_later(&self) -> Option<&'static str> {
        match self {
            Self::Busy { .. } => Some("another transaction holds what this one needs"),
            Self::TooSlow { .. } => Some("the database took too long over it"),
            Self::Repeat { .. } => Some("too many transactions met at once"),
            Self::Unavailable { .. } => Some("the database is away"),
            Self::Invalid { .. }
            | Self::KeyReused { .. }
            | Self::Conflict { .. }
            | Self::Unreadable { .. }
            | Self::Database { .. } => None,
        }
    }

    /// A fault as the database's checks say it: `field: what is wrong with it`.
    pub(crate) fn of_fault(fault: &str, ordinal: u32) -> Self {
        let (field, detail) = fault.split_once(": ").unwrap_or(("item", fault));
        Self::Invalid { field: field.to_owned(), detail: detail.to_owned(), ordinal }
    }
}

impl From<tokio_postgres::Error> for StoreError {
    fn from(error: tokio_postgres::Error) -> Self {
        let Some(db) = error.as_db_error() else {
            return match std::error::Error::source(&error) {
                Some(source) => Self::Unavailable { detail: format!("{error}: {source}") },
                None => Self::Unavailable { detail: error.to_string() },
            };
        };
        let detail = db.message().to_owned();
        let code = db.code();
        match code.code() {
            "RY400" => Self::of_fault(&detail, ordinal(db.detail())),
            "RY409" => Self::KeyReused { first: first_id(db.detail()) },
            // At its time limit, or by an administrator who would not wait for it.
            _ if code == &SqlState::QUERY_CANCELED => Self::TooSlow { detail },
            // Class 08 connection, 53 resources, 57 operator intervention; 58 system error, XX000 when a server dies.
            state if ["08", "53", "57", "58"].contains(&state.get(..2).unwrap_or_default()) => {
                Self::Unavailable { detail: format!("{state}: {detail}") }
            }
            _ if code == &SqlState::READ_ONLY_SQL_TRANSACTION => Self::Unavailable { detail },
            // The server ended the session of a process that stood still in a transaction: nothing of it was done.
            _ if code == &SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT => Self::Unavailable { detail },
            _ if code == &SqlState::LOCK_NOT_AVAILABLE => Self::Busy { detail },
            _ if code == &SqlState::T_R_SERIALIZATION_FAILURE || code == &SqlState::T_R_DEADLOCK_DETECTED => {
                Self::Repeat { detail }
            }
            state => Self::Database { sqlstate: state.to_owned(), detail },
        }
    }
}

impl From<deadpool_postgres::PoolError> for StoreError {
    fn from(error: deadpool_postgres::PoolError) -> Self {
        // What refuses a login today may accept it tomorrow; nothing was done with the caller's work.
        Self::Unavailable { detail: error.to_string() }
    }
}

fn ordinal(detail: Option<&str>) -> u32 {
    detail
        .and_then(|text| text.strip_prefix("item "))
        .and_then(|text| text.split(',').next())
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(1)
}

fn first_id(detail: Option<&str>) -> Option<OutboxId> {
    detail?.rsplit(' ').next()?.parse::<Uuid>().ok().map(OutboxId)
}
