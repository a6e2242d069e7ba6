//! `[log]`: what is written to standard error.

use serde::Deserialize;

use super::Problems;

/// `[log]`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Log {
    /// Lines for people, or one JSON object a line.
    pub(crate) format: LogFormat,
    /// Levels by module, in tracing's form: `info,railyard_node=debug`.
    pub(crate) filter: String,
}

/// How a line looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogFormat {
    /// For people.
    Text,
    /// For machines.
    Json,
}

impl Default for Log {
    fn default() -> Self {
        Self { format: LogFormat::Text, filter: "info".to_owned() }
    }
}

impl Log {
    pub(super) fn check(&self, problems: &mut Problems) {
        if let Err(error) = self.filter.parse::<tracing_subscriber::filter::EnvFilter>() {
            problems.add("log.filter", error);
        }
    }
}
