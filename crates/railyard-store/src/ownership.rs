//! Who owns which partition: what a node sees of it, takes and gives. What it should do is decided by
//! [`railyard_core::ownership`].
//!
//! A partition changes hands through *free*: its owner gives it, or a takeover frees it, each with a raised epoch; then
//! whoever should have it takes it, with another. Both are told to all nodes, which look at once.

use std::time::Duration;

use railyard_core::ownership::{Holding, Peer};
use railyard_core::{Epoch, NodeId, PartitionId};
use tokio_postgres::{Client, Transaction};

use crate::error::StoreError;
use crate::lease::{Door, FENCE, millis};
use crate::listen::MEMBERS_CHANNEL;

/// What a node sees.
#[derive(Clone, Debug)]
pub struct View {
    /// Members whose lease is good, this one included.
    pub peers: Vec<Peer>,
    /// Where the others can be reached, those that have links.
    pub doors: Vec<(String, Door)>,
    /// All partitions.
    pub holdings: Vec<Holding>,
    /// Somebody's lease has lapsed, or an owner is no member: to be taken over.
    pub dead: bool,
    /// When the first of the others' leases lapses, should it not be renewed.
    pub next_lapse: Option<Duration>,
}

/// Looks. A member counts as stable after `stable_after`.
///
/// # Errors
/// [`StoreError`].
pub async fn view(client: &Client, me: NodeId, stable_after: Duration) -> Result<View, StoreError> {
    let members = client
        .query(
            "SELECT node_id, name, process, address, leaving, joined_at + $1::bigint * interval '1 millisecond' <= now.at AS stable,
               lease_until <= now.at AS lapsed,
               greatest(0, ceil(extract(epoch FROM lease_until - now.at) * 1000))::bigint AS lapses_ms
             FROM node, (SELECT clock_timestamp() AS at) now ORDER BY node_id",
            &[&millis(stable_after)],
        )
        .await?;
    let partitions = client
        .query(
            "SELECT l.partition_id, l.owner, l.owner IS NOT NULL AND n.node_id IS NULL AS orphaned,
               CASE WHEN l.moved_at = '-infinity' THEN 86400000
                    ELSE greatest(0, floor(extract(epoch FROM clock_timestamp() - l.moved_at) * 1000)) END::bigint
                 AS since_ms
             FROM partition_lease l LEFT JOIN node n ON n.node_id = l.owner ORDER BY l.partition_id",
            &[],
        )
        .await?;
    let mut view = View { peers: Vec::new(), doors: Vec::new(), holdings: Vec::new(), dead: false, next_lapse: None };
    for row in &members {
        let node = NodeId(row.try_get("node_id")?);
        if row.try_get("lapsed")? {
            view.dead |= node != me;
            continue;
        }
        if node != me {
            let lapses = span(row.try_get("lapses_ms")?);
            view.next_lapse = Some(view.next_lapse.map_or(lapses, |first| first.min(lapses)));
        }
        let name: String = row.try_get("name")?;
        if let (Some(process), Some(address), true) = (row.try_get("process")?, row.try_get("address")?, node != me) {
            view.doors.push((name.clone(), Door { process, address }));
        }
        let (stable, leaving) = (row.try_get("stable")?, row.try_get("leaving")?);
        view.peers.push(Peer { node, name, stable, leaving });
    }
    for row in &partitions {
        view.dead |= row.try_get::<_, bool>("orphaned")?;
        view.holdings.push(Holding {
            partition: partition(row.try_get("partition_id")?)?,
            owner: row.try_get::<_, Option<_>>("owner")?.map(NodeId),
            since: span(row.try_get("since_ms")?),
        });
    }
    Ok(view)
}

