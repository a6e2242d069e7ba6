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
    /// Replace a token, a secret or both, with an overlap in which receivers may have either.
    Rotate(RotateCredentials),
    /// Delete a set.
    Delete(DeleteCredentials),
}

/// `railyard credentials create`.
#[derive(Args)]
#[command(group(ArgGroup::new("bearer").required(true).multiple(true)))]
#[command(group(ArgGroup::new("secret").required(true).multiple(true)))]
pub(crate) struct CreateCredentials {
    /// For people.
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// Goes out as `Authorization: Bearer …`. Others see the command line: rather use the variable or
    /// --bearer-token-file.
    #[arg(long, value_name = "TOKEN", group = "bearer", env = "RAILYARD_BEARER_TOKEN", hide_env_values = true)]
    pub(crate) bearer_token: Option<String>,
    /// A file that holds the bearer token; `-` is standard input. Goes before --bearer-token.
    #[arg(long, value_name = "FILE", group = "bearer")]
    pub(crate) bearer_token_file: Option<PathBuf>,
    /// Signs each call. Others see the command line: rather use the variable or --signing-secret-file.
    #[arg(long, value_name = "SECRET", group = "secret", env = "RAILYARD_SIGNING_SECRET", hide_env_values = true)]
    pub(crate) signing_secret: Option<String>,
    /// A file that holds the signing secret; `-` is standard input. Goes before --signing-secret.
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

/// `railyard credentials rotate`. What is not given stays as it is.
#[derive(Args)]
#[command(group(ArgGroup::new("new").required(true).multiple(true)))]
pub(crate) struct RotateCredentials {
    /// Their id.
    pub(crate) id: String,
    /// The new token. Others see the command line: rather use the variable or --bearer-token-file.
    #[arg(long, value_name = "TOKEN", group = "new", env = "RAILYARD_NEW_BEARER_TOKEN", hide_env_values = true)]
    pub(crate) bearer_token: Option<String>,
    /// A file that holds the new token; `-` is standard input. Goes before --bearer-token.
    #[arg(long, value_name = "FILE", group = "new")]
    pub(crate) bearer_token_file: Option<PathBuf>,
    /// The new secret. Others see the command line: rather use the variable or --signing-secret-file.
    #[arg(long, value_name = "SECRET", group = "new", env = "RAILYARD_NEW_SIGNING_SECRET", hide_env_values = true)]
    pub(crate) signing_secret: Option<String>,
    /// A file that holds the new secret; `-` is standard input. Goes before --signing-secret.
    #[arg(long, value_name = "FILE", group = "new")]
    pub(crate) signing_secret_file: Option<PathBuf>,
    /// When they take effect, like 2026-01-31T12:00:00Z; at once if not given.
    #[arg(long, value_name = "TIME")]
    pub(crate) active_from: Option<String>,
    /// How long Standard Webhooks carries both signatures after that; 86400 if not given.
    #[arg(long, value_name = "SECONDS")]
    pub(crate) overlap_seconds: Option<u32>,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) api: ApiArgs,
}

impl std::fmt::Debug for RotateCredentials {
    /// Without the secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RotateCredentials").field("id", &self.id).finish_non_exhaustive()
    }
}

/// `railyard credentials delete`.
#[derive(Debug, Args)]
pub(crate) struct DeleteCredentials {
    /// Their id.
    pub(crate) id: String,
    /// Even though they are used: open jobs end in ERROR with that reason, subscriptions are disabled, and rails refuse
    /// jobs that name no others.
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) api: ApiArgs,
}
