//! The proxy breaks connections where it says, in front of a real PostgreSQL and of a receiver.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::time::Duration;

use railyard_testkit::{Cut, FakeRail, FaultProxy, Mode, Moment, OwnServer, eventually};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_postgres::{Client, NoTls};

const SOON: Duration = Duration::from_secs(5);

async fn connect(url: &str) -> Result<Client, tokio_postgres::Error> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    #[expect(clippy::disallowed_methods, reason = "ends with its client")]
    tokio::spawn(connection);
    Ok(client)
}

async fn count(server: &OwnServer) -> i64 {
    server.connect().await.query_one("select count(*) from t", &[]).await.unwrap().get(0)
}

#[tokio::test]
async fn a_commit_goes_through_and_its_answer_does_not() {
    let server = OwnServer::start(&[]).await;
    server.connect().await.batch_execute("create table t (n int)").await.unwrap();
    let proxy = FaultProxy::postgres(server.address()).await;
    let url = proxy.url(&server.url());

    let mut client = connect(&url).await.unwrap();
    proxy.cut_on_commit_answer(1);
    let transaction = client.transaction().await.unwrap();
    transaction.execute("insert into t values ($1)", &[&1]).await.unwrap();
    assert!(transaction.commit().await.unwrap_err().code().is_none(), "not the server's error, the connection's");
    assert_eq!(count(&server).await, 1, "the server had committed");

    let mut client = connect(&url).await.unwrap();
    proxy.cut_before_commit(1);
    let transaction = client.transaction().await.unwrap();
    transaction.execute("insert into t values ($1)", &[&2]).await.unwrap();
    transaction.commit().await.unwrap_err();
    eventually(SOON, "the server has rolled back", || async { proxy.counters().open == 0 }).await;
    assert_eq!(count(&server).await, 1, "the server had not committed");

    // The trap is used up.
    let mut client = connect(&url).await.unwrap();
    let transaction = client.transaction().await.unwrap();
    transaction.execute("insert into t values ($1)", &[&3]).await.unwrap();
    transaction.commit().await.unwrap();
    let counters = proxy.counters();
    assert_eq!((counters.connections, counters.commits, counters.statement_cuts), (3, 3, 2));
}

#[tokio::test]
async fn a_prepared_statement_is_cut_by_its_text() {
    let server = OwnServer::start(&[]).await;
    server.connect().await.batch_execute("create table t (n int)").await.unwrap();
    let proxy = FaultProxy::postgres(server.address()).await;
    let client = connect(&proxy.url(&server.url())).await.unwrap();
    let insert = client.prepare("insert into t values ($1)").await.unwrap();
    client.execute(&insert, &[&1]).await.unwrap();
    proxy.cut_around(Moment::BeforeItsAnswer, Cut::Close, 1, |sql| sql.starts_with("insert into t"));
    client.query_one("select 1", &[]).await.unwrap();
    client.execute(&insert, &[&2]).await.unwrap_err();
    assert_eq!(count(&server).await, 2);
}

#[tokio::test]
async fn a_listener_goes_half_open_while_the_rest_goes_on() {
    let server = OwnServer::start(&[]).await;
    let proxy = FaultProxy::postgres(server.address()).await;
    proxy.mark(|sql| sql.to_ascii_uppercase().starts_with("LISTEN"));
    let listener = connect(&proxy.url(&server.url())).await.unwrap();
    let other = connect(&proxy.url(&server.url())).await.unwrap();
    listener.batch_execute("listen wake").await.unwrap();
    proxy.set_marked(Mode::BlackHole);
    let silent = tokio::time::timeout(Duration::from_millis(100), listener.batch_execute("select 1")).await;
    assert!(silent.is_err());
    other.batch_execute("select 1").await.unwrap();
    assert!(!listener.is_closed());
    proxy.set_marked(Mode::Pass);
    listener.batch_execute("select 1").await.unwrap();
}

#[tokio::test]
async fn programs_that_ask_for_encryption_first_are_served_in_plain() {
    let server = OwnServer::start(&[]).await;
    let proxy = FaultProxy::postgres(server.address()).await;
    let mut psql = tokio::process::Command::new(server.server().binaries().program("psql"));
    let output = psql.args(["-XAtc", "select 1", "-d", &proxy.url(&server.url())]).output().await.unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "1", "{output:?}");
}

#[tokio::test]
async fn a_black_hole_is_silent_and_passes_everything_when_it_ends() {
    let rail = FakeRail::start().await;
    let proxy = FaultProxy::tcp(rail.address()).await;
    let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
    let request = b"POST / HTTP/1.1\r\nContent-Length: 1\r\n\r\nx";
    let mut answer = [0; 15];
    stream.write_all(request).await.unwrap();
    stream.read_exact(&mut answer).await.unwrap();

    proxy.set(Mode::BlackHole);
    stream.write_all(request).await.unwrap();
    let mut late = TcpStream::connect(proxy.address()).await.unwrap();
    late.write_all(request).await.unwrap();
    let silent = Duration::from_millis(100);
    assert!(tokio::time::timeout(silent, late.read(&mut answer)).await.is_err());
    assert_eq!(rail.receipts().len(), 1);

    proxy.set(Mode::Pass);
    rail.await_receipts(3, SOON).await;
    late.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200 \r\n");
}

#[tokio::test]
async fn answers_alone_can_be_swallowed_and_connections_cut_or_refused() {
    let rail = FakeRail::start().await;
    let proxy = FaultProxy::tcp(rail.address()).await;
    let request = b"POST / HTTP/1.1\r\nContent-Length: 1\r\n\r\nx";
    proxy.set(Mode::SwallowAnswers);
    let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
    stream.write_all(request).await.unwrap();
    assert!(rail.await_answered(1, SOON).await[0].accepted());
    proxy.cut(Cut::Reset);
    let error = stream.read(&mut [0; 10]).await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);

    proxy.set(Mode::Pass);
    let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
    stream.write_all(request).await.unwrap();
    rail.await_receipts(2, SOON).await;
    stream.read_exact(&mut [0; 15]).await.unwrap();
    proxy.cut(Cut::Close);
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).await.unwrap();

    proxy.set(Mode::Refuse);
    let read = async {
        let mut stream = TcpStream::connect(proxy.address()).await?;
        let _ = stream.write_all(request).await;
        stream.read(&mut [0; 10]).await
    };
    assert_eq!(read.await.unwrap_err().kind(), std::io::ErrorKind::ConnectionReset);
    assert_eq!(rail.receipts().len(), 2);
}

#[tokio::test]
async fn bytes_are_delayed() {
    let rail = FakeRail::start().await;
    let proxy = FaultProxy::tcp(rail.address()).await;
    proxy.set(Mode::Delay(Duration::from_millis(150)));
    let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
    let started = std::time::Instant::now();
    stream.write_all(b"POST / HTTP/1.1\r\nContent-Length: 1\r\n\r\nx").await.unwrap();
    stream.read_exact(&mut [0; 15]).await.unwrap();
    assert!(started.elapsed() >= Duration::from_millis(300), "once each way");
}
