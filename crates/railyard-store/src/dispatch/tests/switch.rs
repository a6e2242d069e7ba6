//! Switches that are thrown, and leases that end, in the middle of a claim or a hand-over: nothing is handed over after
//! either, and nothing is lost. Each stops one side by a lock and waits until the database says that it waits.

use tokio_postgres::Client;

use super::*;

/// Keeps whoever hands over what has this key waiting in the middle of it, until the transaction is over.
async fn obstacle(t: &TestStore, id: &str, key: &str) -> Client {
    let other = t.db.connect().await;
    let hold = format!(
        "BEGIN; INSERT INTO idempotency_key (kind, scope, key, outbox_id, content_hash)
         VALUES ('instruction', '{id}', '{key}', gen_random_uuid(), '')"
    );
    other.batch_execute(&hold).await.unwrap();
    other
}

/// While somebody waits: a change, and then nobody has to wait any more.
async fn meanwhile(t: &TestStore, other: &Client, change: &str) {
    t.waiting(1).await;
    t.sql.batch_execute(change).await.unwrap();
    other.batch_execute("ROLLBACK").await.unwrap();
}

async fn jobs(t: &TestStore) -> i64 {
    t.one("SELECT count(*) FROM dispatch_job").await
}

async fn counted(t: &TestStore) -> i64 {
    t.one("SELECT sum(retry_count) FROM payment_exec_queue").await
}

const OFF: &str = "UPDATE exec_rate_config SET enabled = 0";
const ON: &str = "UPDATE exec_rate_config SET enabled = 1";
const LEASE_OVER: &str = "UPDATE node SET lease_until = clock_timestamp()";
const LEASE_GOOD: &str = "UPDATE node SET lease_until = clock_timestamp() + interval '1 hour'";

#[tokio::test]
async fn s0_08_a_switch_that_is_thrown_in_the_middle_of_a_hand_over_takes_all_of_it_back() {
    let t = ready().await;
    due(&t, &["a", "b"]).await;
    let batch = claimed(&t).await;
    let other = obstacle(&t, "a", "exec-payment-a").await;
    let (done, ()) = tokio::join!(handed(&t, &batch), meanwhile(&t, &other, OFF));
    assert_eq!(done, HandedOver { put_back: 2, ..HandedOver::default() });
    assert_eq!((jobs(&t).await, counted(&t).await), (0, 0), "nothing goes out, and it was nobody's fault");
    t.sql.batch_execute(ON).await.unwrap();
    assert_eq!(cycle(&t).await, HandedOver { dispatched: 2, ..HandedOver::default() });
}

#[tokio::test]
async fn s0_08_what_is_put_back_while_the_switch_is_thrown_on_is_handed_over() {
    let t = ready().await;
    due(&t, &["a", "b"]).await;
    let batch = claimed(&t).await;
    t.sql.batch_execute(OFF).await.unwrap();
    let other = t.db.connect().await;
    other.batch_execute("BEGIN; SELECT 1 FROM payment_exec_queue FOR UPDATE").await.unwrap();
    let (done, ()) = tokio::join!(handed(&t, &batch), meanwhile(&t, &other, ON));
    assert_eq!(done, HandedOver { dispatched: 2, ..HandedOver::default() });
    assert_eq!((jobs(&t).await, counted(&t).await), (2, 0));
}

#[tokio::test]
async fn s0_08_a_switch_that_is_thrown_in_the_middle_of_a_claim_loses_nothing() {
    for (change, expected) in [
        (OFF.to_owned(), HandedOver { put_back: 2, ..HandedOver::default() }),
        (format!("{OFF}; {ON}"), HandedOver { dispatched: 2, ..HandedOver::default() }),
    ] {
        let t = ready().await;
        due(&t, &["a", "b"]).await;
        let (name, other) = (batch_name(), t.db.connect().await);
        let hold = format!("BEGIN; SELECT pg_advisory_xact_lock(hashtextextended('{name}', 0))");
        other.batch_execute(&hold).await.unwrap();
        let (batch, ()) = tokio::join!(claim(&t.store, PAYMENT, &name, ALL), meanwhile(&t, &other, &change));
        let batch = batch.unwrap();
        assert_eq!(batch.items.len(), 2, "it had seen the switch on");
        assert_eq!(handed(&t, &batch).await, expected, "{change}");
        t.sql.batch_execute(ON).await.unwrap();
        cycle(&t).await;
        assert_eq!((jobs(&t).await, counted(&t).await), (2, 0), "{change}");
    }
}

