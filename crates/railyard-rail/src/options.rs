//! The part of the configuration that this crate reads: `[http]` and `[rails.NAME]`.

use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;
use railyard_core::backoff::Backoff;
use railyard_core::breaker;
use railyard_core::ids::CredentialsId;
use railyard_core::job::endpoint_of;
use railyard_core::limiter::{Limit, STARTS_MAX, WINDOW_MS_MAX, WINDOW_MS_MIN};
use railyard_core::limits::{
    BACKOFF_CAP_MAX, CONNECT_TIMEOUT_S_DEFAULT, DEFERRAL_CAP, ENDPOINT_CONCURRENCY_DEFAULT, ENDPOINT_CONCURRENCY_MAX,
    RAIL_CALLS_MAX, RAIL_CODE_CHARS_MAX, RAIL_NAME_BYTES_MAX, TIMEOUT_S_MAX,
};
use railyard_core::rail::{DISPATCH_POOL, OnUnknown, RailKind, is_pool_code};
use serde::Deserialize;
use url::Url;

/// How calls are made, whatever the rail.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HttpOptions {
    /// Networks that may be called although they are private: `["10.1.0.0/16"]`.
    pub allow_networks: Vec<IpNet>,
    /// Longest wait for a connection, TLS included, in seconds. The call's own deadline may be shorter.
    pub connect_timeout_s: u32,
    /// A proxy for all calls, `http://host:port`. The proxy then has to enforce the list of networks.
    pub proxy: Option<ProxyUrl>,
    /// PEM files with certificate authorities beside those of the system.
    pub extra_roots: Vec<PathBuf>,
    /// Calls at once to one endpoint, from one node.
    pub endpoint_concurrency: u32,
    /// The longest wait that a receiver may ask for, in seconds.
    pub deferral_cap_s: u32,
    /// The circuit breaker of each endpoint.
    pub breaker: BreakerOptions,
}

/// When an endpoint is left alone.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BreakerOptions {
    /// Share of failures that opens it, in percent.
    pub failure_percent: u32,
    /// Calls before it may open.
    pub calls_min: u32,
    /// How far back calls count, in seconds.
    pub window_s: u32,
    /// How long it stays open, in seconds.
    pub open_s: u32,
    /// Probes that must succeed before it closes.
    pub probes: u32,
}

/// One rail.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RailOptions {
    /// What it checks and how it reads refusals.
    pub kind: RailKind,
    /// The receiver recognises a repeat by its Idempotency-Key, so an attempt whose outcome nobody knows may be
    /// repeated instead of holding the group.
    #[serde(default)]
    pub idempotent: bool,
    /// Codes in the rail's answers that end a payment.
    #[serde(default)]
    pub terminal_codes: Vec<String>,
    /// Calls of this rail at once, from one node; by default only the node's and the endpoint's bounds hold.
    #[serde(default)]
    pub calls_in_flight: Option<u32>,
    /// The pool whose slots its calls take, on all nodes together, once that is set; by default DISPATCH-POOL for webhooks,
    /// none for payments.
    #[serde(default)]
    pub pool: Option<String>,
    /// At most so many starts of this rail in any window, on all nodes together.
    #[serde(default)]
    pub limit: Option<LimitOptions>,
    /// Longest wait between attempts, in seconds; by default 120 for webhooks, 60 for payments.
    #[serde(default)]
    pub backoff_cap_s: Option<u32>,
    /// Where jobs go that name no target.
    #[serde(default)]
    pub target_url: Option<String>,
    /// Who signs for jobs that name nobody.
    #[serde(default)]
    pub credentials_id: Option<CredentialsId>,
}

/// A hard cap: `{ starts = 50, window_ms = 1000 }`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LimitOptions {
    /// At most so many starts in any window.
    pub starts: u32,
    /// How long a window is, in milliseconds.
    #[serde(default = "LimitOptions::window_ms")]
    pub window_ms: u32,
}

