use std::collections::BTreeMap;

use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use crate::partition::PARTITIONS;

const PACE: Pace = Pace { keep: Duration::from_secs(10), orphan: Duration::from_secs(5) };

fn node(n: u8) -> NodeId {
    NodeId(Uuid::from_u128(u128::from(n)))
}

fn peer(n: u8) -> Peer {
    Peer { node: node(n), name: format!("railyard-{n}"), stable: true, leaving: false }
}

fn all(owner: impl Fn(PartitionId) -> Option<NodeId>, since: Duration) -> Vec<Holding> {
    let partitions = (0..PARTITIONS).map(|n| PartitionId(u8::try_from(n).unwrap()));
    partitions.map(|partition| Holding { partition, owner: owner(partition), since }).collect()
}

/// Plays turns until nobody moves anything, each node in its turn, as if all saw the same.
fn settle(peers: &[Peer], mut holdings: Vec<Holding>) -> Vec<Holding> {
    for _ in 0..10 {
        let before = holdings.clone();
        for peer in peers {
            let moves = moves(peer.node, peers, &holdings, PACE);
            for holding in &mut holdings {
                if moves.give.contains(&holding.partition) {
                    holding.owner = None;
                } else if moves.take.contains(&holding.partition) {
                    assert_eq!(holding.owner, None, "only what is free is taken");
                    holding.owner = Some(peer.node);
                }
            }
        }
        if holdings == before {
            return holdings;
        }
    }
    panic!("partitions never come to rest: {holdings:?}");
}

fn shares(holdings: &[Holding]) -> BTreeMap<NodeId, usize> {
    let mut shares = BTreeMap::new();
    for holding in holdings {
        *shares.entry(holding.owner.unwrap()).or_default() += 1;
    }
    shares
}

#[test]
fn three_share_evenly_and_a_fourth_takes_its_own_share_alone() {
    let three = [peer(1), peer(2), peer(3)];
    let long = Duration::from_secs(60);
    let before = settle(&three, all(|_| None, Duration::ZERO));
    assert!(shares(&before).values().all(|share| (55..=115).contains(share)), "{:?}", shares(&before));
    let four = [peer(1), peer(2), peer(3), peer(4)];
    let owners: Vec<_> = before.iter().map(|holding| holding.owner).collect();
    let after = settle(&four, all(|partition| owners[usize::from(partition.0)], long));
    for (was, is) in before.iter().zip(&after) {
        assert!(is.owner == was.owner || is.owner == Some(node(4)), "{was:?} became {is:?}");
    }
    assert!(shares(&after)[&node(4)] > 30);
}

#[test]
fn a_newcomer_moves_nothing_until_it_has_stayed() {
    let mut peers = [peer(1), peer(2)];
    peers[1].stable = false;
    let holdings = all(|_| Some(node(1)), Duration::from_secs(60));
    assert_eq!(moves(node(1), &peers, &holdings, PACE), Moves::default());
    peers[1].stable = true;
    assert!(!moves(node(1), &peers, &holdings, PACE).give.is_empty());
    peers[0].stable = false;
    peers[1].stable = false;
    assert_eq!(moves(node(1), &peers, &holdings, PACE), Moves::default(), "a young cluster moves nothing");
    peers[0].stable = true;
    peers[1].stable = true;
    let moved_just_now = all(|_| Some(node(1)), Duration::from_secs(9));
    assert_eq!(moves(node(1), &peers, &moved_just_now, PACE), Moves::default());
}

#[test]
fn what_nobody_takes_is_taken_by_a_newcomer() {
    // The stable one does not see what is free, or is about to be given up for dead.
    let mut peers = [peer(1), peer(2)];
    peers[1].stable = false;
    let free = all(|_| None, Duration::from_secs(4));
    assert_eq!(moves(node(2), &peers, &free, PACE), Moves::default());
    let orphans = all(|_| None, Duration::from_secs(5));
    assert!(!moves(node(2), &peers, &orphans, PACE).take.is_empty());
}

#[test]
fn whoever_leaves_takes_nothing_and_is_given_nothing() {
    let mut peers = [peer(1), peer(2)];
    peers[1].leaving = true;
    let free = all(|_| None, Duration::ZERO);
    assert_eq!(moves(node(1), &peers, &free, PACE).take.len(), usize::from(PARTITIONS));
    assert_eq!(moves(node(2), &peers, &free, PACE), Moves::default());
    let mine = all(|_| Some(node(1)), Duration::from_secs(60));
    assert_eq!(moves(node(1), &peers, &mine, PACE), Moves::default());
}

proptest! {
    #[test]
    fn everything_is_owned_by_one_that_stays(
        stable in prop::collection::vec(any::<bool>(), 1..8),
        leaving in prop::collection::vec(any::<bool>(), 8),
        owners in prop::collection::vec(0_u8..9, 256),
    ) {
        let peers: Vec<Peer> = stable.iter().zip(&leaving).zip(0_u8..).map(|((stable, leaving), n)| Peer {
            stable: *stable,
            leaving: *leaving,
            ..peer(n)
        }).collect();
        let present = peers.iter().any(|peer| !peer.leaving);
        // An owner that is no member any more was removed by a takeover: its partitions are free.
        let owner = |partition: PartitionId| {
            let owner = owners[usize::from(partition.0)];
            peers.get(usize::from(owner)).filter(|peer| !peer.leaving).map(|peer| peer.node)
        };
        let after = settle(&peers, all(owner, Duration::from_secs(60)));
        for holding in after {
            let owner = peers.iter().find(|peer| Some(peer.node) == holding.owner);
            prop_assert_eq!(owner.is_some(), present);
            prop_assert!(owner.is_none_or(|owner| !owner.leaving));
        }
    }
}
