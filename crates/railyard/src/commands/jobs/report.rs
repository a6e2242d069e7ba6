//! What became of a file of jobs: a bar while it goes on (on a terminal), refused lines as they come, a summary.

use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::client::{CallError, Problem};
use crate::output;

/// Refused lines that are kept for the summary; all are counted and printed.
const KEPT_MAX: usize = 1000;

/// Where lines are kept, an outage is not one line a try.
const SAY_AGAIN: Duration = Duration::from_secs(10);

/// The counts.
pub(super) struct Report {
    bar: ProgressBar,
    began: Instant,
    created: u64,
    existing: u64,
    refused: u64,
    kept: Vec<Refused>,
    /// When it was last said that the command waits.
    said: Arc<Mutex<Option<Instant>>>,
}

/// A line that made no job.
#[derive(Debug, Serialize)]
struct Refused {
    line: u64,
    #[serde(flatten)]
    problem: Problem,
}

impl Report {
    /// Starts counting.
    pub(super) fn new(bytes_total: Option<u64>) -> Self {
        let bar = bytes_total.map_or_else(ProgressBar::new_spinner, ProgressBar::new);
        let template = if bytes_total.is_some() {
            "{bar:30} {percent:>3} %  {msg}  {elapsed_precise}, about {eta} to go"
        } else {
            "{spinner} {msg}  {elapsed_precise}"
        };
        bar.set_style(ProgressStyle::with_template(template).expect("the templates are ours and are well formed"));
        Self { bar, began: Instant::now(), created: 0, existing: 0, refused: 0, kept: Vec::new(), said: Arc::default() }
    }

    /// So much of the file was read.
    pub(super) fn read(&self, bytes: u64) {
        self.bar.set_position(bytes);
    }

    /// Says why the command waits. On a terminal it stands beside the bar, else it is a line now and then.
    pub(super) fn waiting(&self) -> impl Fn(&CallError) + Send + Sync + 'static {
        let (bar, said) = (self.bar.clone(), Arc::clone(&self.said));
        move |error| {
            if !bar.is_hidden() {
                return bar.set_message(format!("waiting: {error}"));
            }
            let mut said = said.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            if said.is_none_or(|at| at.elapsed() > SAY_AGAIN) {
                *said = Some(Instant::now());
                eprintln!("waiting: {error}");
            }
        }
    }

    /// A new job.
    pub(super) fn created(&mut self) {
        self.created += 1;
        self.show();
    }

    /// A job that was there before.
    pub(super) fn existing(&mut self) {
        self.existing += 1;
        self.show();
    }

    /// A line that is not a job.
    pub(super) fn unreadable(&mut self, line: u64, detail: String) {
        let problem = Problem {
            status: 400,
            title: "unreadable line".to_owned(),
            detail: Some(detail),
            errors: Vec::new(),
            retry_after: None,
        };
        self.refuse(line, problem);
    }

    /// A line that the API refused.
    pub(super) fn refuse(&mut self, line: u64, problem: Problem) {
        self.refused += 1;
        self.bar.suspend(|| eprintln!("line {line}: {problem}"));
        if self.kept.len() < KEPT_MAX {
            self.kept.push(Refused { line, problem });
        }
        self.show();
    }

    /// Lines that made no job so far.
    pub(super) fn refused(&self) -> u64 {
        self.refused
    }

    /// The command gives up: what was done so far must not go unsaid.
    pub(super) fn abandon(&self) {
        self.bar.abandon();
        eprintln!("{}", self.in_words());
    }

    fn show(&self) {
        self.bar.set_message(format!(
            "{} created, {} already there, {} refused",
            self.created, self.existing, self.refused
        ));
    }

    fn in_words(&self) -> String {
        let lines = self.created + self.existing + self.refused;
        let seconds = self.began.elapsed().as_secs_f64();
        format!(
            "{lines} jobs: {} created, {} already there, {} refused, in {seconds:.1} s",
            self.created, self.existing, self.refused
        )
    }
}

/// Prints the summary. Exit status 1 if a line was refused.
///
/// # Errors
/// Standard output is closed.
pub(super) fn finish(report: &Report, json: bool) -> anyhow::Result<ExitCode> {
    report.bar.finish_and_clear();
    if json {
        output::json(&serde_json::json!({
            "jobs": report.created + report.existing + report.refused,
            "created": report.created,
            "existing": report.existing,
            "refused": report.refused,
            "seconds": report.began.elapsed().as_secs_f64(),
            "errors": report.kept,
        }))?;
    } else {
        println!("{}", report.in_words());
    }
    Ok(if report.refused > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
