//! `/admin/rate-limit` and `/api/v1/slots`: how many may start when (S1).
//!
//! A configuration is changed by adding one; the next assignment on any node is made with it. Slots that are given stay.

mod config;
mod forecast;
mod refusals;
mod replan;
mod slots;

use utoipa_axum::router::OpenApiRouter;

use crate::state::ApiState;

pub(crate) fn routes() -> OpenApiRouter<ApiState> {
    config::routes().merge(forecast::routes()).merge(replan::routes()).merge(slots::routes())
}
