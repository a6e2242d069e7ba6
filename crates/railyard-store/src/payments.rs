//! Scheduled payments (S0): accepted, written down with what their execution needs, and enqueued for their time.
//!
//! What a payment is and what is right about it, the core says (`railyard_core::payment`). Here it gets its slot, on
//! condition, and then payment, context and queue row in one transaction that makes the slot its own: whatever stops in
//! the middle leaves nothing but a slot that is given back.

mod accept;
mod prepare;
mod read;
mod search;
mod tidy;
mod write;

#[cfg(test)]
mod tests;

pub use accept::{Accepted, Enqueued, accept};
pub use read::{PaymentRow, get};
pub use search::{Filter, Found, PAGE_SIZE_MAX, Page, Place, search};
pub use tidy::{Sweep, drop_completed, sweep_contexts};

/// The item type of payments.
pub const PAYMENT: &str = "PAYMENT";

/// What the planner's names of payments begin with: nobody else's events do.
pub const SLOT_PREFIX: &str = "payment/";

/// The planner's name for a payment of this content: what was asked for and not accepted, another content has no slot by.
fn slot_event(payment_id: &str, content_hash: &[u8; 32]) -> String {
    let digest = content_hash[..8].iter().fold(0_u64, |digest, byte| digest << 8 | u64::from(*byte));
    format!("{SLOT_PREFIX}{payment_id}/{digest:016x}")
}
