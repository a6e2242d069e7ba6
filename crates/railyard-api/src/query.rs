//! What stands in the URL. Unknown names and wrong values of a query are refused like those of a body; a path that
//! cannot be read names nothing.

use axum::extract::{FromRequestParts, Path, Query};
use axum::http::request::Parts;
use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer};
use utoipa::openapi::schema::Type;
use utoipa::openapi::{Object, ObjectBuilder};

use crate::problem::Problem;

/// axum's `Query` with our errors.
pub(crate) struct Asked<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Asked<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Problem> {
        match Query::<T>::try_from_uri(&parts.uri) {
            Ok(Query(asked)) => Ok(Self(asked)),
            Err(rejection) => Err(Problem::invalid(format!("query: {}", rejection.body_text()))),
        }
    }
}

/// The one name in a path, its escapes undone.
pub(crate) struct Named(pub(crate) String);

impl<S: Send + Sync> FromRequestParts<S> for Named {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        match Path::<String>::from_request_parts(parts, state).await {
            Ok(Path(name)) => Ok(Self(name)),
            Err(_) => Err(Problem::not_found("the path is not UTF-8")),
        }
    }
}

/// How many entries a page shall have: a whole number from 1 up, however many digits it has. What is more than a page
/// may have means as many as it may have.
#[derive(Clone, Copy)]
pub(crate) struct Size(i64);

impl Size {
    /// The number of entries: `asked`, or what a page that names no size has.
    pub(crate) fn of(asked: Option<Self>, default: i64, max: i64) -> i64 {
        asked.map_or(default, |size| size.0.min(max))
    }

    /// As a parameter.
    pub(crate) fn schema() -> Object {
        let number = ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(1));
        number.description(Some("Entries of a page; more than a page may have means as many as it may have.")).build()
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        whole(&text)
            .filter(|size| *size > 0)
            .map(Self)
            .ok_or_else(|| D::Error::custom("is not a whole number from 1 up"))
    }
}

/// `nextCursor` of the page before, where that is a number: a whole one, however many digits it has.
#[derive(Clone, Copy)]
pub(crate) struct Cursor(pub(crate) i64);

impl Cursor {
    /// As a parameter.
    pub(crate) fn schema() -> Object {
        ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(0)).build()
    }
}

impl<'de> Deserialize<'de> for Cursor {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        whole(&text).map(Self).ok_or_else(|| D::Error::custom("is not a whole number"))
    }
}

/// A whole number in digits; what is too large for the type is as large as the type can be.
pub(crate) fn whole(text: &str) -> Option<i64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::whole;

    #[test]
    fn numbers_of_any_length_are_numbers() {
        assert_eq!(whole("0020"), Some(20));
        assert_eq!(whole("99999999999999999999999999"), Some(i64::MAX));
        for bad in ["", "-1", "+1", "1.0", "1e3", " 1", "\u{661}"] {
            assert_eq!(whole(bad), None, "{bad}");
        }
    }
}
