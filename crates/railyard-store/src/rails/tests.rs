use super::*;
use crate::testing::TestStore;

fn bank() -> RailSpec {
    RailSpec {
        rail_type: "bank".to_owned(),
        kind: RailKind::Payment,
        on_unknown: OnUnknown::Hold,
        target_url: Some("https://bank.example/pay".to_owned()),
        credentials_id: None,
    }
}

#[tokio::test]
async fn configured_rails_are_written_and_changed_and_never_dropped() {
    let t = TestStore::new().await;
    configure(&t.store, &[bank()]).await.unwrap();
    configure(&t.store, &[RailSpec { on_unknown: OnUnknown::Retry, ..bank() }]).await.unwrap();
    configure(&t.store, &[]).await.unwrap();
    let rows = list(&t.store).await.unwrap();
    let names: Vec<&str> = rows.iter().map(|row| row.spec.rail_type.as_str()).collect();
    assert_eq!(names, ["bank", "payment_webhook", "webhook"]);
    assert_eq!(rows[0].spec.on_unknown, OnUnknown::Retry);
    assert!(rows.iter().all(|row| !row.paused && row.switched.is_none()));
    assert!(configure(&t.store, &[RailSpec { rail_type: "Bad Name".to_owned(), ..bank() }]).await.is_err());
}

#[tokio::test]
async fn a_rail_is_stopped_and_started_on_record() {
    let t = TestStore::new().await;
    let decision = Decision { actor: "ops", reason: "maintenance at the bank" };
    let refused = switch(&t.store, "webhook", false, decision).await.unwrap_err();
    assert!(matches!(refused, StoreError::Conflict { .. }), "{refused}");
    switch(&t.store, "webhook", true, decision).await.unwrap();
    let refused = switch(&t.store, "webhook", true, decision).await.unwrap_err();
    assert!(matches!(refused, StoreError::Conflict { .. }), "{refused}");
    let paused: Vec<RailRow> = list(&t.store).await.unwrap().into_iter().filter(|row| row.paused).collect();
    assert_eq!(paused.len(), 1);
    assert_eq!(paused[0].switched.as_ref().unwrap().2, "maintenance at the bank");
    switch(&t.store, "webhook", false, decision).await.unwrap();
    assert!(list(&t.store).await.unwrap().iter().all(|row| !row.paused));
    let refused = switch(&t.store, "nope", true, decision).await.unwrap_err();
    assert!(matches!(refused, StoreError::Invalid { .. }), "{refused}");
    let actions: Vec<String> =
        audit::list(&t.store, None, None, 10).await.unwrap().into_iter().map(|entry| entry.action).collect();
    assert_eq!(actions, ["rail.resume", "rail.pause", "credentials.create"]);
}
