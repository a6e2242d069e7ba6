//! A receiver that does as it is told and remembers every byte it got.
//!
//! `Receiver::start(Act::answer(500, ""))` reads as a sentence; `then` adds what the next connection gets, and the
//! last act is repeated for all that follow.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

/// Longer than any slot of a test.
pub(crate) const SLOW: Duration = Duration::from_millis(600);

/// What a connection gets.
#[derive(Clone)]
pub(crate) enum Act {
    /// Reads a whole request, writes these bytes, closes.
    Write(Vec<u8>),
    /// The same, but the TLS handshake begins [`SLOW`] after the connection.
    Slow(Vec<u8>),
    /// Like `Write`, and then waits for the next request on the connection.
    Keep(Vec<u8>),
    /// Reads a whole request, writes the head, then one byte each 50 ms for ever.
    Drip(Vec<u8>),
    /// Reads a whole request, writes the head, then as fast as it can for ever.
    Flood(Vec<u8>),
    /// Reads a whole request and says nothing.
    Silence,
    /// Does not even read.
    Deaf,
    /// Writes at once what nobody asked for, and closes.
    Greet(Vec<u8>),
    /// Reads a whole request and resets the connection.
    Reset,
}

impl Act {
    /// An answer of one status with a body.
    pub(crate) fn answer(status: u16, body: &str) -> Self {
        Self::with_headers(status, "", body)
    }

    /// The same with header lines, each ended by CR LF.
    pub(crate) fn with_headers(status: u16, headers: &str, body: &str) -> Self {
        let length = body.len();
        let text = format!("HTTP/1.1 {status} Said\r\nContent-Length: {length}\r\n{headers}\r\n{body}");
        Self::Write(text.into_bytes())
    }

    /// Bytes as they are.
    pub(crate) fn raw(bytes: &[u8]) -> Self {
        Self::Write(bytes.to_vec())
    }
}

/// What a receiver saw of one connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    /// Every byte, in order.
    pub(crate) bytes: Vec<u8>,
    /// The sender closed or reset it.
    pub(crate) ended: bool,
}

/// A server on a free port; ends when dropped.
pub(crate) struct Receiver {
    port: u16,
    seen: Arc<Mutex<Vec<Seen>>>,
    _task: JoinSet<()>,
}

impl Receiver {
    pub(crate) async fn start(act: Act) -> Self {
        Self::script(vec![act], None).await
    }

    /// One act for each connection; the last one stays.
    pub(crate) async fn script(acts: Vec<Act>, tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let mut task = JoinSet::new();
        task.spawn(accept(listener, acts, tls, Arc::clone(&seen)));
        Self { port, seen, _task: task }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}/hook?x=1", self.port)
    }

    /// All connections so far.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    /// Waits until the connections so far satisfy a condition.
    pub(crate) async fn until(&self, what: &str, condition: impl Fn(&[Seen]) -> bool) {
        let begun = Instant::now();
        while !condition(&self.seen()) {
            assert!(begun.elapsed() < Duration::from_secs(10), "waited for: {what}; seen {:?}", self.seen().len());
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// The only request, as text: head and body.
    pub(crate) fn request(&self) -> (String, Vec<u8>) {
        let seen = self.seen();
        assert_eq!(seen.len(), 1, "one connection");
        split(&seen[0].bytes)
    }
}

/// A request's head, with lower-case names as hyper writes them, and its body.
pub(crate) fn split(bytes: &[u8]) -> (String, Vec<u8>) {
    let end = bytes.windows(4).position(|at| at == b"\r\n\r\n").expect("a whole head");
    (String::from_utf8(bytes[..end].to_vec()).unwrap(), bytes[end + 4..].to_vec())
}

/// All values of a header.
pub(crate) fn values<'a>(head: &'a str, name: &str) -> Vec<&'a str> {
    let lines = head.split("\r\n").skip(1).filter_map(|line| line.split_once(": "));
    lines.filter(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value).collect()
}

