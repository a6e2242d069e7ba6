//! Who has room for more: each endpoint, each kind of work (S0-36), and all of them together.
//!
//! What had none is looked for again once there is enough of the room that it had none of. A kind's share is what the others
//! leave it: were it a part of all credits, a kind beside one that nobody answers would be woken only when it had come to rest.
//! And a kind whose endpoint is full is woken by its own lanes and by those at that endpoint: others that come and go have no
//! room for it.

use std::collections::HashMap;

use crate::call_slots::BUDGETS;

/// Lanes at work, by endpoint and by kind, and who had more than room for it.
pub(super) struct Rooms {
    credits: usize,
    /// Lanes that an endpoint takes.
    endpoint_max: usize,
    endpoints: HashMap<String, usize>,
    kinds: [usize; BUDGETS],
    /// Of which kind there was more due than it, or this endpoint, had room for.
    starved: [Option<String>; BUDGETS],
    /// And than there were credits, whoever has them.
    poor: [bool; BUDGETS],
}

impl Rooms {
    /// `places`: calls that an endpoint takes at once.
    pub(super) fn new(credits: usize, places: usize) -> Self {
        Self {
            credits,
            // Several times as many lanes as places, so that a place never stands empty and a look for more is worth its cost.
            endpoint_max: places.saturating_mul(8).clamp(1, credits.div_ceil(2).max(1)),
            endpoints: HashMap::new(),
            kinds: [0; BUDGETS],
            starved: std::array::from_fn(|_| None),
            poor: [false; BUDGETS],
        }
    }

    /// Whether one more may work there.
    pub(super) fn has(&self, endpoint: &str, kind: usize) -> bool {
        self.endpoint_has(endpoint) && self.kinds[kind] < self.kind_max()
    }

    pub(super) fn endpoint_has(&self, endpoint: &str) -> bool {
        self.at(endpoint) < self.endpoint_max
    }

    pub(super) fn is_half_empty(&self, endpoint: &str) -> bool {
        self.at(endpoint) * 2 <= self.endpoint_max
    }

    /// A lane is at work.
    pub(super) fn take(&mut self, endpoint: &str, kind: usize) {
        *self.endpoints.entry(endpoint.to_owned()).or_default() += 1;
        self.kinds[kind] += 1;
    }

    /// It is not any more.
    pub(super) fn free(&mut self, endpoint: &str, kind: usize) {
        self.kinds[kind] -= 1;
        if let Some(count) = self.endpoints.get_mut(endpoint) {
            *count -= 1;
            if *count == 0 {
                self.endpoints.remove(endpoint);
            }
        }
    }

    /// There was more due of this kind than this endpoint, or the kind, had room for.
    pub(super) fn starve(&mut self, endpoint: &str, kind: usize) {
        if self.starved[kind].as_deref() != Some(endpoint) {
            self.starved[kind] = Some(endpoint.to_owned());
        }
    }

    /// There was more due than anybody had room for.
    pub(super) fn starve_all(&mut self) {
        self.poor = [true; BUDGETS];
    }

    /// Whether to look again, since a lane has come to rest, or has ended, and `free` credits are with nobody: once for all
    /// that there was.
    pub(super) fn wakes(&mut self, rested: Option<(&str, usize)>, free: usize) -> bool {
        let mut wakes = false;
        for kind in 0..BUDGETS {
            if !self.has_enough(kind, free) {
                continue;
            }
            let fed = match (&self.starved[kind], rested) {
                (Some(full), Some((endpoint, of))) => (of == kind || full == endpoint) && self.is_half_empty(endpoint),
                (None, _) | (_, None) => false,
            };
            if fed {
                self.starved[kind] = None;
            }
            wakes |= fed || self.poor[kind];
            self.poor[kind] = false;
        }
        wakes
    }

    pub(super) fn working(&self) -> usize {
        self.kinds.iter().sum()
    }

    /// Endpoints and their lanes, the busiest first.
    pub(super) fn busiest(&self, at_most: usize) -> Vec<(String, usize)> {
        let mut endpoints: Vec<(String, usize)> =
            self.endpoints.iter().map(|(name, lanes)| (name.clone(), *lanes)).collect();
        endpoints.sort_by(|a, b| (b.1, &a.0).cmp(&(a.1, &b.0)));
        endpoints.truncate(at_most);
        endpoints
    }

    fn at(&self, endpoint: &str) -> usize {
        self.endpoints.get(endpoint).copied().unwrap_or(0)
    }

    /// A quarter of the credits is always for work of another kind.
    fn kind_max(&self) -> usize {
        self.credits - self.credits / 4
    }

