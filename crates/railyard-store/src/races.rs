//! Interleavings that lose a group, a hold or a payment when a guard is missing, forced on this crate's statements.
//!
//! R1 to R6 are those that the protocol's trial found; the others are shortcuts of step 7 and of the claim. Each test
//! stops one side in the middle by a lock that it holds itself, and waits until the database says that the other side
//! is waiting: nothing here depends on timing.
#![expect(clippy::disallowed_methods, reason = "a test's tasks end with its runtime")]

use std::time::Duration;

use railyard_core::attempt::AttemptState;
use railyard_core::hold::HoldKind;
use railyard_core::settlement::{EndStatus, Next};
use railyard_core::{AttemptId, Epoch, Lane, NodeId, OutboxId, ParticipantId, SequenceId, Settlement};
use railyard_testkit::eventually;
use tokio_postgres::Client;
use uuid::Uuid;

use crate::clock::boottime;
use crate::discover::Head;
use crate::holds::{self, Decision};
use crate::testing::TestStore;
use crate::work::{Batch, BeginRequest, Done, Ended, Late, Settled};
use crate::{Store, heal::HealRules};
use crate::{lease, ownership};

mod late;

const SOON: Duration = Duration::from_secs(20);
const OPERATOR: Decision<'static> = Decision { actor: "operator", reason: "test" };

/// One group `g` with `messages` waiting, and a node that owns everything.
struct Race {
    test: TestStore,
    me: NodeId,
    epoch: Epoch,
}

impl Race {
    async fn with(messages: usize, mode: railyard_core::Mode) -> Self {
        let test = TestStore::new().await;
        let me = NodeId(Uuid::new_v4());
        let mut dedicated = test.store.dedicated("race").await.unwrap();
        lease::join(&dedicated.client, me, "race", Duration::from_secs(3600)).await.unwrap();
        let all: Vec<_> = (0..=255).map(railyard_core::PartitionId).collect();
        ownership::take_free(&mut dedicated.client, me, &all).await.unwrap();
        let epoch = ownership::owned(&dedicated.client, me).await.unwrap()[0].1;
        let race = Self { test, me, epoch };
        for _ in 0..messages {
            let mut job = race.test.job(Some("g"));
            job.mode = mode;
            race.test.create(&job).await;
        }
        race
    }

    fn store(&self) -> Store {
        self.test.store.clone()
    }

    fn lane() -> Lane {
        Lane::Group(ParticipantId::new("g"))
    }

    fn request(&self) -> BeginRequest {
        BeginRequest {
            attempt_id: AttemptId(Uuid::now_v7()),
            lane: Self::lane(),
            partition: railyard_core::partition::partition_of(&Self::lane()),
            epoch: self.epoch,
            head: Head { endpoint: "https://example.com:443".to_owned(), rail_type: "webhook".to_owned() },
            probe: SequenceId(0),
        }
    }

    /// Begins the head of `g`, if there is one to begin.
    async fn begin(&self) -> Option<(AttemptId, OutboxId, SequenceId)> {
        let request = self.request();
        let attempt = request.attempt_id;
        let batch = Batch { settle: Vec::new(), begin: vec![request], slack: Duration::from_secs(5) };
        let mut done = self.store().run(self.me, &batch).await.unwrap();
        assert!(!done.fenced);
        done.begun.remove(&attempt).map(|message| (attempt, message.outbox_id, message.sequence_id.unwrap()))
    }

    async fn state(&self) -> State {
        let row = self.test.sql.query_one(STATE, &[]).await.unwrap();
        State { due: row.get(0), held: row.get(1), pending: row.get(2), in_flight: row.get(3) }
    }

    async fn lost_groups(&self) -> Vec<String> {
        self.store().sweep().await.unwrap()
    }

    /// Until somebody in this database waits for a lock.
    async fn somebody_waits(&self) {
        eventually(SOON, "the other side waits for a lock", || async { self.test.one::<i64>(WAITING).await > 0 }).await;
    }
}

const WAITING: &str =
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
const STATE: &str = "
    SELECT (SELECT due_at <= clock_timestamp() FROM ready_group WHERE participant_id = 'g'),
           (SELECT coalesce(array_agg(kind ORDER BY kind), '{}') FROM group_hold WHERE participant_id = 'g'),
           (SELECT coalesce(array_agg(sequence_id ORDER BY sequence_id), '{}') FROM payment_outbox_pending),
           (SELECT coalesce(array_agg(sequence_id), '{}') FROM in_flight)";

