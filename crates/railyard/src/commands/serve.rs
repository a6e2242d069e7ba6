//! `railyard serve`: a node in production.

use std::process::ExitCode;
use std::sync::Arc;

use crate::cli::Serve;
use crate::config::{Config, Environment};
use crate::logging;
use crate::running::Running;
use crate::signals::Signals;

/// Runs until a signal.
///
/// # Errors
/// A configuration that cannot be used, a database that refuses, an address that is taken.
pub(crate) async fn run(args: &Serve, environment: &Environment) -> anyhow::Result<ExitCode> {
    let config = Config::load(args.config.file.as_deref(), environment)?;
    config.database_url()?;
    let keys = Arc::new(config.master_keys(environment)?);
    let links = config.cluster.options(environment)?;
    logging::start(&config.log)?;
    let signals = Signals::listen()?;
    Running { config, keys, links, migrate: args.migrate }.run(signals, |_| {}).await?;
    Ok(ExitCode::SUCCESS)
}
