//! Every way in which the receiver can answer or fail to.

use std::time::Duration;

use bytes::Bytes;

/// One answer, from polite to hostile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// A complete response; Content-Length is added.
    Full {
        /// Status code.
        status: u16,
        /// Further headers, as given.
        headers: Vec<(String, String)>,
        /// Body bytes.
        body: Bytes,
    },
    /// A reset (RST) after the whole request was read, without an answer.
    Reset,
    /// An orderly end (FIN) after the whole request was read, without an answer.
    Close,
    /// A head that announces 100 bytes, 10 of them, then FIN.
    TruncatedBody {
        /// Status code.
        status: u16,
    },
    /// A head that announces 3600 bytes, then one of them each interval.
    Drip {
        /// Status code.
        status: u16,
        /// Time between two bytes.
        every: Duration,
    },
    /// The head itself, one byte each interval.
    SlowHead {
        /// Time between two bytes.
        every: Duration,
    },
    /// The body of the request is not read, and nothing is answered, as long as the client stays.
    NeverRead,
    /// The request is read, nothing is answered, as long as the client stays.
    Silence,
    /// Bytes that are no HTTP, then FIN.
    Garbage,
}

impl Reply {
    /// A complete response without a body.
    pub fn status(status: u16) -> Reply {
        Reply::Full { status, headers: Vec::new(), body: Bytes::new() }
    }

    /// A complete response with a JSON body.
    pub fn json(status: u16, body: &serde_json::Value) -> Reply {
        Reply::status(status).with_header("Content-Type", "application/json").with_body(body.to_string())
    }

    /// Adds a header to a complete response; others stay as they are.
    pub fn with_header(mut self, name: &str, value: &str) -> Reply {
        if let Reply::Full { headers, .. } = &mut self {
            headers.push((name.to_owned(), value.to_owned()));
        }
        self
    }

    /// Sets the body of a complete response; others stay as they are.
    pub fn with_body(mut self, bytes: impl Into<Bytes>) -> Reply {
        if let Reply::Full { body, .. } = &mut self {
            *body = bytes.into();
        }
        self
    }

    /// The status, where one is sent.
    pub fn code(&self) -> Option<u16> {
        match self {
            Reply::Full { status, .. } | Reply::TruncatedBody { status } | Reply::Drip { status, .. } => Some(*status),
            Reply::SlowHead { .. } => Some(200),
            Reply::Reset | Reply::Close | Reply::NeverRead | Reply::Silence | Reply::Garbage => None,
        }
    }

    /// Whether the answer says that the message was taken: 2xx, and not `{"ack": false}`.
    pub fn accepts(&self) -> bool {
        let refused = || match self {
            Reply::Full { body, .. } => serde_json::from_slice::<serde_json::Value>(body)
                .is_ok_and(|value| value.get("ack") == Some(&serde_json::Value::Bool(false))),
            Reply::Reset
            | Reply::Close
            | Reply::TruncatedBody { .. }
            | Reply::Drip { .. }
            | Reply::SlowHead { .. }
            | Reply::NeverRead
            | Reply::Silence
            | Reply::Garbage => false,
        };
        self.code().is_some_and(|code| (200..300).contains(&code)) && !refused()
    }
}
