//! The store's invariants after, and during, a run of everything at once: producers that roll back and repeat
//! themselves, a rail that fails, operators who hold and release, a node that is replaced half-way. All choices come
//! from one printed seed.

use std::collections::HashSet;
use std::time::Duration;

use railyard_core::ParticipantId;
use railyard_core::hold::HoldKind;
use railyard_node::Node;
use railyard_store::holds::{self, Decision};
use railyard_store::{Store, StoreError};
use railyard_testkit::{FakeRail, Reply, eventually};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::task::JoinSet;
use tokio_postgres::{Client, Transaction};
use uuid::Uuid;

use crate::producer::{Item, eager, sqlstate};
use crate::record::Record;
use crate::s2_claim::NOT_IN_ONE_PLACE;
use crate::world::World;

const GROUPS: u32 = 14;
const PRODUCERS: u64 = 5;
const TRANSACTIONS: usize = 30;
/// For the whole run on a busy machine.
const LONG: Duration = Duration::from_secs(60);

/// One statement each; each row that it returns is an offence. Read when nothing moves any more.
const INVARIANTS: [(&str, &str); 13] = [
    ("a message is in exactly one place", NOT_IN_ONE_PLACE),
    (
        "numbers of a group start at 1 and have no gap",
        "SELECT s.participant_id || ' gave ' || s.next_sequence_id - 1 || ' numbers, ' || count(p.n) || ' are used, last ' || max(p.n)
         FROM participant_outbox_sequences s LEFT JOIN (
           SELECT participant_id, sequence_id AS n FROM payment_outbox_pending UNION ALL
           SELECT participant_id, sequence_id FROM in_flight UNION ALL
           SELECT participant_id, sequence_id FROM dispatch_job_outcome) p USING (participant_id)
         GROUP BY s.participant_id, s.next_sequence_id
         HAVING count(p.n) <> s.next_sequence_id - 1 OR count(DISTINCT p.n) <> count(p.n) OR min(p.n) <> 1
             OR max(p.n) <> s.next_sequence_id - 1",
    ),
    (
        "n + 1 of a group never began before n had ended",
        "SELECT a.outbox_id::text || ' attempt ' || a.attempt_no || ' began ' || o.recorded_at - a.claimed_at || ' before the end of '
           || o.outbox_id
         FROM payment_outbox_attempts a JOIN dispatch_job_outcome o
           ON o.participant_id = a.participant_id AND o.sequence_id < a.sequence_id
         WHERE a.claimed_at < o.recorded_at",
    ),
    (
        "every begin became exactly one row of the record, numbered through",
        "SELECT o.outbox_id::text || ': ' || count(a.attempt_no) || ' rows, ' || max(a.attempt_no) || ' the last, '
           || o.attempt_count || ' in all'
         FROM dispatch_job_outcome o LEFT JOIN payment_outbox_attempts a ON a.outbox_id = o.outbox_id AND NOT a.late
         GROUP BY o.outbox_id, o.attempt_count
         HAVING count(a.attempt_no) <> o.attempt_count OR coalesce(max(a.attempt_no), 0) <> o.attempt_count",
    ),
    (
        "attempts of a message and of a group follow one another",
        "SELECT b.outbox_id::text || ' attempt ' || b.attempt_no || ' began before attempt ' || a.attempt_no || ' was on record'
         FROM payment_outbox_attempts a JOIN payment_outbox_attempts b
           ON b.outbox_id = a.outbox_id AND b.attempt_no > a.attempt_no AND NOT a.late AND NOT b.late
         WHERE b.claimed_at < a.recorded_at",
    ),
    (
        "an epoch of a partition has one owner, and epochs grow",
        "SELECT format('partition %s epoch %s: %s', p, epoch, string_agg(DISTINCT node_id::text, ', '))
         FROM (SELECT partition_of(participant_id) AS p, epoch, node_id FROM payment_outbox_attempts
               WHERE sequence_id IS NOT NULL) e
         GROUP BY p, epoch HAVING count(DISTINCT node_id) > 1
         UNION ALL
         SELECT format('partition %s: epoch %s after %s', a.p, a.epoch, b.epoch)
         FROM (SELECT partition_of(participant_id) AS p, * FROM payment_outbox_attempts WHERE sequence_id IS NOT NULL) a
         JOIN (SELECT partition_of(participant_id) AS p, * FROM payment_outbox_attempts WHERE sequence_id IS NOT NULL) b
           ON a.p = b.p AND a.claimed_at > b.claimed_at AND a.epoch < b.epoch",
    ),
    (
        "an outcome follows from the record",
        "SELECT o.outbox_id::text || ' is ' || o.status || ' after ' || coalesce(string_agg(a.state, ', ' ORDER BY a.attempt_no), 'nothing')
         FROM dispatch_job_outcome o LEFT JOIN payment_outbox_attempts a ON a.outbox_id = o.outbox_id
         GROUP BY o.outbox_id, o.status
         HAVING (o.status = 'COMPLETED') <> coalesce(bool_or(a.state = 'DISPATCHED'), false)
             OR (o.status = 'ERROR') <> coalesce(bool_or(a.state = 'FAILED' AND NOT a.late), false)
             OR count(*) FILTER (WHERE a.state IN ('DISPATCHED', 'FAILED') AND NOT a.late) > 1",
    ),
    (
        "an end that blocks is held, or let go by a decision on record",
        "SELECT o.outbox_id::text || ' of ' || o.participant_id || ' ended ' || o.status
         FROM dispatch_job_outcome o JOIN dispatch_job j USING (outbox_id)
         WHERE o.status = 'ERROR' AND j.mode = 'BLOCK_ON_ERROR' AND o.sequence_id IS NOT NULL
           AND NOT EXISTS (SELECT 1 FROM group_hold h WHERE h.outbox_id = o.outbox_id AND h.kind = 'blocked')
           AND NOT EXISTS (SELECT 1 FROM admin_audit d WHERE d.detail @> jsonb_build_object('holds',
                 jsonb_build_array(jsonb_build_object('kind', 'blocked', 'jobId', o.outbox_id))))",
    ),
    (
        "a pause stands until somebody ends it",
        "SELECT d.participant_id || ': ' || d.action
         FROM (SELECT DISTINCT ON (participant_id) participant_id, action FROM admin_audit
               WHERE action IN ('group.pause', 'group.resume') OR detail @> '{\"holds\": [{\"kind\": \"paused\"}]}'
               ORDER BY participant_id, audit_id DESC) d
         WHERE (d.action = 'group.pause')
            <> EXISTS (SELECT 1 FROM group_hold h WHERE h.participant_id = d.participant_id AND h.kind = 'paused')",
    ),
    (
        "a hint is never late and a held group has none",
        "SELECT p.participant_id || ' is due ' || min(p.next_attempt_at) || ', its hint ' || coalesce(r.due_at::text, 'missing')
         FROM (SELECT DISTINCT ON (participant_id) participant_id, next_attempt_at FROM payment_outbox_pending
               WHERE participant_id IS NOT NULL ORDER BY participant_id, sequence_id) p
         LEFT JOIN ready_group r USING (participant_id)
         GROUP BY p.participant_id, p.next_attempt_at, r.due_at
         HAVING CASE WHEN EXISTS (SELECT 1 FROM group_hold h WHERE h.participant_id = p.participant_id)
                     THEN r.due_at IS DISTINCT FROM 'infinity' ELSE r.due_at IS NULL OR r.due_at > p.next_attempt_at END",
    ),
    (
        "every job has its key and every key its job",
        "SELECT coalesce(k.outbox_id, j.outbox_id)::text FROM idempotency_key k FULL JOIN dispatch_job j USING (outbox_id)
         WHERE k.outbox_id IS NULL OR j.outbox_id IS NULL",
    ),
    (
        "what was sent is in the budget",
        "SELECT a.outbox_id::text || ' was tried ' || count(*) || ' times of ' || j.max_attempts
         FROM payment_outbox_attempts a JOIN dispatch_job j USING (outbox_id)
         WHERE a.state IN ('DISPATCHED', 'RETRYABLE', 'FAILED', 'ZOMBIE_REQUEUE') AND NOT late
         GROUP BY a.outbox_id, j.max_attempts HAVING count(*) > j.max_attempts",
    ),
    (
        "no doubt was left by a node that stopped in good order",
        "SELECT outbox_id::text || ' ' || state FROM payment_outbox_attempts WHERE state = 'ZOMBIE_REQUEUE'",
    ),
];

