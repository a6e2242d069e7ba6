//! S2-23 to S2-26: how soon work is found, by notice and without one.

use std::time::{Duration, Instant};

use railyard_node::Node;
use railyard_testkit::{FakeRail, eventually};

use crate::producer::Item;
use crate::world::{SOON, World};

/// Longer than any test: nothing is found by the poll.
const NO_POLL: Duration = Duration::from_secs(600);

async fn listener(node: &Node, figure: &str) -> u64 {
    node.observe().await["actors"]["listener"][figure].as_u64().unwrap_or(0)
}

async fn listening(node: &Node) {
    eventually(SOON, "the node listens and has looked", || async {
        let seen = node.observe().await;
        seen["actors"]["listener"]["connected"] == true
            && seen["node"]["partitions"] == 256
            && seen["actors"]["poller"]["looks"].as_u64() >= Some(2)
    })
    .await;
}

/// From the commit of an idle group's message to the first byte at the rail: less than 100 ms, by the notice alone.
#[tokio::test(flavor = "multi_thread")]
async fn s2_23_idle_to_dispatch_in_a_tenth_of_a_second() {
    let world = World::new().await;
    let rail = FakeRail::start().await;
    let node = world.node_with(|options| options.poll = NO_POLL).await;
    listening(&node).await;
    let mut waits = Vec::new();
    for n in 0..11 {
        let committed = Instant::now();
        world.pay(&rail, &format!("g{n}"), &format!("k{n}")).await;
        let receipts = rail.await_answered(n + 1, SOON).await;
        waits.push(receipts[n].first_byte_at.duration_since(committed));
    }
    waits.sort_unstable();
    println!("from before the commit to the rail: {waits:?}");
    // The machine may be busy with other tests: half of them show what the product does.
    assert!(waits[5] < Duration::from_millis(100), "{waits:?}");
    node.stop(SOON).await;
}

/// The notice is the channel's and carries no data; a group that is ready already gives none.
#[tokio::test]
async fn s2_23_the_notice_is_new_work() {
    let world = World::new().await;
    let mut heard = world.store.listen().await.unwrap();
    let nowhere = "http://127.0.0.1:9/";
    for key in ["one", "two"] {
        Item::payment(&world, nowhere, "g", key).by(&world.sql).await.unwrap();
    }
    world.sql.batch_execute("NOTIFY railyard_cache, 'afterwards'").await.unwrap();
    assert_eq!(heard.next().await.unwrap(), railyard_store::listen::Heard::Work);
    let afterwards = railyard_store::listen::Heard::Cache("afterwards".to_owned());
    assert_eq!(heard.next().await.unwrap(), afterwards, "the second message of a ready group gave a notice");
}

/// What stands in the notice itself, heard by a client of our own: the two words, and never any data.
#[tokio::test]
async fn s2_23_the_notice_itself_says_new_work_and_no_more() {
    let world = World::new().await;
    let (client, mut connection) = tokio_postgres::connect(world.db.url(), tokio_postgres::NoTls).await.unwrap();
    let listen = async {
        client.batch_execute("LISTEN outbox_pending").await.unwrap();
        Item::payment(&world, "http://127.0.0.1:9/", "g", "one").by(&world.sql).await.unwrap();
        railyard_store::jobs::notify(&world.store).await.unwrap();
        world.sql.batch_execute("NOTIFY outbox_pending, 'the end'").await.unwrap();
        std::future::pending::<()>().await;
    };
    let hear = async {
        let mut heard = Vec::new();
        while heard.last().is_none_or(|last| last != "the end") {
            let message = std::future::poll_fn(|cx| connection.poll_message(cx)).await.unwrap().unwrap();
            if let tokio_postgres::AsyncMessage::Notification(notice) = message {
                heard.push(notice.payload().to_owned());
            }
        }
        heard
    };
    let heard = tokio::select! {
        heard = hear => heard,
        () = listen => unreachable!("it waits for ever"),
    };
    assert_eq!(heard, ["new_work", "new_work", "the end"], "the producer's, the API's");
}

