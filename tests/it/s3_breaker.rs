//! S3-41: an endpoint that fails is left alone, its jobs lose nothing by it, and no other endpoint notices.

use std::time::{Duration, Instant};

use railyard_core::ParticipantId;
use railyard_core::breaker::Policy;
use railyard_node::Node;
use railyard_testkit::{FakeRail, Gate, eventually};
use serde_json::Value;

use crate::world::{SOON, World};

/// How long the breaker of these tests stays open.
const OPEN: Duration = Duration::from_secs(2);

/// The breaker of the only endpoint.
async fn breaker(node: &Node) -> Value {
    node.observe().await["endpoints"][0]["breaker"].clone()
}

/// What the node does unless it is told otherwise: the source's numbers.
#[test]
fn s3_41_the_breakers_defaults_are_those_of_the_source() {
    let policy = railyard_rail::HttpOptions::default().breaker.policy();
    let source =
        Policy { failure_percent: 50, calls_min: 10, open: Duration::from_secs(5), probes: 3, window: policy.window };
    assert_eq!(policy, source);
}

/// Ten failing calls open it; nothing is sent for as long as it is open; a failing probe opens it again; three good
/// ones close it. Jobs that waited meanwhile have spent nothing: with one delivery each, all arrive.
#[tokio::test(flavor = "multi_thread")]
async fn s3_41_it_opens_after_ten_half_opens_and_closes_and_spends_no_budget() {
    let world = World::new().await;
    let rail = FakeRail::start().await.fails(11).then_ok();
    let node = world
        .node_with(|options| {
            options.http.endpoint_concurrency = 1;
            options.http.breaker.open_s = 2;
        })
        .await;
    let jobs: Vec<_> = (0..40)
        .map(|n| {
            let mut job = world.draft(&rail.url(), format!("{n}"));
            job.max_attempts = 1;
            job
        })
        .collect();
    let ids = world.enqueue(&jobs).await.unwrap();
    eventually(SOON, "it is open", || async { breaker(&node).await["state"] == "open" }).await;
    assert_eq!(rail.exchanges().len(), 10, "half of at least ten calls");
    let receipts = rail.await_answered(40, SOON).await;
    let pause = |n: usize| receipts[n].first_byte_at.duration_since(receipts[n - 1].finished_at.unwrap());
    for probe in [10, 11] {
        assert!(pause(probe) >= OPEN - Duration::from_millis(50), "call {probe} came after {:?}", pause(probe));
    }
    let mut completed = 0;
    for id in ids {
        let job = world.ended(id).await;
        completed += usize::from(job.status.as_str() == "COMPLETED");
        let attempts = world.attempts(id).await;
        let sent = attempts.iter().filter(|attempt| attempt.response_code.is_some()).count();
        assert_eq!(sent, 1, "each had its one delivery: {attempts:?}");
        assert!(
            attempts.iter().all(|attempt| attempt.response_code.is_some() || attempt.state.as_str() == "NOT_STARTED")
        );
    }
    assert_eq!((completed, rail.exchanges().len()), (29, 40), "eleven were answered with 500, nobody was lost");
    assert_eq!(breaker(&node).await["state"], "closed");
    node.stop(SOON).await;
}

/// Refusals of the message say nothing against the endpoint: it stays closed.
#[tokio::test(flavor = "multi_thread")]
async fn s3_41_refusals_and_deferrals_do_not_open_it() {
    let world = World::new().await;
    let rail = FakeRail::start().await.status(404).times(15).retry_after(429, "1").times(15).then_ok();
    let node = world.node_with(|options| options.http.endpoint_concurrency = 1).await;
    let jobs: Vec<_> = (0..31)
        .map(|n| {
            let mut job = world.draft(&rail.url(), format!("{n}"));
            job.max_attempts = 1;
            job
        })
        .collect();
    world.enqueue(&jobs).await.unwrap();
    rail.await_answered(31, SOON).await;
    assert_eq!(breaker(&node).await["state"], "closed");
    node.stop(SOON).await;
}

/// From the request to the receiver; the best of three, since the machine has other things to do as well.
async fn best_of_three(world: &World, rail: &FakeRail) -> Duration {
    let mut best = Duration::MAX;
    for n in 1..=3 {
        let begun = Instant::now();
        world.hook(&rail.url(), "{}", |_| {}).await;
        rail.await_receipts(n, SOON).await;
        best = best.min(begun.elapsed());
    }
    best
}

/// 200 jobs to an endpoint that answers nothing, in 200 groups: they take ten places, and a job to another endpoint
/// goes within a second.
#[tokio::test(flavor = "multi_thread")]
async fn trap_a_dead_endpoint_takes_no_others_places() {
    let world = World::new().await;
    let gate = Gate::closed();
    let dead = FakeRail::start().await.hold_until(&gate);
    let good = FakeRail::start().await;
    let node = world.node().await;
    let jobs: Vec<_> = (0..200)
        .map(|n| {
            let mut job = world.draft(&dead.url(), "{}");
            job.group = Some(ParticipantId::new(format!("group-{n}")));
            job.timeout_s = 60;
            job
        })
        .collect();
    world.enqueue(&jobs).await.unwrap();
    eventually(SOON, "ten calls are open and the rest waits", || async {
        let seen = node.observe().await;
        gate.waiting() == 10 && seen["endpoints"][0]["waiting"].as_u64().is_some_and(|waiting| waiting > 0)
    })
    .await;
    assert!(best_of_three(&world, &good).await < Duration::from_secs(1));
    assert_eq!((gate.waiting(), dead.exchanges().len()), (10, 10), "never more than ten at once");
    gate.open();
    dead.await_answered(200, SOON).await;
    node.stop(SOON).await;
}

/// The same where the port is closed: the refused connections of one endpoint delay nobody else.
#[tokio::test(flavor = "multi_thread")]
async fn trap_a_closed_port_delays_nobody_else() {
    let world = World::new().await;
    let dead = FakeRail::start().await;
    dead.go_down().await;
    let good = FakeRail::start().await;
    let node = world.node().await;
    let jobs: Vec<_> = (0..200).map(|n| world.draft(&dead.url(), format!("{n}"))).collect();
    world.enqueue(&jobs).await.unwrap();
    eventually(SOON, "its breaker is open", || async { breaker(&node).await["state"] == "open" }).await;
    assert!(best_of_three(&world, &good).await < Duration::from_secs(1));
    node.stop(SOON).await;
}
