//! Messages, written through the product's own enqueue function: committed a thousand at a time, or all at once.

use futures_util::{StreamExt, TryStreamExt, stream};
use railyard_core::ParticipantId;
use railyard_core::job::NewJob;
use railyard_core::limits::BATCH_ITEMS_MAX;
use railyard_store::{Store, jobs};
use tokio_postgres::types::ToSql;

use crate::client::Client;
use crate::database::Database;
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

/// Messages in a transaction that is still open: nobody sees any, until [`Unseen::show`] shows all of them.
pub(crate) struct Unseen(Client);

/// A batch of them. What is left out takes its default.
const UNSEEN: &str = "
    SELECT count(*) FROM enqueue_outbox(ARRAY(
      SELECT ROW($1::text, $2::text, NULL, $3::text || '-' || n % $4::bigint, NULL, NULL, NULL, $5::text, $6::bytea, NULL,
        $7::uuid, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)::outbox_item
      FROM generate_series($8::bigint, $9::bigint - 1) n ORDER BY n))";

/// Writes what [`load`] writes, and leaves the last word to the caller. Its COMMIT wakes the nodes, as a producer's does.
pub(crate) async fn load_unseen(database: &Database, job: &NewJob, prefix: &str, size: Size) -> anyhow::Result<Unseen> {
    let client = Client::connect(&database.url).await?;
    client.run("BEGIN").await?;
    let statement = client.prepare(UNSEEN).await?;
    let (payload, credentials) = (job.payload.as_ref(), job.credentials_id.map(|id| id.0));
    let (groups, messages) = (i64::try_from(size.groups)?, i64::try_from(size.messages())?);
    let bar = progress::bar(&format!("loading {prefix}"), size.messages());
    for from in (0..messages).step_by(BATCH_ITEMS_MAX) {
        let until = messages.min(from + i64::try_from(BATCH_ITEMS_MAX)?);
        let batch: &[&(dyn ToSql + Sync)] =
            &[&job.source, &job.kind, &prefix, &groups, &job.target_url, &payload, &credentials, &from, &until];
        client.execute(&statement, batch).await?;
        bar.set_position(u64::try_from(until)?);
    }
    bar.finish_and_clear();
    Ok(Unseen(client))
}

impl Unseen {
    pub(crate) async fn show(self) -> anyhow::Result<()> {
        self.0.run("COMMIT").await
    }
}

/// The message in the group of this number.
pub(crate) fn of_group(job: &NewJob, prefix: &str, group: u64) -> NewJob {
    let mut job = job.clone();
    job.group = Some(ParticipantId::new(format!("{prefix}-{group}")));
    job
}
