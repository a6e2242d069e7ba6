//! Who asks, and what they may do.
//!
//! Tokens are random and known to this process as SHA-256 hashes alone. A request's token is hashed and compared with
//! all of them in constant time. Whoever is not known gets 401 and no reason; who fails often from one address is
//! made to wait. Without any configured token only this machine is served.

mod failures;

use std::marker::PhantomData;
use std::net::{IpAddr, SocketAddr};

use axum::extract::{ConnectInfo, FromRequestParts};
use axum::http::header::{AUTHORIZATION, HOST};
use axum::http::request::Parts;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::problem::Problem;
use crate::state::ApiState;
use failures::Failures;

/// What a token may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Make jobs, and read jobs.
    Producer,
    /// Read everything.
    Viewer,
    /// Everything.
    Admin,
}

/// A configured token.
#[derive(Clone, Debug)]
pub struct Token {
    name: String,
    role: Role,
    sha256: [u8; 32],
}

/// A token's hash cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the hash of a token is 64 hex digits")]
pub struct TokenError;

impl Token {
    /// `name` stands in the audit; `sha256` is the hash of the token in hex.
    ///
    /// # Errors
    /// [`TokenError`].
    pub fn new(name: &str, role: Role, sha256: &str) -> Result<Self, TokenError> {
        let mut hash = [0; 32];
        hex::decode_to_slice(sha256, &mut hash).map_err(|_| TokenError)?;
        Ok(Self { name: name.to_owned(), role, sha256: hash })
    }
}

/// All configured tokens, and who has failed lately.
#[derive(Debug, Default)]
pub struct Auth {
    tokens: Vec<Token>,
    failures: Failures,
}

impl Auth {
    /// With these tokens; with none, for this machine alone.
    #[must_use]
    pub fn new(tokens: Vec<Token>) -> Self {
        Self { tokens, failures: Failures::default() }
    }

    /// Whether only this machine is served.
    #[must_use]
    pub fn loopback_only(&self) -> bool {
        self.tokens.is_empty()
    }

    /// The token's owner. Every token is compared, whether or not one has matched.
    fn find(&self, given: &str) -> Option<&Token> {
        let hash = Sha256::digest(given.as_bytes());
        self.tokens.iter().fold(None, |found, token| {
            let same = bool::from(hash.as_slice().ct_eq(&token.sha256));
            if same { Some(token) } else { found }
        })
    }
}

/// A level of permission, as a type, so that a handler's signature says what it needs.
pub(crate) trait Level: Send + Sync + 'static {
    /// Whether this role reaches it.
    fn allows(role: Role) -> bool;
}

/// May make jobs.
pub(crate) struct Produce;
/// May read jobs.
pub(crate) struct ReadJobs;
/// May read everything.
pub(crate) struct Read;
/// May decide.
pub(crate) struct Decide;

impl Level for Produce {
    fn allows(role: Role) -> bool {
        match role {
            Role::Producer | Role::Admin => true,
            Role::Viewer => false,
        }
    }
}

impl Level for ReadJobs {
    fn allows(role: Role) -> bool {
        match role {
            Role::Producer | Role::Viewer | Role::Admin => true,
        }
    }
}

impl Level for Read {
    fn allows(role: Role) -> bool {
        match role {
            Role::Viewer | Role::Admin => true,
            Role::Producer => false,
        }
    }
}

impl Level for Decide {
    fn allows(role: Role) -> bool {
        match role {
            Role::Admin => true,
            Role::Producer | Role::Viewer => false,
        }
    }
}

/// Somebody who may. Extract it first.
pub(crate) struct Caller<L> {
    /// The name for the audit.
    pub(crate) name: String,
    level: PhantomData<L>,
}

impl<L: Level> FromRequestParts<ApiState> for Caller<L> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &ApiState) -> Result<Self, Problem> {
        let (name, role) = identify(parts, state)?;
        if !L::allows(role) {
            return Err(Problem::forbidden("this token's role does not allow it"));
        }
        Ok(Self { name, level: PhantomData })
    }
}

fn identify(parts: &Parts, state: &ApiState) -> Result<(String, Role), Problem> {
    let auth = &state.inner.auth;
    let peer = parts.extensions.get::<ConnectInfo<SocketAddr>>().map(|info| info.0.ip().to_canonical());
    if auth.loopback_only() {
        if peer.is_some_and(|peer| peer.is_loopback()) && host_is_local(parts) {
            return Ok(("local".to_owned(), Role::Admin));
        }
        return Err(refused(state, peer));
    }
    match bearer(parts).and_then(|given| auth.find(given)) {
        Some(token) => Ok((token.name.clone(), token.role)),
        // Whoever shows no token guesses none: to wait would only hide what is missing.
        None => Err(refused(state, peer.filter(|_| parts.headers.contains_key(AUTHORIZATION)))),
    }
}

/// A known token is never made to wait: behind one address there may be many callers.
fn refused(state: &ApiState, peer: Option<IpAddr>) -> Problem {
    state.inner.metrics.auth_failed();
    match peer.map(|peer| state.inner.auth.failures.count(peer)) {
        Some(Err(wait_s)) => Problem::too_many_failures(wait_s),
        Some(Ok(())) | None => Problem::unauthorized(),
    }
}

fn bearer(parts: &Parts) -> Option<&str> {
    let mut given = parts.headers.get_all(AUTHORIZATION).iter();
    let value = given.next()?.to_str().ok()?;
    if given.next().is_some() {
        return None;
    }
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// Without tokens a web page that this machine's browser shows could call us under a name of its own that resolves to
/// loopback. Its requests carry that name.
fn host_is_local(parts: &Parts) -> bool {
    let host =
        parts.headers.get(HOST).and_then(|host| host.to_str().ok()).or(parts.uri.authority().map(|a| a.as_str()));
    let Some(host) = host else { return false };
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    name.eq_ignore_ascii_case("localhost")
        || name.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
}

/// For routes that the configuration may open: who asks matters only where it did not.
pub(crate) fn check<L: Level>(parts: &Parts, state: &ApiState, open: bool) -> Result<(), Problem> {
    if open {
        return Ok(());
    }
    let (_, role) = identify(parts, state)?;
    if L::allows(role) { Ok(()) } else { Err(Problem::forbidden("this token's role does not allow it")) }
}