/// Takes free partitions out of `wanted`, under the fence. What is owned afterwards is told by [`owned`].
///
/// # Errors
/// [`StoreError`].
pub async fn take_free(client: &mut Client, me: NodeId, wanted: &[PartitionId]) -> Result<u64, StoreError> {
    let transaction = client.transaction().await?;
    if transaction.query(FENCE, &[&me.0]).await?.is_empty() {
        return Ok(0);
    }
    let taken = transaction
        .execute(
            "UPDATE partition_lease SET owner = $1, epoch = epoch + 1, moved_at = clock_timestamp()
             WHERE owner IS NULL AND partition_id = ANY (ARRAY(
               SELECT partition_id FROM partition_lease WHERE owner IS NULL AND partition_id = ANY ($2)
               ORDER BY partition_id FOR UPDATE SKIP LOCKED))",
            &[&me.0, &numbers(wanted)],
        )
        .await?;
    transaction.commit().await?;
    Ok(taken)
}

/// Gives partitions up for others to take, once the begins that run have ended. Calls go on: their outcomes are written
/// whoever owns the partition by then.
///
/// # Errors
/// [`StoreError`].
pub async fn give(client: &mut Client, me: NodeId, partitions: &[PartitionId]) -> Result<u64, StoreError> {
    let transaction = client.transaction().await?;
    // Waits for the begins that hold the row FOR KEY SHARE; those that come later see the new owner.
    transaction.query("SELECT FROM node WHERE node_id = $1 FOR UPDATE", &[&me.0]).await?;
    let given = free(&transaction, me, Some(partitions)).await?;
    transaction.commit().await?;
    Ok(given)
}

/// Gives everything up and takes nothing more, while the lease stays good for the calls that still run.
///
/// # Errors
/// [`StoreError`].
pub async fn retire(client: &mut Client, me: NodeId) -> Result<(), StoreError> {
    let transaction = client.transaction().await?;
    transaction.query("SELECT FROM node WHERE node_id = $1 FOR UPDATE", &[&me.0]).await?;
    transaction.execute("UPDATE node SET leaving = true WHERE node_id = $1", &[&me.0]).await?;
    free(&transaction, me, None).await?;
    transaction.commit().await?;
    Ok(())
}

/// Frees partitions of `node`, all of them if none are named, and tells everybody.
pub(crate) async fn free(
    transaction: &Transaction<'_>,
    node: NodeId,
    partitions: Option<&[PartitionId]>,
) -> Result<u64, StoreError> {
    let freed = transaction
        .execute(
            "UPDATE partition_lease SET owner = NULL, epoch = epoch + 1, moved_at = clock_timestamp()
             WHERE owner = $1 AND partition_id = ANY (ARRAY(
               SELECT partition_id FROM partition_lease WHERE owner = $1 AND ($2::smallint[] IS NULL OR partition_id = ANY ($2))
               ORDER BY partition_id FOR UPDATE))",
            &[&node.0, &partitions.map(numbers)],
        )
        .await?;
    tell(transaction).await?;
    Ok(freed)
}

/// All nodes look, once this is committed.
pub(crate) async fn tell(transaction: &Transaction<'_>) -> Result<(), StoreError> {
    transaction.execute("SELECT pg_notify($1, '')", &[&MEMBERS_CHANNEL]).await?;
    Ok(())
}

/// What the table says is ours, with epochs.
///
/// # Errors
/// [`StoreError`].
pub async fn owned(client: &Client, me: NodeId) -> Result<Vec<(PartitionId, Epoch)>, StoreError> {
    let rows = client
        .query("SELECT partition_id, epoch FROM partition_lease WHERE owner = $1 ORDER BY partition_id", &[&me.0])
        .await?;
    rows.iter().map(|row| Ok((partition(row.try_get(0)?)?, Epoch(row.try_get(1)?)))).collect()
}

fn numbers(partitions: &[PartitionId]) -> Vec<i16> {
    partitions.iter().map(|partition| i16::from(partition.0)).collect()
}

fn partition(number: i16) -> Result<PartitionId, StoreError> {
    let known = u8::try_from(number).map(PartitionId);
    known.map_err(|_| StoreError::Unreadable { detail: format!("partition_id is {number}") })
}

fn span(ms: i64) -> Duration {
    Duration::from_millis(u64::try_from(ms).unwrap_or(0))
}
