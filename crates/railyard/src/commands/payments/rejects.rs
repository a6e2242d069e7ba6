//! What was rejected, one line each: line number, field, reason.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::Context;
use serde::Serialize;
use serde_json::Value;

use crate::feed::{Format, element_of};
use crate::output;

/// An instruction that is no payment.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Reject {
    line: u64,
    item: u64,
    payment_id: Option<String>,
    field: Option<String>,
    reason: String,
}

impl Reject {
    /// From the API's answer: the first field that is wrong, and everything that is wrong.
    pub(super) fn of(item: u64, line: u64, result: &Value) -> Self {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let errors = result["errors"].as_array().map(Vec::as_slice).unwrap_or_default();
        let said = |error: &Value| error["detail"].as_str().unwrap_or_default().to_owned();
        let reason = match errors.split_first() {
            Some((first, others)) => others.iter().fold(said(first), |reason, other| {
                format!("{reason}; {}: {}", other["field"].as_str().unwrap_or_default(), said(other))
            }),
            None => text(&result["error"]).unwrap_or_default(),
        };
        let field = errors.first().and_then(|first| text(&first["field"]));
        Self { line, item, payment_id: text(&result["paymentId"]), field, reason }
    }

    fn in_words(&self) -> String {
        let field = self.field.as_ref().map(|field| format!("{field}: ")).unwrap_or_default();
        output::printable(&format!("line {}: {field}{}", self.line, self.reason))
    }
}

/// Where they go.
pub(super) struct Rejects {
    to: To,
    format: Format,
}

enum To {
    Csv(Box<csv::Writer<BufWriter<File>>>),
    Ndjson(BufWriter<File>),
    /// Said instead.
    Nowhere,
}

impl Rejects {
    /// Begins the file anew: the whole feed is answered again.
    ///
    /// # Errors
    /// It cannot be written.
    pub(super) fn open(path: Option<&Path>, format: Format) -> anyhow::Result<Self> {
        let Some(path) = path else { return Ok(Self { to: To::Nowhere, format }) };
        let file = File::create(path).with_context(|| format!("write {}", path.display()))?;
        let file = BufWriter::new(file);
        let is_csv = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("csv"));
        let to = if is_csv {
            let mut writer = csv::WriterBuilder::new().has_headers(false).from_writer(file);
            writer.write_record(["line", "item", "paymentId", "field", "reason"])?;
            To::Csv(Box::new(writer))
        } else {
            To::Ndjson(file)
        };
        Ok(Self { to, format })
    }

    /// Writes one. What is to be said of it, if it was not written.
    ///
    /// # Errors
    /// It cannot be written.
    pub(super) fn add(&mut self, reject: &Reject) -> anyhow::Result<Option<String>> {
        // A bank's file has elements; the API's names stand in no such file.
        let field = match self.format {
            Format::Pain001 => reject.field.as_deref().map(|field| element_of(field).to_owned()),
            Format::Ndjson | Format::Csv => reject.field.clone(),
        };
        let Reject { line, item, payment_id, reason, .. } = reject;
        let (line, item) = (*line, *item);
        let reject = Reject { line, item, payment_id: payment_id.clone(), field, reason: reason.clone() };
        match &mut self.to {
            To::Csv(writer) => {
                let empty = Option::unwrap_or_default;
                let numbers = [line.to_string(), item.to_string()];
                let texts = [empty(reject.payment_id), empty(reject.field), reject.reason];
                writer.write_record(numbers.into_iter().chain(texts))?;
            }
            To::Ndjson(file) => {
                serde_json::to_writer(&mut *file, &reject)?;
                file.write_all(b"\n")?;
            }
            To::Nowhere => return Ok(Some(reject.in_words())),
        }
        Ok(None)
    }

    /// The end.
    ///
    /// # Errors
    /// It cannot be written.
    pub(super) fn end(self) -> anyhow::Result<()> {
        match self.to {
            To::Csv(mut writer) => writer.flush()?,
            To::Ndjson(mut file) => file.flush()?,
            To::Nowhere => {}
        }
        Ok(())
    }
}
