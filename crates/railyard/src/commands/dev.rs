//! `railyard dev`: everything on one machine. It owns a private PostgreSQL in its data directory; Ctrl-C stops both.
//! If it is killed, the server dies with it, and the next start recovers what was committed.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use railyard_postgres::PrivatePostgres;

use crate::cli::Dev;
use crate::config::Environment;
use crate::signals::Signals;

/// The database's name in the private server.
const DATABASE: &str = "railyard";

/// Runs until a signal.
///
/// # Errors
/// No PostgreSQL programs, a data directory that cannot be used, a server that does not come up.
pub(crate) async fn run(args: &Dev, _environment: &Environment) -> anyhow::Result<ExitCode> {
    let mut signals = Signals::listen()?;
    let (server, url) = start_database(&args.data_dir, !args.no_fsync).await?;
    println!("database: {url}");
    if args.only_database {
        signals.next().await;
    }
    server.stop().await?;
    Ok(ExitCode::SUCCESS)
}

async fn start_database(data_dir: &Path, fsync: bool) -> anyhow::Result<(PrivatePostgres, String)> {
    std::fs::create_dir_all(data_dir).with_context(|| format!("make {}", data_dir.display()))?;
    let server = PrivatePostgres::options().data_dir(data_dir.join("postgres")).fsync(fsync).start().await?;
    server.create_database(DATABASE).await?;
    let url = server.url(DATABASE);
    Ok((server, url))
}
