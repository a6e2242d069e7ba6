//! Every instruction of a feed or of a day, accounted for: where each is, how much money that is, and what is missing.
//!
//! A feed's lines say what was accepted; each is held against its payment, its row in the queue and the place of its job
//! (`payment_standing`). A day is what was accepted on it, and what was rejected from feeds. All is of one snapshot. What
//! was completed and has gone after its retention is DELIVERED in its feed, and no longer part of its day.

use jiff::Timestamp;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use crate::connect::{Conn, Store};
use crate::error::StoreError;
use crate::row::{total, word};
use crate::transaction::{begin_read, end};

/// Longest statement, in milliseconds: shorter than a request may take.
const STATEMENT_MS_MAX: u32 = 25_000;

/// Where an instruction is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// It was not right, and is no payment.
    Rejected,
    /// Another line of the same feed is the same payment.
    Repeated,
    /// Waits for its time.
    Scheduled,
    /// The outbox has it, and will deliver it or try again.
    Dispatched,
    /// The rail has taken it.
    Delivered,
    /// Whether the rail has taken it is unknown.
    InDoubt,
    /// Stands behind something that a person has to decide about.
    Held,
    /// Ended without success.
    Dead,
    /// None of these: something is missing.
    Unaccounted,
}

/// All of them.
pub const STANDINGS: [Standing; 9] = [
    Standing::Rejected,
    Standing::Repeated,
    Standing::Scheduled,
    Standing::Dispatched,
    Standing::Delivered,
    Standing::InDoubt,
    Standing::Held,
    Standing::Dead,
    Standing::Unaccounted,
];

impl Standing {
    /// As stored and as sent.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Rejected => "REJECTED",
            Self::Repeated => "REPEATED",
            Self::Scheduled => "SCHEDULED",
            Self::Dispatched => "DISPATCHED",
            Self::Delivered => "DELIVERED",
            Self::InDoubt => "IN_DOUBT",
            Self::Held => "HELD",
            Self::Dead => "DEAD",
            Self::Unaccounted => "UNACCOUNTED",
        }
    }

    /// Reads what [`Standing::as_str`] wrote.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        STANDINGS.into_iter().find(|standing| standing.as_str() == text)
    }
}

/// What is to be accounted for.
#[derive(Clone, Copy, Debug)]
pub enum Of<'a> {
    /// A feed's instructions.
    Feed(&'a str),
    /// What was accepted or rejected from a moment on and before another.
    Between(Timestamp, Timestamp),
}

/// Money in one currency that stands in one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sum {
    /// Where.
    pub standing: Standing,
    /// ISO 4217; none where it could not be read.
    pub currency: Option<String>,
    /// Instructions.
    pub count: u64,
    /// Decimal text; none where no amount could be read.
    pub amount: Option<String>,
}

/// An instruction that nothing accounts for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unaccounted {
    /// Its feed, if it is of one.
    pub feed_id: Option<String>,
    /// Which of the feed.
    pub item: Option<i64>,
    /// The line that it begins in.
    pub line: Option<i64>,
    /// Its id, if it was accepted.
    pub payment_id: Option<String>,
    /// What is missing.
    pub reason: String,
}

/// A payment that goes on by a person's decision alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Its id.
    pub payment_id: String,
    /// IN_DOUBT, HELD or DEAD.
    pub standing: Standing,
    /// Why.
    pub reason: Option<String>,
}

/// How it stands with a feed or a day.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reconciled {
    /// By standing and currency.
    pub sums: Vec<Sum>,
    /// Instructions of feeds that were not answered.
    pub unanswered: u64,
    /// At most a hundred of those that nothing accounts for, and as many that were not answered.
    pub unaccounted: Vec<Unaccounted>,
    /// At most a hundred of each standing.
    pub waiting: Vec<Waiting>,
}

impl Reconciled {
    /// How many instructions nothing accounts for.
    #[must_use]
    pub fn unaccounted_count(&self) -> u64 {
        let lost = self.sums.iter().filter(|sum| sum.standing == Standing::Unaccounted).map(|sum| sum.count);
        self.unanswered + lost.sum::<u64>()
    }
}

