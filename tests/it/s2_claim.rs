//! S2-06 to S2-10: what is begun, when, in which order, and by whom.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

use railyard_core::job::NewJob;
use railyard_core::{AttemptId, Epoch, Lane, Mode, OutboxId, ParticipantId, PartitionId};
use railyard_store::discover::{Cursor, Hint, Search};
use railyard_store::work::{Batch, BeginRequest, Settled};
use railyard_store::{Store, StoreConfig};
use railyard_testkit::{FakeRail, FaultProxy, Gate, Receipt, eventually};
use serde_json::json;
use uuid::Uuid;

use crate::hand::{Hand, LONG, delivered, failed, make_due, pass_deadline, pass_lease};
use crate::producer::{Item, eager};
use crate::world::{SOON, World};

const NOWHERE: &str = "http://127.0.0.1:9/";

/// Names of groups that all fall into one partition.
pub(crate) async fn neighbours(world: &World, n: i64) -> Vec<String> {
    let sql =
        "SELECT g FROM (SELECT 'g' || n AS g FROM generate_series(1, 150000) n) s WHERE partition_of(g) = 7 LIMIT $1";
    world.sql.query(sql, &[&n]).await.unwrap().iter().map(|row| row.get(0)).collect()
}

/// One page of hints of this member, as the names of their lanes.
pub(crate) async fn page(world: &World, hand: &Hand, behind: Option<&Cursor>) -> (Vec<String>, Option<Cursor>) {
    let probe = |_: &ParticipantId, _: Epoch| None;
    let search =
        Search { partitions: &hand.owned().await, busy: &[], probe: &probe, behind, turn: PartitionId(0), limit: 16 };
    let found = world.store.discover(&search).await.unwrap();
    let name = |lane: &Lane| match lane {
        Lane::Group(group) => group.as_str().to_owned(),
        Lane::Single(id) => id.to_string(),
    };
    (found.hints.iter().map(|hint| name(&hint.lane)).collect(), found.next_page)
}

/// What is due is found oldest first and a page at a time; what is not due is neither found nor begun.
#[tokio::test]
async fn s2_06_due_heads_oldest_first_a_page_at_a_time() {
    let world = World::new().await;
    let groups = neighbours(&world, 40).await;
    for group in &groups {
        Item::payment(&world, NOWHERE, group, group).by(&world.sql).await.unwrap();
    }
    // Due one by one in the opposite of the order in which they were made; the last five only later.
    world
        .sql
        .execute(
            "UPDATE ready_group r SET due_at = clock_timestamp()
               + CASE WHEN n <= 35 THEN - n * interval '1 second' ELSE interval '1 hour' END
             FROM unnest($1::text[]) WITH ORDINALITY AS g(name, n) WHERE r.participant_id = g.name",
            &[&groups],
        )
        .await
        .unwrap();
    world
        .sql
        .execute(
            "UPDATE payment_outbox_pending p SET next_attempt_at = r.due_at FROM ready_group r
             WHERE r.participant_id = p.participant_id",
            &[],
        )
        .await
        .unwrap();
    let hand = Hand::join(&world.store, LONG).await;
    let due: Vec<String> = groups[..35].iter().rev().cloned().collect();

    // One partition of 256 gives little to the first page, and fills those behind it.
    let (mut seen, mut sizes, mut behind) = (Vec::new(), Vec::new(), None);
    loop {
        let (names, next) = page(&world, &hand, behind.as_ref()).await;
        sizes.push(names.len());
        seen.extend(names);
        let Some(next) = next else { break };
        behind = Some(next);
    }
    assert_eq!((seen, sizes), (due, vec![1, 16, 16, 2]));

    for group in &groups[35..] {
        assert!(hand.begin(&world.sql, group).await.is_none(), "{group} is not due");
    }
    assert!(hand.begin(&world.sql, &groups[0]).await.is_some());
}

/// Groups' heads and messages without order begin together in one transaction, each as the attempt that was asked for it.
#[tokio::test]
async fn s2_06_one_transaction_begins_groups_and_messages_without_one() {
    let world = World::new().await;
    let jobs: Vec<NewJob> = (0..9)
        .map(|n| {
            let mut job = world.draft(NOWHERE, format!("{n}"));
            job.group = (n % 3 == 0).then(|| ParticipantId::new(format!("g{n}")));
            job.mode = Mode::NextOnError;
            job
        })
        .collect();
    world.enqueue(&jobs).await.unwrap();
    let hand = Hand::join(&world.store, LONG).await;
    let partitions = hand.owned().await;
    let search = Search {
        partitions: &partitions,
        busy: &[],
        probe: &|_, _| None,
        behind: None,
        turn: PartitionId(0),
        limit: 16,
    };
    let request = |hint: Hint| BeginRequest {
        attempt_id: AttemptId(Uuid::now_v7()),
        lane: hint.lane,
        partition: hint.partition,
        epoch: hint.epoch,
        head: hint.head.unwrap(),
        probe: hint.probe,
    };
    let begin: Vec<BeginRequest> =
        world.store.discover(&search).await.unwrap().hints.into_iter().map(request).collect();
    let asked: HashMap<AttemptId, Lane> =
        begin.iter().map(|request| (request.attempt_id, request.lane.clone())).collect();
    let batch = Batch { begin, slack: Duration::from_secs(1), ..Batch::default() };

    let done = world.store.run(hand.node, &batch).await.unwrap();

    let begun: HashMap<AttemptId, Lane> = done.begun.iter().map(|(id, message)| (*id, message.lane.clone())).collect();
    assert_eq!((begun.len(), begun), (9, asked));
}

