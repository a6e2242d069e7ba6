//! `railyard jobs`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};

use super::ApiArgs;
use super::search::{DecideJob, ListJobs};

/// Dispatch jobs.
#[derive(Debug, Subcommand)]
pub(crate) enum Jobs {
    /// Create one job from options, or one for each line of a file of JSON objects.
    Create(Box<CreateJobs>),
    /// Find jobs, newest first.
    List(ListJobs),
    /// Show one job.
    Get(GetJob),
    /// Show the attempts at one job.
    Attempts(GetJob),
    /// Take a job out that waits: it ends CANCELLED and is not sent (again).
    Cancel(DecideJob),
    /// Make a job again that ended without success, and print the new id. A repeat prints the same id.
    Replay(DecideJob),
}

/// `railyard jobs get|attempts`.
#[derive(Debug, Args)]
pub(crate) struct GetJob {
    /// The job's id.
    pub(crate) id: String,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) api: ApiArgs,
}

/// `railyard jobs create`.
#[derive(Debug, Args)]
pub(crate) struct CreateJobs {
    /// One job a line, as JSON in the API's form; `-` is standard input. The options below then fill in what a line
    /// leaves out.
    #[arg(long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) fields: JobFields,
    /// Requests at once, with up to 100 jobs each. A group's jobs are created in the file's order whatever this is.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) concurrency: u16,
    /// Stop at the first line that is refused.
    #[arg(long, requires = "file")]
    pub(crate) strict: bool,
    /// How long an API that cannot be reached or is busy is tried again, in seconds: 600 for a file, 10 for one job if
    /// not given. A job is sent with the same idempotency key each time, so that it is created once.
    #[arg(long, value_name = "SECONDS")]
    pub(crate) patience_s: Option<u32>,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) api: ApiArgs,
}

impl CreateJobs {
    /// How long an API that is away is waited for.
    pub(crate) fn patience(&self) -> Duration {
        let by_default = if self.file.is_some() { 600 } else { 10 };
        Duration::from_secs(self.patience_s.unwrap_or(by_default).into())
    }
}

/// A job's fields. Checked by the API, which names each that is wrong.
#[derive(Debug, Default, Args)]
pub(crate) struct JobFields {
    /// The system that it comes from.
    #[arg(long)]
    pub(crate) source: Option<String>,
    /// What it is: `order.created`.
    #[arg(long = "type", value_name = "TYPE")]
    pub(crate) kind: Option<String>,
    /// Its group: delivered in order.
    #[arg(long)]
    pub(crate) group: Option<String>,
    /// Where it goes.
    #[arg(long, value_name = "URL")]
    pub(crate) target_url: Option<String>,
    /// The bytes to send, as text.
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["payload_file", "file"])]
    pub(crate) payload: Option<String>,
    /// A file with the bytes to send, which must be UTF-8; `-` is standard input.
    #[arg(long, value_name = "FILE", conflicts_with = "file")]
    pub(crate) payload_file: Option<PathBuf>,
    /// Media type of the payload; application/json if not given.
    #[arg(long, value_name = "TYPE")]
    pub(crate) payload_content_type: Option<String>,
    /// Id of the credentials that sign it.
    #[arg(long, value_name = "ID")]
    pub(crate) credentials: Option<String>,
    /// The rail: `webhook`, `payment_webhook` or another that is configured.
    #[arg(long, value_name = "NAME")]
    pub(crate) rail_type: Option<String>,
    /// What an end without success means for those behind it.
    #[arg(long, value_enum)]
    pub(crate) mode: Option<ModeName>,
    /// Deliveries in all.
    #[arg(long, value_name = "N")]
    pub(crate) max_retries: Option<u32>,
    /// Steps between attempts: exponential, fixed or immediate.
    #[arg(long, value_name = "NAME")]
    pub(crate) retry_strategy: Option<String>,
    /// Deadline of one call, in seconds.
    #[arg(long, value_name = "SECONDS")]
    pub(crate) timeout_seconds: Option<u32>,
    /// Not before this time, RFC 3339.
    #[arg(long, value_name = "TIME")]
    pub(crate) scheduled_for: Option<String>,
    /// Not after this time, RFC 3339.
    #[arg(long, value_name = "TIME")]
    pub(crate) expires_at: Option<String>,
    /// The producer's own id.
    #[arg(long, value_name = "ID", conflicts_with = "file")]
    pub(crate) external_id: Option<String>,
    /// The same key never creates a second job. Without one, the command makes one up for its own retries.
    #[arg(long, value_name = "KEY", conflicts_with = "file")]
    pub(crate) idempotency_key: Option<String>,
    /// A header of the call, `Name: value`; may be repeated.
    #[arg(long = "header", value_name = "HEADER", value_parser = header)]
    pub(crate) headers: Vec<(String, String)>,
    /// For search, `key=value`; may be repeated.
    #[arg(long = "metadata", value_name = "ENTRY", value_parser = entry)]
    pub(crate) metadata: Vec<(String, String)>,
}

/// The API's modes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ModeName {
    /// No order.
    Immediate,
    /// In order; the group goes on after a failure.
    NextOnError,
    /// In order; a failure holds the group until a person decides.
    BlockOnError,
}

impl ModeName {
    /// As the API takes it.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Immediate => "IMMEDIATE",
            Self::NextOnError => "NEXT_ON_ERROR",
            Self::BlockOnError => "BLOCK_ON_ERROR",
        }
    }
}

fn header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or("is not `Name: value`")?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

pub(super) fn entry(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("is not `key=value`")?;
    Ok((key.to_owned(), value.to_owned()))
}
