//! The command line: verbs and their options, nothing of what they do.

mod client;
mod cluster;
mod credentials;
mod groups;
mod jobs;
mod payments;
mod rate;
mod search;
mod signatures;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

pub(crate) use client::ApiArgs;
pub(crate) use cluster::{Cluster, ClusterStatus};
pub(crate) use credentials::{
    CreateCredentials, Credentials, DeleteCredentials, ListCredentials, RotateCredentials, SchemeName,
};
pub(crate) use groups::{Decide, GetGroup, Groups, KindName, ListGroups, ReleaseGroup, SkipGroup, ViewName};
pub(crate) use jobs::{CreateJobs, GetJob, JobFields, Jobs, ModeName};
pub(crate) use payments::{
    CreatePayment, GetPayment, ImportPayments, ListPayments, PaymentStatusName, Payments, QueueStatusName, Reconcile,
};
pub(crate) use rate::{ForecastRate, GetRate, Rate, ReplanRate, SetRate, Switch};
pub(crate) use search::{DecideJob, Dlq, JobFilter, ListDlq, ListJobs, ReplayDlq};
pub(crate) use signatures::{Listen, Verify};

/// A relayer on PostgreSQL: webhooks and payment instructions, in order per group, signed, on record.
#[derive(Debug, Parser)]
#[command(name = "railyard", version, max_term_width = 110)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run everything on this machine for development: a private PostgreSQL and one node.
    Dev(Dev),
    /// Run a node.
    Serve(Serve),
    /// Bring the database's schema up to this version.
    Migrate(Migrate),
    /// Create dispatch jobs, find them, and decide about them.
    #[command(subcommand)]
    Jobs(Jobs),
    /// Take in files of payments, find payments, and see where each is.
    #[command(subcommand)]
    Payments(Payments),
    /// Account for every payment of a feed or a day; exit status 1 if anything is missing.
    Reconcile(Reconcile),
    /// See what ended without success, and make it again.
    #[command(subcommand)]
    Dlq(Dlq),
    /// Keep the secrets that calls are signed with.
    #[command(subcommand)]
    Credentials(Credentials),
    /// See groups and decide about held ones.
    #[command(subcommand)]
    Groups(Groups),
    /// See and change limits, and see ahead what a plan would come to.
    #[command(subcommand)]
    Rate(Rate),
    /// See the nodes, their leases, and the links between them.
    #[command(subcommand)]
    Cluster(Cluster),
    /// Receive deliveries on this machine, check their signatures and print them.
    Listen(Listen),
    /// Print the API's description (OpenAPI 3.1), without any server.
    Openapi,
    /// Check one signature, without any server.
    Verify(Verify),
    /// Check configuration, keys, database, rights, clocks and pooler; changes nothing.
    Doctor(Doctor),
    /// Measure this machine and this version; each verb says what, and against which ceiling.
    #[command(subcommand)]
    Bench(railyard_bench::Bench),
}

/// `railyard dev`.
#[derive(Debug, Args)]
pub(crate) struct Dev {
    /// Where the database, the master key and the admin token are kept.
    #[arg(long, value_name = "DIR", default_value = ".railyard")]
    pub(crate) data_dir: PathBuf,
    /// Start the database alone, print its URL and wait.
    #[arg(long)]
    pub(crate) only_database: bool,
    /// Commit without waiting for the disk: for data that nobody keeps.
    #[arg(long)]
    pub(crate) no_fsync: bool,
    /// Further settings; the database, the listener's token and the master key are dev's own.
    #[command(flatten)]
    pub(crate) config: ConfigFile,
}

/// `railyard serve`.
#[derive(Debug, Args)]
pub(crate) struct Serve {
    #[command(flatten)]
    pub(crate) config: ConfigFile,
    /// Migrate first if the schema is behind.
    #[arg(long)]
    pub(crate) migrate: bool,
}

/// `railyard migrate`.
#[derive(Debug, Args)]
pub(crate) struct Migrate {
    #[command(flatten)]
    pub(crate) config: ConfigFile,
    /// The database, instead of the configured one.
    #[arg(long, value_name = "URL")]
    pub(crate) database_url: Option<String>,
    /// Change nothing; say what is missing, with exit status 1 if anything is.
    #[arg(long)]
    pub(crate) check: bool,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `railyard doctor`.
#[derive(Debug, Args)]
pub(crate) struct Doctor {
    #[command(flatten)]
    pub(crate) config: ConfigFile,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Where the configuration is.
#[derive(Debug, Args)]
pub(crate) struct ConfigFile {
    /// Configuration file; `config/railyard.toml` in the source documents every key.
    #[arg(long = "config", value_name = "FILE", env = "RAILYARD_CONFIG")]
    pub(crate) file: Option<PathBuf>,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::Cli;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
