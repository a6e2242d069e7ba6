//! `railyard credentials`.

use std::path::PathBuf;

use clap::{ArgGroup, Args, Subcommand, ValueEnum};

use super::ApiArgs;

/// Bearer tokens and signing secrets of receivers.
#[derive(Debug, Subcommand)]
pub(crate) enum Credentials {
    /// Store a token and a secret, encrypted, and print the new id.
    Create(CreateCredentials),
    /// Show what there is; never a secret.
    List(ListCredentials),
    /// Delete a set.
    Delete(DeleteCredentials),
}

/// `railyard credentials create`.
#[derive(Args)]
#[command(group(ArgGroup::new("bearer").required(true)), group(ArgGroup::new("secret").required(true)))]
pub(crate) struct CreateCredentials {
    /// For people.
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// Goes out as `Authorization: Bearer …`. Others see the command line: rather use --bearer-token-file.
    #[arg(long, value_name = "TOKEN", group = "bearer")]
    pub(crate) bearer_token: Option<String>,
    /// A file that holds the bearer token; `-` is standard input.
    #[arg(long, value_name = "FILE", group = "bearer")]
    pub(crate) bearer_token_file: Option<PathBuf>,
    /// Signs each call. Others see the command line: rather use --signing-secret-file.
    #[arg(long, value_name = "SECRET", group = "secret")]
    pub(crate) signing_secret: Option<String>,
    /// A file that holds the signing secret; `-` is standard input.
    #[arg(long, value_name = "FILE", group = "secret")]
    pub(crate) signing_secret_file: Option<PathBuf>,
    /// Which signatures go out, separated by commas; both if not given.
    #[arg(long, value_enum, value_delimiter = ',')]
    pub(crate) schemes: Vec<SchemeName>,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) api: ApiArgs,
}

impl std::fmt::Debug for CreateCredentials {
    /// Without the secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CreateCredentials").field("name", &self.name).finish_non_exhaustive()
    }
}

/// How a call is signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SchemeName {
    /// `X-FLOWCATALYST-SIGNATURE` and `-TIMESTAMP`.
    Flowcatalyst,
    /// Standard Webhooks; needs a base64 secret.
    StandardWebhooks,
}

/// `railyard credentials list`.
#[derive(Debug, Args)]
pub(crate) struct ListCredentials {
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) api: ApiArgs,
}

/// `railyard credentials delete`.
#[derive(Debug, Args)]
pub(crate) struct DeleteCredentials {
    /// Their id.
    pub(crate) id: String,
    /// Even though open jobs use them: those end in ERROR with that reason.
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) api: ApiArgs,
}
