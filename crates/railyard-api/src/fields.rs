//! A JSON object, field by field: everything that is wrong is named in one answer.
//!
//! Values are read from their text, so that a wrong one costs the others nothing, nothing is nested deeper than the
//! parser allows, and what stands there twice is refused instead of one of both being taken.

use std::borrow::Cow;
use std::collections::BTreeMap;

use jiff::Timestamp;
use railyard_core::job::FieldError;
use serde::de::{DeserializeOwned, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::problem::Problem;

/// Fields of one object. More is refused before it is read.
const FIELDS_MAX: usize = 100;

/// An object that is being read. Each reading takes a field away; what is left in the end was not known.
pub(crate) struct Fields<'a> {
    found: BTreeMap<Cow<'a, str>, &'a RawValue>,
    errors: Vec<FieldError>,
}

impl<'a> Fields<'a> {
    /// Finds the fields of a body.
    ///
    /// # Errors
    /// 400 that names line and column if the body is not one JSON object in UTF-8.
    pub(crate) fn parse(body: &'a [u8]) -> Result<Self, Problem> {
        let object: Object<'_> = serde_json::from_str(text(body)?).map_err(|error| malformed(&error))?;
        let mut fields = Self { found: BTreeMap::new(), errors: Vec::new() };
        for (name, value) in object.0 {
            if fields.found.insert(name.clone(), value).is_some() {
                fields.error(&shown(&name), "stands there twice");
            }
        }
        Ok(fields)
    }

    /// Notes what is wrong with a field.
    pub(crate) fn error(&mut self, field: &str, detail: impl Into<String>) {
        self.errors.push(FieldError { field: field.to_owned(), detail: detail.into() });
    }

    /// A field; none if it is missing, null or wrong.
    fn take<T: DeserializeOwned>(&mut self, field: &str, what: &str) -> Option<T> {
        let text = self.found.remove(field)?.get();
        if text == "null" {
            return None;
        }
        match serde_json::from_str(text) {
            Ok(value) => Some(value),
            Err(error) => {
                // A string that is one, and holds what no string may: a lone surrogate, a control character.
                let detail = match text.starts_with('"') && error.is_syntax() {
                    true => format!("is not {what}: {}", said(&error)),
                    false => format!("is not {what}"),
                };
                self.error(field, detail);
                None
            }
        }
    }

    /// A field as it stands there; none if it is missing or null.
    pub(crate) fn raw(&mut self, field: &str) -> Option<&'a RawValue> {
        self.found.remove(field).filter(|value| value.get() != "null")
    }

    /// A field as it stands there, null included; none if it is missing.
    pub(crate) fn as_it_stands(&mut self, field: &str) -> Option<&'a RawValue> {
        self.found.remove(field)
    }

    /// A string that a later reading takes; none if it is not one.
    pub(crate) fn peek_text(&self, field: &str) -> Option<String> {
        serde_json::from_str(self.found.get(field)?.get()).ok()
    }

    /// Text, whatever it holds.
    pub(crate) fn text(&mut self, field: &str) -> Option<String> {
        self.take(field, "a string")
    }

    /// Text that must be there. Where it is not, the error is noted and the answer is empty.
    pub(crate) fn required(&mut self, field: &str) -> String {
        if !self.has(field) {
            self.found.remove(field);
            self.error(field, "is missing");
            return String::new();
        }
        self.text(field).unwrap_or_default()
    }

    /// A whole number.
    pub(crate) fn whole(&mut self, field: &str) -> Option<u32> {
        self.take::<Whole>(field, "a whole number from 0 to 4294967295").map(|whole| whole.0)
    }

    /// Yes or no.
    pub(crate) fn flag(&mut self, field: &str) -> Option<bool> {
        self.take(field, "true or false")
    }

    /// The text of an object, to be read by its own fields.
    pub(crate) fn object(&mut self, field: &str) -> Option<&'a str> {
        let text = self.found.remove(field)?.get();
        match text.starts_with('{') {
            true => Some(text),
            false if text == "null" => None,
            false => {
                self.error(field, "is not an object");
                None
            }
        }
    }

    /// A list of strings.
    pub(crate) fn texts(&mut self, field: &str) -> Option<Vec<String>> {
        self.take(field, "a list of strings")
    }

    /// One of a closed list of words.
    pub(crate) fn word<T: Copy>(&mut self, field: &str, all: &[T], name: fn(T) -> &'static str) -> Option<T> {
        let text = self.text(field)?;
        let known = all.iter().copied().find(|word| name(*word) == text);
        if known.is_none() {
            let names: Vec<&str> = all.iter().map(|word| name(*word)).collect();
            self.error(field, format!("is not one of {}", names.join(", ")));
        }
        known
    }

    /// An object of strings, in the order given.
    pub(crate) fn map(&mut self, field: &str) -> Vec<(String, String)> {
        let entries: StringMap = match self.take(field, "an object whose values are strings, each name once") {
            Some(entries) => entries,
            None => return Vec::new(),
        };
        entries.0
    }

    /// A time: RFC 3339 with an offset.
    pub(crate) fn time(&mut self, field: &str) -> Option<Timestamp> {
        let text = self.text(field)?;
        let time = rfc3339(&text);
        if time.is_none() {
            self.error(field, "is not a time like 2025-10-04T15:00:00Z or 2025-10-04T17:00:00+02:00");
        }
        time
    }

    /// Whether a field is there and not null.
    pub(crate) fn has(&self, field: &str) -> bool {
        self.found.get(field).is_some_and(|value| value.get() != "null")
    }

    /// Whether something is wrong with a field already.
    pub(crate) fn is_wrong(&self, field: &str) -> bool {
        self.errors.iter().any(|error| error.field == field)
    }

    /// Takes a field that has no effect.
    pub(crate) fn ignore(&mut self, field: &str) {
        self.found.remove(field);
    }

    /// The end of the reading, and what else was found wrong. A field that could not be read is not wrong twice.
    ///
    /// # Errors
    /// 400 with everything that is wrong.
    pub(crate) fn checked(mut self, found: Result<(), Vec<FieldError>>) -> Result<(), Problem> {
        for name in std::mem::take(&mut self.found).into_keys() {
            self.error(&shown(&name), "is not a known field");
        }
        let mut errors = self.errors;
        for error in found.err().into_iter().flatten() {
            if !errors.iter().any(|known| known.field == error.field) {
                errors.push(error);
            }
        }
        if errors.is_empty() { Ok(()) } else { Err(Problem::fields(errors)) }
    }

    /// The end of the reading.
    ///
    /// # Errors
    /// 400 with everything that is wrong.
    pub(crate) fn finish(self) -> Result<(), Problem> {
        self.checked(Ok(()))
    }
}