/// `judged` of a feed.
const FEED: &str = "
    WITH line AS MATERIALIZED (
      SELECT l.item_no, l.line_no, l.payment_id, l.is_accepted, l.amount, l.currency, l.is_dropped,
        l.is_accepted AND row_number() OVER (PARTITION BY l.is_accepted, l.payment_id ORDER BY l.item_no) > 1 AS repeated
      FROM payment_feed_line l WHERE l.feed_id = $1::text
    ), judged AS MATERIALIZED (
      SELECT $1::text AS feed_id, l.item_no, l.line_no, l.payment_id, l.amount, l.currency,
        CASE WHEN NOT l.is_accepted THEN 'REJECTED' WHEN l.repeated THEN 'REPEATED' WHEN l.is_dropped THEN 'DELIVERED'
             WHEN s.payment_id IS NULL THEN 'UNACCOUNTED'
             WHEN s.amount <> l.amount OR s.currency <> l.currency THEN 'UNACCOUNTED' ELSE s.standing END AS standing,
        CASE WHEN s.payment_id IS NULL THEN 'there is no such payment'
             WHEN s.amount <> l.amount OR s.currency <> l.currency THEN format('it is of another amount: %s %s', s.amount, s.currency)
             ELSE s.reason END AS reason
      FROM line l LEFT JOIN payment_standing s ON l.is_accepted AND s.payment_id = l.payment_id
    )";

/// `judged` of a stretch of time.
const BETWEEN: &str = "
    WITH judged AS MATERIALIZED (
      SELECT NULL::text AS feed_id, NULL::bigint AS item_no, NULL::bigint AS line_no, s.payment_id, s.amount, s.currency,
        s.standing, s.reason
      FROM payment_standing s WHERE s.created_at >= $1::timestamptz AND s.created_at < $2::timestamptz
      UNION ALL
      SELECT l.feed_id, l.item_no, l.line_no, l.payment_id, l.amount, l.currency,
        CASE WHEN l.is_accepted THEN 'UNACCOUNTED' ELSE 'REJECTED' END, 'there is no such payment'
      FROM payment_feed_line l WHERE l.recorded_at >= $1 AND l.recorded_at < $2
        AND (NOT l.is_accepted OR NOT l.is_dropped AND NOT EXISTS (SELECT 1 FROM payment p WHERE p.payment_id = l.payment_id))
      UNION ALL
      SELECT NULL, NULL, NULL, q.payment_id, NULL, NULL, 'UNACCOUNTED', 'it is in the queue and not among the payments'
      FROM payment_exec_queue q WHERE q.item_type = 'PAYMENT' AND q.created_at >= $1 AND q.created_at < $2
        AND NOT EXISTS (SELECT 1 FROM payment p WHERE p.payment_id = q.payment_id)
        AND NOT EXISTS (SELECT 1 FROM payment_feed_line l WHERE l.payment_id = q.payment_id AND l.is_accepted
                          AND l.recorded_at >= $1 AND l.recorded_at < $2)
    )";

/// Sums, and below them rows that a person should see.
const SHOW: &str = "
    SELECT NULL::bigint AS shown, standing, currency, count(*) AS count, sum(amount)::text AS amount,
      NULL::text AS feed_id, NULL::bigint AS item_no, NULL::bigint AS line_no, NULL::text AS payment_id, NULL::text AS reason
    FROM judged GROUP BY standing, currency
    UNION ALL
    SELECT n, standing, currency, 1, amount::text, feed_id, item_no, line_no, payment_id, reason
    FROM (SELECT j.*, row_number() OVER (PARTITION BY j.standing ORDER BY j.item_no, j.payment_id) AS n FROM judged j
          WHERE j.standing IN ('UNACCOUNTED', 'IN_DOUBT', 'HELD', 'DEAD')) k
    WHERE n <= 100
    ORDER BY shown NULLS FIRST, standing, currency";

