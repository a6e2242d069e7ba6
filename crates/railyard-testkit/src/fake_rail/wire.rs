//! HTTP/1.1 as bytes: one request read from a connection without losing what it looked like.

use std::io;
use std::time::Instant;

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

/// Largest head and body that are read; more is a fault of the test.
const HEAD_BYTES_MAX: usize = 1 << 20;
const BODY_BYTES_MAX: usize = 64 << 20;

/// A connection with or without TLS.
#[derive(Debug)]
pub(super) enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Stream {
    /// The socket below.
    pub(super) fn tcp(&self) -> &TcpStream {
        match self {
            Stream::Plain(tcp) => tcp,
            Stream::Tls(tls) => tls.get_ref().0,
        }
    }

    fn reader(&mut self) -> &mut (dyn AsyncRead + Unpin + Send) {
        match self {
            Stream::Plain(tcp) => tcp,
            Stream::Tls(tls) => tls,
        }
    }

    /// Writes all of it and flushes.
    pub(super) async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let writer: &mut (dyn AsyncWrite + Unpin + Send) = match self {
            Stream::Plain(tcp) => tcp,
            Stream::Tls(tls) => tls,
        };
        writer.write_all(bytes).await?;
        writer.flush().await
    }

    /// Ends our side in order (FIN, with TLS's farewell first).
    pub(super) async fn finish(&mut self) -> io::Result<()> {
        match self {
            Stream::Plain(tcp) => tcp.shutdown().await,
            Stream::Tls(tls) => tls.shutdown().await,
        }
    }
}

/// What was read ahead, and how much was read in all.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    buffer: BytesMut,
    pub(super) bytes: u64,
}

/// A parsed head with its own bytes.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) first_byte_at: Instant,
    pub(super) raw: Bytes,
    pub(super) method: String,
    pub(super) path: String,
    pub(super) headers: Vec<(String, String)>,
}

impl Inbox {
    /// Reads what comes next; false at the end.
    async fn more(&mut self, stream: &mut Stream) -> io::Result<bool> {
        let read = stream.reader().read_buf(&mut self.buffer).await?;
        self.bytes += read as u64;
        Ok(read > 0)
    }

    /// The next head; `None` if the client ended between two requests.
    pub(super) async fn head(&mut self, stream: &mut Stream) -> io::Result<Option<Head>> {
        let mut first_byte_at = (!self.buffer.is_empty()).then(Instant::now);
        loop {
            if let Some(end) = find(&self.buffer, b"\r\n\r\n") {
                let raw = self.buffer.split_to(end + 4).freeze();
                return parse(raw, first_byte_at.unwrap_or_else(Instant::now)).map(Some);
            }
            if self.buffer.len() > HEAD_BYTES_MAX {
                return Err(io::Error::other("a head of more than a mebibyte"));
            }
            if !self.more(stream).await? {
                return if self.buffer.is_empty() { Ok(None) } else { Err(io::ErrorKind::UnexpectedEof.into()) };
            }
            first_byte_at.get_or_insert_with(Instant::now);
        }
    }

    /// The body that the head announces.
    pub(super) async fn body(&mut self, stream: &mut Stream, head: &Head) -> io::Result<Bytes> {
        let named = |name: &str| head.headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.trim());
        if named("transfer-encoding").is_some_and(|value| value.eq_ignore_ascii_case("chunked")) {
            return self.chunks(stream).await;
        }
        let Some(length) = named("content-length") else { return Ok(Bytes::new()) };
        let length = length.parse().map_err(|_| io::Error::other(format!("Content-Length {length:?}")))?;
        self.exactly(stream, length).await
    }

    async fn exactly(&mut self, stream: &mut Stream, length: usize) -> io::Result<Bytes> {
        if length > BODY_BYTES_MAX {
            return Err(io::Error::other("a body of more than 64 mebibytes"));
        }
        while self.buffer.len() < length {
            if !self.more(stream).await? {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(self.buffer.split_to(length).freeze())
    }

    async fn chunks(&mut self, stream: &mut Stream) -> io::Result<Bytes> {
        let mut body = BytesMut::new();
        loop {
            let line = self.line(stream).await?;
            let size = String::from_utf8_lossy(&line);
            let size = usize::from_str_radix(size.split(';').next().unwrap_or_default().trim(), 16)
                .map_err(|_| io::Error::other(format!("chunk size {size:?}")))?;
            if size == 0 {
                // Trailers, up to the empty line.
                while !self.line(stream).await?.is_empty() {}
                return Ok(body.freeze());
            }
            body.extend_from_slice(&self.exactly(stream, size).await?);
            self.exactly(stream, 2).await?;
        }
    }

    async fn line(&mut self, stream: &mut Stream) -> io::Result<Bytes> {
        loop {
            if let Some(end) = find(&self.buffer, b"\r\n") {
                let line = self.buffer.split_to(end).freeze();
                self.buffer.advance(2);
                return Ok(line);
            }
            if !self.more(stream).await? {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|window| window == needle)
}

/// Lenient: this is the receiver, and the sender is what is on trial. Only a missing request line is an error.
fn parse(raw: Bytes, first_byte_at: Instant) -> io::Result<Head> {
    let text = String::from_utf8_lossy(&raw).into_owned();
    let mut lines = text.split("\r\n");
    let mut request = lines.next().unwrap_or_default().split(' ');
    let (Some(method), Some(path)) = (request.next(), request.next()) else {
        return Err(io::Error::other("no request line"));
    };
    let headers = lines
        .filter(|line| !line.is_empty())
        .map(|line| line.split_once(':').map_or((line, ""), |(name, value)| (name, value.trim())))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    Ok(Head { first_byte_at, method: method.to_owned(), path: path.to_owned(), headers, raw })
}
