//! The API's client: what `jobs`, `credentials` and `groups` speak through. It holds nothing; a command that dies in
//! the middle can be run again.

mod answer;
mod patience;

use std::time::Duration;

use anyhow::Context;
use reqwest::{Method, Url};

pub(crate) use answer::{Answer, CallError, FieldProblem, Problem};
pub(crate) use patience::Patience;

use crate::cli::ApiArgs;
use crate::exit::Usage;
use crate::files;

/// Longest wait for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest request.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Calls one API as one caller. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Client {
    http: reqwest::Client,
    base: Url,
    authorization: Option<reqwest::header::HeaderValue>,
}

impl Client {
    /// Prepares calls; connects nowhere yet.
    ///
    /// # Errors
    /// A URL that cannot be read, a token file likewise.
    pub(crate) fn new(args: &ApiArgs) -> anyhow::Result<Self> {
        let base: Url = args.url.parse().map_err(|error| Usage(format!("--url {}: {error}", args.url)))?;
        if !matches!(base.scheme(), "http" | "https") || base.host().is_none() {
            return Err(Usage(format!("--url {}: is not an http or https URL", args.url)).into());
        }
        let token = files::secret_of(args.token.as_ref(), args.token_file.as_deref())?;
        let authorization = token.map(|token| format!("Bearer {}", token.trim()).parse()).transpose();
        let mut authorization: Option<reqwest::header::HeaderValue> =
            authorization.map_err(|_| Usage("the token has characters that a header cannot have".to_owned()))?;
        if let Some(value) = &mut authorization {
            value.set_sensitive(true);
        }
        Ok(Self { http: http_client(&base)?, base, authorization })
    }

    /// One call. `path` is below the base, its parts escaped by the caller ([`segment`]); `body` is JSON.
    ///
    /// # Errors
    /// Anything but a 2xx answer.
    pub(crate) async fn call(&self, method: Method, path: &str, body: Option<Vec<u8>>) -> Result<Answer, CallError> {
        let url = format!("{}/{}", self.base.as_str().trim_end_matches('/'), path.trim_start_matches('/'));
        let mut request = self.http.request(method, url);
        if let Some(value) = &self.authorization {
            request = request.header(reqwest::header::AUTHORIZATION, value.clone());
        }
        if let Some(body) = body {
            request = request.header(reqwest::header::CONTENT_TYPE, "application/json").body(body);
        }
        let response = request.send().await.map_err(|error| CallError::unreachable(&error))?;
        Answer::read(response).await
    }
}

/// A path segment with everything escaped that would end it: group names are free text.
pub(crate) fn segment(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'~' => escaped.push(char::from(byte)),
            // A dot may be left alone, but not where the segment is `.` or `..`, which URL parsers take away.
            b'.' if text.bytes().any(|b| b != b'.') => escaped.push('.'),
            other => escaped.push_str(&format!("%{other:02X}")),
        }
    }
    escaped
}

fn http_client(base: &Url) -> anyhow::Result<reqwest::Client> {
    // Two clients in one process is no error: the provider that is there stays.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let builder = reqwest::Client::builder()
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(CONNECT_TIMEOUT)
        .timeout(TIMEOUT)
        .user_agent(concat!("railyard-cli/", env!("CARGO_PKG_VERSION")));
    // A machine without certificate authorities can still speak to an API without TLS.
    let builder = if base.scheme() == "https" { builder } else { builder.tls_certs_only([]) };
    builder.build().context("prepare the HTTP client")
}

#[cfg(test)]
mod tests {
    use super::segment;

    #[test]
    fn names_stay_one_segment() {
        assert_eq!(segment("debtor-1"), "debtor-1");
        assert_eq!(segment("a/b c?#%"), "a%2Fb%20c%3F%23%25");
        assert_eq!(segment("Łódź"), "%C5%81%C3%B3d%C5%BA");
        assert_eq!(segment(".."), "%2E%2E");
        assert_eq!(segment("a.b"), "a.b");
    }
}
