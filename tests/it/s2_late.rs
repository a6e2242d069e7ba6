//! S2-17 to S2-19: a result that comes late, twice, or from the wrong hand.

use railyard_core::{AttemptId, CallOutcome, Message, OutboxId};
use railyard_store::work::{Late, Settled};
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::hand::{Hand, LONG, delivered, ended, failed, make_due, pass_deadline, pass_lease, refused};
use crate::producer::{Item, sqlstate};
use crate::world::World;

const NOWHERE: &str = "http://127.0.0.1:9/";

/// A world with a member, and the group's first of two messages in flight there.
async fn begun(group: &str, on_unknown: &str) -> (World, Hand, Message) {
    let world = World::new().await;
    world.sql.execute("UPDATE rail SET on_unknown = $1", &[&on_unknown]).await.unwrap();
    let hand = Hand::join(&world.store, LONG).await;
    for key in ["one", "two"] {
        Item::payment(&world, NOWHERE, group, &format!("{group}-{key}")).by(&world.sql).await.unwrap();
    }
    let message = hand.begin(&world.sql, group).await.unwrap();
    (world, hand, message)
}

async fn give_up(world: &World, hand: &Hand, message: &Message) {
    pass_deadline(&world.sql, message).await;
    assert_eq!(hand.heal(&[message]).await.len(), 1);
}

async fn status(world: &World, id: OutboxId) -> Option<String> {
    let sql = "SELECT status FROM dispatch_job_outcome WHERE outbox_id = $1";
    world.sql.query_opt(sql, &[&id.0]).await.unwrap().map(|row| row.get(0))
}

/// Everything that a refused result must leave as it was.
async fn everything(world: &World) -> String {
    world
        .one(
            "SELECT concat_ws(' | ',
               (SELECT json_agg(f ORDER BY f.attempt_id) FROM in_flight f), (SELECT json_agg(p ORDER BY p.outbox_id) FROM payment_outbox_pending p),
               (SELECT json_agg(o) FROM dispatch_job_outcome o), (SELECT json_agg(h) FROM group_hold h),
               (SELECT json_agg(r ORDER BY r.participant_id) FROM ready_group r),
               (SELECT json_agg(a ORDER BY attempt_no, late) FROM payment_outbox_attempt_archive a))",
        )
        .await
}

/// A takeover alone voids nothing: until somebody has given the attempt up, its own result is the truth.
#[tokio::test]
async fn s2_17_a_takeover_does_not_void_a_result() {
    let (world, first, message) = begun("g", "hold").await;
    pass_lease(&world.sql, first.node).await;
    let heir = Hand::join(&world.store, LONG).await;
    assert_eq!(heir.owned().await.len(), 256);
    assert!(matches!(first.settle(&message, delivered()).await, Settled::Applied { known_success: false, .. }));
    assert_eq!(world.history(message.outbox_id).await, ["DISPATCHED"]);
    assert_eq!(heir.begin(&world.sql, "g").await.unwrap().sequence_id.unwrap().0, 2);
}

/// A failure that comes after its attempt was given up is evidence and nothing else: the newer attempt, the hold and
/// the message stay as they are.
#[tokio::test]
async fn s2_17_a_late_failure_changes_nothing() {
    for outcome in [failed(), refused()] {
        let (world, hand, message) = begun("g", "retry").await;
        give_up(&world, &hand, &message).await;
        let newer = hand.begin(&world.sql, "g").await.unwrap();
        assert_eq!(hand.settle(&message, outcome).await, Settled::Late(Late::Failure));
        let late: i64 = world.one("SELECT count(*) FROM payment_outbox_attempts WHERE late").await;
        assert_eq!(late, 1, "the evidence is kept");
        assert_eq!(status(&world, message.outbox_id).await, None);
        let flying: bool =
            world.one("SELECT count(*) = 1 FROM in_flight WHERE attempt_no = 2 AND NOT known_success").await;
        assert!(flying, "the newer attempt was touched");
        hand.settle(&newer, delivered()).await;
        assert_eq!(status(&world, message.outbox_id).await.as_deref(), Some("COMPLETED"));
    }
    let (world, hand, message) = begun("g", "hold").await;
    give_up(&world, &hand, &message).await;
    hand.settle(&message, failed()).await;
    assert_eq!(world.one::<i64>("SELECT count(*) FROM group_hold WHERE kind = 'in_doubt'").await, 1, "a hold was lost");
    assert!(hand.begin(&world.sql, "g").await.is_none());
}

