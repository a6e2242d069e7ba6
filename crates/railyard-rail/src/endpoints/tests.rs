use std::pin::pin;
use std::task::Poll;

use railyard_core::Answer;

use super::*;

const A: &str = "https://a:443";
const B: &str = "https://b:443";

fn endpoints(concurrency: u32) -> Endpoints {
    Endpoints::new(&HttpOptions { endpoint_concurrency: concurrency, ..HttpOptions::default() })
}

fn failed(code: ErrorCode) -> CallOutcome {
    CallOutcome::Failed { code, detail: String::new(), answer: None, retryable: true }
}

fn answered(code: ErrorCode) -> CallOutcome {
    CallOutcome::Failed { code, detail: String::new(), answer: Some(Answer::default()), retryable: true }
}

async fn fail_times(endpoints: &Endpoints, endpoint: &str, times: usize) {
    for _ in 0..times {
        endpoints.take(endpoint).await.unwrap().report(&failed(ErrorCode::ConnectRefused));
    }
}

#[tokio::test]
async fn places_are_given_in_the_order_of_asking_and_come_back_when_dropped() {
    let endpoints = endpoints(1);
    assert_eq!(endpoints.admit(A), Look::Room);
    let place = endpoints.take(A).await.unwrap();
    assert_eq!(endpoints.admit(A), Look::Full);
    assert!(!place.has_waiters());
    let mut first = Box::pin(endpoints.take(A));
    let mut gone = Box::pin(endpoints.take(A));
    let mut third = pin!(endpoints.take(A));
    for waiting in [&mut first, &mut gone] {
        assert!(futures_util::poll!(waiting.as_mut()).is_pending());
    }
    assert!(futures_util::poll!(third.as_mut()).is_pending());
    assert!(place.has_waiters());
    assert_eq!(endpoints.seen()[0].waiting, 3);
    // One leaves the queue; another endpoint is not touched by any of it.
    drop(gone);
    assert_eq!(endpoints.seen()[0].waiting, 2);
    drop(endpoints.take(B).await.unwrap());
    drop(place);
    assert!(futures_util::poll!(third.as_mut()).is_pending());
    let Poll::Ready(Ok(second)) = futures_util::poll!(first.as_mut()) else { panic!("the first in the queue is next") };
    drop(second);
    drop(third.await.unwrap());
    assert_eq!(endpoints.admit(A), Look::Room);
}

#[tokio::test]
async fn s3_41_a_dead_endpoint_sends_its_callers_away_and_nobody_elses() {
    let policy = Policy { open: Duration::from_millis(300), ..Policy::default() };
    let endpoints = Endpoints::with_policy(&HttpOptions::default(), policy);
    fail_times(&endpoints, A, 10).await;
    assert!(matches!(endpoints.admit(A), Look::Open { wait } if wait <= policy.open));
    assert!(endpoints.take(A).await.unwrap_err().wait <= policy.open);
    assert_eq!(endpoints.admit(B), Look::Room);
    let opened = Instant::now();
    while endpoints.admit(A) != Look::Room {
        assert!(opened.elapsed() < Duration::from_secs(10), "it half-opens");
        tokio::task::yield_now().await;
    }
    let mut probes = Vec::new();
    for _ in 0..3 {
        probes.push(endpoints.take(A).await.unwrap());
    }
    assert!(endpoints.take(A).await.is_err());
    for mut probe in probes {
        probe.report(&CallOutcome::Delivered(Answer::default()));
    }
    assert_eq!(endpoints.seen()[0].breaker, Seen::Closed { calls: 0, failures: 0 });
}

#[tokio::test]
async fn whoever_waited_for_an_endpoint_that_died_is_sent_away() {
    let endpoints = endpoints(1);
    fail_times(&endpoints, A, 9).await;
    let mut place = endpoints.take(A).await.unwrap();
    let mut waiter = pin!(endpoints.take(A));
    assert!(futures_util::poll!(waiter.as_mut()).is_pending());
    place.report(&failed(ErrorCode::DispatchTimeout));
    assert!(place.renew().is_err());
    drop(place);
    assert!(waiter.await.is_err());
    assert_eq!(endpoints.seen()[0].in_use, 0);
}

#[tokio::test]
async fn nobody_waits_for_a_place_at_an_endpoint_that_is_dead() {
    let endpoints = endpoints(1);
    let mut place = endpoints.take(A).await.unwrap();
    for _ in 0..10 {
        place.renew().unwrap();
        place.report(&failed(ErrorCode::DispatchTimeout));
    }
    // The place is still taken, and the answer comes all the same.
    let mut asked = pin!(endpoints.take(A));
    assert!(matches!(futures_util::poll!(asked.as_mut()), Poll::Ready(Err(_))));
    assert!(matches!(endpoints.admit(A), Look::Open { .. }));
}

#[tokio::test]
async fn a_place_may_be_kept_for_the_next_call_and_each_call_counts_once() {
    let endpoints = endpoints(1);
    let mut place = endpoints.take(A).await.unwrap();
    for _ in 0..3 {
        place.report(&failed(ErrorCode::ConnectionReset));
        place.report(&failed(ErrorCode::ConnectionReset));
        place.renew().unwrap();
    }
    drop(place);
    assert_eq!(endpoints.seen()[0].breaker, Seen::Closed { calls: 3, failures: 3 });
}

#[test]
fn s3_27_what_counts_against_an_endpoint() {
    for (outcome, expect) in [
        (CallOutcome::Delivered(Answer::default()), Verdict::Success),
        (answered(ErrorCode::HttpStatus(500)), Verdict::Failure),
        (answered(ErrorCode::HttpStatus(408)), Verdict::Failure),
        (answered(ErrorCode::HttpStatus(400)), Verdict::Success),
        (answered(ErrorCode::Gone), Verdict::Success),
        (answered(ErrorCode::RailRefused), Verdict::Success),
        (failed(ErrorCode::DispatchTimeout), Verdict::Failure),
        (failed(ErrorCode::DnsFailed), Verdict::Failure),
        (failed(ErrorCode::TlsFailed), Verdict::Failure),
        (failed(ErrorCode::ProtocolError), Verdict::Failure),
        (failed(ErrorCode::InvalidAmount), Verdict::Neutral),
        (failed(ErrorCode::AddressRefused), Verdict::Neutral),
    ] {
        assert_eq!(verdict(&outcome), expect, "{outcome:?}");
    }
    let deferred =
        CallOutcome::Deferred { answer: Answer::default(), after: Duration::ZERO, code: ErrorCode::RateLimited };
    assert_eq!(verdict(&deferred), Verdict::Neutral);
}

#[tokio::test]
async fn idle_entries_are_dropped() {
    let endpoints = endpoints(1);
    let kept = endpoints.take(A).await.unwrap();
    fail_times(&endpoints, B, 1).await;
    for n in 0..SWEEP_ENDPOINTS_MIN {
        drop(endpoints.take(&format!("https://{n}:443")).await.unwrap());
    }
    let known: Vec<String> = endpoints.seen().into_iter().map(|seen| seen.endpoint).collect();
    assert!(known.len() < 10, "{}", known.len());
    assert!(known.contains(&A.to_owned()) && known.contains(&B.to_owned()));
    assert!(!kept.has_waiters());
}