    /// A quarter of what the other kinds leave it is free: to look for less is not worth its cost.
    fn has_enough(&self, kind: usize, free: usize) -> bool {
        let others = self.working() - self.kinds[kind];
        let share = self.kind_max().min(self.credits.saturating_sub(others));
        free > 0 && free * 4 >= share && self.kinds[kind] * 4 <= share * 3
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOOKS: usize = 0;
    const PAYMENTS: usize = 1;

    /// 64 credits of which one kind has its 48, at endpoints that never answer; each endpoint takes 32 lanes.
    fn hung() -> Rooms {
        let mut rooms = Rooms::new(64, 4);
        for lane in 0..48 {
            let endpoint = if lane < 24 { "slow-a" } else { "slow-b" };
            assert!(rooms.has(endpoint, PAYMENTS));
            rooms.take(endpoint, PAYMENTS);
        }
        assert!(!rooms.has("slow-a", PAYMENTS), "a quarter is for the other kind");
        rooms
    }

    fn free(rooms: &Rooms) -> usize {
        64 - rooms.working()
    }

    #[test]
    fn a_kind_beside_one_that_hangs_is_woken_when_a_quarter_of_its_own_room_is_free() {
        let mut rooms = hung();
        for _ in 0..16 {
            assert!(rooms.has("quick", HOOKS));
            rooms.take("quick", HOOKS);
        }
        rooms.starve("slow-a", PAYMENTS);
        rooms.starve_all();
        let mut woken_at = None;
        for rested in 1..=16 {
            rooms.free("quick", HOOKS);
            let free = free(&rooms);
            if rooms.wakes(Some(("quick", HOOKS)), free) {
                woken_at = woken_at.or(Some(rested));
            }
        }
        assert_eq!(woken_at, Some(4), "of the sixteen that it may have");
    }

    #[test]
    fn lanes_of_one_kind_do_not_wake_another_whose_own_room_is_taken() {
        let mut rooms = hung();
        rooms.starve("slow-a", PAYMENTS);
        for _ in 0..100 {
            rooms.take("quick", HOOKS);
            rooms.free("quick", HOOKS);
            let free = free(&rooms);
            assert!(!rooms.wakes(Some(("quick", HOOKS)), free), "it would look in vain each time");
        }
        // Its own room wakes it, once there is enough: at an endpoint that is half empty, and a quarter of its 48.
        let mut woken_at = None;
        for rested in 1..=24 {
            rooms.free("slow-a", PAYMENTS);
            let free = free(&rooms);
            if rooms.wakes(Some(("slow-a", PAYMENTS)), free) {
                woken_at = woken_at.or(Some(rested));
            }
        }
        assert_eq!(woken_at, Some(12));
    }

    #[test]
    fn a_full_endpoint_wakes_its_kind_when_it_is_half_empty_and_once() {
        let mut rooms = Rooms::new(64, 4);
        for _ in 0..32 {
            rooms.take("bank", PAYMENTS);
        }
        assert!(!rooms.endpoint_has("bank") && rooms.has("other", PAYMENTS));
        rooms.starve("bank", PAYMENTS);
        let mut woken = Vec::new();
        for rested in 1..=32 {
            rooms.free("bank", PAYMENTS);
            let free = free(&rooms);
            if rooms.wakes(Some(("bank", PAYMENTS)), free) {
                woken.push(rested);
            }
        }
        assert_eq!(woken, [16]);
    }

    #[test]
    fn a_kind_without_lanes_is_woken_by_those_that_fill_its_endpoint() {
        let mut rooms = Rooms::new(64, 4);
        for _ in 0..32 {
            rooms.take("bank", PAYMENTS);
        }
        rooms.starve("bank", HOOKS);
        let woken: Vec<i32> = (1..=32)
            .filter(|_| {
                rooms.free("bank", PAYMENTS);
                let free = free(&rooms);
                rooms.wakes(Some(("bank", PAYMENTS)), free)
            })
            .collect();
        assert_eq!(woken, [16]);
    }

    #[test]
    fn while_a_look_has_the_credits_nobody_is_woken() {
        let mut rooms = Rooms::new(64, 4);
        rooms.take("bank", PAYMENTS);
        rooms.starve("bank", PAYMENTS);
        rooms.free("bank", PAYMENTS);
        assert!(!rooms.wakes(Some(("bank", PAYMENTS)), 1));
        assert!(rooms.wakes(Some(("bank", PAYMENTS)), 64));
    }

    #[test]
    fn one_credit_is_enough_for_a_wake_of_a_node_that_has_no_more() {
        let mut rooms = Rooms::new(1, 1);
        rooms.take("bank", PAYMENTS);
        assert!(!rooms.has("bank", HOOKS));
        rooms.starve_all();
        assert!(!rooms.wakes(None, 0));
        rooms.free("bank", PAYMENTS);
        assert!(rooms.wakes(None, 1));
    }
}
