//! The process's environment, read once, here and nowhere else.
//!
//! A variable is a configuration key if it starts with `RAILYARD_` and has a double underscore:
//! `RAILYARD_LEASE__LEASE_S` is `lease.lease_s`. Others that start so (RAILYARD_TOKEN, or what an orchestrator makes
//! up for a service of that name) are not.

use std::collections::BTreeMap;

use figment::value::{Dict, Map, Value};
use figment::{Metadata, Profile, Provider};

const PREFIX: &str = "RAILYARD_";
const SEPARATOR: &str = "__";

/// Names and values; what is not UTF-8 is left out.
#[derive(Clone, Default)]
pub(crate) struct Environment(BTreeMap<String, String>);

impl Environment {
    /// That of this process.
    pub(crate) fn of_process() -> Self {
        let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        Self(std::env::vars_os().filter_map(text).collect())
    }

    /// One variable; none if it is empty.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// The configuration keys among them, as paths (`lease.lease_s`), with their text.
    fn keys(&self) -> impl Iterator<Item = (String, &str)> {
        self.0.iter().filter_map(|(name, value)| {
            let key = name.strip_prefix(PREFIX)?;
            let key = key.contains(SEPARATOR).then(|| key.to_ascii_lowercase().replace(SEPARATOR, "."))?;
            Some((key, value.as_str()))
        })
    }

    /// Variables that would be the configuration key `path` with one more underscore: a slip that would otherwise be
    /// passed over in silence.
    pub(super) fn slips<'a>(&'a self, paths: &'a [String]) -> impl Iterator<Item = (String, String)> + 'a {
        paths.iter().filter_map(|path| {
            let name = format!("{PREFIX}{}", path.to_ascii_uppercase().replace('.', "_"));
            let meant = format!("{PREFIX}{}", path.to_ascii_uppercase().replace('.', SEPARATOR));
            self.0.contains_key(&name).then_some((name, meant))
        })
    }
}

impl FromIterator<(String, String)> for Environment {
    fn from_iter<I: IntoIterator<Item = (String, String)>>(pairs: I) -> Self {
        Self(pairs.into_iter().collect())
    }
}

impl Provider for Environment {
    fn metadata(&self) -> Metadata {
        Metadata::named("the environment")
            .interpolater(|_, path| format!("{PREFIX}{}", path.join(SEPARATOR).to_ascii_uppercase()))
    }

    fn data(&self) -> Result<Map<Profile, Dict>, figment::Error> {
        let mut all = Dict::new();
        for (key, text) in self.keys() {
            let value = text.parse().unwrap_or_else(|never: std::convert::Infallible| match never {});
            insert(&mut all, &key, value);
        }
        Ok(Profile::Default.collect(all))
    }
}

/// Puts a value at a path (`lease.lease_s`). A path that runs through a plain value replaces it.
fn insert(into: &mut Dict, path: &str, value: Value) {
    match path.split_once('.') {
        None => {
            into.insert(path.to_owned(), value);
        }
        Some((table, rest)) => {
            let mut inner = into.remove(table).and_then(Value::into_dict).unwrap_or_default();
            insert(&mut inner, rest, value);
            into.insert(table.to_owned(), inner.into());
        }
    }
}