/// One statement, so one snapshot: every job is in one of the four tables and in no other, and nothing else is.
pub(crate) const NOT_IN_ONE_PLACE: &str = "
SELECT coalesce(j.outbox_id, u.outbox_id)::text || ' is in ' || coalesce(u.places, 'no place')
FROM (SELECT outbox_id FROM dispatch_job) j
FULL JOIN (SELECT outbox_id, count(*) AS n, string_agg(place, ', ') AS places FROM (
    SELECT outbox_id, 'scheduled' AS place FROM scheduled_job
    UNION ALL SELECT outbox_id, 'pending' FROM payment_outbox_pending
    UNION ALL SELECT outbox_id, 'in flight' FROM in_flight
    UNION ALL SELECT outbox_id, 'ended' FROM dispatch_job_outcome) p GROUP BY outbox_id) u USING (outbox_id)
WHERE j.outbox_id IS NULL OR u.n IS DISTINCT FROM 1";

/// While a node works, every snapshot of the database shows each message in exactly one place, and each in-flight row
/// beside as many finished attempts as its number says.
#[tokio::test(flavor = "multi_thread")]
async fn s2_07_every_snapshot_shows_each_message_once() {
    let world = World::new().await;
    let rail = FakeRail::start().await.each_message().fails(2).then_ok();
    for n in 0..60 {
        let item = Item::payment(&world, &rail.url(), &format!("g{}", n % 12), &format!("k{n}"));
        item.retry("immediate").by(&world.sql).await.unwrap();
    }
    let node = world.node_with(eager).await;
    // Sixteen days are sixteen partitions, and the planner would compile each look anew.
    world.sql.batch_execute("SET jit = off").await.unwrap();
    let mut snapshots = 0;
    loop {
        let offences = world.sql.query(NOT_IN_ONE_PLACE, &[]).await.unwrap();
        let offences: Vec<String> = offences.iter().map(|row| row.get(0)).collect();
        assert_eq!(offences, [] as [&str; 0]);
        let evidence: i64 = world
            .one(
                "SELECT count(*) FROM in_flight f WHERE attempt_no <> 1 +
                   (SELECT count(*) FROM payment_outbox_attempt_archive a WHERE a.outbox_id = f.outbox_id AND NOT late)",
            )
            .await;
        assert_eq!(evidence, 0, "an attempt is missing from the record");
        snapshots += 1;
        if world.one::<i64>("SELECT count(*) FROM dispatch_job_outcome").await == 60 {
            break;
        }
    }
    assert!(snapshots >= 10, "only {snapshots} snapshots were taken");
    node.stop(SOON).await;
}

/// A begin that never reached its commit leaves the message where it was; one whose answer was lost is in flight, and
/// the node that asks for its attempt by id gets it.
#[tokio::test]
async fn s2_07_a_begin_happens_whole_or_not_at_all() {
    let world = World::new().await;
    let direct = world.db.url();
    let address: SocketAddr = direct.split_once('@').unwrap().1.split('/').next().unwrap().parse().unwrap();
    let proxy = FaultProxy::postgres(address).await;
    let store = Store::new(StoreConfig::at(&proxy.url(direct))).unwrap();
    let hand = Hand::join(&store, LONG).await;
    Item::payment(&world, NOWHERE, "g", "key").by(&world.sql).await.unwrap();
    let places = "SELECT (SELECT count(*) FROM payment_outbox_pending) || ' pending, '
                    || (SELECT count(*) FROM in_flight) || ' in flight'";

    proxy.cut_before_commit(1);
    let request = hand.request(&world.sql, "g").await;
    let lost = hand.run(request.clone()).await.unwrap_err();
    assert!(lost.in_doubt, "it cannot tell the two apart: {lost:?}");
    let found = store.resolve_until(lost.transaction.as_deref(), &[request.attempt_id], SOON).await.unwrap();
    assert!(found.begun.is_empty());
    assert_eq!(world.one::<String>(places).await, "1 pending, 0 in flight");

    proxy.cut_on_commit_answer(1);
    let request = hand.request(&world.sql, "g").await;
    let lost = hand.run(request.clone()).await.unwrap_err();
    let found = store.resolve_until(lost.transaction.as_deref(), &[request.attempt_id], SOON).await.unwrap();
    assert_eq!(found.begun[&request.attempt_id].attempt_no, 1, "an attempt that did not happen has no number");
    assert_eq!(world.one::<String>(places).await, "0 pending, 1 in flight");
}

