//! The headers that a job may set, checked when it is accepted and not when it is sent: a job that was taken in must
//! not be stuck on its own headers.

use crate::limits::{HEADERS_BYTES_MAX, HEADERS_MAX};

/// Set by Railyard, or by the protocol, on every call; or about the payload, of which the signature covers the bytes
/// alone. The database holds the same list (`headers_fault`).
const RESERVED: &[&str] = &[
    "authorization",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "expect",
    "host",
    "http2-settings",
    "idempotency-key",
    "keep-alive",
    "te",
    "traceparent",
    "tracestate",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "user-agent",
];

/// Families of which every member is Railyard's, or means the hop and not the receiver.
const RESERVED_PREFIXES: &[&str] = &["proxy-", "webhook-", "x-flowcatalyst-", "x-railyard-"];

/// Why a job's headers cannot be sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// More than [`HEADERS_MAX`].
    #[error("{0} headers; at most {HEADERS_MAX} are taken")]
    TooMany(usize),
    /// Names and values are longer than [`HEADERS_BYTES_MAX`].
    #[error("{0} bytes of headers; at most {HEADERS_BYTES_MAX} are taken")]
    TooLong(usize),
    /// Not a token of RFC 9110.
    #[error("header name {0:?} has characters that a name cannot have, or none")]
    Name(String),
    /// A control character; the value is not repeated, for it may be a secret.
    #[error("the value of header {0:?} has a control character (CR, LF and NUL among them)")]
    Value(String),
    /// Ours, or the protocol's.
    #[error("header {0:?} is set by Railyard and cannot be given")]
    Reserved(String),
    /// The same name twice, in whatever letters.
    #[error("header {0:?} is given twice")]
    Repeated(String),
}

/// Checks all of a job's headers.
///
/// # Errors
/// Everything that is wrong, in the order of the headers; the header is named.
pub fn check(headers: &[(String, String)]) -> Result<(), Vec<HeaderError>> {
    let mut errors = Vec::new();
    if headers.len() > HEADERS_MAX {
        errors.push(HeaderError::TooMany(headers.len()));
    }
    let bytes = headers.iter().map(|(name, value)| name.len() + value.len()).sum();
    if bytes > HEADERS_BYTES_MAX {
        errors.push(HeaderError::TooLong(bytes));
    }
    // Behind the bounds nothing is worth a look, and a look might cost a lot.
    if errors.is_empty() {
        for (index, (name, value)) in headers.iter().enumerate() {
            let repeated = headers[..index].iter().any(|(before, _)| before.eq_ignore_ascii_case(name));
            errors.extend(check_one(name, value, repeated));
        }
    }
    if errors.is_empty() { Ok(()) } else { Err(errors) }
}

/// Whether a name is Railyard's own, in whatever letters.
#[must_use]
pub fn is_reserved(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    RESERVED.contains(&name.as_str()) || RESERVED_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// Whether a value can stand in a header line: no control characters but the tab.
#[must_use]
pub fn value_is_valid(value: &str) -> bool {
    value.bytes().all(|b| b == b'\t' || (b >= b' ' && b != 0x7f))
}

fn check_one(name: &str, value: &str, repeated: bool) -> Option<HeaderError> {
    if !is_token(name) {
        Some(HeaderError::Name(name.to_owned()))
    } else if is_reserved(name) {
        Some(HeaderError::Reserved(name.to_owned()))
    } else if repeated {
        Some(HeaderError::Repeated(name.to_owned()))
    } else if !value_is_valid(value) {
        Some(HeaderError::Value(name.to_owned()))
    } else {
        None
    }
}

/// RFC 9110, 5.6.2.
pub(crate) fn is_token(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errors(pairs: &[(&str, &str)]) -> Vec<HeaderError> {
        let headers: Vec<_> = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        check(&headers).err().unwrap_or_default()
    }

    #[test]
    fn ordinary_headers_pass() {
        assert_eq!(errors(&[("X-Custom-Header", "value"), ("x-name", "Müller\t東京"), ("Accept", "")]), []);
    }

    #[test]
    fn s3_16_reserved_in_any_letters() {
        for name in [
            "Authorization",
            "AUTHORIZATION",
            "x-flowcatalyst-signature",
            "X-FlowCatalyst-Timestamp",
            "WebHook-Id",
            "webhook-signature",
            "Idempotency-key",
            "X-RAILYARD-Group",
            "hOST",
            "Content-Length",
            "content-type",
            "Transfer-Encoding",
            "connection",
            "TE",
            "Trailer",
            "Upgrade",
            "Keep-Alive",
            "Proxy-Authorization",
            "Expect",
            "User-Agent",
            "Traceparent",
            "TraceState",
            "Content-Encoding",
        ] {
            assert_eq!(errors(&[(name, "x")]), [HeaderError::Reserved(name.to_owned())]);
        }
    }

    #[test]
    fn names_and_values_that_split_the_request() {
        for name in ["", " ", "a b", "a:", "a\r\nb", "ä", "a\0", " Authorization", "Authorization "] {
            assert_eq!(errors(&[(name, "x")]), [HeaderError::Name(name.to_owned())]);
        }
        for value in ["a\r\nX-FLOWCATALYST-SIGNATURE: 0", "a\n", "\r", "a\0b", "\u{7f}", "\u{1b}"] {
            assert_eq!(errors(&[("a", value)]), [HeaderError::Value("a".to_owned())]);
        }
        assert!(!HeaderError::Value("a".to_owned()).to_string().contains("secret"));
    }

    #[test]
    fn all_errors_are_told() {
        let found = errors(&[("a", "1"), ("A", "2"), ("host", "3"), ("b", "4")]);
        assert_eq!(found, [HeaderError::Repeated("A".to_owned()), HeaderError::Reserved("host".to_owned())]);
    }

    #[test]
    fn bounds() {
        let names: Vec<String> = (0..51).map(|n| format!("h{n}")).collect();
        let many: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "x")).collect();
        assert_eq!(errors(&many[..50]), []);
        assert_eq!(errors(&many), [HeaderError::TooMany(51)]);
        assert_eq!(errors(&[("a", &"x".repeat(8191))]), []);
        assert_eq!(errors(&[("a", &"x".repeat(8192))]), [HeaderError::TooLong(8193)]);
    }
}
