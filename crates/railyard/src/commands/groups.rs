//! `railyard groups`: what an operator sees and decides.

use std::process::ExitCode;

use reqwest::Method;
use serde_json::{Value, json};

use crate::cli::{ApiArgs, Decide, GetGroup, Groups, KindName, ListGroups, ReleaseGroup, SkipGroup, ViewName};
use crate::client::{Client, segment};
use crate::output;

const PATH: &str = "admin/groups";

/// Does one of its verbs.
///
/// # Errors
/// The API refused.
pub(crate) async fn run(verb: &Groups) -> anyhow::Result<ExitCode> {
    match verb {
        Groups::List(args) => list(args).await?,
        Groups::Get(args) => get(args).await?,
        Groups::Pause(args) => decide(args, "pause", json!({ "reason": args.reason })).await?,
        Groups::Resume(args) => decide(args, "resume", json!({ "reason": args.reason })).await?,
        Groups::Release(args) => release(args).await?,
        Groups::Skip(args) => skip(args).await?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn list(args: &ListGroups) -> anyhow::Result<()> {
    let after = args.after.as_deref().map(|name| format!("&cursor={}", segment(name))).unwrap_or_default();
    let path = format!("{PATH}?view={}&size={}{after}", args.view.as_str(), args.limit);
    let answer = read(&args.api, &path).await?;
    if args.json {
        return output::json(&answer);
    }
    let columns = [
        ("group", "groupId"),
        ("state", "state"),
        ("depth", "depth"),
        ("head", "head.jobId"),
        ("attempts", "head.attemptCount"),
        ("age s", "head.ageSeconds"),
        ("next attempt", "head.nextAttemptAt"),
        ("owner", "ownerName"),
    ];
    output::rows(output::items(&answer, "groups"), &columns);
    if let Some(last) = answer["nextCursor"].as_str() {
        eprintln!("more: --after {}", output::printable(last));
    }
    Ok(())
}

async fn get(args: &GetGroup) -> anyhow::Result<()> {
    let answer = read(&args.api, &format!("{PATH}/{}", segment(&args.group))).await?;
    if args.json {
        return output::json(&answer);
    }
    output::fields(&answer);
    Ok(())
}

async fn release(args: &ReleaseGroup) -> anyhow::Result<()> {
    let mut body = json!({ "reason": args.decide.reason });
    if !args.kinds.is_empty() {
        body["kinds"] = args.kinds.iter().map(|kind| kind.as_str()).collect();
    }
    decide(&args.decide, "release", body).await
}

async fn skip(args: &SkipGroup) -> anyhow::Result<()> {
    let mut body = json!({ "reason": args.decide.reason });
    if let Some(head) = &args.head {
        body["jobId"] = json!(head);
    }
    decide(&args.decide, "skip", body).await
}

async fn decide(args: &Decide, verb: &str, body: Value) -> anyhow::Result<()> {
    let path = format!("{PATH}/{}/{verb}", segment(&args.group));
    let body = serde_json::to_vec(&body)?;
    let answer = Client::new(&args.api)?.call(Method::POST, &path, Some(body)).await?;
    if args.json {
        return output::json(&answer.body);
    }
    println!("{verb}: {}", output::printable(&args.group));
    if answer.body.is_object() {
        output::fields(&answer.body);
    }
    Ok(())
}

async fn read(api: &ApiArgs, path: &str) -> anyhow::Result<Value> {
    Ok(Client::new(api)?.call(Method::GET, path, None).await?.body)
}

impl ViewName {
    fn as_str(self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::All => "all",
            Self::Deepest => "deepest",
            Self::Oldest => "oldest",
        }
    }
}

impl KindName {
    fn as_str(self) -> &'static str {
        match self {
            Self::Blocked => "blocked",
            Self::InDoubt => "in_doubt",
        }
    }
}
