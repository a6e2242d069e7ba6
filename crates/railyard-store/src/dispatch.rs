//! The dispatcher's cycle (S0, phase B), statement by statement: whose turn it is, the configuration, stale claims, the
//! claim with its contexts, the hand-over. What follows from the ends of jobs is a trigger's (`exec_job_ended`); a later
//! step, which it says is due, is handed over in a transaction of its own.
//!
//! A claim is written before anything is handed over, and handed over by a statement that looks at each claim again: a
//! dispatcher that died, or went on after it was given up, changes nothing that is not its own any more.

mod claim;
mod config;
mod settings;
mod steps;
mod turn;

#[cfg(test)]
mod cost;
#[cfg(test)]
mod tests;

pub use claim::{
    Claimed, HandedOver, Recovered, Requeue, StartOrder, batch_name, claim, claimed, hand_over, keep, put_back,
    recover, requeue,
};
pub use config::{DispatchConfig, config};
pub use settings::{AUDIT_MAX, AuditRow, Change, Settings, audit_log, set_settings, settings};
pub use steps::{STEPS_MAX, StepsHandedOver, hand_over_steps};
pub use turn::{Due, end_turn, look, take_turn};
