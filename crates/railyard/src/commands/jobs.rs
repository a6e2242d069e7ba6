//! `railyard jobs`: create, list, get, attempts, cancel, replay.

mod body;
mod feed;
mod lanes;
mod lines;
mod list;
mod report;

use std::process::ExitCode;

use reqwest::Method;

use crate::cli::{CreateJobs, DecideJob, GetJob};
use crate::client::{Client, Patience, segment};
use crate::output;
use body::Defaults;
pub(crate) use list::{list, object};

/// Where jobs are.
const PATH: &str = "api/dispatch/jobs";
/// Where many are made at once.
const BATCH_PATH: &str = "api/dispatch/jobs/batch";

/// Creates one job, or a file of them.
///
/// # Errors
/// Wrong usage, or the API refused.
pub(crate) async fn create(args: CreateJobs) -> anyhow::Result<ExitCode> {
    let client = Client::new(&args.api)?;
    let patience = Patience { limit: args.patience() };
    let defaults = Defaults::of(&args.fields)?;
    if let Some(file) = &args.file {
        let feed = feed::Feed { client, patience, defaults, concurrency: args.concurrency.into(), strict: args.strict };
        let lines = lines::Lines::open(file)?;
        return report::finish(&feed.run(lines).await?, args.json);
    }
    let body = defaults.complete(body::Job::default())?.body;
    let waiting = |error: &_| eprintln!("waiting: {error}");
    let answer = patience.call(|| client.call(Method::POST, PATH, Some(body.clone())), waiting).await?;
    if args.json {
        output::json(&answer.body)?;
    } else {
        println!("{}", output::text(&answer.body["id"]));
    }
    Ok(ExitCode::SUCCESS)
}

/// Shows one job.
///
/// # Errors
/// The API refused.
pub(crate) async fn get(args: &GetJob) -> anyhow::Result<ExitCode> {
    let path = format!("{PATH}/{}", segment(&args.id));
    let answer = Client::new(&args.api)?.call(Method::GET, &path, None).await?;
    if args.json {
        output::json(&answer.body)?;
    } else {
        output::fields(&answer.body);
    }
    Ok(ExitCode::SUCCESS)
}

/// Shows a job's attempts.
///
/// # Errors
/// The API refused.
pub(crate) async fn attempts(args: &GetJob) -> anyhow::Result<ExitCode> {
    let path = format!("{PATH}/{}/attempts", segment(&args.id));
    let answer = Client::new(&args.api)?.call(Method::GET, &path, None).await?;
    if args.json {
        output::json(&answer.body)?;
        return Ok(ExitCode::SUCCESS);
    }
    let columns = [
        ("attempt", "attemptNumber"),
        ("status", "status"),
        ("state", "state"),
        ("attempted", "attemptedAt"),
        ("ms", "durationMillis"),
        ("code", "responseCode"),
        ("error", "errorCode"),
        ("message", "errorMessage"),
        ("late", "late"),
    ];
    output::rows(output::items(&answer.body, "attempts"), &columns);
    Ok(ExitCode::SUCCESS)
}

/// Takes a job out that waits.
///
/// # Errors
/// The API refused.
pub(crate) async fn cancel(args: &DecideJob) -> anyhow::Result<ExitCode> {
    let job = decide(args, "cancel").await?;
    if args.json {
        output::json(&job)?;
    } else {
        println!("{} {}", output::text(&job["id"]), output::text(&job["status"]));
    }
    Ok(ExitCode::SUCCESS)
}

/// Makes a job again.
///
/// # Errors
/// The API refused.
pub(crate) async fn replay(args: &DecideJob) -> anyhow::Result<ExitCode> {
    let job = decide(args, "replay").await?;
    if args.json {
        output::json(&job)?;
    } else {
        println!("{}", output::text(&job["id"]));
    }
    Ok(ExitCode::SUCCESS)
}

async fn decide(args: &DecideJob, verb: &str) -> anyhow::Result<serde_json::Value> {
    let path = format!("{PATH}/{}/{verb}", segment(&args.id));
    let body = serde_json::to_vec(&serde_json::json!({ "reason": args.reason }))?;
    Ok(Client::new(&args.api)?.call(Method::POST, &path, Some(body)).await?.body)
}
