//! S3-19 to S3-24, S3-31, S3-32: groups, modes and times of webhook jobs.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use railyard_core::backoff::RetryStrategy;
use railyard_core::hold::HoldKind;
use railyard_core::job::NewJob;
use railyard_core::mode::Mode;
use railyard_core::{OutboxId, ParticipantId};
use railyard_store::holds::{self, Decision};
use railyard_testkit::{FakeRail, Gate, eventually, eventually_some, verify};

use crate::world::{SOON, World};

/// Jobs 0, 1, 2 … of one group, with their number as payload.
fn group(world: &World, rail: &FakeRail, name: &str, count: u32, change: impl Fn(&mut NewJob)) -> Vec<NewJob> {
    let job = |n: u32| {
        let mut job = world.draft(&rail.url(), format!("{name}-{n}"));
        job.group = Some(ParticipantId::new(name));
        change(&mut job);
        job
    };
    (0..count).map(job).collect()
}

async fn statuses(world: &World, ids: &[OutboxId]) -> Vec<&'static str> {
    let mut statuses = Vec::new();
    for id in ids {
        statuses.push(world.job(*id).await.status.as_str());
    }
    statuses
}

fn bodies(rail: &FakeRail) -> Vec<String> {
    rail.receipts().iter().map(railyard_testkit::Receipt::text).collect()
}

/// A group's next job waits while its first is retried; another group and jobs without a group go on meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn s3_31_a_group_waits_for_its_retried_job_and_nobody_else_does() {
    let world = World::new().await;
    let rail = FakeRail::start().await.for_body_with("slow-0").fails(1).then_ok().otherwise().then_ok();
    let node = world.node().await;
    // The back-off is five seconds, so that the others have time to overtake.
    let slow = group(&world, &rail, "slow", 3, |job| job.retry = RetryStrategy::Fixed);
    let slow = world.enqueue(&slow).await.unwrap();
    eventually(SOON, "it waits for its retry", || async { statuses(&world, &slow).await[0] == "FAILED" }).await;
    let quick = world.enqueue(&group(&world, &rail, "quick", 3, |_| {})).await.unwrap();
    let single = world.hook(&rail.url(), "single", |_| {}).await;
    for id in quick.iter().chain([&single]) {
        world.ended(*id).await;
    }
    assert_eq!(statuses(&world, &slow).await, ["FAILED", "PENDING", "PENDING"]);
    for id in &slow {
        world.ended(*id).await;
    }
    assert_eq!(verify::order_violations(&rail.receipts()), verify::NONE);
    let of_slow: Vec<String> = bodies(&rail).into_iter().filter(|body| body.starts_with("slow")).collect();
    assert_eq!(of_slow, ["slow-0", "slow-0", "slow-1", "slow-2"]);
    assert_eq!(rail.max_concurrent_per_group(), 1);
    node.stop(SOON).await;
}

/// Different groups, and jobs without one, are called at the same time.
#[tokio::test(flavor = "multi_thread")]
async fn s3_31_different_groups_go_in_parallel() {
    let world = World::new().await;
    let gate = Gate::closed();
    let rail = FakeRail::start().await.hold_until(&gate);
    let node = world.node().await;
    let mut jobs = Vec::new();
    for name in ["a", "b", "c"] {
        jobs.extend(group(&world, &rail, name, 2, |_| {}));
    }
    jobs.extend((0..3).map(|n| world.draft(&rail.url(), format!("single-{n}"))));
    let ids = world.enqueue(&jobs).await.unwrap();
    eventually(SOON, "one of each group and all others are open at once", || async { gate.waiting() == 6 }).await;
    gate.open();
    for id in ids {
        assert_eq!(world.ended(id).await.status.as_str(), "COMPLETED");
    }
    assert_eq!(rail.max_concurrent_per_group(), 1);
    node.stop(SOON).await;
}

