//! S3-17 to S3-21, S3-26 to S3-29, S3-40: what each answer of a receiver comes to.

use std::time::Duration;

use jiff::Timestamp;
use railyard_core::ParticipantId;
use railyard_testkit::{FakeRail, Gate, Receipt, eventually};

use crate::world::{SOON, World};

/// What a failing receiver answers, and what the job comes to.
struct Case {
    status: u16,
    requests: usize,
    history: &'static [&'static str],
}

/// The time between two requests.
fn gap(receipts: &[Receipt], first: usize, second: usize) -> Duration {
    receipts[second].first_byte_at.duration_since(receipts[first].first_byte_at)
}

/// Any 2xx is a success: COMPLETED with its end, its duration and the code on record; asked once.
#[tokio::test(flavor = "multi_thread")]
async fn s3_17_any_2xx_completes_the_job() {
    let world = World::new().await;
    let node = world.node().await;
    for status in [200, 201, 202, 204, 299] {
        let rail = FakeRail::start().await.status(status).forever();
        let id = world.hook(&rail.url(), "{}", |_| {}).await;
        let job = world.ended(id).await;
        assert_eq!((job.status.as_str(), job.last_error.as_deref()), ("COMPLETED", None), "{status}");
        assert!(job.completed_at.is_some() && job.duration_millis.is_some_and(|millis| millis >= 0), "{job:?}");
        let attempts = world.attempts(id).await;
        assert_eq!((attempts.len(), attempts[0].response_code), (1, Some(i32::from(status))));
        assert_eq!(rail.exchanges().len(), 1);
    }
    node.stop(SOON).await;
}

/// After a failure the job reads FAILED with its error while it waits, and IN_PROGRESS and COMPLETED after that.
#[tokio::test(flavor = "multi_thread")]
async fn s3_18_s3_21_a_failed_job_waits_as_failed_and_goes_on() {
    let world = World::new().await;
    let gate = Gate::closed();
    let rail = FakeRail::start().await.status(500).body("no luck").ok().hold_until(&gate).then_ok();
    let id = world.hook(&rail.url(), "{}", |job| job.retry = railyard_core::backoff::RetryStrategy::Fixed).await;
    assert_eq!(world.job(id).await.status.as_str(), "PENDING");
    let node = world.node().await;
    eventually(SOON, "FAILED", || async { world.job(id).await.status.as_str() == "FAILED" }).await;
    let job = world.job(id).await;
    assert!(job.last_error.as_ref().is_some_and(|text| text.contains("500")), "{job:?}");
    assert!(job.next_attempt_at.is_some() && job.completed_at.is_none());
    // The back-off is five seconds; that it passes is not what this is about.
    let now = "UPDATE payment_outbox_pending SET next_attempt_at = clock_timestamp()";
    world.sql.batch_execute(now).await.unwrap();
    eventually(SOON, "IN_PROGRESS", || async { world.job(id).await.status.as_str() == "IN_PROGRESS" }).await;
    gate.open();
    let job = world.ended(id).await;
    assert_eq!((job.status.as_str(), job.attempt_count), ("COMPLETED", 2));
    node.stop(SOON).await;
}

/// The one table of answers (S3-28): 4xx of a webhook are tried to the last, 410 and redirects end at once; what is
/// spent is spent, and a job that has ended is not sent again (S3-19, S3-20).
#[tokio::test(flavor = "multi_thread")]
async fn s3_28_webhook_answers_follow_one_table() {
    let world = World::new().await;
    let node = world.node().await;
    let mut cases: Vec<Case> = [400, 401, 403, 404, 405, 409, 413, 415, 422, 408, 425, 500, 502, 503, 599]
        .into_iter()
        .map(|status| Case { status, requests: 3, history: &["RETRYABLE", "RETRYABLE", "FAILED"] })
        .collect();
    cases.push(Case { status: 410, requests: 1, history: &["FAILED"] });
    let mut jobs = Vec::new();
    for case in &cases {
        let rail = FakeRail::start().await.status(case.status).forever();
        let id = world.hook(&rail.url(), "{}", |_| {}).await;
        jobs.push((case, rail, id));
    }
    for (case, rail, id) in jobs {
        let job = world.ended(id).await;
        assert_eq!(job.status.as_str(), "ERROR", "{}", case.status);
        assert!(job.last_error.is_some_and(|text| text.contains(&case.status.to_string())), "{}", case.status);
        let attempts = world.attempts(id).await;
        let states: Vec<&str> = attempts.iter().map(|attempt| attempt.state.as_str()).collect();
        assert_eq!(states, case.history, "{}", case.status);
        assert!(attempts.iter().all(|attempt| attempt.response_code == Some(i32::from(case.status))));
        assert_eq!(rail.exchanges().len(), case.requests, "{}", case.status);
    }
    node.stop(SOON).await;
}

