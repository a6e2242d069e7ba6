//! What a verb prints: a table for people on standard error, one JSON object for programs on standard output.

use std::io::Write;

use comfy_table::{Table, presets};
use serde_json::{Map, Value, json};

use crate::options::{Common, Size};
use crate::profile::Profile;
use crate::statistics::{median, spread};

/// The figures of one run.
pub(crate) struct Report {
    fields: Map<String, Value>,
    rounds: Map<String, Value>,
    spreads: Map<String, Value>,
}

impl Report {
    /// Of this verb, with what any reader needs to place it.
    pub(crate) fn of(verb: &str, common: &Common, size: Size, postgres: &str) -> Self {
        let mut fields = Map::new();
        let cores = std::thread::available_parallelism().map_or(0, usize::from);
        fields.insert("bench".to_owned(), json!(verb));
        fields.insert("versions".to_owned(), json!({ "railyard": env!("CARGO_PKG_VERSION"), "postgres": postgres }));
        fields.insert("build".to_owned(), json!(if cfg!(debug_assertions) { "debug" } else { "release" }));
        fields.insert("cores".to_owned(), json!(cores));
        fields.insert("options".to_owned(), common.shown(size));
        Self { fields, rounds: Map::new(), spreads: Map::new() }
    }

    /// A figure that was measured once a round: its median is the figure. Returns it.
    pub(crate) fn rounds(&mut self, name: &str, values: &[f64]) -> f64 {
        let middle = median(values);
        self.set(name, rounded(middle));
        self.rounds.insert(name.to_owned(), values.iter().copied().map(rounded).collect());
        self.spreads.insert(name.to_owned(), json!(rounded(spread(values))));
        middle
    }

    /// A figure that was calculated.
    pub(crate) fn number(&mut self, name: &str, value: f64) {
        self.set(name, rounded(value));
    }

    /// Anything else.
    pub(crate) fn set(&mut self, name: &str, value: impl Into<Value>) {
        self.fields.insert(name.to_owned(), value.into());
    }

    /// What a message cost in a run of so many.
    pub(crate) fn profile(&mut self, profile: &Profile, messages: u64) {
        self.set("per_message", profile.per_message(messages));
        let (by_time, by_calls) = profile.top(messages);
        self.set("top_by_time", by_time);
        self.set("top_by_calls", by_calls);
    }

    /// An option of this verb alone, beside the common ones.
    pub(crate) fn option(&mut self, name: &str, value: impl Into<Value>) {
        if let Some(options) = self.fields.get_mut("options").and_then(Value::as_object_mut) {
            options.insert(name.to_owned(), value.into());
        }
    }

    /// Prints everything.
    ///
    /// # Errors
    /// Standard output is closed.
    pub(crate) fn print(mut self, as_json: bool) -> anyhow::Result<()> {
        eprintln!("{}", self.table());
        if as_json {
            self.fields.insert("rounds".to_owned(), Value::Object(self.rounds));
            self.fields.insert("spread".to_owned(), Value::Object(self.spreads));
            let mut out = std::io::stdout().lock();
            serde_json::to_writer(&mut out, &self.fields)?;
            writeln!(out)?;
        }
        Ok(())
    }

    /// A figure a row; what was measured in rounds with all its values. Lists of objects stand below each other.
    fn table(&self) -> Table {
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        table.set_header(["figure", "value", "rounds", "spread"]);
        for (name, value) in &self.fields {
            let of = |map: &Map<String, Value>| map.get(name).map(plain).unwrap_or_default();
            match value {
                Value::Object(inner) => {
                    for (key, value) in inner {
                        table.add_row([format!("{name}.{key}"), plain(value)]);
                    }
                }
                Value::Array(rows) => {
                    for row in rows {
                        table.add_row([name.clone(), plain(row)]);
                    }
                }
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
                    table.add_row([name.clone(), plain(value), of(&self.rounds), of(&self.spreads)]);
                }
            }
        }
        table
    }
}

/// Text without its quotes, a list without its brackets, an object as its values with their names.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(plain).collect::<Vec<_>>().join(" "),
        Value::Object(fields) => {
            fields.iter().map(|(name, value)| format!("{name} {}", plain(value))).collect::<Vec<_>>().join("  ")
        }
        Value::Null => "none".to_owned(),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}

/// Four digits behind the point: more is noise.
pub(crate) fn rounded(value: f64) -> Value {
    json!((value * 10_000.0).round() / 10_000.0)
}
