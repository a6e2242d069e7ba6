//! One lane of the Settler: a batch from submission to the last answer, through whatever the database does.

use std::collections::HashMap;
use std::time::Duration;

use ractor::RpcReplyPort;
use railyard_core::AttemptId;
use railyard_store::StoreError;
use railyard_store::clock::boottime;
use railyard_store::work::{Batch, BeginRequest, Ended, Late, Settled};

use super::{BeginAnswer, Item, SettleAnswer, answer, begins};
use crate::context::Context;

/// First wait between two tries. The longest is the poll interval: after an outage, nothing waits longer than that.
const RETRY_FIRST: Duration = Duration::from_millis(20);

/// Who waits for what.
struct Waiting {
    begins: HashMap<AttemptId, RpcReplyPort<BeginAnswer>>,
    settles: Vec<(AttemptId, Option<AttemptId>, RpcReplyPort<SettleAnswer>)>,
}

/// Runs a batch to its end. Outcomes are sent until they are in.
pub(super) async fn run(context: &Context, items: Vec<Item>) {
    let mut waiting = Waiting { begins: HashMap::new(), settles: Vec::new() };
    let mut settle = Vec::new();
    let mut begin = Vec::new();
    for item in items {
        match item {
            Item::Begin(request, reply) => {
                waiting.begins.insert(request.attempt_id, reply);
                begin.push(request);
            }
            Item::Settle(ended, next, reply) => {
                let attempt = ended.settlement.attempt_id;
                waiting.settles.push((attempt, next.as_ref().map(|request| request.attempt_id), reply));
                settle.push(*ended);
                begin.extend(next);
            }
        }
    }
    context.metrics.settle_batch.observe(f64::from(u32::try_from(settle.len() + begin.len()).unwrap_or(u32::MAX)));
    let result = commit(context, settle, begin).await;
    if result.begins.values().any(|answer| matches!(answer, BeginAnswer::Begun(_))) {
        context.metrics.claim_batches.inc();
    }
    distribute(context, waiting, result);
}

/// What a batch came to.
#[derive(Default)]
struct Outcome {
    settled: HashMap<AttemptId, Settled>,
    /// One that is missing here has a fate that nobody knows.
    begins: HashMap<AttemptId, BeginAnswer>,
}

async fn commit(context: &Context, settle: Vec<Ended>, begin: Vec<BeginRequest>) -> Outcome {
    let Some(node) = context.lease.good().map(|membership| membership.node) else {
        let begins = begins::answers(&begin, |_| BeginAnswer::NotBegun);
        return Outcome { settled: settle_all(context, settle).await, begins };
    };
    if begin.is_empty() {
        return Outcome { settled: settle_all(context, settle).await, begins: HashMap::new() };
    }
    let batch = Batch { settle, begin, slack: context.options.slack };
    let since = boottime();
    match context.store.run(node, &batch).await {
        Ok(mut done) => {
            let settled = std::mem::take(&mut done.settled);
            Outcome { settled, begins: begins::told(context, &batch.begin, done, node, since).await }
        }
        Err(failed) => {
            report(context, &failed.error);
            let Batch { settle, begin, .. } = batch;
            let lost = begins::lost(context, &failed, &begin, node, since).await;
            let settled = settle_all(context, settle).await;
            let begins = match lost {
                Some(begins) => begins,
                // One that the database refuses must not keep the others from beginning.
                None if begin.len() > 1 => begins::by_halves(context, node, begin).await,
                None => begins::answers(&begin, |_| BeginAnswer::NotBegun),
            };
            Outcome { settled, begins }
        }
    }
}

/// Writes outcomes, however long it takes. What fails for a reason of its own is halved down to the row.
async fn settle_all(context: &Context, settle: Vec<Ended>) -> HashMap<AttemptId, Settled> {
    let mut settled = HashMap::with_capacity(settle.len());
    let mut left = vec![settle];
    let mut wait = RETRY_FIRST;
    while let Some(mut part) = left.pop() {
        if part.is_empty() {
            continue;
        }
        let batch = Batch { settle: part.clone(), begin: Vec::new(), slack: context.options.slack };
        match context.store.settle(&batch).await {
            Ok(done) => {
                settled.extend(done.settled);
                wait = RETRY_FIRST;
            }
            // A row that somebody holds, or one that takes too long, must not keep the others from being written.
            Err(failed) if part.len() > 1 && begins::is_about_rows(&failed.error) => {
                report(context, &failed.error);
                let half = part.split_off(part.len() / 2);
                left.push(half);
                left.push(part);
            }
            Err(failed) if failed.error.is_transient() => {
                report(context, &failed.error);
                left.insert(0, part);
                tokio::time::sleep(wait).await;
                wait = (wait * 2).min(context.options.poll);
            }
            Err(failed) => {
                report(context, &failed.error);
                let reason = format!("outcome could not be recorded: {}", failed.error);
                for ended in &part {
                    quarantine(context, ended.settlement.attempt_id, &reason).await;
                }
            }
        }
    }
    settled
}

/// One outcome that the database refuses by itself, or one message that cannot be read: its lane is held for a person to
/// look at; its in-flight row is healed in due time, and stays held.
pub(super) async fn quarantine(context: &Context, attempt: AttemptId, reason: &str) {
    tracing::error!(attempt_id = %attempt, reason, "lane held");
    context.metrics.quarantined.inc();
    if let Err(error) = context.store.quarantine(attempt, reason).await {
        report(context, &error);
    }
}

fn distribute(context: &Context, mut waiting: Waiting, mut outcome: Outcome) {
    let mut told = |attempt: AttemptId| outcome.begins.remove(&attempt).unwrap_or(BeginAnswer::Failed);
    for (attempt, reply) in waiting.begins.drain() {
        answer(reply, told(attempt));
    }
    for (attempt, next, reply) in waiting.settles {
        // One that is missing here was quarantined: dropping the reply says so.
        if let Some(settled) = outcome.settled.remove(&attempt) {
            if let Settled::Late(late) = &settled {
                count_late(context, *late);
            }
            let next = next.map_or(BeginAnswer::Nothing, &mut told);
            answer(reply, SettleAnswer { settled, next });
        }
    }
}

fn count_late(context: &Context, late: Late) {
    let kind = match late {
        Late::Already => return,
        Late::Failure => "failure",
        Late::Flagged => "flagged",
        Late::Taken => "taken",
        Late::Ended => "ended",
        Late::Unknown => "unknown",
        Late::Foreign => "foreign",
    };
    context.metrics.late_results.with_label_values(&[kind]).inc();
}

pub(super) fn report(context: &Context, error: &StoreError) {
    context.trouble("settler", error);
}