async fn rows(sql: &Client, statement: &str) -> Vec<String> {
    sql.query(statement, &[]).await.unwrap().iter().map(|row| row.get(0)).collect()
}

/// What the producers start from.
#[derive(Clone)]
struct Plan {
    seed: u64,
    payment: Item,
    webhook: Item,
}

impl Plan {
    /// A random item of this group.
    fn item(&self, random: &mut StdRng, group: &str, key: &str) -> Item {
        let rail = if random.random_bool(0.5) { &self.payment } else { &self.webhook };
        let mode = ["BLOCK_ON_ERROR", "BLOCK_ON_ERROR", "NEXT_ON_ERROR", "IMMEDIATE"][random.random_range(0..4)];
        let item = rail.clone().of(group, key).mode(mode).retry("immediate").timeout_ms(2000);
        item.max_attempts(random.random_range(1..6))
    }
}

fn any_group(random: &mut StdRng) -> String {
    format!("g{}", random.random_range(0..GROUPS))
}

/// Commits, rolls back, goes back to a savepoint, repeats itself and gets refused. Returns the committed keys.
async fn produce(plan: Plan, number: u64, mut sql: Client, store: Store) -> HashSet<String> {
    let mut random = StdRng::seed_from_u64(plan.seed ^ number);
    let (mut committed, mut last) = (HashSet::new(), None);
    for n in 0..TRANSACTIONS {
        // One group a transaction: who locks two waits for others in a circle some day.
        let (group, key) = (any_group(&mut random), format!("p{number}-{n}"));
        let made = plan.item(&mut random, &group, &key);
        let scheduled = random.random_bool(0.15).then(|| random.random_range(1..600));
        let mut open = sql.transaction().await.unwrap();
        match scheduled {
            Some(ms) => made.clone().scheduled_in_ms(ms).by(&open).await.unwrap(),
            None => made.by(&open).await.unwrap(),
        };
        if random.random_bool(0.3) {
            astray(&plan, &mut random, &mut open, &group).await;
        }
        if random.random_bool(0.2)
            && let Some(last) = &last
        {
            let repeated: &Item = last;
            repeated.by(&open).await.unwrap();
        }
        if random.random_bool(0.2) {
            open.rollback().await.unwrap();
        } else {
            open.commit().await.unwrap();
            committed.insert(key);
            last = scheduled.is_none().then_some(made);
        }
        if random.random_bool(0.4) {
            decide(&store, &mut random).await;
        }
    }
    committed
}

