//! `/api/payments/batch`: many payments in one request, each answered for itself.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use railyard_core::payment::{Payment, Step};
use railyard_core::text::clean_str;
use railyard_core::timestamp::utc_millis;
use railyard_store::payments::{self, Accepted};
use serde::Serialize;
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use super::request::{self, PaymentBody};
use super::view;
use crate::auth::{Caller, Produce};
use crate::body::BatchBody;
use crate::fields::Fields;
use crate::items::{self, ItemStatus};
use crate::openapi::words;
use crate::problem::{FieldDocument, Problem};
use crate::state::ApiState;

/// Characters that are kept of why a payment was refused.
const REASON_CHARS_MAX: usize = 4000;

/// Many payments in one of three forms.
pub(super) struct PaymentBatch;

impl ToSchema for PaymentBatch {}

impl PartialSchema for PaymentBatch {
    fn schema() -> RefOr<Schema> {
        items::batch_of(&PaymentBody::schema(), "payments")
    }
}

/// What became of one payment.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = PaymentResult)]
pub(super) struct ResultView {
    /// As it was sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) payment_id: Option<String>,
    pub(super) status: ItemStatus,
    /// At which step it ended, if it was not accepted.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(schema_with = words::payment_step)]
    step: Option<&'static str>,
    /// Why, in one line.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    /// Each field that is wrong.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(inline)]
    errors: Vec<FieldDocument>,
    /// When it is to be executed, if this call has accepted it.
    #[serde(skip_serializing_if = "Option::is_none")]
    scheduled_time: Option<String>,
}

/// Results in the order of the payments, and how many were accepted.
#[derive(Serialize, ToSchema)]
#[schema(as = PaymentBatchResult)]
pub(super) struct BatchView {
    results: Vec<ResultView>,
    count: usize,
}

/// Schedule many payments, each answered for itself.
#[utoipa::path(post, path = "/api/payments/batch", tag = "payments", operation_id = "createPayments",
    request_body = PaymentBatch,
    responses(
        (status = 201, description = "At least one was accepted; each result says what became of its payment",
            body = BatchView),
        (status = 200, description = "None was accepted; each result says why", body = BatchView)))]
pub(super) async fn create_batch(
    caller: Caller<Produce>,
    State(state): State<ApiState>,
    body: BatchBody,
) -> Result<Response, Problem> {
    let mut good: Vec<Payment> = Vec::new();
    let mut read: Vec<Result<String, ResultView>> = Vec::new();
    for item in items::read(&body.bytes, "payments")? {
        read.push(match read_item(item.get())? {
            Ok(payment) => {
                let id = payment.payment_id.clone();
                good.push(payment);
                Ok(id)
            }
            Err(refused) => Err(refused),
        });
    }
    let mut accepted = payments::accept(state.store(), &good, &caller.name).await.into_iter();
    // Its share of the memory stands for the payments as well, which are no longer needed here.
    drop(body);
    let mut results = Vec::with_capacity(read.len());
    for item in read {
        results.push(match item {
            Ok(id) => ResultView::of(id, accepted.next().ok_or_else(Problem::internal)?)?,
            Err(refused) => refused,
        });
    }
    let count = results.iter().filter(|result| result.status == ItemStatus::Success).count();
    let status = if count > 0 { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, Json(BatchView { results, count })).into_response())
}

/// A payment, or the answer to what is none.
fn read_item(text: &str) -> Result<Result<Payment, ResultView>, Problem> {
    let fields = match Fields::parse(text.as_bytes()) {
        Ok(fields) => fields,
        Err(problem) => return ResultView::of_problem(None, problem.at(Step::Validate)).map(Err),
    };
    let id = fields.peek_text("paymentId").filter(|id| id.len() <= 255);
    match request::read(fields) {
        Ok(payment) => Ok(Ok(payment)),
        Err(problem) => ResultView::of_problem(id, problem).map(Err),
    }
}

impl ResultView {
    pub(super) fn of(id: String, answer: Accepted) -> Result<Self, Problem> {
        let plain = |status, scheduled_time| Self {
            payment_id: Some(id.clone()),
            status,
            step: None,
            error: None,
            errors: Vec::new(),
            scheduled_time,
        };
        match answer {
            Accepted::Enqueued(place) => Ok(plain(ItemStatus::Success, Some(utc_millis(place.scheduled)))),
            Accepted::Repeated => Ok(plain(ItemStatus::Skipped, None)),
            Accepted::Conflict => {
                let mut result = Self::of_problem(Some(id), view::problem(answer))?;
                let detail = "was used before for other content".to_owned();
                result.errors.push(FieldDocument { field: "paymentId".to_owned(), detail });
                Ok(result)
            }
            other @ (Accepted::Refused { .. } | Accepted::Later { .. } | Accepted::Failed { .. }) => {
                Self::of_problem(Some(id), view::problem(other))
            }
        }
    }

    /// # Errors
    /// The problem itself, if it is of a kind that no payment of its own can have.
    pub(super) fn of_problem(payment_id: Option<String>, problem: Problem) -> Result<Self, Problem> {
        let status = match problem.status() {
            StatusCode::BAD_REQUEST | StatusCode::PAYLOAD_TOO_LARGE | StatusCode::CONFLICT => ItemStatus::BadRequest,
            StatusCode::SERVICE_UNAVAILABLE => ItemStatus::Retry,
            StatusCode::INTERNAL_SERVER_ERROR => ItemStatus::InternalError,
            _ => return Err(problem),
        };
        let step = problem.step();
        let detail = problem.detail().to_owned();
        let errors = problem.into_errors();
        let said: Vec<String> = errors.iter().map(|one| format!("{}: {}", one.field, one.detail)).collect();
        let error = Some(if said.is_empty() { detail } else { said.join("; ") });
        let errors = errors.into_iter().map(FieldDocument::from).collect();
        Ok(Self { payment_id, status, step, error, errors, scheduled_time: None })
    }
    /// What whoever read the file could make nothing of.
    pub(super) fn refused(payment_id: Option<String>, reason: String, errors: Vec<FieldDocument>) -> Self {
        let (status, step, error) = (ItemStatus::BadRequest, Some(Step::Validate.as_str()), Some(reason));
        Self { payment_id, status, step, error, errors, scheduled_time: None }
    }

    /// The first field that is wrong, if one is, and everything that is wrong in one line.
    pub(super) fn why(&self) -> (Option<String>, String) {
        let Some((first, others)) = self.errors.split_first() else {
            return (None, self.error.clone().unwrap_or_default());
        };
        let others: String = others.iter().map(|one| format!("; {}: {}", one.field, one.detail)).collect();
        (Some(first.field.clone()), clean_str(&format!("{}{others}", first.detail), REASON_CHARS_MAX))
    }
}
