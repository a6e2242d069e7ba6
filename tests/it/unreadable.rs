//! A begun message whose content cannot be read: its lane is held for a person to look at, and no other waits for it.

use railyard_testkit::{FakeRail, eventually};

use crate::producer::eager;
use crate::world::{SOON, World};

#[tokio::test(flavor = "multi_thread")]
async fn trap_an_unreadable_message_holds_its_own_lane_alone() {
    let world = World::new().await;
    let rail = FakeRail::start().await;
    for n in 0..30 {
        world.pay(&rail, &format!("g{n}"), &format!("k{n}")).await;
    }
    // As if its day had been dropped by hand.
    world
        .sql
        .batch_execute(
            "SET session_replication_role = replica;
             DELETE FROM dispatch_job WHERE participant_id = 'g7';
             SET session_replication_role = origin",
        )
        .await
        .unwrap();
    let node = world.node_with(eager).await;
    rail.await_answered(29, SOON).await;
    let held =
        "SELECT coalesce(string_agg(participant_id || ' ' || kind || ': ' || reason, ', '), 'nobody') FROM group_hold";
    eventually(SOON, "its lane is held", || async { world.one::<String>(held).await != "nobody" }).await;
    assert_eq!(
        world.one::<String>(held).await,
        "g7 in_doubt: message cannot be read: unreadable row: it has no job: its day was dropped"
    );
    // Nothing was sent: the row goes back, and stays held.
    let places = "SELECT (SELECT count(*) FROM payment_outbox_pending) || ' pending, '
                    || (SELECT count(*) FROM in_flight) || ' in flight'";
    eventually(SOON, "its row is taken back", || async {
        world.one::<String>(places).await == "1 pending, 0 in flight"
    })
    .await;
    let attempts = "SELECT string_agg(DISTINCT state, ', ') || ' ' || count(*) FROM payment_outbox_attempt_archive a
                    WHERE NOT EXISTS (SELECT 1 FROM dispatch_job j WHERE j.outbox_id = a.outbox_id)";
    assert_eq!(world.one::<String>(attempts).await, "NOT_STARTED 1");
    assert_eq!(rail.receipts().len(), 29);
    node.stop(SOON).await;
}
