//! A node: the actors that turn committed work into signed calls, and the wiring between them.
//!
//! ```text
//! Root
//! ├─ LeaseKeeper    who we are and what we own; its own thread and connection
//! ├─ CacheKeeper    credentials, as a snapshot
//! ├─ Settler        begins and outcomes, batched into transactions
//! ├─ PoolKeeper     slots of pools, for this node's lanes
//! ├─ Governor ──────── Limiter × set of limits
//! ├─ Pipeline       (rest for one)
//! │  ├─ RailCallerPool ── RailCaller × n
//! │  ├─ GlobalBuffer ──── GroupActor × lane
//! │  ├─ Poller
//! │  └─ Listener
//! ├─ Reaper         in-flight rows that no live call knows
//! └─ Maintenance    days ahead, days gone, the sweep
//! ```
//!
//! ractor lives in this crate alone, and nobody outside sees a channel or an `ActorRef`. Whatever an actor holds in
//! memory may be lost at any instruction: the in-flight row in the database says what it was doing.

mod actors;
mod attempts;
mod call_slots;
mod context;
mod handle;
mod lease;
mod limits;
mod links;
mod metrics;
mod node;
mod observe;
mod options;
mod pools;
mod probes;
mod runtime;
mod stopping;
#[cfg(test)]
mod tests;
mod trouble;

pub use actors::cluster_agent::Question;
pub use limits::LimitsOptions;
pub use links::options::{Cookie, LinkOptions, TlsFiles};
pub use links::table::LinkState;
pub use node::Node;
pub use options::{NodeError, NodeOptions};
