//! Puts the sources together and says, in the keys' own names, what does not fit.

use std::path::Path;

use super::{Config, ConfigError, Environment};
use figment::Figment;
use figment::error::Kind;
use figment::providers::{Format, Toml};

impl Config {
    /// Defaults, then the file, then the environment; checked.
    ///
    /// # Errors
    /// A file that cannot be read, unknown keys, values of the wrong type or out of range, each with its key.
    pub(crate) fn load(file: Option<&Path>, environment: &Environment) -> Result<Self, ConfigError> {
        let slips: Vec<String> = environment
            .slips(&known_paths())
            .map(|(name, meant)| format!("{name}: is not read; the key's name has two underscores, {meant}"))
            .collect();
        if !slips.is_empty() {
            return Err(ConfigError(slips));
        }
        let mut sources = Figment::new();
        if let Some(file) = file {
            let text = std::fs::read_to_string(file)
                .map_err(|error| ConfigError(vec![format!("{}: cannot be read: {error}", file.display())]))?;
            sources = sources.merge(Toml::string(&text));
        }
        let config: Self = sources
            .merge(environment.clone())
            .extract()
            .map_err(|error| ConfigError(error.into_iter().map(|error| in_words(&error, file)).collect()))?;
        config.check()?;
        Ok(config)
    }
}

/// `lease.leas_s: unknown key; … (in FILE)`.
fn in_words(error: &figment::Error, file: Option<&Path>) -> String {
    let path = error.path.join(".");
    let from = match (&error.metadata, file) {
        (Some(metadata), _) if metadata.name == "the environment" => {
            let name = metadata.interpolate(&figment::Profile::Default, &error.path);
            format!(" (from {name})")
        }
        (Some(_), Some(file)) => format!(" (in {})", file.display()),
        (Some(_) | None, _) => String::new(),
    };
    if let Kind::UnknownField(name, known) = &error.kind {
        let known = if known.is_empty() { String::new() } else { format!("; known are {}", known.join(", ")) };
        let path = if path.is_empty() { name.clone() } else { format!("{}.{name}", parent_of(&path, name)) };
        return format!("{path}: unknown key{known}{from}");
    }
    let what = &error.kind;
    if path.is_empty() { format!("{what}{from}") } else { format!("{path}: {what}{from}") }
}

/// The path without the key itself, whichever of the two the parser gave.
fn parent_of<'a>(path: &'a str, key: &str) -> &'a str {
    path.strip_suffix(key).and_then(|parent| parent.strip_suffix('.')).unwrap_or(path)
}

/// Every key that has a place of its own, as `section.key`: what the types themselves say when they are given a key
/// that they do not know.
pub(super) fn known_paths() -> Vec<String> {
    let under = |path: &str| -> Vec<String> {
        let separator = if path.is_empty() { "" } else { "." };
        let asked = Figment::from((format!("{path}{separator}?"), 0)).extract::<Config>();
        match asked.err().map(|error| error.kind) {
            Some(Kind::UnknownField(name, known)) if name == "?" => {
                known.iter().map(|key| format!("{path}{separator}{key}")).collect()
            }
            Some(_) | None => Vec::new(),
        }
    };
    let mut open = under("");
    let mut leaves = Vec::new();
    while let Some(path) = open.pop() {
        let inside = under(&path);
        if inside.is_empty() {
            leaves.push(path);
        }
        open.extend(inside);
    }
    leaves
}
