//! The links between nodes: nodes find each other, see each other go, and are none the worse for strangers, for peers
//! that freeze, or without links at all.
//!
//! That everything works with the cluster port closed is what all other tests show: they run without `[cluster]`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use railyard_testkit::fake_rail::Authority;
use railyard_testkit::{FakeRail, Gate, NodeProcess, eventually};
use serde_json::{Value, json};

use crate::fleet::{Fleet, LATER};
use crate::hostile::{self, Visit};
use crate::linked::{COOKIE, LinkedFleet, NAME, linked_to, metric, reason, resident, said};
use crate::world::SOON;

/// Three nodes link over mutual TLS; one that dies is gone for the others at once, and back after a restart under its
/// name and address.
#[tokio::test(flavor = "multi_thread")]
async fn links_form_and_follow_deaths_and_restarts() {
    let fleet = LinkedFleet::new().await;
    let ((a, _), (b, _), (c, _)) = (fleet.node("a"), fleet.node("b"), fleet.node("c"));
    fleet.start([&a, &b, &c]).await;
    let killed = Instant::now();
    c.kill9();
    linked_to(&a, 1).await;
    linked_to(&b, 1).await;
    assert!(killed.elapsed() < Duration::from_secs(3), "a closed connection is seen at once");
    c.restart().await;
    for node in [&a, &b, &c] {
        linked_to(node, 2).await;
    }
    b.term();
    assert_eq!(b.await_exit(SOON).await, 0);
    linked_to(&a, 1).await;
    for node in [&a, &c] {
        assert!(node.log().contains("peer=\"b\""), "peers are named");
        for why in ["cookie", "certificate", "deadline", "frame", "full"] {
            assert!(reason(node, "railyard_link_refused_total", why).await < 0.5, "{why}");
        }
        assert_eq!(said(node, "panicked"), 0);
    }
    eventually(SOON, "the reason is counted", || async {
        reason(&a, "railyard_links_ended_total", "closed").await > 0.0
    })
    .await;
}

/// How long strangers are at it: a short form by default, a minute with `RAILYARD_HOSTILE_S=60`.
fn hostile_time() -> Duration {
    #[expect(clippy::disallowed_methods, reason = "a switch for tests, not configuration of Railyard")]
    let seconds = std::env::var("RAILYARD_HOSTILE_S").ok().map(|seconds| seconds.parse().expect("seconds"));
    Duration::from_secs(seconds.unwrap_or(8))
}

/// The most that memory may grow by: 32 MiB.
const GROWTH_MAX: u64 = 32 << 20;

/// Strangers of every kind at once: silent ones, babblers, wrong cookies, right cookies with frames that are too long or
/// with nothing behind them. The node goes on, linked and delivering, says each once and counts each. In the long form
/// each kind has its minute by itself as well.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn links_strangers_cost_little_and_are_counted() {
    let fleet = LinkedFleet::new().await;
    let ((a, door), (b, _)) = (fleet.plain("a"), fleet.plain("b"));
    fleet.start([&a, &b]).await;
    let rail = FakeRail::start().await;
    let mut work = Work { fleet: &fleet.fleet, rail: &rail, node: &a, delivered: 0 };
    let end = Instant::now() + hostile_time();
    let came = work.meanwhile("all at once", hostile::visit(&Visit::ALL, door, COOKIE, end)).await;
    assert!(came > 100, "{came} strangers");
    linked_to(&a, 1).await;
    let full = reason(&a, "railyard_link_refused_total", "full").await;
    assert!(full >= 2.0, "{full} were too many");
    if minutes() > 1 {
        for kind in Visit::ALL {
            let end = Instant::now() + hostile_time();
            work.meanwhile(&format!("{kind:?}"), hostile::visit(&[kind], door, COOKIE, end)).await;
            linked_to(&a, 1).await;
        }
    }
    // How often each reason was the one.
    let turns = |words: &str| {
        let kinds = Visit::ALL.into_iter().filter(|kind| kind.counted().2 == words).count();
        if minutes() > 1 { (1 + kinds) * (1 + minutes()) } else { 1 + minutes() }
    };
    for kind in Visit::ALL {
        let (name, why, words) = kind.counted();
        let counted = reason(&a, name, why).await;
        let lines = said(&a, words);
        println!("{kind:?}: {counted} of {name} {why}, said {lines} times");
        assert!(counted >= 2.0, "{kind:?}: {counted}");
        assert!((1..=turns(words)).contains(&lines), "{words} was said {lines} times");
    }
    assert_eq!(said(&a, COOKIE) + said(&a, "panicked"), 0);
    // The places of those who never spoke are free again.
    let (c, _) = fleet.plain("c");
    fleet.start_more([&c], 2).await;
    linked_to(&a, 2).await;
}

