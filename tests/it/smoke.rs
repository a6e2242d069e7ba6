//! The shortest way through everything.

use crate::world::{SECRET, SOON, World};
use railyard_testkit::{FakeRail, eventually, verify};

/// Committed by SQL, delivered signed and in order, on record, and nothing left behind.
#[tokio::test(flavor = "multi_thread")]
async fn committed_delivered_recorded() {
    let world = World::new().await;
    let rail = FakeRail::start().await;
    let node = world.node().await;
    for n in 0..20 {
        world.pay(&rail, &format!("group-{}", n % 3), &format!("key-{n}")).await;
    }
    let receipts = rail.await_answered(20, SOON).await;
    assert_eq!(receipts.len(), 20);
    assert!(verify::order_violations(&receipts).is_empty());
    assert!(verify::signature_failures(&receipts, SECRET).is_empty());
    assert!(verify::standard_webhook_failures(&receipts, SECRET).is_empty());
    eventually(SOON, "20 outcomes on record and nothing left", || async {
        let ended: i64 = world.one("SELECT count(*) FROM dispatch_job_outcome WHERE status = 'COMPLETED'").await;
        let left: i64 = world
            .one(
                "SELECT (SELECT count(*) FROM payment_outbox_pending) + (SELECT count(*) FROM in_flight)
                       + (SELECT count(*) FROM ready_group)",
            )
            .await;
        ended == 20 && left == 0
    })
    .await;
    node.stop(SOON).await;
    let members: Vec<String> =
        world.sql.query("SELECT n::text FROM node n", &[]).await.unwrap().iter().map(|r| r.get(0)).collect();
    assert!(members.is_empty(), "a node that stops leaves: {members:?}");
}
