//! Reading an answer: as much as is kept, and no more.

use http::header::{DATE, HeaderName, RETRY_AFTER};
use railyard_core::classify::Received;
use railyard_core::limits::RESPONSE_BODY_BYTES_MAX;
use reqwest::Response;

/// An answer under way. It is filled in place, so that a deadline in the middle of the body leaves what has come.
pub(crate) struct Reading {
    pub(crate) received: Received,
}

impl Reading {
    /// Takes the head.
    pub(crate) fn head(response: &Response) -> Self {
        let text = |name: HeaderName| {
            response.headers().get(name).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
        };
        let received = Received {
            status: response.status().as_u16(),
            retry_after: text(RETRY_AFTER),
            date: text(DATE),
            body: Vec::new(),
            truncated: false,
        };
        Self { received }
    }

    /// Reads the body up to what is kept. It ends at the first byte over that, and at the first error: the head has
    /// said what became of the message, and a body that breaks off does not unsay it. Dropping the response after
    /// that ends the connection instead of reading the rest.
    pub(crate) async fn body(&mut self, mut response: Response) {
        while let Ok(Some(piece)) = response.chunk().await {
            let room = RESPONSE_BODY_BYTES_MAX - self.received.body.len();
            if piece.len() > room {
                self.received.body.extend_from_slice(&piece[..room]);
                self.received.truncated = true;
                return;
            }
            self.received.body.extend_from_slice(&piece);
        }
    }
}
