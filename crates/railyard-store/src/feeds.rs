//! Feeds: files of payments, and what became of each of their instructions.
//!
//! A feed is opened with the digest of its file and the number of its instructions, and its lines are recorded as they
//! are answered. So whatever dies in the middle, the record says what is missing, and the same file again fills it in:
//! payments are accepted once by their ids, whoever sends them how often.

mod reconcile;

#[cfg(test)]
mod tests;

use jiff::Timestamp;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use crate::connect::{Conn, Store};
use crate::error::StoreError;
use crate::row::{total, word};
use crate::transaction::{begin, end};

pub use reconcile::{Of, Reconciled, STANDINGS, Standing, Sum, Unaccounted, Waiting, reconcile};

/// Longest that a feed may take to be dropped, in milliseconds: a million lines take seconds.
const DROP_MS_MAX: u32 = 300_000;

/// The forms that a file may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeedFormat {
    /// A JSON object a line.
    Ndjson,
    /// A row a payment, under a line of names.
    Csv,
    /// ISO 20022 customer credit transfer initiation.
    Pain001,
}

impl FeedFormat {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Ndjson, Self::Csv, Self::Pain001];

    /// As stored and as sent.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ndjson => "ndjson",
            Self::Csv => "csv",
            Self::Pain001 => "pain.001",
        }
    }

    /// Reads what [`FeedFormat::as_str`] wrote.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.as_str() == text)
    }
}

/// A file that is to be taken in.
#[derive(Clone, Copy, Debug)]
pub struct NewFeed<'a> {
    /// A name like a payment's id.
    pub feed_id: &'a str,
    /// Its form.
    pub format: FeedFormat,
    /// What the file is called.
    pub name: &'a str,
    /// Of its bytes.
    pub sha256: [u8; 32],
    /// Instructions that it holds.
    pub items: i64,
    /// Who brought it.
    pub actor: &'a str,
}

/// A feed as it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Feed {
    /// Its name.
    pub feed_id: String,
    /// Its form.
    pub format: FeedFormat,
    /// What the file was called.
    pub name: String,
    /// Of its bytes.
    pub sha256: Vec<u8>,
    /// Instructions that it holds.
    pub items: u64,
    /// Lines that were accepted.
    pub accepted: u64,
    /// Lines that were rejected.
    pub rejected: u64,
    /// Who brought it.
    pub created_by: String,
    /// When it was opened first.
    pub created_at: Timestamp,
}

/// What became of one instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeedLine {
    /// Which of the file, from 1.
    pub item: i64,
    /// The line that it begins in, from 1.
    pub line: i64,
    /// The payment's id, as far as it could be read.
    pub payment_id: Option<String>,
    /// Decimal text and currency, as far as they could be read.
    pub amount: Option<(String, String)>,
    /// Why it was rejected: a field, if one is to blame, and a reason; none if it was accepted.
    pub rejected: Option<(Option<String>, String)>,
}

const OPEN: &str = "
    INSERT INTO payment_feed (feed_id, format, name, sha256, items, created_by) VALUES ($1, $2, $3, $4, $5, $6)
    ON CONFLICT DO NOTHING";

const GET: &str = "
    SELECT f.*, l.accepted, l.rejected FROM payment_feed f
    CROSS JOIN LATERAL (SELECT count(*) FILTER (WHERE is_accepted) AS accepted, count(*) FILTER (WHERE NOT is_accepted) AS rejected
                        FROM payment_feed_line WHERE feed_id = f.feed_id) l
    WHERE f.feed_id = $1";

const ITEMS: &str = "SELECT items FROM payment_feed WHERE feed_id = $1";

const ACCEPTED: &str = "
    SELECT item_no, payment_id, is_dropped FROM payment_feed_line WHERE feed_id = $1 AND item_no = ANY ($2) AND is_accepted ORDER BY item_no";

const RECORD: &str = "SELECT payment_feed_record($1, $2, $3, $4, $5, $6, $7, $8, $9)";

/// Opens a feed, or finds it open; whether it is new.
///
/// # Errors
/// [`StoreError::Conflict`] if another file has its name; errors of the database.
pub async fn open(store: &Store, new: NewFeed<'_>) -> Result<bool, StoreError> {
    let conn = store.api().await?;
    let statement = conn.prepare_cached(OPEN).await?;
    let sha256 = new.sha256.as_slice();
    let parameters: [&(dyn ToSql + Sync); 6] =
        [&new.feed_id, &new.format.as_str(), &new.name, &sha256, &new.items, &new.actor];
    let opened = conn.execute(&statement, &parameters).await? == 1;
    conn.ok();
    if opened {
        return Ok(true);
    }
    let found = get(store, new.feed_id).await?;
    let found = found.ok_or_else(|| StoreError::Unreadable { detail: format!("feed {} is gone", new.feed_id) })?;
    let same = found.sha256 == sha256 && found.format == new.format && i64::try_from(found.items) == Ok(new.items);
    if same {
        return Ok(false);
    }
    let detail = format!("feed {} is another file: {}, SHA-256 {}…", new.feed_id, found.name, hex(&found.sha256));
    Err(StoreError::Conflict { detail })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().take(6).map(|byte| format!("{byte:02x}")).collect()
}

