//! Judges of a run: what a receiver saw, held against what was promised. They share no code with Railyard.
//!
//! Each function returns one line per offence, so an empty list is a pass and a failed assertion reads by itself:
//! `assert_eq!(verify::order_violations(&receipts), NONE)`. [`Verdict`] runs them all.

mod order;
mod signature;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;

use crate::Receipt;

pub use order::{max_concurrent_per_group, order_violations, overlaps};
pub use signature::{signature_failures, standard_webhook_failures};

/// For `assert_eq!` against a list of offences.
pub const NONE: [String; 0] = [];

/// Messages (by idempotency key) that were never accepted by the receiver.
pub fn lost<'a>(receipts: &[Receipt], expected: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let accepted: HashSet<String> = receipts.iter().filter(|r| r.accepted()).map(Receipt::message_key).collect();
    expected.into_iter().filter(|key| !accepted.contains(*key)).map(|key| format!("{key} was never taken")).collect()
}

/// Requests for messages that nobody expected.
pub fn strangers<'a>(receipts: &[Receipt], expected: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let expected: HashSet<&str> = expected.into_iter().collect();
    receipts.iter().filter(|r| !expected.contains(r.message_key().as_str())).map(Receipt::line).collect()
}

/// Requests whose bytes are not those of their message, which is looked up by idempotency key.
pub fn body_changes(receipts: &[Receipt], bodies: &HashMap<String, Vec<u8>>) -> Vec<String> {
    let changed = |r: &&Receipt| bodies.get(&r.message_key()).is_some_and(|body| body[..] != r.body[..]);
    receipts.iter().filter(changed).map(|r| format!("{} came as {:?}", r.line(), r.text())).collect()
}

/// Requests of one message that differ in their bytes, for runs whose bodies are not known beforehand.
pub fn unequal_repeats(receipts: &[Receipt]) -> Vec<String> {
    let mut first: HashMap<String, &Receipt> = HashMap::new();
    let mut offences = Vec::new();
    for receipt in receipts {
        let known = first.entry(receipt.message_key()).or_insert(receipt);
        if known.body != receipt.body {
            offences.push(format!("{} has other bytes than #{}", receipt.line(), known.index));
        }
    }
    offences
}

/// An attempt is one request: the same attempt number twice is a resend that nobody decided, and a smaller one after
/// a larger is an attempt that should not have been begun.
pub fn attempt_violations(receipts: &[Receipt]) -> Vec<String> {
    let mut last: HashMap<String, i64> = HashMap::new();
    let mut offences = Vec::new();
    for receipt in receipts {
        let Some(attempt) = receipt.attempt() else { continue };
        let last = last.entry(receipt.message_key()).or_insert(0);
        if attempt <= *last {
            offences.push(format!("{} came after attempt {last}", receipt.line()));
        }
        *last = (*last).max(attempt);
    }
    offences
}

/// A message that the receiver got more than once.
#[derive(Debug, Clone)]
pub struct Repeated {
    /// Its idempotency key.
    pub key: String,
    /// All its requests in order.
    pub receipts: Vec<Receipt>,
}

impl Repeated {
    /// Requests after the first that the receiver had accepted: each must be explained by the record (a
    /// ZOMBIE_REQUEUE or an answer that was lost).
    pub fn after_acceptance(&self) -> &[Receipt] {
        let accepted = self.receipts.iter().position(Receipt::accepted);
        accepted.map_or(&[], |at| &self.receipts[at + 1..])
    }
}

/// Messages that came more than once, failed tries included.
pub fn repeated(receipts: &[Receipt]) -> Vec<Repeated> {
    let mut of: BTreeMap<String, Vec<Receipt>> = BTreeMap::new();
    for receipt in receipts {
        of.entry(receipt.message_key()).or_default().push(receipt.clone());
    }
    let more = of.into_iter().filter(|(_, receipts)| receipts.len() > 1);
    more.map(|(key, receipts)| Repeated { key, receipts }).collect()
}

/// Messages that were sent again although the receiver had accepted them: duplicates, in a receiver's eyes.
pub fn resent_after_acceptance(receipts: &[Receipt]) -> Vec<Repeated> {
    repeated(receipts).into_iter().filter(|repeated| !repeated.after_acceptance().is_empty()).collect()
}

/// All judgements of one run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// Messages never accepted.
    pub lost: Vec<String>,
    /// Messages nobody expected.
    pub strangers: Vec<String>,
    /// A message of a group after a later one.
    pub order: Vec<String>,
    /// Two calls of a group at once.
    pub overlaps: Vec<String>,
    /// Bytes that changed.
    pub bodies: Vec<String>,
    /// Attempt numbers that came twice or late.
    pub attempts: Vec<String>,
    /// Missing, wrong, stale or repeated signatures.
    pub signatures: Vec<String>,
}

impl Verdict {
    /// Judges a run. `bodies` are the messages' bytes by idempotency key; `secret` signed them.
    pub fn of(receipts: &[Receipt], bodies: &HashMap<String, Vec<u8>>, secret: &str) -> Verdict {
        Verdict {
            lost: lost(receipts, bodies.keys().map(String::as_str)),
            strangers: strangers(receipts, bodies.keys().map(String::as_str)),
            order: order_violations(receipts),
            overlaps: overlaps(receipts),
            bodies: body_changes(receipts, bodies),
            attempts: attempt_violations(receipts),
            signatures: signature_failures(receipts, secret),
        }
    }

    /// Passes silently or fails with everything that was wrong.
    ///
    /// # Panics
    /// If any list is not empty.
    #[track_caller]
    pub fn assert_clean(&self) {
        assert!(self.is_clean(), "{self}");
    }

    /// Whether nothing was wrong.
    pub fn is_clean(&self) -> bool {
        self.lists().iter().all(|(_, offences)| offences.is_empty())
    }

    fn lists(&self) -> [(&'static str, &Vec<String>); 7] {
        [
            ("lost", &self.lost),
            ("strangers", &self.strangers),
            ("order violations", &self.order),
            ("overlaps in a group", &self.overlaps),
            ("changed bodies", &self.bodies),
            ("attempt numbers", &self.attempts),
            ("signatures", &self.signatures),
        ]
    }
}

/// How many offences of a kind are printed.
const LINES_SHOWN: usize = 10;

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, offences) in self.lists() {
            writeln!(f, "{name}: {}", offences.len())?;
            for offence in offences.iter().take(LINES_SHOWN) {
                writeln!(f, "  {offence}")?;
            }
        }
        Ok(())
    }
}
