//! The fault matrix: three nodes under load with failing answers, and one kind of fault after the other, each by several
//! seeds. Judged by the receiver's log: nothing lost, nothing overtaken, never two of a group at once, and each
//! duplicate on record as in doubt. Nodes are linked; `cluster.rs` plays without links.
//!
//! By default each fault is played with one seed and few messages. `RAILYARD_MATRIX=3` plays the long form: so many seeds,
//! more messages, a minute of churn; `RAILYARD_MATRIX_LINKS=cut` plays either with every cluster port closed from the
//! start. `tests/README.md` has their last figures.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use railyard_testkit::verify::{self, Verdict};
use railyard_testkit::{Cut, FakeRail, FaultProxy, Mode, NodeProcess, eventually, free_port, seed};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::clock::faketime;
use crate::fleet::{Fleet, LATER};
use crate::linked::linked_to;
use crate::record::{Record, misplaced};
use crate::world::{SECRET, SOON};

const GROUPS: usize = 48;
const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];
/// The sandbox's lease and something: whoever was silent for so long has been given up.
const PAST_THE_LEASE: Duration = Duration::from_millis(4500);

/// Between two messages: what the nodes deliver easily, so that a fault meets fresh work and no backlog.
const PACE: Duration = Duration::from_millis(8);

/// How much is played.
struct Form {
    seeds: u64,
    messages: usize,
    rounds: usize,
    churn: Duration,
    /// Whether nodes can reach each other's cluster ports; without it, no link is ever there.
    linked: bool,
}

impl Form {
    fn get() -> Self {
        #[expect(clippy::disallowed_methods, reason = "switches for tests, not configuration of Railyard")]
        let switch = |name: &str| std::env::var(name).ok();
        let linked = switch("RAILYARD_MATRIX_LINKS").is_none_or(|links| links != "cut");
        match switch("RAILYARD_MATRIX").map(|seeds| seeds.parse().expect("a number of seeds")) {
            Some(seeds) => Self { seeds, messages: 1500, rounds: 4, churn: Duration::from_secs(60), linked },
            None => Self { seeds: 1, messages: 300, rounds: 1, churn: Duration::from_secs(8), linked },
        }
    }
}

/// Five nodes, of which three run at the start, each with its own way to the database.
struct Run {
    fleet: Fleet,
    nodes: Vec<NodeProcess>,
    ways: Vec<FaultProxy>,
    /// The way to each node's cluster port.
    doors: Vec<FaultProxy>,
    rail: FakeRail,
    dice: StdRng,
    linked: bool,
}

impl Run {
    async fn start(seed: u64, linked: bool) -> Self {
        let fleet = Fleet::linked().await;
        let upstream = address_in(fleet.world.db.url());
        let (mut nodes, mut ways, mut doors) = (Vec::new(), Vec::new(), Vec::new());
        for name in NAMES {
            let way = FaultProxy::postgres(upstream).await;
            let node = fleet.node(name);
            node.set_env("RAILYARD_DATABASE__URL", &way.url(fleet.world.db.url()));
            let listen = SocketAddr::from(([127, 0, 0, 1], free_port()));
            let door = FaultProxy::tcp(listen).await;
            node.set_env("RAILYARD_CLUSTER__LISTEN", &format!("\"{listen}\""));
            node.set_env("RAILYARD_CLUSTER__ADVERTISE", &format!("\"{}\"", door.address()));
            nodes.push(node);
            ways.push(way);
            doors.push(door);
        }
        let rail = FakeRail::start().await.fails_randomly(8, seed).takes(Duration::from_millis(15));
        let run = Self { fleet, nodes, ways, doors, rail, dice: StdRng::seed_from_u64(seed), linked };
        if !linked {
            run.cut_links();
        }
        for node in &run.nodes[..3] {
            node.start();
        }
        for node in &run.nodes[..3] {
            node.await_ready().await;
        }
        run.shared(3).await;
        run.first_three_linked().await;
        run
    }

    /// Waits until they are; without links, sees that they are not.
    async fn first_three_linked(&self) {
        for node in &self.nodes[..3] {
            linked_to(node, if self.linked { 2 } else { 0 }).await;
        }
    }

    /// No link passes anything.
    fn silence_links(&self) {
        for door in &self.doors {
            door.set(Mode::BlackHole);
        }
    }

    /// No link stands, and none can be opened.
    fn cut_links(&self) {
        for door in &self.doors {
            door.set(Mode::Refuse);
            door.cut(Cut::Reset);
        }
    }

    /// Links are there again, if there are to be any.
    async fn mend_links(&self) {
        for door in &self.doors {
            door.set(if self.linked { Mode::Pass } else { Mode::Refuse });
        }
        self.first_three_linked().await;
    }

