//! What one request looked like to the receiver.

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use bytes::Bytes;

use super::Reply;

/// One exchange, from its first byte to the end of its answer. Cheap to clone: bytes are shared.
#[derive(Debug, Clone)]
pub struct Receipt {
    /// Number of the exchange, from 0, in the order of the heads.
    pub index: usize,
    /// Number of its connection, from 0.
    pub connection: usize,
    /// When its first byte was read.
    pub first_byte_at: Instant,
    /// When its last byte was read; `None` while it is incomplete or if the client left before.
    pub complete_at: Option<Instant>,
    /// The receiver's clock when its last byte was read (when the head was read, before that), for the freshness of
    /// signatures.
    pub clock: SystemTime,
    /// Request line and headers as they came, with the empty line.
    pub head: Bytes,
    /// Method.
    pub method: String,
    /// Path with query.
    pub path: String,
    /// Headers in the order and spelling in which they came, repeated ones too.
    pub headers: Arc<Vec<(String, String)>>,
    /// The body's bytes; of a chunked body without the framing.
    pub body: Bytes,
    /// The answer that was chosen; `None` while the request is incomplete.
    pub reply: Option<Reply>,
    /// When the last byte of the answer was handed to the system, or the client was found gone.
    pub finished_at: Option<Instant>,
    /// The client left, or reset, before the answer was out.
    pub client_aborted: bool,
}

impl Receipt {
    /// The first header of this name, in any letter case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    /// All values of this name, in any letter case, in order.
    pub fn headers_named(&self, name: &str) -> Vec<&str> {
        self.headers.iter().filter(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str()).collect()
    }

    /// `X-Railyard-Group`.
    pub fn group(&self) -> Option<&str> {
        self.header("X-Railyard-Group")
    }

    /// `X-Railyard-Sequence`.
    pub fn sequence(&self) -> Option<i64> {
        self.header("X-Railyard-Sequence")?.parse().ok()
    }

    /// `X-Railyard-Attempt`.
    pub fn attempt(&self) -> Option<i64> {
        self.header("X-Railyard-Attempt")?.parse().ok()
    }

    /// `Idempotency-Key`: the outbox id, the same on every attempt.
    pub fn idempotency_key(&self) -> Option<&str> {
        self.header("Idempotency-Key")
    }

    /// What tells messages apart here: the idempotency key, or the body where there is none.
    pub fn message_key(&self) -> String {
        self.idempotency_key().map_or_else(|| String::from_utf8_lossy(&self.body).into_owned(), str::to_owned)
    }

    /// The body as text, for messages of a test.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Whether the receiver took the message: it answered 2xx (not `{"ack":false}`) and the answer went out.
    pub fn accepted(&self) -> bool {
        self.finished_at.is_some() && !self.client_aborted && self.reply.as_ref().is_some_and(Reply::accepts)
    }

    /// One line for a failure's message.
    pub fn line(&self) -> String {
        let reply = self.reply.as_ref().map(|reply| match reply.code() {
            Some(code) => code.to_string(),
            None => format!("{reply:?}"),
        });
        format!(
            "#{} connection {} {} {} group {} sequence {} attempt {} key {} → {}{}",
            self.index,
            self.connection,
            self.method,
            self.path,
            self.group().unwrap_or("-"),
            self.header("X-Railyard-Sequence").unwrap_or("-"),
            self.header("X-Railyard-Attempt").unwrap_or("-"),
            self.idempotency_key().unwrap_or("-"),
            reply.as_deref().unwrap_or("nothing yet"),
            if self.client_aborted { ", client gone" } else { "" },
        )
    }
}

/// What one connection brought.
#[derive(Debug, Clone)]
pub struct ConnectionRecord {
    /// When it was accepted.
    pub accepted_at: Instant,
    /// Bytes of HTTP that came over it; behind TLS, those that were decrypted.
    pub bytes: u64,
    /// Why TLS failed, if it did.
    pub tls_error: Option<String>,
    /// Why it ended, if not in order.
    pub error: Option<String>,
    /// When it ended, on whichever side.
    pub closed_at: Option<Instant>,
}
