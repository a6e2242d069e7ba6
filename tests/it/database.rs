//! The database misbehaves around single statements: an answer that is cut off, a listener that dies, a disk that is
//! full, a statement that takes too long. Whole outages are in `outage`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use railyard_node::Node;
use railyard_store::{Store, StoreConfig, StoreError};
use railyard_testkit::{Cut, FakeRail, FaultProxy, Mode, Moment, Receipt, TestDb, eventually, eventually_some, verify};
use serde_json::Value;

use crate::record::{Record, completed, misplaced, unfinished};
use crate::world::{SECRET, SOON, World};

/// The poll interval of these nodes, and what a busy machine may add to it.
const POLL: Duration = Duration::from_millis(500);
const MARGIN: Duration = Duration::from_millis(1000);

/// A proxy between a node and its database.
async fn proxy(db: &TestDb) -> (FaultProxy, Store) {
    let (_, rest) = db.url().split_once('@').unwrap();
    let upstream = rest.split('/').next().unwrap().parse().unwrap();
    let proxy = FaultProxy::postgres(upstream).await;
    let store = Store::new(StoreConfig::at(&proxy.url(db.url()))).unwrap();
    (proxy, store)
}

/// A number in what a node shows of itself.
async fn seen(node: &Node, actor: &str, what: &str) -> u64 {
    let observed: Value = node.observe().await;
    observed["actors"][actor][what].as_u64().unwrap_or(0)
}

/// Everything arrived once, in order, signed; each request has its row; nothing is left.
async fn assert_once(world: &World, rail: &FakeRail, messages: usize) -> Record {
    let all = i64::try_from(messages).unwrap();
    eventually(SOON, "everything has ended and nothing is left", || async {
        completed(&world.sql).await == all && unfinished(&world.sql).await == 0
    })
    .await;
    let receipts: Vec<Receipt> = rail.receipts();
    assert_eq!(receipts.len(), messages, "each arrives once");
    assert_eq!(verify::order_violations(&receipts), verify::NONE);
    assert_eq!(verify::overlaps(&rail.exchanges()), verify::NONE);
    assert_eq!(verify::signature_failures(&receipts, SECRET), verify::NONE);
    let record = Record::read(&world.sql).await;
    assert_eq!(record.contradictions(&rail.exchanges()), verify::NONE);
    assert_eq!(misplaced(&world.sql).await, verify::NONE);
    record
}

/// A COMMIT that follows a statement with `after` in it, and not one with `but_not`.
fn commit_after(after: &'static str, but_not: &'static str) -> impl Fn(&str) -> bool + Send + 'static {
    let armed = Arc::new(AtomicBool::new(false));
    move |sql: &str| {
        if sql.contains(after) && (but_not.is_empty() || !sql.contains(but_not)) {
            armed.store(true, Ordering::SeqCst);
            return false;
        }
        sql.trim().eq_ignore_ascii_case("commit") && armed.swap(false, Ordering::SeqCst)
    }
}

const BEGINS: &str = "/* begin */";
const SETTLES: &str = "/* settle and begin */";

/// Five times the COMMIT of such a statement is cut at this moment; each time the message arrives once.
async fn cut_commits(statement: &'static str, moment: Moment) -> Record {
    let world = World::new().await;
    let rail = FakeRail::start().await;
    let (proxy, store) = proxy(&world.db).await;
    // Few renewals, so that nobody else commits in between.
    let node = world.node_on(store, |options| options.renewal = Duration::from_secs(1)).await;
    for n in 0..5_u64 {
        proxy.cut_around(moment, Cut::Reset, 1, commit_after(statement, ""));
        world.pay(&rail, "group", &format!("key-{n}")).await;
        eventually(SOON, "the connection is cut around the COMMIT", || async {
            proxy.counters().statement_cuts == n + 1
        })
        .await;
        eventually(SOON, "the message has ended", || async { completed(&world.sql).await > i64::try_from(n).unwrap() })
            .await;
    }
    let record = assert_once(&world, &rail, 5).await;
    node.stop(SOON).await;
    record
}

/// A begin whose COMMIT was not answered is looked up before anything is called: it had happened, so the call goes out
/// as the attempt that stands there, once.
#[tokio::test(flavor = "multi_thread")]
async fn trap_commit_answer_of_a_begin_is_cut_off() {
    let record = cut_commits(BEGINS, Moment::BeforeItsAnswer).await;
    assert_eq!((record.count("DISPATCHED"), record.count("NOT_STARTED")), (5, 0));
}

/// A begin whose COMMIT never reached the server has not happened: nothing is called for it.
#[tokio::test(flavor = "multi_thread")]
async fn trap_commit_of_a_begin_is_lost() {
    let record = cut_commits(BEGINS, Moment::BeforeIt).await;
    assert_eq!(record.count("DISPATCHED"), 5);
}

