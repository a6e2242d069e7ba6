//! A payment as it is sent: flat, so that a line of a file and a JSON object have the same names.

use railyard_core::payment::{
    END_TO_END_ID_CHARS_MAX, PARTY_NAME_CHARS_MAX, PAYMENT_ID_CHARS_MAX, Payment, PaymentRequest, REMITTANCE_CHARS_MAX,
    Step,
};
use utoipa::openapi::{Object, RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use crate::fields::Fields;
use crate::openapi::shape::{Shape, formed, time};
use crate::problem::Problem;

/// A payment's body.
pub(super) struct PaymentBody;

impl ToSchema for PaymentBody {}

/// Text without control characters that says something.
fn said(chars_max: usize) -> Object {
    formed(r"^[^\u0000-\u001f\u007f-\u009f]*[^\u0000-\u001f\u007f-\u009f\s][^\u0000-\u001f\u007f-\u009f]*$", chars_max)
}

fn iban() -> Object {
    formed("^[A-Z]{2}[0-9]{2}[0-9A-Za-z ]{11,38}$", 42)
}

fn bic() -> Object {
    formed("^[A-Z0-9]{4}[A-Z]{2}[A-Z0-9]{2}([A-Z0-9]{3})?$", 11)
}

impl PartialSchema for PaymentBody {
    fn schema() -> RefOr<Schema> {
        Shape::new(
            "A payment that is executed at its requested time (now, if that is missing or past) or soon after it, as the \
             limits allow, in order with the others of its debtor's account. The same `paymentId` with the same content is \
             the same payment.",
        )
        .required("paymentId", formed("^[A-Za-z0-9][A-Za-z0-9._:-]*$", PAYMENT_ID_CHARS_MAX))
        .required("debtorName", said(PARTY_NAME_CHARS_MAX))
        .required("debtorIban", iban())
        .optional("debtorBic", bic())
        .required("creditorName", said(PARTY_NAME_CHARS_MAX))
        .required("creditorIban", iban())
        .optional("creditorBic", bic())
        .required("amount", formed(r"^[0-9]+(\.[0-9]+)?$", 40))
        .required("currency", formed("^[A-Z]{3}$", 3))
        .optional("requestedTime", time())
        .optional("endToEndId", said(END_TO_END_ID_CHARS_MAX))
        .optional("remittanceInformation", said(REMITTANCE_CHARS_MAX))
        .into()
    }
}

/// A payment whose fields are right.
///
/// # Errors
/// 400 with everything that is wrong.
pub(super) fn read(mut fields: Fields<'_>) -> Result<Payment, Problem> {
    let mut text = |field: &str| fields.text(field);
    let request = PaymentRequest {
        payment_id: text("paymentId").unwrap_or_default(),
        debtor_name: text("debtorName").unwrap_or_default(),
        debtor_iban: text("debtorIban").unwrap_or_default(),
        debtor_bic: text("debtorBic"),
        creditor_name: text("creditorName").unwrap_or_default(),
        creditor_iban: text("creditorIban").unwrap_or_default(),
        creditor_bic: text("creditorBic"),
        amount: text("amount").unwrap_or_default(),
        currency: text("currency").unwrap_or_default(),
        end_to_end_id: text("endToEndId"),
        remittance_information: text("remittanceInformation"),
        requested_time: fields.time("requestedTime"),
    };
    let (payment, found) = match request.validate() {
        Ok(payment) => (Some(payment), Ok(())),
        Err(errors) => (None, Err(errors)),
    };
    fields.checked(found).map_err(|problem| problem.at(Step::Validate))?;
    payment.ok_or_else(Problem::internal)
}
