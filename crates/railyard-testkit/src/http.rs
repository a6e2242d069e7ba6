//! A small HTTP client for the API under test: one connection a request, any bytes, nothing decided for the caller.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Longest exchange by default.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Talks to one address, with a bearer token or without.
#[derive(Debug, Clone)]
pub struct Http {
    address: SocketAddr,
    token: Option<String>,
    timeout: Duration,
}

/// What came back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Status code.
    pub status: u16,
    /// Headers in order.
    pub headers: Vec<(String, String)>,
    /// Body bytes, without chunk framing.
    pub body: Bytes,
}

impl Http {
    /// For the server at this address; without a token.
    pub fn to(address: SocketAddr) -> Http {
        Http { address, token: None, timeout: TIMEOUT }
    }

    /// With this bearer token on every request.
    pub fn with_token(mut self, token: &str) -> Http {
        self.token = Some(token.to_owned());
        self
    }

    /// Without a token.
    pub fn without_token(mut self) -> Http {
        self.token = None;
        self
    }

    /// With another time limit than 30 s over the whole exchange.
    pub fn with_timeout(mut self, timeout: Duration) -> Http {
        self.timeout = timeout;
        self
    }

    /// GET.
    ///
    /// # Errors
    /// Connection, time limit, or an answer that is no HTTP.
    pub async fn get(&self, path: &str) -> io::Result<Answer> {
        self.send("GET", path, &[], b"").await
    }

    /// DELETE.
    ///
    /// # Errors
    /// As [`Http::get`].
    pub async fn delete(&self, path: &str) -> io::Result<Answer> {
        self.send("DELETE", path, &[], b"").await
    }

    /// POST of a JSON value.
    ///
    /// # Errors
    /// As [`Http::get`].
    pub async fn post(&self, path: &str, body: &Value) -> io::Result<Answer> {
        self.post_text(path, &body.to_string()).await
    }

    /// POST of text as `application/json`, for bodies that must stay as they are.
    ///
    /// # Errors
    /// As [`Http::get`].
    pub async fn post_text(&self, path: &str, body: &str) -> io::Result<Answer> {
        self.send("POST", path, &[("Content-Type", "application/json")], body.as_bytes()).await
    }

    /// Any request. Host, Content-Length, Connection and the token are added; headers are sent as given.
    ///
    /// # Errors
    /// As [`Http::get`].
    pub async fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> io::Result<Answer> {
        let mut head = format!("{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n", self.address);
        if let Some(token) = &self.token {
            head.push_str(&format!("Authorization: Bearer {token}\r\n"));
        }
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str(&format!("Content-Length: {}\r\n\r\n", body.len()));
        let request = [head.as_bytes(), body].concat();
        tokio::time::timeout(self.timeout, self.exchange(&request)).await?
    }

    async fn exchange(&self, request: &[u8]) -> io::Result<Answer> {
        let mut stream = TcpStream::connect(self.address).await?;
        // A server that refuses early closes while we still write; what it said is what counts.
        let written = stream.write_all(request).await;
        let mut bytes = Vec::new();
        let read = stream.read_to_end(&mut bytes).await;
        match Answer::parse(&bytes) {
            Some(answer) => Ok(answer),
            None => {
                written?;
                read?;
                Err(io::Error::other(format!("no HTTP answer: {:?}", String::from_utf8_lossy(&bytes))))
            }
        }
    }
}

impl Answer {
    /// The body as JSON.
    ///
    /// # Panics
    /// When it is none, with the answer.
    #[track_caller]
    pub fn json(&self) -> Value {
        match serde_json::from_slice(&self.body) {
            Ok(value) => value,
            Err(error) => panic!("{error} in {} {:?}", self.status, self.text()),
        }
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The first header of this name, in any letter case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    /// Passes the answer on if it has this status.
    ///
    /// # Panics
    /// Otherwise, with the body.
    #[track_caller]
    pub fn expect_status(self, status: u16) -> Answer {
        assert_eq!(self.status, status, "{}", self.text());
        self
    }

    fn parse(bytes: &[u8]) -> Option<Answer> {
        let end = bytes.windows(4).position(|window| window == b"\r\n\r\n")?;
        let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
        let mut lines = head.split("\r\n");
        let status = lines.next()?.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()?;
        let headers: Vec<(String, String)> = lines
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
            .collect();
        let body = Bytes::copy_from_slice(&bytes[end + 4..]);
        let answer = Answer { status, headers, body };
        let chunked = answer.header("Transfer-Encoding").is_some_and(|value| value.eq_ignore_ascii_case("chunked"));
        if chunked { Some(Answer { body: join_chunks(&answer.body)?, ..answer }) } else { Some(answer) }
    }
}

fn join_chunks(mut bytes: &[u8]) -> Option<Bytes> {
    let mut body = Vec::new();
    loop {
        let line = bytes.windows(2).position(|window| window == b"\r\n")?;
        let size = std::str::from_utf8(&bytes[..line]).ok()?.split(';').next()?.trim();
        let size = usize::from_str_radix(size, 16).ok()?;
        bytes = &bytes[line + 2..];
        if size == 0 {
            return Some(body.into());
        }
        body.extend_from_slice(bytes.get(..size)?);
        bytes = bytes.get(size + 2..)?;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::FakeRail;

    #[tokio::test]
    async fn a_request_goes_out_and_its_answer_comes_back() {
        let rail = FakeRail::start().await.json(409, &json!({ "detail": "no" })).header("X-Y", "z");
        let http = Http::to(rail.address()).with_token("secret");
        let answer = http.post("/a?b=c", &json!({ "n": 1 })).await.expect("an answer").expect_status(409);
        assert_eq!((answer.json(), answer.header("x-y")), (json!({ "detail": "no" }), Some("z")));
        let receipt = &rail.receipts()[0];
        assert_eq!((receipt.path.as_str(), receipt.text().as_str()), ("/a?b=c", "{\"n\":1}"));
        assert_eq!(receipt.header("Authorization"), Some("Bearer secret"));
    }

    #[test]
    fn chunks_are_joined() {
        let bytes = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n1;x\r\nd\r\n0\r\n\r\n";
        assert_eq!(Answer::parse(bytes).map(|answer| answer.text()), Some("abcd".into()));
    }

    #[tokio::test]
    async fn no_answer_is_an_error() {
        let rail = FakeRail::start().await.close();
        assert!(Http::to(rail.address()).get("/").await.is_err());
    }
}