/// An outcome whose COMMIT was not answered is sent again and found to be there: nothing is delivered a second time.
#[tokio::test(flavor = "multi_thread")]
async fn trap_commit_answer_of_a_settle_is_cut_off() {
    let record = cut_commits(SETTLES, Moment::BeforeItsAnswer).await;
    assert_eq!(record.count("DISPATCHED"), 5);
}

/// An outcome whose COMMIT never reached the server is sent again and written then.
#[tokio::test(flavor = "multi_thread")]
async fn trap_commit_of_a_settle_is_lost() {
    let record = cut_commits(SETTLES, Moment::BeforeIt).await;
    assert_eq!(record.count("DISPATCHED"), 5);
}

/// Answers of COMMITs are cut off at random under load; everything arrives once and in order.
#[tokio::test(flavor = "multi_thread")]
async fn trap_commit_answers_are_cut_off_under_load() {
    const MESSAGES: usize = 200;
    let world = World::new().await;
    let rail = FakeRail::start().await.otherwise().delay(Duration::from_millis(2));
    let (proxy, store) = proxy(&world.db).await;
    for n in 0..MESSAGES {
        world.pay(&rail, &format!("group-{}", n % 10), &format!("key-{n}")).await;
    }
    let node = world.node_on(store, |_| {}).await;
    for cut in 1..=20 {
        proxy.cut_on_commit_answer(1);
        rail.await_where("the run goes on", SOON, |receipts| receipts.len() >= cut * (MESSAGES / 25)).await;
    }
    assert_once(&world, &rail, MESSAGES).await;
    assert!(proxy.counters().statement_cuts >= 15, "{:?}", proxy.counters());
    node.stop(SOON).await;
}

/// The LISTEN backend is terminated: what is committed then waits for one poll at most; the listener comes back once,
/// without a hot loop, and hears again.
#[tokio::test(flavor = "multi_thread")]
async fn trap_listen_backend_is_terminated() {
    let world = World::new().await;
    let rail = FakeRail::start().await;
    let node = world.node().await;
    eventually(SOON, "it listens", || async { seen(&node, "listener", "connections").await == 1 }).await;
    let ended: i64 = world
        .one(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
             WHERE datname = current_database() AND application_name = 'railyard listen'",
        )
        .await;
    assert_eq!(ended, 1);
    let committed = Instant::now();
    world.pay(&rail, "group", "while deaf").await;
    let receipts = rail.await_receipts(1, SOON).await;
    let waited = receipts[0].first_byte_at - committed;
    assert!(waited < POLL + MARGIN, "{waited:?}");
    eventually(SOON, "it listens again", || async { seen(&node, "listener", "connections").await == 2 }).await;
    let notifications = seen(&node, "listener", "notifications").await;
    world.pay(&rail, "group", "heard again").await;
    rail.await_answered(2, SOON).await;
    eventually(SOON, "it heard", || async { seen(&node, "listener", "notifications").await > notifications }).await;
    assert_eq!(seen(&node, "listener", "connections").await, 2, "one reconnect");
    node.stop(SOON).await;
}

/// The LISTEN connection is half-open: nobody says so. The poll goes on finding work; the silence is noticed and the
/// listener listens anew.
#[tokio::test(flavor = "multi_thread")]
async fn trap_listen_connection_is_half_open() {
    let world = World::new().await;
    let rail = FakeRail::start().await;
    let (proxy, store) = proxy(&world.db).await;
    proxy.mark(|sql| sql.contains("LISTEN outbox_pending"));
    let node = world.node_on(store, |_| {}).await;
    eventually(SOON, "it listens", || async { seen(&node, "listener", "connections").await == 1 }).await;
    proxy.set_marked(Mode::BlackHole);
    let mut slowest = Duration::ZERO;
    for n in 1..=3 {
        let committed = Instant::now();
        world.pay(&rail, "group", &format!("key-{n}")).await;
        let receipts = rail.await_answered(n, SOON).await;
        slowest = slowest.max(receipts[n - 1].first_byte_at - committed);
    }
    assert!(slowest < POLL + MARGIN, "{slowest:?}");
    // The next connection is a new one, and marked as well: let it through.
    eventually(SOON, "the silence is noticed", || async {
        proxy.counters().connections > 0 && listening_anew(&node).await
    })
    .await;
    proxy.set_marked(Mode::Pass);
    eventually(SOON, "it listens again", || async { seen(&node, "listener", "connections").await >= 2 }).await;
    node.stop(SOON).await;
}

/// Whether the listener has given its first connection up.
async fn listening_anew(node: &Node) -> bool {
    let observed = node.observe().await;
    observed["actors"]["listener"]["connected"] == Value::Bool(false)
        || observed["actors"]["listener"]["connections"].as_u64() > Some(1)
}

/// What the product's role runs into when a table is written to while `fault` has a row: an error of this SQLSTATE.
async fn refuse_writes(world: &World, table: &str, sqlstate: &str) {
    world
        .sql
        .batch_execute(&format!(
            "CREATE TABLE fault (n integer); GRANT SELECT ON fault TO PUBLIC;
             CREATE FUNCTION fault() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
               IF EXISTS (SELECT 1 FROM public.fault) THEN
                 RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = '{sqlstate}';
               END IF;
               RETURN NEW;
             END $$;
             CREATE TRIGGER fault BEFORE INSERT ON {table} FOR EACH ROW EXECUTE FUNCTION fault()"
        ))
        .await
        .unwrap();
}

