//! Nothing is sent twice, whoever makes it again; and nothing keeps others waiting for ever.

use tokio_postgres::Client;

use super::*;

mod late;

const DECISION: Decision<'static> = Decision { actor: "operator", reason: "bank is back" };

async fn requeued(t: &TestStore, id: &str) -> Requeue {
    requeue(&t.store, PAYMENT, id, DECISION).await.unwrap()
}

/// Handed over, and its job has ended in ERROR.
async fn given_up(t: &TestStore, id: &str) -> OutboxId {
    due(t, &[id]).await;
    assert_eq!(cycle(t).await.dispatched, 1);
    let first = job(t, id).await;
    ended(t, first, "ERROR").await;
    assert_eq!(row(t, id).await.queue_status, QueueStatus::DeadLetter);
    first
}

async fn late_success(t: &TestStore, job: OutboxId) {
    late_by(&t.sql, job).await;
}

async fn late_by(client: &Client, job: OutboxId) {
    let sql = "INSERT INTO payment_outbox_attempt_archive (outbox_id, attempt_no, late, attempt_id, state, rail_type, epoch,
                 node_id, claimed_at, recorded_at)
               VALUES ($1, 1, true, gen_random_uuid(), 'DISPATCHED', 'payment_webhook', 1, gen_random_uuid(), now(), now())";
    client.execute(sql, &[&job.0]).await.unwrap();
}

async fn replayed(t: &TestStore, job: OutboxId) -> (String, Option<Uuid>) {
    let sql = "SELECT result, outbox_id FROM replay_jobs(ARRAY[$1::uuid], 'operator', 'x')";
    let row = t.sql.query_one(sql, &[&job.0]).await.unwrap();
    (row.get(0), row.get(1))
}

async fn jobs_made(t: &TestStore) -> i64 {
    t.one("SELECT count(*) FROM dispatch_job WHERE type = 'payment.execute'").await
}

#[tokio::test]
async fn s0_27_no_new_run_of_what_a_late_answer_says_was_delivered() {
    let t = ready().await;
    let first = given_up(&t, "a").await;
    late_success(&t, first).await;
    let Requeue::Refused(why) = requeued(&t, "a").await else { panic!("it is requeued") };
    assert!(why.contains("late answer"), "{why}");
    // It may come between the decision and the hand-over as well: then nothing more is tried.
    let second = given_up(&t, "b").await;
    assert_eq!(requeued(&t, "b").await, Requeue::Done);
    late_success(&t, second).await;
    assert_eq!(cycle(&t).await, HandedOver { failed: 1, dead: 1, ..HandedOver::default() });
    assert_eq!(status(&t, "b").await, (PaymentStatus::Processing, QueueStatus::Completed), "it was executed");
    assert_eq!(jobs_made(&t).await, 2);
    assert_eq!(t.one::<i64>("SELECT count(*) FROM job_replay").await, 0);
}

/// The settle of a node that was given up: the record says ERROR, and then that it was delivered after all.
#[tokio::test]
async fn s0_27_a_late_success_is_followed_by_its_item() {
    let t = ready().await;
    let first = given_up(&t, "a").await;
    late_success(&t, first).await;
    let told = "SELECT exec_late_success($1)";
    for _ in 0..2 {
        t.sql.execute(told, &[&first.0]).await.unwrap();
        assert_eq!(status(&t, "a").await, (PaymentStatus::Processing, QueueStatus::Completed));
    }
    assert_eq!(audit(&t, "LATE_SUCCESS").await, 1);
    // One of the run before, while the new one is on its way: however that ends, it was executed.
    let first = given_up(&t, "b").await;
    assert_eq!(requeued(&t, "b").await, Requeue::Done);
    cycle(&t).await;
    let second = job(&t, "b").await;
    late_success(&t, first).await;
    t.sql.execute(told, &[&first.0]).await.unwrap();
    assert_eq!(row(&t, "b").await.queue_status, QueueStatus::Dispatched);
    ended(&t, second, "ERROR").await;
    assert_eq!(status(&t, "b").await, (PaymentStatus::Processing, QueueStatus::Completed));
    // And once both have been given up.
    let first = given_up(&t, "c").await;
    assert_eq!(requeued(&t, "c").await, Requeue::Done);
    cycle(&t).await;
    ended(&t, job(&t, "c").await, "ERROR").await;
    t.sql.execute(told, &[&first.0]).await.unwrap();
    assert_eq!(row(&t, "c").await.queue_status, QueueStatus::DeadLetter, "nothing was delivered yet");
    late_success(&t, first).await;
    t.sql.execute(told, &[&first.0]).await.unwrap();
    assert_eq!(status(&t, "c").await, (PaymentStatus::Processing, QueueStatus::Completed));
}

