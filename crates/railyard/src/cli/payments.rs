//! `railyard payments` and `railyard reconcile`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use jiff::civil::Time;
use jiff::tz::TimeZone;

use super::ApiArgs;
use crate::feed;

/// Scheduled payments.
#[derive(Debug, Subcommand)]
pub(crate) enum Payments {
    /// Take in a file of payments, as a stream. Killed in the middle, the same command goes on: nothing is accepted twice.
    Import(ImportPayments),
    /// Schedule one.
    Create(Box<CreatePayment>),
    /// Show one: where it is, why, and until when.
    Get(GetPayment),
    /// Find payments, those accepted last first.
    List(ListPayments),
    /// The same as `railyard reconcile`.
    Reconcile(Reconcile),
}

/// `railyard payments import`.
#[derive(Debug, Args)]
pub(crate) struct ImportPayments {
    /// The file. It is read twice: first to its end, so that nothing is taken from a broken one.
    pub(crate) file: PathBuf,
    /// Its form, if its name does not say so (.ndjson, .jsonl, .csv, .xml).
    #[arg(long, value_enum)]
    pub(crate) format: Option<FormatName>,
    /// Where to write what was rejected, a line each, with line number, field and reason: CSV if it is called so, else
    /// NDJSON. Without it, they are said on standard error.
    #[arg(long, value_name = "FILE")]
    pub(crate) rejects: Option<PathBuf>,
    /// The feed's name, which never stands for another file; made from the file's name and its content if not given.
    #[arg(long, value_name = "ID")]
    pub(crate) feed_id: Option<String>,
    /// When on its day a payment is asked for, where a pain.001 names a day alone.
    #[arg(long, value_name = "HH:MM", default_value = "00:00")]
    pub(crate) execution_time: Time,
    /// Where that time is: an IANA name like America/Denver.
    #[arg(long, value_name = "ZONE", default_value = "UTC", value_parser = zone)]
    pub(crate) time_zone: TimeZone,
    /// How long an API that cannot be reached or is busy is tried again, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    pub(crate) patience_s: u32,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) api: ApiArgs,
}

impl ImportPayments {
    /// How long an API that is away is waited for.
    pub(crate) fn patience(&self) -> Duration {
        Duration::from_secs(self.patience_s.into())
    }
}

/// The forms of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FormatName {
    /// A JSON object a line, as POST /api/payments takes it.
    Ndjson,
    /// A row a payment, under a row of the same names.
    Csv,
    /// ISO 20022, versions 001.001.03 and 001.001.09.
    #[value(name = "pain.001")]
    Pain001,
}

impl From<FormatName> for feed::Format {
    fn from(name: FormatName) -> Self {
        match name {
            FormatName::Ndjson => Self::Ndjson,
            FormatName::Csv => Self::Csv,
            FormatName::Pain001 => Self::Pain001,
        }
    }
}

fn zone(text: &str) -> Result<TimeZone, String> {
    TimeZone::get(text).map_err(|error| error.to_string())
}

/// `railyard payments create`. Fields are checked by the API, which names each that is wrong.
#[derive(Debug, Args)]
pub(crate) struct CreatePayment {
    /// Your own id: the same id with the same content is the same payment.
    pub(crate) id: String,
    /// Who pays.
    #[arg(long, value_name = "NAME")]
    pub(crate) debtor_name: String,
    /// From which account.
    #[arg(long, value_name = "IBAN")]
    pub(crate) debtor_iban: String,
    /// At which bank.
    #[arg(long, value_name = "BIC")]
    pub(crate) debtor_bic: Option<String>,
    /// Who is paid.
    #[arg(long, value_name = "NAME")]
    pub(crate) creditor_name: String,
    /// To which account.
    #[arg(long, value_name = "IBAN")]
    pub(crate) creditor_iban: String,
    /// At which bank.
    #[arg(long, value_name = "BIC")]
    pub(crate) creditor_bic: Option<String>,
    /// A decimal like 99.90.
    #[arg(long)]
    pub(crate) amount: String,
    /// ISO 4217.
    #[arg(long)]
    pub(crate) currency: String,
    /// Not before this time, RFC 3339; as soon as may be if not given.
    #[arg(long, value_name = "TIME")]
    pub(crate) requested_time: Option<String>,
    /// What the parties call it.
    #[arg(long, value_name = "ID")]
    pub(crate) end_to_end_id: Option<String>,
    /// What it is for.
    #[arg(long, value_name = "TEXT")]
    pub(crate) remittance_information: Option<String>,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) api: ApiArgs,
}

/// `railyard payments get`.
#[derive(Debug, Args)]
pub(crate) struct GetPayment {
    /// Its id.
    pub(crate) id: String,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) api: ApiArgs,
}

/// `railyard payments list`.
#[derive(Debug, Args)]
pub(crate) struct ListPayments {
    /// As its parties see it.
    #[arg(long, value_enum)]
    pub(crate) status: Option<PaymentStatusName>,
    /// Where it is in the queue.
    #[arg(long, value_enum)]
    pub(crate) queue_status: Option<QueueStatusName>,
    /// The debtor's IBAN.
    #[arg(long, value_name = "IBAN")]
    pub(crate) debtor: Option<String>,
    /// Asked for at this time or later, RFC 3339.
    #[arg(long, value_name = "TIME")]
    pub(crate) requested_after: Option<String>,
    /// Asked for before this time, RFC 3339.
    #[arg(long, value_name = "TIME")]
    pub(crate) requested_before: Option<String>,
    /// Which page, from 0.
    #[arg(long, default_value_t = 0, conflicts_with = "all")]
    pub(crate) page: u32,
    /// Payments of a page.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=100), conflicts_with = "all")]
    pub(crate) size: u32,
    /// All of them, page after page.
    #[arg(long)]
    pub(crate) all: bool,
    /// Print JSON; with --all one payment a line.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) api: ApiArgs,
}

/// The API's statuses of a payment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PaymentStatusName {
    /// Waits for its time.
    Scheduled,
    /// The rail has taken it.
    Accepted,
    /// Everybody concerned has been told.
    Processing,
}

impl PaymentStatusName {
    /// As the API says it.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Scheduled => "SCHEDULED",
            Self::Accepted => "ACCEPTED",
            Self::Processing => "PROCESSING",
        }
    }
}

/// The API's statuses in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum QueueStatusName {
    /// Waits for its time.
    Ready,
    /// A dispatcher has taken it.
    Claimed,
    /// The outbox has it.
    Dispatched,
    /// Executed.
    Completed,
    /// Somebody, or its time, has ended it.
    Failed,
    /// Given up.
    DeadLetter,
}

impl QueueStatusName {
    /// As the API says it.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "READY",
            Self::Claimed => "CLAIMED",
            Self::Dispatched => "DISPATCHED",
            Self::Completed => "COMPLETED",
            Self::Failed => "FAILED",
            Self::DeadLetter => "DEAD_LETTER",
        }
    }
}

/// `railyard reconcile`: accounts for every payment of a feed or a day; exit status 1 if anything is missing.
#[derive(Debug, Args)]
pub(crate) struct Reconcile {
    /// The feed's name.
    #[arg(long, value_name = "ID", required_unless_present = "day", conflicts_with = "day")]
    pub(crate) feed: Option<String>,
    /// The day on which they were accepted (UTC), like 2025-10-04.
    #[arg(long, value_name = "YYYY-MM-DD")]
    pub(crate) day: Option<String>,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) api: ApiArgs,
}
