//! The planner: which window of time an event may start in.
//!
//! Time is cut into windows of a fixed size, aligned to the epoch, so that all nodes cut alike. Each takes so many events;
//! what does not fit goes to the next one that is open and has room, and within its window an event starts at a random
//! moment. This shapes the load and promises no hard limit: that is the governor's.
//!
//! The store searches and counts (one statement, `rate_assign`); what a window is, how many of a window that has begun
//! are left, where in it an event starts, which windows a calendar closes and what a plan would come to is decided here.

mod calendar;
mod config;
mod forecast;
mod grid;
mod replan;

#[cfg(test)]
mod tests;

pub use calendar::{Calendar, Closing, DAYS, ENTRIES_MAX, HORIZON_DAYS, Hours};
pub use config::{
    CONFIG_DEFAULT, CONFIG_NAME_CHARS_MAX, EVENT_ID_CHARS_MAX, LOOKAHEAD_DEFAULT, LOOKAHEAD_MAX, PER_WINDOW_MAX,
    RateConfig, WINDOW_S_MAX, is_config_name,
};
pub use forecast::{CurvePoint, Forecast, forecast};
pub use grid::{Dice, Grid, Openings, Window};
pub use replan::replan;
