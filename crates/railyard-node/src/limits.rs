//! Which limits a call is under, and what a lane holds of them.
//!
//! A call is under the limits of its rail, of its endpoint and of everything; those that are configured make a *set*,
//! which has one `Limiter` to ask for it. A payment rail without a limit has its switch: leave to
//! call for a moment, without slots, so that a call that was begun before the rail was stopped does not start long
//! after. A webhook rail without limits has no set, and pays nothing.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use prometheus::IntCounter;
use ractor::ActorRef;
use railyard_core::limiter::{ClockWatch, DELTA, HORIZON, Limit, Permit, TAKE_BACK_GAP_US_MIN, Unused};
use railyard_core::rail::RailKind;
use tokio::sync::Semaphore;

use crate::actors::limiter;
use crate::metrics::Metrics;
use crate::options::NodeOptions;

/// Lanes of a set that may hold a call slot while they wait for their turn; no more than the slots within the horizon are
/// of use.
const TURNS_MAX: i64 = 256;
/// Slots that are asked for at once, so that one node does not take the whole horizon.
const BATCH_MAX: i64 = 64;
/// How long a leave without a slot may be used by others who ask: what is left is enough for a connection.
const LEAVE_SHARED: Duration = Duration::from_millis(50);

/// Limits beside those of the rails.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LimitsOptions {
    /// Of all calls together.
    pub global: Option<Limit>,
    /// Of all calls to one endpoint, `scheme://host:port`.
    pub endpoints: BTreeMap<String, Limit>,
}

/// A rail and, where it has a limit of its own, an endpoint.
type SetName = (String, Option<String>);

/// All sets of a node, and its view of the database's clock.
pub(crate) struct Limits {
    rails: BTreeMap<String, (Option<Limit>, RailKind)>,
    options: LimitsOptions,
    metrics: Metrics,
    /// None: calls of that name are under no limit.
    sets: Mutex<HashMap<SetName, Option<Arc<LimitSet>>>>,
    watch: Mutex<ClockWatch>,
}

/// The limits of some calls.
pub(crate) struct LimitSet {
    /// In the order of their names.
    pub(crate) keys: Vec<String>,
    /// One for each key. A switch has none.
    pub(crate) limits: Vec<Limit>,
    /// Asked at once.
    pub(crate) batch_max: usize,
    /// The right to wait for a slot with a call slot in hand; first come, first served.
    pub(crate) turns: Semaphore,
    /// When the next slot may be asked for, by the last denial.
    asks_at: Mutex<Duration>,
    /// Slots are so far apart that their rows take back what nobody used.
    pub(crate) takes_back: bool,
    /// The last leave of a switch, and when it was asked for.
    leave: Mutex<Option<Duration>>,
    granted: Vec<IntCounter>,
    burned: Vec<IntCounter>,
}

/// A slot, or a switch's leave. Dropped before its call, the slot is somebody else's.
pub(crate) struct Held {
    pub(crate) permit: Permit,
    /// None of a leave, nor of a slot that was used.
    slot: Option<Slot>,
}

/// Whose slot it is and who takes it back.
struct Slot {
    set: Arc<LimitSet>,
    unused: Unused,
    limiter: ActorRef<limiter::Msg>,
    /// A call may have started in it.
    in_doubt: bool,
}

impl Limits {
    pub(crate) fn new(options: &NodeOptions, metrics: &Metrics) -> Self {
        let rails = options.rails.iter();
        let rails = rails.map(|(name, rail)| (name.clone(), (rail.limit.map(|limit| limit.limit()), rail.kind)));
        Self {
            rails: rails.collect(),
            options: options.limits.clone(),
            metrics: metrics.clone(),
            sets: Mutex::default(),
            watch: Mutex::default(),
        }
    }

    /// The set of a call; none: it is under no limit.
    pub(crate) fn of(&self, rail_type: &str, endpoint: &str) -> Option<Arc<LimitSet>> {
        if let Some((None, RailKind::Webhook)) = self.rails.get(rail_type)
            && self.options.global.is_none()
            && self.options.endpoints.is_empty()
        {
            return None;
        }
        let endpoint = self.options.endpoints.contains_key(endpoint).then(|| endpoint.to_owned());
        let mut sets = lock(&self.sets);
        let key = (rail_type.to_owned(), endpoint);
        if let Some(set) = sets.get(&key) {
            return set.clone();
        }
        let set = self.made(rail_type, key.1.as_deref()).map(Arc::new);
        // Rails that this node does not know are called by nobody.
        if self.rails.contains_key(rail_type) {
            sets.insert(key, set.clone());
        }
        set
    }

    /// Whether anything has to be counted.
    pub(crate) fn any(&self) -> bool {
        self.options.global.is_some()
            || !self.options.endpoints.is_empty()
            || self.rails.values().any(|(limit, _)| limit.is_some())
    }