/// The other half of the table: a payment rail's refusal without a code ends the payment at once.
#[tokio::test(flavor = "multi_thread")]
async fn s3_28_a_payment_rails_refusals_end_at_once() {
    let world = World::new().await;
    let node = world.node().await;
    let mut jobs = Vec::new();
    for status in [400, 401, 403, 404, 405, 409, 410, 413, 415, 422] {
        let rail = FakeRail::start().await.status(status).forever();
        let id = world.pay(&rail, &format!("debtor-{status}"), &format!("key-{status}")).await;
        jobs.push((status, rail, railyard_core::OutboxId(id)));
    }
    for (status, rail, id) in jobs {
        assert_eq!(world.ended(id).await.status.as_str(), "ERROR", "{status}");
        assert_eq!(rail.exchanges().len(), 1, "{status}");
    }
    node.stop(SOON).await;
}

/// A redirect is no success and is not followed: one request, the body nowhere else, the reason on record.
#[tokio::test(flavor = "multi_thread")]
async fn s3_29_a_redirect_is_neither_followed_nor_a_success() {
    let world = World::new().await;
    let node = world.node().await;
    for status in [301, 302, 303, 307, 308] {
        let elsewhere = FakeRail::start().await;
        let rail = FakeRail::start().await.redirect(status, &elsewhere.url());
        let id = world.hook(&rail.url(), "{}", |_| {}).await;
        assert_eq!(world.ended(id).await.status.as_str(), "ERROR", "{status}");
        assert_eq!(world.history(id).await, ["FAILED/REDIRECT_REFUSED"]);
        assert_eq!((rail.exchanges().len(), elsewhere.connections().len()), (1, 0), "{status}");
    }
    node.stop(SOON).await;
}

/// `{"ack":false,"delaySeconds":n}` comes again after n and spends nothing: after two of them, a job that may be
/// delivered twice still has both deliveries.
#[tokio::test(flavor = "multi_thread")]
async fn s3_26_a_deferral_waits_as_long_as_it_says_and_spends_nothing() {
    let world = World::new().await;
    let rail = FakeRail::start().await.defers(1).defers(2).fails(1).then_ok();
    let node = world.node().await;
    let id = world.hook(&rail.url(), "{}", |job| job.max_attempts = 2).await;
    let receipts = rail.await_answered(4, SOON).await;
    assert_eq!(world.ended(id).await.status.as_str(), "COMPLETED");
    assert!(gap(&receipts, 0, 1) >= Duration::from_millis(950), "{:?}", gap(&receipts, 0, 1));
    assert!(gap(&receipts, 1, 2) >= Duration::from_millis(1950), "{:?}", gap(&receipts, 1, 2));
    assert_eq!(
        world.history(id).await,
        ["DEFERRED/NOT_ACKNOWLEDGED", "DEFERRED/NOT_ACKNOWLEDGED", "RETRYABLE/HTTP_500", "DISPATCHED"]
    );
    node.stop(SOON).await;
}

/// 429 and 503 with Retry-After, in seconds and as a date: not before, no budget spent, and the breaker counts nothing.
#[tokio::test(flavor = "multi_thread")]
async fn s3_27_retry_after_is_kept_and_spends_nothing() {
    let world = World::new().await;
    let now: Timestamp = world.one("SELECT clock_timestamp()").await;
    let later = now + jiff::SignedDuration::from_secs(5);
    let date = later.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
    let rail = FakeRail::start().await.retry_after(429, "2").retry_after(503, "1").retry_after(429, &date);
    let rail = rail.fails(1).then_ok();
    let node = world.node().await;
    let id = world.hook(&rail.url(), "{}", |job| job.max_attempts = 2).await;
    let receipts = rail.await_answered(5, SOON).await;
    assert_eq!(world.ended(id).await.status.as_str(), "COMPLETED");
    assert!(gap(&receipts, 0, 1) >= Duration::from_millis(1950), "{:?}", gap(&receipts, 0, 1));
    assert!(gap(&receipts, 1, 2) >= Duration::from_millis(950), "{:?}", gap(&receipts, 1, 2));
    // A date has whole seconds, so up to one less than was meant.
    let arrived = Timestamp::try_from(receipts[3].clock).unwrap();
    assert!(arrived >= later - jiff::SignedDuration::from_millis(1050), "{arrived} is before {later}");
    let deferred = ["DEFERRED/RATE_LIMITED", "DEFERRED/SERVICE_UNAVAILABLE", "DEFERRED/RATE_LIMITED"];
    assert_eq!(world.history(id).await, [&deferred[..], &["RETRYABLE/HTTP_500", "DISPATCHED"]].concat());
    let seen = node.observe().await;
    assert_eq!(seen["endpoints"][0]["breaker"]["calls"], 2, "deferrals are neutral: {seen}");
    node.stop(SOON).await;
}