/// What one member has in flight no other begins: not while its lease is good, not when the lease has lapsed and the
/// partition is taken over, but when the attempt has been healed after its deadline.
#[tokio::test]
async fn s2_08_what_is_in_flight_is_nobody_elses() {
    let world = World::new().await;
    world.sql.batch_execute("UPDATE rail SET on_unknown = 'retry'").await.unwrap();
    let first = Hand::join(&world.store, LONG).await;
    Item::payment(&world, NOWHERE, "g", "one").by(&world.sql).await.unwrap();
    Item::payment(&world, NOWHERE, "g", "two").by(&world.sql).await.unwrap();
    let begun = first.begin(&world.sql, "g").await.unwrap();

    let mut second = Hand::join(&world.store, LONG).await;
    assert!(second.owned().await.is_empty(), "owned partitions were taken from a living member");
    assert!(second.begin(&world.sql, "g").await.is_none());
    Item::payment(&world, NOWHERE, "free", "three").by(&world.sql).await.unwrap();
    assert!(second.begin(&world.sql, "free").await.is_none(), "begun in another's partition");
    let stale = first.request(&world.sql, "free").await;
    assert!(second.heal(&[&begun]).await.is_empty());

    pass_lease(&world.sql, first.node).await;
    let done = first.run(stale.clone()).await.unwrap();
    assert!(done.fenced && done.begun.is_empty(), "begun on a lapsed lease that nobody has taken over yet");
    assert_eq!(second.take_over().await, [first.node]);
    assert!(second.begin(&world.sql, "g").await.is_none(), "begun while another's call may be running");
    assert!(second.heal(&[]).await.is_empty(), "healed before its deadline");
    // The first knows nothing of its end: it may not begin either.
    let done = first.run(first.request(&world.sql, "g").await).await.unwrap();
    assert!(done.fenced && done.begun.is_empty());

    pass_deadline(&world.sql, &begun).await;
    assert_eq!(second.heal(&[]).await.len(), 1);
    let again = second.begin(&world.sql, "g").await.unwrap();
    assert_eq!((again.outbox_id, again.attempt_no), (begun.outbox_id, 2));
    assert!(again.epoch > begun.epoch);
    assert!(second.run(stale).await.unwrap().begun.is_empty(), "begun under an epoch that is over");
    assert!(second.begin(&world.sql, "free").await.is_some());
}

