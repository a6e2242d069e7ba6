//! `/api/config` in S3's shape, and `/admin/pools`: how many calls of a pool may run at once, on all nodes together.

use axum::Json;
use axum::extract::State;
use railyard_core::limits::RAIL_NAME_BYTES_MAX;
use railyard_core::rail::is_pool_code;
use railyard_core::timestamp::utc_millis;
use railyard_store::pools::{self, CONCURRENCY_MAX, POOLS_MAX, PoolRow, PoolSpec};
use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::openapi::{Array, RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::auth::{Caller, Decide, Read};
use crate::body::JsonBody;
use crate::fields::Fields;
use crate::openapi::shape::{Shape, any_text, formed, list as list_of, whole};
use crate::problem::Problem;
use crate::state::ApiState;

/// A pool's name.
const CODE_FORM: &str = "^[A-Za-z0-9_.-]+$";

pub(crate) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new().routes(routes!(read, write)).routes(routes!(list))
}

/// Queues and pools.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Config)]
struct ProcessingConfigView {
    /// Always empty: what waits is in the database.
    queues: Vec<QueueView>,
    processing_pools: Vec<PoolConfigView>,
}

/// A queue of S3.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = ConfigQueue)]
struct QueueView {
    queue_uri: String,
}

/// A pool as it is set.
#[derive(Serialize, ToSchema)]
#[schema(as = ConfigPool)]
struct PoolConfigView {
    code: String,
    concurrency: u32,
}

/// A pool, and what is in use of it.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Pool)]
struct PoolView {
    code: String,
    concurrency: u32,
    in_use: u32,
    updated_at: String,
}

/// All pools, by name.
#[derive(Serialize, ToSchema)]
#[schema(as = PoolList)]
struct ListView {
    items: Vec<PoolView>,
}

/// What to set.
struct ProcessingConfigBody;

impl ToSchema for ProcessingConfigBody {}

impl PartialSchema for ProcessingConfigBody {
    fn schema() -> RefOr<Schema> {
        let queue = Shape::new("A queue of S3; it has no effect.").optional("queueUri", any_text()).build();
        let pool = Shape::new("How many calls of the pool may run at once, on all nodes together.")
            .required("code", formed(CODE_FORM, RAIL_NAME_BYTES_MAX))
            .required("concurrency", whole(1, CONCURRENCY_MAX))
            .build();
        let pools: Array = list_of(pool).max_items(Some(POOLS_MAX)).build();
        let queues: Array = list_of(queue).max_items(Some(POOLS_MAX)).build();
        Shape::new("Pools that are not named stay as they are. `queues` is accepted and has no effect.")
            .optional("queues", queues)
            .optional("processingPools", pools)
            .into()
    }
}

/// Which pools are set.
#[utoipa::path(get, path = "/api/config", tag = "pools", operation_id = "getConfig",
    responses((status = 200, description = "All of them", body = ProcessingConfigView)))]
async fn read(_: Caller<Read>, State(state): State<ApiState>) -> Result<Json<ProcessingConfigView>, Problem> {
    shown(&state).await
}

/// Set pools. It holds for all calls that begin from now on; those that run go on.
#[utoipa::path(post, path = "/api/config", tag = "pools", operation_id = "setConfig", request_body = ProcessingConfigBody,
    responses((status = 200, description = "All pools as they are now", body = ProcessingConfigView)))]
async fn write(
    caller: Caller<Decide>,
    State(state): State<ApiState>,
    body: JsonBody,
) -> Result<Json<ProcessingConfigView>, Problem> {
    let specs = request(&body.bytes)?;
    drop(body);
    if !specs.is_empty() {
        pools::set(state.store(), &specs, &caller.name).await?;
        state.inner.node.flush_caches();
    }
    shown(&state).await
}

async fn shown(state: &ApiState) -> Result<Json<ProcessingConfigView>, Problem> {
    let rows = pools::list(state.store()).await?.into_iter();
    let processing_pools =
        rows.map(|row| PoolConfigView { code: row.spec.code, concurrency: row.spec.concurrency }).collect();
    Ok(Json(ProcessingConfigView { queues: Vec::new(), processing_pools }))
}

fn request(body: &[u8]) -> Result<Vec<PoolSpec>, Problem> {
    let mut fields = Fields::parse(body)?;
    let mut specs: Vec<PoolSpec> = Vec::new();
    for (at, text) in items(&mut fields, "queues") {
        read_item(&mut fields, &at, text, |queue| {
            queue.text("queueUri");
            None
        });
    }
    for (at, text) in items(&mut fields, "processingPools") {
        let spec = read_item(&mut fields, &at, text, |pool| {
            let given = pool.peek_text("code");
            let code = pool.required("code");
            if given.is_some_and(|given| !is_pool_code(&given)) {
                pool.error("code", format!("is not 1 to {RAIL_NAME_BYTES_MAX} letters, digits, '_', '.' or '-'"));
            }
            if !pool.has("concurrency") {
                pool.ignore("concurrency");
                pool.error("concurrency", "is missing");
                return None;
            }
            let concurrency = pool.whole("concurrency")?;
            if !(1..=CONCURRENCY_MAX).contains(&concurrency) {
                pool.error("concurrency", format!("is not between 1 and {CONCURRENCY_MAX}"));
            }
            Some(PoolSpec { code, concurrency })
        });
        if let Some(spec) = spec {
            // Of two with one name, the last counts.
            specs.retain(|known| known.code != spec.code);
            specs.push(spec);
        }
    }
    fields.finish()?;
    Ok(specs)
}

/// The elements of a list of objects, with their places.
fn items<'a>(fields: &mut Fields<'a>, field: &str) -> Vec<(String, &'a str)> {
    let Some(raw) = fields.raw(field) else { return Vec::new() };
    let list: Option<Vec<&'a RawValue>> = serde_json::from_str(raw.get()).ok();
    match list {
        Some(list) if list.len() > POOLS_MAX => fields.error(field, format!("has more than {POOLS_MAX} entries")),
        Some(list) => {
            return list.into_iter().enumerate().map(|(n, item)| (format!("{field}[{n}]"), item.get())).collect();
        }
        None => fields.error(field, "is not a list"),
    }
    Vec::new()
}

/// Reads an object within another; what is wrong with it is named by its place.
fn read_item(
    fields: &mut Fields<'_>,
    at: &str,
    text: &str,
    read: impl FnOnce(&mut Fields<'_>) -> Option<PoolSpec>,
) -> Option<PoolSpec> {
    let mut item = match Fields::parse(text.as_bytes()) {
        Ok(item) => item,
        Err(_) => {
            fields.error(at, "is not an object");
            return None;
        }
    };
    let spec = read(&mut item);
    match item.finish() {
        Ok(()) => spec,
        Err(problem) => {
            for error in problem.into_errors() {
                fields.error(&format!("{at}.{}", error.field), error.detail);
            }
            None
        }
    }
}

/// All pools, and what is in use of them.
#[utoipa::path(get, path = "/admin/pools", tag = "pools", operation_id = "listPools",
    responses((status = 200, description = "All of them", body = ListView)))]
async fn list(_: Caller<Read>, State(state): State<ApiState>) -> Result<Json<ListView>, Problem> {
    let rows = pools::list(state.store()).await?;
    Ok(Json(ListView { items: rows.into_iter().map(PoolView::from).collect() }))
}

impl From<PoolRow> for PoolView {
    fn from(row: PoolRow) -> Self {
        let PoolSpec { code, concurrency } = row.spec;
        Self { code, concurrency, in_use: row.in_use, updated_at: utc_millis(row.updated_at) }
    }
}