/// Inside a transaction that goes on: a good item that is taken back, or a bad one that is refused.
async fn astray(plan: &Plan, random: &mut StdRng, open: &mut Transaction<'_>, group: &str) {
    let aside = open.savepoint("aside").await.unwrap();
    // A key of its own: with one for all, two of them could wait for each other, for the key and for the group.
    let item = plan.item(random, group, &format!("astray-{}", Uuid::new_v4()));
    if random.random_bool(0.5) {
        item.by(&aside).await.unwrap();
    } else {
        assert_eq!(sqlstate(&item.max_attempts(0).by(&aside).await.unwrap_err()), "RY400");
    }
    aside.rollback().await.unwrap();
}

/// An operator presses a button, whatever it does.
async fn decide(store: &Store, random: &mut StdRng) {
    let group = ParticipantId::new(any_group(random));
    let decision = Decision { actor: "test", reason: "at random" };
    let pressed = match random.random_range(0..5) {
        0 => holds::pause(store, &group, decision).await,
        1 => holds::resume(store, &group, decision).await,
        2 => holds::skip(store, &group, None, decision).await.map(drop),
        _ => holds::release(store, &group, &[HoldKind::Blocked], decision).await.map(drop),
    };
    match pressed {
        Ok(()) | Err(StoreError::Conflict { .. } | StoreError::Busy { .. } | StoreError::Repeat { .. }) => {}
        Err(error) => panic!("{error}"),
    }
}

