//! Where the API is and who asks: the options of every command that is a client of it.

use std::path::PathBuf;

use clap::Args;

/// The API and the caller's token.
#[derive(Args)]
pub(crate) struct ApiArgs {
    /// Address of the API.
    #[arg(long, value_name = "URL", env = "RAILYARD_URL", default_value = "http://127.0.0.1:8080")]
    pub(crate) url: String,
    /// The caller's token. Others see the command line: rather use the variable or --token-file.
    #[arg(long, value_name = "TOKEN", env = "RAILYARD_TOKEN", hide_env_values = true)]
    pub(crate) token: Option<String>,
    /// A file that holds the caller's token; goes before --token.
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
}

impl std::fmt::Debug for ApiArgs {
    /// Without the token.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ApiArgs").field("url", &self.url).finish_non_exhaustive()
    }
}
