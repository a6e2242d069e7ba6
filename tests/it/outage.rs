//! The database goes away as a whole: crashes, demotions, no connection to be had, for shorter and for longer than
//! the lease. Each test has a server of its own.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use railyard_core::CredentialsId;
use railyard_node::{Node, NodeOptions};
use railyard_store::crypt::MasterKeys;
use railyard_store::{Store, StoreConfig};
use railyard_testkit::verify::Verdict;
use railyard_testkit::{
    FakeRail, FaultProxy, Gate, Mode, OwnServer, Receipt, Sandbox, eventually, eventually_some, verify,
};
use serde_json::json;
use tokio_postgres::{Client, NoTls};

use crate::record::{Record, completed, misplaced, unfinished};
use crate::world::{SECRET, SOON, credentials, master_keys, options, pay};

/// The poll interval of these nodes, and what a busy machine may add to it.
const POLL: Duration = Duration::from_millis(500);
const MARGIN: Duration = Duration::from_millis(1500);

/// A migrated server of the test's own.
struct Place {
    server: OwnServer,
    store: Store,
    keys: Arc<MasterKeys>,
    credentials: CredentialsId,
}

impl Place {
    async fn new(settings: &[(&str, &str)]) -> Self {
        let server = OwnServer::start(settings).await;
        railyard_store::migrate::migrate(&server.url()).await.unwrap();
        let store = Store::new(StoreConfig::at(&server.url())).unwrap();
        let keys = Arc::new(master_keys());
        let credentials = credentials(&store, &keys).await;
        Self { server, store, keys, credentials }
    }

    async fn node(&self, change: impl FnOnce(&mut NodeOptions)) -> Node {
        self.node_on(self.store.clone(), change).await
    }

    async fn node_on(&self, store: Store, change: impl FnOnce(&mut NodeOptions)) -> Node {
        let mut options = options();
        change(&mut options);
        Node::start(options, store, Arc::clone(&self.keys), &prometheus::Registry::new()).await.unwrap()
    }

    /// A connection as soon as the server gives one.
    async fn connect(&self) -> Client {
        eventually_some(SOON, "the database takes connections", || connect(self.server.url())).await
    }