/// A body's text.
///
/// # Errors
/// 400 if it is not UTF-8.
pub(crate) fn text(body: &[u8]) -> Result<&str, Problem> {
    std::str::from_utf8(body)
        .map_err(|error| Problem::invalid(format!("the body is not UTF-8 at byte {}", error.valid_up_to())))
}

/// 400 for what is not JSON, or not of the right form, with its place.
pub(crate) fn malformed(error: &serde_json::Error) -> Problem {
    Problem::invalid(format!("line {}, column {}: {}", error.line(), error.column(), said(error)))
}

/// What the parser says, without the place, and without the value that it met: it may be a secret, or megabytes.
pub(crate) fn said(error: &serde_json::Error) -> String {
    let said = error.to_string();
    let said = said.rsplit_once(" at line ").map_or(&*said, |(said, _)| said);
    match said.rsplit_once(", expected ") {
        Some((_, expected)) if error.is_data() => format!("expected {expected}"),
        _ => said.to_owned(),
    }
}

/// A name from outside, short enough to be repeated.
fn shown(name: &str) -> String {
    railyard_core::text::clean_str(name, 100)
}

/// jiff reads more than RFC 3339 (a space for the T, names of zones, times without seconds); we take no more than
/// what another reader would take as well.
pub(crate) fn rfc3339(text: &str) -> Option<Timestamp> {
    let shape = |text: &str, pattern: &str| {
        text.len() == pattern.len()
            && text.bytes().zip(pattern.bytes()).all(|(byte, expected)| match expected {
                b'0' => byte.is_ascii_digit(),
                _ => byte == expected,
            })
    };
    let (head, rest) = text.split_at_checked(19)?;
    let fraction = rest.strip_prefix('.').map_or(0, |rest| rest.bytes().take_while(u8::is_ascii_digit).count());
    let offset = if rest.starts_with('.') { rest.get(1 + fraction..)? } else { rest };
    let known = shape(head, "0000-00-00T00:00:00")
        && (!rest.starts_with('.') || (1..=9).contains(&fraction))
        && (offset == "Z" || shape(offset, "+00:00") || shape(offset, "-00:00"));
    if known { text.parse().ok() } else { None }
}

struct Object<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'de> Deserialize<'de> for Object<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = Object<'de>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry::<Name<'de>, &'de RawValue>()? {
                    entries.push((entry.0.0, entry.1));
                    if entries.len() > FIELDS_MAX {
                        return Err(serde::de::Error::custom(format_args!("more than {FIELDS_MAX} fields")));
                    }
                }
                Ok(Object(entries))
            }
        }
        deserializer.deserialize_map(Entries)
    }
}

