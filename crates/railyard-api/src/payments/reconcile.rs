//! Every instruction of a feed or of a day, accounted for.

use axum::Json;
use axum::extract::State;
use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use railyard_store::feeds::{self, Of, Reconciled, STANDINGS, Standing, Sum};
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::feed::{FeedView, found};
use crate::auth::{Caller, ReadJobs};
use crate::openapi::words;
use crate::problem::Problem;
use crate::query::Named;
use crate::state::ApiState;

pub(super) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new().routes(routes!(of_feed)).routes(routes!(of_day))
}

/// Money in one currency.
#[derive(Serialize, ToSchema)]
#[schema(as = ReconciledTotal)]
struct TotalView {
    /// Absent where it could not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    currency: Option<String>,
    count: u64,
    /// An exact decimal; absent where no amount could be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    amount: Option<String>,
}

/// What stands in one place.
#[derive(Serialize, ToSchema)]
#[schema(as = ReconciledStanding)]
struct StandingView {
    #[schema(schema_with = words::standing)]
    standing: &'static str,
    count: u64,
    totals: Vec<TotalView>,
}

/// An instruction that nothing accounts for.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = UnaccountedInstruction)]
struct UnaccountedView {
    #[serde(skip_serializing_if = "Option::is_none")]
    feed_id: Option<String>,
    /// Which of the feed.
    #[serde(skip_serializing_if = "Option::is_none")]
    item: Option<i64>,
    /// The line that it begins in.
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payment_id: Option<String>,
    /// What is missing.
    reason: String,
}

/// A payment that goes on by a person's decision alone.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = WaitingPayment)]
struct WaitingView {
    payment_id: String,
    #[schema(schema_with = words::standing)]
    standing: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

/// How it stands with a feed or a day.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Reconciliation)]
struct ReconciliationView {
    #[serde(skip_serializing_if = "Option::is_none")]
    feed: Option<FeedView>,
    /// In UTC.
    #[serde(skip_serializing_if = "Option::is_none")]
    day: Option<String>,
    /// Whether everything is accounted for.
    balanced: bool,
    /// Payments that were accepted, wherever they are now.
    accepted: u64,
    /// Instructions of feeds that have not been answered; they are not accounted for either.
    unanswered: u64,
    /// What stands in each place; places where nothing stands are not left out.
    standings: Vec<StandingView>,
    /// The first of those that nothing accounts for.
    unaccounted: Vec<UnaccountedView>,
    /// The first of those that wait for a person.
    waiting: Vec<WaitingView>,
}

impl ReconciliationView {
    fn of(found: Reconciled, feed: Option<FeedView>, day: Option<String>) -> Self {
        let balanced = found.unaccounted_count() == 0;
        let is_payment = |sum: &&Sum| !matches!(sum.standing, Standing::Rejected | Standing::Repeated);
        let accepted = found.sums.iter().filter(is_payment).map(|sum| sum.count).sum();
        let standings = STANDINGS.map(|standing| {
            let totals: Vec<TotalView> =
                found.sums.iter().filter(|sum| sum.standing == standing).map(TotalView::of).collect();
            StandingView { standing: standing.as_str(), count: totals.iter().map(|total| total.count).sum(), totals }
        });
        let unaccounted = found.unaccounted.into_iter().map(|one| UnaccountedView {
            feed_id: one.feed_id,
            item: one.item,
            line: one.line,
            payment_id: one.payment_id,
            reason: one.reason,
        });
        let waiting = found.waiting.into_iter().map(|one| WaitingView {
            payment_id: one.payment_id,
            standing: one.standing.as_str(),
            reason: one.reason,
        });
        Self {
            feed,
            day,
            balanced,
            accepted,
            unanswered: found.unanswered,
            standings: standings.into(),
            unaccounted: unaccounted.collect(),
            waiting: waiting.collect(),
        }
    }
}

impl TotalView {
    fn of(sum: &Sum) -> Self {
        Self { currency: sum.currency.clone(), count: sum.count, amount: sum.amount.clone() }
    }
}

/// Account for every instruction of a feed.
#[utoipa::path(get, path = "/api/payments/feeds/{id}/reconciliation", tag = "payments", operation_id = "reconcileFeed",
    params(("id" = String, Path, description = "The feed's name")),
    responses((status = 200, description = "How it stands with it", body = ReconciliationView)))]
async fn of_feed(
    _: Caller<ReadJobs>,
    State(state): State<ApiState>,
    Named(id): Named,
) -> Result<Json<ReconciliationView>, Problem> {
    let feed = found(&state, &id).await?;
    let reconciled = feeds::reconcile(state.store(), Of::Feed(&id)).await?;
    Ok(Json(ReconciliationView::of(reconciled, Some(FeedView::of(feed)), None)))
}

/// Account for every payment that was accepted on a day (UTC), and for what was rejected from feeds on it.
#[utoipa::path(get, path = "/api/payments/days/{day}/reconciliation", tag = "payments", operation_id = "reconcileDay",
    params(("day" = String, Path, description = "The day, like 2025-10-04")),
    responses((status = 200, description = "How it stands with it", body = ReconciliationView)))]
async fn of_day(
    _: Caller<ReadJobs>,
    State(state): State<ApiState>,
    Named(day): Named,
) -> Result<Json<ReconciliationView>, Problem> {
    let (from, to) = bounds(&day).ok_or_else(|| Problem::not_found("there is no day like this: 2025-10-04 is one"))?;
    let reconciled = feeds::reconcile(state.store(), Of::Between(from, to)).await?;
    Ok(Json(ReconciliationView::of(reconciled, None, Some(day))))
}

/// A day's beginning and end.
fn bounds(day: &str) -> Option<(Timestamp, Timestamp)> {
    let date: Date = day.parse().ok()?;
    // The parser reads more than this form.
    if date.to_string() != day || date.year() < 1970 {
        return None;
    }
    let begins = |date: Date| Some(date.to_zoned(TimeZone::UTC).ok()?.timestamp());
    Some((begins(date)?, begins(date.tomorrow().ok()?)?))
}

#[cfg(test)]
mod tests {
    use super::bounds;

    #[test]
    fn a_day_is_one_of_the_calendar() {
        let (from, to) = bounds("2024-02-29").unwrap();
        assert_eq!(
            (from.to_string().as_str(), to.to_string().as_str()),
            ("2024-02-29T00:00:00Z", "2024-03-01T00:00:00Z")
        );
        for bad in ["", "2025-02-29", "2025-2-1", "20250201", "2025-02-01T00:00:00", "-000001-01-01", "0001-01-01"] {
            assert_eq!(bounds(bad), None, "{bad}");
        }
    }
}