    /// Enqueues as a patient producer does: through outages, with the same key.
    async fn pay(&self, rail: &FakeRail, group: &str, key: &str) -> (String, Vec<u8>) {
        let payload = format!(r#"{{"amount":"1.10","currency":"EUR","destination":"DE02","key":"{key}"}}"#);
        let id = eventually_some(SOON, "the payment is accepted", || async {
            let sql = connect(self.server.url()).await?;
            let id = sql
                .query_one(
                    "SELECT enqueue_payment_outbox($1, $2, $1, 'payment_webhook', $3, $4, $5)::text",
                    &[&key, &group, &payload.as_bytes(), &rail.url(), &self.credentials.0],
                )
                .await;
            id.ok().map(|row| row.get(0))
        })
        .await;
        (id, payload.into_bytes())
    }

    /// Everything that was accepted arrived once, in order, with its row, and nothing is left.
    async fn assert_once(&self, rail: &FakeRail, bodies: &HashMap<String, Vec<u8>>) -> Record {
        let sql = self.connect().await;
        let all = i64::try_from(bodies.len()).unwrap();
        eventually(SOON * 2, "everything has ended and nothing is left", || async {
            completed(&sql).await == all && unfinished(&sql).await == 0
        })
        .await;
        let receipts = rail.receipts();
        Verdict::of(&receipts, bodies, SECRET).assert_clean();
        assert_eq!(receipts.len(), bodies.len(), "each arrives once: {:?}", lines(&verify::repeated(&receipts)));
        let record = Record::read(&sql).await;
        assert_eq!(record.contradictions(&rail.exchanges()), verify::NONE);
        assert_eq!(misplaced(&sql).await, verify::NONE);
        record
    }
}

async fn connect(url: String) -> Option<Client> {
    let (client, connection) = tokio_postgres::connect(&url, NoTls).await.ok()?;
    #[expect(clippy::disallowed_methods, reason = "driven until its client is dropped")]
    tokio::spawn(connection);
    Some(client)
}

fn lines(repeated: &[verify::Repeated]) -> Vec<String> {
    repeated.iter().flat_map(|one| one.receipts.iter().map(Receipt::line)).collect()
}

/// PostgreSQL is restarted with `-m immediate` five times under load: everything arrives once, and nothing that was
/// committed waits longer than the poll interval once the database is back.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn outage_five_immediate_restarts_under_load() {
    const GROUPS: usize = 20;
    const MESSAGES: usize = 400;
    let place = Place::new(&[]).await;
    let rail = FakeRail::start().await.otherwise().delay(Duration::from_millis(10));
    let node = place.node(|_| {}).await;
    let produce = async {
        let mut bodies = HashMap::new();
        for n in 0..MESSAGES {
            let (id, body) = place.pay(&rail, &format!("group-{}", n % GROUPS), &format!("key-{n}")).await;
            bodies.insert(id, body);
        }
        bodies
    };
    let crash = async {
        let mut waits = Vec::new();
        for crash in 1..=5 {
            rail.await_where("the run goes on", SOON, |receipts| receipts.len() >= crash * MESSAGES / 7).await;
            place.server.server().restart_immediate().await.unwrap();
            // Committed the moment the database is back, in groups of their own.
            let (id, body) = place.pay(&rail, &format!("fresh-{crash}"), &format!("fresh-{crash}")).await;
            let back = Instant::now();
            let key = id.clone();
            let receipts = rail
                .await_where("what was committed after the crash", SOON, |receipts| {
                    receipts.iter().any(|r| r.message_key() == key)
                })
                .await;
            let first = receipts.iter().find(|r| r.message_key() == id).unwrap();
            waits.push((first.first_byte_at.saturating_duration_since(back), id, body));
        }
        waits
    };
    let (mut bodies, waits) = tokio::join!(produce, crash);
    for (wait, id, body) in waits {
        println!("first delivery {wait:?} after the database was back");
        assert!(wait < POLL + MARGIN, "{wait:?}");
        bodies.insert(id, body);
    }
    place.assert_once(&rail, &bodies).await;
    node.stop(SOON).await;
}

/// The database is away for longer than the lease while calls are out that succeed. When it is back, another node takes
/// the partitions over before the first gets through: it leaves what was in flight alone for a whole lease of its own,
/// so that the first records what it knows. Nothing is sent again.
#[tokio::test(flavor = "multi_thread")]
async fn outage_longer_than_the_lease_sends_nothing_again() {
    const GROUPS: usize = 8;
    let place = Place::new(&[]).await;
    let proxy = FaultProxy::postgres(place.server.address()).await;
    let gate = Gate::closed();
    let rail = FakeRail::start().await.otherwise().hold_until(&gate);
    let behind_proxy = Store::new(StoreConfig::at(&proxy.url(&place.server.url()))).unwrap();
    let slack = |options: &mut NodeOptions| options.slack = Duration::from_secs(1);
    let node = place.node_on(behind_proxy, slack).await;
    let sql = place.connect().await;
    let mut bodies = HashMap::new();
    for n in 0..2 * GROUPS {
        let (id, body) = pay_within_a_second(&sql, &rail, place.credentials, &format!("group-{}", n % GROUPS), n).await;
        bodies.insert(id, body);
    }
    eventually(SOON, "a call of each group is out", || async { gate.waiting() == GROUPS }).await;
    place.server.server().stop().await.unwrap();
    proxy.set(Mode::Refuse);
    gate.open();
    rail.await_answered(GROUPS, SOON).await;
    eventually(SOON, "the lease has run out", || async { !node.readiness().0 }).await;
    place.server.server().start_again().await.unwrap();
    let other = place.node(|options| options.name = "other".to_owned()).await;
    let sql = place.connect().await;
    eventually(SOON, "the other has taken over", || async {
        let owner = "SELECT count(*) FROM partition_lease l JOIN node n ON n.node_id = l.owner WHERE n.name = 'other'";
        sql.query_one(owner, &[]).await.unwrap().get::<_, i64>(0) == 256
    })
    .await;
    proxy.set(Mode::Pass);
    let record = place.assert_once(&rail, &bodies).await;
    assert_eq!((record.count("DISPATCHED"), record.count("ZOMBIE_REQUEUE")), (2 * GROUPS, 0));
    node.stop(SOON).await;
    other.stop(SOON).await;
}

