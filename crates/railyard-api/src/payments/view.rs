//! What is told of a payment.

use railyard_core::OutboxId;
use railyard_core::payment::Step;
use railyard_core::timestamp::utc_millis;
use railyard_store::payments::{Accepted, PaymentRow};
use serde::Serialize;
use utoipa::ToSchema;

use crate::openapi::words;
use crate::problem::Problem;

/// What became of a request to schedule a payment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub(super) enum InitResult {
    /// It waits for its time.
    Enqueued,
    /// The same was accepted before.
    Known,
}

/// One side of a payment.
#[derive(Serialize, ToSchema)]
#[schema(as = PaymentParty)]
struct PartyView {
    name: String,
    iban: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    bic: Option<String>,
}

impl PartyView {
    fn of((name, iban, bic): (String, String, Option<String>)) -> Self {
        Self { name, iban, bic }
    }
}

/// A payment and its place in the queue.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Payment)]
pub(super) struct PaymentView {
    payment_id: String,
    /// As its parties see it.
    #[schema(schema_with = words::payment_status)]
    status: &'static str,
    /// Where it is in the queue.
    #[schema(schema_with = words::queue_status)]
    queue_status: &'static str,
    /// Payments of this group are executed in order.
    group_id: String,
    /// Its place in the order in which its group's payments were accepted.
    acceptance_no: String,
    amount: String,
    currency: String,
    debtor: PartyView,
    creditor: PartyView,
    #[serde(skip_serializing_if = "Option::is_none")]
    end_to_end_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    remittance_information: Option<String>,
    /// Not before; a cut-off may have moved it.
    requested_time: String,
    /// When it is to be executed.
    scheduled_time: String,
    /// Where it is, in the words of a reconciliation.
    #[schema(schema_with = words::standing)]
    standing: &'static str,
    /// Why it is not further.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// Until when that holds; absent where nobody knows, or a person decides.
    #[serde(skip_serializing_if = "Option::is_none")]
    until: Option<String>,
    /// The job of the step that it is at.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<uuid::Uuid>)]
    job_id: Option<OutboxId>,
    /// How often it was not handed over.
    retry_count: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dispatched_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    completed_at: Option<String>,
    created_at: String,
    /// Whose token it was.
    created_by: String,
}

impl PaymentView {
    pub(super) fn of(row: PaymentRow) -> Self {
        Self {
            payment_id: row.payment_id,
            status: row.status.as_str(),
            queue_status: row.queue_status.as_str(),
            group_id: row.group.to_string(),
            acceptance_no: row.acceptance_no.to_string(),
            amount: row.amount,
            currency: row.currency,
            debtor: PartyView::of(row.debtor),
            creditor: PartyView::of(row.creditor),
            end_to_end_id: row.end_to_end_id,
            remittance_information: row.remittance_information,
            requested_time: utc_millis(row.requested),
            scheduled_time: utc_millis(row.scheduled),
            standing: row.standing.as_str(),
            reason: row.reason,
            until: row.until.map(utc_millis),
            job_id: row.job,
            retry_count: row.retry_count,
            last_error: row.last_error,
            dispatched_at: row.dispatched_at.map(utc_millis),
            completed_at: row.completed_at.map(utc_millis),
            created_at: utc_millis(row.created_at),
            created_by: row.accepted_by,
        }
    }
}

/// A payment that was asked for.
#[derive(Serialize, ToSchema)]
pub(super) struct PaymentAnswer {
    pub(super) result: InitResult,
    #[serde(flatten)]
    pub(super) payment: PaymentView,
}

/// The answer to a payment that was not accepted.
pub(super) fn problem(answer: Accepted) -> Problem {
    match answer {
        Accepted::Enqueued(_) | Accepted::Repeated => Problem::internal(),
        Accepted::Conflict => Problem::key_reused("paymentId", None),
        Accepted::Refused { step, errors } => Problem::fields(errors).at(step),
        Accepted::Later { step, detail } => Problem::unavailable(detail).at(step),
        Accepted::Failed { step, detail } => failed(step, &detail),
    }
}

fn failed(step: Step, detail: &str) -> Problem {
    tracing::error!(step = step.as_str(), detail, "a payment could not be accepted");
    Problem::internal().at(step)
}