/// What follows a job that ended in ERROR: with NEXT_ON_ERROR the next one goes, with BLOCK_ON_ERROR nothing does until
/// a person decides, with IMMEDIATE there is no order to wait for.
#[tokio::test(flavor = "multi_thread")]
async fn s3_32_modes_decide_what_an_error_holds() {
    let world = World::new().await;
    let rail = FakeRail::start().await.for_body_with("-0").status(410).forever().otherwise().then_ok();
    let node = world.node().await;
    let next = group(&world, &rail, "next", 3, |job| job.mode = Mode::NextOnError);
    let next = world.enqueue(&next).await.unwrap();
    let block = group(&world, &rail, "block", 3, |job| job.mode = Mode::BlockOnError);
    let block = world.enqueue(&block).await.unwrap();
    let free = group(&world, &rail, "free", 3, |job| job.mode = Mode::Immediate);
    let free = world.enqueue(&free).await.unwrap();
    for id in next.iter().chain(&free).chain([&block[0]]) {
        world.ended(*id).await;
    }
    assert_eq!(statuses(&world, &next).await, ["ERROR", "COMPLETED", "COMPLETED"]);
    assert_eq!(statuses(&world, &free).await, ["ERROR", "COMPLETED", "COMPLETED"]);
    assert_eq!(statuses(&world, &block).await, ["ERROR", "PENDING", "PENDING"]);
    // A node that starts afresh passes nothing either.
    node.stop(SOON).await;
    let node = world.node().await;
    let later = world.enqueue(&group(&world, &rail, "later", 3, |_| {})).await.unwrap();
    world.ended(later[2]).await;
    assert_eq!(statuses(&world, &block).await, ["ERROR", "PENDING", "PENDING"]);
    let name = ParticipantId::new("block");
    let decision = Decision { actor: "ops", reason: "the receiver was asked" };
    holds::release(&world.store, &name, &[HoldKind::Blocked], decision).await.unwrap();
    node.wake();
    for id in &block {
        world.ended(*id).await;
    }
    assert_eq!(statuses(&world, &block).await, ["ERROR", "COMPLETED", "COMPLETED"]);
    node.stop(SOON).await;
}

/// A job for later is not sent before its time, and within a second after it; one for the past goes at once.
#[tokio::test(flavor = "multi_thread")]
async fn s3_23_scheduled_jobs_go_at_their_time() {
    let world = World::new().await;
    let rail = FakeRail::start().await;
    let node = world.node().await;
    let now: Timestamp = world.one("SELECT clock_timestamp()").await;
    let due = now + SignedDuration::from_secs(3);
    let later = world.hook(&rail.url(), "later", |job| job.scheduled_for = Some(due)).await;
    let past =
        world.hook(&rail.url(), "past", |job| job.scheduled_for = Some(now - SignedDuration::from_hours(1))).await;
    world.ended(past).await;
    world.ended(later).await;
    assert_eq!(bodies(&rail), ["past", "later"]);
    let began = world.attempts(later).await[0].claimed_at;
    assert!(began >= due, "{began} is before {due}");
    assert!(began.duration_since(due) < SignedDuration::from_secs(3), "{began} is long after {due}");
    node.stop(SOON).await;
}

/// A job whose time runs out before it was delivered is not sent any more: EXPIRED, with that reason.
#[tokio::test(flavor = "multi_thread")]
async fn s3_24_an_expired_job_is_not_delivered_any_more() {
    let world = World::new().await;
    let rail = FakeRail::start().await.fails(1).then_ok();
    let node = world.node().await;
    let now: Timestamp = world.one("SELECT clock_timestamp()").await;
    let id = world
        .hook(&rail.url(), "{}", |job| {
            job.retry = RetryStrategy::Fixed;
            job.expires_at = Some(now + SignedDuration::from_secs(2));
        })
        .await;
    let job = world.ended(id).await;
    assert_eq!(job.status.as_str(), "EXPIRED");
    assert!(job.last_error.as_ref().is_some_and(|text| text.contains("expiresAt")), "{job:?}");
    assert_eq!(rail.exchanges().len(), 1);
    node.stop(SOON).await;
}

/// The growth that the source names, as the record shows it: 5, 15, 30, 60, 120 seconds, a tenth more or less.
#[tokio::test(flavor = "multi_thread")]
async fn s3_25_exponential_waits_grow_as_the_source_says() {
    let world = World::new().await;
    let rail = FakeRail::start().await.status(500).forever();
    let node = world.node().await;
    let id = world
        .hook(&rail.url(), "{}", |job| {
            job.retry = RetryStrategy::Exponential;
            job.max_attempts = 8;
        })
        .await;
    for (attempt, seconds) in [(1, 5.0), (2, 15.0), (3, 30.0), (4, 60.0), (5, 120.0), (6, 120.0)] {
        // The record first: an attempt that has begun meanwhile is not recorded yet.
        let recorded = eventually_some(SOON, "a failed attempt", || async {
            let sql = "SELECT recorded_at FROM payment_outbox_attempt_archive WHERE outbox_id = $1 AND attempt_no = $2";
            let recorded: Timestamp = world.sql.query_opt(sql, &[&id.0, &attempt]).await.unwrap()?.get(0);
            (world.job(id).await.status.as_str() == "FAILED").then_some(recorded)
        })
        .await;
        let wait = world.job(id).await.next_attempt_at.unwrap().duration_since(recorded).as_secs_f64();
        assert!((wait - seconds).abs() <= seconds * 0.1 + 0.2, "attempt {attempt}: {wait} s, not {seconds} s");
        let now = "UPDATE payment_outbox_pending SET next_attempt_at = clock_timestamp()";
        world.sql.batch_execute(now).await.unwrap();
    }
    node.stop(Duration::from_secs(5)).await;
}