/// A feed with its counts; none if there is none of this name.
///
/// # Errors
/// Errors of the database.
pub async fn get(store: &Store, feed_id: &str) -> Result<Option<Feed>, StoreError> {
    let conn = store.api().await?;
    let statement = conn.prepare_cached(GET).await?;
    let found = conn.query_opt(&statement, &[&feed_id]).await?;
    conn.ok();
    found.as_ref().map(feed).transpose()
}

fn feed(row: &Row) -> Result<Feed, StoreError> {
    Ok(Feed {
        feed_id: row.try_get("feed_id")?,
        format: word(row, "format", FeedFormat::parse)?,
        name: row.try_get("name")?,
        sha256: row.try_get("sha256")?,
        items: total(row, "items")?,
        accepted: total(row, "accepted")?,
        rejected: total(row, "rejected")?,
        created_by: row.try_get("created_by")?,
        created_at: row.try_get("created_at")?,
    })
}

/// How many instructions a feed holds; none if there is none of this name.
///
/// # Errors
/// Errors of the database.
pub async fn items(store: &Store, feed_id: &str) -> Result<Option<i64>, StoreError> {
    let conn = store.api().await?;
    let statement = conn.prepare_cached(ITEMS).await?;
    let found = conn.query_opt(&statement, &[&feed_id]).await?;
    conn.ok();
    Ok(found.map(|row| row.try_get(0)).transpose()?)
}

/// An instruction that was accepted before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    /// Which of the file.
    pub item: i64,
    /// As which payment.
    pub payment_id: String,
    /// That was completed, and has gone after its retention.
    pub is_dropped: bool,
}

/// Which of these instructions were accepted before.
///
/// # Errors
/// Errors of the database.
pub async fn accepted(store: &Store, feed_id: &str, items: &[i64]) -> Result<Vec<Known>, StoreError> {
    let conn = store.api().await?;
    let statement = conn.prepare_cached(ACCEPTED).await?;
    let rows = conn.query(&statement, &[&feed_id, &items]).await?;
    conn.ok();
    let known = |row: &Row| {
        let (item, payment_id) = (row.try_get("item_no")?, row.try_get("payment_id")?);
        Ok(Known { item, payment_id, is_dropped: row.try_get("is_dropped")? })
    };
    rows.iter().map(known).collect()
}

/// Writes down what became of these. What was accepted before stays as it is.
///
/// # Errors
/// [`StoreError::Repeat`] if the feed has just gone after its retention; errors of the database. Nothing is written then.
pub async fn record(store: &Store, feed_id: &str, lines: &[FeedLine]) -> Result<(), StoreError> {
    if lines.is_empty() {
        return Ok(());
    }
    let texts = |of: fn(&FeedLine) -> Option<&str>| lines.iter().map(of).collect::<Vec<Option<&str>>>();
    let numbers = |of: fn(&FeedLine) -> i64| lines.iter().map(of).collect::<Vec<i64>>();
    let accepted: Vec<bool> = lines.iter().map(|line| line.rejected.is_none()).collect();
    let conn = store.api().await?;
    let statement = conn.prepare_cached(RECORD).await?;
    let parameters: [&(dyn ToSql + Sync); 9] = [
        &feed_id,
        &numbers(|line| line.item),
        &numbers(|line| line.line),
        &accepted,
        &texts(|line| line.payment_id.as_deref()),
        &texts(|line| line.amount.as_ref().map(|(amount, _)| amount.as_str())),
        &texts(|line| line.amount.as_ref().map(|(_, currency)| currency.as_str())),
        &texts(|line| line.rejected.as_ref()?.0.as_deref()),
        &texts(|line| line.rejected.as_ref().map(|(_, reason)| reason.as_str())),
    ];
    conn.execute(&statement, &parameters).await?;
    conn.ok();
    Ok(())
}

/// Drops feeds that were opened at least so many days ago, each with its lines, once no payment of theirs is there any more.
/// How many went.
///
/// # Errors
/// Errors of the database; what has gone by then is gone.
pub async fn drop_old(store: &Store, days: i32) -> Result<u64, StoreError> {
    let mut dropped = 0;
    loop {
        // A feed goes as a whole, however long it is: nobody may see half of one.
        let conn = begin(store, &format!("SET LOCAL statement_timeout = {DROP_MS_MAX}")).await?;
        let result = drop_one(&conn, days).await;
        if !end(conn, result).await? {
            return Ok(dropped);
        }
        dropped += 1;
    }
}

async fn drop_one(conn: &Conn, days: i32) -> Result<bool, StoreError> {
    Ok(conn.query_one("SELECT drop_feed($1)", &[&days]).await?.try_get(0)?)
}
