//! Elements as they open and close, with the path to each. Names without their prefixes: banks differ in those.
//!
//! No document type, so that there are no entities but XML's own; UTF-8 alone; whatever is held has a bound.

use std::io::BufRead;

use quick_xml::Reader;
use quick_xml::events::{BytesRef, BytesStart, Event};

use crate::feed::Broken;
use crate::feed::metered::Metered;

/// The names from the root to here, with what is between them.
const PATH_BYTES_MAX: usize = 1000;
/// Text of one element, however it is cut up.
const TEXT_BYTES_MAX: usize = 64 * 1024;

/// What an element does.
pub(super) enum Tag {
    /// It begins. Its namespace, if it names one itself, and its currency likewise.
    Open { namespace: Option<String>, currency: Option<String> },
    /// It ends: its own text, without what is blank around it. The path is still its own.
    Close { text: String },
}

/// A document.
pub(super) struct Xml<R> {
    reader: Reader<Metered<R>>,
    buffer: Vec<u8>,
    /// `a/b/c`.
    path: String,
    text: String,
    /// The element on the path is over: it leaves the path when the next event is asked for.
    leaves: bool,
    /// It was empty, and has still to be closed.
    closes: bool,
    /// The root is over.
    is_over: bool,
}

impl<R: BufRead> Xml<R> {
    pub(super) fn new(input: R) -> Self {
        Self {
            reader: Reader::from_reader(Metered::new(input)),
            buffer: Vec::new(),
            path: String::new(),
            text: String::new(),
            leaves: false,
            closes: false,
            is_over: false,
        }
    }

    pub(super) fn meter(&self) -> &Metered<R> {
        self.reader.get_ref()
    }

    /// The line that was read to.
    pub(super) fn line(&self) -> u64 {
        self.meter().line()
    }

    /// The element that opened or closed last.
    pub(super) fn path(&self) -> &str {
        &self.path
    }

    fn broken(&self, what: impl Into<String>) -> Broken {
        let place = Some(self.path.clone()).filter(|path| !path.is_empty());
        Broken { line: self.line(), place, what: what.into() }
    }

    /// What comes next; none at the end.
    pub(super) fn next(&mut self) -> Result<Option<Tag>, Broken> {
        if std::mem::take(&mut self.leaves) {
            let parent = self.path.rfind('/').unwrap_or(0);
            self.path.truncate(parent);
            self.is_over = self.path.is_empty();
        }
        if std::mem::take(&mut self.closes) {
            return Ok(Some(self.close()));
        }
        let mut buffer = std::mem::take(&mut self.buffer);
        let found = loop {
            buffer.clear();
            self.reader.get_mut().renew();
            match self.reader.read_event_into(&mut buffer) {
                Ok(event) => match self.take(event) {
                    Ok(Took::Nothing) => {}
                    Ok(Took::Tag(tag)) => break Ok(Some(tag)),
                    Ok(Took::End) => break Ok(None),
                    Err(broken) => break Err(broken),
                },
                Err(error) => break Err(self.broken(error.to_string())),
            }
        };
        self.buffer = buffer;
        found
    }

    fn take(&mut self, event: Event<'_>) -> Result<Took, Broken> {
        match event {
            Event::Start(tag) => self.open(&tag).map(Took::Tag),
            Event::Empty(tag) => {
                let opened = self.open(&tag)?;
                self.closes = true;
                Ok(Took::Tag(opened))
            }
            Event::End(_) => Ok(Took::Tag(self.close())),
            Event::Text(text) => self.append(&text.xml10_content()),
            Event::CData(text) => self.append(&text.xml10_content()),
            Event::GeneralRef(reference) => {
                let resolved = self.resolve(&reference)?;
                self.append(resolved.encode_utf8(&mut [0; 4]))
            }
            Event::Decl(declaration) => match declaration.encoding() {
                Some(Ok(encoding)) if !encoding.eq_ignore_ascii_case("utf-8") => {
                    let encoding: String = encoding.chars().take(40).collect();
                    Err(self.broken(format!("its encoding is {encoding}; UTF-8 alone is read")))
                }
                Some(Err(error)) => Err(self.broken(error.to_string())),
                Some(Ok(_)) | None => Ok(Took::Nothing),
            },
            Event::DocType(_) => Err(self.broken("has a document type, which no payment file needs")),
            Event::Comment(_) | Event::PI(_) => Ok(Took::Nothing),
            Event::Eof if !self.path.is_empty() => Err(self.broken("does not end: the file breaks off")),
            Event::Eof if !self.is_over => Err(self.broken("has no element")),
            Event::Eof => Ok(Took::End),
        }
    }

    fn open(&mut self, tag: &BytesStart<'_>) -> Result<Tag, Broken> {
        if self.is_over {
            return Err(self.broken("something stands behind the end of the document"));
        }
        let name = tag.local_name();
        if self.path.len() + name.as_ref().len() >= PATH_BYTES_MAX {
            return Err(self.broken("holds elements too deep, or names too long"));
        }
        if !self.path.is_empty() {
            self.path.push('/');
        }
        self.path.push_str(name.as_ref());
        self.text.clear();
        let declares = match tag.name().prefix() {
            Some(prefix) => format!("xmlns:{}", prefix.as_ref()),
            None => "xmlns".to_owned(),
        };
        let mut opened = (None, None);
        for attribute in tag.attributes() {
            let attribute = attribute.map_err(|error| self.broken(error.to_string()))?;
            match attribute.key.as_ref() {
                key if key == declares => opened.0 = Some(attribute.value.trim().to_owned()),
                "Ccy" => opened.1 = Some(attribute.value.trim().to_owned()),
                _ => {}
            }
        }
        Ok(Tag::Open { namespace: opened.0, currency: opened.1 })
    }

    fn close(&mut self) -> Tag {
        self.leaves = true;
        let text = self.text.trim().to_owned();
        self.text.clear();
        Tag::Close { text }
    }

    fn append(&mut self, text: &str) -> Result<Took, Broken> {
        if self.path.is_empty() && !text.trim().is_empty() {
            return Err(self.broken("text stands outside of all elements"));
        }
        if self.text.len() + text.len() > TEXT_BYTES_MAX {
            return Err(self.broken(format!("has text of more than {TEXT_BYTES_MAX} bytes")));
        }
        self.text.push_str(text);
        Ok(Took::Nothing)
    }

    fn resolve(&self, reference: &BytesRef<'_>) -> Result<char, Broken> {
        let given = reference.xml10_content();
        match &*given {
            "lt" => return Ok('<'),
            "gt" => return Ok('>'),
            "amp" => return Ok('&'),
            "apos" => return Ok('\''),
            "quot" => return Ok('"'),
            _ => {}
        }
        match reference.resolve_char_ref() {
            Ok(Some(character)) => Ok(character),
            Ok(None) => {
                let name: String = given.chars().take(40).collect();
                Err(self.broken(format!("has an entity that XML does not know: &{name};")))
            }
            Err(error) => Err(self.broken(error.to_string())),
        }
    }
}

/// What an event came to.
enum Took {
    Nothing,
    Tag(Tag),
    End,
}
