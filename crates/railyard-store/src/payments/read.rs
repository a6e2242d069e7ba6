//! A payment as it stands, with its place in the queue.

use jiff::Timestamp;
use railyard_core::payment::{PaymentStatus, QueueStatus};
use railyard_core::{OutboxId, ParticipantId};
use tokio_postgres::Row;
use uuid::Uuid;

use super::PAYMENT;
use crate::connect::Store;
use crate::error::StoreError;
use crate::feeds::Standing;
use crate::row::{count, word};

/// What is shown of a payment; `$1` is the item type. `WHERE` or further joins come behind it.
pub(super) const COLUMNS: &str = "
    SELECT p.payment_id, p.status, p.group_id, p.amount::text AS amount, p.currency, p.debtor_name, p.debtor_iban,
      p.debtor_bic, p.creditor_name, p.creditor_iban, p.creditor_bic, p.end_to_end_id, p.remittance_information,
      p.requested_time, p.accepted_by, p.created_at, q.queue_status, q.scheduled_exec_time, q.acceptance_no, q.retry_count,
      q.last_error, q.dispatched_at, q.completed_at, s.job_id, s.standing, s.reason, s.until
    FROM payment p JOIN payment_exec_queue q ON q.item_type = $1 AND q.payment_id = p.payment_id
    JOIN payment_standing s ON s.payment_id = p.payment_id";

/// A payment and its row in the queue.
#[derive(Clone, PartialEq)]
pub struct PaymentRow {
    /// The caller's id.
    pub payment_id: String,
    /// As its parties see it.
    pub status: PaymentStatus,
    /// Where it is in the queue.
    pub queue_status: QueueStatus,
    /// Its debtor's group.
    pub group: ParticipantId,
    /// Decimal text.
    pub amount: String,
    /// ISO 4217.
    pub currency: String,
    /// Name, account, bank.
    pub debtor: (String, String, Option<String>),
    /// Name, account, bank.
    pub creditor: (String, String, Option<String>),
    /// What the parties call it.
    pub end_to_end_id: Option<String>,
    /// What it is for.
    pub remittance_information: Option<String>,
    /// Not before.
    pub requested: Timestamp,
    /// When it is to be executed.
    pub scheduled: Timestamp,
    /// Its place in the order in which its group's payments were accepted.
    pub acceptance_no: i64,
    /// Where it is in the words of whoever has to account for it.
    pub standing: Standing,
    /// Why it is not further.
    pub reason: Option<String>,
    /// Until when, where somebody knows.
    pub until: Option<Timestamp>,
    /// The job of the step that it is at, or was at last.
    pub job: Option<OutboxId>,
    /// How often it was not handed over.
    pub retry_count: u32,
    /// Why it is where it is.
    pub last_error: Option<String>,
    /// When it was handed over.
    pub dispatched_at: Option<Timestamp>,
    /// When it was executed.
    pub completed_at: Option<Timestamp>,
    /// Who asked for it.
    pub accepted_by: String,
    /// When it was accepted.
    pub created_at: Timestamp,
}

/// A payment; none if it was never accepted.
///
/// # Errors
/// Errors of the database.
pub async fn get(store: &Store, payment_id: &str) -> Result<Option<PaymentRow>, StoreError> {
    let conn = store.api().await?;
    let statement = conn.prepare_cached(&format!("{COLUMNS} WHERE p.payment_id = $2")).await?;
    let found = conn.query_opt(&statement, &[&PAYMENT, &payment_id]).await?;
    conn.ok();
    found.as_ref().map(row).transpose()
}

pub(super) fn row(row: &Row) -> Result<PaymentRow, StoreError> {
    let party = |side: &str| -> Result<(String, String, Option<String>), StoreError> {
        let [name, iban, bic] = ["name", "iban", "bic"].map(|part| format!("{side}_{part}"));
        Ok((row.try_get(name.as_str())?, row.try_get(iban.as_str())?, row.try_get(bic.as_str())?))
    };
    Ok(PaymentRow {
        payment_id: row.try_get("payment_id")?,
        status: word(row, "status", PaymentStatus::parse)?,
        queue_status: word(row, "queue_status", QueueStatus::parse)?,
        group: ParticipantId::new(row.try_get::<_, String>("group_id")?),
        amount: row.try_get("amount")?,
        currency: row.try_get("currency")?,
        debtor: party("debtor")?,
        creditor: party("creditor")?,
        end_to_end_id: row.try_get("end_to_end_id")?,
        remittance_information: row.try_get("remittance_information")?,
        requested: row.try_get("requested_time")?,
        scheduled: row.try_get("scheduled_exec_time")?,
        acceptance_no: row.try_get("acceptance_no")?,
        standing: word(row, "standing", Standing::parse)?,
        reason: row.try_get("reason")?,
        until: row.try_get("until")?,
        job: row.try_get::<_, Option<Uuid>>("job_id")?.map(OutboxId),
        retry_count: count(row, "retry_count")?,
        last_error: row.try_get("last_error")?,
        dispatched_at: row.try_get("dispatched_at")?,
        completed_at: row.try_get("completed_at")?,
        accepted_by: row.try_get("accepted_by")?,
        created_at: row.try_get("created_at")?,
    })
}
