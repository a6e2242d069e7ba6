//! What is wrong with a configuration, all of it at once: a start that fails three times for three typing errors
//! costs three deployments.

use std::fmt::{self, Display};
use std::ops::RangeInclusive;

/// A configuration that cannot be used. Each line starts with the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConfigError(pub(crate) Vec<String>);

impl Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the configuration cannot be used")?;
        self.0.iter().try_for_each(|line| write!(f, "\n  {line}"))
    }
}

impl std::error::Error for ConfigError {}

/// Collects what a check finds.
#[derive(Debug, Default)]
pub(crate) struct Problems(Vec<String>);

impl Problems {
    /// Something is wrong with `key`.
    pub(crate) fn add(&mut self, key: &str, what: impl Display) {
        self.0.push(format!("{key}: {what}"));
    }

    /// `value` must lie in `bounds`.
    pub(crate) fn range<T: PartialOrd + Display>(&mut self, key: &str, value: &T, bounds: RangeInclusive<T>) {
        if !bounds.contains(value) {
            self.add(key, format_args!("{value} is not between {} and {}", bounds.start(), bounds.end()));
        }
    }

    /// What the rail crate found in its part.
    pub(crate) fn extend(&mut self, found: Vec<railyard_rail::ConfigError>) {
        self.0.extend(found.into_iter().map(|error| format!("{}: {}", error.key, error.detail)));
    }

    /// Settled: nothing, or everything.
    pub(crate) fn into_result(self) -> Result<(), ConfigError> {
        if self.0.is_empty() { Ok(()) } else { Err(ConfigError(self.0)) }
    }
}
