//! The body of a request: JSON, of a bounded size, in a bounded share of the memory.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{FromRequest, Request};
use axum::http::HeaderMap;
use axum::http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE};
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use railyard_core::limits::BATCH_BYTES_MAX;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::problem::Problem;
use crate::state::ApiState;

/// What a body may hold beside the payload.
const AROUND_PAYLOAD_BYTES_MAX: usize = 256 * 1024;
/// How long a body may take to arrive; shorter than a request's deadline, so that the answer can say so.
const ARRIVAL_TIMEOUT: Duration = Duration::from_secs(20);
/// What every body may hold without a share of the room: as much as there are places for requests.
const FREE_BYTES_MAX: usize = 64 * 1024;
/// A byte of payload written in JSON, at its longest: `\u0001`.
const ESCAPE_BYTES_MAX: usize = 6;

/// A JSON body and its share of the memory. Extract it last: who asks is known before what is asked is read.
pub(crate) struct JsonBody {
    pub(crate) bytes: Bytes,
    _share: Option<OwnedSemaphorePermit>,
}

/// The same for many items at once: at most [`BATCH_BYTES_MAX`].
pub(crate) struct BatchBody {
    pub(crate) bytes: Bytes,
    _share: Option<OwnedSemaphorePermit>,
}

impl FromRequest<ApiState> for BatchBody {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &ApiState) -> Result<Self, Problem> {
        let JsonBody { bytes, _share } = JsonBody::take(request, state, BATCH_BYTES_MAX).await?;
        Ok(Self { bytes, _share })
    }
}

impl FromRequest<ApiState> for JsonBody {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &ApiState) -> Result<Self, Problem> {
        let bytes_max = state.inner.options.payload_bytes_max * ESCAPE_BYTES_MAX + AROUND_PAYLOAD_BYTES_MAX;
        Self::take(request, state, bytes_max).await
    }
}

impl JsonBody {
    async fn take(request: Request, state: &ApiState, bytes_max: usize) -> Result<Self, Problem> {
        if !is_json(request.headers()) || is_encoded(request.headers()) {
            return Err(Problem::media_type());
        }
        let length = announced(request.headers()).unwrap_or(bytes_max);
        if length > bytes_max {
            return Err(too_large(bytes_max));
        }
        let arriving = read(request.into_body(), &state.inner.bodies, length);
        timeout(ARRIVAL_TIMEOUT, arriving).await.map_err(|_| Problem::body_timeout())?
    }
}

/// The same where a request may come without one: nothing is an object without fields. Extract it last.
pub(crate) struct OptionalBody(pub(crate) Option<JsonBody>);

impl OptionalBody {
    /// The object's text.
    pub(crate) fn bytes(&self) -> &[u8] {
        let text: &[u8] = self.0.as_ref().map_or(&b"null"[..], |body| body.bytes.as_ref());
        if text.trim_ascii() == b"null" { b"{}" } else { text }
    }
}

impl FromRequest<ApiState> for OptionalBody {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &ApiState) -> Result<Self, Problem> {
        if request.headers().contains_key(CONTENT_TYPE) {
            let empty = announced(request.headers()) == Some(0);
            return if empty {
                Ok(Self(None))
            } else {
                JsonBody::from_request(request, state).await.map(Some).map(Self)
            };
        }
        let arriving = read(request.into_body(), &state.inner.bodies, 0);
        match timeout(ARRIVAL_TIMEOUT, arriving).await.map_err(|_| Problem::body_timeout())? {
            Ok(_) => Ok(Self(None)),
            Err(_) => Err(Problem::media_type()),
        }
    }
}

/// Room is taken once more than a little has arrived, and then for all of it: who announces much and sends little holds up
/// nobody, and no two wait for each other with half a body each.
async fn read(body: Body, room: &Arc<Semaphore>, bytes_max: usize) -> Result<JsonBody, Problem> {
    let mut arriving = body.into_data_stream();
    let mut bytes = BytesMut::new();
    let mut share = None;
    while let Some(more) = arriving.next().await {
        let more = more.map_err(|_| Problem::invalid("the body broke off"))?;
        let length = bytes.len() + more.len();
        if length > bytes_max {
            return Err(too_large(bytes_max));
        }
        if length > FREE_BYTES_MAX && share.is_none() {
            let kib = u32::try_from(bytes_max.div_ceil(1024)).map_err(|_| too_large(bytes_max))?;
            let taken = Arc::clone(room).acquire_many_owned(kib).await;
            share = Some(taken.map_err(|_| Problem::unavailable("the node is stopping"))?);
        }
        bytes.extend_from_slice(&more);
    }
    Ok(JsonBody { bytes: bytes.freeze(), _share: share })
}

fn too_large(bytes_max: usize) -> Problem {
    Problem::too_large(format!("a body of this kind has at most {bytes_max} bytes"))
}

fn announced(headers: &HeaderMap) -> Option<usize> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// Compressed bodies are not read: what they hold has no bound that is known beforehand.
fn is_encoded(headers: &HeaderMap) -> bool {
    headers.get_all(CONTENT_ENCODING).iter().any(|coding| !coding.as_bytes().eq_ignore_ascii_case(b"identity"))
}

/// `application/json` or `application/…+json`, with UTF-8 if a charset is named.
fn is_json(headers: &HeaderMap) -> bool {
    let Some(given) = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()) else { return false };
    let given = given.to_ascii_lowercase();
    let mut parts = given.split(';').map(str::trim);
    let essence = parts.next().unwrap_or_default();
    let json = essence == "application/json" || (essence.starts_with("application/") && essence.ends_with("+json"));
    json && parts.all(|part| part.strip_prefix("charset=").is_none_or(|set| set.trim_matches('"') == "utf-8"))
}