#[tokio::test]
async fn s0_27_a_new_run_is_the_replay_of_the_job_before() {
    let t = ready().await;
    let first = given_up(&t, "a").await;
    assert_eq!(requeued(&t, "a").await, Requeue::Done);
    assert_eq!(replayed(&t, first).await, ("REFUSED".to_owned(), None), "it waits to be handed over");
    cycle(&t).await;
    let second = job(&t, "a").await;
    assert_eq!(replayed(&t, first).await, ("EXISTING".to_owned(), Some(second.0)));
    // The third run replays the second, and is to the rail what the first one was.
    ended(&t, second, "ERROR").await;
    assert_eq!(requeued(&t, "a").await, Requeue::Done);
    cycle(&t).await;
    let third = job(&t, "a").await;
    let sql = "SELECT replay_of, rail_key FROM dispatch_job WHERE outbox_id = $1";
    let made = t.sql.query_one(sql, &[&third.0]).await.unwrap();
    assert_eq!((made.get::<_, Uuid>(0), made.get::<_, Uuid>(1)), (second.0, first.0));
    assert_eq!(jobs_made(&t).await, 3);
}

#[tokio::test]
async fn s0_27_an_item_follows_the_replay_of_its_job() {
    let t = ready().await;
    let first = given_up(&t, "a").await;
    let (result, replay) = replayed(&t, first).await;
    assert_eq!(result, "CREATED");
    let replay = OutboxId(replay.unwrap());
    assert_eq!((row(&t, "a").await.queue_status, job(&t, "a").await), (QueueStatus::Dispatched, replay));
    assert_eq!(requeued(&t, "a").await, Requeue::NotEnded(QueueStatus::Dispatched));
    ended(&t, replay, "COMPLETED").await;
    assert_eq!(status(&t, "a").await, (PaymentStatus::Processing, QueueStatus::Completed));
    assert_eq!((jobs_made(&t).await, audit(&t, "REPLAYED").await), (2, 1));
}

/// A replay that is not committed yet: who requeues waits for it, and sees it then.
#[tokio::test]
async fn s0_27_a_replay_and_a_requeue_at_once_are_one_of_them() {
    let t = ready().await;
    let first = given_up(&t, "a").await;
    let other = t.db.connect().await;
    other.batch_execute("BEGIN").await.unwrap();
    other.query("SELECT * FROM replay_jobs(ARRAY[$1::uuid], 'operator', 'x')", &[&first.0]).await.unwrap();
    let committed = async {
        t.waiting(1).await;
        other.batch_execute("COMMIT").await.unwrap();
    };
    let (answer, ()) = tokio::join!(requeued(&t, "a"), committed);
    assert_eq!(answer, Requeue::NotEnded(QueueStatus::Dispatched));
    assert_eq!(jobs_made(&t).await, 2);
}

