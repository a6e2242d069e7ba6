//! A row a payment, under a row of the API's names in any order. Commas, or semicolons if those stand between the names.
//! An empty field is one that is left out.

use std::collections::BTreeMap;
use std::io::{BufRead, Read};

use ::csv::{ByteRecord, Reader, ReaderBuilder, Terminator};

use super::metered::Metered;
use super::names::FIELDS;
use super::{Broken, Row, Unreadable};

const BYTE_ORDER_MARK: &str = "\u{feff}";

/// A file of rows.
pub(crate) struct Csv<R> {
    rows: Reader<Named<R>>,
    record: ByteRecord,
    /// Which column is which field.
    columns: Vec<&'static str>,
    items: u64,
}

/// The line of names is read before anything is parsed: what stands between them is what stands between all fields.
struct Named<R> {
    names: std::io::Cursor<Vec<u8>>,
    rest: Metered<R>,
}

impl<R: BufRead> Read for Named<R> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        match self.names.read(into)? {
            0 => self.rest.read(into),
            read => Ok(read),
        }
    }
}

impl<R: BufRead> Csv<R> {
    pub(super) fn new(input: R) -> Self {
        let mut rest = Metered::new(input);
        let mut names = Vec::new();
        // An error comes again when the rest is read.
        let _ = rest.read_until(b'\n', &mut names);
        if names.last().is_some_and(|last| *last != b'\n') {
            names.push(b'\n');
        }
        let semicolon = names.contains(&b';') && !names.contains(&b',');
        // Lines end with \n alone for the parser, so that it counts them; a \r before it is taken off here.
        let rows = ReaderBuilder::new()
            .has_headers(false)
            .flexible(true)
            .delimiter(if semicolon { b';' } else { b',' })
            .terminator(Terminator::Any(b'\n'))
            .from_reader(Named { names: std::io::Cursor::new(names), rest });
        Self { rows, record: ByteRecord::new(), columns: Vec::new(), items: 0 }
    }

    pub(super) fn meter(&self) -> &Metered<R> {
        &self.rows.get_ref().rest
    }

    pub(super) fn next(&mut self) -> Result<Option<Row>, Broken> {
        if self.columns.is_empty() {
            let Some(line) = self.read()? else {
                return Err(Broken { line: 1, place: None, what: "there is no row of names".to_owned() });
            };
            self.columns = columns(&self.record, line)?;
        }
        let Some(line) = self.read()? else { return Ok(None) };
        self.items += 1;
        let payment = payment(&self.columns, &self.record);
        Ok(Some(Row { item: self.items, line, payment }))
    }

    /// The next row that is not blank, and the line that it begins in.
    fn read(&mut self) -> Result<Option<u64>, Broken> {
        loop {
            self.rows.get_mut().rest.renew();
            let before = self.rows.position().line();
            let read = self.rows.read_byte_record(&mut self.record);
            let behind = self.rows.position().line();
            let read = read.map_err(|error| Broken { line: behind, place: None, what: error.to_string() })?;
            if !read {
                return Ok(None);
            }
            trim_end(&mut self.record);
            if self.record.iter().all(|field| field.trim_ascii().is_empty()) {
                continue;
            }
            // Its own newline, and those within its fields, are behind it.
            let newlines = self.record.iter().flatten().filter(|byte| **byte == b'\n').count();
            let line = behind.saturating_sub(1).saturating_sub(u64::try_from(newlines).unwrap_or(u64::MAX)).max(before);
            // No field may hold one; rows that a quote has swallowed would be missing from the account.
            if newlines > 0 {
                let what = "a quoted field goes on behind the end of its line".to_owned();
                return Err(Broken { line, place: None, what });
            }
            return Ok(Some(line));
        }
    }
}

/// Takes the \r off the last field.
fn trim_end(record: &mut ByteRecord) {
    let Some(last) = record.iter().next_back().and_then(|last| last.strip_suffix(b"\r")).map(<[u8]>::to_vec) else {
        return;
    };
    let kept = record.len() - 1;
    let mut trimmed: ByteRecord = record.iter().take(kept).collect();
    trimmed.push_field(&last);
    *record = trimmed;
}

fn columns(record: &ByteRecord, line: u64) -> Result<Vec<&'static str>, Broken> {
    let broken = |column: &str, what: String| Broken { line, place: Some(format!("column {column}")), what };
    let mut columns = Vec::new();
    for (index, name) in record.iter().enumerate() {
        let name = String::from_utf8_lossy(name);
        let name = if index == 0 { name.trim_start_matches(BYTE_ORDER_MARK) } else { &name };
        let name = name.trim();
        let shown: String = name.chars().filter(|c| !c.is_control()).take(40).collect();
        let Some((known, _)) = FIELDS.iter().find(|(known, _)| *known == name) else {
            let names: Vec<&str> = FIELDS.iter().map(|(known, _)| *known).collect();
            return Err(broken(&shown, format!("is not one of {}", names.join(", "))));
        };
        if columns.contains(known) {
            return Err(broken(known, "stands there twice".to_owned()));
        }
        columns.push(*known);
    }
    match FIELDS.iter().find(|(name, required)| *required && !columns.contains(name)) {
        Some((name, _)) => Err(broken(name, "is missing".to_owned())),
        None => Ok(columns),
    }
}

fn payment(columns: &[&'static str], record: &ByteRecord) -> Result<String, Unreadable> {
    let text = |field: &str| {
        let index = columns.iter().position(|column| *column == field)?;
        std::str::from_utf8(record.get(index)?).ok().filter(|text| !text.is_empty()).map(str::to_owned)
    };
    let unreadable = |field: Option<&str>, reason: String| Unreadable {
        payment_id: text("paymentId"),
        field: field.map(str::to_owned),
        reason,
    };
    if record.len() != columns.len() {
        return Err(unreadable(None, format!("has {} fields, and the names are {}", record.len(), columns.len())));
    }
    let mut fields: BTreeMap<&str, &str> = BTreeMap::new();
    for (column, field) in columns.iter().zip(record) {
        match std::str::from_utf8(field) {
            Ok("") => {}
            Ok(field) => {
                fields.insert(column, field);
            }
            Err(_) => return Err(unreadable(Some(column), "is not UTF-8".to_owned())),
        }
    }
    serde_json::to_string(&fields).map_err(|error| unreadable(None, error.to_string()))
}
