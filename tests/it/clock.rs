//! A node whose clock is wrong. Dispatch, leases and healing follow the database; only what is measured on the node's
//! own monotonic clock is its own.

use std::path::{Path, PathBuf};

use railyard_testkit::{FakeRail, NodeProcess, verify};

use crate::fleet::{Fleet, LATER};
use crate::record::Record;
use crate::world::{SECRET, SOON};

/// The library that shifts a process's wall clock.
pub(crate) fn faketime() -> Option<PathBuf> {
    let places = ["/usr/lib/x86_64-linux-gnu/faketime", "/usr/lib/aarch64-linux-gnu/faketime", "/usr/lib/faketime"];
    places.iter().map(|place| Path::new(place).join("libfaketimeMT.so.1")).find(|library| library.is_file())
}

/// A node by the name of its clock's error.
pub(crate) async fn shifted(fleet: &Fleet, library: &Path, name: &str, by: &str) -> NodeProcess {
    let node = fleet.node(name);
    node.set_env("LD_PRELOAD", &library.to_string_lossy());
    node.set_env("FAKETIME", by);
    node.set_env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
    node.start();
    node.await_ready().await;
    node
}

/// One node two hours ahead and one two hours behind: each holds its lease, delivers at once with timestamps that
/// receivers take for fresh, waits for what is scheduled as long as the database says, and gives a dead call up after
/// its deadline and no sooner.
#[tokio::test(flavor = "multi_thread")]
async fn trap_node_clock_is_two_hours_off() {
    let Some(library) = faketime() else {
        println!("skipped: no libfaketime");
        return;
    };
    tokio::join!(live_by(&library, "ahead", "+7200"), live_by(&library, "behind", "-7200"));
}

async fn live_by(library: &Path, name: &str, by: &str) {
    let fleet = Fleet::new().await;
    let rail = FakeRail::start().await;
    let node = shifted(&fleet, library, name, by).await;
    fleet.payment(&rail.url(), "group", "one").by(&fleet.world.sql).await.unwrap();
    let receipts = rail.await_answered(1, SOON).await;
    assert_eq!(verify::signature_failures(&receipts, SECRET), verify::NONE, "{name}");
    let lease = "SELECT lease_until BETWEEN clock_timestamp() AND clock_timestamp() + interval '4 seconds' FROM node";
    assert!(fleet.world.one::<bool>(lease).await, "{name}: the lease is on the database's clock");
    assert!((1.9..2.1).contains(&hours_off(&fleet, &node).await), "{name}: its clock is not off");

    schedule(&fleet, &rail).await;
    rail.await_answered(2, SOON).await;
    let waited = "SELECT extract(epoch FROM a.claimed_at - j.scheduled_for)::double precision
                  FROM payment_outbox_attempts a JOIN dispatch_job j USING (outbox_id)
                  WHERE j.scheduled_for IS NOT NULL";
    let waited: f64 = fleet.world.one(waited).await;
    assert!((0.0..2.0).contains(&waited), "{name}: {waited} s after its time");

    node.kill9();
    node.set_failpoint("after_call");
    node.start();
    fleet.payment(&rail.url(), "group", "two").by(&fleet.world.sql).await.unwrap();
    assert_eq!(node.await_exit(LATER).await, -9, "{name}");
    node.clear_failpoint();
    node.start();
    fleet.all_completed(3).await;
    let given_up = "SELECT extract(epoch FROM recorded_at - claimed_at)::double precision
                    FROM payment_outbox_attempts WHERE state = 'ZOMBIE_REQUEUE'";
    let given_up: f64 = fleet.world.one(given_up).await;
    assert!((1.5..30.0).contains(&given_up), "{name}: given up after {given_up} s");
    let record = Record::read(&fleet.world.sql).await;
    assert_eq!(record.unexplained(&rail.receipts()), verify::NONE, "{name}");
}

/// How far the clock in a node's log is from the database's, in hours.
async fn hours_off(fleet: &Fleet, node: &NodeProcess) -> f64 {
    let log = node.log();
    let joined = log.lines().find(|line| line.contains("joined")).unwrap();
    let stamp = joined.split_whitespace().next().unwrap();
    let sql = "SELECT abs(extract(epoch FROM $1::text::timestamptz - clock_timestamp()))::double precision / 3600";
    fleet.world.sql.query_one(sql, &[&stamp]).await.unwrap().get(0)
}

/// A payment two seconds from now, on the database's clock.
async fn schedule(fleet: &Fleet, rail: &FakeRail) {
    let payload = br#"{"amount":"1.10","currency":"EUR","destination":"DE02"}"#.as_slice();
    let sql = "SELECT enqueue_payment_outbox('later', 'later', 'later', 'payment_webhook', $1, $2, $3,
                 p_scheduled_for => clock_timestamp() + interval '2 seconds')";
    fleet.world.sql.execute(sql, &[&payload, &rail.url(), &fleet.world.credentials.0]).await.unwrap();
}
