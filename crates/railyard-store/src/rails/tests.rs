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

/// The switch of item types, by SQL: a payment rail that only they begin with stops with the last of them and goes on with
/// the first, and what a person has stopped stays stopped.
#[tokio::test]
async fn a_payment_rail_stops_with_its_item_types() {
    let t = TestStore::new().await;
    let decision = Decision { actor: "ops", reason: "because" };
    let paused = async || {
        let now = "SELECT coalesce((SELECT paused FROM rail_switch WHERE name = 'payment_webhook'), false),
                          coalesce((SELECT paused FROM rail_limiter WHERE limit_key = 'rail:payment_webhook'), false)";
        let row = t.sql.query_one(now, &[]).await.unwrap();
        let (rail, limiter): (bool, bool) = (row.get(0), row.get(1));
        assert_eq!(rail, limiter, "the limiter's row goes with it");
        rail
    };
    let set = async |enabled: i32, of: &str| {
        let sql = format!("UPDATE exec_rate_config SET enabled = {enabled} WHERE item_type = '{of}'");
        t.sql.batch_execute(&sql).await.unwrap();
    };
    let other = "INSERT INTO exec_rate_config (item_type, exec_workflow_type, exec_task_queue, rate_config)
                 VALUES ('INVOICE', 'PostContext', 'payment_webhook', 'payments')";
    t.sql.batch_execute(other).await.unwrap();
    set(0, "PAYMENT").await;
    assert!(!paused().await, "another type goes on");
    set(0, "INVOICE").await;
    assert!(paused().await);
    assert!(t.store.limiter_paused("rail:payment_webhook").await.unwrap().answer);
    let refused = switch(&t.store, "payment_webhook", false, decision).await.unwrap_err();
    assert!(refused.to_string().contains("INVOICE, PAYMENT"), "{refused}");
    set(1, "INVOICE").await;
    assert!(!paused().await);
    set(0, "INVOICE").await;
    switch(&t.store, "payment_webhook", true, decision).await.unwrap();
    set(1, "INVOICE").await;
    assert!(paused().await, "a person has stopped it");
    switch(&t.store, "payment_webhook", false, decision).await.unwrap();
    assert!(!paused().await);
    // A type that begins elsewhere has nothing to stop here.
    set(0, "INVOICE").await;
    t.sql
        .batch_execute("UPDATE exec_rate_config SET exec_task_queue = 'webhook' WHERE item_type = 'PAYMENT'")
        .await
        .unwrap();
    assert!(paused().await, "only INVOICE is left, and it is off");
    t.sql.batch_execute("DELETE FROM exec_rate_config WHERE item_type = 'INVOICE'").await.unwrap();
    assert!(paused().await, "what was handed over before is not let go by taking the type away");
    switch(&t.store, "payment_webhook", false, decision).await.unwrap();
    assert!(!paused().await);
    let webhook = "SELECT count(*) FROM rail_switch WHERE name = 'webhook'";
    assert_eq!(t.one::<i64>(webhook).await, 0, "no switch of types for rails that others use");
}
