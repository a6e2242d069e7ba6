//! The one place of this crate that reads the wall clock, for what a receiver does: judge a signature's age. Nothing
//! that concerns messages goes by it.

use jiff::Timestamp;

/// This machine's time.
#[expect(clippy::disallowed_methods, reason = "the clock module; a receiver has no database to ask")]
pub(crate) fn now() -> Timestamp {
    Timestamp::now()
}
