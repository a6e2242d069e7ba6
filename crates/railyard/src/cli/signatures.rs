//! `railyard listen` and `railyard verify`: the receiver's side of a delivery.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{ArgGroup, Args};

/// `railyard listen`.
#[derive(Args)]
pub(crate) struct Listen {
    /// Address and port; port 0 takes a free one.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9099")]
    pub(crate) address: SocketAddr,
    /// The signing secret; without one signatures are shown and not checked.
    #[arg(long, env = "RAILYARD_SIGNING_SECRET", hide_env_values = true)]
    pub(crate) secret: Option<String>,
    /// A file that holds the signing secret; goes before --secret.
    #[arg(long, value_name = "FILE")]
    pub(crate) secret_file: Option<PathBuf>,
    /// What to answer.
    #[arg(long, value_name = "CODE", default_value_t = 200, value_parser = clap::value_parser!(u16).range(200..=599))]
    pub(crate) status: u16,
    /// Print bodies as well.
    #[arg(long)]
    pub(crate) body: bool,
    /// How far a signature's time may lie from this clock, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    pub(crate) tolerance_s: u32,
    /// End after this many deliveries; exit status 1 if a signature failed.
    #[arg(long, value_name = "N")]
    pub(crate) count: Option<u64>,
    /// Print one JSON object a delivery.
    #[arg(long)]
    pub(crate) json: bool,
}

impl std::fmt::Debug for Listen {
    /// Without the secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Listen").field("address", &self.address).finish_non_exhaustive()
    }
}

/// `railyard verify`.
#[derive(Args)]
#[command(group(ArgGroup::new("secret_from").required(true).multiple(true)))]
pub(crate) struct Verify {
    /// The signing secret.
    #[arg(long, env = "RAILYARD_SIGNING_SECRET", hide_env_values = true, group = "secret_from")]
    pub(crate) secret: Option<String>,
    /// A file that holds the signing secret.
    #[arg(long, value_name = "FILE", group = "secret_from")]
    pub(crate) secret_file: Option<PathBuf>,
    /// Value of `webhook-id`: checks Standard Webhooks; without it, X-FLOWCATALYST.
    #[arg(long, value_name = "ID")]
    pub(crate) id: Option<String>,
    /// Value of the timestamp header.
    #[arg(long, value_name = "TEXT")]
    pub(crate) timestamp: String,
    /// Value of the signature header.
    #[arg(long, value_name = "TEXT")]
    pub(crate) signature: String,
    /// A file with the body, byte for byte; `-` is standard input.
    #[arg(long, value_name = "FILE")]
    pub(crate) body_file: PathBuf,
    /// The time that the age is judged by, RFC 3339; now if not given.
    #[arg(long, value_name = "TIME")]
    pub(crate) at: Option<String>,
    /// How far the signature's time may lie from it, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    pub(crate) tolerance_s: u32,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

impl std::fmt::Debug for Verify {
    /// Without the secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Verify").field("timestamp", &self.timestamp).finish_non_exhaustive()
    }
}
