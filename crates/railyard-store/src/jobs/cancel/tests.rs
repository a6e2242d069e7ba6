#![expect(clippy::disallowed_methods, reason = "a test's tasks end with its runtime")]

use railyard_core::Mode;

use super::*;
use crate::jobs::get;
use crate::testing::{BEGIN, TestStore};

const OPERATOR: Decision<'static> = Decision { actor: "operator", reason: "ordered twice" };

async fn cancelled(t: &TestStore, id: OutboxId) -> Cancelled {
    cancel(&t.store, id, OPERATOR).await.unwrap()
}

/// Whatever a job waits for: its turn, its retry, its date, nobody's turn, a decision about a doubt.
#[tokio::test]
async fn s3_22_whatever_waits_can_be_cancelled() {
    let t = TestStore::new().await;
    let mut later = t.job(Some("later"));
    later.scheduled_for = Some(t.one("SELECT clock_timestamp() + interval '1 hour'").await);
    let immediate = railyard_core::job::NewJob { mode: Mode::Immediate, ..t.job(Some("g")) };
    for job in [t.job(Some("g")), t.job(None), later, immediate] {
        let id = t.create(&job).await.outbox_id;
        let Cancelled::Done(shown) = cancelled(&t, id).await else { panic!("refused") };
        assert_eq!(*shown, JobRow { payload: Vec::new(), ..get(&t.store, id).await.unwrap().unwrap() });
        assert_eq!(shown.status, JobStatus::Ended(EndStatus::Cancelled));
        assert_eq!(shown.last_error.as_deref(), Some("cancelled: ordered twice"));
        let again = cancelled(&t, id).await;
        assert_eq!(again, Cancelled::Refused(JobStatus::Ended(EndStatus::Cancelled)));
    }
    let failed = t.create(&t.job(Some("f"))).await.outbox_id;
    t.begin(failed).await;
    assert_eq!(cancelled(&t, failed).await, Cancelled::Refused(JobStatus::InProgress));
    t.put_back(failed, "RETRYABLE", 1).await;
    let Cancelled::Done(shown) = cancelled(&t, failed).await else { panic!("refused") };
    assert_eq!((shown.attempt_count, shown.sequence_id.map(|id| id.0)), (1, Some(1)));
    let left = "SELECT (SELECT count(*) FROM payment_outbox_pending) + (SELECT count(*) FROM scheduled_job)";
    assert_eq!(t.one::<i64>(left).await, 0);
    let audited = "SELECT count(*) FROM admin_audit WHERE action = 'job.cancel' AND reason = 'ordered twice'
                   AND actor = 'operator' AND outbox_id IS NOT NULL";
    assert_eq!(t.one::<i64>(audited).await, 5);
    assert_eq!(cancelled(&t, OutboxId(uuid::Uuid::nil())).await, Cancelled::Unknown);
}

/// The one behind a cancelled head is due at once, also where the head waited for its retry; a pause stays.
#[tokio::test]
async fn s3_22_its_group_goes_on() {
    let t = TestStore::new().await;
    let head = t.create(&t.job(Some("g"))).await.outbox_id;
    t.create(&t.job(Some("g"))).await;
    t.begin(head).await;
    t.put_back(head, "RETRYABLE", 1).await;
    let due = "SELECT due_at <= clock_timestamp() FROM ready_group WHERE participant_id = 'g'";
    t.sql.batch_execute("UPDATE ready_group SET due_at = clock_timestamp() + interval '1 minute'").await.unwrap();
    assert!(!t.one::<bool>(due).await);
    assert!(matches!(cancelled(&t, head).await, Cancelled::Done(_)));
    assert!(t.one::<bool>(due).await);

    let paused = t.create(&t.job(Some("p"))).await.outbox_id;
    t.create(&t.job(Some("p"))).await;
    holds::pause(&t.store, &ParticipantId::new("p"), OPERATOR).await.unwrap();
    assert!(matches!(cancelled(&t, paused).await, Cancelled::Done(_)));
    let held = "SELECT due_at = 'infinity' FROM ready_group WHERE participant_id = 'p'";
    assert!(t.one::<bool>(held).await, "a pause is another decision");
}

/// A message in doubt is cancelled with its hold, with a group and without one.
#[tokio::test]
async fn s3_22_a_doubt_ends_with_its_message() {
    let t = TestStore::new().await;
    for group in [Some("g"), None] {
        let id = t.create(&t.job(group)).await.outbox_id;
        t.begin(id).await;
        t.put_back(id, "ZOMBIE_REQUEUE", 1).await;
        let lane = group.map_or_else(|| id.to_string(), str::to_owned);
        let doubt = "INSERT INTO group_hold (participant_id, kind, outbox_id, reason, actor)
                     VALUES ($1, 'in_doubt', $2, 'unknown', 'heal')";
        t.sql.execute(doubt, &[&lane, &id.0]).await.unwrap();
        assert!(matches!(cancelled(&t, id).await, Cancelled::Done(_)));
    }
    assert_eq!(t.one::<i64>("SELECT count(*) FROM group_hold").await, 0);
}

