//! A connection to the database that is dead without a word: nothing comes back, and nothing is refused.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use railyard_testkit::{FaultProxy, Mode, eventually};
use uuid::Uuid;

use crate::fleet::{Fleet, LATER};
use crate::linked::metric;
use crate::matrix::address_in;

/// In seconds; a renewal every two.
const LEASE: f64 = 6.0;

/// The lease's connection dies at the renewal, or right behind it: the lease is renewed on another one before it lapses.
#[tokio::test(flavor = "multi_thread")]
async fn cluster_a_dead_connection_costs_no_lease() {
    let fleet = Fleet::new().await;
    let way = FaultProxy::postgres(address_in(fleet.world.db.url())).await;
    let node = fleet.node("a");
    node.set_env("RAILYARD_DATABASE__URL", &way.url(fleet.world.db.url()));
    node.set_env("RAILYARD_LEASE__LEASE_S", &LEASE.to_string());
    node.set_env("RAILYARD_LEASE__RENEWAL_S", "2");
    node.start();
    node.await_ready().await;
    let id: Uuid = fleet.world.one("SELECT node_id FROM node").await;
    let until = async || {
        let sql = "SELECT extract(epoch FROM lease_until)::float8 FROM node WHERE node_id = $1";
        let row = fleet.world.sql.query_opt(sql, &[&id]).await.unwrap();
        row.map(|row| row.get::<_, f64>(0)).expect("the membership is over")
    };
    way.set_marked(Mode::BlackHole);
    for statement in ["UPDATE node SET lease_until", "l.moved_at = '-infinity'"] {
        // The first connection that says it, and no other.
        let dead = Arc::new(AtomicBool::new(false));
        let once = Arc::clone(&dead);
        way.mark(move |sql| sql.contains(statement) && !once.swap(true, Ordering::SeqCst));
        eventually(LATER, "the connection is dead", || async { dead.load(Ordering::SeqCst) }).await;
        let then = until().await;
        eventually(LATER, "it goes on for more than a lease", || async { until().await > then + LEASE }).await;
    }
    assert!(metric(&node, "railyard_lease_losses_total").await.abs() < 0.5);
}
