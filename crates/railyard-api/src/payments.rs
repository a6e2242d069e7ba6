//! `/api/payments`: scheduled payments (S0). A payment is accepted at once, held as a row and executed when its time comes.

mod batch;
mod feed;
mod list;
mod reconcile;
mod request;
mod view;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::LOCATION;
use axum::response::{IntoResponse, Response};
use railyard_core::payment::is_payment_id;
use railyard_store::payments::{self, Accepted};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::auth::{Caller, Produce, ReadJobs};
use crate::body::JsonBody;
use crate::fields::Fields;
use crate::openapi::Conflict;
use crate::problem::Problem;
use crate::query::Named;
use crate::state::ApiState;
use request::PaymentBody;
use view::{InitResult, PaymentAnswer, PaymentView};

const ROOT: &str = "/api/payments";

pub(crate) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new()
        .routes(routes!(create, list::list))
        .routes(routes!(batch::create_batch))
        .routes(routes!(read))
        .merge(feed::routes())
        .merge(reconcile::routes())
}

/// Schedule a payment.
#[utoipa::path(post, path = "/api/payments", tag = "payments", operation_id = "createPayment",
    request_body = PaymentBody,
    responses(
        (status = 201, description = "It is SCHEDULED, and READY in the queue", body = PaymentAnswer,
            headers(("Location" = String))),
        (status = 200, description = "The same content was accepted under its id before: as it stands now",
            body = PaymentAnswer),
        Conflict))]
async fn create(caller: Caller<Produce>, State(state): State<ApiState>, body: JsonBody) -> Result<Response, Problem> {
    let payment = request::read(Fields::parse(&body.bytes)?)?;
    drop(body);
    let answer = payments::accept(state.store(), std::slice::from_ref(&payment), &caller.name).await.pop();
    let result = match answer.ok_or_else(Problem::internal)? {
        Accepted::Enqueued(_) => InitResult::Enqueued,
        Accepted::Repeated => InitResult::Known,
        refused
        @ (Accepted::Conflict | Accepted::Refused { .. } | Accepted::Later { .. } | Accepted::Failed { .. }) => {
            return Err(view::problem(refused));
        }
    };
    let id = payment.payment_id;
    let row = payments::get(state.store(), &id).await?.ok_or_else(Problem::internal)?;
    let answer = Json(PaymentAnswer { result, payment: PaymentView::of(row) });
    Ok(match result {
        InitResult::Enqueued => (StatusCode::CREATED, [(LOCATION, format!("{ROOT}/{id}"))], answer).into_response(),
        InitResult::Known => answer.into_response(),
    })
}

/// A payment as it stands, with its place in the queue.
#[utoipa::path(get, path = "/api/payments/{id}", tag = "payments", operation_id = "getPayment",
    params(("id" = String, Path, description = "Its `paymentId`")),
    responses((status = 200, description = "It", body = PaymentView)))]
async fn read(
    _: Caller<ReadJobs>,
    State(state): State<ApiState>,
    Named(id): Named,
) -> Result<Json<PaymentView>, Problem> {
    let found = match is_payment_id(&id) {
        true => payments::get(state.store(), &id).await?,
        // What is not an id is the id of nothing.
        false => None,
    };
    let row = found.ok_or_else(|| Problem::not_found("no payment has this id"))?;
    Ok(Json(PaymentView::of(row)))
}
