//! One module an actor.

pub(crate) mod cache_keeper;
pub(crate) mod cluster;
pub(crate) mod cluster_agent;
pub(crate) mod dispatch;
pub(crate) mod dispatcher;
pub(crate) mod global_buffer;
pub(crate) mod governor;
pub(crate) mod group_actor;
pub(crate) mod lease_keeper;
pub(crate) mod limiter;
pub(crate) mod link_listener;
pub(crate) mod listener;
pub(crate) mod maintenance;
pub(crate) mod peer_dialer;
pub(crate) mod pipeline;
pub(crate) mod poller;
pub(crate) mod pool_keeper;
pub(crate) mod rail_caller;
pub(crate) mod rail_caller_pool;
pub(crate) mod reaper;
pub(crate) mod root;
pub(crate) mod settler;
pub(crate) mod supervise;
