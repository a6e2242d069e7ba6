//! Configurations, and what nodes remember of them.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use railyard_core::slots::{
    CONFIG_DEFAULT, CONFIG_NAME_CHARS_MAX, Calendar, ENTRIES_MAX, LOOKAHEAD_DEFAULT, LOOKAHEAD_MAX, PER_WINDOW_MAX,
    RateConfig, WINDOW_S_MAX,
};
use railyard_core::timestamp::utc_millis;
use railyard_store::rate::{self, ConfigRow, RateError};
use serde::Serialize;
use serde_json::Value;
use utoipa::openapi::{Object, RefOr, Schema};
use utoipa::{IntoParams, PartialSchema, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::auth::{Caller, Decide, Read};
use crate::body::JsonBody;
use crate::fields::Fields;
use crate::openapi::Unknown;
use crate::openapi::shape::{Shape, any_text, flag, formed, list, time, whole};
use crate::problem::Problem;
use crate::query::{Ask, Asked, Pairs};
use crate::state::ApiState;

pub(super) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new().routes(routes!(read, set)).routes(routes!(flush))
}

/// A limit: so many events in each window of so many seconds.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = RateConfig)]
pub(super) struct RateConfigView {
    /// Rises with each change.
    config_id: String,
    config_name: String,
    max_per_window: u32,
    window_size_secs: u32,
    frontier: bool,
    max_lookahead: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    calendar: Option<Value>,
    active: bool,
    created_at: String,
    created_by: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    deactivated_at: Option<String>,
}

impl RateConfigView {
    pub(super) fn of(row: ConfigRow) -> Self {
        Self {
            config_id: row.config_id.to_string(),
            config_name: row.spec.name,
            max_per_window: row.spec.max_per_window,
            window_size_secs: row.spec.window_size_s,
            frontier: row.spec.frontier,
            max_lookahead: row.spec.max_lookahead,
            calendar: row.spec.calendar.as_ref().map(Calendar::to_json),
            active: row.active,
            created_at: utc_millis(row.created_at),
            created_by: row.created_by,
            deactivated_at: row.deactivated_at.map(utc_millis),
        }
    }
}

/// The active configuration, and those before it if they were asked for.
#[derive(Serialize, ToSchema)]
#[schema(as = RateConfigAnswer)]
struct RateConfigAnswer {
    #[serde(flatten)]
    active: RateConfigView,
    /// All that this name has had, newest first, at most a hundred.
    #[serde(skip_serializing_if = "Option::is_none")]
    history: Option<Vec<RateConfigView>>,
}

/// A configuration's name, as a field and as a parameter.
pub(super) fn config_name() -> Object {
    formed("^[A-Za-z0-9_.-]+$", CONFIG_NAME_CHARS_MAX)
}

#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
struct ConfigQuery {
    /// Which; `default` if none is named.
    #[param(required = false, schema_with = config_name)]
    name: String,
    /// With all that came before it.
    #[param(required = false)]
    history: bool,
}

impl Ask for ConfigQuery {
    fn read(pairs: &mut Pairs) -> Self {
        Self { name: name_of(pairs), history: pairs.flag("history").unwrap_or(false) }
    }
}

/// The name that a query asks for.
pub(super) fn name_of(pairs: &mut Pairs) -> String {
    pairs.text("name").unwrap_or_else(|| CONFIG_DEFAULT.to_owned())
}

/// A rate configuration.
#[utoipa::path(get, path = "/admin/rate-limit/config", tag = "rate", operation_id = "getRateConfig",
    params(ConfigQuery),
    responses((status = 200, description = "The active one", body = RateConfigAnswer), Unknown))]
async fn read(
    _: Caller<Read>,
    State(state): State<ApiState>,
    Asked(ConfigQuery { name, history }): Asked<ConfigQuery>,
) -> Result<Json<RateConfigAnswer>, Problem> {
    let Some(row) = rate::active(state.store(), &name).await? else {
        return Err(RateError::UnknownConfig { name }.into());
    };
    let history = match history {
        true => Some(rate::history(state.store(), &name).await?.into_iter().map(RateConfigView::of).collect()),
        false => None,
    };
    Ok(Json(RateConfigAnswer { active: RateConfigView::of(row), history }))
}

/// What is to hold from now on.
struct RateConfigBody;

impl ToSchema for RateConfigBody {}

