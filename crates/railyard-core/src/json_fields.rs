//! A few fields of a JSON object, as they stand in the text.
//!
//! Money is not parsed into a number, and a value nested 10,000 deep must not end the process: the fields that
//! nobody asked for are skipped by the parser without recursion and never built.

use serde::Deserializer;
use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

/// What was found.
pub(crate) struct Fields<'a> {
    /// In the order of the text, repeated keys included.
    found: Vec<(&'static str, &'a RawValue)>,
    /// The text is one whole JSON object; otherwise it broke off, or is broken, behind what was found.
    pub(crate) complete: bool,
}

impl<'a> Fields<'a> {
    /// Reads the fields called `names` at the top level of `json`.
    pub(crate) fn read(json: &'a [u8], names: &'static [&'static str]) -> Self {
        let mut found = Vec::new();
        let mut parser = serde_json::Deserializer::from_slice(json);
        let complete = Object { names, found: &mut found }.deserialize(&mut parser).is_ok() && parser.end().is_ok();
        Self { found, complete }
    }

    /// The text of a field's value; a key that stands there twice has no value that two readers agree on.
    pub(crate) fn get(&self, name: &str) -> Field<'a> {
        let mut values = self.found.iter().filter(|(key, _)| *key == name).map(|(_, value)| value.get());
        match (values.next(), values.next()) {
            (None, _) => Field::Missing,
            (Some(text), None) => Field::Once(text),
            (Some(_), Some(_)) => Field::Repeated,
        }
    }
}

/// A field, as its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Field<'a> {
    /// Not there.
    Missing,
    /// There, with this text.
    Once(&'a str),
    /// There more than once.
    Repeated,
}

impl<'a> Field<'a> {
    /// The text, if there is exactly one.
    pub(crate) fn once(self) -> Option<&'a str> {
        match self {
            Self::Once(text) => Some(text),
            Self::Missing | Self::Repeated => None,
        }
    }

    /// The string, if it is one.
    pub(crate) fn string(self) -> Option<String> {
        self.once().and_then(string_of)
    }
}

/// A JSON string's value; none if the text is anything else, or names characters that do not exist.
pub(crate) fn string_of(json: &str) -> Option<String> {
    serde_json::from_str(json).ok()
}

struct Object<'f, 'a> {
    names: &'static [&'static str],
    found: &'f mut Vec<(&'static str, &'a RawValue)>,
}

impl<'a> DeserializeSeed<'a> for Object<'_, 'a> {
    type Value = ();

    fn deserialize<D: Deserializer<'a>>(self, parser: D) -> Result<(), D::Error> {
        parser.deserialize_map(self)
    }
}

impl<'a> Visitor<'a> for Object<'_, 'a> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<M: MapAccess<'a>>(self, mut map: M) -> Result<(), M::Error> {
        while let Some(key) = map.next_key::<String>()? {
            match self.names.iter().find(|name| **name == key) {
                Some(name) => self.found.push((name, map.next_value()?)),
                None => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deep_values_are_skipped_and_kept_without_recursion() {
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        let json = format!(r#"{{"a":{deep},"b":{deep}}}"#);
        let fields = Fields::read(json.as_bytes(), &["b"]);
        assert!(fields.complete);
        assert_eq!(fields.get("b"), Field::Once(deep.as_str()));
        assert_eq!(fields.get("a"), Field::Missing);
    }

    #[test]
    fn what_stands_before_the_break_is_found() {
        let fields = Fields::read(br#"{"a":1,"\u0061":2,"b":"x","c":[1,"#, &["a", "b", "c"]);
        assert!(!fields.complete);
        assert_eq!(fields.get("a"), Field::Repeated);
        assert_eq!(fields.get("b").string().as_deref(), Some("x"));
        assert_eq!(fields.get("c"), Field::Missing);
    }

    #[test]
    fn only_one_whole_object_is_complete() {
        for json in ["", "[]", "1", "null", "{} {}", "\u{feff}{}", "{\"a\":1,}", "{\"\\ud800\":1}"] {
            assert!(!Fields::read(json.as_bytes(), &["a"]).complete, "{json}");
        }
        assert!(Fields::read(b" {} ", &["a"]).complete);
    }
}
