//! The node is killed with -9: at random instants under load, and at each step of a message's life. Nothing is lost,
//! nothing is overtaken, and whatever the receiver gets twice is on record as in doubt or as an answer that was lost.

use std::collections::HashMap;
use std::time::Duration;

use railyard_store::failpoint;
use railyard_testkit::verify::Verdict;
use railyard_testkit::{FakeRail, NodeProcess, Receipt, eventually, seed, verify};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::task::JoinSet;
use tokio_postgres::Client;

use crate::fleet::{Fleet, LATER};
use crate::producer::Item;
use crate::record::{Record, misplaced};
use crate::world::{SECRET, SOON};

/// What the receiver and the database say after a run: nothing lost, strange, overtaken, doubled without a reason.
async fn judge(fleet: &Fleet, rail: &FakeRail, bodies: &HashMap<String, Vec<u8>>) -> Record {
    fleet.all_completed(bodies.len()).await;
    let sql = &fleet.world.sql;
    let receipts = rail.receipts();
    Verdict::of(&receipts, bodies, SECRET).assert_clean();
    let record = Record::read(sql).await;
    assert_eq!(record.unexplained(&receipts), verify::NONE);
    assert_eq!(record.contradictions(&rail.exchanges()), verify::NONE);
    assert_eq!(misplaced(sql).await, verify::NONE);
    let holds: i64 = fleet.world.one("SELECT count(*) FROM group_hold").await;
    assert_eq!(holds, 0, "nothing is held");
    record
}

/// Enqueues and remembers the bytes.
async fn enqueue(sql: &Client, item: Item, bodies: &mut HashMap<String, Vec<u8>>) {
    let body = item.bytes().to_vec();
    bodies.insert(item.by(sql).await.unwrap().to_string(), body);
}

const KILLS: usize = 30;
const KILLS_WITH_CALLS: usize = 20;
const MESSAGES: usize = 2000;
const GROUPS: usize = 200;

/// Thirty kills at random instants, at least twenty of them with calls in flight, under 2,000 messages in 200 groups of
/// which 5 % of the answers fail: lost 0, order violations 0, and each duplicate has its row.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn crash_thirty_kills_at_random_instants() {
    let seed = seed();
    let mut dice = StdRng::seed_from_u64(seed);
    let fleet = Fleet::new().await;
    // Answers take their time, so that calls are out when the process dies.
    let rail = FakeRail::start().await.fails_randomly(5, seed).takes(Duration::from_millis(40));
    let producer = fleet.world.db.connect().await;
    let mut bodies = HashMap::new();
    let node = fleet.node("killed");
    let (mut kills, mut with_calls) = (0, 0);
    // Chance may send a few more kills into moments without calls.
    while kills < KILLS || (with_calls < KILLS_WITH_CALLS && kills < 2 * KILLS) {
        // The last third comes while nodes die.
        let now = if kills == 0 { 2 * MESSAGES / 3 } else { bodies.len() + MESSAGES / 3 / KILLS };
        produce(&fleet, &producer, &rail, &mut bodies, now.min(MESSAGES)).await;
        node.start();
        let calls = until_a_random_instant(&mut dice, &rail, &node).await;
        node.kill9();
        kills += 1;
        with_calls += usize::from(calls > 0);
        println!("kill {kills}: {calls} calls in flight, {} requests so far", rail.receipts().len());
    }
    produce(&fleet, &producer, &rail, &mut bodies, MESSAGES).await;
    node.start();
    let record = judge(&fleet, &rail, &bodies).await;
    let receipts = rail.receipts();
    println!(
        "{kills} kills, {with_calls} with calls in flight; {} messages, {} requests, {} in doubt, {} failed answers, {} duplicates",
        bodies.len(),
        receipts.len(),
        record.count("ZOMBIE_REQUEUE"),
        record.count("RETRYABLE"),
        verify::resent_after_acceptance(&receipts).len(),
    );
    assert!(with_calls >= KILLS_WITH_CALLS, "only {with_calls} of {kills} kills met calls in flight");
}

