//! S3-30: one deadline over connection, head and body, against receivers that take their time.

use std::net::SocketAddr;
use std::time::Duration;

use railyard_core::OutboxId;
use railyard_testkit::FakeRail;
use tokio::net::{TcpSocket, TcpStream};

use crate::world::{SOON, World};

/// One job with a deadline of one second and one delivery: its history, and how long the attempt took.
async fn one_attempt(world: &World, url: &str, payload: Vec<u8>) -> (String, Duration) {
    let id = world
        .hook(url, payload, |job| {
            job.timeout_s = 1;
            job.max_attempts = 1;
        })
        .await;
    let job = world.ended(id).await;
    let attempt = world.attempts(id).await.remove(0);
    let millis = attempt.latency_ms.map_or(0, i32::unsigned_abs);
    let told = format!("{} {}", job.status.as_str(), job.last_error.unwrap_or_default());
    (told, Duration::from_millis(millis.into()))
}

/// The deadline holds whatever the receiver does: it answers nothing, drips its head, never reads.
#[tokio::test(flavor = "multi_thread")]
async fn s3_30_the_deadline_covers_the_whole_exchange() {
    let world = World::new().await;
    // Time to read the big payload on a busy machine, beside the call's own.
    let node = world.node_with(|options| options.slack = Duration::from_secs(5)).await;
    let drip = Duration::from_millis(100);
    let big = vec![b'x'; 3 << 20];
    for (name, rail, payload) in [
        ("silence", FakeRail::start().await.silence(), b"{}".to_vec()),
        ("a head that drips", FakeRail::start().await.slow_head(drip), b"{}".to_vec()),
        ("a receiver that never reads", FakeRail::start().await.never_read(), big),
    ] {
        let (told, took) = one_attempt(&world, &rail.url(), payload).await;
        assert!(told.starts_with("ERROR RETRY_CEILING_EXCEEDED: DISPATCH_TIMEOUT"), "{name}: {told}");
        let bounds = Duration::from_millis(950)..Duration::from_millis(2500);
        assert!(bounds.contains(&took), "{name}: {took:?}");
    }
    node.stop(SOON).await;
}

/// A 200 whose body drips is delivered, and is not waited for longer than the deadline.
#[tokio::test(flavor = "multi_thread")]
async fn s3_30_a_body_that_drips_holds_nobody() {
    let world = World::new().await;
    let node = world.node().await;
    let rail = FakeRail::start().await.drip(Duration::from_millis(100));
    let (told, took) = one_attempt(&world, &rail.url(), b"{}".to_vec()).await;
    assert_eq!(told, "COMPLETED ");
    assert!(took < Duration::from_millis(2500), "{took:?}");
    node.stop(SOON).await;
}

/// A slow receiver is a TIMEOUT attempt, and is tried again.
#[tokio::test(flavor = "multi_thread")]
async fn s3_30_a_timeout_is_recorded_as_such_and_retried() {
    let world = World::new().await;
    let node = world.node().await;
    let rail = FakeRail::start().await.silence().then_ok();
    let id = world.hook(&rail.url(), "{}", |job| job.timeout_s = 1).await;
    assert_eq!(world.ended(id).await.status.as_str(), "COMPLETED");
    assert_eq!(world.history(id).await, ["RETRYABLE/DISPATCH_TIMEOUT", "DISPATCHED"]);
    let row = world.attempts(id).await.remove(0);
    assert_eq!((row.status.as_str(), row.response_code), ("TIMEOUT", None));
    node.stop(SOON).await;
}

/// A host that takes no connection fails after the connect timeout, long before the call's own deadline.
#[tokio::test(flavor = "multi_thread")]
async fn s3_30_a_connection_that_is_never_made_has_a_deadline_of_its_own() {
    let world = World::new().await;
    let node = world.node_with(|options| options.http.connect_timeout_s = 1).await;
    let full = FullListener::start().await;
    let id = world.hook(&format!("http://{}/", full.address), "{}", |job| deliver_once(job, 30)).await;
    assert_eq!(world.ended(id).await.status.as_str(), "ERROR");
    let row = world.attempts(id).await.remove(0);
    assert!(row.error_message.as_ref().is_some_and(|text| text.starts_with("CONNECT_TIMEOUT")), "{row:?}");
    assert!(row.latency_ms.is_some_and(|millis| (900..4000).contains(&millis)), "{row:?}");
    node.stop(SOON).await;
}

fn deliver_once(job: &mut railyard_core::job::NewJob, timeout_s: u32) {
    job.timeout_s = timeout_s;
    job.max_attempts = 1;
}

/// A port whose queue of connections is full: the system answers no further attempt, as a host that is gone does.
struct FullListener {
    address: SocketAddr,
    _listener: tokio::net::TcpListener,
    _queue: Vec<TcpStream>,
}

impl FullListener {
    async fn start() -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(([127, 0, 0, 1], railyard_testkit::free_port()).into()).unwrap();
        let listener = socket.listen(1).unwrap();
        let address = listener.local_addr().unwrap();
        let mut queue = Vec::new();
        while let Ok(made) = tokio::time::timeout(Duration::from_millis(300), TcpStream::connect(address)).await {
            queue.push(made.unwrap());
            assert!(queue.len() < 100, "the queue has no end");
        }
        Self { address, _listener: listener, _queue: queue }
    }
}

/// A payment whose answer did not come in time is sent again, and says by its number that it is the second attempt.
#[tokio::test(flavor = "multi_thread")]
async fn s3_30_a_payments_timeout_is_retried_with_the_next_number() {
    let world = World::new().await;
    let node = world.node().await;
    let rail = FakeRail::start().await.silence().then_ok();
    let sql = "SELECT enqueue_payment_outbox('i', 'debtor', 'k', 'payment_webhook',
                 '{\"amount\":\"1.10\",\"currency\":\"EUR\",\"destination\":\"DE02\"}', $1, $2, p_timeout_ms => 1000)";
    let id = world.sql.query_one(sql, &[&rail.url(), &world.credentials.0]).await.unwrap().get(0);
    let job = world.ended(OutboxId(id)).await;
    assert_eq!((job.status.as_str(), job.attempt_count), ("COMPLETED", 2));
    let numbers: Vec<_> = rail.receipts().iter().map(railyard_testkit::Receipt::attempt).collect();
    assert_eq!(numbers, [Some(1), Some(2)]);
    node.stop(SOON).await;
}
