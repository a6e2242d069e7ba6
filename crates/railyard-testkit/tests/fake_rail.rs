//! The receiver does what its script says, and remembers what it was sent to the byte.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use railyard_testkit::{FakeRail, Gate, eventually};

const SOON: Duration = Duration::from_secs(5);

/// Sends one request on a connection of its own and returns everything that came back, with how it ended.
fn send(rail: &FakeRail, path: &str, headers: &str, body: &str) -> (String, std::io::Result<usize>) {
    let mut stream = TcpStream::connect(rail.address()).unwrap();
    let length = body.len();
    let head =
        format!("POST {path} HTTP/1.1\r\nHost: x\r\n{headers}Content-Length: {length}\r\nConnection: close\r\n\r\n");
    stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
    let mut answer = Vec::new();
    let end = stream.read_to_end(&mut answer);
    (String::from_utf8_lossy(&answer).into_owned(), end)
}

fn status(rail: &FakeRail, path: &str, headers: &str, body: &str) -> u16 {
    let (answer, _) = send(rail, path, headers, body);
    answer.split(' ').nth(1).unwrap_or("0").parse().unwrap_or(0)
}

#[tokio::test]
async fn steps_are_taken_in_turn_and_then_it_is_well() {
    let rail = FakeRail::start().await.fails(2).status(404).then_ok();
    let got: Vec<u16> = (0..5).map(|_| status(&rail, "/", "", "x")).collect();
    assert_eq!(got, [500, 500, 404, 200, 200]);
}

#[tokio::test]
async fn the_narrowest_scope_answers() {
    let rail = FakeRail::start()
        .await
        .status(201)
        .times(99)
        .for_path("/p")
        .status(202)
        .forever()
        .for_group("g")
        .status(203)
        .forever()
        .for_body_with("needle")
        .status(207)
        .for_message("m")
        .status(208);
    let group = "x-railyard-group: g\r\n";
    assert_eq!(status(&rail, "/p", "X-Railyard-Group: g\r\nIdempotency-Key: m\r\n", ""), 208);
    assert_eq!(status(&rail, "/p", "X-Railyard-Group: g\r\nIdempotency-Key: m\r\n", ""), 203, "the step was once");
    assert_eq!(status(&rail, "/p", group, "a needle"), 207);
    assert_eq!(status(&rail, "/p", group, ""), 203);
    assert_eq!(status(&rail, "/p", "", ""), 202);
    assert_eq!(status(&rail, "/q", "", ""), 201);
}

#[tokio::test]
async fn each_message_goes_through_the_steps_by_itself() {
    let rail = FakeRail::start().await.each_message().fails(1).status(503);
    for key in ["a", "b"] {
        let header = format!("Idempotency-Key: {key}\r\n");
        let got: Vec<u16> = (0..3).map(|_| status(&rail, "/", &header, "")).collect();
        assert_eq!(got, [500, 503, 200], "{key}");
    }
}

#[tokio::test]
async fn bytes_and_headers_are_remembered_as_they_came() {
    let rail = FakeRail::start().await;
    let body = "{\"a\":1.10, \"a\":2}\u{0}é";
    let _ =
        send(&rail, "/in?x=1", "X-Twice: 1\r\nx-tWICE: 2\r\nX-Railyard-Sequence: 7\r\nX-Railyard-Attempt: 2\r\n", body);
    let receipt = rail.await_answered(1, SOON).await.remove(0);
    assert_eq!(receipt.body, body.as_bytes());
    assert_eq!(receipt.path, "/in?x=1");
    assert_eq!(receipt.headers_named("x-twice"), ["1", "2"]);
    assert_eq!(receipt.headers[2], ("x-tWICE".to_owned(), "2".to_owned()));
    assert_eq!((receipt.sequence(), receipt.attempt()), (Some(7), Some(2)));
    assert!(receipt.head.starts_with(b"POST /in?x=1 HTTP/1.1\r\nHost: x\r\nX-Twice: 1\r\nx-tWICE: 2\r\n"));
    assert!(receipt.accepted());
}

#[tokio::test]
async fn chunked_bodies_and_kept_connections_are_read() {
    let rail = FakeRail::start().await;
    let mut stream = TcpStream::connect(rail.address()).unwrap();
    let chunked = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n";
    stream.write_all(chunked.as_bytes()).unwrap();
    stream.write_all(b"POST /2 HTTP/1.1\r\nContent-Length: 1\r\n\r\nz").unwrap();
    let receipts = rail.await_answered(2, SOON).await;
    assert_eq!(receipts[0].text(), "abcde");
    assert_eq!((receipts[1].path.as_str(), receipts[1].text().as_str()), ("/2", "z"));
    assert_eq!(receipts[0].connection, receipts[1].connection);
}

