//! The log: to standard error, for people or for machines.

use anyhow::Context;
use tracing_subscriber::EnvFilter;

use crate::config::{Log, LogFormat};

/// The library that carries messages between nodes: it warns of every connection that ends.
const SESSIONS: &str = "ractor_cluster";

/// Starts logging; once per process.
///
/// # Errors
/// The filter cannot be read, or logging was started before.
pub(crate) fn start(log: &Log) -> anyhow::Result<()> {
    let mut filter: EnvFilter = log.filter.parse().context("log.filter")?;
    if !log.filter.contains(SESSIONS) {
        // What it has to say about links is said once, in our own words.
        filter = filter.add_directive(format!("{SESSIONS}=error").parse()?);
    }
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let started = match log.format {
        LogFormat::Text => lines.with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr())).try_init(),
        LogFormat::Json => lines.json().flatten_event(true).try_init(),
    };
    started.map_err(|error| anyhow::anyhow!("log: {error}"))
}
