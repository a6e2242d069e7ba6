//! How far an import is: a bar on a terminal, nothing elsewhere, and a summary at the end.

use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::cli::ImportPayments;
use crate::client::CallError;
use crate::feed::Format;
use crate::output;

/// Where lines are kept, an outage is not one line a try.
const SAY_AGAIN: Duration = Duration::from_secs(10);

/// The counts.
pub(super) struct Report {
    bar: ProgressBar,
    began: Instant,
    accepted: u64,
    known: u64,
    rejected: u64,
    unanswered: u64,
    /// When it was last said that the command waits.
    said: Arc<Mutex<Option<Instant>>>,
}

impl Report {
    /// Starts counting.
    pub(super) fn new(bytes_total: u64) -> Self {
        let bar = ProgressBar::new(bytes_total);
        let style =
            ProgressStyle::with_template("{bar:30} {percent:>3} %  {msg}  {elapsed_precise}, about {eta} to go");
        bar.set_style(style.expect("the template is ours and is well formed"));
        bar.set_message("checking");
        Self { bar, began: Instant::now(), accepted: 0, known: 0, rejected: 0, unanswered: 0, said: Arc::default() }
    }

    /// So much of the file is known not to be broken.
    pub(super) fn checked(&self, bytes: u64) {
        self.bar.set_position(bytes);
    }

    /// So much of it has been answered.
    pub(super) fn sent(&self, bytes: u64) {
        self.bar.set_position(bytes);
        self.bar.set_message(format!(
            "{} accepted, {} already there, {} rejected",
            self.accepted, self.known, self.rejected
        ));
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

    /// A new payment.
    pub(super) fn accepted(&mut self) {
        self.accepted += 1;
    }

    /// A payment that was there before.
    pub(super) fn known(&mut self) {
        self.known += 1;
    }

    /// No payment; what is to be said of it, if it stands nowhere else.
    pub(super) fn rejected(&mut self, said: Option<String>) {
        self.rejected += 1;
        if let Some(said) = said {
            self.bar.suspend(|| eprintln!("{said}"));
        }
    }

    /// The API failed at it, again and again.
    pub(super) fn unanswered(&mut self, said: &str) {
        self.unanswered += 1;
        self.bar.suspend(|| eprintln!("{said}"));
    }

    /// The command gives up: what was done so far must not go unsaid.
    pub(super) fn abandon(&self, feed_id: &str) {
        self.bar.abandon();
        eprintln!("{}", self.in_words(feed_id));
    }

    fn in_words(&self, feed_id: &str) -> String {
        let all = self.accepted + self.known + self.rejected + self.unanswered;
        let unanswered = match self.unanswered {
            0 => String::new(),
            unanswered => format!(", {unanswered} not answered: import the file again"),
        };
        format!(
            "feed {feed_id}: {all} instructions: {} accepted, {} already there, {} rejected{unanswered}, in {:.1} s",
            self.accepted,
            self.known,
            self.rejected,
            self.began.elapsed().as_secs_f64()
        )
    }

    /// Prints the summary. Exit status 1 if an instruction is no payment now.
    ///
    /// # Errors
    /// Standard output is closed.
    pub(super) fn finish(&self, feed_id: &str, format: Format, args: &ImportPayments) -> anyhow::Result<ExitCode> {
        self.bar.finish_and_clear();
        if args.json {
            output::json(&serde_json::json!({
                "feedId": feed_id,
                "format": format.as_str(),
                "items": self.accepted + self.known + self.rejected + self.unanswered,
                "accepted": self.accepted,
                "existing": self.known,
                "rejected": self.rejected,
                "unanswered": self.unanswered,
                "rejects": args.rejects,
                "seconds": self.began.elapsed().as_secs_f64(),
            }))?;
        } else {
            println!("{}", self.in_words(feed_id));
        }
        let whole = self.rejected + self.unanswered == 0;
        Ok(if whole { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}
