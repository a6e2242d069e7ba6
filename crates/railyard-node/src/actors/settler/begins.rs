//! What the lanes that asked to begin are told, also when the database refused, or its answer was lost.

use std::collections::HashMap;
use std::time::Duration;

use railyard_core::{AttemptId, NodeId};
use railyard_store::StoreError;
use railyard_store::clock::boottime;
use railyard_store::work::{Batch, BeginRequest, Done, Failed};

use super::lane::{quarantine, report};
use super::{BeginAnswer, Begun};
use crate::context::Context;

/// The same kind of answer for each.
pub(super) fn answers(
    begin: &[BeginRequest],
    mut each: impl FnMut(AttemptId) -> BeginAnswer,
) -> HashMap<AttemptId, BeginAnswer> {
    begin.iter().map(|request| (request.attempt_id, each(request.attempt_id))).collect()
}

/// What a transaction that is over has begun; `since` is from before it was sent. A message that cannot be read holds
/// its lane; it was not called, so the Reaper takes its row back.
pub(super) async fn told(
    context: &Context,
    begin: &[BeginRequest],
    mut done: Done,
    node: NodeId,
    since: Duration,
) -> HashMap<AttemptId, BeginAnswer> {
    for (attempt, error) in &done.unreadable {
        quarantine(context, *attempt, &format!("message cannot be read: {error}")).await;
    }
    answers(begin, |attempt| match done.begun.remove(&attempt) {
        Some(message) => BeginAnswer::Begun(Box::new(Begun { message, node, since })),
        None if done.fenced => BeginAnswer::NotBegun,
        None if done.unreadable.contains_key(&attempt) => BeginAnswer::Failed,
        None => BeginAnswer::Nothing,
    })
}

/// Begins of a transaction that failed. `None`: it was rolled back, so nothing was begun. Otherwise those whose fate is
/// known; for the others, the Reaper compares the rows with what was called.
pub(super) async fn lost(
    context: &Context,
    failed: &Failed,
    begin: &[BeginRequest],
    node: NodeId,
    since: Duration,
) -> Option<HashMap<AttemptId, BeginAnswer>> {
    if !failed.in_doubt {
        return None;
    }
    let attempts: Vec<AttemptId> = begin.iter().map(|request| request.attempt_id).collect();
    // After the slack no call would start any more.
    let done = match context.store.resolve_until(failed.transaction.as_deref(), &attempts, context.options.slack).await
    {
        Ok(done) => done,
        Err(error) => {
            report(context, &error);
            return Some(HashMap::new());
        }
    };
    let mut begins = told(context, begin, done, node, since).await;
    // What is not there never will be, if the transaction is known to be over; else it may come yet.
    let over = failed.transaction.is_some();
    for answer in begins.values_mut().filter(|answer| matches!(answer, BeginAnswer::Nothing)) {
        *answer = if over { BeginAnswer::NotBegun } else { BeginAnswer::Failed };
    }
    Some(begins)
}

/// Begins in ever smaller batches while the database refuses them for a reason of their own.
pub(super) async fn by_halves(
    context: &Context,
    node: NodeId,
    begin: Vec<BeginRequest>,
) -> HashMap<AttemptId, BeginAnswer> {
    let mut all = HashMap::with_capacity(begin.len());
    let mut left = vec![begin];
    while let Some(mut part) = left.pop() {
        let batch = Batch { settle: Vec::new(), begin: part.clone(), slack: context.options.slack };
        let since = boottime();
        match context.store.run(node, &batch).await {
            Ok(done) => all.extend(told(context, &part, done, node, since).await),
            Err(failed) => {
                report(context, &failed.error);
                match lost(context, &failed, &part, node, since).await {
                    Some(begins) => all.extend(begins),
                    None if part.len() > 1 && is_about_rows(&failed.error) => {
                        left.push(part.split_off(part.len() / 2));
                        left.push(part);
                    }
                    // The database is away, or refuses this one: it is found again.
                    None => all.extend(answers(&part, |_| BeginAnswer::NotBegun)),
                }
            }
        }
    }
    all
}

/// An error that a smaller batch may not meet: whatever is not an outage and not a transaction to be repeated whole.
pub(super) fn is_about_rows(error: &StoreError) -> bool {
    match error {
        StoreError::Unavailable { .. } | StoreError::Repeat { .. } => false,
        StoreError::Busy { .. }
        | StoreError::TooSlow { .. }
        | StoreError::Invalid { .. }
        | StoreError::KeyReused { .. }
        | StoreError::Conflict { .. }
        | StoreError::Unreadable { .. }
        | StoreError::Database { .. } => true,
    }
}
