//! A node that hears no NOTIFY, as behind a pooler that hands out connections by the transaction: the others' words over
//! a link are its notices.

use std::time::{Duration, Instant};

use railyard_testkit::{FakeRail, FaultProxy, Mode, eventually};
use serde_json::json;

use crate::fleet::{Fleet, LATER};
use crate::linked::{LinkedFleet, metric};
use crate::world::SOON;

const MESSAGES: usize = 20;
/// Between two renewals of a lease: what a node that hears nothing might need to see a change among the members.
const RENEWAL: Duration = Duration::from_secs(3);
/// The poll of both nodes, the longest that may be configured: on average it finds a message after half of it.
const POLL: Duration = Duration::from_secs(1);

/// Groups of this node's, one for each message.
async fn groups_of(fleet: &Fleet, name: &str) -> Vec<String> {
    let sql = "SELECT 'g-' || n FROM generate_series(1, 500) n, partition_lease l, node o
               WHERE l.partition_id = partition_of('g-' || n) AND l.owner = o.node_id AND o.name = $1 LIMIT 20";
    let rows = fleet.world.sql.query(sql, &[&name]).await.unwrap();
    assert_eq!(rows.len(), MESSAGES);
    rows.iter().map(|row| row.get(0)).collect()
}

/// Posted at one node, for groups that another one owns, which cannot listen: twenty messages, one after the other, take
/// a fraction of what the poll alone would need. When the first one leaves, the other has everything at once:
/// it is told, or sees the link end.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn links_wake_a_node_that_hears_no_notify() {
    let fleet = LinkedFleet::new().await;
    let way = FaultProxy::postgres(crate::matrix::address_in(fleet.fleet.world.db.url())).await;
    way.mark(|sql| sql.contains("LISTEN"));
    way.set_marked(Mode::BlackHole);
    let ((hears, _), (deaf, _)) = (fleet.plain("hears"), fleet.plain("deaf"));
    deaf.set_env("RAILYARD_DATABASE__URL", &way.url(fleet.fleet.world.db.url()));
    for node in [&hears, &deaf] {
        node.set_env("RAILYARD_DISPATCH__POLL_MS", &POLL.as_millis().to_string());
        node.set_env("RAILYARD_LEASE__RENEWAL_S", &RENEWAL.as_secs().to_string());
        node.set_env("RAILYARD_LEASE__LEASE_S", &(RENEWAL * 3).as_secs().to_string());
    }
    fleet.start([&hears, &deaf]).await;
    let owners = "SELECT count(*) FROM (SELECT FROM partition_lease WHERE owner IS NOT NULL GROUP BY owner
                  HAVING count(*) > 50) shares";
    eventually(LATER, "both have their share", || async { fleet.fleet.world.one::<i64>(owners).await == 2 }).await;

    let rail = FakeRail::start().await;
    let mut waits = Vec::new();
    for (n, group) in groups_of(&fleet.fleet, "deaf").await.iter().enumerate() {
        let job = json!({
            "source": "test", "type": "made", "groupId": group, "targetUrl": rail.url(), "payload": "{}",
            "payloadContentType": "application/json", "credentialsId": fleet.fleet.world.credentials.to_string(),
        });
        let posted = Instant::now();
        hears.http().post("/api/dispatch/jobs", &job).await.unwrap().expect_status(201);
        let receipts = rail.await_answered(n + 1, SOON).await;
        waits.push(receipts[n].first_byte_at.duration_since(posted));
    }
    let together: Duration = waits.iter().sum();
    waits.sort_unstable();
    println!(
        "from the post to the rail: half of them within {:?}, {MESSAGES} within {together:?}",
        waits[MESSAGES / 2]
    );
    let notices = "notify_wakeups_total";
    assert!(metric(&deaf, notices).await < 0.5, "it was to hear nothing");
    assert!(metric(&hears, notices).await > 0.5, "there was something to hear");
    assert!(together < POLL / 4 * u32::try_from(MESSAGES).unwrap(), "{waits:?}");

    hears.term();
    let asked = Instant::now();
    let all = "SELECT count(*) FROM partition_lease l JOIN node n ON n.node_id = l.owner WHERE n.name = 'deaf'";
    eventually(SOON, "the other one has everything", || async { fleet.fleet.world.one::<i64>(all).await == 256 }).await;
    println!("everything handed over {:?} after SIGTERM (renewal {RENEWAL:?})", asked.elapsed());
    assert!(asked.elapsed() < Duration::from_secs(1), "{:?}", asked.elapsed());
    assert_eq!(hears.await_exit(SOON).await, 0);
}