    /// The node's view of the database's clock.
    pub(crate) fn watch(&self) -> MutexGuard<'_, ClockWatch> {
        lock(&self.watch)
    }

    fn made(&self, rail_type: &str, endpoint: Option<&str>) -> Option<LimitSet> {
        let (own, kind) = self.rails.get(rail_type).copied()?;
        let mut limits = BTreeMap::new();
        if let Some(limit) = self.options.global {
            limits.insert("global".to_owned(), limit);
        }
        if let Some((endpoint, limit)) = endpoint.and_then(|name| Some((name, self.options.endpoints.get(name)?))) {
            limits.insert(format!("endpoint:{endpoint}"), *limit);
        }
        let rail = format!("rail:{rail_type}");
        match (own, kind) {
            (Some(limit), _) => drop(limits.insert(rail, limit)),
            // The switch counts with the other limits; alone, it needs no slots.
            (None, RailKind::Payment) if !limits.is_empty() => drop(limits.insert(rail, Limit::UNBOUND)),
            (None, RailKind::Payment) => return Some(LimitSet::new(vec![rail], Vec::new(), &self.metrics)),
            (None, RailKind::Webhook) if limits.is_empty() => return None,
            (None, RailKind::Webhook) => {}
        }
        let (keys, limits) = limits.into_iter().unzip();
        Some(LimitSet::new(keys, limits, &self.metrics))
    }
}

impl LimitSet {
    fn new(keys: Vec<String>, limits: Vec<Limit>, metrics: &Metrics) -> Self {
        let gap_us = limits.iter().map(|limit| limit.gap_us()).max().unwrap_or(1);
        let horizon_us = i64::try_from(HORIZON.as_micros()).unwrap_or(i64::MAX);
        let fit = horizon_us / gap_us + 1;
        let count = |n: i64| usize::try_from(n).unwrap_or(1);
        let turns = if limits.is_empty() { Semaphore::MAX_PERMITS } else { count((fit + 1).min(TURNS_MAX)) };
        Self {
            batch_max: count((fit / 4).clamp(1, BATCH_MAX)),
            turns: Semaphore::new(turns),
            asks_at: Mutex::new(Duration::ZERO),
            takes_back: gap_us >= TAKE_BACK_GAP_US_MIN,
            leave: Mutex::new(None),
            granted: keys.iter().map(|key| metrics.permits_granted.with_label_values(&[key])).collect(),
            burned: keys.iter().map(|key| metrics.permits_burned.with_label_values(&[key])).collect(),
            keys,
            limits,
        }
    }

    /// Only a switch: no slots, and nothing to wait for.
    pub(crate) fn is_switch(&self) -> bool {
        self.limits.is_empty()
    }

    /// The longest window, which a node watches the clock for before it asks.
    pub(crate) fn window(&self) -> Duration {
        self.limits.iter().map(|limit| limit.window).max().unwrap_or_default()
    }

    /// Slots came from the database.
    pub(crate) fn count_granted(&self, slots: u32) {
        self.granted.iter().for_each(|counter| counter.inc_by(u64::from(slots)));
    }

    /// One of them, for a lane.
    pub(crate) fn hold(self: &Arc<Self>, permit: Permit, unused: Unused, limiter: ActorRef<limiter::Msg>) -> Held {
        Held { permit, slot: Some(Slot { set: Arc::clone(self), unused, limiter, in_doubt: false }) }
    }

    /// There is no slot before this, on `boottime`.
    pub(crate) fn denied_until(&self, at: Duration) {
        *lock(&self.asks_at) = at;
    }

    /// How long it will be at least until there is a slot.
    pub(crate) fn wait(&self, now: Duration) -> Duration {
        lock(&self.asks_at).saturating_sub(now)
    }

    /// A slot that nobody used, and that nobody else will.
    pub(crate) fn burn(&self) {
        self.burned.iter().for_each(IntCounter::inc);
    }

    /// A switch's leave that was asked for a moment ago.
    pub(crate) fn leave(&self, now: Duration) -> Option<Held> {
        let asked = (*lock(&self.leave)).filter(|asked| now < *asked + LEAVE_SHARED)?;
        // As long as a slot that was granted then could be used.
        let permit = Permit { not_before: Duration::ZERO, not_after: asked + HORIZON + DELTA };
        Some(Held { permit, slot: None })
    }

    /// Until when a switch's leave holds; the beginning of time if there is none.
    pub(crate) fn leave_until(&self) -> Duration {
        lock(&self.leave).map_or(Duration::ZERO, |asked| asked + HORIZON + DELTA)
    }

    /// The switch was found on by a question sent then.
    pub(crate) fn switched_on(&self, sent: Duration) {
        *lock(&self.leave) = Some(sent);
    }

    /// The switch is off.
    pub(crate) fn switched_off(&self) {
        *lock(&self.leave) = None;
    }
}

impl Held {
    /// It goes to a caller: should its answer not come, nobody knows whether the call started.
    pub(crate) fn calling(&mut self) {
        if let Some(slot) = &mut self.slot {
            slot.in_doubt = true;
        }
    }

    /// The call has started.
    pub(crate) fn used(mut self) {
        self.slot = None;
    }

    /// The call has not started, and will not.
    pub(crate) fn not_used(mut self) {
        if let Some(slot) = &mut self.slot {
            slot.in_doubt = false;
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let Some(slot) = self.slot.take() else { return };
        if slot.in_doubt || slot.limiter.cast(limiter::Msg::Unused(self.permit, slot.unused)).is_err() {
            slot.set.burn();
        }
    }
}

/// A panic while the lock was held cannot have left these half-done.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
