//! Creates a file of jobs, many in one request. It reads ahead a bounded number of lines, has a bounded number of
//! requests out, and never two with jobs of one group, so that the file's order is the group's order. An API that is
//! away is waited for: every line is sent with the same idempotency key until it is answered. If the command is killed,
//! a file whose lines have keys of their own can be given again from the start; lines that were taken before are
//! answered as already there.

use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use reqwest::Method;
use serde_json::Value;

use super::body::{Defaults, Job, Ready};
use super::lanes::Lanes;
use super::lines::{Line, Lines};
use super::report::Report;
use crate::client::{CallError, Client, FieldProblem, Patience, Problem};

/// Lines that may wait here for their turn.
const WINDOW_LINES: usize = 2000;
/// Lines and bytes of one request.
const BATCH_LINES_MAX: usize = 100;
const BATCH_BYTES_MAX: usize = 4 * 1024 * 1024;
/// What is to come again comes again after this.
const AGAIN_AFTER: Duration = Duration::from_millis(200);

/// How to create them.
pub(super) struct Feed {
    pub(super) client: Client,
    pub(super) patience: Patience,
    pub(super) defaults: Defaults,
    pub(super) concurrency: usize,
    pub(super) strict: bool,
}

struct Item {
    line: u64,
    body: Vec<u8>,
}

/// What became of a line.
enum Fate {
    Created,
    Existing,
    Refused(Problem),
}

struct Done {
    lanes: Vec<String>,
    fates: Vec<(u64, Fate)>,
    /// The line that nothing better can come behind.
    broken: Option<(u64, CallError)>,
}

impl Feed {
    /// Sends all lines and tells what became of them.
    ///
    /// # Errors
    /// The file breaks off; the API refuses this caller altogether, or was away for longer than the patience.
    pub(super) async fn run(&self, mut lines: Lines) -> anyhow::Result<Report> {
        let mut report = Report::new(lines.bytes_total);
        let mut lanes = Lanes::default();
        let mut out: FuturesUnordered<BoxFuture<'_, Done>> = FuturesUnordered::new();
        let mut more = true;
        // Whoever stops at the first bad line sends none behind it.
        let batch_lines_max = if self.strict { 1 } else { BATCH_LINES_MAX };
        loop {
            // Full batches while there is more to read; what is left once there is not, or nothing else is under way.
            while out.len() < self.concurrency
                && lanes.waiting() > 0
                && (!more || out.is_empty() || lanes.waiting() >= batch_lines_max)
            {
                let batch = lanes.take_many(batch_lines_max, BATCH_BYTES_MAX, |item: &Item| item.body.len());
                if batch.items.is_empty() {
                    break;
                }
                let waiting = report.waiting();
                out.push(Box::pin(self.send(batch.lanes, batch.items, waiting)));
            }
            if out.is_empty() && !more {
                return Ok(report);
            }
            tokio::select! {
                biased;
                line = lines.next(), if more && lanes.waiting() < WINDOW_LINES => match line {
                    Some(line) => self.take(&line?, &mut lanes, &mut report),
                    None => more = false,
                },
                Some(done) = out.next(), if !out.is_empty() => {
                    settle(&mut report, done.fates);
                    if let Some((line, error)) = done.broken {
                        report.abandon();
                        return Err(anyhow::Error::new(error).context(format!("line {line}")));
                    }
                    lanes.done_all(done.lanes);
                }
            }
            if self.strict && report.refused() > 0 {
                more = false;
                lanes.clear();
            }
        }
    }

    fn take(&self, line: &Line, lanes: &mut Lanes<Item>, report: &mut Report) {
        report.read(line.bytes_read);
        let ready = Job::parse(&line.text).and_then(|job| self.defaults.complete(job).map_err(|e| e.to_string()));
        match ready {
            Ok(Ready { group, body }) => lanes.push(group, Item { line: line.number, body }),
            Err(detail) => report.unreadable(line.number, detail),
        }
    }