/// A begin that is not committed yet has the job: the cancellation waits for it and says that it is out.
#[tokio::test]
async fn s3_22_a_begin_that_was_first_has_the_job() {
    let t = TestStore::new().await;
    let id = t.create(&t.job(Some("g"))).await.outbox_id;
    let other = t.db.connect().await;
    other.batch_execute("BEGIN").await.unwrap();
    assert_eq!(other.execute(BEGIN, &[&id.0]).await.unwrap(), 1);
    let store = t.store.clone();
    let cancelling = tokio::spawn(async move { cancel(&store, id, OPERATOR).await.unwrap() });
    t.waiting(1).await;
    other.batch_execute("COMMIT").await.unwrap();
    assert_eq!(cancelling.await.unwrap(), Cancelled::Refused(JobStatus::InProgress));
}

/// The other way round: a begin that comes second finds nothing to begin, and the job is never sent.
#[tokio::test]
async fn s3_22_a_cancellation_that_was_first_has_the_job() {
    let t = TestStore::new().await;
    let id = t.create(&t.job(Some("g"))).await.outbox_id;
    t.create(&t.job(Some("g"))).await;
    // The cancellation has the message and waits to say so in the audit.
    let gate = t.db.connect().await;
    gate.batch_execute("BEGIN; LOCK TABLE admin_audit IN SHARE MODE").await.unwrap();
    let store = t.store.clone();
    let cancelling = tokio::spawn(async move { cancel(&store, id, OPERATOR).await.unwrap() });
    t.waiting(1).await;
    let other = t.db.connect().await;
    let beginning = tokio::spawn(async move { other.execute(BEGIN, &[&id.0]).await.unwrap() });
    t.waiting(2).await;
    gate.batch_execute("COMMIT").await.unwrap();
    assert!(matches!(cancelling.await.unwrap(), Cancelled::Done(_)));
    assert_eq!(beginning.await.unwrap(), 0, "there was nothing to begin");
}

/// A transaction that settles one message has the hint and then begins the next: who cancels that one meanwhile waits
/// for the hint, and not the two for each other.
#[tokio::test]
async fn s3_22_a_settle_that_begins_the_next_waits_for_no_cancellation() {
    let t = TestStore::new().await;
    let id = t.create(&t.job(Some("g"))).await.outbox_id;
    let settling = t.db.connect().await;
    settling.batch_execute("BEGIN; UPDATE ready_group SET due_at = clock_timestamp()").await.unwrap();
    let store = t.store.clone();
    let cancelling = tokio::spawn(async move { cancel(&store, id, OPERATOR).await.unwrap() });
    t.waiting(1).await;
    settling.batch_execute("SET LOCAL lock_timeout = '100ms'").await.unwrap();
    assert_eq!(settling.execute(BEGIN, &[&id.0]).await.unwrap(), 1);
    settling.batch_execute("COMMIT").await.unwrap();
    assert_eq!(cancelling.await.unwrap(), Cancelled::Refused(JobStatus::InProgress));
}

/// A scheduled job that takes its number meanwhile is found where it is then.
#[tokio::test]
async fn s3_22_a_promotion_that_was_first_hides_nothing() {
    let t = TestStore::new().await;
    let mut later = t.job(None);
    later.scheduled_for = Some(t.one("SELECT clock_timestamp() + interval '1 hour'").await);
    let id = t.create(&later).await.outbox_id;
    let other = t.db.connect().await;
    let promote = "BEGIN; DELETE FROM scheduled_job;
        INSERT INTO payment_outbox_pending (outbox_id, partition_id, rail_type, endpoint, mode, max_attempts, timeout_ms,
          next_attempt_at, created_at)
        SELECT outbox_id, partition_of_id(outbox_id), rail_type, endpoint_of(target_url), mode, max_attempts, timeout_ms,
          clock_timestamp(), created_at FROM dispatch_job";
    other.batch_execute(promote).await.unwrap();
    let store = t.store.clone();
    let cancelling = tokio::spawn(async move { cancel(&store, id, OPERATOR).await.unwrap() });
    t.waiting(1).await;
    other.batch_execute("COMMIT").await.unwrap();
    assert!(matches!(cancelling.await.unwrap(), Cancelled::Done(_)));
    assert_eq!(t.one::<i64>("SELECT count(*) FROM payment_outbox_pending").await, 0);
}
