//! `railyard cluster`.

use clap::{Args, Subcommand};

use super::ApiArgs;

/// The nodes, their leases, and the links between them.
#[derive(Debug, Subcommand)]
pub(crate) enum Cluster {
    /// Show the cluster as one of its nodes sees it.
    Status(ClusterStatus),
}

/// `railyard cluster status`.
#[derive(Debug, Args)]
pub(crate) struct ClusterStatus {
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) api: ApiArgs,
}
