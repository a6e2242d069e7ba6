//! What stands in the URL. Every wrong parameter of a query is named at once, like the fields of a body; a path that
//! cannot be read names nothing.

use axum::extract::{FromRequestParts, Path, Query};
use axum::http::request::Parts;
use railyard_core::job::FieldError;
use utoipa::openapi::Object;
use utoipa::openapi::ObjectBuilder;
use utoipa::openapi::schema::Type;

use crate::openapi::shape;
use crate::problem::Problem;

/// Longest value, in characters: nothing that is searched for is longer.
pub(crate) const VALUE_CHARS_MAX: usize = 1024;

/// What is wrong with text that is not storable.
pub(crate) const UNSTORABLE: &str = "has a NUL character or is too long";

/// The database takes no NUL, and nothing that is looked for is longer.
pub(crate) fn is_storable(text: &str) -> bool {
    !text.contains('\0') && text.chars().count() <= VALUE_CHARS_MAX
}

/// What a request asks by its query.
pub(crate) trait Ask: Sized {
    /// Takes its parameters away; what is left in the end was not known.
    fn read(pairs: &mut Pairs) -> Self;
}

/// A query that was read.
pub(crate) struct Asked<T>(pub(crate) T);

impl<T: Ask, S: Send + Sync> FromRequestParts<S> for Asked<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Problem> {
        let found = Query::<Vec<(String, String)>>::try_from_uri(&parts.uri);
        let Query(found) = found.map_err(|error| Problem::invalid(format!("query: {}", error.body_text())))?;
        let mut pairs = Pairs { found, errors: Vec::new() };
        let asked = T::read(&mut pairs);
        pairs.finish()?;
        Ok(Self(asked))
    }
}

/// A query's parameters, as they stand there.
pub(crate) struct Pairs {
    found: Vec<(String, String)>,
    errors: Vec<FieldError>,
}

impl Pairs {
    /// Notes what is wrong with a parameter.
    pub(crate) fn error(&mut self, name: &str, detail: impl Into<String>) {
        let field = railyard_core::text::clean_str(name, 100);
        self.errors.push(FieldError { field, detail: detail.into() });
    }

    /// Text; none if it is missing or wrong.
    pub(crate) fn text(&mut self, name: &str) -> Option<String> {
        let mut given: Vec<_> = self.found.extract_if(.., |(found, _)| found == name).collect();
        let (_, value) = given.pop()?;
        if !given.is_empty() {
            self.error(name, "stands there twice");
            return None;
        }
        self.storable(name, value)
    }

    /// What stands behind this prefix, with the rest of each name; the same name may stand there twice.
    pub(crate) fn prefixed(&mut self, prefix: &str) -> Vec<(String, String)> {
        let is_one = |name: &str| name.len() > prefix.len() && name.starts_with(prefix);
        let given: Vec<_> = self.found.extract_if(.., |(name, _)| is_one(name)).collect();
        let mut read = Vec::new();
        for (name, value) in given {
            let key = self.storable(&name, name[prefix.len()..].to_owned());
            if let Some(pair) = key.and_then(|key| Some((key, self.storable(&name, value)?))) {
                read.push(pair);
            }
        }
        read
    }

    fn storable(&mut self, name: &str, text: String) -> Option<String> {
        if !is_storable(&text) {
            self.error(name, UNSTORABLE);
            return None;
        }
        Some(text)
    }

    /// Text that is to be read as something else; `what` it is not, if it cannot be.
    pub(crate) fn parsed<T>(&mut self, name: &str, what: &str, read: impl FnOnce(&str) -> Option<T>) -> Option<T> {
        let read = read(&self.text(name)?);
        if read.is_none() {
            self.error(name, format!("is not {what}"));
        }
        read
    }

    /// One of a closed list of words.
    pub(crate) fn word<T: Copy>(&mut self, name: &str, all: &[T], of: fn(T) -> &'static str) -> Option<T> {
        let words: Vec<&str> = all.iter().map(|word| of(*word)).collect();
        let what = format!("one of {}", words.join(", "));
        self.parsed(name, &what, |text| all.iter().copied().find(|word| of(*word) == text))
    }

    /// Yes or no.
    pub(crate) fn flag(&mut self, name: &str) -> Option<bool> {
        self.parsed(name, "true or false", |text| text.parse().ok())
    }

    /// A whole number from 0 up, however many digits it has.
    pub(crate) fn whole(&mut self, name: &str) -> Option<u32> {
        self.parsed(name, "a whole number from 0 up", |text| Some(u32::try_from(whole(text)?).unwrap_or(u32::MAX)))
    }

    /// How many entries a page shall have: a whole number from 1 up. What is more than a page may have means as many
    /// as it may have.
    pub(crate) fn size(&mut self, default: u32, max: u32) -> u32 {
        let read = |text: &str| whole(text).filter(|size| *size > 0);
        let size = self.parsed("size", "a whole number from 1 up", read);
        size.map_or(default, |size| u32::try_from(size).unwrap_or(max)).min(max)
    }

    /// `nextCursor` of the page before; empty like none begins.
    pub(crate) fn cursor(&mut self) -> Option<String> {
        self.text("cursor").filter(|text| !text.is_empty())
    }

    fn finish(mut self) -> Result<(), Problem> {
        for (name, _) in std::mem::take(&mut self.found) {
            self.error(&name, "is not a known parameter");
        }
        if self.errors.is_empty() { Ok(()) } else { Err(Problem::fields(self.errors)) }
    }
}

/// `size` as a parameter.
pub(crate) fn size() -> Object {
    let number = ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(1));
    number.description(Some("Entries of a page; more than a page may have means as many as it may have.")).build()
}

/// `cursor` as a parameter, and any other text.
pub(crate) fn value() -> Object {
    shape::text(VALUE_CHARS_MAX)
}

/// A number as a parameter.
pub(crate) fn number() -> Object {
    shape::whole_from(0)
}

/// Cuts rows, of which one more was read than a page shows; whether there is more.
pub(crate) fn cut<T>(rows: &mut Vec<T>, size: u32) -> bool {
    let size = usize::try_from(size).unwrap_or(usize::MAX);
    let more = rows.len() > size;
    rows.truncate(size);
    more
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
