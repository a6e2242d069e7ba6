//! A named limit: how many in how long, and when at all.

use super::calendar::Calendar;
use super::grid::{Grid, Openings, Window};
use crate::job::FieldError;
use jiff::Timestamp;

/// Which one is meant where none is named (S1: `rate-limiter.default-config-name`).
pub const CONFIG_DEFAULT: &str = "default";
/// Characters of a name.
pub const CONFIG_NAME_CHARS_MAX: usize = 64;
/// Most events of one window.
pub const PER_WINDOW_MAX: u32 = 1_000_000;
/// Longest window: a day.
pub const WINDOW_S_MAX: u32 = 86_400;
/// Windows that are searched (S1: `rate-limiter.max-lookahead`).
pub const LOOKAHEAD_DEFAULT: u32 = 200;
/// The most that may be asked for.
pub const LOOKAHEAD_MAX: u32 = 1_000_000;
/// Characters of an event's id.
pub const EVENT_ID_CHARS_MAX: usize = 255;

/// A configuration, as it is asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct RateConfig {
    /// Its name; configurations share no counters.
    pub name: String,
    /// Events of one window.
    pub max_per_window: u32,
    /// Seconds of one window.
    pub window_size_s: u32,
    /// Whether the search begins where the windows in front are full, however many. Else it ends `max_lookahead` windows
    /// from the one that was asked for, as in the source.
    pub frontier: bool,
    /// Open windows that are searched; with a frontier, windows that may be found locked by others.
    pub max_lookahead: u32,
    /// When it is open; without one, always.
    pub calendar: Option<Calendar>,
}

/// Whether a configuration may be called so.
#[must_use]
pub fn is_config_name(name: &str) -> bool {
    (1..=CONFIG_NAME_CHARS_MAX).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-'))
}

impl RateConfig {
    /// The source's defaults: a frontier, and a look-ahead of 200.
    #[must_use]
    pub fn new(name: &str, max_per_window: u32, window_size_s: u32) -> Self {
        Self {
            name: name.to_owned(),
            max_per_window,
            window_size_s,
            frontier: true,
            max_lookahead: LOOKAHEAD_DEFAULT,
            calendar: None,
        }
    }

    /// Checks every field; that a calendar leaves something open is [`Self::opens`]'s.
    ///
    /// # Errors
    /// Everything that is wrong, not only the first.
    pub fn validate(&self) -> Result<(), Vec<FieldError>> {
        let mut found = Vec::new();
        let mut add = |field: &str, detail: String| found.push(FieldError { field: field.to_owned(), detail });
        if !is_config_name(&self.name) {
            add("configName", "is not 1 to 64 letters, digits, dots, hyphens or underscores".to_owned());
        }
        for (field, value, max) in [
            ("maxPerWindow", self.max_per_window, PER_WINDOW_MAX),
            ("windowSizeSecs", self.window_size_s, WINDOW_S_MAX),
            ("maxLookahead", self.max_lookahead, LOOKAHEAD_MAX),
        ] {
            if !(1..=max).contains(&value) {
                add(field, format!("is not 1 to {max}"));
            }
        }
        if found.is_empty() { Ok(()) } else { Err(found) }
    }

    /// Whether any window is open from `now` on, as far as calendars are looked at.
    #[must_use]
    pub fn opens(&self, now: Timestamp) -> bool {
        self.openings(now, 1).at_or_after(self.grid().window_of(now)).is_some()
    }

    /// Its windows.
    #[must_use]
    pub fn grid(&self) -> Grid {
        Grid::of_seconds(self.window_size_s)
    }

    /// Its open windows from the one that holds `from`, in at most so many stretches.
    #[must_use]
    pub fn openings(&self, from: Timestamp, stretches_max: usize) -> Openings {
        let Some(calendar) = &self.calendar else { return Openings::new(None) };
        let grid = self.grid();
        let spans: Vec<(Window, Window)> = calendar
            .open_from(grid.start(grid.window_of(from)))
            .filter_map(|(open, closed)| grid.within(open, closed))
            .take(stretches_max)
            .collect();
        Openings::new(Some(spans))
    }
}
