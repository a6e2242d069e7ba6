use railyard_core::job::NewJob;
use railyard_core::{Mode, ParticipantId, SequenceId};

use super::*;
use crate::credentials;
use crate::jobs::{JobRow, get};
use crate::testing::TestStore;

const OPERATOR: Decision<'static> = Decision { actor: "operator", reason: "the receiver was down" };

async fn one(t: &TestStore, id: OutboxId) -> Replayed {
    replay(&t.store, &[id], OPERATOR).await.unwrap().remove(0)
}

/// A job that has ended like this.
async fn ended(t: &TestStore, job: &NewJob, status: &str, blocks: bool) -> OutboxId {
    let id = t.create(job).await.outbox_id;
    t.begin(id).await;
    t.finish(id, status, blocks).await;
    id
}

async fn job(t: &TestStore, id: OutboxId) -> JobRow {
    get(&t.store, id).await.unwrap().unwrap()
}

/// The same bytes and everything else of the job, a fresh id, the rail's key of the first; on record with the reason.
#[tokio::test]
async fn s3_32_a_replay_is_a_new_job_of_the_same_content() {
    let t = TestStore::new().await;
    let mut given = t.job(Some("g"));
    given.payload = bytes::Bytes::from_static(b"\x00\xff {\"bb\": 1, \"a\":1.10,  \"a\":2}");
    given.external_id = Some("x".to_owned());
    given.metadata = [("tenant".to_owned(), "acme".to_owned())].into();
    given.headers = vec![("X-A".to_owned(), "1".to_owned())];
    given.idempotency_key = Some("k".to_owned());
    given.instruction_id = Some("i".to_owned());
    given.traceparent = Some("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".to_owned());
    given.max_attempts = 7;
    let first = ended(&t, &given, "ERROR", false).await;
    let made = one(&t, first).await;
    let by = made.by.unwrap();
    assert_eq!(made, Replayed { of: first, by: Some(by), result: ReplayResult::Created, detail: None });
    let (old, new) = (job(&t, first).await, job(&t, by).await);
    assert_eq!((old.replayed_by, new.replay_of), (Some(by), Some(first)));
    assert_eq!((new.status, new.sequence_id, new.attempt_count), (JobStatus::Pending, Some(SequenceId(2)), 0));
    // The key stays the first one's; everything else is the same.
    let same = JobRow {
        idempotency_key: None,
        replay_of: Some(first),
        replayed_by: None,
        outbox_id: by,
        created_at: new.created_at,
        status: new.status,
        sequence_id: new.sequence_id,
        attempt_count: 0,
        last_attempt_at: None,
        last_error: None,
        next_attempt_at: new.next_attempt_at,
        due_in: new.due_in,
        completed_at: None,
        duration_millis: None,
        ..old
    };
    assert_eq!(new.payload, given.payload);
    assert!(new == same, "{new:?}\n{same:?}");
    let keys = "SELECT count(DISTINCT rail_key) = 1 AND bool_and(traceparent IS NOT NULL) FROM dispatch_job";
    assert!(t.one::<bool>(keys).await);
    let audited = "SELECT count(*) FROM admin_audit WHERE action = 'job.replay' AND actor = 'operator'
                   AND reason = 'the receiver was down' AND participant_id = 'g' AND outbox_id IS NOT NULL";
    assert_eq!(t.one::<i64>(audited).await, 1);
}

/// However often it is asked for, also at once: one replay. What failed again is replayed itself.
#[tokio::test]
async fn s3_32_a_job_is_replayed_once() {
    let t = TestStore::new().await;
    let first = ended(&t, &t.job(Some("g")), "ERROR", false).await;
    let all = futures_util::future::join_all((0..10).map(|_| one(&t, first))).await;
    let by = all[0].by.unwrap();
    assert!(all.iter().all(|made| made.by == Some(by)));
    assert_eq!(all.iter().filter(|made| made.result == ReplayResult::Created).count(), 1);
    t.begin(by).await;
    t.finish(by, "ERROR", false).await;
    let again = one(&t, first).await;
    assert_eq!((again.result, again.by), (ReplayResult::Existing, Some(by)), "a late click makes nothing");
    let second = one(&t, by).await;
    assert_eq!(second.result, ReplayResult::Created);
    assert_eq!(t.one::<i64>("SELECT count(DISTINCT rail_key) FROM dispatch_job").await, 1, "one key for all three");
    assert_eq!(t.one::<i64>("SELECT count(*) FROM dispatch_job").await, 3);
    assert_eq!(t.one::<i64>("SELECT count(*) FROM admin_audit WHERE action = 'job.replay'").await, 2);
}