/// Releases every hold until nothing is left to do.
async fn release_all(world: &World) {
    let decision = Decision { actor: "test", reason: "at the end" };
    eventually(LONG, "everything has ended", || async {
        for row in world.sql.query("SELECT participant_id, kind FROM group_hold", &[]).await.unwrap() {
            let (group, kind) = (ParticipantId::new(row.get::<_, String>(0)), HoldKind::parse(row.get(1)).unwrap());
            // The next failure may hold it again at once; a decision that finds nothing is none.
            drop(holds::release(&world.store, &group, &[kind], decision).await);
        }
        let left = "SELECT (SELECT count(*) FROM payment_outbox_pending) + (SELECT count(*) FROM in_flight)
                      + (SELECT count(*) FROM scheduled_job) + (SELECT count(*) FROM group_hold)";
        world.one::<i64>(left).await == 0
    })
    .await;
}

/// Waits until only held groups have anything left, and the poller finds nothing more.
async fn come_to_rest(world: &World, node: &Node) {
    let moving = "SELECT (SELECT count(*) FROM in_flight) + (SELECT count(*) FROM scheduled_job)
                    + (SELECT count(*) FROM ready_group WHERE due_at < 'infinity')
                    + (SELECT count(*) FROM payment_outbox_pending WHERE participant_id IS NULL)";
    eventually(LONG, "nothing moves but what is held", || async { world.one::<i64>(moving).await == 0 }).await;
    let poller = async |figure: &str| node.observe().await["actors"]["poller"][figure].as_u64().unwrap();
    let (looks, hints) = (poller("looks").await, poller("hints").await);
    eventually(LONG, "the poller has looked again", || async { poller("looks").await >= looks + 10 }).await;
    assert_eq!(poller("hints").await, hints, "held groups cost the poll something");
}

async fn check(world: &World) {
    for (name, statement) in INVARIANTS {
        assert_eq!(rows(&world.sql, statement).await, [] as [&str; 0], "{name}");
    }
    assert_eq!(world.store.sweep().await.unwrap(), [] as [&str; 0], "discovery had lost groups");
}

/// Every invariant of the store holds at rest, the one of places at every moment, whatever the seed.
#[tokio::test(flavor = "multi_thread")]
async fn invariants_hold_whatever_happens() {
    let seed = railyard_testkit::seed();
    let world = World::new().await;
    world.sql.batch_execute("SET jit = off").await.unwrap();
    let faults = vec![Reply::status(500), Reply::status(503), Reply::status(410), Reply::Reset, Reply::Close];
    let rail = FakeRail::start().await.replies_randomly(30, seed, faults);
    let payment = Item::payment(&world, &rail.url(), "", "");
    let webhook = Item::webhook(&world, &rail.url(), "", "");
    let plan = Plan { seed, payment, webhook };
    let mut node = world.node_with(eager).await;
    let mut producers = JoinSet::new();
    for number in 0..PRODUCERS {
        producers.spawn(produce(plan.clone(), number, world.db.connect().await, world.store.clone()));
    }
    let mut committed = producers.join_next().await.unwrap().unwrap();
    node.stop(LONG).await;
    node = world.node_with(eager).await;
    while let Some(keys) = producers.join_next().await {
        committed.extend(keys.unwrap());
        assert_eq!(rows(&world.sql, NOT_IN_ONE_PLACE).await, [] as [&str; 0], "while it runs");
    }
    come_to_rest(&world, &node).await;
    check(&world).await;
    let held: i64 = world.one("SELECT count(*) FROM group_hold").await;
    release_all(&world).await;
    come_to_rest(&world, &node).await;
    check(&world).await;
    println!("{} messages, {held} holds at the first rest, {} requests", committed.len(), rail.receipts().len());

    let keys: HashSet<String> =
        rows(&world.sql, "SELECT idempotency_key FROM dispatch_job").await.into_iter().collect();
    assert_eq!(keys, committed, "what was committed is there, and nothing else");
    assert_eq!(rail.order_violations(), [] as [&str; 0]);
    assert!(rail.max_concurrent_per_group() <= 1);
    let record = Record::read(&world.sql).await;
    assert_eq!(record.contradictions(&rail.exchanges()), [] as [&str; 0]);
    assert_eq!(world.one::<i64>("SELECT count(*) FROM ready_group").await, 0);
    node.stop(LONG).await;
}
