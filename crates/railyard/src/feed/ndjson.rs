//! A JSON object a line. Blank lines are no instructions.

use std::io::BufRead;

use serde_json::value::RawValue;

use super::metered::Metered;
use super::{Broken, Row, Unreadable};

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// A file of lines.
pub(crate) struct Ndjson<R> {
    input: Metered<R>,
    line: Vec<u8>,
    items: u64,
}

impl<R: BufRead> Ndjson<R> {
    pub(super) fn new(input: R) -> Self {
        Self { input: Metered::new(input), line: Vec::new(), items: 0 }
    }

    pub(super) fn meter(&self) -> &Metered<R> {
        &self.input
    }

    pub(super) fn next(&mut self) -> Result<Option<Row>, Broken> {
        loop {
            let line = self.input.line();
            self.input.renew();
            self.line.clear();
            let read = self.input.read_until(b'\n', &mut self.line);
            let read = read.map_err(|error| Broken { line, place: None, what: error.to_string() })?;
            if read == 0 {
                return Ok(None);
            }
            let text = match line {
                1 => self.line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(&self.line),
                _ => &self.line,
            };
            let text = text.trim_ascii();
            if text.is_empty() {
                continue;
            }
            self.items += 1;
            return Ok(Some(Row { item: self.items, line, payment: object(text) }));
        }
    }
}

/// The text of an object; what it holds, the API reads.
fn object(text: &[u8]) -> Result<String, Unreadable> {
    let unreadable = |reason: String| Unreadable { reason, ..Unreadable::default() };
    match serde_json::from_slice::<&RawValue>(text) {
        Ok(value) if value.get().starts_with('{') => Ok(value.get().to_owned()),
        Ok(_) => Err(unreadable("is not a JSON object".to_owned())),
        Err(error) => {
            let said = error.to_string();
            let said = said.rsplit_once(" at line ").map_or(&*said, |(said, _)| said);
            Err(unreadable(format!("is not JSON: {said} at character {}", error.column())))
        }
    }
}