#[tokio::test]
async fn s0_17_a_key_of_somebody_elses_job_is_no_start() {
    let t = ready().await;
    set(&t, "max_dispatch_retries = 2").await;
    let theirs =
        "SELECT enqueue_payment_outbox('a', 'shop', 'exec-payment-a', 'payment_webhook', '{\"amount\": \"1\"}')";
    t.sql.batch_execute(theirs).await.unwrap();
    // Nobody else may say that it comes from here.
    for call in [
        "SELECT enqueue_payment_outbox('b', 'shop', 'k', 'payment_webhook', '{}', p_source => 'dispatch')",
        "SELECT enqueue_payment_outbox(ARRAY[ROW('dispatch', 'x', NULL, 'g', NULL, 'webhook', NULL, NULL, '{}', NULL, NULL, NULL,
           NULL, NULL, NULL, NULL, NULL, NULL, 'b', 'k', NULL)::outbox_item])",
    ] {
        let error = t.sql.query(call, &[]).await.unwrap_err();
        let error = error.as_db_error().unwrap();
        assert_eq!((error.code().code(), error.column()), ("RY400", Some("source")), "{error}");
    }
    due(&t, &["a"]).await;
    assert_eq!(cycle(&t).await, HandedOver { failed: 1, ..HandedOver::default() });
    assert_eq!(status(&t, "a").await, (PaymentStatus::Scheduled, QueueStatus::Ready));
    // Nor is it one for whoever finds the claim stale.
    claimed(&t).await;
    let age = "UPDATE payment_exec_queue SET claimed_at = clock_timestamp() - interval '1 hour'";
    t.sql.batch_execute(age).await.unwrap();
    assert_eq!(recover(&t.store, PAYMENT, ALL).await.unwrap(), Recovered { dead: 1, ..Recovered::default() });
    // A new run has a key of its own.
    assert_eq!(requeued(&t, "a").await, Requeue::Done);
    assert_eq!(cycle(&t).await.dispatched, 1);
    let run: String = t.one("SELECT exec_workflow_id FROM payment_exec_queue").await;
    assert_eq!(run, "exec-payment-a-r1");
}

#[tokio::test]
async fn s0_20_fewer_retries_than_were_spent_give_up_and_bar_nobody() {
    let t = ready().await;
    due(&t, &["a", "d"]).await;
    t.sql.batch_execute("UPDATE payment_exec_queue SET retry_count = 3 WHERE payment_id = 'a'").await.unwrap();
    set(&t, "max_dispatch_retries = 2").await;
    assert_eq!(recover(&t.store, PAYMENT, ALL).await.unwrap(), Recovered { dead: 1, ..Recovered::default() });
    assert_eq!(row(&t, "a").await.queue_status, QueueStatus::DeadLetter);
    assert_eq!(cycle(&t).await, HandedOver { dispatched: 1, ..HandedOver::default() });
    assert_eq!(row(&t, "d").await.queue_status, QueueStatus::Dispatched);
}

#[tokio::test]
async fn s0_12_a_debtor_that_is_barred_takes_no_place_of_others() {
    let t = ready().await;
    due(&t, &["a", "d", "g", "b"]).await;
    set(&t, "batch_size = 1").await;
    assert_eq!(ids(&claimed(&t).await), ["a"], "its dispatcher dies with it");
    set(&t, "batch_size = 2").await;
    assert_eq!(ids(&claimed(&t).await), ["b"]);
}

#[tokio::test]
async fn a_later_step_bars_nobody_and_is_barred_by_nobody() {
    let t = ready().await;
    set(&t, "step_rails = '{\"NOTIFY\": \"mail\"}'").await;
    due(&t, &["a"]).await;
    cycle(&t).await;
    ended(&t, job(&t, "a").await, "COMPLETED").await;
    steps(&t).await;
    ended(&t, job(&t, "a").await, "CANCELLED").await;
    assert_eq!(requeued(&t, "a").await, Requeue::Done);
    let gone = "UPDATE exec_step SET rail_type = 'nowhere' WHERE name = 'NOTIFY'";
    t.sql.batch_execute(gone).await.unwrap();
    due(&t, &["d"]).await;
    assert_eq!(cycle(&t).await, HandedOver { dispatched: 1, failed: 1, ..HandedOver::default() });
    assert_eq!(row(&t, "d").await.queue_status, QueueStatus::Dispatched);
    // And the other way round: an execution that cannot start holds no notification.
    due(&t, &["g"]).await;
    let later = "UPDATE exec_step SET rail_type = 'mail' WHERE name = 'NOTIFY' AND payment_id = 'a';
                 DELETE FROM payment_exec_context WHERE payment_id = 'g';
                 UPDATE payment_exec_queue SET scheduled_exec_time = scheduled_exec_time - interval '1 hour' WHERE payment_id = 'g'";
    t.sql.batch_execute(later).await.unwrap();
    assert_eq!(cycle(&t).await, HandedOver { dispatched: 1, failed: 1, ..HandedOver::default() });
}

