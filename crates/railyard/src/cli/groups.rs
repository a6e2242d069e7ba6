//! `railyard groups`.

use clap::{Args, Subcommand, ValueEnum};

use super::ApiArgs;

/// Groups: what waits, what stands in the way, and an operator's decisions, each with a reason and on record.
#[derive(Debug, Subcommand)]
pub(crate) enum Groups {
    /// Show groups.
    List(ListGroups),
    /// Show one group.
    Get(GetGroup),
    /// Let nothing begin until it is resumed; a call that is out is not stopped.
    Pause(Decide),
    /// End a pause.
    Resume(Decide),
    /// Take holds away: a message in doubt is delivered again, behind a blocked one the group goes on.
    Release(ReleaseGroup),
    /// Go on without the head: one that waits ends CANCELLED, one that ended and blocks is let go.
    Skip(SkipGroup),
}

/// `railyard groups list`.
#[derive(Debug, Args)]
pub(crate) struct ListGroups {
    /// Which ones, in which order.
    #[arg(long, value_enum, default_value_t = ViewName::Held)]
    pub(crate) view: ViewName,
    /// Go on behind this name (views held and all).
    #[arg(long, value_name = "GROUP")]
    pub(crate) after: Option<String>,
    /// Most groups to show.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=100))]
    pub(crate) limit: u16,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) api: ApiArgs,
}

/// The API's views.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ViewName {
    /// Those that wait for a decision, by name.
    Held,
    /// All with work, by name.
    All,
    /// Those with most waiting.
    Deepest,
    /// Those whose head was accepted first.
    Oldest,
}

/// `railyard groups get`.
#[derive(Debug, Args)]
pub(crate) struct GetGroup {
    /// Its name.
    pub(crate) group: String,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) api: ApiArgs,
}

/// What every decision names.
#[derive(Debug, Args)]
pub(crate) struct Decide {
    /// The group's name.
    pub(crate) group: String,
    /// Why; stands in the audit.
    #[arg(long)]
    pub(crate) reason: String,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) api: ApiArgs,
}

/// `railyard groups release`.
#[derive(Debug, Args)]
pub(crate) struct ReleaseGroup {
    #[command(flatten)]
    pub(crate) decide: Decide,
    /// Which holds, separated by commas; both if not given.
    #[arg(long, value_enum, value_delimiter = ',')]
    pub(crate) kinds: Vec<KindName>,
}

/// Holds that are released and not resumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum KindName {
    /// A message ended without success.
    Blocked,
    /// A message's outcome is unknown.
    InDoubt,
}

/// `railyard groups skip`.
#[derive(Debug, Args)]
pub(crate) struct SkipGroup {
    #[command(flatten)]
    pub(crate) decide: Decide,
    /// Only if this message is the head: two who decide at once skip one message.
    #[arg(long, value_name = "ID")]
    pub(crate) head: Option<String>,
}
