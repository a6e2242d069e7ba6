//! S3-12: credentials are cached, changes reach every node, and nothing is ever sent unsigned.

use std::sync::Arc;
use std::time::Duration;

use railyard_core::OutboxId;
use railyard_node::Node;
use railyard_store::credentials::{Deletion, Rotation, delete, rotate};
use railyard_store::crypt::{MasterKey, MasterKeys};
use railyard_testkit::{FakeRail, Http, eventually, verify};
use serde_json::json;

use crate::api::{Api, CREDENTIALS, JOBS};
use crate::world::{SECRET, SOON, TOKEN, World};

/// So that nothing but a notification or a look-up can have brought what a node knows.
const NEVER: Duration = Duration::from_secs(24 * 3600);

async fn node(world: &World) -> Node {
    world.node_with(|options| options.cache_ttl = NEVER).await
}

/// How often this node has loaded all credentials.
async fn loads(node: &Node) -> u64 {
    node.observe().await["actors"]["cacheKeeper"]["loads"].as_u64().unwrap_or(0)
}

async fn is_listening(node: &Node) -> bool {
    node.observe().await["actors"]["listener"]["connected"] == true
}

/// Puts a waiting job off, or makes it due.
async fn due(world: &World, id: OutboxId, at: &str) {
    let sql = format!("UPDATE payment_outbox_pending SET next_attempt_at = {at} WHERE outbox_id = $1");
    world.sql.execute(&sql, &[&id.0]).await.unwrap();
}

/// Waits until a job was begun and not sent for want of credentials.
async fn not_started(world: &World, id: OutboxId) {
    eventually(SOON, "an attempt that was not started", || async {
        world.history(id).await.first().is_some_and(|first| first == "NOT_STARTED/CREDENTIALS_UNAVAILABLE")
    })
    .await;
}

async fn revoke(world: &World) {
    world.sql.batch_execute("REVOKE SELECT ON dispatch_credentials FROM railyard_runtime").await.unwrap();
}

async fn grant(world: &World) {
    world.sql.batch_execute("GRANT SELECT ON dispatch_credentials TO railyard_runtime").await.unwrap();
}

/// Credentials deleted by force under waiting jobs: every node hears of it, and the jobs end in ERROR with that
/// reason, on the node that had used them as well as on one that takes over.
#[tokio::test(flavor = "multi_thread")]
async fn s3_12_a_forced_deletion_reaches_all_nodes_and_ends_the_jobs() {
    let world = World::new().await;
    let rail = FakeRail::start().await;
    let (one, two) = (node(&world).await, node(&world).await);
    let owns_all = "SELECT count(DISTINCT owner) = 1 AND count(owner) = 256 FROM partition_lease";
    eventually(SOON, "one node owns everything and both listen", || async {
        world.one::<bool>(owns_all).await && is_listening(&one).await && is_listening(&two).await
    })
    .await;
    let known = world.hook(&rail.url(), "known", |_| {}).await;
    world.ended(known).await;
    let (first, second) = (world.draft(&rail.url(), "first"), world.draft(&rail.url(), "second"));
    world
        .sql
        .batch_execute("INSERT INTO rail_switch VALUES ('rail', 'webhook', true, 'a test', 'test')")
        .await
        .unwrap();
    let ids = world.enqueue(&[first, second]).await.unwrap();
    due(&world, ids[1], "'infinity'").await;
    let before = (loads(&one).await, loads(&two).await);
    let refused = delete(&world.store, world.credentials, false, "ops").await.unwrap();
    assert!(matches!(&refused, Deletion::InUse(usage) if usage.open_work), "{refused:?}");
    assert_eq!(delete(&world.store, world.credentials, true, "ops").await.unwrap(), Deletion::Deleted);
    eventually(SOON, "both nodes have loaded again", || async {
        loads(&one).await > before.0 && loads(&two).await > before.1
    })
    .await;
    world.sql.batch_execute("DELETE FROM rail_switch").await.unwrap();
    let job = world.ended(ids[0]).await;
    assert_eq!(job.status.as_str(), "ERROR");
    assert!(job.last_error.as_ref().is_some_and(|text| text.starts_with("CREDENTIALS_DELETED")), "{job:?}");
    let owner_of = "SELECT owner::text FROM partition_lease WHERE partition_id = 0";
    let owner: String = world.one(owner_of).await;
    let mine = one.observe().await["node"]["id"].as_str().is_some_and(|id| id == owner);
    let (leaving, staying) = if mine { (one, two) } else { (two, one) };
    leaving.stop(SOON).await;
    due(&world, ids[1], "clock_timestamp()").await;
    assert_eq!(world.ended(ids[1]).await.status.as_str(), "ERROR");
    assert_eq!(world.history(ids[1]).await, ["FAILED/CREDENTIALS_DELETED"]);
    assert_eq!(rail.exchanges().len(), 1, "only what was sent before the deletion");
    staying.stop(SOON).await;
}

