//! Group actors of this node: how many in which state, and which of them have been at work for longest. Names are the
//! producers', so only so many are named; the state of every group is in the database's figures.

use std::time::Duration;

use prometheus::{Gauge, GaugeVec, IntGauge, IntGaugeVec, Opts, Registry};
use railyard_core::Lane;

use super::gauge;

/// Groups named for how long they have been at work.
const NAMED_MAX: usize = 20;

/// What an actor is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gauged {
    /// It has a message, for so long.
    Working(Duration),
    /// Nothing could be begun: left alone for a moment.
    Cooling,
    /// It has nothing to do.
    Resting,
    /// It is on its way out.
    Ending,
}

impl Gauged {
    const STATES: [&str; 4] = ["working", "cooling", "resting", "ending"];

    fn state(self) -> usize {
        match self {
            Self::Working(_) => 0,
            Self::Cooling => 1,
            Self::Resting => 2,
            Self::Ending => 3,
        }
    }
}

/// Cheap to clone.
#[derive(Clone)]
pub(crate) struct GroupMetrics {
    resident: IntGauge,
    actors: IntGaugeVec,
    longest: Gauge,
    named: GaugeVec,
}

impl GroupMetrics {
    /// Makes and registers them.
    pub(super) fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let actors = Opts::new("railyard_group_actors", "group actors by state");
        let named = Opts::new("railyard_group_working_seconds", "for how long a group has been at work");
        let metrics = Self {
            resident: gauge("railyard_groups_resident", "group actors, resting ones included")?,
            actors: IntGaugeVec::new(actors, &["state"])?,
            longest: Gauge::new("railyard_group_working_longest_seconds", "the longest that an actor is at work")?,
            named: GaugeVec::new(named, &["group"])?,
        };
        registry.register(Box::new(metrics.resident.clone()))?;
        registry.register(Box::new(metrics.actors.clone()))?;
        registry.register(Box::new(metrics.longest.clone()))?;
        registry.register(Box::new(metrics.named.clone()))?;
        metrics.show(std::iter::empty());
        Ok(metrics)
    }

    /// How many there are.
    pub(crate) fn resident(&self, count: usize) {
        self.resident.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// All of them.
    pub(crate) fn show<'a>(&self, actors: impl Iterator<Item = (&'a Lane, Gauged)>) {
        let mut counts = [0_i64; Gauged::STATES.len()];
        let mut working: Vec<(Duration, &Lane)> = Vec::new();
        for (lane, gauged) in actors {
            counts[gauged.state()] += 1;
            if let Gauged::Working(since) = gauged {
                working.push((since, lane));
            }
        }
        for (state, count) in Gauged::STATES.iter().zip(counts) {
            self.actors.with_label_values(&[state]).set(count);
        }
        working.sort_unstable_by(|a, b| b.cmp(a));
        self.longest.set(working.first().map_or(0.0, |(since, _)| since.as_secs_f64()));
        self.named.reset();
        let groups = working.iter().filter_map(|(since, lane)| match lane {
            Lane::Group(group) => Some((since, group)),
            Lane::Single(_) => None,
        });
        for (since, group) in groups.take(NAMED_MAX) {
            self.named.with_label_values(&[group.as_str()]).set(since.as_secs_f64());
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use prometheus::core::Collector;
    use railyard_core::ParticipantId;

    use super::*;

    #[test]
    fn many_groups_at_work_make_a_bounded_number_of_series() {
        let metrics = GroupMetrics::register(&Registry::new()).unwrap();
        let lanes: Vec<Lane> = (0..100).map(|n| Lane::Group(ParticipantId::new(format!("g{n}")))).collect();
        let working = lanes.iter().zip(1..).map(|(lane, n)| (lane, Gauged::Working(Duration::from_secs(n))));
        metrics.show(working.chain([(&lanes[0], Gauged::Resting)]));
        assert_eq!(metrics.named.collect()[0].get_metric().len(), NAMED_MAX);
        assert!((metrics.named.with_label_values(&["g99"]).get() - 100.0).abs() < 1e-9, "the longest are named");
        assert!((metrics.longest.get() - 100.0).abs() < 1e-9);
        assert_eq!(metrics.actors.with_label_values(&["working"]).get(), 100);
        assert_eq!(metrics.actors.with_label_values(&["resting"]).get(), 1);
        metrics.show(std::iter::empty());
        assert!(metrics.named.collect()[0].get_metric().is_empty(), "who is done is not shown");
        assert_eq!(metrics.actors.with_label_values(&["working"]).get(), 0);
    }
}
