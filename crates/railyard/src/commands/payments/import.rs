//! `railyard payments import`: a file is read to its end first, then opened as a feed and sent in its order.
//!
//! What was sent before a kill is answered as already there, so the same command goes on where it stopped, at the price
//! of sending it once more. Nothing is kept on this machine.

use std::fs::File;
use std::io::{BufReader, Seek};
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use reqwest::Method;
use serde_json::json;

use super::PATH;
use super::rejects::Rejects;
use super::report::Report;
use super::send::{Item, Sender};
use crate::cli::ImportPayments;
use crate::client::{Client, Patience, segment};
use crate::exit::Usage;
use crate::feed::{Broken, Clock, Format, Reading};

/// How much of the file is read at once.
const READ_BYTES: usize = 64 * 1024;
/// Instructions and bytes of one request.
const BATCH_ITEMS_MAX: usize = 1000;
const BATCH_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Characters that a feed's name takes over from the file's.
const NAME_CHARS_MAX: usize = 40;

/// What is known of the file once it was read to its end.
struct Checked {
    items: u64,
    bytes: u64,
    sha256: [u8; 32],
}

/// Takes in a file.
///
/// # Errors
/// The file cannot be read or is broken; the API refuses this caller altogether, or was away for longer than the patience.
pub(super) async fn import(args: &ImportPayments) -> anyhow::Result<ExitCode> {
    let shown = args.file.display();
    let format = args.format.map(Format::from).or_else(|| of_name(&args.file));
    let format = format.ok_or_else(|| Usage(format!("{shown}: its name does not say its form; --format does")))?;
    let clock = Clock { time: args.execution_time, zone: args.time_zone.clone() };
    let client = Client::new(&args.api)?;
    let mut file = File::open(&args.file).with_context(|| format!("open {shown}"))?;
    let meta = file.metadata()?;
    if !meta.is_file() {
        return Err(Usage(format!("{shown}: is not a file that can be read twice")).into());
    }
    let mut report = Report::new(meta.len());
    let in_file = |broken: Broken| anyhow::anyhow!("{shown}: {broken}; nothing was taken from it");
    let checked = check(format, &file, &clock, &report).map_err(in_file)?;
    let feed_id = args.feed_id.clone().unwrap_or_else(|| feed_id(&args.file, &checked.sha256));
    let mut rejects = Rejects::open(args.rejects.as_deref(), format)?;
    let sender = Sender {
        client,
        patience: Patience { limit: args.patience() },
        path: format!("{PATH}/feeds/{}", segment(&feed_id)),
    };
    open(&sender, args, format, &checked, &report).await?;

    file.rewind()?;
    let mut reading = Reading::new(format, BufReader::with_capacity(READ_BYTES, &file), &clock);
    let mut batch: Vec<Item> = Vec::new();
    let mut bytes = 0;
    let mut is_over = false;
    while !is_over {
        match reading.next().map_err(|broken| anyhow::anyhow!("{shown}: {broken}, and was not so before"))? {
            Some(row) => {
                let item = Item::of(row);
                bytes += item.body.len() + 1;
                batch.push(item);
            }
            None => is_over = true,
        }
        if is_over && !batch.is_empty() || batch.len() == BATCH_ITEMS_MAX || bytes >= BATCH_BYTES_MAX {
            if let Err(error) = sender.send(std::mem::take(&mut batch), &mut report, &mut rejects).await {
                report.abandon(&feed_id);
                return Err(error);
            }
            bytes = 0;
            report.sent(reading.bytes());
        }
    }
    rejects.end()?;
    if (reading.sha256(), reading.bytes()) != (checked.sha256, checked.bytes) {
        report.abandon(&feed_id);
        anyhow::bail!("{shown} was changed while it was read");
    }
    report.finish(&feed_id, format, args)
}

/// Reads all of it, and keeps nothing.
fn check(format: Format, file: &File, clock: &Clock, report: &Report) -> Result<Checked, Broken> {
    let mut reading = Reading::new(format, BufReader::with_capacity(READ_BYTES, file), clock);
    let mut items = 0;
    while let Some(row) = reading.next()? {
        items = row.item;
        if items % 1000 == 0 {
            report.checked(reading.bytes());
        }
    }
    Ok(Checked { items, bytes: reading.bytes(), sha256: reading.sha256() })
}

async fn open(
    sender: &Sender,
    args: &ImportPayments,
    format: Format,
    checked: &Checked,
    report: &Report,
) -> anyhow::Result<()> {
    let name = args.file.file_name().map_or_else(|| "file".into(), |name| name.to_string_lossy());
    let name: String = name.chars().filter(|c| !c.is_control()).take(200).collect();
    let feed = json!({
        "format": format.as_str(), "name": name, "sha256": hex::encode(checked.sha256), "items": checked.items,
    });
    let body = serde_json::to_vec(&feed)?;
    let waiting = report.waiting();
    let call = || sender.client.call(Method::PUT, &sender.path, Some(body.clone()));
    sender.patience.call(call, &waiting).await.context("open the feed")?;
    Ok(())
}

fn of_name(file: &Path) -> Option<Format> {
    match file.extension()?.to_str()?.to_ascii_lowercase().as_str() {
        "ndjson" | "jsonl" => Some(Format::Ndjson),
        "csv" => Some(Format::Csv),
        "xml" => Some(Format::Pain001),
        _ => None,
    }
}

/// The same file has the same name wherever it lies, and another content another one.
fn feed_id(file: &Path, sha256: &[u8; 32]) -> String {
    let stem = file.file_stem().map(std::ffi::OsStr::to_string_lossy).unwrap_or_default();
    let kept = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '-' };
    let stem: String = stem.chars().take(NAME_CHARS_MAX).map(kept).collect();
    let stem = stem.trim_start_matches(|c: char| !c.is_ascii_alphanumeric());
    let digest = hex::encode(&sha256[..6]);
    if stem.is_empty() { format!("feed-{digest}") } else { format!("{stem}-{digest}") }
}

#[cfg(test)]
mod tests {
    use railyard_core::payment::is_payment_id;

    use super::*;

    #[test]
    fn a_feed_is_named_after_its_file() {
        assert_eq!(feed_id(Path::new("/tmp/pay roll.2025.csv"), &[0xab; 32]), "pay-roll.2025-abababababab");
        assert_eq!(feed_id(Path::new("Ä.xml"), &[0; 32]), "feed-000000000000");
        assert!(is_payment_id(&feed_id(Path::new(&"x".repeat(300)), &[1; 32])));
    }
}
