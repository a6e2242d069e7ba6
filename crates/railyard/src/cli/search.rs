//! Which jobs: the filters that `jobs list` and `dlq` share, and their verbs.

use clap::{Args, Subcommand, ValueEnum};

use super::ApiArgs;
use super::jobs::entry;

/// What a job must be; everything that is given must hold.
#[derive(Debug, Default, Args)]
pub(crate) struct JobFilter {
    /// The system that it comes from.
    #[arg(long)]
    pub(crate) source: Option<String>,
    /// What it is: `order.created`.
    #[arg(long = "type", value_name = "TYPE")]
    pub(crate) kind: Option<String>,
    /// Its group.
    #[arg(long)]
    pub(crate) group: Option<String>,
    /// The producer's own id.
    #[arg(long, value_name = "ID")]
    pub(crate) external_id: Option<String>,
    /// Accepted at this time or later, RFC 3339.
    #[arg(long, value_name = "TIME")]
    pub(crate) created_after: Option<String>,
    /// Accepted before this time, RFC 3339.
    #[arg(long, value_name = "TIME")]
    pub(crate) created_before: Option<String>,
    /// An entry that it has, `key=value`; may be given several times.
    #[arg(long = "metadata", value_name = "ENTRY", value_parser = entry)]
    pub(crate) metadata: Vec<(String, String)>,
}

/// `railyard jobs list`.
#[derive(Debug, Args)]
pub(crate) struct ListJobs {
    /// Where it stands.
    #[arg(long, value_enum)]
    pub(crate) status: Option<StatusName>,
    #[command(flatten)]
    pub(crate) filter: JobFilter,
    /// Which page, from 0.
    #[arg(long, default_value_t = 0, conflicts_with = "all")]
    pub(crate) page: u32,
    /// Jobs of a page.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=100), conflicts_with = "all")]
    pub(crate) size: u32,
    /// All of them, page after page.
    #[arg(long)]
    pub(crate) all: bool,
    /// Print JSON; with --all one job a line.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) api: ApiArgs,
}

/// The API's statuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum StatusName {
    /// Waits, and has not failed.
    Pending,
    /// Out at this moment.
    InProgress,
    /// Failed, and will be tried again.
    Failed,
    /// Delivered.
    Completed,
    /// Failed for good.
    Error,
    /// Its expiry passed first.
    Expired,
    /// An operator ended it.
    Cancelled,
}

impl StatusName {
    /// As the API says it.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "PENDING",
            Self::InProgress => "IN_PROGRESS",
            Self::Failed => "FAILED",
            Self::Completed => "COMPLETED",
            Self::Error => "ERROR",
            Self::Expired => "EXPIRED",
            Self::Cancelled => "CANCELLED",
        }
    }
}

/// `railyard jobs cancel|replay`.
#[derive(Debug, Args)]
pub(crate) struct DecideJob {
    /// The job's id.
    pub(crate) id: String,
    /// Why; stands in the audit.
    #[arg(long)]
    pub(crate) reason: Option<String>,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) api: ApiArgs,
}

/// Dead letters: jobs that ended without success, and that nobody has made again.
#[derive(Debug, Subcommand)]
pub(crate) enum Dlq {
    /// Show them, newest first.
    List(ListDlq),
    /// Make them again, oldest first: shows how many there are, asks, and shows how far it is.
    Replay(ReplayDlq),
}

/// `railyard dlq list`.
#[derive(Debug, Args)]
pub(crate) struct ListDlq {
    /// How they ended.
    #[arg(long, value_enum, default_value_t = EndName::Error)]
    pub(crate) status: EndName,
    /// Most jobs to show.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) size: u32,
    /// Go on behind the page before.
    #[arg(long)]
    pub(crate) cursor: Option<String>,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) api: ApiArgs,
}

/// `railyard dlq replay`.
#[derive(Debug, Args)]
pub(crate) struct ReplayDlq {
    /// How they ended.
    #[arg(long, value_enum, default_value_t = EndName::Error)]
    pub(crate) status: EndName,
    #[command(flatten)]
    pub(crate) filter: JobFilter,
    /// Why; stands in the audit of each job.
    #[arg(long, required_unless_present = "preview")]
    pub(crate) reason: Option<String>,
    /// Only show how many there are, and some of them.
    #[arg(long)]
    pub(crate) preview: bool,
    /// Do not ask.
    #[arg(long)]
    pub(crate) yes: bool,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) api: ApiArgs,
}

/// Ends without success.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum EndName {
    /// Failed for good.
    Error,
    /// Its expiry passed first.
    Expired,
    /// An operator ended it.
    Cancelled,
}

impl EndName {
    /// As the API says it.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Error => "ERROR",
            Self::Expired => "EXPIRED",
            Self::Cancelled => "CANCELLED",
        }
    }
}
