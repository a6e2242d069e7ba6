//! Answers of every kind, read from a socket. What each status means is held by core's table; here stands that the
//! right thing is read.

use std::time::{Duration, Instant};

use bytes::Bytes;
use railyard_core::limits::RESPONSE_BODY_BYTES_MAX;
use railyard_core::rail::RailKind;
use railyard_core::{Answer, CallOutcome, ErrorCode};
use railyard_rail::RailOptions;

use crate::client::{deliver, message, pay, retryable};
use crate::receiver::{Act, Receiver};

async fn answer_to(act: Act) -> CallOutcome {
    let receiver = Receiver::start(act).await;
    deliver(&message(&receiver.url())).await.outcome
}

async fn delivered(act: Act) -> Answer {
    let outcome = answer_to(act).await;
    let CallOutcome::Delivered(answer) = outcome else { panic!("not delivered: {outcome:?}") };
    answer
}

async fn deferred_s(act: Act) -> (u64, ErrorCode) {
    let outcome = answer_to(act).await;
    let CallOutcome::Deferred { after, code, .. } = outcome else { panic!("not deferred: {outcome:?}") };
    (after.as_secs(), code)
}

#[tokio::test]
async fn s3_29_a_redirect_is_not_followed_and_the_body_not_sent_again() {
    for status in [301, 302, 303, 307, 308] {
        let elsewhere = Receiver::start(Act::answer(200, "")).await;
        let location = format!("Location: {}\r\n", elsewhere.url());
        let receiver = Receiver::start(Act::with_headers(status, &location, "")).await;
        let outcome = deliver(&message(&receiver.url())).await.outcome;
        let CallOutcome::Failed { code, retryable, answer: Some(answer), .. } = outcome else {
            panic!("{status}: {outcome:?}")
        };
        assert_eq!((code, retryable, answer.status), (ErrorCode::RedirectRefused(status), false, status));
        assert_eq!(receiver.seen().len(), 1);
        assert!(elsewhere.seen().is_empty());
    }
}

#[tokio::test]
async fn a_success_whose_body_breaks_off_is_a_success() {
    for cut in [
        "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nonly this",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nonly this",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nonly this\r\nzz\r\n",
        "HTTP/1.1 200 OK\r\n\r\nonly this",
    ] {
        assert_eq!(delivered(Act::raw(cut.as_bytes())).await.body, b"only this", "{cut:?}");
    }
    // A deferral that breaks off was not said.
    delivered(Act::raw(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{\"ack\":false,\"delay")).await;
    let failed = answer_to(Act::raw(b"HTTP/1.1 500 No\r\nContent-Length: 1000\r\n\r\nonly this")).await;
    assert_eq!(retryable(&failed).0, ErrorCode::HttpStatus(500));
    assert_eq!(failed.answer().unwrap().body, b"only this");
}

#[tokio::test]
async fn s3_40_at_most_16_kib_are_read_and_the_rest_is_not_waited_for() {
    let begun = Instant::now();
    let answer = delivered(Act::Flood(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n".to_vec())).await;
    assert_eq!((answer.body.len(), answer.truncated), (RESPONSE_BODY_BYTES_MAX, true));
    assert!(begun.elapsed() < Duration::from_secs(5));
    let exact = "x".repeat(RESPONSE_BODY_BYTES_MAX);
    let answer = delivered(Act::answer(200, &exact)).await;
    assert_eq!((answer.body.len(), answer.truncated), (RESPONSE_BODY_BYTES_MAX, false));
}

#[tokio::test]
async fn s3_40_any_bytes_are_kept_and_nothing_is_unpacked() {
    let head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 6\r\n\r\n";
    let body = b"\x1f\x8b\0\xff\xfe\0";
    assert_eq!(delivered(Act::raw(&[head.as_slice(), body].concat())).await.body, body);
}

#[tokio::test]
async fn an_interim_answer_is_not_the_answer() {
    let bytes =
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n";
    assert_eq!(retryable(&answer_to(Act::raw(bytes)).await).0, ErrorCode::HttpStatus(503));
}

#[tokio::test]
async fn s3_27_retry_after_as_seconds_as_a_date_and_as_nonsense() {
    let said = |status, value: &str| Act::with_headers(status, &format!("Retry-After: {value}\r\n"), "");
    assert_eq!(deferred_s(said(429, "7")).await, (7, ErrorCode::RateLimited));
    assert_eq!(deferred_s(said(503, "7")).await, (7, ErrorCode::ServiceUnavailable));
    assert_eq!(deferred_s(said(429, "99999999999999999999")).await.0, 3600);
    assert_eq!(deferred_s(said(429, "-1")).await.0, 30);
    let with_date = "Sat, 04 Oct 2025 14:31:00 GMT\r\nDate: Sat, 04 Oct 2025 14:30:00 GMT";
    assert_eq!(deferred_s(said(429, with_date)).await.0, 60);
    // Without the receiver's clock, ours has to do: the call says that it is 14:30:45.
    assert_eq!(deferred_s(said(429, "Sat, 04 Oct 2025 14:31:00 GMT")).await.0, 14);
    assert_eq!(retryable(&answer_to(said(503, "soon")).await).0, ErrorCode::HttpStatus(503));
}

#[tokio::test]
async fn s3_26_a_deferral_in_the_body() {
    let said = Act::answer(200, r#"{"ack":false,"delaySeconds":9}"#);
    assert_eq!(deferred_s(said).await, (9, ErrorCode::NotAcknowledged));
}

#[tokio::test]
async fn s2_12_a_payment_rails_code_and_reference() {
    let rail = RailOptions { terminal_codes: vec!["ACCOUNT_CLOSED".to_owned()], ..RailOptions::new(RailKind::Payment) };
    let said = Act::answer(422, r#"{"railCode":"ACCOUNT_CLOSED","railReference":"R-9"}"#);
    let receiver = Receiver::start(said).await;
    let mut message = message(&receiver.url());
    message.payload = Bytes::from_static(br#"{"amount":1,"currency":"EUR","destination":"x"}"#);
    let CallOutcome::Failed { code, retryable: false, answer: Some(answer), .. } = pay(&message, &rail).await else {
        panic!("ends")
    };
    assert_eq!(code, ErrorCode::RailRefused);
    assert_eq!(answer.rail_code.as_deref(), Some("ACCOUNT_CLOSED"));
    assert_eq!(answer.rail_reference.as_deref(), Some("R-9"));
}