async fn accept(listener: TcpListener, acts: Vec<Act>, tls: Option<TlsAcceptor>, seen: Arc<Mutex<Vec<Seen>>>) {
    let mut connections = JoinSet::new();
    let mut acts = acts.into_iter().peekable();
    let mut act = acts.next().expect("one act at least");
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let log = Log { seen: Arc::clone(&seen), index: seen.lock().unwrap().len() };
        seen.lock().unwrap().push(Seen::default());
        connections.spawn(serve(stream, act.clone(), tls.clone(), log));
        if let Some(next) = acts.next() {
            act = next;
        }
    }
}

struct Log {
    seen: Arc<Mutex<Vec<Seen>>>,
    index: usize,
}

impl Log {
    fn got(&self, bytes: &[u8]) {
        self.seen.lock().unwrap()[self.index].bytes.extend_from_slice(bytes);
    }

    fn ended(&self) {
        self.seen.lock().unwrap()[self.index].ended = true;
    }
}

async fn serve(stream: TcpStream, act: Act, tls: Option<TlsAcceptor>, log: Log) {
    if let Act::Deaf = act {
        std::future::pending::<()>().await;
    }
    if let Act::Greet(bytes) = act {
        let mut stream = stream;
        stream.write_all(&bytes).await.unwrap();
        stream.shutdown().await.unwrap();
        rest(&mut stream, &log).await;
        log.ended();
        return;
    }
    if let Act::Reset = act {
        let mut stream = stream;
        request(&mut stream, &log).await;
        // Unread bytes or a linger of zero make the close a reset.
        stream.set_zero_linger().unwrap();
        return;
    }
    if let Act::Slow(_) = act {
        tokio::time::sleep(SLOW).await;
    }
    match tls {
        None => play(stream, act, &log).await,
        Some(tls) => {
            if let Ok(stream) = tls.accept(stream).await {
                play(stream, act, &log).await;
            }
        }
    }
    log.ended();
}

async fn play(mut stream: impl AsyncRead + AsyncWrite + Unpin, act: Act, log: &Log) {
    loop {
        if !request(&mut stream, log).await {
            return;
        }
        let written = match &act {
            Act::Write(bytes) | Act::Slow(bytes) => {
                let _ = stream.write_all(bytes).await;
                let _ = stream.shutdown().await;
                rest(&mut stream, log).await;
                return;
            }
            Act::Keep(bytes) => stream.write_all(bytes).await,
            Act::Drip(head) => {
                let mut ended = stream.write_all(head).await;
                while ended.is_ok() {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    ended = stream.write_all(b"x").await;
                }
                ended
            }
            Act::Flood(head) => {
                let mut ended = stream.write_all(head).await;
                while ended.is_ok() {
                    ended = stream.write_all(&[b'x'; 8192]).await;
                }
                ended
            }
            Act::Silence => {
                rest(&mut stream, log).await;
                return;
            }
            Act::Deaf | Act::Greet(_) | Act::Reset => unreachable!("handled on the bare socket"),
        };
        if written.is_err() {
            return;
        }
    }
}

/// Reads until the connection ends.
async fn rest(stream: &mut (impl AsyncRead + Unpin), log: &Log) {
    let mut buffer = [0; 8192];
    while let Ok(length @ 1..) = stream.read(&mut buffer).await {
        log.got(&buffer[..length]);
    }
}

/// Reads one request; false if the connection ended first.
async fn request(stream: &mut (impl AsyncRead + Unpin), log: &Log) -> bool {
    let mut bytes = Vec::new();
    let mut buffer = vec![0; 65536];
    loop {
        if let Some(end) = bytes.windows(4).position(|at| at == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
            let length: usize = values(&head, "content-length").first().map_or(0, |text| text.parse().unwrap());
            if bytes.len() >= end + 4 + length {
                return true;
            }
        }
        match stream.read(&mut buffer).await {
            Ok(length @ 1..) => {
                bytes.extend_from_slice(&buffer[..length]);
                log.got(&buffer[..length]);
            }
            Ok(0) | Err(_) => return false,
        }
    }
}