impl LimitOptions {
    /// A second, where nothing is said.
    #[must_use]
    pub fn window_ms() -> u32 {
        1000
    }

    /// As core reads it.
    #[must_use]
    pub fn limit(&self) -> Limit {
        Limit { starts: self.starts, window: Duration::from_millis(u64::from(self.window_ms)) }
    }

    /// Checks both values; `under` is the key of this table (`rails.NAME.limit`).
    #[must_use]
    pub fn check(&self, under: &str) -> Vec<ConfigError> {
        let starts = within(under, "starts", self.starts, 1, STARTS_MAX);
        let window = within(under, "window_ms", self.window_ms, WINDOW_MS_MIN, WINDOW_MS_MAX);
        starts.into_iter().chain(window).collect()
    }
}

/// A proxy's URL, whose user name and password never show.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct ProxyUrl(Url);

/// A value that is out of bounds.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key} {detail}")]
pub struct ConfigError {
    /// The key, as it is written: `http.breaker.open_s`.
    pub key: String,
    /// What is wrong.
    pub detail: String,
}

impl Default for HttpOptions {
    fn default() -> Self {
        Self {
            allow_networks: Vec::new(),
            connect_timeout_s: CONNECT_TIMEOUT_S_DEFAULT,
            proxy: None,
            extra_roots: Vec::new(),
            endpoint_concurrency: ENDPOINT_CONCURRENCY_DEFAULT,
            deferral_cap_s: 3600,
            breaker: BreakerOptions::default(),
        }
    }
}

impl Default for BreakerOptions {
    fn default() -> Self {
        Self { failure_percent: 50, calls_min: 10, window_s: 30, open_s: 5, probes: 3 }
    }
}

impl HttpOptions {
    /// As a duration.
    #[must_use]
    pub fn connect_timeout(&self) -> Duration {
        seconds(self.connect_timeout_s)
    }

    /// As a duration.
    #[must_use]
    pub fn deferral_cap(&self) -> Duration {
        seconds(self.deferral_cap_s)
    }

    /// The name that the resolver must let through.
    pub(crate) fn proxy_host(&self) -> Option<String> {
        self.proxy.as_ref().and_then(|proxy| proxy.0.host_str()).map(str::to_owned)
    }