/// `3` and `3.0` are one number to JSON, and some languages print the one for the other.
struct Whole(u32);

impl<'de> Deserialize<'de> for Whole {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = serde_json::Number::deserialize(deserializer)?;
        let digits = number.to_string();
        let digits = digits.strip_suffix(".0").unwrap_or(&digits);
        digits.parse().map(Self).map_err(serde::de::Error::custom)
    }
}

#[derive(Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

/// An object of strings; a name that stands there twice is an error.
struct StringMap(Vec<(String, String)>);

impl<'de> Deserialize<'de> for StringMap {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = StringMap;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object of strings")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut entries: Vec<(String, String)> = Vec::new();
                let mut names = std::collections::BTreeSet::new();
                while let Some((name, value)) = map.next_entry::<String, String>()? {
                    if !names.insert(name.clone()) {
                        return Err(serde::de::Error::custom("a name stands there twice"));
                    }
                    entries.push((name, value));
                }
                Ok(StringMap(entries))
            }
        }
        deserializer.deserialize_map(Entries)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_need_an_offset_and_nothing_else() {
        for good in ["2025-10-04T15:00:00Z", "2025-10-04T17:00:00.123456789+02:00", "2025-10-04T15:00:00.1-00:30"] {
            assert!(rfc3339(good).is_some(), "{good}");
        }
        for bad in [
            "",
            "2025-10-04",
            "2025-10-04T15:00:00",
            "2025-10-04 15:00:00Z",
            "2025-10-04T15:00Z",
            "2025-10-04T15:00:00.Z",
            "2025-10-04T15:00:00.1234567890Z",
            "2025-13-04T15:00:00Z",
            "2025-10-04T15:00:00+02:00[Europe/Berlin]",
            "2025-10-04T15:00:00+25:99",
            "２025-10-04T15:00:00Z",
            "1e15",
        ] {
            assert!(rfc3339(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn a_name_is_repeated_in_short() {
        let long = "n".repeat(1_000_000);
        let body = format!(r#"{{"{long}": 1, "{long}": 2}}"#);
        let errors = Fields::parse(body.as_bytes()).unwrap().finish().unwrap_err().into_errors();
        assert!(errors.iter().all(|error| error.field.len() < 200), "{}", errors[0].field.len());
    }

    #[test]
    fn everything_wrong_is_named_at_once() {
        let body = br#"{"a": 1, "b": "\ud800", "c": {"x": 1}, "d": -1, "e": "x", "e": "y", "zz": null, "f": "later"}"#;
        let mut fields = Fields::parse(body).unwrap();
        assert_eq!(fields.text("a"), None);
        assert_eq!(fields.text("b"), None);
        assert!(fields.map("c").is_empty());
        assert_eq!(fields.whole("d"), None);
        fields.text("e");
        fields.time("f");
        fields.required("g");
        let named: Vec<String> =
            fields.finish().unwrap_err().into_errors().into_iter().map(|error| error.field).collect();
        assert_eq!(named, ["e", "a", "b", "c", "d", "f", "g", "zz"]);
    }

    #[test]
    fn what_is_no_object_is_refused_with_its_place() {
        for body in [&b""[..], b"[]", b"{", b"{\"a\":}", b"\xef\xbb\xbf{}", b"{\"a\":\"\xff\"}", b"{} {}"] {
            assert!(Fields::parse(body).is_err(), "{body:?}");
        }
        let deep = format!("{{\"a\": {}{}}}", "[".repeat(10_000), "]".repeat(10_000));
        let mut fields = Fields::parse(deep.as_bytes()).unwrap();
        assert_eq!(fields.text("a"), None);
    }

    #[test]
    fn three_and_three_point_zero_are_one_number() {
        let read = |text: &str| Fields::parse(format!("{{\"a\": {text}}}").as_bytes()).unwrap().whole("a");
        assert_eq!(
            [read("3"), read("3.0"), read("30e-1"), read("4294967295")],
            [Some(3), Some(3), Some(3), Some(u32::MAX)]
        );
        for bad in ["3.5", "-1", "-1.0", "4294967296", "1e300", "\"3\"", "true", "[3]"] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }

    #[test]
    fn escapes_are_undone_and_nothing_else_is() {
        let mut fields = Fields::parse(br#"{"a": "\u0000\u00e9\/ \uD83D\uDE00"}"#).unwrap();
        assert_eq!(fields.text("a").as_deref(), Some("\0\u{e9}/ \u{1f600}"));
    }
}