    /// One of the first three.
    fn victim(&mut self) -> usize {
        self.dice.random_range(0..3)
    }

    /// Waits for a moment with calls, and a little more.
    async fn amid_calls(&mut self) {
        let before = self.rail.exchanges().len();
        let rail = &self.rail;
        eventually(LATER, "the nodes call", || async { rail.exchanges().len() > before + 20 }).await;
        tokio::time::sleep(Duration::from_millis(self.dice.random_range(0..40))).await;
    }

    /// Waits until so many nodes own everything among themselves.
    async fn shared(&self, nodes: i64) {
        let sql = "SELECT count(DISTINCT owner), count(*) FILTER (WHERE owner IS NULL) FROM partition_lease";
        eventually(LATER, "the nodes share the partitions", || async {
            let row = self.fleet.world.sql.query_one(sql, &[]).await.unwrap();
            (row.get::<_, i64>(0), row.get::<_, i64>(1)) == (nodes, 0)
        })
        .await;
    }
}

/// Host and port of a database's URL.
pub(crate) fn address_in(url: &str) -> SocketAddr {
    let rest = url.split_once('@').unwrap().1;
    rest.split('/').next().unwrap().parse().unwrap()
}

/// Messages are enqueued as long as the fault goes on, and a good number in any case; then everything is delivered, and
/// judged.
async fn play<F>(name: &str, fault: F)
where
    F: AsyncFn(&mut Run, &Form),
{
    let form = Form::get();
    let first = seed();
    for seed in first..first + form.seeds {
        let began = Instant::now();
        let mut run = Run::start(seed, form.linked).await;
        let producer = run.fleet.world.db.connect().await;
        let url = run.rail.url();
        let over = AtomicBool::new(false);
        let mut bodies = HashMap::new();
        let item = |n: usize, fleet: &Fleet| fleet.payment(&url, &format!("group-{}", n % GROUPS), &format!("key-{n}"));
        let items: Vec<_> = (0..form.messages * 40).map(|n| item(n, &run.fleet)).collect();
        let feeding = async {
            for item in items {
                if bodies.len() >= form.messages && over.load(Ordering::SeqCst) {
                    break;
                }
                let body = item.bytes().to_vec();
                bodies.insert(item.by(&producer).await.unwrap().to_string(), body);
                tokio::time::sleep(PACE).await;
            }
        };
        let faulting = async {
            for _ in 0..form.rounds {
                fault(&mut run, &form).await;
            }
            over.store(true, Ordering::SeqCst);
        };
        tokio::join!(feeding, faulting);
        run.fleet.all_completed(bodies.len()).await;
        let receipts = run.rail.receipts();
        Verdict::of(&receipts, &bodies, SECRET).assert_clean();
        let record = Record::read(&run.fleet.world.sql).await;
        assert_eq!(record.unexplained(&receipts), verify::NONE);
        assert_eq!(record.contradictions(&run.rail.exchanges()), verify::NONE);
        assert_eq!(misplaced(&run.fleet.world.sql).await, verify::NONE);
        println!(
            "{name}, seed {seed}{}: {} messages, {} requests, {} in doubt, {} duplicates, {:.0} s",
            if form.linked { "" } else { ", links cut" },
            bodies.len(),
            receipts.len(),
            record.count("ZOMBIE_REQUEUE"),
            verify::resent_after_acceptance(&receipts).len(),
            began.elapsed().as_secs_f64()
        );
    }
}

/// kill -9, and back again under the same name and address.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn matrix_kill_and_restart_under_the_same_name() {
    play("kill -9, same name", async |run, _| {
        let victim = run.victim();
        run.amid_calls().await;
        run.nodes[victim].kill9();
        run.amid_calls().await;
        run.nodes[victim].start();
        run.nodes[victim].await_ready().await;
        run.amid_calls().await;
    })
    .await;
}

/// kill -9 for good, and another one comes.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn matrix_kill_and_another_comes() {
    play("kill -9, another name", async |run, _| {
        run.amid_calls().await;
        run.nodes[0].kill9();
        run.amid_calls().await;
        run.nodes[3].start();
        run.nodes[3].await_ready().await;
        eventually(LATER, "the dead one is no member any more", || async {
            run.fleet.world.one::<i64>("SELECT count(*) FROM node WHERE name = 'a'").await == 0
        })
        .await;
        run.shared(3).await;
        run.nodes[0].start();
        run.nodes[3].term();
        assert_eq!(run.nodes[3].await_exit(SOON).await, 0);
    })
    .await;
}

