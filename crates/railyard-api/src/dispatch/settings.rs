//! `exec_rate_config` over HTTP. SQL does as well: it is read anew in each cycle.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use railyard_core::dispatch::Executor;
use railyard_core::limits::RAIL_NAME_BYTES_MAX;
use railyard_core::slots::CONFIG_NAME_CHARS_MAX;
use railyard_store::dispatch::{self, Change, Settings};
use serde::Serialize;
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::is_item_type;
use crate::auth::{Caller, Decide, Read};
use crate::body::JsonBody;
use crate::fields::Fields;
use crate::openapi::shape::{Shape, flag, formed, map, whole, word};
use crate::problem::Problem;
use crate::query::Named;
use crate::state::ApiState;

pub(super) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new().routes(routes!(read, write))
}

/// The numbers, their names and their bounds: those of the table.
const BOUNDS: [(&str, u32, u32); 7] = [
    ("batchSize", 1, 10_000),
    ("dispatchIntervalSecs", 1, 3600),
    ("jitterWindowMs", 0, 3_600_000),
    ("preStartBufferMins", 0, 1440),
    ("maxDispatchRetries", 1, 100),
    ("staleClaimThresholdMins", 1, 1440),
    ("maxStaleRecoveryPerCycle", 1, 10_000),
];
/// Steps with rails of their own.
const STEP_RAILS_MAX: usize = 20;

/// How items of a type are dispatched.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = DispatchConfig)]
struct SettingsView {
    item_type: String,
    enabled: bool,
    batch_size: u32,
    dispatch_interval_secs: u32,
    jitter_window_ms: u32,
    pre_start_buffer_mins: u32,
    max_dispatch_retries: u32,
    stale_claim_threshold_mins: u32,
    max_stale_recovery_per_cycle: u32,
    exec_workflow_type: &'static str,
    exec_task_queue: String,
    step_rails: BTreeMap<String, String>,
    rate_config: String,
}

impl From<Settings> for SettingsView {
    fn from(settings: Settings) -> Self {
        Self {
            item_type: settings.item_type,
            enabled: settings.enabled,
            batch_size: settings.batch_size,
            dispatch_interval_secs: settings.dispatch_interval_s,
            jitter_window_ms: settings.jitter_window_ms,
            pre_start_buffer_mins: settings.pre_start_buffer_min,
            max_dispatch_retries: settings.max_dispatch_retries,
            stale_claim_threshold_mins: settings.stale_claim_threshold_min,
            max_stale_recovery_per_cycle: settings.max_stale_recovery_per_cycle,
            exec_workflow_type: settings.executor.as_str(),
            exec_task_queue: settings.first_rail,
            step_rails: settings.step_rails,
            rate_config: settings.rate_config,
        }
    }
}

/// What is to change.
struct SettingsBody;

impl ToSchema for SettingsBody {}

impl PartialSchema for SettingsBody {
    fn schema() -> RefOr<Schema> {
        let rail = || formed("^[a-z][a-z0-9_]*$", RAIL_NAME_BYTES_MAX);
        let shape = Shape::new("What is not named stays as it is. It holds from the type's next cycle on.")
            .optional("enabled", flag())
            .optional("execWorkflowType", word(&Executor::ALL, Executor::as_str))
            .optional("execTaskQueue", rail())
            .optional("stepRails", map(formed("^[A-Z][A-Z0-9_]*$", 32), rail(), STEP_RAILS_MAX))
            .optional("rateConfig", formed("^[A-Za-z0-9_.-]+$", CONFIG_NAME_CHARS_MAX));
        BOUNDS.into_iter().fold(shape, |shape, (name, min, max)| shape.optional(name, whole(min, max))).into()
    }
}

/// How items of a type are dispatched.
#[utoipa::path(get, path = "/admin/dispatch/config/{itemType}", tag = "payments", operation_id = "getDispatchConfig",
    params(("itemType" = String, Path, description = "The type: PAYMENT")),
    responses((status = 200, description = "As its next cycle will read it", body = SettingsView)))]
async fn read(
    _: Caller<Read>,
    State(state): State<ApiState>,
    Named(item_type): Named,
) -> Result<Json<SettingsView>, Problem> {
    Ok(Json(found(&state, &item_type).await?.into()))
}

/// Change how items of a type are dispatched, its switch among it.
#[utoipa::path(put, path = "/admin/dispatch/config/{itemType}", tag = "payments", operation_id = "setDispatchConfig",
    params(("itemType" = String, Path, description = "The type: PAYMENT")), request_body = SettingsBody,
    responses((status = 200, description = "As its next cycle will read it", body = SettingsView)))]
async fn write(
    caller: Caller<Decide>,
    State(state): State<ApiState>,
    Named(item_type): Named,
    body: JsonBody,
) -> Result<Json<SettingsView>, Problem> {
    found(&state, &item_type).await?;
    let change = change(Fields::parse(&body.bytes)?)?;
    drop(body);
    let changed = dispatch::set_settings(state.store(), &item_type, change, &caller.name).await?;
    Ok(Json(changed.ok_or_else(unknown)?.into()))
}

fn unknown() -> Problem {
    Problem::not_found("no item type has this name")
}

async fn found(state: &ApiState, item_type: &str) -> Result<Settings, Problem> {
    let settings = match is_item_type(item_type) {
        true => dispatch::settings(state.store(), item_type).await?,
        false => None,
    };
    settings.ok_or_else(unknown)
}

fn is_rail(text: &str) -> bool {
    let known = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
    text.bytes().next().is_some_and(|first| first.is_ascii_lowercase()) && text.bytes().all(known)
}

fn change(mut fields: Fields<'_>) -> Result<Change, Problem> {
    let mut change = Change { enabled: fields.flag("enabled"), ..Change::default() };
    for ((name, min, max), number) in BOUNDS.into_iter().zip(&mut change.numbers) {
        let Some(given) = fields.whole(name) else { continue };
        if !(min..=max).contains(&given) {
            fields.error(name, format!("is not {min} to {max}"));
        }
        *number = Some(given);
    }
    change.executor = fields.word("execWorkflowType", &Executor::ALL, Executor::as_str);
    change.first_rail = fields.text("execTaskQueue");
    if !change.first_rail.as_deref().is_none_or(is_rail) {
        fields.error("execTaskQueue", "is not the name of a rail");
    }
    let given = fields.has("stepRails");
    let rails: BTreeMap<String, String> = fields.map("stepRails").into_iter().collect();
    if given {
        if !rails.iter().all(|(step, rail)| is_item_type(step) && is_rail(rail)) {
            fields.error("stepRails", "is not an object of steps and their rails, like {\"NOTIFY\": \"partners\"}");
        }
        let steps = rails.len();
        if steps > STEP_RAILS_MAX {
            fields.error("stepRails", format!("names {steps} steps; at most {STEP_RAILS_MAX} are taken"));
        }
        change.step_rails = Some(rails);
    }
    change.rate_config = fields.text("rateConfig");
    fields.finish()?;
    Ok(change)
}
