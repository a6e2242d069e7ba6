//! The leave to write is asked at the moment of writing.

use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use railyard_core::limiter::Permit;
use railyard_core::{CallOutcome, ErrorCode, Message};
use railyard_rail::{Called, Client, MayWrite};

use crate::client::{client, deliver_as, deliver_with, message, retryable};
use crate::receiver::{Act, Receiver};

/// Leave for the first `times` looks, then none.
fn leave_for(times: usize) -> MayWrite {
    let looks = AtomicUsize::new(0);
    Arc::new(move || match looks.fetch_add(1, Ordering::Relaxed) {
        look if look < times => Ok(()),
        _ => Err(ErrorCode::LeaseLost),
    })
}

pub(crate) fn boottime() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::new(u64::try_from(now.tv_sec).unwrap(), u32::try_from(now.tv_nsec).unwrap())
}

async fn deliver_in(client: &Client, message: &Message, permit: Permit) -> Called {
    deliver_as(client, message, leave_for(1000), Some(permit)).await
}

fn not_started(outcome: &CallOutcome) -> ErrorCode {
    let CallOutcome::NotStarted { code, .. } = outcome else { panic!("it was started: {outcome:?}") };
    *code
}

#[tokio::test]
async fn without_leave_nobody_connects() {
    let receiver = Receiver::start(Act::answer(200, "")).await;
    for payload in ["{}", ""] {
        let mut message = message(&receiver.url());
        message.payload = Bytes::from_static(payload.as_bytes());
        let called = deliver_with(&client(), &message, leave_for(0)).await;
        assert_eq!((not_started(&called.outcome), called.latency), (ErrorCode::LeaseLost, None));
    }
    assert!(receiver.seen().is_empty());
}

#[tokio::test]
async fn leave_that_ends_while_connecting_sends_not_one_byte() {
    let receiver = Receiver::start(Act::answer(200, "")).await;
    let called = deliver_with(&client(), &message(&receiver.url()), leave_for(1)).await;
    assert_eq!((not_started(&called.outcome), called.latency), (ErrorCode::LeaseLost, None));
    receiver.until("the connection is gone", |seen| seen.first().is_some_and(|one| one.ended)).await;
    assert!(receiver.seen()[0].bytes.is_empty());
}

#[tokio::test]
async fn leave_that_ends_on_a_kept_connection_sends_not_one_byte_more() {
    let keep = Act::Keep(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".to_vec());
    let receiver = Receiver::start(keep).await;
    let (client, message) = (client(), message(&receiver.url()));
    assert!(matches!(deliver_with(&client, &message, leave_for(9)).await.outcome, CallOutcome::Delivered(_)));
    let before = receiver.seen()[0].bytes.len();
    let called = deliver_with(&client, &message, leave_for(1)).await;
    assert_eq!(not_started(&called.outcome), ErrorCode::LeaseLost);
    receiver.until("the connection is gone", |seen| seen[0].ended).await;
    assert_eq!((receiver.seen().len(), receiver.seen()[0].bytes.len()), (1, before));
}

#[tokio::test]
async fn leave_that_ends_within_a_payload_leaves_it_incomplete() {
    let receiver = Receiver::start(Act::answer(200, "")).await;
    let mut message = message(&receiver.url());
    message.payload = Bytes::from(vec![b'x'; 1_000_000]);
    let outcome = deliver_with(&client(), &message, leave_for(20)).await.outcome;
    let (code, detail) = retryable(&outcome);
    assert_eq!((code, code.answer_lost()), (ErrorCode::ConnectionReset, true));
    assert!(detail.contains("LEASE_LOST"), "{detail}");
    receiver.until("the connection is gone", |seen| seen[0].ended).await;
    assert!(receiver.seen()[0].bytes.len() < message.payload.len());
}

/// The process is stopped while the receiver answers, and goes on after the deadline.
#[tokio::test]
async fn an_answer_that_came_while_the_process_was_stopped_is_read() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut message = message(&format!("http://{}/", listener.local_addr().unwrap()));
    message.timeout = Duration::from_secs(1);
    let (answered, wait) = std::sync::mpsc::sync_channel(1);
    let receiver = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut buffer = [0; 4096];
        let mut request = Vec::new();
        while !request.ends_with(b"99.99}") {
            let length = stream.read(&mut buffer).unwrap();
            request.extend_from_slice(&buffer[..length]);
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").unwrap();
        answered.send(()).unwrap();
        stream
    });
    let stop = async {
        // Only once the request is out: the receiver's thread answers it while this one stands still.
        while wait.try_recv().is_err() {
            tokio::task::yield_now().await;
            if receiver.is_finished() {
                break;
            }
        }
        std::thread::sleep(Duration::from_millis(1300));
    };
    let client = client();
    let (called, ()) = futures_util::future::join(deliver_with(&client, &message, leave_for(9)), stop).await;
    assert!(matches!(called.outcome, CallOutcome::Delivered(_)), "{called:?}");
    drop(receiver.join().unwrap());
}

