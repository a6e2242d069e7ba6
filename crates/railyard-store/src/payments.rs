//! Scheduled payments (S0): accepted, written down with what their execution needs, and enqueued for their time.
//!
//! What a payment is and what is right about it, the core says (`railyard_core::payment`). Here it gets its slot, on
//! condition, and then payment, context and queue row in one transaction that makes the slot its own: whatever stops in
//! the middle leaves nothing but a slot that is given back.

mod accept;
mod prepare;
mod read;
mod write;

#[cfg(test)]
mod tests;

pub use accept::{Accepted, Enqueued, accept};
pub use read::{PaymentRow, get};
pub use write::sweep_contexts;

/// The item type of payments.
pub const PAYMENT: &str = "PAYMENT";

/// The planner's name for an item.
fn slot_event(payment_id: &str) -> String {
    format!("payment/{payment_id}")
}