/// `due`: the hint says now; `None`: there is no hint.
#[derive(Debug, PartialEq, Eq)]
struct State {
    due: Option<bool>,
    held: Vec<String>,
    pending: Vec<i64>,
    in_flight: Vec<i64>,
}

fn ended(attempt: AttemptId, outbox_id: OutboxId, attempt_no: u32, state: AttemptState, next: Next) -> Ended {
    let settlement = Settlement {
        attempt_id: attempt,
        outbox_id,
        lane: Race::lane(),
        attempt_no,
        state,
        next,
        code: None,
        detail: None,
        answer: None,
        latency: None,
    };
    Ended { settlement, ended_at: boottime() }
}

fn delivered(attempt: AttemptId, outbox_id: OutboxId, attempt_no: u32) -> Ended {
    let next = Next::End { status: EndStatus::Completed, blocks: false };
    ended(attempt, outbox_id, attempt_no, AttemptState::Dispatched, next)
}

fn failed_and_blocks(attempt: AttemptId, outbox_id: OutboxId) -> Ended {
    ended(attempt, outbox_id, 1, AttemptState::Failed, Next::End { status: EndStatus::Error, blocks: true })
}

fn batch(ended: Ended) -> Batch {
    Batch { settle: vec![ended], begin: Vec::new(), slack: Duration::from_secs(5) }
}

async fn settle(store: Store, ended: Ended) -> Done {
    store.settle(&batch(ended)).await.unwrap()
}

/// The statements of a release, left open in `other`: what `holds::release` does before its commit.
async fn half_a_release(other: &Client) {
    other.batch_execute("BEGIN; DELETE FROM group_hold WHERE participant_id = 'g'").await.unwrap();
    other.execute("UPDATE ready_group SET due_at = clock_timestamp() WHERE participant_id = 'g'", &[]).await.unwrap();
}

/// A release that commits while a settle waits for the hint: the settle must keep what it finds there, not what it
/// derives from a hold that is gone.
#[tokio::test]
async fn r1_settle_does_not_bury_a_group_that_is_released_meanwhile() {
    let race = Race::with(2, railyard_core::Mode::BlockOnError).await;
    let (attempt, id, _) = race.begin().await.unwrap();
    holds::pause(&race.store(), &ParticipantId::new("g"), OPERATOR).await.unwrap();
    let other = race.test.db.connect().await;
    half_a_release(&other).await;
    let settling = tokio::spawn(settle(race.store(), delivered(attempt, id, 1)));
    race.somebody_waits().await;
    other.batch_execute("COMMIT").await.unwrap();
    settling.await.unwrap();
    assert_eq!(race.state().await, State { due: Some(true), held: vec![], pending: vec![2], in_flight: vec![] });
}

/// The other way round: a settle that comes after a pause leaves the hint at infinity.
#[tokio::test]
async fn r1_settle_keeps_the_infinity_that_it_finds() {
    let race = Race::with(2, railyard_core::Mode::BlockOnError).await;
    let (attempt, id, _) = race.begin().await.unwrap();
    holds::pause(&race.store(), &ParticipantId::new("g"), OPERATOR).await.unwrap();
    settle(race.store(), delivered(attempt, id, 1)).await;
    let state = race.state().await;
    assert_eq!((state.due, state.held), (Some(false), vec!["paused".to_owned()]));
    assert_eq!(race.begin().await, None);
}

/// Tidying must not write what was true before a release that commits meanwhile.
#[tokio::test]
async fn r2_tidy_waits_for_a_release_and_sees_it() {
    let race = Race::with(1, railyard_core::Mode::BlockOnError).await;
    holds::pause(&race.store(), &ParticipantId::new("g"), OPERATOR).await.unwrap();
    let other = race.test.db.connect().await;
    half_a_release(&other).await;
    let store = race.store();
    let tidying = tokio::spawn(async move { store.tidy(&[Race::lane()]).await.unwrap() });
    race.somebody_waits().await;
    other.batch_execute("COMMIT").await.unwrap();
    assert_eq!(tidying.await.unwrap(), [Race::lane()], "it finds the group due");
    assert_eq!(race.state().await, State { due: Some(true), held: vec![], pending: vec![1], in_flight: vec![] });
    assert!(race.lost_groups().await.is_empty());
}

