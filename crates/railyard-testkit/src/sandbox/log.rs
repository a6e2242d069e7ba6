//! A process's log in a file: kept over restarts, searched by tests, shown when a test fails.

use std::fs::File;
use std::path::PathBuf;
use std::process::Stdio;

/// Lines of a log that a failure shows.
const TAIL_LINES: usize = 40;

#[derive(Debug)]
pub(super) struct LogFile {
    path: PathBuf,
}

impl LogFile {
    pub(super) fn new(path: PathBuf) -> LogFile {
        LogFile { path }
    }

    /// Two handles that append to it, for standard output and standard error.
    pub(super) fn handles(&self) -> (Stdio, Stdio) {
        let file = File::options().create(true).append(true).open(&self.path).expect("open the log");
        let again = file.try_clone().expect("open the log");
        (file.into(), again.into())
    }

    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.path).unwrap_or_default()).into_owned()
    }

    pub(super) fn tail(&self) -> String {
        let text = self.text();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
    }
}
