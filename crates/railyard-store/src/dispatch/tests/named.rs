//! The rest of S0's promises, one by one: periods, claims whose answer is lost, guards, the log, later steps.

use super::*;

async fn due_of(t: &TestStore, me: NodeId) -> Due {
    look(&t.store, me).await.unwrap().remove(0)
}

#[tokio::test]
async fn s0_11_a_changed_interval_holds_from_the_next_period_on() {
    let t = ready().await;
    let me = NodeId(Uuid::new_v4());
    assert!(due_of(&t, me).await.turn, "nobody has had one");
    assert!(take_turn(&t.store, PAYMENT, me).await.unwrap());
    assert!(end_turn(&t.store, PAYMENT, me).await.unwrap());
    let before = due_of(&t, me).await;
    assert!(!before.turn && before.again <= Duration::from_secs(5), "{before:?}");
    t.sql.batch_execute("UPDATE exec_turn SET taken_at = taken_at - interval '10 minutes'").await.unwrap();
    set(&t, "dispatch_interval_secs = 3600").await;
    assert!(!due_of(&t, me).await.turn);
    assert!(!take_turn(&t.store, PAYMENT, me).await.unwrap(), "an hour is not over");
    set(&t, "dispatch_interval_secs = 60").await;
    assert!(due_of(&t, me).await.turn, "a minute is");
    assert!(take_turn(&t.store, PAYMENT, me).await.unwrap());
    set(&t, "enabled = 0").await;
    assert!(!due_of(&t, me).await.turn, "there is nothing to do for a type that is switched off");
}

#[tokio::test]
async fn s0_40_a_claim_whose_answer_was_lost_is_found_by_its_name() {
    let t = ready().await;
    due(&t, &["a", "b"]).await;
    let name = batch_name();
    let other = t.db.connect().await;
    other.batch_execute("BEGIN").await.unwrap();
    other.query("SELECT * FROM dispatch_claim('PAYMENT', $1)", &[&name]).await.unwrap();
    // It is under way: who asks waits for its end.
    let committed = async {
        t.waiting(1).await;
        other.batch_execute("COMMIT").await.unwrap();
    };
    let (found, ()) = tokio::join!(super::super::claimed(&t.store, PAYMENT, &name), committed);
    let found = found.unwrap();
    assert_eq!((found.items.len(), found.batch.as_str()), (2, name.as_str()));
    assert!(found.items.iter().all(|(_, context)| context.is_some()));
    due(&t, &["c"]).await;
    assert!(claim(&t.store, PAYMENT, &name, ALL).await.unwrap().items.is_empty(), "a name claims once");
    assert_eq!(handed(&t, &found).await, HandedOver { dispatched: 2, ..HandedOver::default() });
    assert!(super::super::claimed(&t.store, PAYMENT, &name).await.unwrap().items.is_empty());
    assert_eq!(t.one::<i64>("SELECT sum(retry_count) FROM payment_exec_queue").await, 0);
}

#[tokio::test]
async fn s0_28_what_is_not_claimed_any_more_is_left_as_it_is_and_that_is_on_record() {
    let t = ready().await;
    due(&t, &["a"]).await;
    let old = claimed(&t).await;
    let age = "UPDATE payment_exec_queue SET claimed_at = clock_timestamp() - interval '1 hour'";
    t.sql.batch_execute(age).await.unwrap();
    assert_eq!(recover(&t.store, PAYMENT, ALL).await.unwrap().recovered, 1);
    let new = claimed(&t).await;
    let whole = "SELECT q::text FROM payment_exec_queue q";
    for dispatched in [0, 1] {
        if dispatched == 1 {
            assert_eq!(handed(&t, &new).await.dispatched, 1);
        }
        let before: String = t.one(whole).await;
        assert_eq!(handed(&t, &old).await, HandedOver { lost: 1, ..HandedOver::default() });
        assert_eq!(t.one::<String>(whole).await, before, "nothing is overwritten");
    }
    let said = "SELECT count(*) FROM dispatch_audit_log WHERE action = 'BATCH_COMPLETE' AND detail LIKE '%, lost 1'";
    assert_eq!(t.one::<i64>(said).await, 2);
    assert_eq!(t.one::<i64>("SELECT count(*) FROM dispatch_job").await, 1);
}

#[tokio::test]
async fn s0_31_what_dispatchers_did_is_on_record_and_stays() {
    let t = ready().await;
    due(&t, &["a", "b", "c"]).await;
    t.sql.batch_execute("DELETE FROM payment_exec_context WHERE payment_id = 'a'").await.unwrap();
    assert_eq!(cycle(&t).await, HandedOver { dispatched: 2, failed: 1, ..HandedOver::default() });
    claimed(&t).await;
    let age = "UPDATE payment_exec_queue SET claimed_at = clock_timestamp() - interval '1 hour'";
    t.sql.batch_execute(age).await.unwrap();
    recover(&t.store, PAYMENT, ALL).await.unwrap();
    let log = "SELECT payment_id, action, status_before, status_after, detail FROM dispatch_audit_log ORDER BY action, payment_id";
    let rows = t.sql.query(log, &[]).await.unwrap();
    let seen: Vec<String> = rows
        .iter()
        .map(|row| {
            let text = |n: usize| row.get::<_, Option<String>>(n).unwrap_or_default();
            format!("{} {} {} {}", text(0), text(1), text(2), text(3))
        })
        .collect();
    assert_eq!(
        seen,
        [
            " BATCH_COMPLETE  ",
            "b DISPATCHED CLAIMED DISPATCHED",
            "c DISPATCHED CLAIMED DISPATCHED",
            "a DISPATCH_FAILED CLAIMED READY",
            "a STALE_RECOVERY CLAIMED READY"
        ]
    );
    assert_eq!(rows[0].get::<_, String>(4), "dispatched 2, failed 1, put back 0");
    for change in ["UPDATE dispatch_audit_log SET detail = 'x'", "DELETE FROM dispatch_audit_log"] {
        assert!(t.sql.batch_execute(change).await.is_err(), "{change}");
        // And the program may not even try.
        let mine = format!("SET ROLE railyard_runtime; {change}");
        let refused = t.db.connect().await.batch_execute(&mine).await.unwrap_err();
        assert_eq!(refused.code().unwrap().code(), "42501", "{change}");
    }
    assert_eq!(t.one::<i64>("SELECT count(*) FROM dispatch_audit_log").await, 5);
}