/// A pause while a message is in flight, a failure that blocks, then the end of the pause: the block still stands.
#[tokio::test]
async fn r3_a_pause_does_not_swallow_a_block() {
    let race = Race::with(2, railyard_core::Mode::BlockOnError).await;
    let (attempt, id, _) = race.begin().await.unwrap();
    let group = ParticipantId::new("g");
    holds::pause(&race.store(), &group, OPERATOR).await.unwrap();
    settle(race.store(), failed_and_blocks(attempt, id)).await;
    holds::resume(&race.store(), &group, OPERATOR).await.unwrap();
    assert_eq!(race.state().await.held, ["blocked"]);
    assert_eq!(race.begin().await, None, "the next of a blocked group does not begin");
    holds::release(&race.store(), &group, &[HoldKind::Blocked], OPERATOR).await.unwrap();
    assert_eq!(race.begin().await.unwrap().2, SequenceId(2));
}

/// A late success of attempt 1 is being written while attempt 2 fails: the failure must see it and end the message.
#[tokio::test]
async fn r4_a_late_success_turns_the_next_attempts_failure_into_the_end() {
    let race = Race::with(1, railyard_core::Mode::NextOnError).await;
    let (first, id, _) = race.begin().await.unwrap();
    race.test
        .sql
        .execute("UPDATE in_flight SET call_deadline = clock_timestamp() - interval '1 second'", &[])
        .await
        .unwrap();
    let healed = race.store().heal(race.me, &[first], HealRules::default()).await.unwrap();
    assert_eq!(healed.len(), 1);
    let (second, again, _) = race.begin().await.unwrap();
    assert_eq!(again, id);

    // The late success has flagged the row and not committed yet.
    let other = race.test.db.connect().await;
    other.batch_execute("BEGIN").await.unwrap();
    let late: String = other
        .query_one(
            "SELECT settle_late($1, $2, 1, 'DISPATCHED', clock_timestamp(), 5, 200, NULL, false, NULL, NULL, NULL, NULL)",
            &[&first.0, &id.0],
        )
        .await
        .unwrap()
        .get(0);
    assert_eq!(late, "LATE_FLAGGED");
    let again_later = Next::Again { after: Duration::from_secs(5), spends_budget: true };
    let failing = tokio::spawn(settle(race.store(), ended(second, id, 2, AttemptState::Retryable, again_later)));
    race.somebody_waits().await;
    other.batch_execute("COMMIT").await.unwrap();
    let done = failing.await.unwrap();
    let applied = Settled::Applied { ended: Some(EndStatus::Completed), known_success: true, more: false };
    assert_eq!(done.settled[&second], applied);
    let state = race.state().await;
    assert_eq!((state.pending, state.in_flight), (vec![], vec![]), "a payment that went out is not sent again");
    assert_eq!(settle(race.store(), delivered(first, id, 1)).await.settled[&first], Settled::Late(Late::Already));
}

/// A producer may wait a moment for an open settle of its group; nothing is lost by it.
#[tokio::test]
async fn r5_a_producer_waits_for_an_open_settle() {
    let race = Race::with(1, railyard_core::Mode::NextOnError).await;
    race.begin().await.unwrap();
    let other = race.test.db.connect().await;
    other.batch_execute("BEGIN; UPDATE ready_group SET due_at = due_at WHERE participant_id = 'g'").await.unwrap();
    other.batch_execute("DELETE FROM ready_group WHERE participant_id = 'g'").await.unwrap();
    let (store, job) = (race.store(), race.test.job(Some("g")));
    let producing = tokio::spawn(async move { crate::jobs::create(&store, &[job]).await });
    race.somebody_waits().await;
    other.batch_execute("COMMIT").await.unwrap();
    producing.await.unwrap().unwrap();
    assert_eq!(race.state().await.due, Some(true), "it put the hint back that was deleted under it");
}

