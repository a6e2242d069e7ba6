//! The receiver's side of the line protocol: a question a line, an answer a line.
//!
//! `reset` · `count` · `stamps on|off` · `wait KEY` (when that message came, in nanoseconds of CLOCK_BOOTTIME) ·
//! `drain` (all such moments, which are forgotten) · `starts` (when each call came, and how late this process ran at worst).

use std::io::Write;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};

use super::Seen;

/// Answers until standard input ends.
pub(super) async fn answer(seen: &Seen) -> anyhow::Result<()> {
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        let answer = one(seen, line.trim()).await;
        let mut out = std::io::stdout();
        writeln!(out, "{answer}")?;
        out.flush()?;
    }
    Ok(())
}

async fn one(seen: &Seen, line: &str) -> Value {
    match line.split_once(' ').unwrap_or((line, "")) {
        ("reset", _) => {
            for counter in [&seen.delivered, &seen.refused, &seen.first_ns] {
                counter.store(0, Ordering::Relaxed);
            }
            drain(seen);
            seen.starts.lock().unwrap_or_else(PoisonError::into_inner).clear();
            seen.late_ns.store(0, Ordering::Relaxed);
            json!(true)
        }
        ("count", _) => {
            // First: whatever was counted has left its mark in the others.
            let delivered = seen.delivered.load(Ordering::Acquire);
            json!({
                "delivered": delivered,
                "refused": seen.refused.load(Ordering::Relaxed),
                "first_ns": seen.first_ns.load(Ordering::Relaxed),
            })
        }
        ("stamps", on) => {
            seen.stamping.store(on == "on", Ordering::Relaxed);
            json!(true)
        }
        ("wait", key) => json!(wait(seen, key).await),
        ("drain", _) => json!(drain(seen)),
        ("starts", _) => json!({
            "at_ns": *seen.starts.lock().unwrap_or_else(PoisonError::into_inner),
            "late_ns": seen.late_ns.load(Ordering::Relaxed),
        }),
        (_, _) => json!(null),
    }
}

async fn wait(seen: &Seen, key: &str) -> u64 {
    loop {
        let mut stamped = std::pin::pin!(seen.stamped.notified());
        stamped.as_mut().enable();
        if let Some(at) = seen.stamps.lock().unwrap_or_else(PoisonError::into_inner).get(key) {
            return *at;
        }
        stamped.await;
    }
}

fn drain(seen: &Seen) -> Vec<(String, u64)> {
    seen.stamps.lock().unwrap_or_else(PoisonError::into_inner).drain().collect()
}
