//! What an operator decides at any node holds on all of them within a second, outlives restarts, and is on record.
//! Nodes have no links: the database alone carries it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use railyard_testkit::{FakeRail, NodeProcess, Receipt, eventually, eventually_some};
use serde_json::{Value, json};

use crate::cluster::{group_of, shared_by, three};
use crate::fleet::{Fleet, LATER};
use crate::producer::Item;
use crate::world::SOON;

/// Within this a decision is in effect on all nodes; what the machine needs for a message at that time comes on top.
const PROMISED: Duration = Duration::from_secs(1);
/// Longer than a group waits between two calls.
const CEASED: Duration = Duration::from_millis(600);
const REASON: &str = "four eyes, ticket 17";

/// Three nodes: `a` owns the group, `b` and `c` are asked.
struct Stage {
    /// First: they end before their database goes.
    nodes: [NodeProcess; 3],
    fleet: Fleet,
    rail: FakeRail,
    group: String,
    controls: AtomicUsize,
}

impl Stage {
    async fn new(rail: FakeRail) -> Self {
        let fleet = Fleet::new().await;
        let nodes = three(&fleet).await;
        let group = group_of(&fleet, "a").await;
        Self { nodes, fleet, rail, group, controls: AtomicUsize::new(0) }
    }

    async fn pay(&self, group: &str, key: &str) {
        self.fleet.payment(&self.rail.url(), group, key).by(&self.fleet.world.sql).await.unwrap();
    }

    /// The answer says that it is committed.
    async fn decide(&self, node: usize, decision: &str) {
        let reason = json!({ "reason": REASON });
        self.nodes[node].http().post(&format!("/admin/{decision}"), &reason).await.unwrap().expect_status(200);
    }

    /// Waits until the group's calls have ceased. Returns when the last one began.
    async fn ceased(&self) -> Instant {
        eventually_some(LATER, "calls have ceased", || async {
            let last = of(&self.rail.exchanges(), &self.group).last().map(|receipt| receipt.first_byte_at);
            last.filter(|last| last.elapsed() > CEASED)
        })
        .await
    }

    /// A webhook of another group that belongs to the owner of this one, as things stand now.
    async fn control(&self, group: &str) -> (Item, String) {
        let sql = "SELECT 'h-' || n FROM generate_series(1, 2000) n, partition_lease l, partition_lease its
                   WHERE its.partition_id = partition_of($1) AND l.owner = its.owner
                     AND l.partition_id = partition_of('h-' || n) AND 'h-' || n <> $1 LIMIT 1";
        let other: String = self.fleet.world.sql.query_one(sql, &[&group]).await.unwrap().get(0);
        let key = format!("control-{}", self.controls.fetch_add(1, Ordering::SeqCst));
        (Item::webhook(&self.fleet.world, &self.rail.url(), &other, &key), key)
    }

    /// The owner of the group works, and does nothing of the group's.
    async fn owner_works_without(&self, group: &str) {
        let before = of(&self.rail.exchanges(), group).len();
        let (item, key) = self.control(group).await;
        item.by(&self.fleet.world.sql).await.unwrap();
        self.rail.await_where("the owner works", LATER, |receipts| find(receipts, &key).is_some()).await;
        assert_eq!(of(&self.rail.exchanges(), group).len(), before, "{group} is called");
    }

    /// The groups go on within a second of the decision, which comes to a node that owns none of them. What is taken off
    /// is what a message of the owner's needs that is committed at the same moment.
    async fn go_on_after(&self, decision: &str, groups: &[String]) {
        let mut controls = Vec::new();
        let mut before = Vec::new();
        for group in groups {
            controls.push(self.control(group).await);
            before.push(of(&self.rail.exchanges(), group).len());
        }
        let asked = Instant::now();
        tokio::join!(self.decide(2, decision), async {
            for (item, _) in &controls {
                item.by(&self.fleet.world.sql).await.unwrap();
            }
        });
        let all = |receipts: &[Receipt]| {
            let on = groups.iter().zip(&before).all(|(group, before)| of(receipts, group).len() > *before);
            on && controls.iter().all(|(_, key)| find(receipts, key).is_some())
        };
        let receipts = self.rail.await_where("groups go on", LATER, all).await;
        let since = |receipt: &Receipt| receipt.first_byte_at.saturating_duration_since(asked);
        for ((group, before), (_, key)) in groups.iter().zip(&before).zip(&controls) {
            let (went_on, usual) = (since(of(&receipts, group)[*before]), since(find(&receipts, key).unwrap()));
            println!(
                "{decision}: {group} went on after {went_on:?}, another message of its owner came after {usual:?}"
            );
            assert!(went_on < PROMISED + usual, "{decision}: {went_on:?}, and {usual:?} for another message");
        }
    }

    /// A restart of the owner by force, and of a node that was asked in good order; all share again.
    async fn restart(&self) {
        self.nodes[0].restart().await;
        self.nodes[1].term();
        assert_eq!(self.nodes[1].await_exit(SOON).await, 0);
        self.nodes[1].start();
        self.nodes[1].await_ready().await;
        shared_by(&self.fleet, &["a", "b", "c"]).await;
    }