/// Whoever throws a switch at this moment is not waited for: it may want what the hand-over has locked.
#[tokio::test]
async fn a_hand_over_does_not_wait_for_who_is_throwing_the_switch() {
    let t = ready().await;
    due(&t, &["a"]).await;
    let batch = claimed(&t).await;
    let other = t.db.connect().await;
    other.batch_execute("BEGIN; UPDATE exec_rate_config SET batch_size = 17").await.unwrap();
    let orders = batch.orders(&config(&t.store, PAYMENT).await.unwrap());
    let refused = hand_over(&t.store, ME, PAYMENT, &batch.batch, &orders).await.unwrap_err();
    assert!(refused.is_transient(), "{refused}");
    assert_eq!(jobs(&t).await, 0);
    other.batch_execute("COMMIT").await.unwrap();
    assert_eq!(handed(&t, &batch).await.dispatched, 1, "its claims are still its own");
}

#[tokio::test]
async fn a_switch_that_is_thrown_while_later_steps_are_handed_over_takes_them_back() {
    let t = ready().await;
    set(&t, "step_rails = '{\"NOTIFY\": \"mail\"}'").await;
    due(&t, &["a"]).await;
    cycle(&t).await;
    ended(&t, job(&t, "a").await, "COMPLETED").await;
    let other = obstacle(&t, "a", "exec-payment-a/NOTIFY").await;
    let (done, ()) = tokio::join!(steps(&t), meanwhile(&t, &other, OFF));
    assert_eq!((done, jobs(&t).await), (StepsHandedOver::default(), 1));
    t.sql.batch_execute(ON).await.unwrap();
    assert_eq!(steps(&t).await, StepsHandedOver { started: 1, dead: 0 });
}

#[tokio::test]
async fn who_is_no_member_any_more_hands_nothing_over_and_its_claims_wait_for_it_or_become_stale() {
    let t = ready().await;
    due(&t, &["a", "b"]).await;
    let batch = claimed(&t).await;
    let orders = batch.orders(&config(&t.store, PAYMENT).await.unwrap());
    t.sql.batch_execute(LEASE_OVER).await.unwrap();
    assert_eq!(hand_over(&t.store, ME, PAYMENT, &batch.batch, &orders).await.unwrap(), None);
    // And in the middle of it.
    t.sql.batch_execute(LEASE_GOOD).await.unwrap();
    let other = obstacle(&t, "a", "exec-payment-a").await;
    let handing = hand_over(&t.store, ME, PAYMENT, &batch.batch, &orders);
    let (done, ()) = tokio::join!(handing, meanwhile(&t, &other, LEASE_OVER));
    assert_eq!(done.unwrap(), None);
    let claimed = "SELECT count(*) FROM payment_exec_queue WHERE queue_status = 'CLAIMED'";
    assert_eq!((jobs(&t).await, t.one::<i64>(claimed).await), (0, 2));
    t.sql.batch_execute(LEASE_GOOD).await.unwrap();
    assert_eq!(handed(&t, &batch).await, HandedOver { dispatched: 2, ..HandedOver::default() });
}

/// Who found out that the database takes too long over more.
#[tokio::test]
async fn no_more_is_claimed_or_recovered_than_is_asked_for() {
    let t = ready().await;
    due(&t, &["a", "b", "c"]).await;
    for left in [1, 0] {
        assert_eq!(claim(&t.store, PAYMENT, &batch_name(), 2).await.unwrap().items.len(), left + 1, "{left}");
    }
    let age = "UPDATE payment_exec_queue SET claimed_at = clock_timestamp() - interval '1 hour'";
    t.sql.batch_execute(age).await.unwrap();
    for recovered in [2, 1, 0] {
        assert_eq!(recover(&t.store, PAYMENT, 2).await.unwrap().recovered, recovered);
    }
}
