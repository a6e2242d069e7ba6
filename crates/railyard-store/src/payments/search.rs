//! Payments by what they are and where they stand, newest first: a page by number with totals, or a walk by a place.
//!
//! The order is that of (`created_at`, id), neither of which ever changes, so a page neither skips nor repeats a payment
//! while payments move on. Page, total and payments are of one snapshot.

use jiff::Timestamp;
use railyard_core::ParticipantId;
use railyard_core::payment::{PaymentStatus, QueueStatus};
use tokio_postgres::types::ToSql;

use super::PAYMENT;
use super::read::{COLUMNS, PaymentRow, row};
use crate::connect::{Conn, Store};
use crate::error::StoreError;
use crate::row::total;
use crate::transaction::{begin_read, end};

/// Most payments of one page.
pub const PAGE_SIZE_MAX: u32 = 100;
/// Longest search, in milliseconds.
const STATEMENT_MS_MAX: u32 = 10_000;

/// What to look for; everything that is given must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// As its parties see it.
    pub status: Option<PaymentStatus>,
    /// Where it is in the queue.
    pub queue_status: Option<QueueStatus>,
    /// Its debtor's group.
    pub group: Option<ParticipantId>,
    /// Asked for at this moment or later.
    pub requested_after: Option<Timestamp>,
    /// Asked for before this moment.
    pub requested_before: Option<Timestamp>,
}

/// A payment's place in the list: when it was accepted, and its id.
pub type Place = (Timestamp, String);

/// Which part of what is found. Sizes are clamped to 1 … [`PAGE_SIZE_MAX`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Page {
    /// By number, from 0, with the total.
    Number {
        /// Which.
        page: u32,
        /// Payments of a page.
        size: u32,
    },
    /// Behind a place, or from the newest on: counts nothing.
    After {
        /// That of the last payment of the page before.
        place: Option<Place>,
        /// Payments of a page.
        size: u32,
    },
}

/// A page.
#[derive(Clone, PartialEq)]
pub struct Found {
    /// Newest first.
    pub payments: Vec<PaymentRow>,
    /// How many there are in all, where the page was asked for by number.
    pub total: Option<u64>,
    /// Behind which place the next page begins, if there is more.
    pub next: Option<Place>,
}

const FROM: &str = "
    FROM payment p JOIN payment_exec_queue q ON q.item_type = $1 AND q.payment_id = p.payment_id
    WHERE ($2::text IS NULL OR p.status = $2) AND ($3::text IS NULL OR q.queue_status = $3)
      AND ($4::text IS NULL OR p.group_id = $4) AND ($5::timestamptz IS NULL OR p.requested_time >= $5)
      AND ($6::timestamptz IS NULL OR p.requested_time < $6)";

const BEHIND: &str = " AND ($7::timestamptz IS NULL OR (p.created_at, p.payment_id) < ($7, $8::text COLLATE \"C\"))
    ORDER BY p.created_at DESC, p.payment_id DESC LIMIT $9 OFFSET $10";

/// Looks.
///
/// # Errors
/// [`StoreError::TooSlow`] if it took too long, and other errors of the database.
pub async fn search(store: &Store, filter: &Filter, page: &Page) -> Result<Found, StoreError> {
    let conn = begin_read(store, STATEMENT_MS_MAX).await?;
    let result = search_in(&conn, filter, page).await;
    end(conn, result).await
}

async fn search_in(conn: &Conn, filter: &Filter, page: &Page) -> Result<Found, StoreError> {
    let (at, id, size, offset) = match page {
        Page::Number { page, size } => (None, None, clamped(*size), i64::from(*page) * clamped(*size)),
        Page::After { place: None, size } => (None, None, clamped(*size), 0),
        Page::After { place: Some((at, id)), size } => (Some(*at), Some(id.as_str()), clamped(*size), 0),
    };
    let status = filter.status.map(PaymentStatus::as_str);
    let queue_status = filter.queue_status.map(QueueStatus::as_str);
    let group = filter.group.as_ref().map(ParticipantId::as_str);
    let of_filter: [&(dyn ToSql + Sync); 6] =
        [&PAYMENT, &status, &queue_status, &group, &filter.requested_after, &filter.requested_before];
    let total = match page {
        // Planned for these values: where to begin depends on them.
        Page::Number { .. } => {
            let row = conn.query_one(&format!("SELECT count(*) AS total {FROM}"), &of_filter).await?;
            Some(total(&row, "total")?)
        }
        Page::After { .. } => None,
    };
    // One more than the page tells whether there is more.
    let limit = size + 1;
    let mut parameters = of_filter.to_vec();
    parameters.extend([&at as &(dyn ToSql + Sync), &id, &limit, &offset]);
    // What is shown of each is looked up for those of the page alone.
    let sql = format!(
        "WITH page AS MATERIALIZED (SELECT p.payment_id AS id {FROM}{BEHIND})
         {COLUMNS} JOIN page ON page.id = p.payment_id ORDER BY p.created_at DESC, p.payment_id DESC"
    );
    let rows = conn.query(&sql, &parameters).await?;
    let mut payments = rows.iter().map(row).collect::<Result<Vec<PaymentRow>, StoreError>>()?;
    let more = i64::try_from(payments.len()).is_ok_and(|found| found > size);
    if more {
        payments.pop();
    }
    let place = |last: &PaymentRow| (last.created_at, last.payment_id.clone());
    let next = payments.last().filter(|_| more).map(place);
    Ok(Found { payments, total, next })
}

fn clamped(size: u32) -> i64 {
    i64::from(size.clamp(1, PAGE_SIZE_MAX))
}
