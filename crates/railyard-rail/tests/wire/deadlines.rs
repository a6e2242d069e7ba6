//! One deadline over everything, whatever the receiver does; at its end the connection is gone.

use std::time::{Duration, Instant};

use bytes::Bytes;
use railyard_core::{CallOutcome, ErrorCode};

use crate::client::{always, deliver, deliver_with, message, options, retryable};
use crate::receiver::{Act, Receiver};

const TIMEOUT: Duration = Duration::from_millis(800);
/// What a busy machine may add before a deadline counts as missed.
const SLACK: Duration = Duration::from_secs(5);

/// The outcome of a call with a short deadline, which must have been kept.
async fn in_time(receiver: &Receiver, payload: Bytes) -> CallOutcome {
    let mut message = message(&receiver.url());
    message.timeout = TIMEOUT;
    message.payload = payload;
    let begun = Instant::now();
    let called = deliver(&message).await;
    assert!(begun.elapsed() < TIMEOUT + SLACK, "{:?}", begun.elapsed());
    assert!(called.latency.unwrap() <= begun.elapsed());
    called.outcome
}

#[tokio::test]
async fn s2_14_a_receiver_that_says_nothing() {
    let receiver = Receiver::start(Act::Silence).await;
    let outcome = in_time(&receiver, Bytes::from_static(b"{}")).await;
    let (code, _) = retryable(&outcome);
    assert_eq!((code, code.answer_lost()), (ErrorCode::DispatchTimeout, true));
    receiver.until("the connection is gone", |seen| seen[0].ended).await;
}

#[tokio::test]
async fn s3_30_a_head_that_drips() {
    let receiver = Receiver::start(Act::Drip(b"HTTP/1.1 200 OK\r\nX: ".to_vec())).await;
    let outcome = in_time(&receiver, Bytes::from_static(b"{}")).await;
    assert_eq!(retryable(&outcome).0, ErrorCode::DispatchTimeout);
    receiver.until("the connection is gone", |seen| seen[0].ended).await;
}

#[tokio::test]
async fn s3_30_a_body_that_drips_does_not_unsay_the_head() {
    let receiver = Receiver::start(Act::Drip(b"HTTP/1.1 200 OK\r\n\r\n".to_vec())).await;
    let outcome = in_time(&receiver, Bytes::from_static(b"{}")).await;
    let CallOutcome::Delivered(answer) = outcome else { panic!("{outcome:?}") };
    assert!(answer.body.iter().all(|byte| *byte == b'x'));
    receiver.until("the connection is gone", |seen| seen[0].ended).await;

    let receiver = Receiver::start(Act::Drip(b"HTTP/1.1 500 No\r\n\r\n".to_vec())).await;
    let outcome = in_time(&receiver, Bytes::from_static(b"{}")).await;
    assert_eq!(retryable(&outcome).0, ErrorCode::HttpStatus(500));
}

#[tokio::test]
async fn s3_30_a_receiver_that_never_reads() {
    let receiver = Receiver::start(Act::Deaf).await;
    // More than the sockets' buffers hold.
    let outcome = in_time(&receiver, Bytes::from(vec![b'x'; 12 * 1024 * 1024])).await;
    assert_eq!(retryable(&outcome).0, ErrorCode::DispatchTimeout);
}

#[tokio::test]
async fn s3_30_a_handshake_that_never_ends_is_not_a_lost_answer() {
    let receiver = Receiver::start(Act::Silence).await;
    let mut message = message(&format!("https://127.0.0.1:{}/", receiver.port()));
    message.timeout = TIMEOUT;
    let outcome = deliver(&message).await.outcome;
    let (code, _) = retryable(&outcome);
    assert_eq!((code, code.answer_lost()), (ErrorCode::ConnectTimeout, false));

    // The connect timeout, where it is shorter than the call's deadline.
    message.timeout = Duration::from_secs(30);
    let mut options = options();
    options.connect_timeout_s = 1;
    let client = railyard_rail::Client::new(&options).unwrap();
    let begun = Instant::now();
    let outcome = deliver_with(&client, &message, always()).await.outcome;
    assert_eq!(retryable(&outcome).0, ErrorCode::ConnectTimeout);
    assert!(begun.elapsed() < Duration::from_secs(10));
    for connection in receiver.seen() {
        assert!(!connection.bytes.windows(4).any(|at| at == b"POST"), "not a byte of the request");
    }
}

#[tokio::test]
async fn a_call_that_is_dropped_takes_its_connection_with_it() {
    let receiver = Receiver::start(Act::Silence).await;
    let message = message(&receiver.url());
    let call = deliver(&message);
    let arrived = receiver.until("the request", |seen| seen.first().is_some_and(|one| one.bytes.ends_with(b"}")));
    tokio::select! {
        called = call => panic!("{called:?}"),
        () = arrived => {}
    }
    receiver.until("the connection is gone", |seen| seen[0].ended).await;
}