/// A success that comes while the message waits takes it out: it ends COMPLETED, its doubt goes, the group goes on.
#[tokio::test]
async fn s2_17_a_late_success_ends_the_waiting_message() {
    for on_unknown in ["hold", "retry"] {
        let (world, hand, message) = begun("g", on_unknown).await;
        give_up(&world, &hand, &message).await;
        assert_eq!(hand.settle(&message, delivered()).await, Settled::Late(Late::Taken));
        assert_eq!(status(&world, message.outbox_id).await.as_deref(), Some("COMPLETED"));
        assert_eq!(world.one::<i64>("SELECT count(*) FROM group_hold").await, 0);
        let due: bool = world.one("SELECT due_at <= clock_timestamp() FROM ready_group").await;
        assert!(due, "nobody would find the group again");
        let next = hand.begin(&world.sql, "g").await.unwrap();
        assert_eq!(next.sequence_id.unwrap().0, 2, "the message was sent again");
        // The answer got lost: the same again.
        assert_eq!(hand.settle(&message, delivered()).await, Settled::Late(Late::Already));
    }
}

/// A pause that was made meanwhile outlives the end of the doubt.
#[tokio::test]
async fn s2_17_a_late_success_releases_its_own_hold_alone() {
    let (world, hand, message) = begun("g", "hold").await;
    give_up(&world, &hand, &message).await;
    world
        .sql
        .batch_execute("INSERT INTO group_hold (participant_id, kind, reason, actor) VALUES ('g', 'paused', 'x', 'x')")
        .await
        .unwrap();
    assert_eq!(hand.settle(&message, delivered()).await, Settled::Late(Late::Taken));
    assert_eq!(world.one::<String>("SELECT string_agg(kind, ', ') FROM group_hold").await, "paused");
    assert!(hand.begin(&world.sql, "g").await.is_none());
}

/// A success that comes while the next attempt is out: that one's failure, or its own end in doubt, ends the message
/// as delivered, and nothing is held or sent a third time.
#[tokio::test]
async fn s2_17_a_late_success_is_known_to_the_next_attempt() {
    for how in ["fails", "is refused", "is given up"] {
        let (world, hand, message) = begun("g", "retry").await;
        give_up(&world, &hand, &message).await;
        let newer = hand.begin(&world.sql, "g").await.unwrap();
        assert_eq!(hand.settle(&message, delivered()).await, Settled::Late(Late::Flagged));
        if how == "is given up" {
            give_up(&world, &hand, &newer).await;
        } else {
            let outcome = if how == "fails" { failed() } else { refused() };
            assert!(
                matches!(hand.settle(&newer, outcome).await, Settled::Applied { known_success: true, .. }),
                "{how}"
            );
        }
        assert_eq!(status(&world, message.outbox_id).await.as_deref(), Some("COMPLETED"), "{how}");
        assert_eq!(world.one::<i64>("SELECT count(*) FROM group_hold").await, 0, "{how}");
        let next = hand.begin(&world.sql, "g").await.unwrap();
        assert_eq!(next.sequence_id.unwrap().0, 2, "{how}");
    }
}

/// A success that comes after the message has ended is kept beside it, and is no second terminal attempt.
#[tokio::test]
async fn s2_17_a_late_success_after_the_end() {
    let (world, hand, message) = begun("g", "retry").await;
    give_up(&world, &hand, &message).await;
    let newer = hand.begin(&world.sql, "g").await.unwrap();
    hand.settle(&newer, refused()).await;
    assert_eq!(hand.settle(&message, delivered()).await, Settled::Late(Late::Ended));
    assert_eq!(status(&world, message.outbox_id).await.as_deref(), Some("ERROR"));
    let terminal: i64 = world
        .one("SELECT count(*) FROM payment_outbox_attempts WHERE state IN ('DISPATCHED', 'FAILED') AND NOT late")
        .await;
    assert_eq!(terminal, 1);
}

/// A made-up attempt, another attempt's number, or a result that is on record already: refused, and nothing changes.
#[tokio::test]
async fn s2_18_wrong_hands_change_nothing() {
    let (world, hand, message) = begun("g", "retry").await;
    let stranger = |message: &Message| Message { attempt_id: AttemptId(Uuid::new_v4()), ..message.clone() };
    let before = everything(&world).await;
    for outcome in [delivered(), failed(), refused()] {
        assert_eq!(hand.settle(&stranger(&message), outcome).await, Settled::Late(Late::Unknown));
    }
    assert_eq!(everything(&world).await, before, "a made-up attempt");

    hand.settle(&message, failed()).await;
    make_due(&world.sql).await;
    let second = hand.begin(&world.sql, "g").await.unwrap();
    let before = everything(&world).await;
    for outcome in [delivered(), failed(), refused()] {
        assert_eq!(hand.settle(&stranger(&message), outcome.clone()).await, Settled::Late(Late::Foreign));
        assert_eq!(hand.settle(&message, outcome).await, Settled::Late(Late::Already));
    }
    assert_eq!(everything(&world).await, before, "an attempt that is over");

    hand.settle(&second, delivered()).await;
    let before = everything(&world).await;
    for outcome in [failed(), refused()] {
        assert_eq!(hand.settle(&second, outcome).await, Settled::Late(Late::Already));
    }
    assert_eq!(everything(&world).await, before, "a message that is over");
    assert!(hand.heal(&[&second, &message]).await.is_empty());
}

