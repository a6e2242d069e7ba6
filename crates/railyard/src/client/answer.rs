//! What the API said: a value, or a problem document (RFC 9457).

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A 2xx answer.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    /// Its JSON; null if there is none.
    pub(crate) body: Value,
}

/// Why a call gave no 2xx answer.
#[derive(Clone, Debug)]
pub(crate) enum CallError {
    /// No answer: not connected, cut off, or too late. What the call did is unknown.
    Unreachable(String),
    /// The API refused.
    Refused(Problem),
}

/// A problem document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Problem {
    /// HTTP status.
    pub(crate) status: u16,
    /// In general.
    pub(crate) title: String,
    /// In this case.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) detail: Option<String>,
    /// By field.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) errors: Vec<FieldProblem>,
    /// When to come back.
    #[serde(skip)]
    pub(crate) retry_after: Option<Duration>,
}

/// One field of a problem.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FieldProblem {
    /// Its name.
    pub(crate) field: String,
    /// What is wrong with it.
    pub(crate) detail: String,
}

#[derive(Deserialize)]
struct Document {
    title: Option<String>,
    detail: Option<String>,
    #[serde(default)]
    errors: Vec<FieldProblem>,
}

impl Answer {
    pub(super) async fn read(response: reqwest::Response) -> Result<Self, CallError> {
        let status = response.status();
        let retry_after = response.headers().get(reqwest::header::RETRY_AFTER);
        let retry_after = retry_after.and_then(|value| value.to_str().ok()?.trim().parse().ok());
        let bytes = response.bytes().await.map_err(|error| CallError::unreachable(&error))?;
        if !status.is_success() {
            let retry_after = retry_after.map(Duration::from_secs);
            return Err(CallError::Refused(Problem::read(status, retry_after, &bytes)));
        }
        if bytes.is_empty() {
            return Ok(Self { body: Value::Null });
        }
        let not_json = |error| CallError::Unreachable(format!("the answer is not JSON: {error}"));
        let body = serde_json::from_slice(&bytes).map_err(not_json)?;
        Ok(Self { body })
    }
}

impl Problem {
    fn read(status: reqwest::StatusCode, retry_after: Option<Duration>, bytes: &[u8]) -> Self {
        let document: Option<Document> = serde_json::from_slice(bytes).ok();
        let in_general = status.canonical_reason().unwrap_or("refused").to_owned();
        let (title, detail, errors) = match document {
            Some(document) => (document.title.unwrap_or(in_general), document.detail, document.errors),
            None => (in_general, None, Vec::new()),
        };
        Self { status: status.as_u16(), title, detail, errors, retry_after }
    }

    /// Whether no request of this caller will do better: the token, the path or the server are wrong, not the job.
    fn concerns_every_call(&self) -> bool {
        matches!(self.status, 401 | 403 | 404 | 405)
    }
}

impl CallError {
    /// With the innermost cause, where the reason stands (`Connection refused`).
    pub(super) fn unreachable(error: &reqwest::Error) -> Self {
        let mut cause: &dyn std::error::Error = error;
        while let Some(inner) = cause.source() {
            cause = inner;
        }
        let url = error.url().map(|url| format!(" ({url})")).unwrap_or_default();
        Self::Unreachable(format!("{cause}{url}"))
    }

    /// Whether the same call may do better later.
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            Self::Unreachable(_) => true,
            Self::Refused(problem) => matches!(problem.status, 408 | 425 | 429 | 502 | 503 | 504),
        }
    }

    /// Whether the API failed by itself. It may pass, and it may be this one request that brings it about.
    pub(crate) fn is_fault(&self) -> bool {
        matches!(self, Self::Refused(Problem { status: 500, .. }))
    }

    /// The problem, if it is this job's own and others may fare better.
    ///
    /// # Errors
    /// Itself otherwise.
    pub(crate) fn into_this_jobs_problem(self) -> Result<Problem, Self> {
        let transient = self.is_transient();
        match self {
            Self::Refused(problem) if !transient && !problem.concerns_every_call() => Ok(problem),
            other @ (Self::Refused(_) | Self::Unreachable(_)) => Err(other),
        }
    }

    /// When the API wants to be asked again.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Unreachable(_) => None,
            Self::Refused(problem) => problem.retry_after,
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.status, self.title)?;
        if let Some(detail) = &self.detail {
            write!(f, ": {detail}")?;
        }
        self.errors.iter().try_for_each(|error| write!(f, "; {}: {}", error.field, error.detail))
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable(detail) => write!(f, "the API cannot be reached: {detail}"),
            Self::Refused(problem) => problem.fmt(f),
        }
    }
}

impl std::error::Error for CallError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_reads_as_one_line() {
        let body = br#"{"type":"about:blank","title":"bad input","status":400,"detail":"2 fields",
            "errors":[{"field":"amount","detail":"is not above 0"},{"field":"type","detail":"is missing"}]}"#;
        let problem = Problem::read(reqwest::StatusCode::BAD_REQUEST, None, body);
        let expect = "400 bad input: 2 fields; amount: is not above 0; type: is missing";
        assert_eq!(problem.to_string(), expect);
    }

    #[test]
    fn an_answer_of_something_else_on_the_port_is_still_named() {
        let problem = Problem::read(reqwest::StatusCode::NOT_FOUND, None, b"<html>");
        assert_eq!(problem.to_string(), "404 Not Found");
        assert!(problem.concerns_every_call());
    }
}
