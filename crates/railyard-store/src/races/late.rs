//! A late success and the failure of the attempt behind it, in both orders.

use railyard_core::Mode;

use super::*;

/// A group of two, whose first message is in flight for the second time: its first attempt was given up.
async fn second_attempt() -> (Race, AttemptId, AttemptId, OutboxId) {
    let race = Race::with(2, Mode::BlockOnError).await;
    let (first, id, _) = race.begin().await.unwrap();
    let past = "UPDATE in_flight SET call_deadline = clock_timestamp() - interval '1 second'";
    race.test.sql.batch_execute(past).await.unwrap();
    assert_eq!(race.store().heal(race.me, &[first], HealRules::default()).await.unwrap().len(), 1);
    let (second, again, _) = race.begin().await.unwrap();
    assert_eq!(again, id);
    (race, first, second, id)
}

async fn late(by: &Client, attempt: AttemptId, id: OutboxId) -> String {
    let sql =
        "SELECT settle_late($1, $2, 1, 'DISPATCHED', clock_timestamp(), 5, 200, NULL, false, NULL, NULL, NULL, NULL)";
    by.query_one(sql, &[&attempt.0, &id.0]).await.unwrap().get(0)
}

async fn released(race: &Race) -> i64 {
    race.test.one("SELECT count(*) FROM admin_audit WHERE action = 'group.release' AND actor = 'settle'").await
}

/// The late success is first: the failure waits for it and is none, and nothing is held.
#[tokio::test]
async fn r7_a_failure_behind_a_late_success_blocks_nothing() {
    let (race, first, second, id) = second_attempt().await;
    let other = race.test.db.connect().await;
    other.batch_execute("BEGIN").await.unwrap();
    assert_eq!(late(&other, first, id).await, "LATE_FLAGGED");
    let failing = tokio::spawn(settle(race.store(), failed_and_blocks(second, id)));
    race.somebody_waits().await;
    other.batch_execute("COMMIT").await.unwrap();
    let done = failing.await.unwrap();
    let ended = matches!(
        done.settled[&second],
        Settled::Applied { ended: Some(EndStatus::Completed), known_success: true, .. }
    );
    assert!(ended, "{:?}", done.settled[&second]);
    assert_eq!(race.state().await.held, [""; 0]);
    assert_eq!(race.begin().await.unwrap().2, SequenceId(2));
    assert_eq!(released(&race).await, 0, "there was nothing to release");
}

/// The failure is first: the late success waits for it, finds the message ended, and takes the hold away that this set.
#[tokio::test]
async fn r7_a_late_success_behind_a_failure_takes_its_hold_away() {
    let (race, first, second, id) = second_attempt().await;
    // Settle has deleted the in-flight row and waits for the hint.
    let gate = race.test.db.connect().await;
    gate.batch_execute("BEGIN; SELECT 1 FROM ready_group WHERE participant_id = 'g' FOR UPDATE").await.unwrap();
    let failing = tokio::spawn(settle(race.store(), failed_and_blocks(second, id)));
    race.test.waiting(1).await;
    let node = race.test.db.connect().await;
    let coming = tokio::spawn(async move { late(&node, first, id).await });
    race.test.waiting(2).await;
    gate.batch_execute("COMMIT").await.unwrap();
    let done = failing.await.unwrap();
    let ended = matches!(done.settled[&second], Settled::Applied { ended: Some(EndStatus::Error), .. });
    assert!(ended, "{:?}", done.settled[&second]);
    assert_eq!(coming.await.unwrap(), "LATE_ENDED");
    let state = race.state().await;
    assert_eq!((state.due, state.held), (Some(true), vec![]), "the group goes on");
    assert_eq!(released(&race).await, 1);
    assert_eq!(race.begin().await.unwrap().2, SequenceId(2));
    assert_eq!(late(&race.test.sql, first, id).await, "ALREADY");
    assert_eq!(released(&race).await, 1);
}

/// What others hold the group for stays: a person's pause, and another message's failure.
#[tokio::test]
async fn a_late_success_takes_no_other_hold_away() {
    let (race, first, second, id) = second_attempt().await;
    settle(race.store(), failed_and_blocks(second, id)).await;
    let group = ParticipantId::new("g");
    holds::pause(&race.store(), &group, OPERATOR).await.unwrap();
    assert_eq!(late(&race.test.sql, first, id).await, "LATE_ENDED");
    let state = race.state().await;
    assert_eq!((state.due, state.held), (Some(false), vec!["paused".to_owned()]));
    assert_eq!(race.begin().await, None);
    holds::resume(&race.store(), &group, OPERATOR).await.unwrap();
    assert_eq!(race.begin().await.unwrap().2, SequenceId(2));

    let (race, first, second, id) = second_attempt().await;
    settle(race.store(), failed_and_blocks(second, id)).await;
    race.test.sql.batch_execute("UPDATE group_hold SET outbox_id = gen_random_uuid()").await.unwrap();
    assert_eq!(late(&race.test.sql, first, id).await, "LATE_ENDED");
    assert_eq!((race.state().await.held, released(&race).await), (vec!["blocked".to_owned()], 0));
    assert_eq!(race.begin().await, None);
}
