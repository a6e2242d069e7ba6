//! One module a verb.

mod cluster;
mod credentials;
mod dev;
mod dlq;
mod doctor;
mod groups;
mod jobs;
mod listen;
mod migrate;
mod openapi;
mod payments;
mod rate;
mod serve;
mod verify;

use std::process::ExitCode;

use crate::cli::{Cli, Command, Jobs};
use crate::config::Environment;

/// Does what the command line says.
///
/// # Errors
/// What went wrong, for [`crate::exit::report`].
pub(crate) async fn run(cli: Cli, environment: Environment) -> anyhow::Result<ExitCode> {
    match cli.command {
        Command::Dev(args) => dev::run(&args, &environment).await,
        Command::Serve(args) => serve::run(&args, &environment).await,
        Command::Migrate(args) => migrate::run(&args, &environment).await,
        Command::Jobs(Jobs::Create(args)) => jobs::create(*args).await,
        Command::Jobs(Jobs::Get(args)) => jobs::get(&args).await,
        Command::Jobs(Jobs::Attempts(args)) => jobs::attempts(&args).await,
        Command::Jobs(Jobs::List(args)) => jobs::list(&args).await,
        Command::Jobs(Jobs::Cancel(args)) => jobs::cancel(&args).await,
        Command::Jobs(Jobs::Replay(args)) => jobs::replay(&args).await,
        Command::Payments(verb) => payments::run(&verb).await,
        Command::Reconcile(args) => payments::reconcile(&args).await,
        Command::Dlq(verb) => dlq::run(&verb).await,
        Command::Credentials(verb) => credentials::run(&verb).await,
        Command::Groups(verb) => groups::run(&verb).await,
        Command::Rate(verb) => rate::run(&verb).await,
        Command::Cluster(verb) => cluster::run(&verb).await,
        Command::Listen(args) => listen::run(&args).await,
        Command::Doctor(args) => doctor::run(&args, &environment).await,
        Command::Openapi => openapi::run(),
        Command::Verify(args) => verify::run(&args),
        Command::Bench(verb) => railyard_bench::run(&verb).await.map(|()| ExitCode::SUCCESS),
    }
}
