//! `/api/admin/dispatch/credentials`: secrets go in and never come out.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::LOCATION;
use axum::response::{IntoResponse, Response};
use railyard_core::CredentialsId;
use railyard_core::rotation::{OVERLAP_S_DEFAULT, OVERLAP_S_MAX};
use railyard_core::timestamp::utc_millis;
use railyard_store::credentials::{
    self, ALGORITHM, BEARER_TOKEN_BYTES_MAX, CredentialsRow, Deletion, NAME_BYTES_MAX, NewCredentials, Rotation,
    SIGNING_SECRET_BYTES_MAX, Scheme,
};
use serde::Serialize;
use utoipa::openapi::{Object, RefOr, Schema};
use utoipa::{IntoParams, PartialSchema, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;
use zeroize::Zeroizing;

use crate::auth::{Caller, Decide, Read};
use crate::body::JsonBody;
use crate::fields::Fields;
use crate::openapi::shape::{Shape, formed, list as list_of, named, time, whole, word};
use crate::openapi::{Conflict, words};
use crate::problem::Problem;
use crate::query::{Ask, Asked, Named, Pairs};
use crate::state::ApiState;

const ROOT: &str = "/api/admin/dispatch/credentials";

pub(crate) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new().routes(routes!(create, list)).routes(routes!(read, delete)).routes(routes!(rotate))
}

/// Credentials without their secrets.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Credentials)]
struct CredentialsView {
    #[schema(value_type = Uuid)]
    id: CredentialsId,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[schema(schema_with = words::algorithm)]
    algorithm: String,
    #[schema(schema_with = words::schemes)]
    schemes: Vec<&'static str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notes: Vec<&'static str>,
    key_id: String,
    created_at: String,
    updated_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    rotation: Option<RotationView>,
}

/// A rotation that is under way.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = CredentialsRotation)]
struct RotationView {
    /// From when on the new ones are in effect where there is room for one: the token, and S3's signature.
    active_from: String,
    /// Until when Standard Webhooks carries both signatures; then the old ones are wiped.
    overlap_until: String,
}

impl CredentialsView {
    fn of(row: CredentialsRow) -> Self {
        Self {
            id: row.credentials_id,
            name: row.name,
            algorithm: row.algorithm,
            schemes: row.schemes.into_iter().map(Scheme::as_str).collect(),
            notes: Vec::new(),
            key_id: row.key_id,
            created_at: utc_millis(row.created_at),
            updated_at: utc_millis(row.updated_at),
            rotation: row.rotation.map(|(active_from, overlap_until)| RotationView {
                active_from: utc_millis(active_from),
                overlap_until: utc_millis(overlap_until),
            }),
        }
    }
}

/// All credentials.
#[derive(Serialize, ToSchema)]
#[schema(as = CredentialsList)]
struct ListView {
    items: Vec<CredentialsView>,
}

/// Create credentials.
#[utoipa::path(post, path = "/api/admin/dispatch/credentials", tag = "credentials", operation_id = "createCredentials",
    request_body = CredentialsBody,
    responses((status = 201, description = "They are stored", body = CredentialsView, headers(("Location" = String)))))]
async fn create(caller: Caller<Decide>, State(state): State<ApiState>, body: JsonBody) -> Result<Response, Problem> {
    let new = request(&body.bytes)?;
    drop(body);
    let row = credentials::create(state.store(), &state.inner.keys, &new, &caller.name).await?;
    state.inner.node.flush_caches();
    let mut view = CredentialsView::of(row);
    if new.schemes.contains(&Scheme::Standard) && !view.schemes.contains(&Scheme::Standard.as_str()) {
        view.notes.push("standard-webhooks is off: it needs a secret that is base64");
    }
    let location = format!("{ROOT}/{}", view.id);
    Ok((StatusCode::CREATED, [(LOCATION, location)], Json(view)).into_response())
}

/// No control characters, and no white space around it.
const SECRET_FORM: &str =
    r"^[^\s\u0000-\u001f\u007f-\u009f]([^\u0000-\u001f\u007f-\u009f]*[^\s\u0000-\u001f\u007f-\u009f])?$";

fn bearer_token() -> Object {
    formed("^[!-~]+$", BEARER_TOKEN_BYTES_MAX)
}

fn signing_secret() -> Object {
    formed(SECRET_FORM, SIGNING_SECRET_BYTES_MAX)
}

/// What to keep: secrets, and which signatures to make with them.
struct CredentialsBody;

impl ToSchema for CredentialsBody {}

impl PartialSchema for CredentialsBody {
    fn schema() -> RefOr<Schema> {
        Shape::new("Secrets, and which signatures to make with them.")
            .required("bearerToken", bearer_token())
            .required("signingSecret", signing_secret())
            .optional("name", named(NAME_BYTES_MAX))
            .optional("algorithm", word(&[ALGORITHM], |said| said))
            .optional("schemes", list_of(word(&Scheme::ALL, Scheme::as_str)).min_items(Some(1)).build())
            .into()
    }
}

fn request(body: &[u8]) -> Result<NewCredentials, Problem> {
    let mut fields = Fields::parse(body)?;
    let bearer_token = Zeroizing::new(fields.required("bearerToken"));
    let signing_secret = Zeroizing::new(fields.required("signingSecret"));
    let name = fields.text("name");
    if fields.text("algorithm").is_some_and(|algorithm| algorithm != ALGORITHM) {
        fields.error("algorithm", format!("is not {ALGORITHM}, the only one there is"));
    }
    let mut schemes = Scheme::ALL.to_vec();
    if let Some(named) = fields.texts("schemes") {
        schemes = named.iter().filter_map(|name| Scheme::parse(name)).collect();
        if schemes.len() != named.len() {
            let all: Vec<&str> = Scheme::ALL.into_iter().map(Scheme::as_str).collect();
            fields.error("schemes", format!("names another than {}", all.join(", ")));
        }
    }
    let new = NewCredentials { name, bearer_token, signing_secret, schemes };
    fields.checked(new.validate())?;
    Ok(new)
}

