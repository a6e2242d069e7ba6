//! Planning anew what has a slot already: an operator's command after a change of capacity.

use jiff::Timestamp;

use super::config::RateConfig;
use super::grid::{Dice, Openings, Window};

/// New places for events that may be moved, in the order of what they asked for: a later one never overtakes an earlier
/// one. `fixed`: what stays where it is, ascending. `requested`: ascending, none before `earliest`. `dice`: as many.
///
/// None where the openings do not reach far enough; from there on all are None.
#[must_use]
pub fn replan(
    config: &RateConfig,
    openings: &Openings,
    fixed: &[(Window, u32)],
    earliest: Timestamp,
    requested: &[Timestamp],
    dice: &[Dice],
) -> Vec<Option<(Window, Timestamp)>> {
    let grid = config.grid();
    let taken = |window: Window| {
        let at = fixed.binary_search_by_key(&window, |(counted, _)| *counted);
        at.map_or(0, |at| fixed[at].1)
    };
    let mut places: Vec<Option<(Window, Timestamp)>> = Vec::with_capacity(requested.len());
    let mut current = openings.at_or_after(grid.window_of(earliest)).map(|window| (window, taken(window)));
    for (asked, dice) in requested.iter().zip(dice) {
        let asked = (*asked).max(earliest);
        let mut place = None;
        while let Some((window, count)) = current {
            if window >= grid.window_of(asked) && count < grid.capacity(config.max_per_window, window, asked) {
                current = Some((window, count + 1));
                place = Some((window, grid.scheduled(window, asked, *dice)));
                break;
            }
            let next = window.next().max(grid.window_of(asked));
            current = openings.at_or_after(next).map(|window| (window, taken(window)));
        }
        places.push(place);
    }
    in_order(&mut places);
    places
}

/// Within a window the moments were drawn at random: they are handed out in order. None of them is before what its event
/// asked for, since those that asked for less stand in front.
fn in_order(places: &mut [Option<(Window, Timestamp)>]) {
    let window_of = |place: &Option<(Window, Timestamp)>| place.map(|(window, _)| window);
    for same in places.chunk_by_mut(|a, b| window_of(a) == window_of(b)) {
        let mut times: Vec<Timestamp> = same.iter().flatten().map(|(_, at)| *at).collect();
        times.sort_unstable();
        for (place, at) in same.iter_mut().flatten().zip(times) {
            place.1 = at;
        }
    }
}
