//! What commands print: tables for people, JSON for programs.

use std::io::Write;

use comfy_table::{ContentArrangement, Table, presets};
use serde::Serialize;
use serde_json::Value;

/// Prints a value as JSON, indented.
///
/// # Errors
/// The value cannot be written as JSON, or standard output is closed.
pub(crate) fn json(value: &impl Serialize) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    serde_json::to_writer_pretty(&mut out, value)?;
    writeln!(out)?;
    Ok(())
}

/// A value as a cell: text without quotes, nothing for null.
pub(crate) fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => printable(text),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => printable(&value.to_string()),
    }
}

/// Text of others, made harmless: an answer's body or a group's name must not move the cursor of who looks at it.
pub(crate) fn printable(text: &str) -> String {
    let visible = |c: char| if c.is_control() && c != '\n' && c != '\t' { char::REPLACEMENT_CHARACTER } else { c };
    text.chars().map(visible).collect()
}

/// The entries of an answer: a bare list, or one under `name` or `items`.
pub(crate) fn items<'a>(answer: &'a Value, name: &str) -> &'a [Value] {
    let list = answer.as_array().or_else(|| answer[name].as_array()).or_else(|| answer["items"].as_array());
    list.map_or(&[], Vec::as_slice)
}

/// Prints an object as a table of its fields; those without a value are left out.
pub(crate) fn fields(object: &Value) {
    let mut table = table(&["field", "value"]);
    for (field, value) in object.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null()) {
        table.add_row([field.clone(), text(value)]);
    }
    println!("{table}");
}

/// Prints objects as a table of these columns (heading, field). Columns without any value are left out.
pub(crate) fn rows(items: &[Value], columns: &[(&str, &str)]) {
    if items.is_empty() {
        println!("none");
        return;
    }
    let used: Vec<_> =
        columns.iter().filter(|(_, field)| items.iter().any(|item| !at(item, field).is_null())).collect();
    let headings: Vec<&str> = used.iter().map(|(heading, _)| *heading).collect();
    let mut table = table(&headings);
    for item in items {
        table.add_row(used.iter().map(|(_, field)| text(at(item, field))));
    }
    println!("{table}");
}

/// The value at `a.b`; null if there is none.
fn at<'a>(item: &'a Value, path: &str) -> &'a Value {
    path.split('.').fold(item, |value, key| &value[key])
}

fn table(headings: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header(headings.iter().copied());
    table
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn lists_are_found_under_each_name() {
        for answer in [json!([1]), json!({"groups": [1]}), json!({"items": [1]})] {
            assert_eq!(items(&answer, "groups"), [json!(1)]);
        }
        assert!(items(&json!({"groups": null}), "groups").is_empty());
    }

    #[test]
    fn escape_sequences_of_others_are_not_printed() {
        assert_eq!(text(&json!("a\u{1b}[2Jb\nc")), "a\u{fffd}[2Jb\nc");
    }

    #[test]
    fn paths_reach_into_objects() {
        assert_eq!(at(&json!({"head": {"id": 7}}), "head.id"), 7);
        assert!(at(&json!({"head": null}), "head.id").is_null());
    }
}