/// All credentials, without their secrets.
#[utoipa::path(get, path = "/api/admin/dispatch/credentials", tag = "credentials", operation_id = "listCredentials",
    responses((status = 200, description = "All of them", body = ListView)))]
async fn list(_: Caller<Read>, State(state): State<ApiState>) -> Result<Json<ListView>, Problem> {
    let rows = credentials::list(state.store()).await?;
    Ok(Json(ListView { items: rows.into_iter().map(CredentialsView::of).collect() }))
}

/// Credentials, without their secrets.
#[utoipa::path(get, path = "/api/admin/dispatch/credentials/{id}", tag = "credentials", operation_id = "getCredentials",
    params(("id" = Uuid, Path, description = "Their id")),
    responses((status = 200, description = "They", body = CredentialsView)))]
async fn read(
    _: Caller<Read>,
    State(state): State<ApiState>,
    Named(id): Named,
) -> Result<Json<CredentialsView>, Problem> {
    let row = credentials::get(state.store(), credentials_id(&id)?).await?.ok_or_else(unknown)?;
    Ok(Json(CredentialsView::of(row)))
}

#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
struct Forced {
    /// Even though they are used: open jobs end in ERROR, subscriptions are disabled, and rails refuse jobs that name no
    /// others until they are given others.
    #[param(required = false)]
    force: bool,
}

impl Ask for Forced {
    fn read(pairs: &mut Pairs) -> Self {
        Self { force: pairs.flag("force").unwrap_or(false) }
    }
}

/// Delete credentials that nobody uses.
#[utoipa::path(delete, path = "/api/admin/dispatch/credentials/{id}", tag = "credentials",
    operation_id = "deleteCredentials", params(("id" = Uuid, Path, description = "Their id"), Forced),
    responses((status = 204, description = "They are gone"), Conflict))]
async fn delete(
    caller: Caller<Decide>,
    State(state): State<ApiState>,
    Named(id): Named,
    Asked(Forced { force }): Asked<Forced>,
) -> Result<StatusCode, Problem> {
    match credentials::delete(state.store(), credentials_id(&id)?, force, &caller.name).await? {
        Deletion::Deleted => {
            state.inner.node.flush_caches();
            Ok(StatusCode::NO_CONTENT)
        }
        Deletion::Unknown => Err(unknown()),
        Deletion::InUse(usage) => {
            let mut users = Vec::new();
            if usage.open_work {
                users.push("open jobs".to_owned());
            }
            users.extend(usage.rails.iter().map(|rail| format!("rail {rail}")));
            users.extend(usage.subscriptions.iter().map(|name| format!("subscription {name}")));
            let detail = format!(
                "used by {}; with force=true open jobs end in ERROR, subscriptions are disabled, and rails refuse jobs \
                 that name no others",
                users.join(", ")
            );
            Err(Problem::conflict(detail))
        }
    }
}

/// What to replace, and when.
struct RotateBody;

impl ToSchema for RotateBody {}

impl PartialSchema for RotateBody {
    fn schema() -> RefOr<Schema> {
        Shape::new(
            "A new token, a new secret or both, and when they take effect. The same ones again change the times.",
        )
        .optional("bearerToken", bearer_token())
        .optional("signingSecret", signing_secret())
        .optional("activeFrom", time())
        .optional("overlapSeconds", whole(0, OVERLAP_S_MAX))
        .into()
    }
}

/// Replace the token, the secret or both, without an instant at which a receiver refuses us.
#[utoipa::path(post, path = "/api/admin/dispatch/credentials/{id}/rotate", tag = "credentials",
    operation_id = "rotateCredentials", params(("id" = Uuid, Path, description = "Their id")),
    request_body = RotateBody,
    responses((status = 200, description = "All nodes know within a moment", body = CredentialsView), Conflict))]
async fn rotate(
    caller: Caller<Decide>,
    State(state): State<ApiState>,
    Named(id): Named,
    body: JsonBody,
) -> Result<Json<CredentialsView>, Problem> {
    let rotation = rotation(&body.bytes)?;
    drop(body);
    let id = credentials_id(&id)?;
    let row = credentials::rotate(state.store(), &state.inner.keys, id, &rotation, &caller.name).await?;
    let row = row.ok_or_else(unknown)?;
    state.inner.node.flush_caches();
    Ok(Json(CredentialsView::of(row)))
}

fn rotation(body: &[u8]) -> Result<Rotation, Problem> {
    let mut fields = Fields::parse(body)?;
    let rotation = Rotation {
        bearer_token: fields.text("bearerToken").map(Zeroizing::new),
        signing_secret: fields.text("signingSecret").map(Zeroizing::new),
        active_from: fields.time("activeFrom"),
        overlap_s: fields.whole("overlapSeconds").unwrap_or(OVERLAP_S_DEFAULT),
    };
    fields.checked(rotation.validate())?;
    Ok(rotation)
}

fn unknown() -> Problem {
    Problem::not_found("no credentials have this id")
}

fn credentials_id(text: &str) -> Result<CredentialsId, Problem> {
    text.parse::<Uuid>().map(CredentialsId).map_err(|_| unknown())
}
