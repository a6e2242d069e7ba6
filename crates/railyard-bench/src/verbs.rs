//! One module a verb.

pub mod backlog;
pub mod claim;
pub mod deliver;
pub mod dispatch;
pub mod enqueue;
pub mod groups;
pub mod hot_group;
pub mod limit;
pub mod nodes;
pub mod slots;
pub mod soak;
pub mod wake;
