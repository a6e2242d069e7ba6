//! Which pool a rail's calls belong to, and a slot of it in a lane's hand.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use railyard_store::clock::boottime;
use railyard_store::pools::{FRESH, Taken};
use tokio::sync::watch;

use crate::actors::pool_keeper;
use crate::handle::Handle;
use crate::options::NodeOptions;

/// A slot that is older is taken once more before its call is begun.
const KEEP_AFTER: Duration = Duration::from_secs(2);

/// The pools by rail, and those of them that are set.
pub(crate) struct Pools {
    rails: BTreeMap<String, Arc<str>>,
    /// None: nobody has looked yet, so nothing may be called that could be of a pool.
    set: watch::Sender<Option<HashSet<String>>>,
}

/// The right to have one call of a pool running, on all nodes. Dropped, it is given back; unless its call has begun and
/// nobody knows how it ended: then it is free when its attempt is no longer in flight.
pub(crate) struct PoolSlot {
    pub(crate) pool: Arc<str>,
    pub(crate) taken: Taken,
    /// Before it was taken, or taken once more, on `boottime`.
    pub(crate) asked: Duration,
    calling: bool,
    keeper: Handle<pool_keeper::Msg>,
}

impl Pools {
    pub(crate) fn new(options: &NodeOptions) -> Self {
        let rails = options.rails.iter().filter_map(|(name, rail)| Some((name.clone(), Arc::from(rail.pool()?))));
        Self { rails: rails.collect(), set: watch::Sender::default() }
    }

    /// The pool of a rail's calls; none if there is none, or if it is not set. Waits until it is known which are set.
    pub(crate) async fn of(&self, rail_type: &str) -> Option<Arc<str>> {
        let pool = self.rails.get(rail_type)?;
        let mut known = self.set.subscribe();
        let set = known.wait_for(Option::is_some).await.expect("this is the sender");
        set.as_ref().is_some_and(|set| set.contains(pool.as_ref())).then(|| Arc::clone(pool))
    }

    /// Whether it is known which are set.
    pub(crate) fn are_known(&self) -> bool {
        self.set.borrow().is_some()
    }

    /// These are set.
    pub(crate) fn know(&self, codes: Vec<String>) {
        self.set.send_replace(Some(codes.into_iter().collect()));
    }
}

impl PoolSlot {
    pub(crate) fn new(pool: Arc<str>, taken: Taken, asked: Duration, keeper: Handle<pool_keeper::Msg>) -> Self {
        Self { pool, taken, asked, calling: false, keeper }
    }

    /// Whether it has waited for other things and has to be taken once more.
    pub(crate) fn has_aged(&self) -> bool {
        boottime() > self.asked + KEEP_AFTER
    }

    /// Whether a call may start under it. If not, somebody else may have taken it.
    pub(crate) fn is_fresh(&self) -> bool {
        boottime() < self.asked + FRESH
    }

    /// From here on a call may be running.
    pub(crate) fn calling(&mut self) {
        self.calling = true;
    }

    /// The call has ended.
    pub(crate) fn ended(&mut self) {
        self.calling = false;
    }
}

impl Drop for PoolSlot {
    fn drop(&mut self) {
        if !self.calling {
            self.keeper.cast(pool_keeper::Msg::Free(Arc::clone(&self.pool), self.taken));
        }
    }
}
