//! `railyard rate`: limits, and what a plan would come to.

mod plot;

use std::process::ExitCode;

use anyhow::Context;
use reqwest::Method;
use serde_json::{Value, json};

use crate::cli::{ForecastRate, GetRate, Rate, ReplanRate, SetRate, Switch};
use crate::client::{Client, segment};
use crate::output;

const PATH: &str = "admin/rate-limit";
/// Lines of a plot, and characters of its longest bar.
const PLOT_LINES: usize = 20;
const PLOT_WIDTH: usize = 50;

const COLUMNS: [(&str, &str); 7] = [
    ("id", "configId"),
    ("max", "maxPerWindow"),
    ("window s", "windowSizeSecs"),
    ("active", "active"),
    ("created", "createdAt"),
    ("by", "createdBy"),
    ("until", "deactivatedAt"),
];

/// Does one of its verbs.
///
/// # Errors
/// The API refused.
pub(crate) async fn run(verb: &Rate) -> anyhow::Result<ExitCode> {
    match verb {
        Rate::Get(args) => get(args).await?,
        Rate::Set(args) => set(args).await?,
        Rate::Forecast(args) => forecast(args).await?,
        Rate::Replan(args) => replan(args).await?,
        Rate::Flush(args) => {
            Client::new(&args.api)?.call(Method::POST, &format!("{PATH}/cache/flush"), None).await?;
            println!("all nodes read their configurations anew");
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn get(args: &GetRate) -> anyhow::Result<()> {
    let history = if args.history { "&history=true" } else { "" };
    let path = format!("{PATH}/config?name={}{history}", segment(&args.name));
    let mut answer = Client::new(&args.api)?.call(Method::GET, &path, None).await?.body;
    if args.json {
        return output::json(&answer);
    }
    let history = answer.as_object_mut().and_then(|fields| fields.remove("history"));
    output::fields(&answer);
    if let Some(history) = history {
        output::rows(output::items(&history, "history"), &COLUMNS);
    }
    Ok(())
}

async fn set(args: &SetRate) -> anyhow::Result<()> {
    let mut body = json!({
        "configName": args.name, "maxPerWindow": args.max_per_window, "windowSizeSecs": args.window_size_secs,
        "frontier": args.frontier == Switch::On,
    });
    if let Some(windows) = args.max_lookahead {
        body["maxLookahead"] = json!(windows);
    }
    if let Some(file) = &args.calendar {
        let text = std::fs::read(file).with_context(|| format!("--calendar {}", file.display()))?;
        body["calendar"] = serde_json::from_slice(&text).with_context(|| format!("--calendar {}", file.display()))?;
    }
    let body = serde_json::to_vec(&body)?;
    let answer = Client::new(&args.api)?.call(Method::POST, &format!("{PATH}/config"), Some(body)).await?.body;
    if args.json {
        return output::json(&answer);
    }
    output::fields(&answer);
    Ok(())
}

async fn forecast(args: &ForecastRate) -> anyhow::Result<()> {
    let at = args.at.as_deref().map(|at| format!("&at={}", segment(at))).unwrap_or_default();
    let path = format!("{PATH}/forecast?name={}&events={}{at}", segment(&args.name), args.events);
    let mut answer = Client::new(&args.api)?.call(Method::GET, &path, None).await?.body;
    if args.json {
        return output::json(&answer);
    }
    let curve = answer.as_object_mut().and_then(|fields| fields.remove("curve")).unwrap_or_default();
    output::fields(&answer);
    for line in plot::bars(&points(&curve), PLOT_LINES, PLOT_WIDTH) {
        println!("{line}");
    }
    if answer["events"].as_u64().is_some_and(|placed| placed < args.events) {
        eprintln!("only so many of {} find a slot; the search ends there", args.events);
    }
    Ok(())
}

fn points(curve: &Value) -> Vec<(String, u64)> {
    let points = curve.as_array().into_iter().flatten();
    points.map(|point| (output::text(&point["at"]), point["events"].as_u64().unwrap_or_default())).collect()
}

async fn replan(args: &ReplanRate) -> anyhow::Result<()> {
    let body = serde_json::to_vec(&json!({
        "configName": args.name, "preview": args.preview, "reason": args.reason,
    }))?;
    let answer = Client::new(&args.api)?.call(Method::POST, &format!("{PATH}/replan"), Some(body)).await?.body;
    if args.json {
        return output::json(&answer);
    }
    output::fields(&answer);
    Ok(())
}
