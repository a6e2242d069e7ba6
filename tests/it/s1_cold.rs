//! S1-25 at receivers to which a connection takes longer than a slot lasts.

use std::time::Duration;

use railyard_node::{Node, NodeOptions};
use railyard_rail::LimitOptions;
use railyard_testkit::fake_rail::Cert;
use railyard_testkit::{FakeRail, Reply, eventually};

use crate::fleet::LATER;
use crate::producer::Item;
use crate::s3_guard::Roots;
use crate::starts::{all_starts, most_within};
use crate::world::World;

/// Several times as long as a slot lasts, and longer than one lies ahead.
const HANDSHAKE: Duration = Duration::from_millis(300);

/// A node that trusts this receiver, with so many starts a second.
async fn limited(world: &World, rail: &FakeRail, starts: u32) -> (Node, Roots) {
    let roots = Roots::of(&[rail]);
    let change = |options: &mut NodeOptions| {
        options.http.allow_networks = vec!["127.0.0.0/8".parse().unwrap(), "::1/128".parse().unwrap()];
        options.http.extra_roots = vec![roots.0.clone()];
        options.rails.get_mut("webhook").unwrap().limit = Some(LimitOptions { starts, window_ms: 1000 });
    };
    (world.node_with(change).await, roots)
}

/// A receiver that takes one request a connection.
async fn closing() -> FakeRail {
    FakeRail::tls(Cert::good()).await.reply(Reply::status(200).with_header("Connection", "close")).forever()
}

async fn attempts(world: &World) -> Vec<(String, String)> {
    let sql = "SELECT state, coalesce(error_code, '-') FROM payment_outbox_attempts ORDER BY outbox_id, attempt_no";
    world.sql.query(sql, &[]).await.unwrap().iter().map(|row| (row.get(0), row.get(1))).collect()
}

/// Each call needs a connection of its own, and each connection 300 ms: calls are made all the same, never above the limit.
#[tokio::test(flavor = "multi_thread")]
async fn s1_25_a_slow_handshake_costs_no_slot() {
    let world = World::new().await;
    let rail = closing().await;
    rail.handshake_takes(HANDSHAKE);
    for n in 0..60 {
        Item::webhook(&world, &rail.url(), &format!("g{n}"), &format!("{n}")).by(&world.sql).await.unwrap();
    }
    let (_node, _roots) = limited(&world, &rail, 10).await;
    rail.await_answered(60, LATER).await;
    eventually(LATER, "all outcomes are written", || async {
        attempts(&world).await.iter().filter(|(state, _)| state == "DISPATCHED").count() == 60
    })
    .await;
    let attempts = attempts(&world).await;
    let burnt = attempts.iter().filter(|(_, code)| code == "PERMIT_BURNT").count();
    // A busy machine is late for some; without a connection ahead, each slot is burnt and nothing ever arrives.
    assert!(burnt <= 30, "{burnt} slots of 60 calls were burnt: {attempts:?}");
    assert!(attempts.iter().all(|(state, code)| state == "DISPATCHED" || code == "PERMIT_BURNT"), "{attempts:?}");
    let starts = all_starts(&rail);
    let most = most_within(&starts, Duration::from_secs(1));
    assert!(most <= 10, "{most} starts within a second");
    assert!(most > 3, "only {most}: the limit was not what bounded them");
}