/// A thousand notices at once wake the poller at most twice: at the first and at the end of the debounce.
#[tokio::test(flavor = "multi_thread")]
async fn s2_24_a_thousand_notices_are_two_wakeups() {
    let world = World::new().await;
    let node = world
        .node_with(|options| {
            options.poll = NO_POLL;
            options.debounce = Duration::from_millis(50);
        })
        .await;
    listening(&node).await;
    let looks = async || node.observe().await["actors"]["poller"]["looks"].as_u64().unwrap();
    let mut wakeups = Vec::new();
    for _ in 0..3 {
        let (notices, woken) = (listener(&node, "notifications").await, listener(&node, "wakeups").await);
        let looked = looks().await;
        // Equal ones of a transaction would be folded into one.
        let burst = "SELECT pg_notify('outbox_pending', n::text) FROM generate_series(1, 1000) n";
        world.sql.query(burst, &[]).await.unwrap();
        eventually(SOON, "all notices are heard", || async {
            listener(&node, "notifications").await == notices + 1000
        })
        .await;
        // The wake-up at the end of the debounce comes before the listener hears the next notice.
        world.sql.batch_execute("NOTIFY railyard_cache, 'afterwards'").await.unwrap();
        eventually(SOON, "and what comes after", || async { listener(&node, "notifications").await == notices + 1001 })
            .await;
        // Told apart, in case one of the two is counted wrongly.
        wakeups.push((listener(&node, "wakeups").await - woken).max(looks().await - looked));
    }
    println!("wake-ups by burst: {wakeups:?}");
    // A busy machine may stretch a burst over more than one window; not all three.
    let least = wakeups.iter().min().unwrap();
    assert!((1..=2).contains(least), "{wakeups:?}");
    node.stop(SOON).await;
}

/// The listener's connection is cut: what is committed without any notice is found by the poll, and the listener is
/// back, wakes once for what it missed, and hears again.
#[tokio::test(flavor = "multi_thread")]
async fn s2_25_the_poll_goes_on_and_the_listener_comes_back() {
    let world = World::new().await;
    let rail = FakeRail::start().await;
    let node = world.node_with(|options| options.poll = Duration::from_millis(250)).await;
    listening(&node).await;
    world.sql.batch_execute("SET railyard.notify = 'off'").await.unwrap();
    let cut = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
               WHERE datname = current_database() AND application_name = 'railyard listen'";
    assert_eq!(world.one::<i64>(cut).await, 1);
    world.pay(&rail, "g", "by the poll").await;
    let committed = Instant::now();
    rail.await_answered(1, SOON).await;
    println!("found by the poll after {:?}", committed.elapsed());
    eventually(SOON, "the listener is back", || async {
        let seen = &node.observe().await["actors"]["listener"];
        seen["connected"] == true && seen["connections"] == 2
    })
    .await;
    // Once more without a notice, with the listener in place.
    world.pay(&rail, "g", "by the poll again").await;
    rail.await_answered(2, SOON).await;
    let heard = listener(&node, "notifications").await;
    world.sql.batch_execute("SET railyard.notify = 'on'").await.unwrap();
    world.pay(&rail, "h", "by notice").await;
    rail.await_answered(3, SOON).await;
    eventually(SOON, "the notice is heard", || async { listener(&node, "notifications").await > heard }).await;
    node.stop(SOON).await;
}

/// What was committed while the listener was away is looked for as soon as it is back: here nothing else would find it.
#[tokio::test(flavor = "multi_thread")]
async fn s2_25_a_listener_that_is_back_looks_for_what_it_missed() {
    let world = World::new().await;
    let rail = FakeRail::start().await;
    let node = world.node_with(|options| options.poll = NO_POLL).await;
    listening(&node).await;
    world.sql.batch_execute("SET railyard.notify = 'off'").await.unwrap();
    world.pay(&rail, "g", "missed").await;
    assert_eq!(rail.receipts().len(), 0);
    let cut = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
               WHERE datname = current_database() AND application_name = 'railyard listen'";
    assert_eq!(world.one::<i64>(cut).await, 1);
    rail.await_answered(1, SOON).await;
    node.stop(SOON).await;
}

/// More than fits at once is drained in one go: without notices and with a poll that never comes again.
#[tokio::test(flavor = "multi_thread")]
async fn s2_26_a_backlog_is_drained_without_waiting_for_the_poll() {
    let world = World::new().await;
    let rail = FakeRail::start().await;
    world.sql.batch_execute("SET railyard.notify = 'off'").await.unwrap();
    for n in 0..240 {
        world.pay(&rail, &format!("g{}", n % 120), &format!("k{n}")).await;
    }
    let node = world
        .node_with(|options| {
            options.poll = NO_POLL;
            options.credits = 8;
            options.calls_in_flight = 8;
        })
        .await;
    let receipts = rail.await_answered(240, SOON).await;
    assert_eq!(receipts.len(), 240);
    assert_eq!(rail.order_violations(), [] as [&str; 0]);
    node.stop(SOON).await;
}