#[tokio::test]
async fn every_fault_is_what_its_name_says() {
    let rail = FakeRail::start().await.reset().close().truncate_body().garbage().big(100_000).nul_body(500);
    let (answer, end) = send(&rail, "/", "", "x");
    assert_eq!((answer.as_str(), end.unwrap_err().kind()), ("", std::io::ErrorKind::ConnectionReset));
    let (answer, end) = send(&rail, "/", "", "x");
    assert_eq!((answer.as_str(), end.unwrap()), ("", 0));
    let (answer, _) = send(&rail, "/", "", "x");
    assert!(answer.contains("Content-Length: 100") && answer.ends_with("0123456789"), "{answer}");
    let (answer, _) = send(&rail, "/", "", "x");
    assert!(!answer.starts_with("HTTP"), "{answer}");
    let (answer, _) = send(&rail, "/", "", "x");
    assert_eq!(answer.split("\r\n\r\n").nth(1).unwrap().len(), 100_000);
    let (answer, _) = send(&rail, "/", "", "x");
    assert!(answer.starts_with("HTTP/1.1 500") && answer.contains('\0'));
    let receipts = rail.await_answered(6, SOON).await;
    let accepted: Vec<bool> = receipts.iter().map(railyard_testkit::Receipt::accepted).collect();
    assert_eq!(accepted, [false, false, true, false, true, false]);
}

#[tokio::test]
async fn slow_faults_last_until_the_client_leaves() {
    let second = Duration::from_secs(1);
    let rail = FakeRail::start().await.drip(second).slow_head(second).silence().never_read().ok().delay(60 * second);
    for turn in 0..5 {
        let mut stream = TcpStream::connect(rail.address()).unwrap();
        stream.write_all(b"POST / HTTP/1.1\r\nContent-Length: 1\r\n\r\nx").unwrap();
        let what = format!("request {turn} came");
        eventually(SOON, &what, || async { rail.exchanges().len() == turn + 1 }).await;
        assert_eq!(rail.exchanges()[turn].finished_at, None);
        let left = Instant::now();
        drop(stream);
        eventually(SOON, "its end was seen", || async { rail.exchanges()[turn].client_aborted }).await;
        assert!(left.elapsed() < 2 * second);
    }
    assert_eq!(rail.receipts().len(), 4, "the one that was never read is no receipt");
}

#[tokio::test]
async fn answers_wait_at_the_gate() {
    let gate = Gate::closed();
    let rail = FakeRail::start().await.hold_until(&gate);
    let waiting = rail.clone();
    let sender = std::thread::spawn(move || status(&waiting, "/", "", "x"));
    rail.await_receipts(1, SOON).await;
    eventually(SOON, "it waits at the gate", || async { gate.waiting() == 1 }).await;
    assert_eq!(rail.receipts()[0].finished_at, None);
    gate.open();
    assert_eq!(sender.join().unwrap(), 200);
    rail.await_answered(1, SOON).await;
}

#[tokio::test]
async fn a_receiver_goes_down_and_comes_back_at_its_address() {
    let rail = FakeRail::start().await.silence();
    let mut open = TcpStream::connect(rail.address()).unwrap();
    open.write_all(b"POST / HTTP/1.1\r\nContent-Length: 1\r\n\r\nx").unwrap();
    rail.await_receipts(1, SOON).await;
    rail.go_down().await;
    assert!(!matches!(open.read(&mut [0; 10]), Ok(1..)), "the open connection was answered");
    let refused = TcpStream::connect(rail.address()).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
    rail.come_back().await;
    assert_eq!(status(&rail, "/", "", "x"), 200);
}

#[tokio::test]
async fn the_lottery_draws_the_same_again() {
    let mut runs = Vec::new();
    for _ in 0..2 {
        let rail = FakeRail::start().await.fails_randomly(30, 7);
        let draw = |key: u32| status(&rail, "/", &format!("Idempotency-Key: {key}\r\n"), "");
        runs.push((0..200).map(draw).collect::<Vec<u16>>());
    }
    assert_eq!(runs[0], runs[1]);
    let failed = runs[0].iter().filter(|&&status| status != 200).count();
    assert!((30..=90).contains(&failed), "{failed} of 200 failed at 30 %");
}

#[tokio::test]
#[should_panic(expected = "not within 50ms: 3 requests; 1 requests came over 1 connections\n#0 connection 0 POST /x")]
async fn a_failed_wait_shows_what_came_instead() {
    let rail = FakeRail::start().await;
    let _ = send(&rail, "/x", "", "");
    rail.await_receipts(3, Duration::from_millis(50)).await;
}
