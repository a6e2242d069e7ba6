//! The binary `railyard`: command line, configuration, wiring, signals.
//!
//! It decides nothing about messages. `serve` puts the parts together: configuration, log, database, rails, node,
//! API, and waits for a signal. The commands that read and decide (`jobs`, `credentials`, `groups`) are clients of the
//! HTTP API and work from any machine; `migrate`, `doctor` and `dev` need the database.
//! Exit status: 0 done, 1 failed, 2 wrong usage or an unusable configuration.

mod cli;
mod client;
mod commands;
mod config;
mod exit;
mod feed;
mod files;
mod logging;
mod node_view;
mod now;
mod output;
mod running;
mod signals;

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;

use crate::cli::Cli;
use crate::config::Environment;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// How long threads that are not the runtime's own may take to end.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);

fn main() -> ExitCode {
    let cli = Cli::parse();
    let environment = Environment::of_process();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return exit::report(&anyhow::anyhow!(error).context("cannot start the runtime")),
    };
    let code = match runtime.block_on(commands::run(cli, environment)) {
        Ok(code) => code,
        Err(error) => exit::report(&error),
    };
    // Nothing that is left may keep the process: what it was doing is on record.
    runtime.shutdown_timeout(SHUTDOWN_TIMEOUT);
    code
}