#[tokio::test]
async fn s0_38_what_stands_behind_delays_nothing() {
    let t = ready().await;
    let soon = t.one::<Timestamp>("SELECT clock_timestamp()").await + SignedDuration::from_secs(1200);
    accepted(&t, &[Payment { requested_time: Some(soon), ..payment("far", 1) }]).await;
    assert_eq!(cycle(&t).await.dispatched, 1, "it waits in the outbox");
    accepted(&t, &[payment("now", 1), Payment { requested_time: Some(soon), ..payment("behind", 1) }]).await;
    assert_eq!(cycle(&t).await.dispatched, 2);
    let starts = "SELECT array_agg(payment_id ORDER BY exec_start_at), bool_or(payment_id = 'now' AND exec_start_at < now() + interval '1 minute')
                  FROM payment_exec_queue";
    let row = t.sql.query_one(starts, &[]).await.unwrap();
    assert_eq!(
        (row.get::<_, Vec<String>>(0), row.get(1)),
        (["now", "far", "behind"].map(str::to_owned).to_vec(), true)
    );
}

#[tokio::test]
async fn s0_40_a_batch_that_waits_for_the_database_is_kept_or_goes_back_without_a_count() {
    let t = ready().await;
    due(&t, &["a"]).await;
    let batch = claimed(&t).await;
    let age = "UPDATE payment_exec_queue SET claimed_at = clock_timestamp() - interval '1 hour'";
    t.sql.batch_execute(age).await.unwrap();
    keep(&t.store, PAYMENT, &batch.batch).await.unwrap();
    assert_eq!(recover(&t.store, PAYMENT, ALL).await.unwrap(), Recovered::default());
    put_back(&t.store, PAYMENT, &batch.batch).await.unwrap();
    assert_eq!((row(&t, "a").await.queue_status, row(&t, "a").await.retry_count), (QueueStatus::Ready, 0));
    assert_eq!(handed(&t, &batch).await, HandedOver { lost: 1, ..HandedOver::default() });
    assert_eq!(cycle(&t).await.dispatched, 1);
}

/// Somebody throws the switch by SQL while another changes a number over HTTP.
#[tokio::test]
async fn s0_08_a_change_of_something_else_leaves_the_switch_off() {
    let t = ready().await;
    let other = t.db.connect().await;
    other.batch_execute("BEGIN; UPDATE exec_rate_config SET enabled = 0").await.unwrap();
    let change = Change { numbers: [Some(7), None, None, None, None, None, None], ..Change::default() };
    let committed = async {
        t.waiting(1).await;
        other.batch_execute("COMMIT").await.unwrap();
    };
    let (changed, ()) = tokio::join!(set_settings(&t.store, PAYMENT, change, "admin"), committed);
    let changed = changed.unwrap().unwrap();
    assert_eq!((changed.enabled, changed.batch_size), (false, 7));
    assert!(!config(&t.store, PAYMENT).await.unwrap().enabled);
    let detail: serde_json::Value = t.one("SELECT detail FROM admin_audit WHERE action = 'dispatch.set'").await;
    assert_eq!((&detail["before"]["batchSize"], &detail["after"]["batchSize"]), (&500.into(), &7.into()));
    assert_eq!(detail["after"]["enabled"], false);
}
