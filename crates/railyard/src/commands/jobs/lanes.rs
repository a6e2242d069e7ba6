//! Who may be sent now: one job a group at a time, in the order they came, and lanes in turn. No IO.

use std::collections::{HashMap, VecDeque};

/// Items that go together.
#[derive(Debug)]
pub(super) struct Taken<T> {
    /// Closed until [`Lanes::done_all`].
    pub(super) lanes: Vec<String>,
    /// Each lane's in the order they came.
    pub(super) items: Vec<T>,
}

/// Items in lanes. Items without a lane are all independent.
#[derive(Debug)]
pub(super) struct Lanes<T> {
    /// What waits behind a lane's item that is out. An entry without waiting items: the lane is out.
    out: HashMap<String, VecDeque<T>>,
    /// What can go, in turn.
    ready: VecDeque<(Option<String>, T)>,
    waiting: usize,
}

impl<T> Default for Lanes<T> {
    fn default() -> Self {
        Self { out: HashMap::new(), ready: VecDeque::new(), waiting: 0 }
    }
}

impl<T> Lanes<T> {
    /// Adds an item at its lane's end.
    pub(super) fn push(&mut self, lane: Option<String>, item: T) {
        self.waiting += 1;
        match lane {
            Some(name) => match self.out.get_mut(&name) {
                Some(behind) => behind.push_back(item),
                None => {
                    self.out.insert(name.clone(), VecDeque::new());
                    self.ready.push_back((Some(name), item));
                }
            },
            None => self.ready.push_back((None, item)),
        }
    }

    /// What may go next, with what stands behind it in its lane: so many items of so much weight in all, at least one
    /// if there is one. Their lanes are closed until [`Lanes::done_all`].
    pub(super) fn take_many(&mut self, items_max: usize, weight_max: usize, weigh: impl Fn(&T) -> usize) -> Taken<T> {
        let mut taken = Taken { lanes: Vec::new(), items: Vec::new() };
        let mut weight = 0;
        let mut fits = |item: &T, items: usize| {
            weight += weigh(item);
            items == 0 || (items < items_max && weight <= weight_max)
        };
        while let Some((_, item)) = self.ready.front()
            && fits(item, taken.items.len())
            && let Some((lane, item)) = self.ready.pop_front()
        {
            taken.items.push(item);
            let Some(name) = lane else { continue };
            if let Some(behind) = self.out.get_mut(&name) {
                while let Some(item) = behind.front()
                    && fits(item, taken.items.len())
                    && let Some(item) = behind.pop_front()
                {
                    taken.items.push(item);
                }
            }
            taken.lanes.push(name);
        }
        self.waiting -= taken.items.len();
        taken
    }

    /// What was taken has ended: these lanes may go on.
    pub(super) fn done_all(&mut self, lanes: Vec<String>) {
        for lane in lanes {
            self.done(Some(lane));
        }
    }

    /// One item.
    #[cfg(test)]
    fn take(&mut self) -> Option<(Option<String>, T)> {
        let mut taken = self.take_many(1, usize::MAX, |_| 0);
        Some((taken.lanes.pop(), taken.items.pop()?))
    }

    /// An item of this lane has ended: the one behind it may go.
    fn done(&mut self, lane: Option<String>) {
        let Some(name) = lane else { return };
        let Some(behind) = self.out.get_mut(&name) else { return };
        match behind.pop_front() {
            Some(item) => self.ready.push_back((Some(name), item)),
            None => {
                self.out.remove(&name);
            }
        }
    }

    /// Items not yet taken.
    pub(super) fn waiting(&self) -> usize {
        self.waiting
    }

    /// Drops what waits.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_lane_has_one_item_out() {
        let mut lanes = Lanes::default();
        let a = || Some("a".to_owned());
        lanes.push(a(), 1);
        lanes.push(a(), 2);
        lanes.push(None, 3);
        assert_eq!(lanes.take(), Some((a(), 1)));
        assert_eq!(lanes.take(), Some((None, 3)));
        assert_eq!(lanes.take(), None);
        assert_eq!(lanes.waiting(), 1);
        lanes.done(a());
        assert_eq!(lanes.take(), Some((a(), 2)));
        lanes.done(a());
        assert_eq!((lanes.take(), lanes.waiting()), (None, 0));
    }

    #[test]
    fn a_batch_takes_what_stands_behind_in_its_lanes() {
        let mut lanes = Lanes::default();
        for (lane, item) in [("a", 1), ("b", 2), ("a", 3), ("a", 4), ("b", 5)] {
            lanes.push(Some(lane.to_owned()), item);
        }
        let first = lanes.take_many(4, 100, |_| 30);
        assert_eq!((first.items, first.lanes), (vec![1, 3, 4], vec!["a".to_owned()]), "no more than its weight");
        lanes.push(Some("a".to_owned()), 6);
        let second = lanes.take_many(4, 100, |_| 1);
        assert_eq!((second.items, &second.lanes), (vec![2, 5], &vec!["b".to_owned()]), "a is out");
        assert!(lanes.take_many(4, 100, |_| 1).items.is_empty());
        lanes.done_all(vec!["a".to_owned(), "b".to_owned()]);
        assert_eq!(lanes.take_many(4, 0, |_| 1).items, [6], "one at least");
    }

    proptest! {
        /// Whatever ends in whatever order, each lane's items go in the order they came, one at a time, and all go.
        #[test]
        fn order_and_completeness(
            items in proptest::collection::vec(0_u8..4, 0..60),
            ends in proptest::collection::vec(any::<prop::sample::Index>(), 200),
        ) {
            let mut lanes = Lanes::default();
            for (number, lane) in items.iter().enumerate() {
                lanes.push((*lane > 0).then(|| lane.to_string()), number);
            }
            let mut out: Vec<(Option<String>, usize)> = Vec::new();
            let mut last: HashMap<String, usize> = HashMap::new();
            let mut seen = 0;
            for end in ends {
                while let Some((lane, number)) = lanes.take() {
                    if let Some(name) = &lane {
                        prop_assert!(out.iter().all(|(other, _)| other.as_ref() != Some(name)));
                        prop_assert!(last.insert(name.clone(), number).is_none_or(|before| before < number));
                    }
                    seen += 1;
                    out.push((lane, number));
                }
                if out.is_empty() {
                    break;
                }
                let (lane, _) = out.remove(end.index(out.len()));
                lanes.done(lane);
            }
            prop_assert_eq!(seen, items.len());
            prop_assert_eq!(lanes.waiting(), 0);
        }
    }
}
