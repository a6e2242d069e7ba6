//! Which partition a group or an unordered message belongs to. SQL (`partition_of`) computes the same.

use sha2::{Digest, Sha256};

use crate::ids::{Lane, PartitionId};

/// How many partitions there are. Fixed: the hash's first byte.
pub const PARTITIONS: u16 = 256;

/// The partition of a lane: the first byte of the SHA-256 of the group's name, or of the id's sixteen bytes.
///
/// ```
/// use railyard_core::ids::{Lane, ParticipantId, PartitionId};
/// use railyard_core::partition::partition_of;
/// // printf 'debtor-1' | sha256sum
/// assert_eq!(partition_of(&Lane::Group(ParticipantId::new("debtor-1"))), PartitionId(0xb9));
/// ```
#[must_use]
pub fn partition_of(lane: &Lane) -> PartitionId {
    let digest = match lane {
        Lane::Group(group) => Sha256::digest(group.as_str().as_bytes()),
        Lane::Single(id) => Sha256::digest(id.0.as_bytes()),
    };
    PartitionId(digest[0])
}
