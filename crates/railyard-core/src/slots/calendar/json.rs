//! A calendar as JSON: what operators write and what the database keeps.

use jiff::Timestamp;
use jiff::civil::{Date, Time, Weekday};
use serde_json::{Map, Value, json};

use super::{Calendar, Closing, Hours};
use crate::job::FieldError;

/// Entries of one list.
pub const ENTRIES_MAX: usize = 1000;
/// The days of the week, as they are written.
pub const DAYS: [(&str, Weekday); 7] = [
    ("MON", Weekday::Monday),
    ("TUE", Weekday::Tuesday),
    ("WED", Weekday::Wednesday),
    ("THU", Weekday::Thursday),
    ("FRI", Weekday::Friday),
    ("SAT", Weekday::Saturday),
    ("SUN", Weekday::Sunday),
];
/// The end of a day.
const MIDNIGHT: &str = "24:00";

impl Calendar {
    /// Reads `{timeZone, hours: [{days, from, until}], holidays: [date], blackouts: [{from, until}]}`. The time zone alone
    /// must be there; hours without `days` are of every day.
    ///
    /// # Errors
    /// Everything that is wrong, by field: `hours[0].from`.
    pub fn read(value: &Value) -> Result<Self, Vec<FieldError>> {
        let mut reader = Reader::default();
        let Value::Object(fields) = value else {
            reader.wrong("", "is not an object");
            return Err(reader.errors);
        };
        reader.known("", fields, &["timeZone", "hours", "holidays", "blackouts"]);
        let zone = fields.get("timeZone").and_then(Value::as_str).unwrap_or_default();
        let calendar = Self::in_zone(zone);
        if calendar.is_none() {
            reader.wrong("timeZone", "is not the name of a time zone, like Europe/Berlin");
        }
        let hours = reader.list(fields, "hours", Reader::hours);
        let holidays = reader.list(fields, "holidays", Reader::holiday);
        let blackouts = reader.list(fields, "blackouts", Reader::closing);
        match calendar {
            Some(calendar) if reader.errors.is_empty() => Ok(Self { hours, holidays, blackouts, ..calendar }),
            Some(_) | None => Err(reader.errors),
        }
    }

    /// The same as JSON; lists that are empty are left out.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let mut fields = Map::new();
        fields.insert("timeZone".to_owned(), json!(self.zone_name));
        let mut list = |name: &str, entries: Vec<Value>| {
            if !entries.is_empty() {
                fields.insert(name.to_owned(), Value::Array(entries));
            }
        };
        list("hours", self.hours.iter().map(hours_json).collect());
        list("holidays", self.holidays.iter().map(|day| json!(day.to_string())).collect());
        let closing =
            |closing: &Closing| json!({ "from": closing.from.to_string(), "until": closing.until.to_string() });
        list("blackouts", self.blackouts.iter().map(closing).collect());
        Value::Object(fields)
    }
}

fn hours_json(hours: &Hours) -> Value {
    let days: Vec<&str> = DAYS.iter().filter(|(_, day)| hours.days.contains(day)).map(|(name, _)| *name).collect();
    let until = hours.until.map_or(MIDNIGHT.to_owned(), |time| time.strftime("%H:%M").to_string());
    json!({ "days": days, "from": hours.from.strftime("%H:%M").to_string(), "until": until })
}

/// Notes everything that is wrong.
#[derive(Default)]
struct Reader {
    errors: Vec<FieldError>,
}

impl Reader {
    fn wrong(&mut self, field: &str, detail: &str) {
        self.errors.push(FieldError { field: field.to_owned(), detail: detail.to_owned() });
    }

    fn known(&mut self, at: &str, fields: &Map<String, Value>, names: &[&str]) {
        for name in fields.keys().filter(|name| !names.contains(&name.as_str())) {
            let name = crate::text::clean_str(name, 100);
            self.wrong(&format!("{at}{name}"), "is not a known field");
        }
    }

    fn list<T>(
        &mut self,
        fields: &Map<String, Value>,
        name: &str,
        read: impl Fn(&mut Self, &str, &Value) -> Option<T>,
    ) -> Vec<T> {
        match fields.get(name) {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Array(entries)) if entries.len() <= ENTRIES_MAX => {
                let entries = entries.iter().enumerate();
                entries.filter_map(|(n, entry)| read(self, &format!("{name}[{n}]"), entry)).collect()
            }
            Some(_) => {
                self.wrong(name, "is not a list of at most 1000 entries");
                Vec::new()
            }
        }
    }

    fn hours(&mut self, at: &str, entry: &Value) -> Option<Hours> {
        let Value::Object(fields) = entry else {
            self.wrong(at, "is not an object");
            return None;
        };
        self.known(&format!("{at}."), fields, &["days", "from", "until"]);
        let days = self.days(at, fields.get("days"));
        let from = self.time(&format!("{at}.from"), fields.get("from"));
        let until = match fields.get("until") {
            None | Some(Value::Null) => None,
            Some(Value::String(text)) if text == MIDNIGHT => None,
            until => Some(self.time(&format!("{at}.until"), until)?),
        };
        let (days, from) = (days?, from?);
        if until.is_some_and(|until| until <= from) {
            self.wrong(&format!("{at}.until"), "is not after from; hours over midnight are two entries");
        }
        Some(Hours { days, from, until })
    }

    fn days(&mut self, at: &str, entry: Option<&Value>) -> Option<Vec<Weekday>> {
        let every = || DAYS.iter().map(|(_, day)| *day).collect();
        let names = match entry {
            None | Some(Value::Null) => return Some(every()),
            Some(names) => names.as_array(),
        };
        let known = |name: &Value| DAYS.iter().find(|(word, _)| name.as_str() == Some(*word)).map(|(_, day)| *day);
        let days: Option<Vec<Weekday>> = names.and_then(|names| names.iter().map(known).collect());
        let days = days.filter(|days| !days.is_empty());
        if days.is_none() {
            self.wrong(&format!("{at}.days"), "is not a list of MON, TUE, WED, THU, FRI, SAT, SUN");
        }
        days
    }

    fn time(&mut self, at: &str, entry: Option<&Value>) -> Option<Time> {
        let text = entry.and_then(Value::as_str).unwrap_or_default();
        let two_digits = |part: &str| part.len() == 2 && part.bytes().all(|byte| byte.is_ascii_digit());
        let time = text.split_once(':').filter(|(hour, minute)| two_digits(hour) && two_digits(minute));
        let time = time.and_then(|(hour, minute)| Time::new(hour.parse().ok()?, minute.parse().ok()?, 0, 0).ok());
        if time.is_none() {
            self.wrong(at, "is not a time of day like 09:30");
        }
        time
    }

    fn holiday(&mut self, at: &str, entry: &Value) -> Option<Date> {
        let day = entry.as_str().filter(|text| text.len() == 10).and_then(|text| text.parse().ok());
        if day.is_none() {
            self.wrong(at, "is not a date like 2026-12-25");
        }
        day
    }

    fn closing(&mut self, at: &str, entry: &Value) -> Option<Closing> {
        let Value::Object(fields) = entry else {
            self.wrong(at, "is not an object");
            return None;
        };
        self.known(&format!("{at}."), fields, &["from", "until"]);
        let time = |name: &str| fields.get(name)?.as_str()?.parse::<Timestamp>().ok();
        let closing = time("from").zip(time("until")).filter(|(from, until)| from < until);
        if closing.is_none() {
            self.wrong(at, "is not from a time until a later one, both with an offset");
        }
        closing.map(|(from, until)| Closing { from, until })
    }
}
