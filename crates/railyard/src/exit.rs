//! How the program ends: 0 done, 1 failed, 2 wrong usage.

use std::process::ExitCode;

use crate::config::ConfigError;

/// The command line asks for something that makes no sense: exit status 2, as clap's own errors.
#[derive(Debug)]
pub(crate) struct Usage(pub(crate) String);

impl std::fmt::Display for Usage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// Says on standard error what went wrong, with its causes, and gives the exit status.
pub(crate) fn report(error: &anyhow::Error) -> ExitCode {
    eprintln!("error: {error:#}");
    let usage = error.chain().any(|cause| cause.is::<Usage>() || cause.is::<ConfigError>());
    ExitCode::from(if usage { 2 } else { 1 })
}