/// What is open, was delivered (also as a late answer says), or cannot be made is refused; the others are made.
#[tokio::test]
async fn s3_32_only_ends_without_success_are_replayed() {
    let t = TestStore::new().await;
    let open = t.create(&t.job(None)).await.outbox_id;
    let delivered = ended(&t, &t.job(None), "COMPLETED", false).await;
    let cancelled = ended(&t, &t.job(None), "CANCELLED", false).await;
    let mut due = t.job(None);
    due.expires_at = Some(t.one("SELECT clock_timestamp() + interval '900 milliseconds'").await);
    let expired = ended(&t, &due, "EXPIRED", false).await;
    t.sql.batch_execute("SELECT pg_sleep(1)").await.unwrap();
    let late = ended(&t, &t.job(None), "ERROR", false).await;
    let evidence = "INSERT INTO payment_outbox_attempt_archive (outbox_id, attempt_no, late, attempt_id, state, rail_type,
                      epoch, node_id, claimed_at, recorded_at)
                    VALUES ($1, 1, true, gen_random_uuid(), 'DISPATCHED', 'webhook', 1, gen_random_uuid(), now(), now())";
    t.sql.execute(evidence, &[&late.0]).await.unwrap();
    let set = credentials::create(&t.store, &t.keys, &crate::testing::new_credentials(), "test").await.unwrap();
    let mut unsigned = t.job(None);
    unsigned.credentials_id = Some(set.credentials_id);
    let unsigned = ended(&t, &unsigned, "ERROR", false).await;
    credentials::delete(&t.store, set.credentials_id, true, "test").await.unwrap();
    let unknown = OutboxId(Uuid::nil());
    let asked = [open, delivered, cancelled, expired, late, unsigned, unknown];
    let preview = replay_preview(&t.store, &asked).await.unwrap();
    let made = replay(&t.store, &asked, OPERATOR).await.unwrap();
    use ReplayResult::{Created, Refused, Unknown};
    let results: Vec<ReplayResult> = made.iter().map(|made| made.result).collect();
    assert_eq!(results, [Refused, Refused, Created, Created, Refused, Refused, Unknown], "{made:?}");
    let results: Vec<ReplayResult> = preview.iter().map(|made| made.result).collect();
    // Whether its content is still accepted shows when it is made.
    assert_eq!(results, [Refused, Refused, Created, Created, Refused, Created, Unknown]);
    assert!(made[5].detail.as_deref().is_some_and(|why| why.contains("credentials_id")), "{made:?}");
    let again = job(&t, made[3].by.unwrap()).await;
    assert_eq!(again.expires_at, None, "a date that has passed has no say");
    assert_eq!(t.one::<i64>("SELECT count(*) FROM job_replay WHERE outbox_id IS NULL").await, 0);
    assert_eq!(t.one::<i64>("SELECT count(*) FROM job_replay").await, 2);
}

/// The replay of a blocked head takes its place: its number, before those that wait, and the block ends. The number that
/// it would have had at the tail is nobody's and comes next.
#[tokio::test]
async fn s3_32_a_blocked_head_is_replayed_in_its_place() {
    let t = TestStore::new().await;
    let blocking = |group: &str| NewJob { mode: Mode::BlockOnError, ..t.job(Some(group)) };
    let head = ended(&t, &blocking("g"), "ERROR", true).await;
    let behind = t.create(&blocking("g")).await;
    let elsewhere = ended(&t, &blocking("h"), "ERROR", false).await;
    assert_eq!(behind.sequence_id, Some(SequenceId(2)));
    let made = replay(&t.store, &[elsewhere, head], OPERATOR).await.unwrap();
    let placed = job(&t, made[1].by.unwrap()).await;
    assert_eq!((placed.sequence_id, placed.group), (Some(SequenceId(1)), Some(ParticipantId::new("g"))));
    assert_eq!(job(&t, made[0].by.unwrap()).await.sequence_id, Some(SequenceId(2)), "no block: at the tail");
    assert_eq!(t.one::<i64>("SELECT count(*) FROM group_hold").await, 0);
    assert!(t.one::<bool>("SELECT due_at <= clock_timestamp() FROM ready_group WHERE participant_id = 'g'").await);
    let next = t.create(&blocking("g")).await;
    assert_eq!(next.sequence_id, Some(SequenceId(3)), "no gap");
    // With a pause beside the block, the pause stays.
    let paused = ended(&t, &blocking("p"), "ERROR", true).await;
    crate::holds::pause(&t.store, &ParticipantId::new("p"), OPERATOR).await.unwrap();
    one(&t, paused).await;
    let held = "SELECT array_agg(kind) = '{paused}' AND (SELECT due_at = 'infinity' FROM ready_group WHERE participant_id = 'p')
                FROM group_hold WHERE participant_id = 'p'";
    assert!(t.one::<bool>(held).await);
}

/// A walk goes over what there was when it began, oldest first, so many a step; what fails again is not met again.
#[tokio::test]
async fn s3_32_a_walk_replays_each_once_and_ends() {
    let t = TestStore::new().await;
    let mut failed = Vec::new();
    for n in 0..12 {
        let mut job = t.job(Some(if n % 2 == 0 { "even" } else { "odd" }));
        if n < 10 {
            "shop".clone_into(&mut job.source);
        } else {
            "other".clone_into(&mut job.source);
        }
        failed.push(ended(&t, &job, "ERROR", false).await);
    }
    let filter = Filter { source: Some("shop".to_owned()), ..Filter::default() };
    let (mut walk, mut seen, mut left) = (None, Vec::new(), Vec::new());
    loop {
        let step = replay_found(&t.store, &filter, walk, 4, OPERATOR).await.unwrap();
        for made in &step.results {
            assert_eq!(made.result, ReplayResult::Created);
            seen.push(made.of);
            // It fails again at once.
            t.begin(made.by.unwrap()).await;
            t.finish(made.by.unwrap(), "ERROR", false).await;
        }
        left.push(step.remaining);
        walk = step.next;
        if walk.is_none() {
            break;
        }
    }
    assert_eq!((seen, left), (failed[..10].to_vec(), vec![6, 2, 0]));
}
