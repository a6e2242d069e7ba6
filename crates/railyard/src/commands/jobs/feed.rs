//! Creates a file of jobs. It reads ahead a bounded number of lines, has a bounded number of requests out, and never
//! two of one group, so that the file's order is the group's order. An API that is away is waited for: every line is
//! sent with the same idempotency key until it is answered. If the command is killed, a file whose lines have keys of
//! their own can be given again from the start; lines that were taken before are answered as already there.

use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use reqwest::Method;

use super::body::{Defaults, Job, Ready};
use super::lanes::Lanes;
use super::lines::{Line, Lines};
use super::report::Report;
use crate::client::{Answer, CallError, Client, Patience};

/// Lines that may wait here for their turn.
const WINDOW_LINES: usize = 1000;

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

struct Done {
    line: u64,
    lane: Option<String>,
    result: Result<Answer, CallError>,
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
        loop {
            while out.len() < self.concurrency
                && let Some((lane, item)) = lanes.take()
            {
                let waiting = report.waiting();
                out.push(Box::pin(self.send(lane, item, waiting)));
            }
            if out.is_empty() && !more {
                return Ok(report);
            }
            tokio::select! {
                Some(done) = out.next(), if !out.is_empty() => {
                    settle(&mut report, done.line, done.result)?;
                    lanes.done(done.lane);
                }
                line = lines.next(), if more && lanes.waiting() < WINDOW_LINES => match line {
                    Some(line) => self.take(&line?, &mut lanes, &mut report),
                    None => more = false,
                },
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

    async fn send(&self, lane: Option<String>, item: Item, on_wait: impl Fn(&CallError)) -> Done {
        let call = || self.client.call(Method::POST, super::PATH, Some(item.body.clone()));
        let result = self.patience.call(call, on_wait).await;
        Done { line: item.line, lane, result }
    }
}

/// Counts what became of a line; fails if nothing better can come of the lines behind it.
fn settle(report: &mut Report, line: u64, result: Result<Answer, CallError>) -> anyhow::Result<()> {
    match result {
        Ok(answer) if answer.status == 201 => report.created(),
        Ok(_) => report.existing(),
        Err(error) => match error.into_this_jobs_problem() {
            Ok(problem) => report.refuse(line, problem),
            Err(error) => {
                report.abandon();
                return Err(anyhow::Error::new(error).context(format!("line {line}")));
            }
        },
    }
    Ok(())
}

#[cfg(test)]
mod tests;
