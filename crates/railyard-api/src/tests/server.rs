//! The accept loop, over real sockets.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::kit::Api;
use crate::{ServeOptions, serve};

#[expect(clippy::disallowed_methods, reason = "the test's server; each test awaits its end")]
async fn started(api: &Api, options: ServeOptions) -> (SocketAddr, oneshot::Sender<()>, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let router = api.router.clone();
    let shutdown = async {
        let _ = stopped.await;
    };
    (address, stop, tokio::spawn(async move { serve(listener, router, shutdown, options).await }))
}

async fn read_all(stream: &mut TcpStream) -> String {
    let mut text = Vec::new();
    // A reset is an end as well.
    let _ = tokio::time::timeout(Duration::from_secs(10), stream.read_to_end(&mut text)).await.expect("no end came");
    String::from_utf8_lossy(&text).into_owned()
}

#[tokio::test]
async fn requests_are_answered_and_a_shutdown_ends_what_is_idle() {
    let api = Api::new().await;
    let (address, stop, server) = started(&api, ServeOptions::default()).await;
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    let mut answer = vec![0; 15];
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(answer, b"HTTP/1.1 200 OK");
    stop.send(()).unwrap();
    read_all(&mut stream).await;
    tokio::time::timeout(Duration::from_secs(10), server).await.unwrap().unwrap();
    assert!(TcpStream::connect(address).await.is_err());
}

#[tokio::test]
async fn a_head_that_never_ends_is_cut_off() {
    let api = Api::new().await;
    let options = ServeOptions { head_timeout: Duration::from_millis(200), ..ServeOptions::default() };
    let (address, stop, server) = started(&api, options).await;
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: ").await.unwrap();
    read_all(&mut stream).await;
    let mut huge = TcpStream::connect(address).await.unwrap();
    let _ = huge.write_all(format!("GET / HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(100_000)).as_bytes()).await;
    let text = read_all(&mut huge).await;
    assert!(text.is_empty() || text.starts_with("HTTP/1.1 4"), "{text}");
    stop.send(()).unwrap();
    server.await.unwrap();
}

#[tokio::test]
async fn connections_over_the_bound_wait_for_a_place() {
    let api = Api::new().await;
    let options = ServeOptions { connections_max: 1, ..ServeOptions::default() };
    let (address, stop, server) = started(&api, options).await;
    let first = TcpStream::connect(address).await.unwrap();
    let mut second = TcpStream::connect(address).await.unwrap();
    second.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.unwrap();
    let mut byte = [0];
    let early = tokio::time::timeout(Duration::from_millis(200), second.read(&mut byte)).await;
    assert!(early.is_err(), "the second connection was served beside the first");
    drop(first);
    assert!(read_all(&mut second).await.contains("200 OK"));
    stop.send(()).unwrap();
    server.await.unwrap();
}
