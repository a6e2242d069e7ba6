//! Closed lists and counts, read from rows: a value that this version does not know is an error, never a guess.

use tokio_postgres::Row;

use crate::error::StoreError;

/// A word of a closed list.
pub(crate) fn word<T>(row: &Row, column: &str, parse: impl Fn(&str) -> Option<T>) -> Result<T, StoreError> {
    let text: &str = row.try_get(column)?;
    parse(text).ok_or_else(|| StoreError::Unreadable { detail: format!("{column} is {text:?}") })
}

/// An array of such words.
pub(crate) fn words<T>(row: &Row, column: &str, parse: impl Fn(&str) -> Option<T>) -> Result<Vec<T>, StoreError> {
    let texts: Vec<&str> = row.try_get(column)?;
    let unreadable = |text| StoreError::Unreadable { detail: format!("{column} holds {text:?}") };
    texts.into_iter().map(|text| parse(text).ok_or_else(|| unreadable(text))).collect()
}

/// A number that is never negative.
pub(crate) fn count(row: &Row, column: &str) -> Result<u32, StoreError> {
    let number: i32 = row.try_get(column)?;
    u32::try_from(number).map_err(|_| StoreError::Unreadable { detail: format!("{column} is {number}") })
}

/// A count of rows.
pub(crate) fn total(row: &Row, column: &str) -> Result<u64, StoreError> {
    let number: i64 = row.try_get(column)?;
    u64::try_from(number).map_err(|_| StoreError::Unreadable { detail: format!("{column} is {number}") })
}