/// Feeds that were not answered to their end.
const SHORT: &str = "
    SELECT feed_id, items, answered FROM (
      SELECT f.feed_id, f.items, (SELECT count(*) FROM payment_feed_line l WHERE l.feed_id = f.feed_id) AS answered
      FROM payment_feed f WHERE ";

/// Which of a feed's instructions were not answered.
const MISSING: &str = "
    SELECT n FROM generate_series(1::bigint, $2::bigint) AS n
    WHERE NOT EXISTS (SELECT 1 FROM payment_feed_line l WHERE l.feed_id = $1 AND l.item_no = n) ORDER BY n LIMIT 100";

/// Accounts for everything.
///
/// # Errors
/// [`StoreError::TooSlow`] if it took too long, and other errors of the database.
pub async fn reconcile(store: &Store, of: Of<'_>) -> Result<Reconciled, StoreError> {
    let conn = begin_read(store, STATEMENT_MS_MAX).await?;
    let result = reconcile_in(&conn, of).await;
    end(conn, result).await
}

async fn reconcile_in(conn: &Conn, of: Of<'_>) -> Result<Reconciled, StoreError> {
    let (judged, feeds): (&str, &str) = match &of {
        Of::Feed(_) => (FEED, "f.feed_id = $1"),
        Of::Between(..) => (BETWEEN, "f.created_at >= $1 AND f.created_at < $2"),
    };
    let parameters: Vec<&(dyn ToSql + Sync)> = match &of {
        Of::Feed(feed_id) => vec![feed_id],
        Of::Between(from, to) => vec![from, to],
    };
    let mut found = Reconciled::default();
    // Planned for these values: a feed has a handful of lines or a million.
    for row in conn.query(&format!("{judged}{SHOW}"), &parameters).await? {
        show(&mut found, &row)?;
    }
    for row in conn.query(&format!("{SHORT}{feeds}) s WHERE answered < items ORDER BY feed_id"), &parameters).await? {
        let (feed_id, items, answered): (String, u64, u64) =
            (row.try_get("feed_id")?, total(&row, "items")?, total(&row, "answered")?);
        found.unanswered += items - answered;
        let reason = format!("{} of its {items} instructions have not been answered", items - answered);
        match of {
            Of::Feed(_) => found.unaccounted.extend(missing(conn, &feed_id, items).await?),
            Of::Between(..) => {
                let feed_id = Some(feed_id);
                found.unaccounted.push(Unaccounted { feed_id, item: None, line: None, payment_id: None, reason });
            }
        }
    }
    Ok(found)
}

fn show(found: &mut Reconciled, row: &Row) -> Result<(), StoreError> {
    let standing = word(row, "standing", Standing::parse)?;
    if row.try_get::<_, Option<i64>>("shown")?.is_none() {
        let (currency, amount) = (row.try_get("currency")?, row.try_get("amount")?);
        found.sums.push(Sum { standing, currency, count: total(row, "count")?, amount });
        return Ok(());
    }
    let payment_id: Option<String> = row.try_get("payment_id")?;
    let reason: Option<String> = row.try_get("reason")?;
    match (standing, payment_id) {
        (Standing::Unaccounted, payment_id) => found.unaccounted.push(Unaccounted {
            feed_id: row.try_get("feed_id")?,
            item: row.try_get("item_no")?,
            line: row.try_get("line_no")?,
            payment_id,
            reason: reason.unwrap_or_default(),
        }),
        (standing, Some(payment_id)) => found.waiting.push(Waiting { payment_id, standing, reason }),
        (_, None) => {}
    }
    Ok(())
}

async fn missing(conn: &Conn, feed_id: &str, items: u64) -> Result<Vec<Unaccounted>, StoreError> {
    let items = i64::try_from(items).unwrap_or(i64::MAX);
    let rows = conn.query(MISSING, &[&feed_id, &items]).await?;
    let one = |row: &Row| -> Result<Unaccounted, StoreError> {
        let reason = "has not been answered".to_owned();
        let item = Some(row.try_get("n")?);
        Ok(Unaccounted { feed_id: Some(feed_id.to_owned()), item, line: None, payment_id: None, reason })
    };
    rows.iter().map(one).collect()
}