/// Clients with certificates of another authority, as fast as they can, beside some that never begin with TLS.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn links_forged_certificates_cost_little_and_are_counted() {
    let fleet = LinkedFleet::new().await;
    let ((a, door), (b, _)) = (fleet.node("a"), fleet.node("b"));
    fleet.start([&a, &b]).await;
    let rail = FakeRail::start().await;
    let mut work = Work { fleet: &fleet.fleet, rail: &rail, node: &a, delivered: 0 };
    let client = Authority::new().client(NAME, fleet.authority());
    let end = Instant::now() + hostile_time() / 2;
    let both = async {
        let (forging, silent) =
            (hostile::forge(&client, door, end), hostile::visit(&[Visit::Silent], door, COOKIE, end));
        tokio::join!(forging, silent).0
    };
    let came = work.meanwhile("WrongCertificate", both).await;
    assert!(came > 20, "{came} forgers");
    assert!(reason(&a, "railyard_link_refused_total", "deadline").await >= 2.0, "who never begins is closed");
    let counted = reason(&a, "railyard_link_refused_total", "certificate").await;
    let lines = said(&a, "reason=\"certificate\"");
    println!("WrongCertificate: {counted} counted, said {lines} times");
    assert!(counted >= 20.0, "{counted} of {came}");
    assert!((1..=1 + minutes()).contains(&lines), "said {lines} times");
    linked_to(&a, 1).await;
}

/// What a node goes on doing.
struct Work<'a> {
    fleet: &'a Fleet,
    rail: &'a FakeRail,
    node: &'a NodeProcess,
    delivered: usize,
}

impl Work<'_> {
    /// Messages are delivered, one after the other, for as long as the strangers are at it; the node's memory grows by
    /// less than 32 MiB meanwhile. Returns how many strangers came.
    async fn meanwhile(&mut self, kind: &str, strangers: impl Future<Output = usize>) -> usize {
        let before = resident(self.node);
        let (mut most, first) = (before, self.delivered);
        let over = AtomicBool::new(false);
        let working = async {
            while !over.load(Ordering::SeqCst) {
                let n = self.delivered;
                self.fleet
                    .payment(&self.rail.url(), &format!("g-{}", n % 7), &format!("key-{n}"))
                    .by(&self.fleet.world.sql)
                    .await
                    .unwrap();
                self.delivered += 1;
                self.rail.await_answered(self.delivered, SOON).await;
                most = most.max(resident(self.node));
            }
        };
        let strangers = async {
            let came = strangers.await;
            over.store(true, Ordering::SeqCst);
            came
        };
        let (came, ()) = tokio::join!(strangers, working);
        let delivered = self.delivered - first;
        println!(
            "{kind}: {came} strangers, {delivered} delivered; resident {} KiB, then {} KiB at most",
            before >> 10,
            most >> 10
        );
        assert!(most < before + GROWTH_MAX, "{kind}: grew from {before} to {most}");
        assert!(delivered > 10, "{kind}: {delivered} delivered");
        came
    }
}

fn minutes() -> usize {
    usize::try_from(hostile_time().as_secs() / 60).unwrap() + 1
}

