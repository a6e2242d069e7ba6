//! `railyard reconcile`: every payment of a feed or a day, accounted for.

use std::process::ExitCode;

use reqwest::Method;
use serde_json::{Value, json};

use super::PATH;
use crate::cli::Reconcile;
use crate::client::{Client, segment};
use crate::output;

/// Accounts for everything. Exit status 1 if something is missing.
///
/// # Errors
/// The API refused.
pub(crate) async fn reconcile(args: &Reconcile) -> anyhow::Result<ExitCode> {
    let (kind, name) = match (&args.feed, &args.day) {
        (Some(feed), _) => ("feeds", feed.as_str()),
        (None, day) => ("days", day.as_deref().unwrap_or_default()),
    };
    let path = format!("{PATH}/{kind}/{}/reconciliation", segment(name));
    let answer = Client::new(&args.api)?.call(Method::GET, &path, None).await?.body;
    if args.json {
        output::json(&answer)?;
    } else {
        show(&answer);
    }
    Ok(if answer["balanced"] == true { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn show(answer: &Value) {
    output::rows(
        &totals(answer),
        &[("standing", "standing"), ("count", "count"), ("currency", "currency"), ("amount", "amount")],
    );
    let list = |name: &str| answer[name].as_array().cloned().unwrap_or_default();
    let waiting = list("waiting");
    if !waiting.is_empty() {
        println!("\nwait for a person:");
        output::rows(&waiting, &[("payment", "paymentId"), ("standing", "standing"), ("reason", "reason")]);
    }
    let unaccounted = list("unaccounted");
    if !unaccounted.is_empty() {
        println!("\nnot accounted for:");
        let columns =
            [("feed", "feedId"), ("item", "item"), ("line", "line"), ("payment", "paymentId"), ("reason", "reason")];
        output::rows(&unaccounted, &columns);
    }
    let said = match answer["balanced"] == true {
        true => "everything is accounted for",
        false => "NOT everything is accounted for",
    };
    println!("\n{} accepted, {} not answered: {said}", answer["accepted"], answer["unanswered"]);
}

/// A row for each standing and currency.
fn totals(answer: &Value) -> Vec<Value> {
    let mut rows = Vec::new();
    for standing in answer["standings"].as_array().into_iter().flatten() {
        for total in standing["totals"].as_array().into_iter().flatten() {
            rows.push(json!({
                "standing": standing["standing"], "count": total["count"], "currency": total["currency"],
                "amount": total["amount"],
            }));
        }
    }
    rows
}
