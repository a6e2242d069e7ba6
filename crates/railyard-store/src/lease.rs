//! Who is there. Time is the database's.
//!
//! A node's row is its lease. Renewal is conditional: a lapsed lease is never revived, the node joins anew under a
//! fresh id. A takeover deletes the row, which waits for begins that hold it `FOR KEY SHARE`, and raises the epochs.

use std::time::Duration;

use jiff::Timestamp;
use railyard_core::NodeId;
use tokio_postgres::Client;
use uuid::Uuid;

use crate::connect::Store;
use crate::error::StoreError;
use crate::ownership::{free, tell};

/// Taken before anything that only the holder of a good lease may do. Renewals pass it; a takeover waits for it.
pub(crate) const FENCE: &str =
    "SELECT 1 FROM node WHERE node_id = $1 AND lease_until > clock_timestamp() FOR KEY SHARE";

/// A node as the others see it.
#[derive(Clone, Debug)]
pub struct Member {
    /// Fresh at every join.
    pub node_id: NodeId,
    /// Host or pod.
    pub name: String,
    /// When it joined.
    pub joined_at: Timestamp,
    /// Until when it may begin.
    pub lease_until: Timestamp,
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

impl Store {
    /// All members, those whose lease has lapsed included.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn members(&self) -> Result<Vec<Member>, StoreError> {
        let conn = self.api().await?;
        let rows =
            conn.query("SELECT node_id, name, joined_at, lease_until FROM node ORDER BY name, node_id", &[]).await?;
        let members = rows
            .iter()
            .map(|row| {
                Ok(Member {
                    node_id: NodeId(row.try_get(0)?),
                    name: row.try_get(1)?,
                    joined_at: row.try_get(2)?,
                    lease_until: row.try_get(3)?,
                })
            })
            .collect::<Result<_, StoreError>>()?;
        conn.ok();
        Ok(members)
    }
}

pub(crate) fn millis(span: Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX)
}