/// The end of a step waits for nobody's key or number: what follows from it is only marked.
#[tokio::test]
async fn an_outcome_waits_for_no_producer() {
    let t = ready().await;
    set(&t, "step_rails = '{\"NOTIFY\": \"mail\"}'").await;
    due(&t, &["a"]).await;
    cycle(&t).await;
    let execute = job(&t, "a").await;
    let other = t.db.connect().await;
    let hold = "BEGIN; INSERT INTO idempotency_key (kind, scope, key, outbox_id, content_hash)
                VALUES ('instruction', 'a', 'exec-payment-a/NOTIFY', gen_random_uuid(), '')";
    other.batch_execute(hold).await.unwrap();
    tokio::time::timeout(Duration::from_secs(10), ended(&t, execute, "COMPLETED")).await.expect("it waits for nobody");
    assert_eq!(status(&t, "a").await, (PaymentStatus::Accepted, QueueStatus::Dispatched));
    assert!(due_of(&t, NodeId(Uuid::new_v4())).await.steps);
    other.batch_execute("ROLLBACK").await.unwrap();
    assert_eq!(steps(&t).await, StepsHandedOver { started: 1, dead: 0 });
    assert!(!due_of(&t, NodeId(Uuid::new_v4())).await.steps);
    assert_eq!(steps(&t).await, StepsHandedOver::default());
}

#[tokio::test]
async fn steps_that_are_due_wait_while_their_type_is_off_and_are_given_up_where_they_cannot_go() {
    let t = ready().await;
    set(&t, "step_rails = '{\"NOTIFY\": \"mail\"}'").await;
    due(&t, &["a", "b"]).await;
    cycle(&t).await;
    for id in ["a", "b"] {
        ended(&t, job(&t, id).await, "COMPLETED").await;
    }
    set(&t, "enabled = 0").await;
    assert_eq!(steps(&t).await, StepsHandedOver::default());
    set(&t, "enabled = 1").await;
    t.sql
        .batch_execute("UPDATE exec_step SET rail_type = 'nowhere' WHERE payment_id = 'b' AND name = 'NOTIFY'")
        .await
        .unwrap();
    assert_eq!(steps(&t).await, StepsHandedOver { started: 1, dead: 1 });
    let b = row(&t, "b").await;
    assert_eq!((b.status, b.queue_status), (PaymentStatus::Accepted, QueueStatus::DeadLetter));
    assert!(b.last_error.unwrap().contains("nowhere"));
    assert_eq!(audit(&t, "EXECUTION_FAILED").await, 1);
}

/// Two nodes at once: each step is one's.
#[tokio::test]
async fn a_step_that_another_node_is_at_is_passed_over() {
    let t = ready().await;
    set(&t, "step_rails = '{\"NOTIFY\": \"mail\"}'").await;
    due(&t, &["a"]).await;
    cycle(&t).await;
    ended(&t, job(&t, "a").await, "COMPLETED").await;
    let other = t.db.connect().await;
    other.batch_execute("BEGIN; SELECT dispatch_steps('PAYMENT', 10)").await.unwrap();
    let here = tokio::time::timeout(Duration::from_secs(10), steps(&t)).await.expect("nobody waits");
    assert_eq!(here, StepsHandedOver::default());
    other.batch_execute("COMMIT").await.unwrap();
    assert_eq!(t.one::<i64>("SELECT count(*) FROM dispatch_job WHERE type = 'payment.notify'").await, 1);
}

/// The settle of a node that was given up, as it comes in.
#[tokio::test]
async fn s0_27_a_late_result_of_a_job_that_has_ended_moves_its_item() {
    let t = ready().await;
    due(&t, &["a"]).await;
    cycle(&t).await;
    let first = job(&t, "a").await;
    ended(&t, first, "ERROR").await;
    let attempt = Uuid::new_v4();
    let healed =
        "INSERT INTO payment_outbox_attempt_archive (outbox_id, attempt_no, late, attempt_id, state, rail_type, epoch,
                    node_id, claimed_at, recorded_at)
                  VALUES ($1, 7, false, $2, 'ZOMBIE_REQUEUE', 'payment_webhook', 1, gen_random_uuid(), now(), now())";
    t.sql.execute(healed, &[&first.0, &attempt]).await.unwrap();
    let late = "SELECT settle_late($1, $2, 7, 'DISPATCHED', now(), 5, 200, NULL, false, NULL, NULL, NULL, NULL)";
    let done: String = t.sql.query_one(late, &[&attempt, &first.0]).await.unwrap().get(0);
    assert_eq!(done, "LATE_ENDED");
    assert_eq!(status(&t, "a").await, (PaymentStatus::Processing, QueueStatus::Completed));
}
