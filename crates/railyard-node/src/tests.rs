//! The tree survives its own death: any actor may be killed at any time, and what was committed is delivered.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use prometheus::Registry;
use ractor::{ActorRef, Message};
use railyard_core::job::NewJob;
use railyard_core::rail::RailKind;
use railyard_core::{CredentialsId, ParticipantId};
use railyard_rail::{HttpOptions, LimitOptions, RailOptions};
use railyard_store::credentials::{self, NewCredentials, Scheme};
use railyard_store::crypt::{MasterKey, MasterKeys};
use railyard_store::{Store, StoreConfig, jobs, migrate};
use railyard_testkit::{FakeRail, TestDb, eventually, verify};
use zeroize::Zeroizing;

use crate::{Node, NodeOptions};

const SOON: Duration = Duration::from_secs(30);

struct World {
    _db: TestDb,
    store: Store,
    keys: Arc<MasterKeys>,
    credentials: CredentialsId,
    rail: FakeRail,
}

impl World {
    async fn new() -> Self {
        let db = TestDb::from_template(&migrate::fingerprint(), |url| async move {
            migrate::migrate(&url).await.unwrap();
        })
        .await;
        let store = Store::new(StoreConfig::at(db.url())).unwrap();
        let keys = MasterKeys::new(vec![MasterKey::read("test", &"5a".repeat(32)).unwrap()]).unwrap();
        let new = NewCredentials {
            name: None,
            bearer_token: Zeroizing::new("token".to_owned()),
            signing_secret: Zeroizing::new("secret".to_owned()),
            schemes: vec![Scheme::Flowcatalyst],
        };
        let credentials = credentials::create(&store, &keys, &new, "test").await.unwrap().credentials_id;
        Self { _db: db, store, keys: Arc::new(keys), credentials, rail: FakeRail::start().await }
    }

    async fn node(&self) -> Node {
        // Under a limit that keeps nobody waiting for long: its actors are there to be killed, too.
        let limit = Some(LimitOptions { starts: 500, window_ms: 1000 });
        let webhook = RailOptions { limit, ..RailOptions::new(RailKind::Webhook) };
        let rails = BTreeMap::from([("webhook".to_owned(), webhook)]);
        let mut options = NodeOptions::named("test", rails);
        options.lease = Duration::from_secs(3);
        options.renewal = Duration::from_millis(500);
        options.slack = Duration::from_secs(1);
        options.http = HttpOptions { allow_networks: vec!["127.0.0.0/8".parse().unwrap()], ..HttpOptions::default() };
        Node::start(options, self.store.clone(), Arc::clone(&self.keys), &Registry::new()).await.unwrap()
    }

    /// `count` messages over five groups, with a short deadline: what is in doubt is healed soon.
    async fn enqueue(&self, count: usize) {
        for n in 0..count {
            let payload = bytes::Bytes::from(format!("{{\"n\":{n}}}"));
            let mut job = NewJob::new("test", "test.sent", RailKind::Webhook, &self.rail.url(), payload);
            job.group = Some(ParticipantId::new(format!("g{}", n % 5)));
            job.credentials_id = Some(self.credentials);
            job.timeout_s = 1;
            job.max_attempts = 20;
            jobs::create(&self.store, &[job]).await.unwrap();
        }
    }

    async fn all_ended(&self) {
        let conn = self.store.api().await.unwrap();
        eventually(SOON, "everything ended", || async {
            let left = "SELECT (SELECT count(*) FROM payment_outbox_pending) + (SELECT count(*) FROM in_flight)";
            conn.query_one(left, &[]).await.unwrap().get::<_, i64>(0) == 0
        })
        .await;
    }
}

fn kill<M: Message>(actor: Option<Arc<ActorRef<M>>>) {
    actor.expect("the actor was there").get_cell().kill();
}

/// Each actor in turn is killed while messages are under way; all arrive, in order, and each repeat is on record.
#[tokio::test(flavor = "multi_thread")]
async fn every_actor_may_be_killed() {
    let world = World::new().await;
    let rail = world.rail.clone().each_message().ok().delay(Duration::from_millis(30)).forever();
    let node = world.node().await;
    let actors = &node.context.actors;
    for victim in 0..9 {
        world.enqueue(30).await;
        rail.await_receipts(30 * victim + 5, SOON).await;
        match victim {
            0 => kill(actors.cache_keeper.actor()),
            1 => kill(actors.settler.actor()),
            2 => kill(actors.lease_keeper.actor()),
            3 => kill(actors.callers.actor()),
            4 => kill(actors.buffer.actor()),
            5 => kill(actors.poller.actor()),
            6 => kill(actors.listener.actor()),
            7 => kill(actors.governor.actor()),
            _ => kill(actors.reaper.actor()),
        }
        world.all_ended().await;
    }
    let receipts = rail.receipts();
    assert_eq!(verify::order_violations(&receipts), Vec::<String>::new());
    let conn = world.store.api().await.unwrap();
    let repeats = i64::try_from(receipts.len()).unwrap() - 270;
    let explained = "SELECT count(*) FROM payment_outbox_attempts WHERE state IN ('ZOMBIE_REQUEUE', 'RETRYABLE')";
    let explained: i64 = conn.query_one(explained, &[]).await.unwrap().get(0);
    assert!((0..=explained).contains(&repeats), "{repeats} repeats, {explained} on record");
    let completed = "SELECT count(*) FROM dispatch_job_outcome WHERE status = 'COMPLETED'";
    assert_eq!(conn.query_one(completed, &[]).await.unwrap().get::<_, i64>(0), 270);
    node.stop(SOON).await;
}
