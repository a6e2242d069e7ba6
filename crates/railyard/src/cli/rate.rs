//! `railyard rate`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::ApiArgs;

/// Limits: how many may start in a window of time, and what a plan would come to.
#[derive(Debug, Subcommand)]
pub(crate) enum Rate {
    /// Show the active configuration.
    Get(GetRate),
    /// Change a configuration, or make one; slots that are given already stay as they are.
    Set(SetRate),
    /// See when the first and the last of so many events would start; nothing is planned.
    Forecast(ForecastRate),
    /// Move slots that lie ahead to where they would be given now, after a change of capacity.
    Replan(ReplanRate),
    /// Make all nodes forget what they remember of configurations.
    Flush(FlushRate),
}

/// `railyard rate get`.
#[derive(Debug, Args)]
pub(crate) struct GetRate {
    /// Its name.
    #[arg(default_value = "default")]
    pub(crate) name: String,
    /// With all that came before it.
    #[arg(long)]
    pub(crate) history: bool,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) api: ApiArgs,
}

/// `railyard rate set`.
#[derive(Debug, Args)]
pub(crate) struct SetRate {
    /// Its name.
    #[arg(default_value = "default")]
    pub(crate) name: String,
    /// Events of one window.
    #[arg(long, value_name = "N")]
    pub(crate) max_per_window: u32,
    /// Seconds of one window.
    #[arg(long, value_name = "SECONDS", default_value_t = 4)]
    pub(crate) window_size_secs: u32,
    /// Off: search no further than --max-lookahead windows.
    #[arg(long, value_enum, default_value_t = Switch::On)]
    pub(crate) frontier: Switch,
    /// Windows that are searched.
    #[arg(long, value_name = "N")]
    pub(crate) max_lookahead: Option<u32>,
    /// When windows are open: a JSON file with timeZone, hours, holidays, blackouts.
    #[arg(long, value_name = "FILE")]
    pub(crate) calendar: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) api: ApiArgs,
}

/// On or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Switch {
    /// Yes.
    On,
    /// No.
    Off,
}

/// `railyard rate forecast`.
#[derive(Debug, Args)]
pub(crate) struct ForecastRate {
    /// How many events.
    pub(crate) events: u64,
    /// By which configuration.
    #[arg(long, default_value = "default")]
    pub(crate) name: String,
    /// The time that they are asked for (2025-10-04T15:00:00Z); now if it is not given.
    #[arg(long, value_name = "TIME")]
    pub(crate) at: Option<String>,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) api: ApiArgs,
}

/// `railyard rate replan`.
#[derive(Debug, Args)]
pub(crate) struct ReplanRate {
    /// Which configuration.
    #[arg(default_value = "default")]
    pub(crate) name: String,
    /// Move nothing; say what would be moved.
    #[arg(long, conflicts_with = "reason", required_unless_present = "reason")]
    pub(crate) preview: bool,
    /// Why; stands in the audit.
    #[arg(long)]
    pub(crate) reason: Option<String>,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) api: ApiArgs,
}

/// `railyard rate flush`.
#[derive(Debug, Args)]
pub(crate) struct FlushRate {
    #[command(flatten)]
    pub(crate) api: ApiArgs,
}
