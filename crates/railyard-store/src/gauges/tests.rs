use super::*;
use crate::jobs::Taken;
use crate::testing::TestStore;

#[tokio::test]
async fn s2_28_figures_match_the_tables() {
    let t = TestStore::new().await;
    let nothing = read(&t.store, 5).await.unwrap();
    assert!(nothing.queued.iter().all(|(_, items)| *items == 0) && nothing.queued.len() == 5);
    assert_eq!(Gauges { queued: Vec::new(), ..nothing }, Gauges::default());
    for group in ["deep", "deep", "deep", "held", "out"] {
        t.create(&t.job(Some(group))).await;
    }
    t.create(&t.job(None)).await;
    let out = t.create(&t.job(Some("out"))).await;
    let first = t
        .one::<uuid::Uuid>(
            "SELECT outbox_id FROM payment_outbox_pending WHERE participant_id = 'out' AND sequence_id = 1",
        )
        .await;
    t.begin(railyard_core::OutboxId(first)).await;
    t.sql
        .batch_execute("UPDATE in_flight SET call_deadline = clock_timestamp() - interval '31 seconds'")
        .await
        .unwrap();
    t.sql
        .batch_execute(
            "INSERT INTO group_hold VALUES ('held', 'paused', NULL, 'r', 'a'), ('held', 'blocked', NULL, 'r', 'a')",
        )
        .await
        .unwrap();
    let failed = t.create(&t.job(None)).await.outbox_id;
    t.begin(failed).await;
    t.finish(failed, "ERROR", false).await;

    let found = read(&t.store, 5).await.unwrap();
    assert_eq!((found.pending_depth, found.in_flight, found.stuck, found.dlq_depth), (6, 1, 1, 1));
    assert_eq!(found.pending_held, 1, "two holds of one group hold its messages once");
    let age: f64 = t
        .one("SELECT extract(epoch FROM clock_timestamp() - min(created_at))::float8 FROM payment_outbox_pending")
        .await;
    assert!(found.oldest_pending_age_s > 0.0 && found.oldest_pending_age_s <= age);
    let named: Vec<(&str, u64, GroupState)> =
        found.groups.iter().map(|group| (group.group.as_str(), group.depth, group.state)).collect();
    assert_eq!(
        named,
        [("deep", 3, GroupState::Ready), ("held", 1, GroupState::Paused), ("out", 1, GroupState::InFlight)]
    );
    assert_eq!((found.other.depth, found.other.in_flight), (1, 0), "the message without a group");
    assert_eq!(found.held.len(), 2);
    assert_eq!(out.taken, Taken::Created);
}

#[tokio::test]
async fn only_so_many_groups_are_named_and_the_rest_is_summed() {
    let t = TestStore::new().await;
    for n in 0..10 {
        for _ in 0..=n {
            t.create(&t.job(Some(&format!("g{n}")))).await;
        }
    }
    let found = read(&t.store, 2).await.unwrap();
    let named: Vec<&str> = found.groups.iter().map(|group| group.group.as_str()).collect();
    assert_eq!(named, ["g0", "g1", "g8", "g9"], "the two oldest and the two deepest");
    assert_eq!(found.pending_depth, 55);
    assert_eq!(found.other.depth, 55 - 1 - 2 - 9 - 10);
    assert!(read(&t.store, 0).await.unwrap().groups.is_empty());
    t.sql.batch_execute("INSERT INTO group_hold VALUES ('g5', 'paused', NULL, 'r', 'a')").await.unwrap();
    assert_eq!(read(&t.store, 2).await.unwrap().pending_held, 6, "also of groups that are not named");
}
