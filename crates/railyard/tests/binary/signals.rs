//! The end of a node by signals.

use std::time::Duration;

use railyard_testkit::{FakeRail, Gate};

use crate::{Installation, SOON};

#[tokio::test(flavor = "multi_thread")]
async fn sigterm_lets_the_running_call_end_and_puts_it_on_record() {
    let there = Installation::new().await;
    let node = there.sandbox.node().await;
    let gate = Gate::closed();
    let rail = FakeRail::start().await.hold_until(&gate);
    let credentials = there.credentials(&node).await;
    there.job(&node, &rail, &credentials, "g").await;
    rail.await_receipts(1, SOON).await;
    node.term();
    railyard_testkit::eventually(SOON, "it is no longer ready", || async {
        node.http().get("/readyz").await.is_ok_and(|answer| answer.status == 503)
    })
    .await;
    gate.open();
    assert_eq!(node.await_exit(SOON).await, 0, "{}", node.log());
    let sql = there.db.connect().await;
    let ended = "SELECT count(*) FROM dispatch_job_outcome WHERE status = 'COMPLETED'";
    assert_eq!(sql.query_one(ended, &[]).await.unwrap().get::<_, i64>(0), 1);
    let left = "SELECT (SELECT count(*) FROM in_flight) + (SELECT count(*) FROM node)";
    assert_eq!(sql.query_one(left, &[]).await.unwrap().get::<_, i64>(0), 0, "others may take over at once");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_signal_ends_it_at_once() {
    let there = Installation::new().await;
    let node = there.sandbox.node().await;
    let gate = Gate::closed();
    let rail = FakeRail::start().await.hold_until(&gate);
    let credentials = there.credentials(&node).await;
    there.job(&node, &rail, &credentials, "g").await;
    rail.await_receipts(1, SOON).await;
    node.term();
    railyard_testkit::eventually(SOON, "it stops", || async { node.log().contains("stopping") }).await;
    node.term();
    assert_eq!(node.await_exit(Duration::from_secs(5)).await, 1, "{}", node.log());
    let sql = there.db.connect().await;
    let left = sql.query_one("SELECT count(*) FROM in_flight", &[]).await.unwrap();
    assert_eq!(left.get::<_, i64>(0), 1, "the call is on record for others to heal");
}
