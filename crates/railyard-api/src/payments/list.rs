//! `GET /api/payments`: what to look for stands in the query, every wrong parameter is named at once.

use axum::Json;
use axum::extract::State;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use railyard_core::payment::{Iban, PaymentStatus, QueueStatus, debtor_group, is_payment_id};
use railyard_store::payments::{self, Filter, PAGE_SIZE_MAX, Page, Place};
use serde::Serialize;
use sha2::{Digest, Sha256};
use utoipa::{IntoParams, ToSchema};

use super::view::PaymentView;
use crate::auth::{Caller, ReadJobs};
use crate::fields::rfc3339;
use crate::openapi::shape::time;
use crate::openapi::words;
use crate::problem::Problem;
use crate::query::{Ask, Asked, Pairs, number, size, value};
use crate::state::ApiState;

/// Payments of a page that names no size.
const SIZE_DEFAULT: u32 = 20;
/// Changes when what a cursor holds changes.
const VERSION: u8 = 1;
const DIGEST_BYTES: usize = 4;

/// A page of payments.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct PaymentPage {
    items: Vec<PaymentView>,
    /// Which page, from 0; not with a cursor.
    #[serde(skip_serializing_if = "Option::is_none")]
    page: Option<u32>,
    /// Most payments of a page.
    size: u32,
    /// How many payments are found in all; not with a cursor.
    #[serde(skip_serializing_if = "Option::is_none")]
    total_items: Option<u64>,
    /// How many pages those are; not with a cursor.
    #[serde(skip_serializing_if = "Option::is_none")]
    total_pages: Option<u64>,
    /// For the page behind this one; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

/// What may stand in the query; it is read pair by pair, so that every wrong one is named at once.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[allow(dead_code, reason = "the document is made from it")]
#[expect(non_snake_case, reason = "names of parameters")]
pub(super) struct ListQuery {
    /// As its parties see it.
    #[param(schema_with = words::payment_status)]
    status: Option<String>,
    /// Where it is in the queue.
    #[param(schema_with = words::queue_status)]
    queueStatus: Option<String>,
    /// The debtor's account.
    #[param(schema_with = value)]
    debtorIban: Option<String>,
    /// Asked for at this time or later.
    #[param(schema_with = time)]
    requestedAfter: Option<String>,
    /// Asked for before this time.
    #[param(schema_with = time)]
    requestedBefore: Option<String>,
    /// Which page, from 0.
    #[param(schema_with = number)]
    page: Option<u32>,
    #[param(schema_with = size)]
    size: Option<u32>,
    /// `nextCursor` of the page before, in place of `page`: good for deep walks, since it counts nothing. Empty: begin.
    #[param(schema_with = value)]
    cursor: Option<String>,
}

/// Find payments, those accepted last first: a page by number with totals, or behind a cursor without.
#[utoipa::path(get, path = "/api/payments", tag = "payments", operation_id = "listPayments", params(ListQuery),
    responses((status = 200, description = "A page", body = PaymentPage)))]
pub(super) async fn list(
    _: Caller<ReadJobs>,
    State(state): State<ApiState>,
    Asked(List { filter, page }): Asked<List>,
) -> Result<Json<PaymentPage>, Problem> {
    let found = payments::search(state.store(), &filter, &page).await?;
    let (number, size) = match page {
        Page::Number { page, size } => (Some(page), size),
        Page::After { size, .. } => (None, size),
    };
    Ok(Json(PaymentPage {
        items: found.payments.into_iter().map(PaymentView::of).collect(),
        page: number,
        size,
        total_items: found.total,
        total_pages: found.total.map(|total| total.div_ceil(u64::from(size))),
        next_cursor: found.next.map(|place| write(&place, &filter)),
    }))
}

/// What to look for, and which part of what is found.
pub(super) struct List {
    filter: Filter,
    page: Page,
}

impl Ask for List {
    fn read(pairs: &mut Pairs) -> Self {
        let moment = "a time like 2025-10-04T15:00:00Z (a `+` is written %2B in a query)";
        let filter = Filter {
            status: pairs.word("status", &PaymentStatus::ALL, PaymentStatus::as_str),
            queue_status: pairs.word("queueStatus", &QueueStatus::ALL, QueueStatus::as_str),
            group: pairs
                .parsed("debtorIban", "an IBAN like DE89370400440532013000", |text| Iban::parse(text).ok())
                .map(|iban| debtor_group(&iban)),
            requested_after: pairs.parsed("requestedAfter", moment, rfc3339),
            requested_before: pairs.parsed("requestedBefore", moment, rfc3339),
        };
        let size = pairs.size(SIZE_DEFAULT, PAGE_SIZE_MAX);
        let number = pairs.whole("page");
        let Some(text) = pairs.text("cursor") else {
            return Self { filter, page: Page::Number { page: number.unwrap_or(0), size } };
        };
        if number.is_some() {
            pairs.error("page", "says nothing beside a cursor");
        }
        let place = match text.as_str() {
            "" => None,
            text => {
                let place = read(text, &filter);
                if place.is_none() {
                    pairs.error("cursor", "is not a cursor of this list: take nextCursor of its last answer");
                }
                place
            }
        };
        Self { filter, page: Page::After { place, size } }
    }
}

/// A place as callers carry it: good for the search that it came from alone.
fn write((at, id): &Place, filter: &Filter) -> String {
    let mut bytes = vec![VERSION];
    bytes.extend_from_slice(&at.as_microsecond().to_be_bytes());
    bytes.extend_from_slice(id.as_bytes());
    bytes.extend_from_slice(&digest(filter));
    URL_SAFE_NO_PAD.encode(bytes)
}

fn read(text: &str, filter: &Filter) -> Option<Place> {
    let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
    let rest = bytes.strip_prefix(&[VERSION])?.strip_suffix(&digest(filter))?;
    let (at, id) = rest.split_first_chunk()?;
    let id = std::str::from_utf8(id).ok().filter(|id| is_payment_id(id))?;
    Some((Timestamp::from_microsecond(i64::from_be_bytes(*at)).ok()?, id.to_owned()))
}

fn digest(filter: &Filter) -> [u8; DIGEST_BYTES] {
    let Filter { status, queue_status, group, requested_after, requested_before } = filter;
    let nanos = |at: &Option<Timestamp>| at.map(|at| at.as_nanosecond().to_string());
    let text = serde_json::json!({
        "status": status.map(PaymentStatus::as_str), "queueStatus": queue_status.map(QueueStatus::as_str),
        "group": group.as_ref().map(|group| group.as_str()), "requestedAfter": nanos(requested_after),
        "requestedBefore": nanos(requested_before),
    })
    .to_string();
    let mut digest = [0; DIGEST_BYTES];
    digest.copy_from_slice(&Sha256::digest(text.as_bytes())[..DIGEST_BYTES]);
    digest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_good_for_its_own_search_alone() {
        let place = (Timestamp::from_microsecond(1_759_590_000_123_456).unwrap(), "pay-1".to_owned());
        let filter = Filter { status: Some(PaymentStatus::Scheduled), ..Filter::default() };
        let text = write(&place, &filter);
        assert_eq!(read(&text, &filter), Some(place));
        assert_eq!(read(&text, &Filter::default()), None);
        for nonsense in ["x", "AAAA", &text[1..], &format!("{text}=")] {
            assert_eq!(read(nonsense, &filter), None, "{nonsense}");
        }
    }
}
