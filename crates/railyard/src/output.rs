//! What commands print: tables for people, JSON for programs.

use comfy_table::{ContentArrangement, Table, presets};
use serde::Serialize;

/// Prints a value as JSON, indented.
///
/// # Errors
/// The value cannot be written as JSON, or standard output is closed.
pub(crate) fn json(value: &impl Serialize) -> anyhow::Result<()> {
    use std::io::Write;
    let mut out = std::io::stdout().lock();
    serde_json::to_writer_pretty(&mut out, value)?;
    writeln!(out)?;
    Ok(())
}

/// An empty table with these headings.
pub(crate) fn table(headings: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header(headings.iter().copied());
    table
}