/// The process is stopped after its first look, for longer than the call may take, and goes on.
#[tokio::test]
async fn a_process_that_was_stopped_past_its_deadline_writes_nothing() {
    let receiver = Receiver::start(Act::answer(200, "")).await;
    let mut message = message(&receiver.url());
    message.timeout = Duration::from_secs(1);
    let stop: MayWrite = Arc::new(move || {
        std::thread::sleep(Duration::from_millis(1100));
        Ok(())
    });
    let called = deliver_with(&client(), &message, stop).await;
    assert_eq!(not_started(&called.outcome), ErrorCode::DeadlineTooClose);
    receiver.until("the connection is gone", |seen| seen.first().is_some_and(|one| one.ended)).await;
    assert!(receiver.seen()[0].bytes.is_empty());
}

/// Not one byte leaves before the slot.
#[tokio::test]
async fn a_call_under_a_limit_waits_for_its_slot() {
    let receiver = Receiver::start(Act::answer(200, "")).await;
    let message = message(&receiver.url());
    for payload in ["{\"a\":1}", ""] {
        let before = receiver.seen().iter().map(|one| one.bytes.len()).sum::<usize>();
        let mut message = message.clone();
        message.payload = Bytes::from_static(payload.as_bytes());
        let (client, early) = (client(), Duration::from_millis(150));
        let (start, wait) = (boottime(), Duration::from_millis(300));
        let permit = Permit { not_before: start + wait, not_after: start + wait + Duration::from_secs(5) };
        let call = deliver_in(&client, &message, permit);
        tokio::pin!(call);
        assert!(tokio::time::timeout(early, call.as_mut()).await.is_err(), "it did not wait");
        assert_eq!(receiver.seen().iter().map(|one| one.bytes.len()).sum::<usize>(), before, "it sent something early");
        let called = call.await;
        assert!(boottime() >= permit.not_before);
        assert!(matches!(called.outcome, CallOutcome::Delivered(_)), "{:?}", called.outcome);
        assert!(called.latency.unwrap() < wait, "the wait counts as the receiver's");
    }
}

#[tokio::test]
async fn a_slot_that_has_passed_is_burnt() {
    let receiver = Receiver::start(Act::answer(200, "")).await;
    let now = boottime();
    for late_by in [Duration::from_millis(1), Duration::ZERO] {
        let permit = Permit { not_before: now, not_after: now.saturating_sub(late_by) };
        let called = deliver_in(&client(), &message(&receiver.url()), permit).await;
        assert_eq!((not_started(&called.outcome), called.latency), (ErrorCode::PermitBurnt, None));
        assert!(receiver.seen().is_empty());
    }
}

/// Only the start has to lie in the slot: a long payload is written to its end.
#[tokio::test]
async fn a_call_that_started_in_its_slot_goes_on_behind_it() {
    let receiver = Receiver::start(Act::answer(200, "")).await;
    let mut message = message(&receiver.url());
    message.payload = Bytes::from(vec![b'x'; 400_000]);
    let permit = Permit { not_before: Duration::ZERO, not_after: boottime() + Duration::from_millis(500) };
    let looks = AtomicUsize::new(0);
    let slow: MayWrite = Arc::new(move || {
        if looks.fetch_add(1, Ordering::Relaxed) == 3 {
            std::thread::sleep(Duration::from_millis(600));
        }
        Ok(())
    });
    let outcome = deliver_as(&client(), &message, slow, Some(permit)).await.outcome;
    assert!(matches!(outcome, CallOutcome::Delivered(_)), "{outcome:?}");
}
