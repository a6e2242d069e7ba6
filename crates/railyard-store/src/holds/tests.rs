use std::time::Duration;

use railyard_core::hold::HoldKind;
use railyard_core::{OutboxId, ParticipantId};
use tokio_postgres::Client;

use super::*;
use crate::testing::{BEGIN, TestStore};
use crate::{StoreError, audit};

const WHY: Decision<'_> = Decision { actor: "ops", reason: "because" };

fn group(name: &str) -> ParticipantId {
    ParticipantId::new(name)
}

/// Whether the hint says that the group is due, stands at infinity, or is not there.
async fn hint(sql: &Client, name: &str) -> &'static str {
    let found = "SELECT due_at = 'infinity', due_at <= clock_timestamp() FROM ready_group WHERE participant_id = $1";
    match sql.query_opt(found, &[&name]).await.unwrap() {
        None => "absent",
        Some(row) if row.get::<_, bool>(0) => "infinity",
        Some(row) if row.get::<_, bool>(1) => "due",
        Some(_) => "later",
    }
}

async fn conflicts<T: std::fmt::Debug>(result: impl Future<Output = Result<T, StoreError>>) -> bool {
    matches!(result.await, Err(StoreError::Conflict { .. }))
}

/// A group `g` with `count` messages.
async fn filled(count: usize) -> (TestStore, Vec<OutboxId>) {
    let t = TestStore::new().await;
    let mut ids = Vec::new();
    for _ in 0..count {
        ids.push(t.create(&t.job(Some("g"))).await.outbox_id);
    }
    (t, ids)
}

/// The head has failed for good and blocks the group.
async fn blocked(count: usize) -> (TestStore, Vec<OutboxId>) {
    let (t, ids) = filled(count).await;
    t.begin(ids[0]).await;
    t.finish(ids[0], "ERROR", true).await;
    (t, ids)
}

/// Nobody knows what became of the head.
async fn in_doubt(count: usize) -> (TestStore, Vec<OutboxId>) {
    let (t, ids) = filled(count).await;
    let hold = "INSERT INTO group_hold (participant_id, kind, outbox_id, reason, actor) \
                VALUES ('g', 'in_doubt', $1, 'outcome unknown', 'heal')";
    t.sql.execute(hold, &[&ids[0].0]).await.unwrap();
    t.sql.batch_execute("UPDATE ready_group SET due_at = 'infinity'").await.unwrap();
    (t, ids)
}

#[tokio::test]
async fn a_pause_holds_and_a_resume_lets_go() {
    let (t, _) = filled(1).await;
    pause(&t.store, &group("g"), WHY).await.unwrap();
    assert_eq!(hint(&t.sql, "g").await, "infinity");
    assert!(conflicts(pause(&t.store, &group("g"), WHY)).await);
    resume(&t.store, &group("g"), WHY).await.unwrap();
    assert_eq!(hint(&t.sql, "g").await, "due");
    assert!(conflicts(resume(&t.store, &group("g"), WHY)).await);
    let actions: Vec<String> =
        audit::list(&t.store, Some(&group("g")), None, 10).await.unwrap().into_iter().map(|row| row.action).collect();
    assert_eq!(actions, ["group.resume", "group.pause"]);
    pause(&t.store, &group("not yet there"), WHY).await.unwrap();
    assert_eq!(hint(&t.sql, "not yet there").await, "absent");
}

/// Its first message is being enqueued: the row that everybody waits for is the producer's.
#[tokio::test]
async fn neither_pause_nor_resume_waits_for_a_producer_that_is_open() {
    let (t, _) = filled(0).await;
    let ready = "BEGIN; INSERT INTO ready_group VALUES ('g', partition_of('g'), clock_timestamp())";
    t.sql.batch_execute(ready).await.unwrap();
    pause(&t.store, &group("g"), WHY).await.unwrap();
    resume(&t.store, &group("g"), WHY).await.unwrap();
    pause(&t.store, &group("g"), WHY).await.unwrap();
    t.sql.batch_execute("COMMIT").await.unwrap();
    let holds: i64 = t.one("SELECT count(*) FROM group_hold WHERE kind = 'paused'").await;
    assert_eq!(holds, 1);
}

