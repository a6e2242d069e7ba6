//! What a client says to PostgreSQL, cut into messages, with the statement behind each execution.

use std::collections::HashMap;

use bytes::{Buf, Bytes, BytesMut};

/// A message before the session begins has no type byte; these codes stand where its version would.
const SSL_REQUEST: u32 = 80_877_103;
const GSS_REQUEST: u32 = 80_877_104;

/// One whole message, and what the proxy must know of it.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) bytes: Bytes,
    pub(super) kind: Kind,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A wish for encryption, which the proxy declines itself.
    EncryptionRequest,
    /// The beginning of the session, which the server ends with its first ReadyForQuery.
    Startup,
    /// A simple query: text, answered up to a ReadyForQuery.
    Query(String),
    /// The execution of a prepared statement; answered after the Sync that follows.
    Execute(String),
    /// The end of a sequence of extended messages, answered with a ReadyForQuery.
    Sync,
    /// Anything else.
    Other,
}

/// Cuts a client's bytes into messages; keeps the texts of prepared statements and open portals.
#[derive(Debug, Default)]
pub(super) struct Frontend {
    buffer: BytesMut,
    started: bool,
    statements: HashMap<Bytes, String>,
    portals: HashMap<Bytes, String>,
}

impl Frontend {
    pub(super) fn buffer(&mut self) -> &mut BytesMut {
        &mut self.buffer
    }

    /// The next whole message, if it is there.
    pub(super) fn next(&mut self) -> Option<Message> {
        let head = usize::from(self.started);
        let length = self.buffer.get(head..head + 4)?;
        let length = usize::try_from(u32::from_be_bytes(length.try_into().ok()?)).ok()?;
        if self.buffer.len() < head + length {
            return None;
        }
        let bytes = self.buffer.split_to(head + length).freeze();
        let kind = if self.started { self.read(bytes[0], bytes.slice(5..)) } else { self.read_startup(&bytes) };
        Some(Message { bytes, kind })
    }

    fn read_startup(&mut self, bytes: &Bytes) -> Kind {
        let code = bytes.get(4..8).and_then(|code| code.try_into().ok()).map(u32::from_be_bytes);
        if matches!(code, Some(SSL_REQUEST | GSS_REQUEST)) {
            return Kind::EncryptionRequest;
        }
        self.started = true;
        Kind::Startup
    }

    fn read(&mut self, tag: u8, mut body: Bytes) -> Kind {
        match tag {
            b'Q' => Kind::Query(text(&c_string(&mut body))),
            // Parse: name, text, parameter types.
            b'P' => {
                let name = c_string(&mut body);
                let sql = text(&c_string(&mut body));
                self.statements.insert(name, sql);
                Kind::Other
            }
            // Bind: portal, statement, parameters.
            b'B' => {
                let portal = c_string(&mut body);
                let statement = c_string(&mut body);
                let sql = self.statements.get(&statement).cloned().unwrap_or_default();
                self.portals.insert(portal, sql);
                Kind::Other
            }
            b'E' => Kind::Execute(self.portals.get(&c_string(&mut body)).cloned().unwrap_or_default()),
            b'S' => Kind::Sync,
            _ => Kind::Other,
        }
    }
}

fn c_string(body: &mut Bytes) -> Bytes {
    let end = body.iter().position(|&byte| byte == 0).unwrap_or(body.len());
    let string = body.split_to(end);
    if body.has_remaining() {
        body.advance(1);
    }
    string
}

fn text(bytes: &Bytes) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(tag: u8, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(body.len() + 4).expect("short");
        [&[tag][..], &length.to_be_bytes(), body].concat()
    }

    fn kinds(frontend: &mut Frontend) -> Vec<Kind> {
        std::iter::from_fn(|| frontend.next()).map(|message| message.kind).collect()
    }

    #[test]
    fn messages_are_cut_however_they_arrive_and_prepared_texts_remembered() {
        let mut bytes = [8_u32.to_be_bytes(), SSL_REQUEST.to_be_bytes()].concat();
        bytes.extend([8_u32.to_be_bytes(), 196_608_u32.to_be_bytes()].concat());
        bytes.extend(message(b'P', b"s1\0commit\0\0\0"));
        bytes.extend(message(b'B', b"\0s1\0\0\0"));
        bytes.extend(message(b'E', b"\0\0\0\0\0"));
        bytes.extend(message(b'S', b""));
        bytes.extend(message(b'Q', b"select 1\0"));
        let mut frontend = Frontend::default();
        let mut found = Vec::new();
        for byte in bytes {
            frontend.buffer().extend_from_slice(&[byte]);
            found.extend(kinds(&mut frontend));
        }
        let execute = Kind::Execute("commit".into());
        let query = Kind::Query("select 1".into());
        let expected = [Kind::EncryptionRequest, Kind::Startup, Kind::Other, Kind::Other, execute, Kind::Sync, query];
        assert_eq!(found, expected);
    }
}