/// A rotation through one process reaches the other by its notification (in milliseconds, on a machine that is not
/// busy with other tests), long before its cache would be read anew after 300 s: both
/// sign with the new secret and token, and Standard Webhooks carries the signatures of both secrets.
#[tokio::test(flavor = "multi_thread")]
async fn s3_12_a_rotation_reaches_another_process_at_once() {
    const NEW: &str = "whsec_bmV3IHNlY3JldCBvZiBhIHJvdGF0aW9u";
    let api = Api::with(|sandbox| sandbox.set("cache.ttl_s", 300)).await;
    let other = api.sandbox.node().await;
    let loads = async |http: Http| {
        let node = http.get("/admin/node").await.unwrap().expect_status(200).json();
        let listens = node["actors"]["listener"]["connected"] == true;
        if listens { node["actors"]["cacheKeeper"]["loads"].as_u64().unwrap_or(0) } else { 0 }
    };
    eventually(SOON, "both listen and have loaded", || async {
        loads(api.http()).await > 0 && loads(other.http()).await > 0
    })
    .await;
    let before = (loads(api.http()).await, loads(other.http()).await);
    let body = json!({ "bearerToken": "sk_new", "signingSecret": NEW });
    let rotate = format!("{CREDENTIALS}/{}/rotate", api.credentials);
    let rotated = api.http().post(&rotate, &body).await.unwrap().expect_status(200);
    eventually(SOON, "both have loaded again", || async {
        loads(api.http()).await > before.0 && loads(other.http()).await > before.1
    })
    .await;
    assert!(rotated.json()["rotation"]["overlapUntil"].is_string(), "{}", rotated.text());
    let rail = FakeRail::start().await;
    let by_first = api.post(&api.job(&rail, "{}", &json!({}))).await.expect_status(201);
    api.ended(&by_first).await;
    // Whoever has delivered this one, the next one is the other's.
    api.node.kill9();
    let by_second = other.http().post(JOBS, &api.job(&rail, "{}", &json!({}))).await.unwrap().expect_status(201);
    let receipts = rail.await_answered(2, SOON).await;
    assert_eq!(by_second.status, 201);
    assert_eq!(verify::signature_failures(&receipts, NEW), verify::NONE);
    for secret in [SECRET, NEW] {
        assert_eq!(verify::standard_webhook_failures(&receipts, secret), verify::NONE);
    }
    assert!(receipts.iter().all(|receipt| receipt.header("Authorization") == Some("Bearer sk_new")));
}

/// Until `activeFrom` the old secret signs S3's header and the old token goes out; the new one is in effect at that
/// moment by the database's clock, whatever the caches have.
#[tokio::test(flavor = "multi_thread")]
async fn s3_12_a_rotation_takes_effect_at_its_time() {
    const NEW: &str = "whsec_bmV3IHNlY3JldCBvZiBhIHJvdGF0aW9u";
    let world = World::new().await;
    let rail = FakeRail::start().await;
    let node = node(&world).await;
    let far = world.one("SELECT clock_timestamp() + interval '1 hour'").await;
    let secret = |text: &str| Some(zeroize::Zeroizing::new(text.to_owned()));
    let mut rotation =
        Rotation { bearer_token: secret("sk_new"), signing_secret: secret(NEW), active_from: Some(far), overlap_s: 60 };
    rotate(&world.store, &world.keys, world.credentials, &rotation, "ops").await.unwrap().unwrap();
    node.flush_caches();
    let before = loads(&node).await;
    eventually(SOON, "the rotation is loaded", || async { loads(&node).await > before || before > 1 }).await;
    let early = world.hook(&rail.url(), "{}", |_| {}).await;
    world.ended(early).await;
    // The same values with another time: it moves.
    rotation.active_from = None;
    rotate(&world.store, &world.keys, world.credentials, &rotation, "ops").await.unwrap().unwrap();
    let moved = loads(&node).await;
    node.flush_caches();
    eventually(SOON, "the new time is loaded", || async { loads(&node).await > moved }).await;
    let late = world.hook(&rail.url(), "{}", |_| {}).await;
    world.ended(late).await;
    let receipts = rail.receipts();
    let [first, second] = &receipts[..] else { panic!("{} requests", receipts.len()) };
    for (receipt, secret, token) in [(first, SECRET, TOKEN), (second, NEW, "sk_new")] {
        assert_eq!(verify::signature_failures(std::slice::from_ref(receipt), secret), verify::NONE);
        assert_eq!(receipt.header("Authorization"), Some(format!("Bearer {token}").as_str()));
    }
    for secret in [SECRET, NEW] {
        assert_eq!(verify::standard_webhook_failures(&receipts, secret), verify::NONE);
    }
    node.stop(SOON).await;
}