/// The order in which messages came to the receiver, by their keys.
fn keys(receipts: &[Receipt], names: &HashMap<String, &'static str>) -> Vec<&'static str> {
    receipts.iter().map(|receipt| names[&receipt.message_key()]).collect()
}

/// X succeeds, A fails twice: the receiver sees X A A A B C, never B before A is done.
#[tokio::test(flavor = "multi_thread")]
async fn s2_09_strict_order_survives_retries() {
    let world = World::new().await;
    let rail = FakeRail::start().await;
    let mut names = HashMap::new();
    for name in ["X", "A", "B", "C"] {
        let item = Item::payment(&world, &rail.url(), "g", name).retry("immediate");
        names.insert(item.by(&world.sql).await.unwrap().to_string(), name);
    }
    let rail = rail.for_body_with(r#""key":"A""#).fails(2).then_ok();
    let node = world.node_with(eager).await;
    let receipts = rail.await_answered(6, SOON).await;
    assert_eq!(keys(&receipts, &names), ["X", "A", "A", "A", "B", "C"]);
    assert_eq!(receipts.iter().map(|r| r.attempt().unwrap()).collect::<Vec<_>>(), [1, 1, 2, 3, 1, 1]);
    node.stop(SOON).await;
}

/// The same when the node ends in A's back-off and another one goes on.
#[tokio::test(flavor = "multi_thread")]
async fn s2_09_strict_order_survives_a_restart_in_the_back_off() {
    let world = World::new().await;
    let rail = FakeRail::start().await.for_body_with(r#""key":"A""#).fails(2).then_ok();
    let mut names = HashMap::new();
    for name in ["A", "B", "C"] {
        names.insert(world.pay(&rail, "g", name).await.to_string(), name);
    }
    let first = world.node().await;
    rail.await_answered(1, SOON).await;
    first.stop(SOON).await;
    let waits: i64 =
        world.one("SELECT count(*) FROM payment_outbox_pending WHERE next_attempt_at > clock_timestamp()").await;
    assert_eq!(waits, 1, "A was not in its back-off");
    let second = world.node().await;
    let receipts = rail.await_answered(5, SOON).await;
    assert_eq!(keys(&receipts, &names), ["A", "A", "A", "B", "C"]);
    second.stop(SOON).await;
}

/// While one group's head is out, nothing else of it is; other groups go on. One call of a group at a time.
#[tokio::test(flavor = "multi_thread")]
async fn s2_09_one_of_a_group_at_a_time_and_others_go_on() {
    let world = World::new().await;
    let gate = Gate::closed();
    let rail = FakeRail::start().await.for_group("slow").ok().hold_until(&gate).then_ok();
    for n in 0..5 {
        world.pay(&rail, "slow", &format!("slow-{n}")).await;
    }
    let node = world.node().await;
    eventually(SOON, "the slow group's head is out", || async { gate.waiting() == 1 }).await;
    for n in 0..20 {
        world.pay(&rail, &format!("fast-{}", n % 4), &format!("fast-{n}")).await;
    }
    let fast = |receipts: &[Receipt]| receipts.iter().filter(|r| r.group() != Some("slow") && r.accepted()).count();
    let receipts = rail.await_where("all fast ones", SOON, |receipts| fast(receipts) == 20).await;
    assert_eq!(receipts.iter().filter(|r| r.group() == Some("slow")).count(), 1);
    gate.open();
    let receipts = rail.await_answered(25, SOON).await;
    assert_eq!(rail.order_violations(), [] as [&str; 0]);
    assert_eq!(rail.max_concurrent_per_group(), 1);
    assert_eq!(receipts.len(), 25);
    node.stop(SOON).await;
}

/// Whatever a member asks for, begin takes the group's first message, and nothing while that is out.
#[tokio::test]
async fn s2_09_begin_takes_the_head_alone() {
    let world = World::new().await;
    let hand = Hand::join(&world.store, LONG).await;
    for key in ["one", "two", "three"] {
        Item::payment(&world, NOWHERE, "g", key).by(&world.sql).await.unwrap();
    }
    let one = hand.begin(&world.sql, "g").await.unwrap();
    assert!(hand.begin(&world.sql, "g").await.is_none(), "two of a group in flight");
    hand.settle(&one, failed()).await;
    assert!(hand.begin(&world.sql, "g").await.is_none(), "the second was begun while the first waits for its retry");
    make_due(&world.sql).await;
    let again = hand.begin(&world.sql, "g").await.unwrap();
    assert_eq!((again.outbox_id, again.attempt_no, again.failures), (one.outbox_id, 2, 1));
    assert!(matches!(hand.settle(&again, delivered()).await, Settled::Applied { .. }));
    let two = hand.begin(&world.sql, "g").await.unwrap();
    assert_eq!(two.sequence_id.unwrap().0, 2);
}

/// A success is one DISPATCHED attempt with what the rail said and how long it took; the message has left pending and
/// is not sent again, by another node either.
#[tokio::test(flavor = "multi_thread")]
async fn s2_10_success_is_one_attempt_and_the_end() {
    let world = World::new().await;
    let accepted = json!({ "railReference": "R-17", "railCode": "ACCP" });
    let rail = FakeRail::start().await.json(202, &accepted).delay(Duration::from_millis(30)).then_ok();
    let first = world.node().await;
    let id = OutboxId(world.pay(&rail, "g", "one").await);
    world.ended(id).await;
    let attempts = world.attempts(id).await;
    assert_eq!(world.history(id).await, ["DISPATCHED"]);
    let attempt = &attempts[0];
    assert_eq!(attempt.rail_reference.as_deref(), Some("R-17"));
    assert_eq!(attempt.rail_code.as_deref(), Some("ACCP"));
    assert_eq!(attempt.response_code, Some(202));
    assert!(attempt.latency_ms.unwrap() >= 30, "{attempt:?}");
    let completed = attempt.completed_at.unwrap();
    let recorded: jiff::Timestamp = world.one("SELECT recorded_at FROM payment_outbox_attempt_archive").await;
    assert!(attempt.claimed_at < completed && completed <= recorded, "{attempt:?}");
    assert_eq!(world.one::<i64>("SELECT count(*) FROM payment_outbox_pending").await, 0);
    first.stop(SOON).await;

    let second = world.node().await;
    world.pay(&rail, "g", "two").await;
    let receipts = rail.await_answered(2, SOON).await;
    assert_eq!(receipts.iter().map(|r| r.sequence().unwrap()).collect::<Vec<_>>(), [1, 2]);
    second.stop(SOON).await;
}
