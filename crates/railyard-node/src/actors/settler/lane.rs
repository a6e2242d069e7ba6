//! One lane of the Settler: a batch from submission to the last answer, through whatever the database does.

use std::collections::HashMap;
use std::time::Duration;

use ractor::RpcReplyPort;
use railyard_core::{AttemptId, Message, NodeId};
use railyard_store::StoreError;
use railyard_store::clock::boottime;
use railyard_store::work::{Batch, BeginRequest, Done, Ended, Failed, Late, Settled};

use super::{BeginAnswer, Begun, Item, SettleAnswer, answer};
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
    if !result.begun.is_empty() {
        context.metrics.claim_batches.inc();
    }
    distribute(context, waiting, result);
}

/// What a batch came to.
#[derive(Default)]
struct Outcome {
    settled: HashMap<AttemptId, Settled>,
    begun: HashMap<AttemptId, Message>,
    node: Option<NodeId>,
    since: Duration,
    /// Begins did not get through at all: not even *nothing to begin* is known.
    begins_failed: bool,
}

async fn commit(context: &Context, settle: Vec<Ended>, begin: Vec<BeginRequest>) -> Outcome {
    let mut outcome = Outcome { since: boottime(), ..Outcome::default() };
    let lease = context.lease.good();
    outcome.node = lease.as_ref().map(|membership| membership.node);
    let slack = context.options.slack;
    if let Some(node) = outcome.node
        && !begin.is_empty()
    {
        let batch = Batch { settle: settle.clone(), begin: begin.clone(), slack };
        match context.store.run(node, &batch).await {
            Ok(Done { settled, begun, fenced }) => {
                outcome.settled = settled;
                outcome.begun = begun;
                outcome.begins_failed = fenced;
                return outcome;
            }
            Err(failed) => {
                report(context, &failed.error);
                match lost_begins(context, &failed, &begin).await {
                    Some(begun) => outcome.begun = begun,
                    None => outcome.begins_failed = true,
                }
            }
        }
        outcome.settled = settle_all(context, settle).await;
        if outcome.begins_failed && begin.len() > 1 {
            // One that the database refuses must not keep the others from beginning.
            outcome.begun = begin_by_halves(context, node, begin).await;
        }
        return outcome;
    }
    outcome.begins_failed = !begin.is_empty();
    outcome.settled = settle_all(context, settle).await;
    outcome
}

/// Begins in ever smaller batches while the database refuses them for a reason of their own.
async fn begin_by_halves(context: &Context, node: NodeId, begin: Vec<BeginRequest>) -> HashMap<AttemptId, Message> {
    let mut begun = HashMap::new();
    let mut left = vec![begin];
    while let Some(mut part) = left.pop() {
        let batch = Batch { settle: Vec::new(), begin: part.clone(), slack: context.options.slack };
        match context.store.run(node, &batch).await {
            Ok(done) => begun.extend(done.begun),
            Err(failed) => {
                report(context, &failed.error);
                if failed.commit_sent {
                    begun.extend(lost_begins(context, &failed, &part).await.unwrap_or_default());
                } else if failed.error.is_transient() {
                    // The database is away: these lanes are found again when it is back.
                    return begun;
                } else if part.len() > 1 {
                    left.push(part.split_off(part.len() / 2));
                    left.push(part);
                }
            }
        }
    }
    begun
}

/// Begins whose COMMIT may have happened. `None`: none did, or nobody can say; in both cases none is called here.
async fn lost_begins(
    context: &Context,
    failed: &Failed,
    begin: &[BeginRequest],
) -> Option<HashMap<AttemptId, Message>> {
    if !failed.commit_sent {
        return None;
    }
    let attempts: Vec<AttemptId> = begin.iter().map(|request| request.attempt_id).collect();
    // After the slack no call would start any more: then the rows are left to the Reaper.
    match context.store.resolve_until(failed.transaction.as_deref(), &attempts, context.options.slack).await {
        Ok(begun) => Some(begun),
        Err(error) => {
            report(context, &error);
            None
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
            Err(failed) if failed.error.is_transient() => {
                report(context, &failed.error);
                left.push(part);
                tokio::time::sleep(wait).await;
                wait = (wait * 2).min(context.options.poll);
            }
            Err(failed) if part.len() > 1 => {
                report(context, &failed.error);
                let half = part.split_off(part.len() / 2);
                left.push(half);
                left.push(part);
            }
            Err(failed) => {
                report(context, &failed.error);
                for ended in &part {
                    quarantine(context, ended, &failed.error).await;
                }
            }
        }
    }
    settled
}

/// One outcome that the database refuses by itself: its lane is held, its in-flight row stays, a person looks.
async fn quarantine(context: &Context, ended: &Ended, error: &StoreError) {
    let attempt = ended.settlement.attempt_id;
    tracing::error!(attempt_id = %attempt, lane = %ended.settlement.lane, %error, "outcome refused by the database: lane held");
    context.metrics.quarantined.inc();
    let reason = format!("outcome could not be recorded: {error}");
    if let Err(error) = context.store.quarantine(attempt, &reason).await {
        report(context, &error);
    }
}

fn distribute(context: &Context, mut waiting: Waiting, mut outcome: Outcome) {
    let begins_failed = outcome.begins_failed;
    let mut begun = |attempt: AttemptId| match (outcome.begun.remove(&attempt), outcome.node) {
        (Some(message), Some(node)) => BeginAnswer::Begun(Box::new(Begun { message, node, since: outcome.since })),
        (Some(_), None) => BeginAnswer::Failed,
        (None, _) if begins_failed => BeginAnswer::Failed,
        (None, _) => BeginAnswer::Nothing,
    };
    for (attempt, reply) in waiting.begins.drain() {
        answer(reply, begun(attempt));
    }
    for (attempt, next, reply) in waiting.settles {
        // One that is missing here was quarantined: dropping the reply says so.
        if let Some(settled) = outcome.settled.remove(&attempt) {
            if let Settled::Late(late) = &settled {
                count_late(context, *late);
            }
            let next = next.map_or(BeginAnswer::Nothing, &mut begun);
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

fn report(context: &Context, error: &StoreError) {
    context.trouble("settler", error);
}
