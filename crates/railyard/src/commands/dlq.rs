//! `railyard dlq`: see what ended without success, and make it again.

use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use indicatif::{ProgressBar, ProgressStyle};
use reqwest::Method;
use serde_json::{Value, json};

use super::jobs::object;
use crate::cli::{Dlq, ListDlq, ReplayDlq};
use crate::client::{Client, segment};
use crate::exit::Usage;
use crate::output;

const PATH: &str = "admin/dlq";
/// Refusals that are kept for the summary; all are counted and printed.
const KEPT_MAX: usize = 1000;

const COLUMNS: [(&str, &str); 7] = [
    ("job", "id"),
    ("status", "status"),
    ("source", "source"),
    ("type", "type"),
    ("group", "groupId"),
    ("created", "createdAt"),
    ("last error", "lastError"),
];

/// Does one of its verbs.
///
/// # Errors
/// The API refused.
pub(crate) async fn run(verb: &Dlq) -> anyhow::Result<ExitCode> {
    match verb {
        Dlq::List(args) => list(args).await,
        Dlq::Replay(args) => replay(args).await,
    }
}

async fn list(args: &ListDlq) -> anyhow::Result<ExitCode> {
    let cursor = args.cursor.as_deref().map(|cursor| format!("&cursor={}", segment(cursor))).unwrap_or_default();
    let path = format!("{PATH}?status={}&size={}{cursor}", args.status.as_str(), args.size);
    let answer = Client::new(&args.api)?.call(Method::GET, &path, None).await?.body;
    if args.json {
        output::json(&answer)?;
        return Ok(ExitCode::SUCCESS);
    }
    output::rows(output::items(&answer, "jobs"), &COLUMNS);
    if let Some(next) = answer["nextCursor"].as_str() {
        eprintln!("more: --cursor {next}");
    }
    Ok(ExitCode::SUCCESS)
}

async fn replay(args: &ReplayDlq) -> anyhow::Result<ExitCode> {
    let client = Client::new(&args.api)?;
    let filter = object(&args.filter, args.status.as_str());
    let preview = post(&client, &json!({ "filter": filter, "preview": true })).await?;
    // So many that the first call would make again, and so many that it would leave for others.
    let count = ["replayed", "remaining"].iter().filter_map(|name| preview[name].as_u64()).sum();
    if args.preview && args.json {
        output::json(&preview)?;
        return Ok(ExitCode::SUCCESS);
    }
    if !args.json {
        let sample = preview["sample"].as_array().map_or(&[][..], Vec::as_slice);
        output::rows(sample, &COLUMNS);
        println!("{count} jobs{}", if count > sample.len() as u64 { ", the newest of them above" } else { "" });
    }
    if args.preview || count == 0 {
        if args.json {
            output::json(&json!({ "replayed": 0, "existing": 0, "refused": 0, "errors": [] }))?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    if !args.yes && !confirmed(count)? {
        println!("nothing was done");
        return Ok(ExitCode::FAILURE);
    }
    let reason = args.reason.as_deref().unwrap_or_default();
    walk(&client, &filter, reason, count, args.json).await
}

/// Asks, where there is somebody to ask.
fn confirmed(count: u64) -> anyhow::Result<bool> {
    if !std::io::stdin().is_terminal() {
        return Err(Usage("nobody can be asked here: say --yes".to_owned()).into());
    }
    eprint!("make {count} jobs again? [y/N] ");
    std::io::stderr().flush()?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// Call after call. Whoever stops it in the middle can start it again: what was made again is no dead letter any more.
async fn walk(client: &Client, filter: &Value, reason: &str, count: u64, json: bool) -> anyhow::Result<ExitCode> {
    let bar = ProgressBar::new(count);
    let style = ProgressStyle::with_template("{bar:30} {pos} of {len}  {elapsed_precise}, about {eta} to go");
    bar.set_style(style.expect("the template is ours and is well formed"));
    let mut body = json!({ "filter": filter, "reason": reason });
    let (mut replayed, mut existing, mut refused) = (0, 0, 0);
    let mut kept = Vec::new();
    loop {
        let step = post(client, &body).await?;
        let counted = |name: &str| step[name].as_u64().unwrap_or_default();
        replayed += counted("replayed");
        existing += counted("existing");
        refused += counted("refused");
        let results = step["results"].as_array().map_or(&[][..], Vec::as_slice);
        for one in results.iter().filter(|one| one["detail"].is_string()) {
            bar.suspend(|| eprintln!("{}: {}", output::text(&one["id"]), output::text(&one["detail"])));
            if kept.len() < KEPT_MAX {
                kept.push(one.clone());
            }
        }
        let done = replayed + existing + refused;
        bar.set_length(done + counted("remaining"));
        bar.set_position(done);
        match &step["nextCursor"] {
            Value::String(next) => body["cursor"] = json!(next),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => break,
        }
    }
    bar.finish_and_clear();
    if json {
        output::json(&json!({ "replayed": replayed, "existing": existing, "refused": refused, "errors": kept }))?;
    } else {
        println!("{replayed} made again, {existing} had been before, {refused} refused");
    }
    Ok(if refused > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

async fn post(client: &Client, body: &Value) -> anyhow::Result<Value> {
    let path = format!("{PATH}/replay");
    Ok(client.call(Method::POST, &path, Some(serde_json::to_vec(body)?)).await?.body)
}