    /// The record has these decisions, in this order, with who and why.
    async fn recorded(&self, decisions: &[&str]) {
        let audit = self.nodes[0].http().get("/admin/audit").await.unwrap().expect_status(200).json();
        let ours = |entry: &&Value| entry["reason"] == REASON && entry["actor"] == "test";
        let found = audit["items"].as_array().unwrap().iter().filter(ours);
        let mut found: Vec<_> = found.map(|entry| entry["action"].as_str().unwrap()).collect();
        found.reverse();
        assert_eq!(found, decisions);
    }
}

/// A group's requests, by their first bytes.
fn of<'a>(receipts: &'a [Receipt], group: &str) -> Vec<&'a Receipt> {
    let mut found: Vec<_> = receipts.iter().filter(|receipt| receipt.group() == Some(group)).collect();
    found.sort_unstable_by_key(|receipt| receipt.first_byte_at);
    found
}

fn find<'a>(receipts: &'a [Receipt], key: &str) -> Option<&'a Receipt> {
    receipts.iter().find(|receipt| receipt.text().contains(&format!("\"{key}\"")))
}

/// A busy group, paused at a node that does not own it: the last call begins within a second. It stays paused while its
/// owner is killed and others have it, and goes on within a second when a third node is told.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn decisions_pause_and_resume_a_group_on_all_nodes() {
    const MESSAGES: usize = 250;
    let stage = Stage::new(FakeRail::start().await.takes(Duration::from_millis(20))).await;
    for n in 0..MESSAGES {
        stage.pay(&stage.group, &format!("key-{n}")).await;
    }
    stage.rail.await_receipts(5, SOON).await;
    stage.decide(1, &format!("groups/{}/pause", stage.group)).await;
    let committed = Instant::now();
    let late = stage.ceased().await.saturating_duration_since(committed);
    println!("the last call began {late:?} after the pause");
    assert!(late < PROMISED, "{late:?}");
    let made = of(&stage.rail.exchanges(), &stage.group).len();
    assert!(made < MESSAGES, "there was nothing left to pause");

    stage.restart().await;
    stage.owner_works_without(&stage.group).await;
    assert_eq!(of(&stage.rail.exchanges(), &stage.group).len(), made, "called while it was paused");
    let shown = format!("/admin/groups/{}", stage.group);
    let shown = stage.nodes[2].http().get(&shown).await.unwrap().expect_status(200).json();
    assert_eq!(shown["state"], "paused", "{shown}");

    stage.go_on_after(&format!("groups/{}/resume", stage.group), std::slice::from_ref(&stage.group)).await;
    stage.rail.await_answered(MESSAGES + 2, LATER).await;
    stage.recorded(&["group.pause", "group.resume"]).await;
}

/// A payment that was refused for good blocks its group, through restarts. Whoever is told to release or to skip it: the
/// next message goes within a second.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn decisions_release_and_skip_on_any_node() {
    let stage = Stage::new(FakeRail::start().await.for_body_with("\"bad-").status(410).forever()).await;
    let blocked = |what: &'static str| {
        eventually(LATER, what, || async {
            let sql = "SELECT count(*) FROM group_hold WHERE kind = 'blocked'";
            stage.fleet.world.one::<i64>(sql).await == 1
        })
    };
    for key in ["bad-1", "good-1", "bad-2", "good-2"] {
        stage.pay(&stage.group, key).await;
    }
    blocked("the first one blocks").await;
    stage.restart().await;
    stage.owner_works_without(&stage.group).await;
    stage.go_on_after(&format!("groups/{}/release", stage.group), std::slice::from_ref(&stage.group)).await;
    blocked("the second one blocks").await;
    stage.go_on_after(&format!("groups/{}/skip", stage.group), std::slice::from_ref(&stage.group)).await;
    let receipts = of(&stage.rail.receipts(), &stage.group).iter().map(|receipt| receipt.text()).collect::<Vec<_>>();
    let came = |key: &str| receipts.iter().filter(|text| text.contains(&format!("\"{key}\""))).count();
    assert_eq!(["bad-1", "good-1", "bad-2", "good-2"].map(came), [1; 4], "{receipts:?}");
    stage.recorded(&["group.release", "group.skip"]).await;
}

/// A rail that is paused at one node is paused for all, those that start later among them; other rails go on. All nodes
/// go on within a second once it is resumed.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn decisions_about_a_rail_hold_on_all_nodes() {
    let stage = Stage::new(FakeRail::start().await).await;
    stage.decide(1, "rails/payment_webhook/pause").await;
    stage.restart().await;
    let mut groups = Vec::new();
    for name in ["a", "b", "c"] {
        groups.push(group_of(&stage.fleet, name).await);
    }
    for (n, group) in groups.iter().enumerate() {
        stage.pay(group, &format!("paused-{n}")).await;
    }
    for group in &groups {
        stage.owner_works_without(group).await;
    }
    stage.go_on_after("rails/payment_webhook/resume", &groups).await;
    stage.fleet.all_completed(2 * groups.len() + groups.len()).await;
    stage.recorded(&["rail.pause", "rail.resume"]).await;
}
