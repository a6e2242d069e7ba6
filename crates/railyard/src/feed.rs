//! Files of payments, read as a stream: NDJSON, CSV, and ISO 20022 pain.001. No files and no network here: a reader of
//! bytes goes in, instructions come out, one at a time, and what is held at once has a bound ([`metered::PIECE_BYTES_MAX`])
//! however long the file is.
//!
//! An instruction is JSON as `POST /api/payments` takes it; whether its fields are right, the API says. What cannot even
//! be made one is [`Unreadable`] with its line, and the file goes on behind it; what leaves no sense in the rest of the
//! file is [`Broken`], with line and place.

mod csv;
mod metered;
mod names;
mod ndjson;
mod pain001;
#[cfg(test)]
mod tests;

use std::fmt;
use std::io::BufRead;

use jiff::civil::Time;
use jiff::tz::TimeZone;

pub(crate) use names::element_of;

/// The forms of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// A JSON object a line.
    Ndjson,
    /// A row a payment, under a row of names.
    Csv,
    /// ISO 20022 customer credit transfer initiation, versions 001.001.03 and 001.001.09.
    Pain001,
}

impl Format {
    /// As the API says it.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Ndjson => "ndjson",
            Self::Csv => "csv",
            Self::Pain001 => "pain.001",
        }
    }
}

/// When on its day a payment is asked for that names a day alone.
#[derive(Clone, Debug)]
pub(crate) struct Clock {
    /// The time of that day.
    pub(crate) time: Time,
    /// Where.
    pub(crate) zone: TimeZone,
}

/// An instruction of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    /// Which of the file, from 1.
    pub(crate) item: u64,
    /// The line that it begins in, from 1.
    pub(crate) line: u64,
    /// A JSON object, or why there is none.
    pub(crate) payment: Result<String, Unreadable>,
}

/// What no payment can be made of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Unreadable {
    /// The payment's id, if that much could be read.
    pub(crate) payment_id: Option<String>,
    /// The field or element that is to blame.
    pub(crate) field: Option<String>,
    /// What is wrong.
    pub(crate) reason: String,
}

/// Why a file cannot be read any further.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Broken {
    /// From 1.
    pub(crate) line: u64,
    /// The element or column.
    pub(crate) place: Option<String>,
    /// What is wrong.
    pub(crate) what: String,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}", self.line)?;
        if let Some(place) = &self.place {
            write!(f, ", {place}")?;
        }
        write!(f, ": {}", self.what)
    }
}

impl std::error::Error for Broken {}

/// A file that is being read.
pub(crate) enum Reading<R: BufRead> {
    Ndjson(ndjson::Ndjson<R>),
    Csv(Box<csv::Csv<R>>),
    Pain001(Box<pain001::Pain001<R>>),
}

impl<R: BufRead> Reading<R> {
    /// Begins to read.
    pub(crate) fn new(format: Format, input: R, clock: &Clock) -> Self {
        match format {
            Format::Ndjson => Self::Ndjson(ndjson::Ndjson::new(input)),
            Format::Csv => Self::Csv(Box::new(csv::Csv::new(input))),
            Format::Pain001 => Self::Pain001(Box::new(pain001::Pain001::new(input, clock.clone()))),
        }
    }

    /// The next instruction; none at the end.
    ///
    /// # Errors
    /// The file is broken here, or cannot be read.
    pub(crate) fn next(&mut self) -> Result<Option<Row>, Broken> {
        match self {
            Self::Ndjson(file) => file.next(),
            Self::Csv(file) => file.next(),
            Self::Pain001(file) => file.next(),
        }
    }

    /// Bytes that were read so far.
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Self::Ndjson(file) => file.meter().bytes_read(),
            Self::Csv(file) => file.meter().bytes_read(),
            Self::Pain001(file) => file.meter().bytes_read(),
        }
    }

    /// SHA-256 of them.
    pub(crate) fn sha256(&self) -> [u8; 32] {
        match self {
            Self::Ndjson(file) => file.meter().sha256(),
            Self::Csv(file) => file.meter().sha256(),
            Self::Pain001(file) => file.meter().sha256(),
        }
    }
}
