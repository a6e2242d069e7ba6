//! Payments: what is checked before money moves (S2), and how a scheduled payment becomes one that waits for its time
//! (S0, phase A).
//!
//! A request is validated, enriched, held against the rules and given a context, all here and without any means; the
//! store gives it its slot, writes it down and enqueues it. [`Step`] names what is done in which order.

mod amount;
mod bank;
mod check;
mod context;
mod instruction;
mod rules;
mod status;
mod step;

#[cfg(test)]
mod tests;

pub use amount::{AMOUNT_DIGITS_MAX, Amount, Currency};
pub use bank::{Bic, Iban};
pub use check::{Refusal, check};
pub use context::{CONTEXT_VERSION, context};
pub use instruction::{
    END_TO_END_ID_CHARS_MAX, PARTY_NAME_CHARS_MAX, PAYMENT_ID_CHARS_MAX, Party, Payment, PaymentRequest,
    REMITTANCE_CHARS_MAX, debtor_group, is_payment_id,
};
pub use rules::{Planned, Rules, SCHEDULE_DAYS_MAX, blocking_terms, enrich};
pub use status::{PaymentStatus, QueueStatus};
pub use step::Step;