    /// Checks every value; `under` is the key of this table (`http`).
    #[must_use]
    pub fn check(&self, under: &str) -> Vec<ConfigError> {
        let breaker = &self.breaker;
        let cap_max = u32::try_from(DEFERRAL_CAP.as_secs()).unwrap_or(u32::MAX) * 24;
        [
            within(under, "connect_timeout_s", self.connect_timeout_s, 1, TIMEOUT_S_MAX),
            within(under, "endpoint_concurrency", self.endpoint_concurrency, 1, ENDPOINT_CONCURRENCY_MAX),
            within(under, "deferral_cap_s", self.deferral_cap_s, 1, cap_max),
            within(under, "breaker.failure_percent", breaker.failure_percent, 1, 100),
            within(under, "breaker.calls_min", breaker.calls_min, 1, 10_000),
            within(under, "breaker.window_s", breaker.window_s, 1, 3600),
            within(under, "breaker.open_s", breaker.open_s, 1, 3600),
            within(under, "breaker.probes", breaker.probes, 1, 100),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

impl BreakerOptions {
    /// As core reads it.
    #[must_use]
    pub fn policy(&self) -> breaker::Policy {
        breaker::Policy {
            failure_percent: self.failure_percent,
            calls_min: self.calls_min,
            window: seconds(self.window_s),
            open: seconds(self.open_s),
            probes: self.probes,
        }
    }
}

impl RailOptions {
    /// A rail of this kind with nothing else said.
    #[must_use]
    pub fn new(kind: RailKind) -> Self {
        Self {
            kind,
            idempotent: false,
            terminal_codes: Vec::new(),
            calls_in_flight: None,
            pool: None,
            limit: None,
            backoff_cap_s: None,
            target_url: None,
            credentials_id: None,
        }
    }

    /// What is done when nobody knows an attempt's outcome: a webhook is repeated, a payment only where the rail is
    /// declared idempotent.
    #[must_use]
    pub fn on_unknown(&self) -> OnUnknown {
        match self.kind {
            RailKind::Payment if !self.idempotent => OnUnknown::Hold,
            RailKind::Payment | RailKind::Webhook => OnUnknown::Retry,
        }
    }

    /// The pool whose slots its calls take.
    #[must_use]
    pub fn pool(&self) -> Option<&str> {
        match (&self.pool, self.kind) {
            (Some(pool), _) => Some(pool),
            (None, RailKind::Webhook) => Some(DISPATCH_POOL),
            (None, RailKind::Payment) => None,
        }
    }

    /// Its steps between attempts.
    #[must_use]
    pub fn backoff(&self) -> Backoff {
        let default = match self.kind {
            RailKind::Webhook => Backoff::webhook(),
            RailKind::Payment => Backoff::payment(),
        };
        let cap = self.backoff_cap_s.map_or(default.cap, seconds);
        Backoff { cap, ..default }
    }

    /// Checks every value; `under` is the key of this table (`rails.NAME`).
    #[must_use]
    pub fn check(&self, under: &str) -> Vec<ConfigError> {
        let cap_max = u32::try_from(BACKOFF_CAP_MAX.as_secs()).unwrap_or(u32::MAX);
        let cap = self.backoff_cap_s.and_then(|cap| within(under, "backoff_cap_s", cap, 1, cap_max));
        let calls = self.calls_in_flight.and_then(|calls| within(under, "calls_in_flight", calls, 1, RAIL_CALLS_MAX));
        let bad_code = |code: &String| code.trim().is_empty() || code.chars().count() > RAIL_CODE_CHARS_MAX;
        let codes = self.terminal_codes.iter().any(bad_code).then(|| ConfigError {
            key: format!("{under}.terminal_codes"),
            detail: format!("has a code that is blank or longer than {RAIL_CODE_CHARS_MAX} characters"),
        });
        let target = self.target_url.as_deref().and_then(|url| endpoint_of(url).err());
        let target = target.map(|error| ConfigError { key: format!("{under}.target_url"), detail: error.to_string() });
        let bad_pool = |pool: &&String| !is_pool_code(pool);
        let pool = self.pool.as_ref().filter(bad_pool).map(|_| ConfigError {
            key: format!("{under}.pool"),
            detail: format!("is not 1 to {RAIL_NAME_BYTES_MAX} letters, digits, '_', '.' or '-'"),
        });
        let limit = self.limit.map(|limit| limit.check(&format!("{under}.limit"))).unwrap_or_default();
        cap.into_iter().chain(calls).chain(codes).chain(target).chain(limit).chain(pool).collect()
    }
}

impl ProxyUrl {
    /// With its secrets.
    pub(crate) fn url(&self) -> &Url {
        &self.0
    }
}

impl TryFrom<String> for ProxyUrl {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let url = Url::parse(&text).map_err(|error| format!("proxy is not a URL: {error}"))?;
        if !matches!(url.scheme(), "http" | "https") || url.host().is_none() {
            return Err("proxy is not an http or https URL with a host".to_owned());
        }
        Ok(Self(url))
    }
}

impl std::fmt::Debug for ProxyUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let port = self.0.port_or_known_default().unwrap_or_default();
        write!(f, "{}://{}:{port}", self.0.scheme(), self.0.host_str().unwrap_or_default())
    }
}

fn seconds(seconds: u32) -> Duration {
    Duration::from_secs(u64::from(seconds))
}

fn within(under: &str, key: &str, value: u32, min: u32, max: u32) -> Option<ConfigError> {
    let bad = !(min..=max).contains(&value);
    bad.then(|| ConfigError {
        key: format!("{under}.{key}"),
        detail: format!("is {value}; it must lie between {min} and {max}"),
    })
}

#[cfg(test)]
mod tests;