/// Of several completions of one attempt at the same time exactly one is written.
#[tokio::test(flavor = "multi_thread")]
async fn s2_18_of_racing_completions_one_wins() {
    let (world, _, message) = begun("g", "hold").await;
    let outcomes: [fn() -> CallOutcome; 3] = [delivered, failed, refused];
    let mut racing = JoinSet::new();
    for n in 0..12 {
        let (store, ended) = (world.store.clone(), ended(&message, outcomes[n % 3]()));
        racing.spawn(async move {
            let batch = railyard_store::work::Batch { settle: vec![ended], ..Default::default() };
            store.settle(&batch).await.unwrap().settled.into_values().next().unwrap()
        });
    }
    let settled = racing.join_all().await;
    let applied = settled.iter().filter(|one| matches!(one, Settled::Applied { .. })).count();
    assert_eq!(applied, 1, "{settled:?}");
    assert_eq!(world.one::<i64>("SELECT count(*) FROM payment_outbox_attempts WHERE attempt_no = 1").await, 1);
}

/// Settling and giving up race for the row: one of them gets it, and in either case a success ends the message once.
#[tokio::test(flavor = "multi_thread")]
async fn trap_reaper_and_late_finisher_race() {
    let world = World::new().await;
    let hand = Hand::join(&world.store, LONG).await;
    let (mut settled_first, mut healed_first) = (0, 0);
    let mut n = 0;
    // At least sixty times, and until each side has won.
    while n < 60 || (settled_first == 0 || healed_first == 0) && n < 2000 {
        n += 1;
        let group = format!("g{n}");
        let id = Item::payment(&world, NOWHERE, &group, &group).by(&world.sql).await.unwrap();
        let message = hand.begin(&world.sql, &group).await.unwrap();
        pass_deadline(&world.sql, &message).await;
        let orphans = [&message];
        let (settled, healed) = tokio::join!(hand.settle(&message, delivered()), hand.heal(&orphans));
        match (&settled, healed.len()) {
            (Settled::Applied { .. }, 0) => settled_first += 1,
            (Settled::Late(Late::Taken), 1) => healed_first += 1,
            other => panic!("both or neither got the row: {other:?}"),
        }
        assert_eq!(status(&world, OutboxId(id)).await.as_deref(), Some("COMPLETED"));
    }
    println!("settled first {settled_first} times, healed first {healed_first} times");
    assert!(settled_first > 0 && healed_first > 0, "the race was not one");
    let left: i64 = world
        .one("SELECT (SELECT count(*) FROM payment_outbox_pending) + (SELECT count(*) FROM in_flight) + (SELECT count(*) FROM group_hold)")
        .await;
    assert_eq!(left, 0);
    let successes: i64 = world.one("SELECT count(*) FROM payment_outbox_attempts WHERE state = 'DISPATCHED'").await;
    assert_eq!(successes, n);
}

/// Work that kills its worker each time is not tried for ever: the third time it is parked for a person, whatever its
/// rail says, with its attempts on record.
#[tokio::test]
async fn trap_work_that_kills_its_worker_is_parked() {
    let (world, hand, first) = begun("g", "retry").await;
    give_up(&world, &hand, &first).await;
    for n in 2..=3 {
        let again = hand.begin(&world.sql, "g").await.unwrap();
        assert_eq!((again.outbox_id, again.attempt_no), (first.outbox_id, n));
        give_up(&world, &hand, &again).await;
    }
    assert!(hand.begin(&world.sql, "g").await.is_none(), "tried a fourth time");
    assert_eq!(world.history(first.outbox_id).await, ["ZOMBIE_REQUEUE/ZOMBIE_REQUEUE"; 3]);
    let held: String = world.one("SELECT kind || ': ' || reason FROM group_hold WHERE participant_id = 'g'").await;
    assert_eq!(held, "in_doubt: in doubt 3 times");
}

/// The database refuses a second terminal attempt of a message; a late one beside it is no second.
#[tokio::test]
async fn s2_19_one_terminal_attempt_at_most() {
    let (world, hand, message) = begun("g", "hold").await;
    hand.settle(&message, delivered()).await;
    for state in ["DISPATCHED", "FAILED"] {
        let second = "INSERT INTO payment_outbox_attempt_archive (outbox_id, attempt_no, late, attempt_id, state, rail_type, epoch,
                        node_id, claimed_at, recorded_at)
                      SELECT outbox_id, attempt_no + $2, $3, gen_random_uuid(), $1, rail_type, epoch, node_id, claimed_at,
                        recorded_at FROM payment_outbox_attempt_archive WHERE NOT late";
        let error = world.sql.execute(second, &[&state, &1_i32, &false]).await.unwrap_err();
        assert_eq!(sqlstate(&error), "23505", "{state}");
        let late = if state == "FAILED" { 0 } else { 1 };
        world.sql.execute(second, &[&state, &late, &true]).await.unwrap();
    }
}