#[tokio::test]
async fn a_pause_swallows_no_block_and_a_release_no_pause() {
    let (t, ids) = blocked(2).await;
    pause(&t.store, &group("g"), WHY).await.unwrap();
    let released = release(&t.store, &group("g"), &[HoldKind::Blocked, HoldKind::InDoubt], WHY).await.unwrap();
    assert_eq!(released.holds, [(HoldKind::Blocked, Some(ids[0]))]);
    assert_eq!(hint(&t.sql, "g").await, "infinity", "it is paused still");
    assert!(conflicts(release(&t.store, &group("g"), &[HoldKind::Blocked], WHY)).await);
    resume(&t.store, &group("g"), WHY).await.unwrap();
    assert_eq!(hint(&t.sql, "g").await, "due");
}

#[tokio::test]
async fn two_releases_at_once_leave_no_group_at_infinity() {
    let (t, _) = blocked(2).await;
    pause(&t.store, &group("g"), WHY).await.unwrap();
    // Both holds are deleted, uncommitted, before either looks whether one remains.
    t.sql.batch_execute("BEGIN; SELECT 1 FROM ready_group WHERE participant_id = 'g' FOR UPDATE").await.unwrap();
    let beside = t.db.connect().await;
    let both_wait = async {
        let waiting =
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()";
        railyard_testkit::eventually(Duration::from_secs(1), "both wait for the ready row", || async {
            beside.query_one(waiting, &[]).await.unwrap().get::<_, i64>(0) >= 2
        })
        .await;
        t.sql.batch_execute("COMMIT").await.unwrap();
    };
    let (name, kinds) = (group("g"), [HoldKind::Blocked]);
    let (one, two, ()) = tokio::join!(resume(&t.store, &name, WHY), release(&t.store, &name, &kinds, WHY), both_wait);
    one.unwrap();
    two.unwrap();
    assert_eq!(hint(&t.sql, "g").await, "due");
}

#[tokio::test]
async fn skip_lets_go_of_a_blocked_head_that_has_ended() {
    let (t, ids) = blocked(2).await;
    assert!(conflicts(skip(&t.store, &group("g"), Some(ids[1]), WHY)).await);
    let skipped = skip(&t.store, &group("g"), Some(ids[0]), WHY).await.unwrap();
    assert_eq!(skipped, Skipped { outbox_id: ids[0], sequence_id: None, cancelled: false });
    assert_eq!(hint(&t.sql, "g").await, "due");
    let status: String = t.one("SELECT status FROM dispatch_job_outcome").await;
    assert_eq!(status, "ERROR", "what ended stays as it ended");
    assert_eq!(t.one::<i64>("SELECT count(*) FROM payment_outbox_pending").await, 1);
}

#[tokio::test]
async fn skip_cancels_a_head_in_doubt() {
    let (t, ids) = in_doubt(2).await;
    let skipped = skip(&t.store, &group("g"), None, WHY).await.unwrap();
    assert!(skipped.cancelled);
    assert_eq!(skipped.outbox_id, ids[0]);
    let row = t.sql.query_one("SELECT outbox_id, status, last_error FROM dispatch_job_outcome", &[]).await.unwrap();
    assert_eq!((OutboxId(row.get(0)), row.get::<_, &str>(1)), (ids[0], "CANCELLED"));
    assert_eq!(row.get::<_, &str>(2), "skipped: because");
    assert_eq!(hint(&t.sql, "g").await, "due");
    assert_eq!(t.one::<i64>("SELECT count(*) FROM group_hold").await, 0);
}

#[tokio::test]
async fn skip_takes_a_waiting_head_and_leaves_a_pause() {
    let (t, ids) = filled(2).await;
    pause(&t.store, &group("g"), WHY).await.unwrap();
    let skipped = skip(&t.store, &group("g"), Some(ids[0]), WHY).await.unwrap();
    assert_eq!((skipped.outbox_id, skipped.cancelled), (ids[0], true));
    assert_eq!(hint(&t.sql, "g").await, "infinity");
    assert!(conflicts(skip(&t.store, &group("g"), Some(ids[0]), WHY)).await, "the second press skips nothing");
}

