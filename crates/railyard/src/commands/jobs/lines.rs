//! The lines of a file or of standard input, read ahead by a thread of their own: a pipe that is silent must not keep
//! answers from being counted. If the command ends first, the thread ends with the process.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use anyhow::Context;
use tokio::sync::mpsc;

/// Longest line: more than the largest payload with everything in it escaped.
const LINE_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Lines read ahead.
const AHEAD_MAX: usize = 64;

/// One line that is not blank.
#[derive(Debug)]
pub(super) struct Line {
    /// From 1, blank lines counted.
    pub(super) number: u64,
    /// Without its end.
    pub(super) text: Vec<u8>,
    /// Bytes of the file up to here, for the progress bar.
    pub(super) bytes_read: u64,
}

/// The lines to come.
#[derive(Debug)]
pub(super) struct Lines {
    receiver: mpsc::Receiver<std::io::Result<Line>>,
    /// Bytes of the whole, where that is known.
    pub(super) bytes_total: Option<u64>,
}

impl Lines {
    /// Starts reading; `-` is standard input.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub(super) fn open(path: &Path) -> anyhow::Result<Self> {
        let (input, bytes_total): (Box<dyn Read + Send>, _) = if path == Path::new("-") {
            (Box::new(std::io::stdin()), None)
        } else {
            let file = File::open(path).with_context(|| format!("open {}", path.display()))?;
            let total = file.metadata().ok().filter(std::fs::Metadata::is_file).map(|meta| meta.len());
            (Box::new(file), total)
        };
        let (sender, receiver) = mpsc::channel(AHEAD_MAX);
        std::thread::Builder::new().name("lines".to_owned()).spawn(move || read(BufReader::new(input), &sender))?;
        Ok(Self { receiver, bytes_total })
    }

    /// The next line; none at the end. May be dropped while it waits: no line is lost.
    pub(super) async fn next(&mut self) -> Option<std::io::Result<Line>> {
        self.receiver.recv().await
    }
}

fn read(mut input: impl BufRead, sender: &mpsc::Sender<std::io::Result<Line>>) {
    let mut number = 0;
    let mut bytes_read = 0;
    loop {
        let mut text = Vec::new();
        match input.by_ref().take(LINE_BYTES_MAX + 1).read_until(b'\n', &mut text) {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) => {
                let _ = sender.blocking_send(Err(error));
                return;
            }
        }
        number += 1;
        let len = u64::try_from(text.len()).unwrap_or(u64::MAX);
        bytes_read += len;
        if len > LINE_BYTES_MAX {
            let what = format!("line {number} is longer than {LINE_BYTES_MAX} bytes");
            let _ = sender.blocking_send(Err(std::io::Error::other(what)));
            return;
        }
        if text.trim_ascii().is_empty() {
            continue;
        }
        // Nobody listens any more: the command has stopped.
        if sender.blocking_send(Ok(Line { number, text, bytes_read })).is_err() {
            return;
        }
    }
}
