//! A rolling restart: three nodes under load are asked to end and started again under their names, one after the other.
//! Nobody outside notices: order holds, no delivery fails, and no group stands still for longer than two seconds.
//!
//! Every group has work waiting all the time and every call is answered with 200 after a moment, so whatever time passes
//! between two calls of a group is the nodes' own. Judged by the receiver's log.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use railyard_testkit::verify::Verdict;
use railyard_testkit::{FakeRail, NodeProcess, Receipt, eventually, free_port, verify};
use tokio_postgres::Client;

use crate::fleet::{Fleet, LATER};
use crate::linked::linked_to;
use crate::record::{Record, misplaced};
use crate::world::{SECRET, SOON};

const GROUPS: usize = 20;
/// Between request and answer: the receiver's own time.
const TAKES: Duration = Duration::from_millis(80);
/// Messages that wait in each group after each look: more than it can be rid of until the next.
const WAITING: usize = 30;
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// No group stands still for longer.
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// What was enqueued, and when it was there for the nodes to find.
#[derive(Default)]
struct Fed {
    bodies: HashMap<String, Vec<u8>>,
    committed: HashMap<String, Instant>,
    by_group: BTreeMap<String, usize>,
}

impl Fed {
    /// Fills up each group, all in one transaction.
    async fn fill_up(&mut self, fleet: &Fleet, producer: &mut Client, rail: &FakeRail) {
        let mut came: HashMap<String, usize> = HashMap::new();
        for receipt in rail.receipts() {
            *came.entry(receipt.group().unwrap().to_owned()).or_default() += 1;
        }
        let mut items = Vec::new();
        for n in 0..GROUPS {
            let group = format!("group-{n}");
            let fed = self.by_group.entry(group.clone()).or_default();
            let left = *fed - came.get(&group).copied().unwrap_or(0);
            for _ in left..WAITING {
                // A call that takes long has not failed.
                items.push(fleet.payment(&rail.url(), &group, &format!("{group}-{fed}")).timeout_ms(20_000));
                *fed += 1;
            }
        }
        let transaction = producer.transaction().await.unwrap();
        let ids = futures_util::future::try_join_all(items.iter().map(|item| item.by(&transaction))).await.unwrap();
        transaction.commit().await.unwrap();
        for (id, item) in ids.into_iter().zip(&items) {
            self.committed.insert(id.to_string(), Instant::now());
            self.bodies.insert(id.to_string(), item.bytes().to_vec());
        }
    }
}

/// How long the nodes left each group alone between two calls although a message waited: for each pair of calls, the
/// time from the answer to the first one (or from the commit of what comes next, if that was later) to the next.
fn pauses(exchanges: &[Receipt], fed: &Fed) -> Vec<(Duration, String)> {
    let mut by_group: BTreeMap<&str, Vec<&Receipt>> = BTreeMap::new();
    for exchange in exchanges {
        by_group.entry(exchange.group().unwrap()).or_default().push(exchange);
    }
    let mut pauses = Vec::new();
    for calls in by_group.values() {
        for pair in calls.windows(2) {
            let free = pair[0].finished_at.unwrap().max(fed.committed[&pair[1].message_key()]);
            pauses.push((pair[1].first_byte_at.saturating_duration_since(free), pair[1].line()));
        }
    }
    pauses.sort();
    pauses
}

/// Whether the next node goes as soon as the one before is ready, or once that one has its share again.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    WhenReady,
    WhenShared,
}

async fn restart(fleet: &Fleet, nodes: &[NodeProcess], next: Next) {
    for (n, node) in nodes.iter().enumerate() {
        let asked = Instant::now();
        node.term();
        assert_eq!(node.await_exit(SOON).await, 0);
        let ended = asked.elapsed();
        node.start();
        node.await_ready().await;
        let ready = asked.elapsed();
        if next == Next::WhenShared {
            shared(fleet, nodes.len()).await;
        }
        println!("node {n}: ended after {ended:.0?}, ready after {ready:.0?}, next after {:.0?}", asked.elapsed());
    }
}