/// A payment whose call may take a second: its deadline passes well within an outage.
async fn pay_within_a_second(
    sql: &Client,
    rail: &FakeRail,
    credentials: CredentialsId,
    group: &str,
    n: usize,
) -> (String, Vec<u8>) {
    let payload = format!(r#"{{"amount":"1.10","currency":"EUR","destination":"DE02","n":{n}}}"#).into_bytes();
    let id = sql
        .query_one(
            "SELECT enqueue_payment_outbox($1, $2, $1, 'payment_webhook', $3, $4, $5, p_timeout_ms => 1000)::text",
            &[&format!("n-{n}"), &group, &payload, &rail.url(), &credentials.0],
        )
        .await
        .unwrap();
    (id.get(0), payload)
}

/// The primary is demoted: reads go on and every write fails with 25006. Nothing that was accepted is lost, no attempt
/// is spent, and the node goes on without a restart when it may write again.
#[tokio::test(flavor = "multi_thread")]
async fn trap_outage_demoted_primary() {
    let place = Place::new(&[]).await;
    let rail = FakeRail::start().await;
    let sql = place.connect().await;
    let mut bodies = HashMap::new();
    let node = place.node(|_| {}).await;
    bodies.extend([place.pay(&rail, "group", "before").await]);
    rail.await_answered(1, SOON).await;
    sql.batch_execute("ALTER SYSTEM SET default_transaction_read_only = on").await.unwrap();
    sql.batch_execute("SELECT pg_reload_conf()").await.unwrap();
    eventually(SOON, "the lease has run out", || async { !node.readiness().0 }).await;
    // A producer on a connection that may still write, as one whose COMMIT was the last to get through.
    sql.batch_execute("SET default_transaction_read_only = off").await.unwrap();
    let id = pay(&sql, &rail, place.credentials, "group", "while demoted").await;
    let body = r#"{"amount":"1.10","currency":"EUR","destination":"DE02","key":"while demoted"}"#;
    bodies.insert(id.to_string(), body.as_bytes().to_vec());
    let looks = lease_attempts(&sql).await;
    eventually(SOON, "the node has tried again", || async { lease_attempts(&sql).await > looks }).await;
    assert_eq!(rail.exchanges().len(), 1, "no call without a committed intent");

    sql.batch_execute("ALTER SYSTEM RESET default_transaction_read_only").await.unwrap();
    sql.batch_execute("SELECT pg_reload_conf()").await.unwrap();
    rail.await_answered(2, SOON).await;
    place.assert_once(&rail, &bodies).await;
    assert!(node.live());
    node.stop(SOON).await;
}

/// The API of a node whose primary was demoted answers 503, says so in its log once, and takes jobs again, without a
/// restart, when it may write again. What had 201 is delivered.
#[tokio::test(flavor = "multi_thread")]
async fn trap_outage_demoted_primary_answers_503() {
    let place = Place::new(&[]).await;
    let rail = FakeRail::start().await;
    let sandbox = Sandbox::new(&place.server.url())
        .env("RAILYARD_MASTER_KEY", "5a".repeat(32))
        .set("http.allow_networks", r#"["127.0.0.0/8"]"#);
    let node = sandbox.node().await;
    let post = async |n: usize| {
        let job = json!({
            "source": "test", "type": "made", "groupId": "group", "targetUrl": rail.url(), "payload": "{}",
            "payloadContentType": "application/json", "credentialsId": place.credentials.to_string(),
            "idempotencyKey": format!("key-{n}"),
        });
        node.http().post("/api/dispatch/jobs", &job).await.unwrap()
    };
    let accepted = post(1).await.expect_status(201).json();
    let sql = place.connect().await;
    sql.batch_execute("ALTER SYSTEM SET default_transaction_read_only = on").await.unwrap();
    sql.batch_execute("SELECT pg_reload_conf()").await.unwrap();
    // The reload reaches a session with its next statement.
    eventually(SOON, "it answers 503", || async {
        let answer = post(2).await;
        assert!([200, 201, 503].contains(&answer.status), "{} {}", answer.status, answer.text());
        answer.status == 503 && answer.header("Retry-After").is_some()
    })
    .await;
    eventually(SOON, "the lease has run out", || async { node.log().contains("lease lost") }).await;
    sql.batch_execute("ALTER SYSTEM RESET default_transaction_read_only").await.unwrap();
    sql.batch_execute("SELECT pg_reload_conf()").await.unwrap();
    let again = eventually_some(SOON, "it takes jobs again", || async {
        let answer = post(2).await;
        // 200 says that one of the earlier tries had got through.
        [200, 201].contains(&answer.status).then(|| answer.json())
    })
    .await;
    let receipts = rail.await_answered(2, SOON).await;
    let ids: Vec<_> = receipts.iter().map(Receipt::message_key).collect();
    assert_eq!(ids, [&accepted, &again].map(|job| job["id"].as_str().unwrap().to_owned()));
    let troubles = node.log().lines().filter(|line| line.contains("trouble with the database")).count();
    assert!(troubles <= 2, "{troubles} lines about one outage:\n{}", node.log());
}

/// When the lease's newest connection was made: it moves with each try, since 25006 costs the connection.
async fn lease_attempts(sql: &Client) -> f64 {
    sql.query_one(
        "SELECT coalesce(extract(epoch FROM max(backend_start)), 0)::double precision FROM pg_stat_activity
         WHERE application_name = 'railyard lease'",
        &[],
    )
    .await
    .unwrap()
    .get(0)
}

/// No connection is to be had: the node waits, no job fails, and work goes on when there is one again.
#[tokio::test(flavor = "multi_thread")]
async fn trap_outage_no_connections_left() {
    let place = Place::new(&[("max_connections", "25"), ("superuser_reserved_connections", "1")]).await;
    let rail = FakeRail::start().await;
    let sql = place.connect().await;
    let node = place.node(|_| {}).await;
    let mut bodies = HashMap::new();
    bodies.extend([place.pay(&rail, "group", "before").await]);
    rail.await_answered(1, SOON).await;

    let taken = take_all_connections(&place, &sql).await;
    eventually(SOON, "the lease has run out", || async { !node.readiness().0 }).await;
    for n in 0..5 {
        let id = pay(&sql, &rail, place.credentials, "group", &format!("key-{n}")).await;
        let body = format!(r#"{{"amount":"1.10","currency":"EUR","destination":"DE02","key":"key-{n}"}}"#);
        bodies.insert(id.to_string(), body.into_bytes());
    }
    assert_eq!(rail.exchanges().len(), 1);
    drop(taken);
    let record = place.assert_once(&rail, &bodies).await;
    assert_eq!(record.count("DISPATCHED"), 6);
    node.stop(SOON).await;
}

/// Takes every connection there is, those that the node loses included.
async fn take_all_connections(place: &Place, sql: &Client) -> Vec<Client> {
    let mut taken = Vec::new();
    let end = Instant::now() + SOON;
    loop {
        assert!(Instant::now() < end, "the node still has a connection");
        while let Some(one) = connect(place.server.url()).await {
            taken.push(one);
        }
        let cut =
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name LIKE 'railyard%'";
        let cut: i64 = sql.query_one(cut, &[]).await.unwrap().get(0);
        if cut == 0 {
            return taken;
        }
    }
}
