//! The links between nodes: nodes find each other, see each other go, and are none the worse for strangers, for peers
//! that freeze, or without links at all.
//!
//! That everything works with the cluster port closed is what all other tests show: they run without `[cluster]`.

use std::time::{Duration, Instant};

use railyard_testkit::eventually;

use crate::linked::{LinkedFleet, linked_to, reason, said};
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
            assert_eq!(reason(node, "railyard_link_refused_total", why).await, 0.0, "{why}");
        }
        assert_eq!(said(node, "panicked"), 0);
    }
    eventually(SOON, "the reason is counted", || async {
        reason(&a, "railyard_links_ended_total", "closed").await > 0.0
    })
    .await;
}
