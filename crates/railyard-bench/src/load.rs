//! Messages, written and committed through the product's own enqueue function, a thousand a transaction.

use futures_util::{StreamExt, TryStreamExt, stream};
use railyard_core::ParticipantId;
use railyard_core::job::NewJob;
use railyard_core::limits::BATCH_ITEMS_MAX;
use railyard_store::{Store, jobs};

use crate::options::Size;
use crate::progress;

/// Transactions at once: as many as keep a small machine busy.
const WRITERS: usize = 2;

/// Loads `size` messages like `job` into groups `prefix-0`, `prefix-1`, …, round by round: each group's first message
/// stands before any group's second. Nobody is woken.
pub(crate) async fn load(store: &Store, job: &NewJob, prefix: &str, size: Size) -> anyhow::Result<()> {
    let bar = progress::bar(&format!("loading {prefix}"), size.messages());
    let step = BATCH_ITEMS_MAX as u64;
    let starts = (0..size.messages()).step_by(BATCH_ITEMS_MAX);
    stream::iter(starts.map(|from| {
        let until = (from + step).min(size.messages());
        let batch: Vec<NewJob> = (from..until).map(|n| of_group(job, prefix, n % size.groups)).collect();
        let bar = &bar;
        async move {
            jobs::create(store, &batch).await?;
            bar.inc(until - from);
            Ok::<(), anyhow::Error>(())
        }
    }))
    .buffer_unordered(WRITERS)
    .try_for_each(|()| std::future::ready(Ok(())))
    .await?;
    bar.finish_and_clear();
    Ok(())
}

/// The message in the group of this number.
pub(crate) fn of_group(job: &NewJob, prefix: &str, group: u64) -> NewJob {
    let mut job = job.clone();
    job.group = Some(ParticipantId::new(format!("{prefix}-{group}")));
    job
}
