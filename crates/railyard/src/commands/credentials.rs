//! `railyard credentials`. Secrets go to the API and nowhere else; no answer has one.

use std::process::ExitCode;

use reqwest::Method;
use serde_json::{Map, Value, json};

use crate::cli::{CreateCredentials, Credentials, DeleteCredentials, ListCredentials, RotateCredentials, SchemeName};
use crate::client::{Client, segment};
use crate::{files, output};

const PATH: &str = "api/admin/dispatch/credentials";

/// Does one of its verbs.
///
/// # Errors
/// A secret's file that cannot be read, or the API refused.
pub(crate) async fn run(verb: &Credentials) -> anyhow::Result<ExitCode> {
    match verb {
        Credentials::Create(args) => create(args).await?,
        Credentials::List(args) => list(args).await?,
        Credentials::Rotate(args) => rotate(args).await?,
        Credentials::Delete(args) => delete(args).await?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn create(args: &CreateCredentials) -> anyhow::Result<()> {
    let token = files::secret_of(args.bearer_token.as_ref(), args.bearer_token_file.as_deref())?;
    let secret = files::secret_of(args.signing_secret.as_ref(), args.signing_secret_file.as_deref())?;
    let mut body = Map::new();
    body.insert("bearerToken".to_owned(), json!(token.as_deref()));
    body.insert("signingSecret".to_owned(), json!(secret.as_deref()));
    if let Some(name) = &args.name {
        body.insert("name".to_owned(), json!(name));
    }
    if !args.schemes.is_empty() {
        let schemes: Vec<&str> = args.schemes.iter().map(|scheme| scheme.as_str()).collect();
        body.insert("schemes".to_owned(), json!(schemes));
    }
    let body = serde_json::to_vec(&Value::Object(body))?;
    let answer = Client::new(&args.api)?.call(Method::POST, PATH, Some(body)).await?;
    if args.json {
        return output::json(&answer.body);
    }
    // What the API has to remark (a scheme that this secret cannot be used with) is for the person, the id for `$()`.
    for note in output::items(&answer.body, "notes") {
        eprintln!("note: {}", output::text(note));
    }
    println!("{}", output::text(&answer.body["id"]));
    Ok(())
}

async fn list(args: &ListCredentials) -> anyhow::Result<()> {
    let answer = Client::new(&args.api)?.call(Method::GET, PATH, None).await?;
    if args.json {
        return output::json(&answer.body);
    }
    let columns = [
        ("id", "id"),
        ("name", "name"),
        ("schemes", "schemes"),
        ("key", "keyId"),
        ("created", "createdAt"),
        ("rotates", "rotation.activeFrom"),
    ];
    output::rows(output::items(&answer.body, "credentials"), &columns);
    Ok(())
}

async fn rotate(args: &RotateCredentials) -> anyhow::Result<()> {
    let token = files::secret_of(args.bearer_token.as_ref(), args.bearer_token_file.as_deref())?;
    let secret = files::secret_of(args.signing_secret.as_ref(), args.signing_secret_file.as_deref())?;
    // What is null stays as it is.
    let body = json!({
        "bearerToken": token.as_deref(), "signingSecret": secret.as_deref(),
        "activeFrom": args.active_from, "overlapSeconds": args.overlap_seconds,
    });
    let path = format!("{PATH}/{}/rotate", segment(&args.id));
    let answer = Client::new(&args.api)?.call(Method::POST, &path, Some(serde_json::to_vec(&body)?)).await?;
    if args.json {
        return output::json(&answer.body);
    }
    let rotation = &answer.body["rotation"];
    let (from, until) = (output::text(&rotation["activeFrom"]), output::text(&rotation["overlapUntil"]));
    println!("{}: in effect from {from}, both signatures until {until}", args.id);
    Ok(())
}

async fn delete(args: &DeleteCredentials) -> anyhow::Result<()> {
    let force = if args.force { "?force=true" } else { "" };
    let path = format!("{PATH}/{}{force}", segment(&args.id));
    Client::new(&args.api)?.call(Method::DELETE, &path, None).await?;
    println!("deleted {}", args.id);
    Ok(())
}

impl SchemeName {
    /// As the API takes it.
    fn as_str(self) -> &'static str {
        match self {
            Self::Flowcatalyst => "flowcatalyst",
            Self::StandardWebhooks => "standard-webhooks",
        }
    }
}