    /// Sends these until each is answered for good.
    async fn send(&self, lanes: Vec<String>, items: Vec<Item>, on_wait: impl Fn(&CallError) + Sync) -> Done {
        let mut done = Done { lanes, fates: Vec::new(), broken: None };
        let began = Instant::now();
        // In the order of the file; a part that the API refuses as a whole is halved.
        let mut parts = vec![items];
        while let Some(mut part) = parts.pop() {
            let Some(first) = part.first().map(|item| item.line) else { continue };
            let body = array(&part);
            let call = || self.client.call(Method::POST, super::BATCH_PATH, Some(body.clone()));
            match self.patience.call(call, &on_wait).await {
                Ok(answer) => {
                    let again = sort_out(part, &answer.body, &mut done.fates);
                    if again.is_empty() {
                        continue;
                    }
                    if began.elapsed() > self.patience.limit {
                        let problem = problem(503, "still to be sent again when the patience was over".to_owned());
                        done.broken = Some((again[0].line, CallError::Refused(problem)));
                        return done;
                    }
                    tokio::time::sleep(AGAIN_AFTER).await;
                    parts.push(again);
                }
                Err(error) => match error.into_this_jobs_problem() {
                    Ok(problem) if part.len() == 1 => done.fates.push((first, Fate::Refused(problem))),
                    Ok(_) => {
                        let behind = part.split_off(part.len() / 2);
                        parts.push(behind);
                        parts.push(part);
                    }
                    Err(error) => {
                        done.broken = Some((first, error));
                        return done;
                    }
                },
            }
        }
        done
    }
}

/// Notes what is answered for good, and gives back what is to be sent again, in its order.
fn sort_out(part: Vec<Item>, answer: &Value, fates: &mut Vec<(u64, Fate)>) -> Vec<Item> {
    let results = answer["results"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut again = Vec::new();
    for (index, item) in part.into_iter().enumerate() {
        let result = results.get(index).unwrap_or(&Value::Null);
        let fate = match result["status"].as_str().unwrap_or_default() {
            "SUCCESS" => Fate::Created,
            "SKIPPED" => Fate::Existing,
            "BAD_REQUEST" => Fate::Refused(refusal(result)),
            "INTERNAL_ERROR" => Fate::Refused(problem(500, result["error"].as_str().unwrap_or_default().to_owned())),
            _ => {
                again.push(item);
                continue;
            }
        };
        fates.push((item.line, fate));
    }
    again
}

fn refusal(result: &Value) -> Problem {
    let field = |error: &Value, name: &str| error[name].as_str().unwrap_or_default().to_owned();
    let errors: Vec<FieldProblem> = result["errors"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|error| FieldProblem { field: field(error, "field"), detail: field(error, "detail") })
        .collect();
    let detail =
        if errors.is_empty() { result["error"].as_str().unwrap_or_default().to_owned() } else { String::new() };
    Problem { errors, ..problem(400, detail) }
}

fn problem(status: u16, detail: String) -> Problem {
    let title = if status == 400 { "Invalid input" } else { "Not created" }.to_owned();
    Problem {
        status,
        title,
        detail: Some(detail).filter(|detail| !detail.is_empty()),
        errors: Vec::new(),
        retry_after: None,
    }
}

fn array(items: &[Item]) -> Vec<u8> {
    let mut body = Vec::with_capacity(items.iter().map(|item| item.body.len() + 1).sum::<usize>() + 1);
    for (index, item) in items.iter().enumerate() {
        body.push(if index == 0 { b'[' } else { b',' });
        body.extend_from_slice(&item.body);
    }
    body.push(b']');
    body
}

fn settle(report: &mut Report, fates: Vec<(u64, Fate)>) {
    for (line, fate) in fates {
        match fate {
            Fate::Created => report.created(),
            Fate::Existing => report.existing(),
            Fate::Refused(problem) => report.refuse(line, problem),
        }
    }
}

#[cfg(test)]
mod tests;
