//! `/admin/dispatch`: how scheduled items are dispatched, what dispatchers did, and another run for what was given up.

mod log;
mod settings;

use axum::Json;
use axum::extract::State;
use railyard_store::dispatch::{self, Requeue};
use railyard_store::holds::Decision;
use railyard_store::payments::PAYMENT;
use serde::Serialize;
use utoipa::openapi::{Object, RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::auth::{Caller, Decide};
use crate::body::JsonBody;
use crate::fields::Fields;
use crate::groups::reason;
use crate::openapi::Conflict;
use crate::openapi::shape::{Shape, formed, named};
use crate::problem::Problem;
use crate::query::Named;
use crate::state::ApiState;

/// An item type's name.
const TYPE_FORM: &str = "^[A-Z][A-Z0-9_]*$";
const TYPE_CHARS_MAX: usize = 32;
const REASON_CHARS_MAX: usize = railyard_store::holds::REASON_CHARS_MAX;

pub(crate) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new().merge(settings::routes()).merge(log::routes()).routes(routes!(requeue))
}

/// An item type's name, as a field and as a parameter.
fn item_type() -> Object {
    formed(TYPE_FORM, TYPE_CHARS_MAX)
}

fn is_item_type(text: &str) -> bool {
    let known = |b: u8| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_';
    text.len() <= TYPE_CHARS_MAX
        && text.bytes().next().is_some_and(|first| first.is_ascii_uppercase())
        && text.bytes().all(known)
}

/// Why.
struct RequeueBody;

impl ToSchema for RequeueBody {}

impl PartialSchema for RequeueBody {
    fn schema() -> RefOr<Schema> {
        Shape::new("Why it gets another run; of a payment, if no type is named.")
            .required("reason", named(REASON_CHARS_MAX))
            .optional("itemType", item_type())
            .into()
    }
}

/// The item waits for a dispatcher again.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct Requeued {
    requeued: bool,
}

/// Give an item that ended without success another run, from the step at which it did.
#[utoipa::path(post, path = "/admin/dispatch/dead-letters/{id}/requeue", tag = "payments", operation_id = "requeueDeadLetter",
    params(("id" = String, Path, description = "The item's id: a payment's `paymentId`")), request_body = RequeueBody,
    responses((status = 200, description = "It is READY; its group may still be held by the job that failed", body = Requeued),
        Conflict))]
async fn requeue(
    caller: Caller<Decide>,
    State(state): State<ApiState>,
    Named(id): Named,
    body: JsonBody,
) -> Result<Json<Requeued>, Problem> {
    let mut fields = Fields::parse(&body.bytes)?;
    let reason = reason(&mut fields);
    let of = fields.text("itemType").unwrap_or_else(|| PAYMENT.to_owned());
    if !is_item_type(&of) {
        fields.error("itemType", "is not 1 to 32 capital letters, digits and underscores");
    }
    fields.finish()?;
    if id.contains('\0') {
        return Err(Problem::not_found("no item has this id"));
    }
    match dispatch::requeue(state.store(), &of, &id, Decision { actor: &caller.name, reason: &reason }).await? {
        Requeue::Done => Ok(Json(Requeued { requeued: true })),
        Requeue::NotEnded(status) => {
            Err(Problem::conflict(format!("it has not ended without success: it is {}", status.as_str())))
        }
        Requeue::Refused(why) => Err(Problem::conflict(format!("a new run would be once too often: {why}"))),
        Requeue::Unknown => Err(Problem::not_found("no item of this type has this id")),
    }
}
