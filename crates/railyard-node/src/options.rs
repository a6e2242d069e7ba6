//! What a node is told at start. Ranges are checked by the configuration, which names the keys.

use std::collections::BTreeMap;
use std::time::Duration;

use railyard_rail::{ClientError, HttpOptions, RailOptions};
use railyard_store::retention::Retention;

use crate::limits::LimitsOptions;
use crate::links::options::LinkOptions;

/// Everything that a node needs to know.
#[derive(Clone, Debug)]
pub struct NodeOptions {
    /// Host or pod, for people; every join makes a fresh id besides.
    pub name: String,
    /// How long this node may act without hearing from the database.
    pub lease: Duration,
    /// How often the lease is renewed.
    pub renewal: Duration,
    /// Longest time between two looks at the database.
    pub poll: Duration,
    /// How long notifications are gathered after the first of a burst.
    pub debounce: Duration,
    /// Calls at once to payment rails, and as many to others.
    pub calls_in_flight: usize,
    /// Lanes with work in memory at once, waiting for a place, being begun, called or settled.
    pub credits: usize,
    /// Group actors at once, resting ones included.
    pub resident_groups: usize,
    /// A resting group actor ends after this.
    pub idle_group: Duration,
    /// Time between a call's own deadline and the moment when others may give it up.
    pub slack: Duration,
    /// How often S2's rule by age is applied. What this node owns is looked at every second whatever this says.
    pub reaper_interval: Duration,
    /// S2's age after which a row that no living node owns is healed.
    pub zombie_after: Duration,
    /// Heals of one message before it is parked.
    pub zombies_max: u32,
    /// How old cached credentials may be.
    pub cache_ttl: Duration,
    /// What is kept for how long.
    pub retention: Retention,
    /// Rails by name.
    pub rails: BTreeMap<String, RailOptions>,
    /// Hard caps beside those of the rails.
    pub limits: LimitsOptions,
    /// How calls are made.
    pub http: HttpOptions,
    /// Links to the other nodes; none: nodes share work through the database alone.
    pub links: Option<LinkOptions>,
}

impl NodeOptions {
    /// The defaults of config/railyard.toml, for a node of this name with these rails.
    #[must_use]
    pub fn named(name: &str, rails: BTreeMap<String, RailOptions>) -> Self {
        Self {
            name: name.to_owned(),
            lease: Duration::from_secs(15),
            renewal: Duration::from_secs(5),
            poll: Duration::from_millis(500),
            debounce: Duration::from_millis(25),
            calls_in_flight: 256,
            credits: 1000,
            resident_groups: 20_000,
            idle_group: Duration::from_secs(10),
            slack: Duration::from_secs(5),
            reaper_interval: Duration::from_secs(60),
            zombie_after: Duration::from_secs(120),
            zombies_max: 3,
            cache_ttl: Duration::from_secs(5),
            retention: Retention::default(),
            rails,
            limits: LimitsOptions::default(),
            http: HttpOptions::default(),
            links: None,
        }
    }
}

/// Why a node did not start.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// The HTTP client.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// A metric of this name exists already.
    #[error("metrics: {0}")]
    Metrics(#[from] prometheus::Error),
    /// The certificates of the links.
    #[error("cluster.tls: {0}")]
    Links(String),
    /// An actor did not start.
    #[error("actor {actor}: {detail}")]
    Actor {
        /// Which.
        actor: &'static str,
        /// Why.
        detail: String,
    },
}
