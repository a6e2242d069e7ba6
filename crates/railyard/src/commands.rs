//! One module a verb.

mod dev;
mod migrate;

use std::process::ExitCode;

use crate::cli::{Cli, Command};
use crate::config::Environment;

/// Does what the command line says.
///
/// # Errors
/// What went wrong, for [`crate::exit::report`].
pub(crate) async fn run(cli: Cli, environment: Environment) -> anyhow::Result<ExitCode> {
    match cli.command {
        Command::Dev(args) => dev::run(&args, &environment).await,
        Command::Serve(_) => anyhow::bail!("not yet"),
        Command::Migrate(args) => migrate::run(&args, &environment).await,
    }
}
