//! A late success of one run and the failure of the next, in both orders; and a late success whose job blocks its group.

use super::*;
use crate::feeds::Standing;

/// Ends a job in flight without success, as settle does.
const ERROR: &str = "
    WITH f AS (DELETE FROM in_flight WHERE outbox_id = $1 RETURNING *)
    INSERT INTO dispatch_job_outcome (outbox_id, status, participant_id, sequence_id, attempt_count, last_error,
      duration_millis, recorded_at)
    SELECT outbox_id, 'ERROR', participant_id, sequence_id, attempt_no, 'boom', 7, clock_timestamp() FROM f";
const TOLD: &str = "SELECT exec_late_success($1)";

/// Given up, requeued, and in flight again.
async fn second_run(t: &TestStore) -> (OutboxId, OutboxId) {
    let first = given_up(t, "a").await;
    assert_eq!(requeued(t, "a").await, Requeue::Done);
    cycle(t).await;
    let second = job(t, "a").await;
    t.begin(second).await;
    (first, second)
}

async fn executed_once(t: &TestStore) {
    assert_eq!(status(t, "a").await, (PaymentStatus::Processing, QueueStatus::Completed));
    assert_eq!(jobs_made(t).await, 2, "and nothing more is made of it");
    assert_eq!(requeued(t, "a").await, Requeue::NotEnded(QueueStatus::Completed));
}

/// The late success is being written: the failure waits for it, and is none to the payment.
#[tokio::test]
async fn s0_27_a_failure_behind_a_late_success_is_none() {
    let t = ready().await;
    let (first, second) = second_run(&t).await;
    let (other, settles) = (t.db.connect().await, t.db.connect().await);
    other.batch_execute("BEGIN").await.unwrap();
    late_by(&other, first).await;
    other.execute(TOLD, &[&first.0]).await.unwrap();
    let failing = async { settles.execute(ERROR, &[&second.0]).await.unwrap() };
    let committed = async {
        t.waiting(1).await;
        other.batch_execute("COMMIT").await.unwrap();
    };
    let (ended, ()) = tokio::join!(failing, committed);
    assert_eq!(ended, 1);
    executed_once(&t).await;
}

/// The failure is being written: the late success waits for it, and the payment goes on.
#[tokio::test]
async fn s0_27_a_late_success_behind_a_failure_is_followed() {
    let t = ready().await;
    let (first, second) = second_run(&t).await;
    let (other, settles) = (t.db.connect().await, t.db.connect().await);
    other.batch_execute("BEGIN").await.unwrap();
    other.execute(ERROR, &[&second.0]).await.unwrap();
    let coming = async {
        late_by(&settles, first).await;
        settles.execute(TOLD, &[&first.0]).await.unwrap()
    };
    let committed = async {
        t.waiting(1).await;
        other.batch_execute("COMMIT").await.unwrap();
    };
    tokio::join!(coming, committed);
    executed_once(&t).await;
    assert_eq!(audit(&t, "LATE_SUCCESS").await, 1);
}

/// The debtor's next payment waits behind one that failed; once that is known to have succeeded, it goes on.
#[tokio::test]
async fn s0_27_a_late_success_lets_its_debtor_go_on() {
    let t = ready().await;
    due(&t, &["a", "d"]).await;
    assert_eq!(cycle(&t).await.dispatched, 2);
    let (first, behind) = (job(&t, "a").await, job(&t, "d").await);
    t.begin(first).await;
    let healed = "
        INSERT INTO payment_outbox_attempt_archive (outbox_id, attempt_no, late, attempt_id, state, participant_id,
          sequence_id, rail_type, epoch, node_id, claimed_at, recorded_at)
        SELECT outbox_id, attempt_no, false, attempt_id, 'FAILED', participant_id, sequence_id, rail_type, 1, node_id,
          claimed_at, now()
        FROM in_flight WHERE outbox_id = $1 RETURNING attempt_id";
    let attempt: Uuid = t.sql.query_one(healed, &[&first.0]).await.unwrap().get(0);
    t.finish(first, "ERROR", true).await;
    let standing = async |id: &str| row(&t, id).await.standing;
    assert_eq!((standing("a").await, standing("d").await), (Standing::InDoubt, Standing::Held));
    let late = "SELECT settle_late($1, $2, 1, 'DISPATCHED', now(), 5, 200, NULL, false, NULL, NULL, NULL, NULL)";
    let done: String = t.sql.query_one(late, &[&attempt, &first.0]).await.unwrap().get(0);
    assert_eq!(done, "LATE_ENDED");
    assert_eq!((standing("a").await, standing("d").await), (Standing::Delivered, Standing::Dispatched));
    assert_eq!(status(&t, "a").await, (PaymentStatus::Processing, QueueStatus::Completed));
    let due = "SELECT due_at <= clock_timestamp() FROM ready_group
               WHERE participant_id = (SELECT participant_id FROM payment_outbox_pending WHERE outbox_id = $1)";
    assert!(t.sql.query_one(due, &[&behind.0]).await.unwrap().get::<_, bool>(0));
}
