//! The cluster as the database knows it: members, and who owns how much. Time is the database's.

use jiff::Timestamp;
use railyard_core::NodeId;
use uuid::Uuid;

use crate::connect::Store;
use crate::error::StoreError;
use crate::lease::Door;

/// A member.
#[derive(Clone, Debug)]
pub struct MemberRow {
    /// Fresh at every join.
    pub node_id: NodeId,
    /// Host or pod.
    pub name: String,
    /// Where other nodes reach its process; none: it has no links.
    pub door: Option<Door>,
    /// When it joined.
    pub joined_at: Timestamp,
    /// How long its lease is good yet, in milliseconds; negative once it has lapsed.
    pub lease_ms: i64,
    /// It gives everything up and takes nothing more.
    pub leaving: bool,
    /// Partitions that it owns.
    pub partitions: i64,
}

/// All members and what nobody owns.
#[derive(Clone, Debug)]
pub struct ClusterRow {
    /// By name; those whose lease has lapsed and that nobody has taken over yet, too.
    pub members: Vec<MemberRow>,
    /// Partitions without an owner.
    pub free: i64,
    /// Partitions of a node that is no member.
    pub orphaned: i64,
}

/// Reads it, in one snapshot.
///
/// # Errors
/// [`StoreError`].
pub async fn read(store: &Store) -> Result<ClusterRow, StoreError> {
    let conn = store.api().await?;
    let rows = conn
        .query(
            "WITH owned AS (SELECT owner, count(*) AS partitions FROM partition_lease GROUP BY owner),
               lost AS (SELECT coalesce(sum(partitions) FILTER (WHERE owner IS NULL), 0)::bigint AS free,
                          coalesce(sum(partitions) FILTER (WHERE owner IS NOT NULL AND NOT EXISTS (
                            SELECT 1 FROM node n WHERE n.node_id = owner)), 0)::bigint AS orphaned FROM owned)
             SELECT lost.free, lost.orphaned, n.node_id, n.name, n.process, n.address, n.joined_at, n.leaving,
               floor(extract(epoch FROM n.lease_until - clock_timestamp()) * 1000)::bigint AS lease_ms,
               coalesce(o.partitions, 0) AS partitions
             FROM lost LEFT JOIN node n ON true LEFT JOIN owned o ON o.owner = n.node_id ORDER BY n.name, n.node_id",
            &[],
        )
        .await?;
    let mut cluster = ClusterRow { members: Vec::new(), free: 0, orphaned: 0 };
    for row in &rows {
        (cluster.free, cluster.orphaned) = (row.try_get("free")?, row.try_get("orphaned")?);
        let Some(node_id) = row.try_get::<_, Option<Uuid>>("node_id")? else { continue };
        let door = match (row.try_get("process")?, row.try_get("address")?) {
            (Some(process), Some(address)) => Some(Door { process, address }),
            _ => None,
        };
        cluster.members.push(MemberRow {
            node_id: NodeId(node_id),
            name: row.try_get("name")?,
            door,
            joined_at: row.try_get("joined_at")?,
            lease_ms: row.try_get("lease_ms")?,
            leaving: row.try_get("leaving")?,
            partitions: row.try_get("partitions")?,
        });
    }
    conn.ok();
    Ok(cluster)
}