/// A node without the cookie, one with a certificate of another authority, and one with another's name in it: none is
/// let in, each works all the same, since the database lets it.
#[tokio::test(flavor = "multi_thread")]
async fn links_are_refused_without_cookie_authority_or_name() {
    let fleet = LinkedFleet::new().await;
    let ((a, _), (b, _)) = (fleet.node("a"), fleet.node("b"));
    fleet.start([&a, &b]).await;
    let (thief, _) = fleet.node("thief");
    thief.set_env("CLUSTER_COOKIE", "another cookie, as long as the other one");
    let (forger, _) = fleet.node("forger");
    fleet.certify(&forger, "forger", &Authority::new(), "railyard");
    let (other, _) = fleet.node("other");
    fleet.certify(&other, "other", fleet.authority(), "somebody-else");
    for node in [&thief, &forger, &other] {
        node.start();
        node.await_ready().await;
    }
    for node in [&a, &b] {
        for (why, least) in [("cookie", 2.0), ("certificate", 4.0)] {
            eventually(SOON, &format!("{why} refused again and again"), || async {
                reason(node, "railyard_link_refused_total", why).await >= least
            })
            .await;
            assert_eq!(said(node, &format!("reason=\"{why}\"")), 1, "said once");
        }
        linked_to(node, 1).await;
    }
    for node in [&thief, &forger, &other] {
        linked_to(node, 0).await;
        assert!(metric(node, "railyard_link_dial_failures_total").await >= 2.0);
        assert_eq!(said(node, COOKIE), 0);
    }
    let sql = "SELECT count(DISTINCT owner) FROM partition_lease";
    eventually(LATER, "all five share the partitions", || async { fleet.fleet.world.one::<i64>(sql).await == 5 }).await;
}

/// A frozen peer: the link is ended after three heartbeats and costs nothing, and is there again when the peer goes on.
#[tokio::test(flavor = "multi_thread")]
async fn links_to_a_frozen_peer_end_and_come_back() {
    let fleet = LinkedFleet::new().await;
    let ((a, _), (b, _), (c, _)) = (fleet.node("a"), fleet.node("b"), fleet.node("c"));
    // In this order: the younger one dials.
    fleet.start([&a]).await;
    fleet.start_more([&b], 1).await;
    fleet.start_more([&c], 2).await;
    let before = resident(&b);
    // One that b dials, and one that dials b.
    for frozen in [&a, &c] {
        frozen.stop();
        let stopped = Instant::now();
        linked_to(&b, 1).await;
        let ended = stopped.elapsed();
        println!("the link to a frozen peer ended after {ended:?}");
        assert!(ended < Duration::from_secs(8), "{ended:?}");
        let end = Instant::now() + hostile_time() / 2;
        while Instant::now() < end {
            // Each of them would be told to the peer.
            b.http().post("/admin/rails/webhook/pause", &json!({ "reason": "to make noise" })).await.unwrap();
            b.http().post("/admin/rails/webhook/resume", &json!({ "reason": "to make noise" })).await.unwrap();
        }
        frozen.cont();
        linked_to(&b, 2).await;
    }
    let grown = resident(&b).saturating_sub(before);
    println!("resident grew by {} KiB", grown >> 10);
    assert!(grown < GROWTH_MAX, "grew by {grown}");
    assert!(reason(&b, "railyard_links_ended_total", "silent").await >= 2.0);
    assert!(metric(&b, "railyard_link_heartbeats_missed_total").await >= 6.0);
    assert!((1..=1 + minutes()).contains(&said(&b, "a link was ended")));
}

