//! The record of a receiver, and waiting for it to show something.

use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::{ConnectionRecord, Receipt};

/// How many lines of what came a failed wait prints.
const LINES_SHOWN: usize = 20;

/// Changes are gathered this long before a wait looks again, since every look copies the record.
const GATHER: Duration = Duration::from_millis(2);

#[derive(Debug)]
pub(super) struct Log {
    entries: Mutex<Entries>,
    changed: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Entries {
    exchanges: Vec<Receipt>,
    /// Indices of the complete ones, in the order in which they became so.
    complete: Vec<usize>,
    connections: Vec<ConnectionRecord>,
}

impl Log {
    pub(super) fn new() -> Log {
        Log { entries: Mutex::default(), changed: watch::Sender::new(0) }
    }

    pub(super) fn receipts(&self) -> Vec<Receipt> {
        let entries = self.entries();
        entries.complete.iter().map(|&index| entries.exchanges[index].clone()).collect()
    }

    pub(super) fn exchanges(&self) -> Vec<Receipt> {
        self.entries().exchanges.clone()
    }

    pub(super) fn connections(&self) -> Vec<ConnectionRecord> {
        self.entries().connections.clone()
    }

    pub(super) fn connected(&self) -> usize {
        self.change(|entries| {
            entries.connections.push(ConnectionRecord {
                accepted_at: Instant::now(),
                bytes: 0,
                tls_error: None,
                error: None,
                closed_at: None,
            });
            entries.connections.len() - 1
        })
    }

    pub(super) fn on_connection(&self, connection: usize, change: impl FnOnce(&mut ConnectionRecord)) {
        self.change(|entries| change(&mut entries.connections[connection]));
    }

    /// Adds an exchange whose head came, and returns its number.
    pub(super) fn begin(&self, mut receipt: Receipt) -> usize {
        self.change(|entries| {
            receipt.index = entries.exchanges.len();
            entries.exchanges.push(receipt);
            entries.exchanges.len() - 1
        })
    }

    /// Marks an exchange complete after `change` filled it in, and returns it.
    pub(super) fn complete(&self, index: usize, change: impl FnOnce(&mut Receipt)) -> Receipt {
        self.change(|entries| {
            entries.complete.push(index);
            change(&mut entries.exchanges[index]);
            entries.exchanges[index].clone()
        })
    }

    pub(super) fn on_exchange(&self, index: usize, change: impl FnOnce(&mut Receipt)) {
        self.change(|entries| change(&mut entries.exchanges[index]));
    }

    pub(super) async fn await_where(
        &self,
        what: &str,
        deadline: Duration,
        condition: impl Fn(&[Receipt]) -> bool,
    ) -> Vec<Receipt> {
        let mut changed = self.changed.subscribe();
        let started = Instant::now();
        loop {
            changed.borrow_and_update();
            let receipts = self.receipts();
            if condition(&receipts) {
                return receipts;
            }
            let left = deadline.saturating_sub(started.elapsed());
            tokio::time::sleep(GATHER.min(left)).await;
            // The sender is in self: this ends by a change or by the deadline.
            if left.is_zero() || tokio::time::timeout(left, changed.changed()).await.is_err() {
                self.fail(what, deadline, &receipts);
            }
        }
    }

    fn fail(&self, what: &str, deadline: Duration, receipts: &[Receipt]) -> ! {
        let skipped = receipts.len().saturating_sub(LINES_SHOWN);
        let lines: Vec<String> = receipts.iter().skip(skipped).map(Receipt::line).collect();
        let connections = self.entries().connections.len();
        panic!(
            "not within {deadline:?}: {what}; {} requests came over {connections} connections{}\n{}",
            receipts.len(),
            if skipped > 0 { format!(", the last {LINES_SHOWN}:") } else { String::new() },
            lines.join("\n"),
        );
    }

    fn change<T>(&self, change: impl FnOnce(&mut Entries) -> T) -> T {
        let result = change(&mut self.entries());
        self.changed.send_modify(|version| *version += 1);
        result
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().expect("held for moments only, by code that does not panic")
    }
}