/// Waits until so many nodes own everything among themselves.
async fn shared(fleet: &Fleet, nodes: usize) {
    let wanted = (i64::try_from(nodes).unwrap(), 0);
    let sql = "SELECT count(DISTINCT owner), count(*) FILTER (WHERE owner IS NULL) FROM partition_lease";
    eventually(LATER, "the nodes share the partitions", || async {
        let row = fleet.world.sql.query_one(sql, &[]).await.unwrap();
        (row.get::<_, i64>(0), row.get::<_, i64>(1)) == wanted
    })
    .await;
}

async fn play(fleet: &Fleet, nodes: &[NodeProcess], next: Next) {
    let rail = FakeRail::start().await.takes(TAKES);
    let mut producer = fleet.world.db.connect().await;
    let mut fed = Fed::default();
    shared(fleet, nodes.len()).await;
    let over = AtomicBool::new(false);
    let feeding = async {
        while !over.load(Ordering::SeqCst) {
            fed.fill_up(fleet, &mut producer, &rail).await;
            tokio::time::sleep(LOOK_EVERY).await;
        }
    };
    let restarting = async {
        rail.await_answered(GROUPS * 3, LATER).await;
        restart(fleet, nodes, next).await;
        let before = rail.receipts().len();
        rail.await_answered(before + GROUPS * 3, LATER).await;
        over.store(true, Ordering::SeqCst);
    };
    tokio::join!(feeding, restarting);
    fleet.all_completed(fed.bodies.len()).await;

    let receipts = rail.receipts();
    Verdict::of(&receipts, &fed.bodies, SECRET).assert_clean();
    let record = Record::read(&fleet.world.sql).await;
    assert_eq!(record.contradictions(&rail.exchanges()), verify::NONE);
    assert_eq!(misplaced(&fleet.world.sql).await, verify::NONE);
    let pauses = pauses(&rail.exchanges(), &fed);
    let at = |percent: usize| pauses[(pauses.len() - 1) * percent / 100].0;
    let (worst, whose) = pauses.last().unwrap();
    println!(
        "{} messages; pauses of groups: half {:.1?}, 99 of 100 {:.0?}, longest {worst:.0?} before {whose}",
        fed.bodies.len(),
        at(50),
        at(99),
    );
    assert_eq!((receipts.len(), record.count("DISPATCHED")), (fed.bodies.len(), fed.bodies.len()), "one call each");
    assert_eq!(record.besides("DISPATCHED"), verify::NONE);
    assert!(*worst <= PAUSE_MAX, "a group stood still for {worst:?} before {whose}");
}

async fn three(fleet: &Fleet, change: impl Fn(&NodeProcess)) -> Vec<NodeProcess> {
    let nodes: Vec<NodeProcess> = ["a", "b", "c"].iter().map(|name| fleet.node(name)).collect();
    for node in &nodes {
        // As many places as there are groups: none of them waits for another.
        node.set_env("RAILYARD_HTTP__ENDPOINT_CONCURRENCY", &GROUPS.to_string());
        change(node);
        node.start();
    }
    for node in &nodes {
        node.await_ready().await;
    }
    nodes
}

/// As Kubernetes does it: linked nodes, and the next one goes when the one before has its share of the work again.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn cluster_a_rolling_restart_is_not_noticed() {
    let fleet = Fleet::linked().await;
    let nodes = three(&fleet, |node| {
        let listen = SocketAddr::from(([127, 0, 0, 1], free_port()));
        node.set_env("RAILYARD_CLUSTER__LISTEN", &format!("\"{listen}\""));
    })
    .await;
    for node in &nodes {
        linked_to(node, 2).await;
    }
    play(&fleet, &nodes, Next::WhenShared).await;
}

/// As somebody in a hurry does it: no links, and the next one goes while the one before has just joined.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn cluster_a_hasty_rolling_restart_without_links_is_not_noticed() {
    let fleet = Fleet::new().await;
    let nodes = three(&fleet, |_| {}).await;
    play(&fleet, &nodes, Next::WhenReady).await;
}