/// The other way round: a producer that holds its transaction open delays no settle of its group.
#[tokio::test]
async fn r5_an_open_producer_delays_no_settle() {
    let race = Race::with(1, railyard_core::Mode::NextOnError).await;
    let (attempt, id, _) = race.begin().await.unwrap();
    let other = race.test.db.connect().await;
    other.batch_execute("BEGIN").await.unwrap();
    other.execute(ENQUEUE, &[&race.test.credentials.0]).await.unwrap();
    // The statement and lock timeouts of this pool would show any wait as an error.
    let done = settle(race.store(), delivered(attempt, id, 1)).await;
    assert_eq!(done.settled.len(), 1);
    // Nor does it let the group be tidied away: the producer's row lock is skipped, the hint stays.
    assert_eq!(race.store().tidy(&[Race::lane()]).await.unwrap(), []);
    other.batch_execute("COMMIT").await.unwrap();
    assert!(race.lost_groups().await.is_empty());
    assert_eq!(race.begin().await.unwrap().2, SequenceId(2));
}

const ENQUEUE: &str = "SELECT enqueue_payment_outbox('i', 'g', gen_random_uuid()::text, 'webhook', '{}'::bytea,
    'https://example.com/hook', $1)";

/// A REPEATABLE READ producer whose snapshot still shows the hint that was tidied away: its message is found, or it
/// is told to repeat.
#[tokio::test]
async fn r6_a_repeatable_read_producer_is_found() {
    let race = Race::with(1, railyard_core::Mode::NextOnError).await;
    let (attempt, id, _) = race.begin().await.unwrap();
    settle(race.store(), delivered(attempt, id, 1)).await;
    let other = race.test.db.connect().await;
    other.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1 FROM ready_group").await.unwrap();
    race.store().tidy(&[Race::lane()]).await.unwrap();
    assert_eq!(race.state().await.due, None, "idle: no hint");
    match other.execute(ENQUEUE, &[&race.test.credentials.0]).await {
        Ok(_) => {
            other.batch_execute("COMMIT").await.unwrap();
            assert_eq!(race.state().await.due, Some(true));
            assert_eq!(race.begin().await.unwrap().2, SequenceId(2));
        }
        Err(error) => assert_eq!(error.code().unwrap().code(), "40001"),
    }
}

/// Shortcut: no look at in-flight rows. A retry puts its row back without the sequence lock; the hint must be there.
#[tokio::test]
async fn tidy_leaves_a_group_alone_whose_message_is_in_flight() {
    let race = Race::with(1, railyard_core::Mode::NextOnError).await;
    let (attempt, id, _) = race.begin().await.unwrap();
    race.store().tidy(&[Race::lane()]).await.unwrap();
    assert!(race.state().await.due.is_some(), "nothing is pending, but something is in flight");
    let again = Next::Again { after: Duration::ZERO, spends_budget: true };
    settle(race.store(), ended(attempt, id, 1, AttemptState::Retryable, again)).await;
    assert!(race.lost_groups().await.is_empty());
    assert!(race.begin().await.is_some());
}

/// Shortcut: all in one statement. A producer commits between the look and the delete; its group must keep its hint.
#[tokio::test]
async fn tidy_sees_a_producer_that_commits_while_it_waits_for_the_hint() {
    let race = Race::with(1, railyard_core::Mode::NextOnError).await;
    let (attempt, id, _) = race.begin().await.unwrap();
    settle(race.store(), delivered(attempt, id, 1)).await;
    let gate = race.test.db.connect().await;
    gate.batch_execute("BEGIN; SELECT 1 FROM ready_group WHERE participant_id = 'g' FOR KEY SHARE").await.unwrap();
    let store = race.store();
    // It holds the sequence row and waits for the hint.
    let tidying = tokio::spawn(async move { store.tidy(&[Race::lane()]).await.unwrap() });
    race.somebody_waits().await;
    let producer = race.test.db.connect().await;
    let credentials = race.test.credentials.0;
    let producing = tokio::spawn(async move { producer.execute(ENQUEUE, &[&credentials]).await });
    eventually(SOON, "the producer waits for the sequence row", || async { race.test.one::<i64>(WAITING).await >= 2 })
        .await;
    gate.batch_execute("COMMIT").await.unwrap();
    tidying.await.unwrap();
    producing.await.unwrap().unwrap();
    assert_eq!(race.state().await.due, Some(true));
    assert!(race.lost_groups().await.is_empty());
    assert_eq!(race.begin().await.unwrap().2, SequenceId(2));
}