#[tokio::test]
async fn skip_takes_nothing_behind_a_head_in_flight() {
    let (t, ids) = filled(2).await;
    t.begin(ids[0]).await;
    assert!(conflicts(skip(&t.store, &group("g"), None, WHY)).await);
    assert_eq!(t.one::<i64>("SELECT count(*) FROM payment_outbox_pending").await, 1);
    assert!(conflicts(skip(&t.store, &group("nobody"), None, WHY)).await);
}

/// As with a cancellation: a transaction that settles has the hint, and then begins the head.
#[tokio::test]
async fn a_settle_that_begins_the_head_waits_for_no_skip() {
    let (t, ids) = filled(1).await;
    let settling = t.db.connect().await;
    settling.batch_execute("BEGIN; UPDATE ready_group SET due_at = clock_timestamp()").await.unwrap();
    let settle = async {
        t.waiting(1).await;
        settling.batch_execute("SET LOCAL lock_timeout = '100ms'").await.unwrap();
        assert_eq!(settling.execute(BEGIN, &[&ids[0].0]).await.unwrap(), 1);
        settling.batch_execute("COMMIT").await.unwrap();
    };
    let g = group("g");
    let (conflict, ()) = tokio::join!(conflicts(skip(&t.store, &g, None, WHY)), settle);
    assert!(conflict);
}

#[tokio::test]
async fn a_released_head_in_doubt_is_delivered_again() {
    let (t, ids) = in_doubt(1).await;
    release(&t.store, &group("g"), &[HoldKind::InDoubt], WHY).await.unwrap();
    assert_eq!(hint(&t.sql, "g").await, "due");
    assert_eq!(OutboxId(t.one("SELECT outbox_id FROM payment_outbox_pending").await), ids[0]);
}

#[tokio::test]
async fn a_single_message_in_doubt_is_released_or_skipped_by_its_id() {
    let t = TestStore::new().await;
    let (one, two) = (t.create(&t.job(None)).await.outbox_id, t.create(&t.job(None)).await.outbox_id);
    let hold = "INSERT INTO group_hold (participant_id, kind, outbox_id, reason, actor) \
                SELECT outbox_id::text, 'in_doubt', outbox_id, 'outcome unknown', 'heal' FROM payment_outbox_pending";
    t.sql.batch_execute(hold).await.unwrap();
    t.sql.batch_execute("UPDATE payment_outbox_pending SET next_attempt_at = 'infinity'").await.unwrap();
    let rows = list(&t.store, View::Held, None, 10).await.unwrap();
    assert!(rows.len() == 2 && rows.iter().all(|row| row.single && row.state == GroupState::InDoubt));

    let name = group(&one.to_string());
    release(&t.store, &name, &[HoldKind::InDoubt], WHY).await.unwrap();
    let due =
        format!("SELECT next_attempt_at <= clock_timestamp() FROM payment_outbox_pending WHERE outbox_id = '{one}'");
    assert!(t.one::<bool>(&due).await);
    assert_eq!(hint(&t.sql, name.as_str()).await, "absent", "no group of that name is made up");

    let skipped = skip(&t.store, &group(&two.to_string()), Some(two), WHY).await.unwrap();
    assert_eq!(skipped, Skipped { outbox_id: two, sequence_id: None, cancelled: true });
    assert_eq!(t.one::<i64>("SELECT count(*) FROM group_hold").await, 0);
    assert_eq!(t.one::<Option<String>>("SELECT participant_id FROM dispatch_job_outcome").await, None);
}