/// SIGTERM and a new start, one node after the other: a rolling restart. Nobody dies, so nothing is in doubt.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn matrix_rolling_restart() {
    play("rolling restart", async |run, _| {
        for node in &run.nodes[..3] {
            node.term();
            assert_eq!(node.await_exit(SOON).await, 0);
            node.start();
            node.await_ready().await;
        }
        let doubts: i64 =
            run.fleet.world.one("SELECT count(*) FROM payment_outbox_attempts WHERE state = 'ZOMBIE_REQUEUE'").await;
        assert_eq!(doubts, 0, "a node that was asked to stop leaves no doubt");
    })
    .await;
}

/// SIGSTOP past the lease, then SIGCONT.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn matrix_freeze_past_the_lease() {
    play("SIGSTOP past the lease", async |run, _| {
        let victim = run.victim();
        run.amid_calls().await;
        run.nodes[victim].stop();
        tokio::time::sleep(PAST_THE_LEASE).await;
        run.nodes[victim].cont();
        run.amid_calls().await;
    })
    .await;
}

/// One node cut from the database past its lease: half-open first, then refused, then back.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn matrix_cut_from_the_database() {
    play("cut from the database", async |run, _| {
        let victim = run.victim();
        run.amid_calls().await;
        run.ways[victim].set(Mode::BlackHole);
        tokio::time::sleep(PAST_THE_LEASE).await;
        run.ways[victim].set(Mode::Refuse);
        run.ways[victim].cut(Cut::Reset);
        run.amid_calls().await;
        run.ways[victim].set(Mode::Pass);
        run.nodes[victim].await_ready().await;
    })
    .await;
}

/// Nodes cut from each other and not from the database: half-open first, then refused, with a death meanwhile, then back.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn matrix_cut_from_peers() {
    play("cut from peers", async |run, _| {
        let victim = run.victim();
        run.amid_calls().await;
        run.silence_links();
        run.amid_calls().await;
        run.nodes[victim].kill9();
        run.amid_calls().await;
        run.cut_links();
        run.nodes[victim].start();
        run.nodes[victim].await_ready().await;
        run.amid_calls().await;
        run.mend_links().await;
        run.amid_calls().await;
    })
    .await;
}

/// One node cut from the database past its lease while all are cut from each other.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn matrix_cut_from_both() {
    play("cut from both", async |run, _| {
        let victim = run.victim();
        run.amid_calls().await;
        run.cut_links();
        run.ways[victim].set(Mode::BlackHole);
        tokio::time::sleep(PAST_THE_LEASE).await;
        run.ways[victim].set(Mode::Pass);
        run.ways[victim].cut(Cut::Reset);
        run.amid_calls().await;
        run.nodes[victim].await_ready().await;
        run.mend_links().await;
    })
    .await;
}

/// Wall clocks two hours ahead and behind, while a third node is killed.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn matrix_wall_clocks_two_hours_off() {
    let Some(library) = faketime() else {
        println!("skipped: no libfaketime");
        return;
    };
    play("wall clock ± 2 h", async |run, _| {
        for (node, by) in [(1, "+7200"), (2, "-7200")] {
            let node = &run.nodes[node];
            node.term();
            assert_eq!(node.await_exit(SOON).await, 0);
            node.set_env("LD_PRELOAD", &library.to_string_lossy());
            node.set_env("FAKETIME", by);
            node.set_env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
            node.start();
            node.await_ready().await;
        }
        run.amid_calls().await;
        run.nodes[0].kill9();
        run.amid_calls().await;
        run.nodes[0].start();
        run.nodes[0].await_ready().await;
    })
    .await;
}

/// 3 → 1 → 5 → 3 nodes, half of those that go by SIGTERM, half by SIGKILL.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn matrix_three_one_five_three() {
    play("3 → 1 → 5 → 3 nodes", async |run, _| {
        for (wanted, count) in [(1, 1), (5, 5), (3, 3)] {
            for n in 0..NAMES.len() {
                match (n < wanted, run.nodes[n].is_running()) {
                    (true, false) => run.nodes[n].start(),
                    (false, true) if run.dice.random_bool(0.5) => run.nodes[n].kill9(),
                    (false, true) => {
                        run.nodes[n].term();
                        assert_eq!(run.nodes[n].await_exit(SOON).await, 0);
                    }
                    (true, true) | (false, false) => {}
                }
            }
            run.shared(count).await;
            run.amid_calls().await;
        }
    })
    .await;
}

/// A node is added or removed every two seconds.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn matrix_churn() {
    play("a node every 2 s", async |run, form| {
        let end = Instant::now() + form.churn / u32::try_from(form.rounds).unwrap();
        while Instant::now() < end {
            let n = run.dice.random_range(1..NAMES.len());
            let node = &run.nodes[n];
            match (node.is_running(), run.dice.random_bool(0.5)) {
                (false, _) => node.start(),
                (true, true) => node.kill9(),
                (true, false) => {
                    node.term();
                    assert_eq!(node.await_exit(SOON).await, 0);
                }
            }
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
    })
    .await;
}