/// The fence: a node whose lease has lapsed begins nothing, and writes what it knows all the same.
#[tokio::test]
async fn a_lapsed_lease_begins_nothing_and_settles() {
    let race = Race::with(2, railyard_core::Mode::NextOnError).await;
    let (attempt, id, _) = race.begin().await.unwrap();
    race.test.sql.execute("UPDATE node SET lease_until = clock_timestamp() - interval '1 ms'", &[]).await.unwrap();
    let mut work = batch(delivered(attempt, id, 1));
    work.begin.push(race.request());
    let done = race.store().run(race.me, &work).await.unwrap();
    assert!(done.fenced && done.begun.is_empty());
    assert_eq!(done.settled.len(), 1, "an outcome needs no lease");
    assert_eq!(race.state().await.pending, [2]);
}

/// An epoch that has passed begins nothing, although the node itself is well.
#[tokio::test]
async fn an_old_epoch_begins_nothing() {
    let race = Race::with(1, railyard_core::Mode::NextOnError).await;
    race.test.sql.execute("UPDATE partition_lease SET epoch = epoch + 1", &[]).await.unwrap();
    assert_eq!(race.begin().await, None);
}

/// A takeover waits for a begin that holds the fence, and the begin's row belongs to an epoch that has passed then.
#[tokio::test]
async fn a_takeover_serialises_with_a_begin_in_progress() {
    let race = Race::with(1, railyard_core::Mode::NextOnError).await;
    let other = race.test.db.connect().await;
    other.batch_execute("BEGIN").await.unwrap();
    assert_eq!(other.query(lease::FENCE, &[&race.me.0]).await.unwrap().len(), 1);
    let mut taker = race.test.store.dedicated("taker").await.unwrap();
    let taking = tokio::spawn(async move {
        let taker_id = NodeId(Uuid::new_v4());
        lease::join(&taker.client, taker_id, "taker", Duration::from_secs(60)).await.unwrap();
        taker
            .client
            .execute("UPDATE node SET lease_until = clock_timestamp() - interval '1 ms' WHERE name = 'race'", &[])
            .await
            .unwrap();
        lease::take_over(&mut taker.client, taker_id).await.unwrap()
    });
    race.somebody_waits().await;
    other.batch_execute("COMMIT").await.unwrap();
    assert_eq!(taking.await.unwrap(), [race.me]);
    assert_eq!(race.test.one::<i64>("SELECT count(*) FROM partition_lease WHERE owner IS NULL").await, 256);
}

/// A partition is given once the begins in progress are over, and what comes later begins nothing in it: neither by its
/// old owner nor under its old epoch. What is in flight settles all the same.
#[tokio::test]
async fn giving_waits_for_a_begin_in_progress() {
    let race = Race::with(2, railyard_core::Mode::NextOnError).await;
    let (attempt, id, _) = race.begin().await.unwrap();
    let other = race.test.db.connect().await;
    other.batch_execute("BEGIN").await.unwrap();
    assert_eq!(other.query(lease::FENCE, &[&race.me.0]).await.unwrap().len(), 1);
    let mut giver = race.test.store.dedicated("giver").await.unwrap();
    let me = race.me;
    let giving = tokio::spawn(async move {
        let all: Vec<_> = (0..=255).map(railyard_core::PartitionId).collect();
        ownership::give(&mut giver.client, me, &all).await.unwrap()
    });
    race.somebody_waits().await;
    other.batch_execute("COMMIT").await.unwrap();
    assert_eq!(giving.await.unwrap(), 256);
    let done = race.store().run(me, &batch(delivered(attempt, id, 1))).await.unwrap();
    assert_eq!(done.settled.len(), 1);
    assert_eq!(race.begin().await, None, "it is not ours any more");
}

/// Whoever retires owns nothing, keeps its lease for its calls, and shows that it is leaving.
#[tokio::test]
async fn a_retiring_node_owns_nothing_and_keeps_its_lease() {
    let race = Race::with(1, railyard_core::Mode::NextOnError).await;
    let mut giver = race.test.store.dedicated("giver").await.unwrap();
    ownership::retire(&mut giver.client, race.me).await.unwrap();
    assert_eq!(race.test.one::<i64>("SELECT count(*) FROM partition_lease WHERE owner IS NULL").await, 256);
    assert!(lease::renew(&giver.client, race.me, Duration::from_secs(60)).await.unwrap());
    let view = ownership::view(&giver.client, race.me, Duration::ZERO).await.unwrap();
    assert!(view.peers[0].leaving && !view.dead && view.next_lapse.is_none());
    assert_eq!(race.begin().await, None);
}
