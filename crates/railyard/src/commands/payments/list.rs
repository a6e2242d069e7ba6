//! `railyard payments list`: a page, or all of them by cursor.

use std::io::Write;
use std::process::ExitCode;

use indicatif::{ProgressBar, ProgressStyle};
use reqwest::Method;

use super::PATH;
use crate::cli::{ListPayments, PaymentStatusName, QueueStatusName};
use crate::client::{Client, Patience, segment};
use crate::output;

/// How long an API that is away is waited for in the middle of a walk.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(60);

const COLUMNS: [(&str, &str); 9] = [
    ("payment", "paymentId"),
    ("standing", "standing"),
    ("queue", "queueStatus"),
    ("amount", "amount"),
    ("currency", "currency"),
    ("debtor", "debtor.iban"),
    ("scheduled", "scheduledTime"),
    ("until", "until"),
    ("reason", "reason"),
];

/// Shows payments.
///
/// # Errors
/// The API refused.
pub(super) async fn list(args: &ListPayments) -> anyhow::Result<ExitCode> {
    let client = Client::new(&args.api)?;
    let filter = query(args);
    if args.all {
        return all(&client, &filter, args.json).await;
    }
    let path = format!("{PATH}?page={}&size={}{filter}", args.page, args.size);
    let answer = client.call(Method::GET, &path, None).await?.body;
    if args.json {
        output::json(&answer)?;
        return Ok(ExitCode::SUCCESS);
    }
    output::rows(output::items(&answer, "payments"), &COLUMNS);
    let pages = answer["totalPages"].as_u64().unwrap_or_default();
    eprintln!("page {} of {pages}, {} payments in all", args.page, answer["totalItems"]);
    Ok(ExitCode::SUCCESS)
}

async fn all(client: &Client, filter: &str, json: bool) -> anyhow::Result<ExitCode> {
    let bar = ProgressBar::new_spinner();
    let style = ProgressStyle::with_template("{spinner} {pos} payments  {elapsed_precise}");
    bar.set_style(style.expect("the template is ours and is well formed"));
    let patience = Patience { limit: PATIENCE };
    let mut found = Vec::new();
    let mut cursor = String::new();
    loop {
        let path = format!("{PATH}?cursor={}&size=100{filter}", segment(&cursor));
        let waiting = |error: &_| bar.suspend(|| eprintln!("waiting: {error}"));
        let answer = patience.call(|| client.call(Method::GET, &path, None), waiting).await?.body;
        let items = output::items(&answer, "payments");
        bar.inc(u64::try_from(items.len()).unwrap_or_default());
        if json {
            let mut out = std::io::stdout().lock();
            for item in items {
                writeln!(out, "{item}")?;
            }
        } else {
            found.extend_from_slice(items);
        }
        match answer["nextCursor"].as_str() {
            Some(next) => next.clone_into(&mut cursor),
            None => break,
        }
    }
    bar.finish_and_clear();
    if !json {
        output::rows(&found, &COLUMNS);
    }
    Ok(ExitCode::SUCCESS)
}

/// The filter as query parameters, each with its `&`.
fn query(args: &ListPayments) -> String {
    let pairs = [
        ("status", args.status.map(PaymentStatusName::as_str)),
        ("queueStatus", args.queue_status.map(QueueStatusName::as_str)),
        ("debtorIban", args.debtor.as_deref()),
        ("requestedAfter", args.requested_after.as_deref()),
        ("requestedBefore", args.requested_before.as_deref()),
    ];
    let given = pairs.into_iter().filter_map(|(name, value)| Some((name, value?)));
    given.map(|(name, value)| format!("&{name}={}", segment(value))).collect()
}
