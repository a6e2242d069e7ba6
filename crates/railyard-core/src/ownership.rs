//! Which node should own which partition, and what a node may do about it. No leader: every node computes the same from
//! the same rows, and the database settles what two of them see differently.
//!
//! Rendezvous hashing over names: a node that comes or goes moves its own share and nothing else, and one that comes
//! back under its name gets the same share back. Only members that have been there for a while count, so a node that
//! comes and goes every other second moves nothing.

use std::time::Duration;

use sha2::{Digest, Sha256};

use crate::ids::{NodeId, PartitionId};

/// A member whose lease is good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// This membership.
    pub node: NodeId,
    /// Host or pod.
    pub name: String,
    /// It has been a member for long enough to be given work that others do.
    pub stable: bool,
    /// It is on its way out: owns nothing and takes nothing.
    pub leaving: bool,
}

/// A partition's row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holding {
    /// Which.
    pub partition: PartitionId,
    /// Whose; free if none.
    pub owner: Option<NodeId>,
    /// How long it has been so.
    pub since: Duration,
}

/// How fast partitions may move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// An owner keeps a partition for so long at least.
    pub keep: Duration,
    /// Free for longer than this: whoever should have taken it does not see it, so others may.
    pub orphan: Duration,
}

/// What a node should do now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Moves {
    /// Free, and its to take.
    pub take: Vec<PartitionId>,
    /// Its own, and another's to have.
    pub give: Vec<PartitionId>,
}

/// What `me` should do, given everybody whose lease is good.
#[must_use]
pub fn moves(me: NodeId, peers: &[Peer], holdings: &[Holding], pace: Pace) -> Moves {
    let present: Vec<&Peer> = peers.iter().filter(|peer| !peer.leaving).collect();
    let stable: Vec<&Peer> = present.iter().copied().filter(|peer| peer.stable).collect();
    // A young cluster has nobody else.
    let candidates = if stable.is_empty() { &present } else { &stable };
    let mut moves = Moves::default();
    for holding in holdings {
        let desired = owner_of(holding.partition, candidates);
        match holding.owner {
            None if desired == Some(me) => moves.take.push(holding.partition),
            None if holding.since >= pace.orphan && owner_of(holding.partition, &present) == Some(me) => {
                moves.take.push(holding.partition);
            }
            // To one that has lasted: where nobody has, nothing moves yet.
            Some(owner) if owner == me && holding.since >= pace.keep && !stable.is_empty() => {
                if desired.is_some_and(|desired| desired != me) {
                    moves.give.push(holding.partition);
                }
            }
            Some(_) | None => {}
        }
    }
    moves
}

/// The one with the greatest weight. Two under one name are a mistake; the elder id does the work of both.
fn owner_of(partition: PartitionId, peers: &[&Peer]) -> Option<NodeId> {
    let best = peers.iter().max_by_key(|peer| (weight(partition, &peer.name), std::cmp::Reverse(peer.node)));
    best.map(|peer| peer.node)
}

fn weight(partition: PartitionId, name: &str) -> [u8; 32] {
    Sha256::new().chain_update([partition.0]).chain_update(name).finalize().into()
}

#[cfg(test)]
mod tests;
