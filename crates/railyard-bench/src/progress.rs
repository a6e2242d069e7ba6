//! What is under way, on standard error: a bar or a line; nothing where nobody watches.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

const TICK: Duration = Duration::from_millis(200);

/// A bar of `length` steps; hidden when standard error is no terminal.
pub(crate) fn bar(what: &str, length: u64) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{msg:32} {wide_bar} {pos}/{len} {per_sec}");
    let bar = ProgressBar::new(length).with_message(what.to_owned());
    if let Ok(style) = style {
        bar.set_style(style);
    }
    bar.enable_steady_tick(TICK);
    bar
}

/// One step of a bench, for who reads along.
pub(crate) fn say(what: &str) {
    if std::io::stderr().is_terminal() {
        eprintln!("{what}");
    }
}
