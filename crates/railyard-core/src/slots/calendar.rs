//! When a configuration is open: a time zone, opening hours, holidays, blackouts.
//!
//! Time zones are those that came with this program: two machines with zone files of different years must close the same
//! windows. A window is open if all of it is.

mod json;

use jiff::civil::{Date, Time, Weekday};
use jiff::tz::{TimeZone, TimeZoneDatabase};
use jiff::{Span, Timestamp};

pub use json::{DAYS, ENTRIES_MAX};

/// How far ahead a calendar is looked at.
pub const HORIZON_DAYS: i64 = 400;

/// Opening hours of some days of the week.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hours {
    /// Of which days.
    pub days: Vec<Weekday>,
    /// From when on, local time.
    pub from: Time,
    /// Until when; none: to the end of the day.
    pub until: Option<Time>,
}

/// A time in which nothing starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closing {
    /// From when on.
    pub from: Timestamp,
    /// Until when.
    pub until: Timestamp,
}

/// A calendar.
#[derive(Clone, Debug, PartialEq)]
pub struct Calendar {
    zone: TimeZone,
    zone_name: String,
    /// None: all day, every day.
    pub hours: Vec<Hours>,
    /// Closed from midnight to midnight, local time.
    pub holidays: Vec<Date>,
    /// Closed whatever the hours say.
    pub blackouts: Vec<Closing>,
}

impl Calendar {
    /// In this time zone, always open; none if there is no such zone.
    #[must_use]
    pub fn in_zone(name: &str) -> Option<Self> {
        let zone = TimeZoneDatabase::bundled().get(name).ok()?;
        let (hours, holidays, blackouts) = (Vec::new(), Vec::new(), Vec::new());
        Some(Self { zone, zone_name: name.to_owned(), hours, holidays, blackouts })
    }

    /// The zone's name, as it was given.
    #[must_use]
    pub fn zone_name(&self) -> &str {
        &self.zone_name
    }

    /// Stretches of open time from `from` on, in order, none touching the next, up to [`HORIZON_DAYS`].
    pub fn open_from(&self, from: Timestamp) -> impl Iterator<Item = (Timestamp, Timestamp)> + '_ {
        let day = self.zone.to_datetime(from).date();
        // A stretch of yesterday may reach into today where clocks are set.
        let days = (-1..=HORIZON_DAYS).map_while(move |n| day.checked_add(Span::new().days(n)).ok());
        let of_days = days.flat_map(|day| self.open_on(day));
        let mut joined = Joined { stretches: of_days, waiting: None };
        let later = std::iter::from_fn(move || joined.next());
        later.filter_map(move |(open, closed)| (closed > from).then_some((open.max(from), closed)))
    }

    /// What is open of a local day.
    fn open_on(&self, day: Date) -> Vec<(Timestamp, Timestamp)> {
        if self.holidays.contains(&day) {
            return Vec::new();
        }
        let midnight = |day: Date| self.instant(day, Time::midnight());
        let Some(end) = day.tomorrow().ok().and_then(midnight) else { return Vec::new() };
        let mut open = Vec::new();
        if self.hours.is_empty() {
            open.extend(midnight(day).map(|begin| (begin, end)));
        }
        for hours in self.hours.iter().filter(|hours| hours.days.contains(&day.weekday())) {
            let until = hours.until.map_or(Some(end), |time| self.instant(day, time));
            open.extend(self.instant(day, hours.from).zip(until).filter(|(from, until)| from < until));
        }
        open.sort_unstable();
        let mut left = Vec::new();
        let mut joined = Joined { stretches: open.into_iter(), waiting: None };
        while let Some(stretch) = joined.next() {
            left.extend(self.without_blackouts(stretch));
        }
        left
    }

    fn without_blackouts(&self, stretch: (Timestamp, Timestamp)) -> Vec<(Timestamp, Timestamp)> {
        let mut left = vec![stretch];
        for closing in &self.blackouts {
            let cut = |(from, until): (Timestamp, Timestamp)| {
                let parts = [(from, until.min(closing.from)), (from.max(closing.until), until)];
                parts.into_iter().filter(|(from, until)| from < until)
            };
            left = left.into_iter().flat_map(cut).collect();
        }
        left
    }

    /// Where clocks are set forward over it, as much later; where they show it twice, the first time.
    fn instant(&self, day: Date, time: Time) -> Option<Timestamp> {
        self.zone.to_ambiguous_timestamp(day.to_datetime(time)).compatible().ok()
    }
}

/// Joins stretches that touch; they come in order of their beginnings.
struct Joined<I> {
    stretches: I,
    waiting: Option<(Timestamp, Timestamp)>,
}

impl<I: Iterator<Item = (Timestamp, Timestamp)>> Joined<I> {
    fn next(&mut self) -> Option<(Timestamp, Timestamp)> {
        for (from, until) in self.stretches.by_ref() {
            match &mut self.waiting {
                Some((_, end)) if from <= *end => *end = until.max(*end),
                _ => {
                    if let Some(whole) = self.waiting.replace((from, until)) {
                        return Some(whole);
                    }
                }
            }
        }
        self.waiting.take()
    }
}