/// Bodies of any bytes are kept as they came, up to 16 KiB, with a mark where more came.
#[tokio::test(flavor = "multi_thread")]
async fn s3_40_answers_are_kept_up_to_16_kib_whatever_their_bytes() {
    let world = World::new().await;
    let rail = FakeRail::start().await.nul_body(500).big(16 * 1024 + 1);
    let node = world.node().await;
    let id = world.hook(&rail.url(), "{}", |_| {}).await;
    assert_eq!(world.ended(id).await.status.as_str(), "COMPLETED");
    let attempts = world.attempts(id).await;
    let kept: Vec<(usize, bool)> =
        attempts.iter().map(|row| (row.response_body.as_ref().map_or(0, Vec::len), row.response_truncated)).collect();
    let nul = b"\0bad \xff\xfe\x1b[31m \xed\xa0\x80 \0";
    assert_eq!(attempts[0].response_body.as_deref(), Some(nul.as_slice()));
    assert_eq!(kept, [(nul.len(), false), (16 * 1024, true)]);
    let exact = FakeRail::start().await.big(16 * 1024);
    let id = world.hook(&exact.url(), "{}", |_| {}).await;
    world.ended(id).await;
    let row = world.attempts(id).await.remove(0);
    assert_eq!((row.response_body.map(|body| body.len()), row.response_truncated), (Some(16 * 1024), false));
    node.stop(SOON).await;
}

/// 200, and then the body breaks off: delivered. Taking it for a failure would send a payment twice.
#[tokio::test(flavor = "multi_thread")]
async fn trap_a_success_whose_body_breaks_off_is_a_success() {
    let world = World::new().await;
    let node = world.node().await;
    let rail = FakeRail::start().await.truncate_body();
    let webhook = world.hook(&rail.url(), "{}", |job| job.group = Some(ParticipantId::new("hooks"))).await;
    let payment = railyard_core::OutboxId(world.pay(&rail.clone().truncate_body(), "debtor", "key").await);
    for id in [webhook, payment] {
        assert_eq!(world.ended(id).await.status.as_str(), "COMPLETED");
        assert_eq!(world.history(id).await, ["DISPATCHED"]);
    }
    assert_eq!(rail.exchanges().len(), 2);
    node.stop(SOON).await;
}

/// A node that stops lets its calls end, writes their outcomes, and spends nothing of what it did not send.
#[tokio::test(flavor = "multi_thread")]
async fn trap_shutdown_is_not_a_failed_attempt() {
    let world = World::new().await;
    let gate = Gate::closed();
    let rail = FakeRail::start().await.ok().hold_until(&gate).then_ok();
    let jobs: Vec<_> = (0..20)
        .map(|n| {
            let mut job = world.draft(&rail.url(), format!("{n}"));
            job.group = Some(ParticipantId::new("one"));
            job.max_attempts = 1;
            job
        })
        .collect();
    let node = world.node().await;
    let ids = world.enqueue(&jobs).await.unwrap();
    eventually(SOON, "a call is open", || async { gate.waiting() == 1 }).await;
    // The first thing that stopping does is to say so; only then is the call answered.
    tokio::join!(node.stop(SOON), async { gate.open() });
    assert_eq!(world.history(ids[0]).await, ["DISPATCHED"]);
    assert_eq!(rail.exchanges().len(), 1);
    assert!(world.attempts(ids[1]).await.is_empty(), "a stopping node begins nothing");
    let spent: i64 = world.one("SELECT count(*) FROM payment_outbox_pending WHERE failures > 0 OR zombies > 0").await;
    let waiting: i64 = world.one("SELECT count(*) FROM payment_outbox_pending").await;
    assert_eq!((spent, waiting), (0, 19));
    let next = world.node().await;
    let receipts = rail.await_answered(20, SOON).await;
    assert_eq!(rail.order_violations(), railyard_testkit::verify::NONE);
    assert_eq!(receipts.len(), 20, "nothing came twice");
    for id in &ids[1..] {
        assert_eq!(world.ended(*id).await.status.as_str(), "COMPLETED");
    }
    next.stop(SOON).await;
}
