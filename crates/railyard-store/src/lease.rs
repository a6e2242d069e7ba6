//! Who is there. Time is the database's.
//!
//! A node's row is its lease. Renewal is conditional: a lapsed lease is never revived, the node joins anew under a
//! fresh id. A takeover deletes the row, which waits for begins that hold it `FOR KEY SHARE`, and raises the epochs.

use std::time::Duration;

use railyard_core::NodeId;
use tokio_postgres::Client;
use uuid::Uuid;

use crate::error::StoreError;
use crate::listen::MEMBERS_CHANNEL;
use crate::ownership::{free, tell};

/// Taken before anything that only the holder of a good lease may do. Renewals pass it; a takeover waits for it.
pub(crate) const FENCE: &str =
    "SELECT 1 FROM node WHERE node_id = $1 AND lease_until > clock_timestamp() FOR KEY SHARE";

/// Where other nodes reach a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Door {
    /// Fresh at each start of a process, the same over its memberships.
    pub process: Uuid,
    /// `host:port`.
    pub address: String,
}

/// Joins under a fresh id.
///
/// # Errors
/// [`StoreError`].
pub async fn join(client: &Client, node: NodeId, name: &str, lease: Duration) -> Result<(), StoreError> {
    client
        .execute(
            "INSERT INTO node (node_id, name, lease_until)
             VALUES ($1, $2, clock_timestamp() + $3::bigint * interval '1 millisecond')
             ON CONFLICT (node_id) DO NOTHING",
            &[&node.0, &name, &millis(lease)],
        )
        .await?;
    Ok(())
}

/// As [`join`], and tells the others where it can be reached.
///
/// # Errors
/// [`StoreError`].
pub async fn join_with_door(
    client: &Client,
    node: NodeId,
    name: &str,
    lease: Duration,
    door: &Door,
) -> Result<(), StoreError> {
    client
        .execute(
            "WITH joined AS (
               INSERT INTO node (node_id, name, lease_until, process, address)
               VALUES ($1, $2, clock_timestamp() + $3::bigint * interval '1 millisecond', $4, $5)
               ON CONFLICT (node_id) DO NOTHING RETURNING node_id)
             SELECT pg_notify($6, '') FROM joined",
            &[&node.0, &name, &millis(lease), &door.process, &door.address, &MEMBERS_CHANNEL],
        )
        .await?;
    Ok(())
}

/// Renews. `false`: the lease had lapsed, or was taken over; this membership is over.
///
/// # Errors
/// [`StoreError`].
pub async fn renew(client: &Client, node: NodeId, lease: Duration) -> Result<bool, StoreError> {
    let renewed = client
        .execute(
            "UPDATE node SET lease_until = clock_timestamp() + $2::bigint * interval '1 millisecond'
             WHERE node_id = $1 AND lease_until > clock_timestamp()",
            &[&node.0, &millis(lease)],
        )
        .await?;
    Ok(renewed == 1)
}

/// Gives everything back: partitions free with a raised epoch, membership gone.
///
/// # Errors
/// [`StoreError`].
pub async fn leave(client: &mut Client, node: NodeId) -> Result<(), StoreError> {
    let transaction = client.transaction().await?;
    // The row first: it serialises with a takeover of the same node.
    transaction.execute("DELETE FROM node WHERE node_id = $1", &[&node.0]).await?;
    free(&transaction, node, None).await?;
    transaction.commit().await?;
    Ok(())
}

/// Removes members whose lease has lapsed, under this node's own fence, and frees their partitions. Returns who.
///
/// # Errors
/// [`StoreError`].
pub async fn take_over(client: &mut Client, me: NodeId) -> Result<Vec<NodeId>, StoreError> {
    let dead: Vec<Uuid> = client
        .query(
            "SELECT node_id FROM node WHERE lease_until < clock_timestamp() AND node_id <> $1 ORDER BY node_id",
            &[&me.0],
        )
        .await?
        .iter()
        .map(|row| row.try_get(0))
        .collect::<Result<_, _>>()?;
    let mut removed = Vec::new();
    for node in dead {
        let transaction = client.transaction().await?;
        if transaction.query(FENCE, &[&me.0]).await?.is_empty() {
            return Ok(removed);
        }
        let deleted = transaction
            .execute("DELETE FROM node WHERE node_id = $1 AND lease_until < clock_timestamp()", &[&node])
            .await?;
        if deleted == 1 {
            free(&transaction, NodeId(node), None).await?;
            transaction.commit().await?;
            removed.push(NodeId(node));
        }
    }
    // Partitions of members that no longer exist at all, however that came about.
    let transaction = client.transaction().await?;
    if !transaction.query(FENCE, &[&me.0]).await?.is_empty() {
        let orphans = transaction
            .execute(
                "UPDATE partition_lease SET owner = NULL, epoch = epoch + 1, moved_at = clock_timestamp()
                 WHERE partition_id = ANY (ARRAY(
                   SELECT l.partition_id FROM partition_lease l
                   WHERE l.owner IS NOT NULL AND NOT EXISTS (SELECT 1 FROM node n WHERE n.node_id = l.owner)
                   ORDER BY l.partition_id FOR UPDATE SKIP LOCKED))",
                &[],
            )
            .await?;
        if orphans > 0 {
            tell(&transaction).await?;
        }
        transaction.commit().await?;
    }
    Ok(removed)
}

pub(crate) fn millis(span: Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX)
}