/// From any node, the cluster as all of them see it; who does not answer is named, in time.
#[tokio::test(flavor = "multi_thread")]
async fn links_show_all_nodes_from_any_of_them_and_say_what_is_missing() {
    let fleet = LinkedFleet::new().await;
    let ((a, _), (b, door), (c, _)) = (fleet.node("a"), fleet.node("b"), fleet.node("c"));
    fleet.start([&a, &b, &c]).await;
    let shown = cluster(&a).await;
    assert_eq!((shown["links"].as_bool(), shown["gaps"].as_array().map(Vec::len)), (Some(true), Some(0)), "{shown}");
    let names = |shown: &Value| -> Vec<String> {
        shown["nodes"].as_array().unwrap().iter().map(|node| node["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&shown), ["a", "b", "c"]);
    for (n, others) in [["b", "c"], ["a", "c"], ["a", "b"]].into_iter().enumerate() {
        let node = &shown["nodes"][n];
        let mut linked: Vec<_> =
            node["linkedTo"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
        linked.sort_unstable();
        assert_eq!(linked, others, "{node}");
        assert!(node["leaseMs"].as_i64().unwrap() > 0);
    }
    assert_eq!(
        (shown["nodes"][0]["seen"].as_str(), shown["nodes"][1]["seen"].as_str()),
        (Some("itself"), Some("linked"))
    );
    assert_eq!(shown["nodes"][1]["address"].as_str(), Some(door.to_string().as_str()));
    eventually(SOON, "the partitions are all owned", || async {
        let shown = cluster(&c).await;
        let owned: i64 =
            shown["nodes"].as_array().unwrap().iter().map(|node| node["partitions"].as_i64().unwrap()).sum();
        owned == 256 && shown["free"] == 0
    })
    .await;

    let nodes = b.http().get("/admin/nodes").await.unwrap().expect_status(200).json();
    for node in nodes["nodes"].as_array().unwrap() {
        assert_eq!(node["live"]["node"]["name"], node["name"], "each speaks for itself");
    }

    let table = fleet.fleet.sandbox.run_at(&a, &["cluster", "status"], "").await.ok();
    assert!(["a ", "b ", "c ", "linked"].iter().all(|word| table.contains(word)), "{table}");

    b.stop();
    let asked = Instant::now();
    // Both at once: soon its lease will have lapsed, and it will be no member any more.
    let by_command = fleet.fleet.sandbox.run_at(&a, &["cluster", "status"], "");
    let (shown, table) = tokio::join!(cluster(&a), by_command);
    assert!(asked.elapsed() < Duration::from_secs(5), "{:?}", asked.elapsed());
    assert_eq!(shown["gaps"], json!(["node b did not answer"]));
    assert!(shown["nodes"][1]["linkedTo"].is_null());
    let table = table.ok();
    assert!(table.contains("node b did not answer"), "{table}");
    linked_to(&a, 1).await;
    eventually(SOON, "it is no member any more", || async { names(&cluster(&a).await) == ["a", "c"] }).await;
    assert_eq!(cluster(&a).await["gaps"], json!([]));
    b.cont();
}

async fn cluster(node: &NodeProcess) -> Value {
    node.http().get("/admin/cluster").await.unwrap().expect_status(200).json()
}

/// A group's standing in memory is asked of the node that has it, from any other.
#[tokio::test(flavor = "multi_thread")]
async fn links_show_where_a_group_is_being_worked_on() {
    let fleet = LinkedFleet::new().await;
    let ((a, _), (b, _)) = (fleet.node("a"), fleet.node("b"));
    fleet.start([&a, &b]).await;
    let gate = Gate::closed();
    let rail = FakeRail::start().await.otherwise().hold_until(&gate);
    fleet.fleet.payment(&rail.url(), "a-group", "key").timeout_ms(20_000).by(&fleet.fleet.world.sql).await.unwrap();
    rail.await_receipts(1, SOON).await;
    for node in [&a, &b] {
        let group = node.http().get("/admin/groups/a-group").await.unwrap().expect_status(200).json();
        assert_eq!(group["live"][0]["state"], "working", "{group}");
        assert_eq!(group["live"].as_array().unwrap().len(), 1);
        assert_eq!(group["gaps"], json!([]));
        let all = node.http().get("/admin/groups?view=all").await.unwrap().expect_status(200).json();
        assert_eq!(all["items"][0]["live"][0]["state"], "working", "{all}");
    }
    gate.open();
}

/// A node that takes no links is whole by itself: nothing is missing.
#[tokio::test(flavor = "multi_thread")]
async fn links_are_not_missed_where_none_are_taken() {
    let api = crate::api::Api::new().await;
    let shown = api.http().get("/admin/cluster").await.unwrap().expect_status(200).json();
    assert_eq!((&shown["links"], &shown["gaps"]), (&json!(false), &json!([])), "{shown}");
    assert_eq!((&shown["nodes"][0]["seen"], &shown["nodes"][0]["linkedTo"]), (&json!("itself"), &json!([])), "{shown}");
}