impl PartialSchema for RateConfigBody {
    fn schema() -> RefOr<Schema> {
        let clock = || formed("^([01][0-9]|2[0-3]):[0-5][0-9]$", 5);
        let hours = Shape::new("Opening hours in local time; without `days` of every day, without `until` to its end.")
            .optional("days", list(formed("^(MON|TUE|WED|THU|FRI|SAT|SUN)$", 3)).min_items(Some(1)).build())
            .required("from", clock())
            .optional("until", formed("^(([01][0-9]|2[0-3]):[0-5][0-9]|24:00)$", 5));
        let blackout = Shape::new("Closed whatever the hours say.").required("from", time()).required("until", time());
        let day = formed("^[0-9]{4}-[0-9]{2}-[0-9]{2}$", 10);
        let calendar = Shape::new("When windows are open; one is, if all of it is. Without hours: all day.")
            .required("timeZone", any_text())
            .optional("hours", list(hours.build()).max_items(Some(ENTRIES_MAX)).build())
            .optional("holidays", list(day).max_items(Some(ENTRIES_MAX)).build())
            .optional("blackouts", list(blackout.build()).max_items(Some(ENTRIES_MAX)).build());
        Shape::new(
            "How many events each window takes, from the next assignment on. Slots that are given already stay as they \
             are. Without `frontier` no more than `maxLookahead` windows are searched.",
        )
        .optional("configName", config_name())
        .required("maxPerWindow", whole(1, PER_WINDOW_MAX))
        .required("windowSizeSecs", whole(1, WINDOW_S_MAX))
        .optional("frontier", flag())
        .optional("maxLookahead", whole(1, LOOKAHEAD_MAX))
        .optional("calendar", calendar.build())
        .into()
    }
}

/// Change a rate configuration, or make one.
#[utoipa::path(post, path = "/admin/rate-limit/config", tag = "rate", operation_id = "setRateConfig",
    request_body = RateConfigBody,
    responses((status = 201, description = "It is the active one on all nodes", body = RateConfigView)))]
async fn set(
    caller: Caller<Decide>,
    State(state): State<ApiState>,
    body: JsonBody,
) -> Result<(StatusCode, Json<RateConfigView>), Problem> {
    let spec = request(&body.bytes)?;
    drop(body);
    let row = rate::set(state.store(), &spec, &caller.name).await?;
    state.inner.node.flush_caches();
    Ok((StatusCode::CREATED, Json(RateConfigView::of(row))))
}

fn request(body: &[u8]) -> Result<RateConfig, Problem> {
    let mut fields = Fields::parse(body)?;
    let name = fields.text("configName").unwrap_or_else(|| CONFIG_DEFAULT.to_owned());
    let mut required = |field: &str| {
        if !fields.has(field) {
            fields.ignore(field);
            fields.error(field, "is missing");
        }
        fields.whole(field).unwrap_or_default()
    };
    let mut spec = RateConfig::new(&name, required("maxPerWindow"), required("windowSizeSecs"));
    spec.frontier = fields.flag("frontier").unwrap_or(true);
    spec.max_lookahead = fields.whole("maxLookahead").unwrap_or(LOOKAHEAD_DEFAULT);
    spec.calendar = fields.object("calendar").and_then(|text| calendar(&mut fields, text));
    fields.checked(spec.validate())?;
    Ok(spec)
}

fn calendar(fields: &mut Fields<'_>, text: &str) -> Option<Calendar> {
    let read = serde_json::from_str(text).map(|value: Value| Calendar::read(&value));
    match read {
        Ok(Ok(calendar)) => Some(calendar),
        Ok(Err(wrong)) => {
            for error in wrong {
                let field =
                    if error.field.is_empty() { "calendar".to_owned() } else { format!("calendar.{}", error.field) };
                fields.error(&field, error.detail);
            }
            None
        }
        Err(error) => {
            fields.error("calendar", crate::fields::said(&error));
            None
        }
    }
}

/// Forget what is remembered of rate configurations, on all nodes.
#[utoipa::path(post, path = "/admin/rate-limit/cache/flush", tag = "rate", operation_id = "flushRateCache",
    responses((status = 204, description = "All nodes read anew")))]
async fn flush(_: Caller<Decide>, State(state): State<ApiState>) -> Result<StatusCode, Problem> {
    rate::flush(state.store()).await?;
    state.inner.node.flush_caches();
    Ok(StatusCode::NO_CONTENT)
}