/// The disk is full (SQLSTATE 53100) while outcomes are to be written: they are kept and written when there is room;
/// no job fails, no hold is set, nothing is sent twice.
#[tokio::test(flavor = "multi_thread")]
async fn trap_disk_is_full_when_outcomes_are_written() {
    let world = World::new().await;
    let rail = FakeRail::start().await;
    refuse_writes(&world, "dispatch_job_outcome", "53100").await;
    world.sql.batch_execute("INSERT INTO fault VALUES (1)").await.unwrap();
    let node = world.node().await;
    for n in 0..6 {
        world.pay(&rail, &format!("group-{}", n % 3), &format!("key-{n}")).await;
    }
    // The first of each group is answered and waits for room.
    rail.await_answered(3, SOON).await;
    let before = seen(&node, "reaper", "rounds").await;
    eventually(SOON, "the reaper has looked twice", || async { seen(&node, "reaper", "rounds").await >= before + 2 })
        .await;
    assert_eq!((rail.receipts().len(), completed(&world.sql).await), (3, 0));
    world.sql.batch_execute("DELETE FROM fault").await.unwrap();
    let record = assert_once(&world, &rail, 6).await;
    assert_eq!((record.count("DISPATCHED"), world.one::<i64>("SELECT count(*) FROM group_hold").await), (6, 0));
    node.stop(SOON).await;
}

/// The disk is full when messages are to be begun: nothing is called, no attempt is spent, and all go when there is room.
#[tokio::test(flavor = "multi_thread")]
async fn trap_disk_is_full_when_messages_are_begun() {
    let world = World::new().await;
    let rail = FakeRail::start().await;
    refuse_writes(&world, "in_flight", "53100").await;
    world.sql.batch_execute("INSERT INTO fault VALUES (1)").await.unwrap();
    let node = world.node().await;
    for n in 0..6 {
        world.pay(&rail, &format!("group-{}", n % 3), &format!("key-{n}")).await;
    }
    let before = seen(&node, "poller", "looks").await;
    eventually(SOON, "the poller has looked twice", || async { seen(&node, "poller", "looks").await >= before + 2 })
        .await;
    assert_eq!(rail.exchanges().len(), 0);
    world.sql.batch_execute("DELETE FROM fault").await.unwrap();
    let record = assert_once(&world, &rail, 6).await;
    assert_eq!(record.count("DISPATCHED"), 6);
    assert_eq!(world.one::<i64>("SELECT max(attempt_no)::bigint FROM payment_outbox_attempts").await, 1);
    node.stop(SOON).await;
}

/// Statements take longer than they may (57014), since somebody holds a table: no job fails, and all go afterwards.
#[tokio::test(flavor = "multi_thread")]
async fn trap_statements_time_out() {
    let world = World::new().await;
    let rail = FakeRail::start().await;
    let config = StoreConfig {
        statement_timeout: Duration::from_millis(300),
        lock_timeout: Duration::from_secs(5),
        ..StoreConfig::at(world.db.url())
    };
    let node = world.node_on(Store::new(config).unwrap(), |_| {}).await;
    let holder = world.db.connect().await;
    for round in 1..=3 {
        holder.batch_execute("BEGIN; LOCK TABLE in_flight IN ACCESS EXCLUSIVE MODE").await.unwrap();
        for n in 0..4 {
            world.pay(&rail, &format!("group-{n}"), &format!("key-{round}-{n}")).await;
        }
        let failures = seen(&node, "reaper", "failures").await;
        eventually_some(SOON, "statements have timed out", || async {
            (seen(&node, "reaper", "failures").await > failures).then_some(())
        })
        .await;
        holder.batch_execute("COMMIT").await.unwrap();
        rail.await_answered(round * 4, SOON).await;
    }
    let record = assert_once(&world, &rail, 12).await;
    assert_eq!(record.count("DISPATCHED"), 12);
    node.stop(SOON).await;
}

/// What the database says that means *come again*, and what means *no*: the first is waited out, the second is not
/// tried for ever.
#[tokio::test]
async fn trap_errors_that_pass_are_told_from_refusals() {
    let world = World::new().await;
    let passing = ["25006", "25P03", "40001", "40P01", "53100", "53200", "53300", "55P03", "57014", "57P01", "58030"];
    let refusing = ["22003", "23505", "42501", "42P01", "P0001"];
    for (state, passes) in passing.map(|state| (state, true)).into_iter().chain(refusing.map(|state| (state, false))) {
        let raise = format!("DO $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '{state}'; END $$");
        let error = world.sql.batch_execute(&raise).await.unwrap_err();
        assert_eq!(StoreError::from(error).is_transient(), passes, "{state}");
    }
}
