//! What an assignment would come to.

use axum::Json;
use axum::extract::State;
use jiff::Timestamp;
use railyard_core::slots::Forecast;
use railyard_core::timestamp::utc_millis;
use railyard_store::rate::{self, EVENTS_MAX};
use serde::Serialize;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::config::{config_name, name_of};
use crate::auth::{Caller, Read};
use crate::openapi::{Unknown, shape};
use crate::problem::Problem;
use crate::query::{Ask, Asked, Pairs, whole};
use crate::state::ApiState;

pub(super) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new().routes(routes!(forecast))
}

// The description needs the number itself.
const _: () = assert!(EVENTS_MAX == 10_000_000);

#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
struct ForecastQuery {
    /// Which configuration; `default` if none is named.
    #[param(required = false, schema_with = config_name)]
    name: String,
    /// How many.
    #[param(minimum = 1, maximum = 10_000_000)]
    events: u64,
    /// When they are asked for; now if that is missing or past.
    #[param(required = false, schema_with = shape::time)]
    at: Option<Timestamp>,
}

impl Ask for ForecastQuery {
    fn read(pairs: &mut Pairs) -> Self {
        let name = name_of(pairs);
        let events = pairs.text("events").unwrap_or_default();
        let events = whole(&events).map_or(0, i64::unsigned_abs);
        if !(1..=EVENTS_MAX).contains(&events) {
            pairs.error("events", format!("is not 1 to {EVENTS_MAX}"));
        }
        let what = "a time like 2025-10-04T15:00:00Z; in a query + is written %2B";
        Self { name, events, at: pairs.parsed("at", what, crate::fields::rfc3339) }
    }
}

/// Where events would go that were asked for now.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = RateForecast)]
struct ForecastView {
    config_name: String,
    max_per_window: u32,
    window_size_secs: u32,
    /// How many have a place; fewer than were asked for if the search ends before.
    events: u64,
    windows_used: u64,
    /// The first starts no sooner.
    first_start: String,
    /// The last starts before then.
    last_start: String,
    /// From the first to the last.
    duration_seconds: i64,
    /// Times, and how many have been started by then; at most a hundred.
    #[schema(inline)]
    curve: Vec<PointView>,
}

#[derive(Serialize, ToSchema)]
struct PointView {
    at: String,
    events: u64,
}

/// See when the first and the last of so many events would start, without planning any.
#[utoipa::path(get, path = "/admin/rate-limit/forecast", tag = "rate", operation_id = "forecastRate",
    params(ForecastQuery),
    responses((status = 200, description = "As the counters stand now", body = ForecastView), Unknown))]
async fn forecast(
    _: Caller<Read>,
    State(state): State<ApiState>,
    Asked(ask): Asked<ForecastQuery>,
) -> Result<Json<ForecastView>, Problem> {
    let (config, seen) = rate::forecast(state.store(), &ask.name, ask.events, ask.at).await?;
    let Forecast { first_start, last_start, windows_used, events, curve } = seen;
    Ok(Json(ForecastView {
        config_name: config.spec.name,
        max_per_window: config.spec.max_per_window,
        window_size_secs: config.spec.window_size_s,
        events,
        windows_used,
        first_start: utc_millis(first_start),
        last_start: utc_millis(last_start),
        duration_seconds: last_start.duration_since(first_start).as_secs(),
        curve: curve.into_iter().map(|point| PointView { at: utc_millis(point.at), events: point.events }).collect(),
    }))
}
