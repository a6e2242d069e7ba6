//! What phase A leaves for the execution: JSON, written once, read with the claim.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::instruction::Party;
use super::rules::Planned;
use crate::timestamp::utc_millis;

/// The version of what [`context`] writes.
pub const CONTEXT_VERSION: i32 = 1;

/// Everything that the execution needs, so that nothing is looked up again. `instruction` is what a rail is sent.
#[must_use]
pub fn context(planned: &Planned, accepted_at: Timestamp) -> Value {
    json!({
        "paymentId": planned.payment.payment_id,
        "group": planned.payment.group().as_str(),
        "requestedTime": utc_millis(planned.requested),
        "movedByCutOff": planned.moved,
        "acceptedAt": utc_millis(accepted_at),
        "instruction": instruction(planned),
    })
}

/// A payment rail's payload (S2): amount, currency, destination, and the rest by its names.
fn instruction(planned: &Planned) -> Value {
    let payment = &planned.payment;
    let mut fields = Map::new();
    fields.insert("paymentId".to_owned(), payment.payment_id.as_str().into());
    fields.insert("amount".to_owned(), payment.amount.to_string().into());
    fields.insert("currency".to_owned(), payment.amount.currency().code().into());
    fields.insert("destination".to_owned(), payment.creditor.iban.as_str().into());
    fields.insert("debtor".to_owned(), party(&payment.debtor));
    fields.insert("creditor".to_owned(), party(&payment.creditor));
    for (name, value) in
        [("endToEndId", &payment.end_to_end_id), ("remittanceInformation", &payment.remittance_information)]
    {
        if let Some(value) = value {
            fields.insert(name.to_owned(), value.as_str().into());
        }
    }
    Value::Object(fields)
}

fn party(party: &Party) -> Value {
    let mut fields = Map::new();
    fields.insert("name".to_owned(), party.name.as_str().into());
    fields.insert("iban".to_owned(), party.iban.as_str().into());
    if let Some(bic) = &party.bic {
        fields.insert("bic".to_owned(), bic.as_str().into());
    }
    Value::Object(fields)
}