/// A look-up that fails spends nothing and sends nothing: the job waits, and goes out signed when the look-up works.
#[tokio::test(flavor = "multi_thread")]
async fn s3_12_a_look_up_that_fails_only_waits() {
    let world = World::new().await;
    let rail = FakeRail::start().await.fails(1).then_ok();
    revoke(&world).await;
    let node = node(&world).await;
    let id = world.hook(&rail.url(), "{}", |job| job.max_attempts = 2).await;
    eventually(SOON, "two attempts that were not started", || async { world.attempts(id).await.len() >= 2 }).await;
    assert!(rail.connections().is_empty(), "nothing was sent");
    grant(&world).await;
    assert_eq!(world.ended(id).await.status.as_str(), "COMPLETED");
    let history = world.history(id).await;
    let (before, sent) = history.split_at(history.len() - 2);
    assert_eq!(sent, ["RETRYABLE/HTTP_500", "DISPATCHED"], "both deliveries were left");
    assert!(before.iter().all(|attempt| attempt == "NOT_STARTED/CREDENTIALS_UNAVAILABLE"), "{history:?}");
    assert_eq!(verify::signature_failures(&rail.receipts(), SECRET), verify::NONE);
    node.stop(SOON).await;
}

/// What a node has loaded serves on while the database refuses to give it again.
#[tokio::test(flavor = "multi_thread")]
async fn s3_12_a_reload_that_fails_leaves_what_is_known() {
    let world = World::new().await;
    let rail = FakeRail::start().await;
    let node = node(&world).await;
    eventually(SOON, "a first load", || async { loads(&node).await == 1 }).await;
    revoke(&world).await;
    node.flush_caches();
    eventually(SOON, "a load that failed", || async { node.observe().await["actors"]["cacheKeeper"]["failures"] == 1 })
        .await;
    let id = world.hook(&rail.url(), "{}", |_| {}).await;
    assert_eq!(world.ended(id).await.status.as_str(), "COMPLETED");
    assert_eq!(world.history(id).await, ["DISPATCHED"]);
    node.stop(SOON).await;
}

/// A node without the master key, or with other bytes under its name, sends nothing and spends nothing; one with the
/// right key does.
#[tokio::test(flavor = "multi_thread")]
async fn s3_12_without_the_master_key_jobs_wait() {
    let world = World::new().await;
    let rail = FakeRail::start().await;
    for (id, digits) in [("other", "17"), ("test", "5b")] {
        let keys = MasterKeys::new(vec![MasterKey::read(id, &digits.repeat(32)).unwrap()]).unwrap();
        let registry = prometheus::Registry::new();
        let options = crate::world::options();
        let node = Node::start(options, world.store.clone(), Arc::new(keys), &registry).await.unwrap();
        let job = world.hook(&rail.url(), id, |job| job.max_attempts = 1).await;
        not_started(&world, job).await;
        node.stop(SOON).await;
    }
    assert!(rail.connections().is_empty());
    assert_eq!(world.one::<i64>("SELECT count(*) FROM payment_outbox_pending WHERE failures = 0").await, 2);
    let node = node(&world).await;
    rail.await_answered(2, SOON).await;
    assert_eq!(verify::signature_failures(&rail.receipts(), SECRET), verify::NONE);
    node.stop(SOON).await;
}

/// A set that this version cannot read concerns its own jobs alone: others are delivered, and deletions still arrive.
#[tokio::test(flavor = "multi_thread")]
async fn s3_12_a_set_that_cannot_be_read_stops_no_other() {
    let world = World::new().await;
    let rail = FakeRail::start().await;
    let strange = crate::world::credentials(&world.store, &world.keys).await;
    let node = node(&world).await;
    eventually(SOON, "the node listens", || async { is_listening(&node).await }).await;
    let later = "UPDATE dispatch_credentials SET schemes = '{of-a-later-version}' WHERE credentials_id = $1";
    world.sql.execute(later, &[&strange.0]).await.unwrap();
    let before = loads(&node).await;
    node.flush_caches();
    let waiting = world.hook(&rail.url(), "waits", |job| job.credentials_id = Some(strange)).await;
    let ended = world.hook(&rail.url(), "goes", |_| {}).await;
    assert_eq!(world.ended(ended).await.status.as_str(), "COMPLETED");
    not_started(&world, waiting).await;
    assert_eq!(delete(&world.store, world.credentials, true, "ops").await.unwrap(), Deletion::Deleted);
    eventually(SOON, "the deletion is loaded", || async { loads(&node).await > before + 1 }).await;
    assert_eq!(rail.exchanges().len(), 1);
    node.stop(SOON).await;
}
