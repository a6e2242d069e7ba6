//! Pages over made-up partitions: whatever the turn, the limits and the backlogs, a walk shows each lane once.

use std::collections::{BTreeMap, HashMap};

use jiff::Timestamp;
use proptest::prelude::*;
use railyard_core::Epoch;

use super::{Ask, Places, earlier};

/// What the statement does: the partitions in the order asked, the share of each, the first `limit` of it all.
fn answer(backlog: &BTreeMap<i16, Vec<u32>>, ask: &Ask<u32>) -> Vec<(i16, (Timestamp, u32))> {
    let mut rows = Vec::new();
    for ((partition, due), id) in ask.partitions.iter().zip(&ask.due).zip(&ask.ids) {
        let lanes = backlog.get(partition).into_iter().flatten();
        let behind = lanes.map(|lane| (at(*lane), *lane)).filter(|place| *place > (*due, *id));
        rows.extend(behind.take(ask.share).map(|place| (*partition, place)));
    }
    rows.truncate(ask.limit);
    rows
}

fn at(lane: u32) -> Timestamp {
    Timestamp::from_second(i64::from(lane / 3) + 1).unwrap()
}

proptest! {
    #[test]
    fn a_walk_shows_each_lane_once(
        backlog in prop::collection::btree_map(0_i16..256, prop::collection::btree_set(1_u32..200, 0..40), 1..40),
        turns in prop::collection::vec(0_i16..256, 1..8),
        limits in prop::collection::vec(1_usize..60, 1..8),
    ) {
        let backlog: BTreeMap<i16, Vec<u32>> =
            backlog.into_iter().map(|(partition, lanes)| (partition, lanes.into_iter().collect())).collect();
        let owned: HashMap<i16, Epoch> = backlog.keys().map(|partition| (*partition, Epoch(1))).collect();
        let mut places = Places::front(backlog.keys().copied(), &0_u32);
        let mut seen: BTreeMap<i16, Vec<u32>> = BTreeMap::new();
        for page in 0.. {
            prop_assert!(page < 20_000, "the walk does not end");
            let ask = places.ask(&owned, turns[page % turns.len()], limits[page % limits.len()]);
            let rows = answer(&backlog, &ask);
            for (partition, (_, lane)) in &rows {
                seen.entry(*partition).or_default().push(*lane);
            }
            places = ask.after(&rows).places;
            if places.0.is_empty() {
                break;
            }
        }
        // Once each, and oldest first in each partition.
        prop_assert_eq!(seen, backlog.into_iter().filter(|(_, lanes)| !lanes.is_empty()).collect());
    }

    #[test]
    fn a_page_is_filled_by_some_and_leaves_the_others_for_the_next(
        lanes in 20_u32..100, turn in 0_i16..256, limit in 16_usize..100,
    ) {
        let backlog: BTreeMap<i16, Vec<u32>> = (0..256).map(|partition| (partition, (1..=lanes).collect())).collect();
        let owned: HashMap<i16, Epoch> = backlog.keys().map(|partition| (*partition, Epoch(1))).collect();
        let ask = Places::front(backlog.keys().copied(), &0_u32).ask(&owned, turn, limit);
        let rows = answer(&backlog, &ask);
        let after = ask.after(&rows);
        prop_assert_eq!(rows.len(), limit);
        prop_assert_eq!(rows[0].0, turn);
        let touched = (after.filled_by.unwrap() - turn).rem_euclid(256) + 1;
        prop_assert!(touched <= 16, "{} partitions gave one page", touched);
    }

    #[test]
    fn no_partition_waits_longer_than_a_round(
        lanes in 20_u32..100, limit in 1_usize..100, first in 0_i16..256, waits in 0_i16..256,
    ) {
        // Everyone has more than enough all the time, as under load: each look begins at the front.
        let backlog: BTreeMap<i16, Vec<u32>> = (0..256).map(|partition| (partition, (1..=lanes).collect())).collect();
        let owned: HashMap<i16, Epoch> = backlog.keys().map(|partition| (*partition, Epoch(1))).collect();
        let mut turn = first;
        let seen = (0..256).any(|_| {
            let ask = Places::front(backlog.keys().copied(), &0_u32).ask(&owned, turn, limit);
            let rows = answer(&backlog, &ask);
            turn = earlier(turn, ask.after(&rows).filled_by, None);
            rows.iter().any(|(partition, _)| *partition == waits)
        });
        prop_assert!(seen, "partition {} was never looked into", waits);
    }
}