#[tokio::test]
async fn a_late_success_of_a_single_message_takes_its_doubt_along() {
    let t = TestStore::new().await;
    let id = t.create(&t.job(None)).await.outbox_id;
    t.begin(id).await;
    let attempt: uuid::Uuid = t.one("SELECT attempt_id FROM in_flight").await;
    t.put_back(id, "ZOMBIE_REQUEUE", 1).await;
    let hold = "INSERT INTO group_hold (participant_id, kind, outbox_id, reason, actor) \
                SELECT outbox_id::text, 'in_doubt', outbox_id, 'outcome unknown', 'heal' FROM payment_outbox_pending";
    t.sql.batch_execute(hold).await.unwrap();
    let late =
        "SELECT settle_late($1, $2, 1, 'DISPATCHED', clock_timestamp(), 5, 200, NULL, false, NULL, NULL, NULL, NULL)";
    let done: String = t.sql.query_one(late, &[&attempt, &id.0]).await.unwrap().get(0);
    assert_eq!(done, "LATE_TAKEN");
    assert_eq!(t.one::<i64>("SELECT count(*) FROM group_hold").await, 0);
}

#[tokio::test]
async fn a_decision_waits_a_second_for_a_lock_and_then_says_so() {
    let (t, _) = filled(1).await;
    t.sql.batch_execute("BEGIN; SELECT 1 FROM ready_group FOR UPDATE").await.unwrap();
    let refused = pause(&t.store, &group("g"), WHY).await.unwrap_err();
    assert!(matches!(refused, StoreError::Busy { .. }), "{refused}");
    t.sql.batch_execute("ROLLBACK").await.unwrap();
    assert_eq!(t.one::<i64>("SELECT count(*) FROM group_hold").await, 0);
    pause(&t.store, &group("g"), WHY).await.unwrap();
}

#[tokio::test]
async fn a_group_is_shown_as_it_stands() {
    let (t, ids) = filled(3).await;
    assert_eq!(get(&t.store, &group("nobody")).await.unwrap(), None);
    let row = get(&t.store, &group("g")).await.unwrap().unwrap();
    assert_eq!((row.state, row.depth), (GroupState::Ready, 3));
    assert_eq!(row.head.as_ref().unwrap().outbox_id, ids[0]);
    t.begin(ids[0]).await;
    let row = get(&t.store, &group("g")).await.unwrap().unwrap();
    assert_eq!((row.state, row.depth), (GroupState::InFlight, 2));
    assert_eq!(row.in_flight.unwrap().outbox_id, ids[0]);
    t.put_back(ids[0], "RETRYABLE", 1).await;
    let row = get(&t.store, &group("g")).await.unwrap().unwrap();
    assert_eq!(row.state, GroupState::Waiting);
    assert_eq!(row.head.unwrap().failures, 1);
    pause(&t.store, &group("g"), WHY).await.unwrap();
    let row = get(&t.store, &group("g")).await.unwrap().unwrap();
    assert_eq!(row.state, GroupState::Paused);
    assert_eq!((row.holds[0].actor.as_str(), row.holds[0].reason.as_str()), ("ops", "because"));
}

#[tokio::test]
async fn lists_are_bounded_and_go_on_behind_a_name() {
    let t = TestStore::new().await;
    for n in 0..5 {
        for _ in 0..=n {
            t.create(&t.job(Some(&format!("g{n}")))).await;
        }
        if n % 2 == 0 {
            pause(&t.store, &group(&format!("g{n}")), WHY).await.unwrap();
        }
    }
    let names = async |view, after: Option<&str>, limit| -> Vec<String> {
        let after = after.map(group);
        let rows = list(&t.store, view, after.as_ref(), limit).await.unwrap();
        rows.iter().map(|row| row.group.to_string()).collect()
    };
    assert_eq!(names(View::Held, None, 2).await, ["g0", "g2"]);
    assert_eq!(names(View::Held, Some("g2"), 2).await, ["g4"]);
    assert_eq!(names(View::All, Some("g1"), 2).await, ["g2", "g3"]);
    assert_eq!(names(View::Deepest, None, 2).await, ["g4", "g3"]);
    assert_eq!(names(View::Oldest, None, 1).await, ["g0"]);
    assert_eq!(names(View::All, None, 1000).await.len(), 5);
}