/// Enqueues until there are so many.
async fn produce(fleet: &Fleet, sql: &Client, rail: &FakeRail, bodies: &mut HashMap<String, Vec<u8>>, messages: usize) {
    while bodies.len() < messages {
        let n = bodies.len();
        let item = fleet.payment(&rail.url(), &format!("group-{}", n % GROUPS), &format!("key-{n}"));
        enqueue(sql, item, bodies).await;
    }
}

/// Waits for a random instant of the node's life, mostly while it calls, sometimes while it starts or takes over.
/// Returns how many calls the receiver has open then.
async fn until_a_random_instant(dice: &mut StdRng, rail: &FakeRail, node: &NodeProcess) -> usize {
    let before = rail.exchanges().len();
    let instant = Duration::from_millis(dice.random_range(0..400));
    if dice.random_bool(0.15) {
        tokio::time::sleep(instant).await;
    } else {
        let more = dice.random_range(1..40);
        eventually(LATER, "the node calls", || async { rail.exchanges().len() >= before + more }).await;
        tokio::time::sleep(instant / 10).await;
    }
    assert!(node.is_running(), "it died by itself:\n{}", node.log());
    open_calls(rail)
}

fn open_calls(rail: &FakeRail) -> usize {
    rail.exchanges().iter().filter(|call| call.finished_at.is_none() && !call.client_aborted).count()
}

/// The process dies at each step of a message's life; the next start finishes everything.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn crash_at_each_step_of_a_messages_life() {
    let mut runs = JoinSet::new();
    for name in failpoint::NAMES {
        runs.spawn(die_at(name));
    }
    while let Some(run) = runs.join_next().await {
        if let Err(failed) = run {
            std::panic::resume_unwind(failed.into_panic());
        }
    }
}

async fn die_at(name: &'static str) {
    let fleet = Fleet::new().await;
    let rail = FakeRail::start().await;
    let mut bodies = HashMap::new();
    for n in 0..6 {
        let item = fleet.payment(&rail.url(), &format!("group-{}", n % 3), &format!("key-{n}"));
        enqueue(&fleet.world.sql, item, &mut bodies).await;
    }
    let node = fleet.node(name);
    node.set_failpoint(name);
    node.start();
    assert_eq!(node.await_exit(SOON).await, -9, "{name} kills");
    let before = rail.receipts();
    node.clear_failpoint();
    node.start();
    let record = judge(&fleet, &rail, &bodies).await;
    let sent_again = rail.receipts().len() - bodies.len();
    println!(
        "{name}: {} requests before, {sent_again} again, {} in doubt",
        before.len(),
        record.count("ZOMBIE_REQUEUE")
    );
    assert_eq!(fits(name, &before, sent_again, &record), Ok(()), "{name}");
}

/// What each step's death may cost.
fn fits(name: &str, before: &[Receipt], sent_again: usize, record: &Record) -> Result<(), String> {
    let doubts = record.count("ZOMBIE_REQUEUE");
    let fits = match name {
        // Nothing had been committed, so nothing is in doubt and nothing was called.
        "discovered" | "begin_before_sent" => before.is_empty() && sent_again == 0 && doubts == 0,
        // Intent stands, the call does not: in doubt, and sent once.
        "begin_after_commit" | "before_call" | "last_check" => before.is_empty() && sent_again == 0 && doubts > 0,
        // Sent and answered, and the outcome is not on record: sent again, with a reason.
        "after_call" | "settle_before_sent" => !before.is_empty() && sent_again > 0 && doubts >= sent_again,
        // The outcome is on record: what was settled is not sent again; others may have been out.
        "settle_after_commit" | "tidy_before_commit" => !before.is_empty() && sent_again <= doubts,
        _ => return Err("a step that this test does not know".to_owned()),
    };
    if fits { Ok(()) } else { Err(format!("{} before, {sent_again} again, {doubts} in doubt", before.len())) }
}
