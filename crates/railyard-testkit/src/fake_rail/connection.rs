//! One connection of the receiver: read a request, look its answer up, give it, write everything down.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::script::Step;
use super::wire::{Head, Inbox, Stream};
use super::{Receipt, Reply, Shared};

/// Announced by bodies that drip: at any interval a test uses, longer than it waits.
const DRIP_BYTES: usize = 3_600;

/// Between two looks at a client that may have left while there is something to read from it.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Takes connections until it is aborted; then the open ones go with it.
pub(super) async fn accept_loop(listener: std::net::TcpListener, shared: Arc<Shared>) {
    let listener = super::adopt(listener);
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                if let Ok((tcp, _)) = accepted {
                    connections.spawn(connection(tcp, Arc::clone(&shared)));
                }
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn connection(tcp: TcpStream, shared: Arc<Shared>) {
    let number = shared.log.connected();
    let mut cut = shared.cut.subscribe();
    let error = match open(tcp, &shared).await {
        Ok(mut stream) => {
            let served = tokio::select! {
                // An error means that the receiver itself is going away.
                _ = cut.changed() => {
                    let _ = stream.tcp().set_zero_linger();
                    Ok(())
                }
                served = serve(&mut stream, number, &shared) => served,
            };
            served.err()
        }
        Err(error) => {
            shared.log.on_connection(number, |record| record.tls_error = Some(error.to_string()));
            Some(error)
        }
    };
    shared.log.on_connection(number, |record| {
        record.error = error.map(|error| error.to_string());
        record.closed_at = Some(Instant::now());
    });
}

async fn open(tcp: TcpStream, shared: &Shared) -> io::Result<Stream> {
    tcp.set_nodelay(true)?;
    match &shared.tls {
        None => Ok(Stream::Plain(tcp)),
        Some(acceptor) => {
            let pause = *shared.handshake.lock().expect("held for moments only");
            tokio::time::sleep(pause).await;
            Ok(Stream::Tls(Box::new(acceptor.0.accept(tcp).await?)))
        }
    }
}

async fn serve(stream: &mut Stream, number: usize, shared: &Shared) -> io::Result<()> {
    let mut inbox = Inbox::default();
    loop {
        let goes_on = exchange(stream, &mut inbox, number, shared).await;
        shared.log.on_connection(number, |record| record.bytes = inbox.bytes);
        if !goes_on? {
            return Ok(());
        }
    }
}

/// One request and its answer; true if the connection stays open for another.
async fn exchange(stream: &mut Stream, inbox: &mut Inbox, number: usize, shared: &Shared) -> io::Result<bool> {
    let Some(head) = inbox.head(stream).await? else { return Ok(false) };
    let first = receipt(&head, number);
    let never_read = shared.script.lock().expect("held for moments only").never_read(&first);
    let index = shared.log.begin(first);
    if never_read {
        shared.log.on_exchange(index, |receipt| receipt.reply = Some(Reply::NeverRead));
        gone(stream.tcp()).await;
        finish(shared, index, true);
        return Ok(false);
    }
    let body = match inbox.body(stream, &head).await {
        Ok(body) => body,
        Err(error) => {
            finish(shared, index, true);
            return Err(error);
        }
    };
    // Completion and the choice of the answer are one step, so that scripts count in the order of the record.
    let mut step = None;
    let request = shared.log.complete(index, |receipt| {
        receipt.body = body;
        receipt.complete_at = Some(Instant::now());
        receipt.clock = wall_clock();
        let chosen = shared.script.lock().expect("held for moments only").next(receipt);
        receipt.reply = Some(chosen.reply.clone());
        step = Some(chosen);
    });
    let step = step.expect("the closure ran");
    let keep = !request.header("Connection").is_some_and(|value| value.eq_ignore_ascii_case("close"));
    let answered = answer(stream, &step, keep).await;
    finish(shared, index, answered.is_err());
    answered
}

fn receipt(head: &Head, connection: usize) -> Receipt {
    Receipt {
        index: 0,
        connection,
        first_byte_at: head.first_byte_at,
        complete_at: None,
        clock: wall_clock(),
        head: head.raw.clone(),
        method: head.method.clone(),
        path: head.path.clone(),
        headers: Arc::new(head.headers.clone()),
        body: Bytes::new(),
        reply: None,
        finished_at: None,
        client_aborted: false,
    }
}

#[expect(clippy::disallowed_methods, reason = "a receiver judges the age of signatures by its own clock")]
fn wall_clock() -> SystemTime {
    SystemTime::now()
}

fn finish(shared: &Shared, index: usize, client_aborted: bool) {
    shared.log.on_exchange(index, |receipt| {
        receipt.finished_at = Some(Instant::now());
        receipt.client_aborted = client_aborted;
    });
}

/// Gives the answer. An error means that the client was gone before it was out.
async fn answer(stream: &mut Stream, step: &Step, keep: bool) -> io::Result<bool> {
    if !step.delay.is_zero() {
        unless_gone(stream.tcp(), tokio::time::sleep(step.delay)).await?;
    }
    if let Some(gate) = &step.gate {
        unless_gone(stream.tcp(), gate.pass()).await?;
    }
    match &step.reply {
        Reply::Full { status, headers, body } => {
            stream.write(&full(*status, headers, body, keep)).await?;
            if keep {
                return Ok(true);
            }
        }
        Reply::Reset => {
            stream.tcp().set_zero_linger()?;
            return Ok(false);
        }
        Reply::Close => {}
        Reply::TruncatedBody { status } => {
            stream.write(format!("HTTP/1.1 {status} \r\nContent-Length: 100\r\n\r\n0123456789").as_bytes()).await?;
        }
        Reply::Drip { status, every } => {
            let head = format!("HTTP/1.1 {status} \r\nContent-Length: {DRIP_BYTES}\r\n\r\n");
            stream.write(head.as_bytes()).await?;
            drip(stream, &[b'.'; DRIP_BYTES], *every).await?;
        }
        Reply::SlowHead { every } => {
            let padding = "x".repeat(DRIP_BYTES);
            drip(stream, format!("HTTP/1.1 200 \r\nX-Padding: {padding}\r\n\r\n").as_bytes(), *every).await?;
        }
        Reply::NeverRead | Reply::Silence => {
            gone(stream.tcp()).await;
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Reply::Garbage => stream.write(b"\x16\x03\x01 I am a teapot\r\n\0\xff and proud of it\r\n\r\n").await?,
    }
    stream.finish().await?;
    Ok(false)
}

fn full(status: u16, headers: &[(String, String)], body: &[u8], keep: bool) -> Vec<u8> {
    let mut bytes = format!("HTTP/1.1 {status} \r\n").into_bytes();
    for (name, value) in headers {
        bytes.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
    }
    // These statuses have no body by definition, and a length would be read as one by some clients.
    if status != 204 && status != 304 {
        bytes.extend_from_slice(format!("Content-Length: {}\r\n", body.len()).as_bytes());
    }
    if !keep {
        bytes.extend_from_slice(b"Connection: close\r\n");
    }
    bytes.extend_from_slice(b"\r\n");
    bytes.extend_from_slice(body);
    bytes
}

async fn drip(stream: &mut Stream, bytes: &[u8], every: Duration) -> io::Result<()> {
    for byte in bytes {
        stream.write(&[*byte]).await?;
        unless_gone(stream.tcp(), tokio::time::sleep(every)).await?;
    }
    Ok(())
}

async fn unless_gone(tcp: &TcpStream, wait: impl Future<Output = ()>) -> io::Result<()> {
    tokio::select! {
        () = wait => Ok(()),
        () = gone(tcp) => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// Returns when the client has closed or reset its side, without reading anything of what it sent.
async fn gone(tcp: &TcpStream) {
    while let Ok(ready) = tcp.ready(Interest::READABLE).await {
        if ready.is_read_closed() {
            return;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}
