//! `railyard jobs list`: a page, or all of them by cursor.

use std::io::Write;
use std::process::ExitCode;

use indicatif::{ProgressBar, ProgressStyle};
use reqwest::Method;
use serde_json::Value;

use super::PATH;
use crate::cli::{JobFilter, ListJobs};
use crate::client::{Client, Patience, segment};
use crate::output;

/// How long an API that is away is waited for in the middle of a walk.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(60);

const COLUMNS: [(&str, &str); 9] = [
    ("job", "id"),
    ("status", "status"),
    ("source", "source"),
    ("type", "type"),
    ("group", "groupId"),
    ("attempts", "attemptCount"),
    ("created", "createdAt"),
    ("next attempt", "nextAttemptAt"),
    ("last error", "lastError"),
];

/// Shows jobs.
///
/// # Errors
/// The API refused.
pub(crate) async fn list(args: &ListJobs) -> anyhow::Result<ExitCode> {
    let client = Client::new(&args.api)?;
    let status = args.status.map(|status| format!("&status={}", status.as_str())).unwrap_or_default();
    let filter = format!("{status}{}", query(&args.filter));
    if args.all {
        return all(&client, &filter, args.json).await;
    }
    let path = format!("{PATH}?page={}&size={}{filter}", args.page, args.size);
    let answer = client.call(Method::GET, &path, None).await?.body;
    if args.json {
        output::json(&answer)?;
        return Ok(ExitCode::SUCCESS);
    }
    output::rows(output::items(&answer, "jobs"), &COLUMNS);
    let pages = answer["totalPages"].as_u64().unwrap_or_default();
    eprintln!("page {} of {pages}, {} jobs in all", args.page, answer["totalItems"]);
    Ok(ExitCode::SUCCESS)
}

async fn all(client: &Client, filter: &str, json: bool) -> anyhow::Result<ExitCode> {
    let bar = ProgressBar::new_spinner();
    let style = ProgressStyle::with_template("{spinner} {pos} jobs  {elapsed_precise}");
    bar.set_style(style.expect("the template is ours and is well formed"));
    let patience = Patience { limit: PATIENCE };
    let mut found = Vec::new();
    let mut cursor = String::new();
    loop {
        let path = format!("{PATH}?cursor={}&size=100{filter}", segment(&cursor));
        let waiting = |error: &_| bar.suspend(|| eprintln!("waiting: {error}"));
        let answer = patience.call(|| client.call(Method::GET, &path, None), waiting).await?.body;
        let items = output::items(&answer, "jobs");
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

/// A filter as query parameters, each with its `&`.
fn query(filter: &JobFilter) -> String {
    let pairs = [
        ("source", &filter.source),
        ("type", &filter.kind),
        ("groupId", &filter.group),
        ("externalId", &filter.external_id),
        ("createdAfter", &filter.created_after),
        ("createdBefore", &filter.created_before),
    ];
    let given = pairs.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value.as_ref()?)));
    let entries = filter.metadata.iter().map(|(key, value)| (format!("metadata.{}", segment(key)), value));
    given.chain(entries).map(|(name, value)| format!("&{name}={}", segment(value))).collect()
}

/// A filter as the body of a replay has it.
pub(crate) fn object(filter: &JobFilter, status: &str) -> Value {
    let metadata: serde_json::Map<String, Value> =
        filter.metadata.iter().map(|(key, value)| (key.clone(), Value::from(value.as_str()))).collect();
    serde_json::json!({
        "status": status,
        "source": filter.source,
        "type": filter.kind,
        "groupId": filter.group,
        "externalId": filter.external_id,
        "createdAfter": filter.created_after,
        "createdBefore": filter.created_before,
        "metadata": metadata,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_escaped() {
        let filter = JobFilter {
            source: Some("a&b=c".to_owned()),
            created_after: Some("2025-10-04T15:00:00+02:00".to_owned()),
            metadata: vec![("k=1".to_owned(), "ü".to_owned())],
            ..JobFilter::default()
        };
        let expect = "&source=a%26b%3Dc&createdAfter=2025-10-04T15%3A00%3A00%2B02%3A00&metadata.k%3D1=%C3%BC";
        assert_eq!(query(&filter), expect);
    }
}
