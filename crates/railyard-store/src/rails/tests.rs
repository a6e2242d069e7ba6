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
    assert!(paused().await, "both are off, whatever PAYMENT begins with now");
    t.sql.batch_execute("DELETE FROM exec_rate_config WHERE item_type = 'INVOICE'").await.unwrap();
    assert!(paused().await, "what was handed over before is not let go by taking the type away");
    let refused = switch(&t.store, "payment_webhook", false, decision).await.unwrap_err();
    assert!(refused.to_string().contains("PAYMENT"), "what PAYMENT handed over may be there still: {refused}");
    t.sql.batch_execute("DELETE FROM exec_rate_config").await.unwrap();
    assert!(paused().await, "nobody has let it go");
    switch(&t.store, "payment_webhook", false, decision).await.unwrap();
    assert!(!paused().await);
    let webhook = "SELECT count(*) FROM rail_switch WHERE name = 'webhook'";
    assert_eq!(t.one::<i64>(webhook).await, 0, "no switch of types for rails that others use");
}

async fn is_paused(t: &TestStore, rail: &str) -> bool {
    let sql = "SELECT coalesce((SELECT paused FROM rail_switch WHERE kind = 'rail' AND name = $1), false)";
    t.sql.query_one(sql, &[&rail]).await.unwrap().get(0)
}

/// A type is given another rail: what it had handed over to the old one stops and goes on with it, until nothing is left.
#[tokio::test]
async fn a_type_stops_the_rail_that_it_began_with_before() {
    let t = TestStore::new().await;
    configure(&t.store, &[bank()]).await.unwrap();
    let old = "payment_webhook";
    let handed_over = "INSERT INTO exec_step (item_type, payment_id, step_no, name, rail_type, job_type, payload)
                       VALUES ('PAYMENT', 'a', 1, 'EXECUTE', 'payment_webhook', 'payment.execute', '{}')";
    t.sql.batch_execute(handed_over).await.unwrap();
    let set = async |change: &str| t.sql.batch_execute(&format!("UPDATE exec_rate_config SET {change}")).await.unwrap();
    set("exec_task_queue = 'bank'").await;
    set("enabled = 0").await;
    assert_eq!((is_paused(&t, old).await, is_paused(&t, "bank").await), (true, true));
    // Another type that goes on with the old rail keeps it going.
    let invoice = "INSERT INTO exec_rate_config (item_type, exec_workflow_type, exec_task_queue, rate_config)
                   VALUES ('INVOICE', 'PostContext', 'payment_webhook', 'payments')";
    t.sql.batch_execute(invoice).await.unwrap();
    assert_eq!((is_paused(&t, old).await, is_paused(&t, "bank").await), (false, true));
    t.sql.batch_execute("DELETE FROM exec_rate_config WHERE item_type = 'INVOICE'").await.unwrap();
    assert!(is_paused(&t, old).await);
    set("enabled = 1").await;
    assert_eq!((is_paused(&t, old).await, is_paused(&t, "bank").await), (false, false));
    // A batch that was prepared before may still come; what is there already stays its concern for as long as it is there.
    let age = "UPDATE exec_former_rail SET since = since - interval '2 hours'";
    let forget = async || crate::payments::drop_completed(&t.store, 400).await.unwrap();
    for change in ["", age] {
        t.sql.batch_execute(change).await.unwrap();
        forget().await;
        set("enabled = 0").await;
        assert_eq!((is_paused(&t, old).await, is_paused(&t, "bank").await), (true, true), "{change}");
        set("enabled = 1").await;
    }
    // The last one ends while the type is off: the old rail goes on with it all the same, and only then is let go.
    set("enabled = 0").await;
    t.sql.batch_execute("DELETE FROM exec_step").await.unwrap();
    forget().await;
    set("enabled = 1").await;
    assert_eq!((is_paused(&t, old).await, is_paused(&t, "bank").await), (false, false));
    forget().await;
    set("enabled = 0").await;
    assert_eq!((is_paused(&t, old).await, is_paused(&t, "bank").await), (false, true));
}

/// Two rails, each a type's: switched by SQL, one type after the other, while a person switches one over HTTP and another
/// statement switches all types. Each waits for the first lock, which all have in common, and none for the other.
#[tokio::test]
async fn r8_switches_of_types_and_rails_lock_in_one_order() {
    let t = TestStore::new().await;
    configure(&t.store, &[bank()]).await.unwrap();
    let invoice = "INSERT INTO exec_rate_config (item_type, exec_workflow_type, exec_task_queue, rate_config)
                   VALUES ('INVOICE', 'PostContext', 'bank', 'payments')";
    t.sql.batch_execute(invoice).await.unwrap();
    let (first, second) = (t.db.connect().await, t.db.connect().await);
    first.batch_execute("BEGIN; UPDATE exec_rate_config SET enabled = 0 WHERE item_type = 'PAYMENT'").await.unwrap();
    let decision = Decision { actor: "ops", reason: "because" };
    let all = async { second.batch_execute("UPDATE exec_rate_config SET enabled = 0").await };
    let one = async { switch(&t.store, "bank", true, decision).await };
    let change = crate::dispatch::Change { enabled: Some(false), ..crate::dispatch::Change::default() };
    let over_http = async { crate::dispatch::set_settings(&t.store, "INVOICE", change, "ops").await };
    let goes_on = async {
        // The other three wait; none of them has a row that this one needs.
        t.waiting(3).await;
        first.batch_execute("UPDATE exec_rate_config SET enabled = 0 WHERE item_type = 'INVOICE'; COMMIT").await
    };
    let (all, one, over_http, goes_on) = tokio::join!(all, one, over_http, goes_on);
    goes_on.unwrap();
    all.unwrap();
    assert!(!over_http.unwrap().unwrap().enabled);
    // A person's word comes before or after that of the types: it is taken where these had stopped it as well.
    one.unwrap();
    let by: String =
        t.one("SELECT string_agg(name || ' ' || actor, ', ' ORDER BY name) FROM rail_switch WHERE paused").await;
    assert_eq!(by, "bank ops, payment_webhook exec_rate_config");
}

/// Rails that start together with a switch of types: the rows of neither are locked before the lock that both begin with.
#[tokio::test]
async fn r8_rails_that_are_written_wait_for_a_switch_before_they_lock_a_row() {
    let t = TestStore::new().await;
    let first = t.db.connect().await;
    first.batch_execute("BEGIN; UPDATE exec_rate_config SET enabled = 0").await.unwrap();
    let webhook = [RailSpec { rail_type: "webhook".to_owned(), ..bank() }];
    let starting = async { configure(&t.store, &webhook).await };
    let goes_on = async {
        t.waiting(1).await;
        // Whoever waits holds no rail that this needs.
        first.batch_execute("SET LOCAL lock_timeout = '5s'; UPDATE rail SET on_unknown = 'retry'; COMMIT").await
    };
    let (starting, goes_on) = tokio::join!(starting, goes_on);
    goes_on.unwrap();
    starting.unwrap();
}
