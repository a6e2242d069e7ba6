//! S0 with nodes: payments that come due are claimed by one dispatcher at a time, handed over, and executed in order.

use std::collections::BTreeMap;

use railyard_core::payment::{Payment, PaymentRequest};
use railyard_store::Store;
use railyard_store::payments::{self, Accepted};
use railyard_testkit::{FakeRail, NodeProcess, eventually};
use serde_json::Value;

use crate::fleet::{Fleet, LATER};
use crate::world::{SOON, World};

const DEBTORS: [&str; 4] =
    ["DE89370400440532013000", "GB82WEST12345698765432", "CH9300762011623852957", "FR1420041010050500013M02606"];

/// Nodes whose payments go to this receiver, by a rail that may repeat what is in doubt.
pub(crate) async fn fleet(rail: &FakeRail) -> Fleet {
    fleet_of(rail, true).await
}

/// The same by a rail that may, or may not.
pub(crate) async fn fleet_of(rail: &FakeRail, idempotent: bool) -> Fleet {
    let url = rail.url();
    let toml = |credentials: &str| {
        format!(
            "[rails.payment_webhook]\nkind = \"payment\"\nidempotent = {idempotent}\ntarget_url = \"{url}\"\ncredentials_id = \"{credentials}\"\n"
        )
    };
    // The rail's signer is known once the world is there: nodes read the file when they start.
    let fleet = Fleet::with(|sandbox| sandbox.set("reaper.zombies_max", 100)).await;
    let file = fleet.sandbox.config_file();
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, format!("{text}\n{}", toml(&fleet.world.credentials.to_string()))).unwrap();
    let set = "UPDATE exec_rate_config SET dispatch_interval_secs = 1, jitter_window_ms = 200, batch_size = 20;
               UPDATE rate_limit_config SET max_per_window = 100000";
    fleet.world.sql.batch_execute(set).await.unwrap();
    fleet
}

async fn nodes(fleet: &Fleet) -> Vec<NodeProcess> {
    let nodes = vec![fleet.node("a"), fleet.node("b"), fleet.node("c")];
    nodes.iter().for_each(NodeProcess::start);
    for node in &nodes {
        node.await_ready().await;
    }
    nodes
}

pub(crate) fn payment(id: &str, debtor: usize) -> Payment {
    let request = PaymentRequest {
        payment_id: id.to_owned(),
        debtor_name: "Anna".to_owned(),
        debtor_iban: DEBTORS[debtor].to_owned(),
        creditor_name: "Bert".to_owned(),
        creditor_iban: "ES9121000418450200051332".to_owned(),
        amount: "99.90".to_owned(),
        currency: "EUR".to_owned(),
        ..PaymentRequest::default()
    };
    request.validate().unwrap()
}

pub(crate) async fn accept(store: &Store, payments: &[Payment]) {
    for answer in payments::accept(store, payments, "test").await {
        assert!(matches!(answer, Accepted::Enqueued(_)), "{answer:?}");
    }
}

pub(crate) async fn completed(world: &World, count: i64) {
    // A call of a killed node is in doubt until its deadline, which is half a minute.
    eventually(LATER * 2, "all are PROCESSING and COMPLETED", || async {
        let sql = "SELECT count(*) FROM payment p JOIN payment_exec_queue q USING (payment_id)
                   WHERE p.status = 'PROCESSING' AND q.queue_status = 'COMPLETED'";
        world.one::<i64>(sql).await == count
    })
    .await;
}

/// Ids in the order of their first receipt, by debtor.
fn by_debtor(rail: &FakeRail) -> BTreeMap<String, Vec<String>> {
    let mut seen: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for receipt in rail.receipts() {
        let payload: Value = serde_json::from_slice(&receipt.body).unwrap();
        let of_debtor = seen.entry(payload["debtor"]["iban"].as_str().unwrap().to_owned()).or_default();
        let id = payload["paymentId"].as_str().unwrap().to_owned();
        if !of_debtor.contains(&id) {
            of_debtor.push(id);
        }
    }
    seen
}

/// Many at one instant, batch by batch, while a node is killed: each is executed, in order per debtor.
#[tokio::test(flavor = "multi_thread")]
async fn s0_29_s0_37_payments_of_one_instant_are_drained_in_order_while_a_node_dies() {
    let rail = FakeRail::start().await;
    let fleet = fleet(&rail).await;
    let all: Vec<Payment> = (0..80).map(|n| payment(&format!("p{n:03}"), n % 4)).collect();
    accept(&fleet.world.store, &all).await;
    fleet
        .world
        .sql
        .batch_execute(
            "UPDATE payment_exec_queue SET scheduled_exec_time = now() + acceptance_no * interval '1 microsecond'",
        )
        .await
        .unwrap();
    let nodes = nodes(&fleet).await;
    rail.await_receipts(10, LATER).await;
    nodes[0].kill9();
    // Whatever it had claimed is stale at once; the tables know nothing of how long the test can wait.
    fleet.world.sql.batch_execute("UPDATE payment_exec_queue SET claimed_at = claimed_at - interval '5 minutes' WHERE queue_status = 'CLAIMED'").await.unwrap();
    completed(&fleet.world, 80).await;
    for (debtor, ids) in by_debtor(&rail) {
        let mut sorted = ids.clone();
        sorted.sort_unstable();
        assert_eq!(ids, sorted, "{debtor}");
        assert_eq!(ids.len(), 20, "{debtor}");
    }
    // One batch a second at most, and none larger than it may be.
    let largest: i64 = fleet.world.one("SELECT max(n) FROM (SELECT count(*) AS n FROM dispatch_audit_log WHERE action = 'DISPATCHED' GROUP BY batch_id) b").await;
    assert!(largest <= 20, "{largest}");
    let span = "SELECT extract(epoch FROM max(at) - min(at))::float8 - count(*) + 1
                FROM (SELECT min(claimed_at) AS at FROM payment_exec_queue GROUP BY dispatch_batch_id) b";
    let slack: f64 = fleet.world.one(span).await;
    // From turn to turn it is a second; how late in its cycle the first one claimed is taken off.
    assert!(slack > -1.0, "the claims are {slack} s apart from one a second");
}

/// A dispatcher that dies between claim and hand-over: what it had claimed is executed all the same, once.
#[tokio::test(flavor = "multi_thread")]
async fn s0_39_what_a_dead_dispatcher_had_claimed_is_executed_once() {
    let rail = FakeRail::start().await;
    let fleet = fleet(&rail).await;
    let dying = fleet.node("dying");
    dying.set_failpoint("dispatch_claimed");
    dying.start();
    dying.await_ready().await;
    let all: Vec<Payment> = (0..8).map(|n| payment(&format!("p{n}"), n % 4)).collect();
    accept(&fleet.world.store, &all).await;
    let claimed = "SELECT count(*) FROM payment_exec_queue WHERE queue_status = 'CLAIMED'";
    eventually(LATER, "it has claimed and died", || async {
        fleet.world.one::<i64>(claimed).await > 0 && !dying.is_running()
    })
    .await;
    let other = fleet.ready("other").await;
    fleet.world.sql.batch_execute("UPDATE payment_exec_queue SET claimed_at = claimed_at - interval '5 minutes' WHERE queue_status = 'CLAIMED'").await.unwrap();
    completed(&fleet.world, 8).await;
    assert_eq!(rail.receipts().len(), 8);
    let recovered: i64 =
        fleet.world.one("SELECT count(*) FROM dispatch_audit_log WHERE action = 'STALE_RECOVERY'").await;
    assert!(recovered > 0);
    // S0-33: whoever found them counts them.
    let shown = other.http().get("/metrics").await.unwrap().text();
    assert!(shown.contains(&format!("dispatch_stale_recovered_total {recovered}")), "{shown}");
    drop(other);
}

/// The database does not take a batch for a while: it is kept, and costs its items no retry.
#[tokio::test(flavor = "multi_thread")]
async fn s0_40_a_batch_that_the_database_would_not_take_is_handed_over_later() {
    let rail = FakeRail::start().await;
    let fleet = fleet(&rail).await;
    let busy = "CREATE SEQUENCE tried;
                CREATE FUNCTION busy() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
                BEGIN PERFORM nextval('public.tried'); RAISE EXCEPTION 'busy' USING ERRCODE = '55P03'; END $$;
                CREATE TRIGGER busy BEFORE INSERT ON exec_step FOR EACH ROW EXECUTE FUNCTION busy()";
    fleet.world.sql.batch_execute(busy).await.unwrap();
    let node = fleet.ready("a").await;
    accept(&fleet.world.store, &[payment("a", 0), payment("b", 1)]).await;
    eventually(LATER, "it was tried again", || async {
        fleet.world.one::<i64>("SELECT last_value FROM tried").await >= 3
    })
    .await;
    fleet.world.sql.batch_execute("DROP TRIGGER busy ON exec_step").await.unwrap();
    completed(&fleet.world, 2).await;
    let counted: i64 = fleet.world.one("SELECT sum(retry_count) + (SELECT count(*) FROM dispatch_audit_log WHERE action = 'STALE_RECOVERY') FROM payment_exec_queue").await;
    assert_eq!(counted, 0);
    drop(node);
}

/// The switch, by SQL: nothing more is claimed from the next cycle on, and it goes on where it stopped.
#[tokio::test(flavor = "multi_thread")]
async fn s0_08_the_switch_of_a_type_holds_what_is_ready() {
    let rail = FakeRail::start().await;
    let fleet = fleet(&rail).await;
    fleet.world.sql.batch_execute("UPDATE exec_rate_config SET enabled = 0").await.unwrap();
    let node = fleet.ready("a").await;
    accept(&fleet.world.store, &[payment("a", 0), payment("b", 1)]).await;
    // A cycle of another type goes on meanwhile, and shows that this one had its chance.
    let invoice = "INSERT INTO exec_rate_config (item_type, exec_workflow_type, exec_task_queue, rate_config, jitter_window_ms, dispatch_interval_secs)
                   VALUES ('INVOICE', 'PostContext', 'payment_webhook', 'payments', 0, 1);
                   INSERT INTO payment_exec_context VALUES ('INVOICE', 'i', '{\"debtor\": {\"iban\": \"x\"}, \"paymentId\": \"i\", \"amount\": \"1\", \"currency\": \"EUR\", \"destination\": \"y\"}', 1);
                   SELECT exec_enqueue('INVOICE', '{i}', '{customer}', ARRAY[clock_timestamp()], ARRAY[clock_timestamp()], '{}')";
    fleet.world.sql.batch_execute(invoice).await.unwrap();
    rail.await_receipts(1, LATER).await;
    assert_eq!(rail.receipts().len(), 1);
    assert_eq!(fleet.world.one::<i64>("SELECT count(*) FROM payment_exec_queue WHERE queue_status = 'READY'").await, 2);
    fleet.world.sql.batch_execute("UPDATE exec_rate_config SET enabled = 1").await.unwrap();
    completed(&fleet.world, 2).await;
    let shown = node.http().get("/metrics").await.unwrap().text();
    assert!(shown.contains("dispatch_workflow_started_total 3"), "{shown}");
    eventually(SOON, "the depth is shown", || async {
        node.http().get("/metrics").await.unwrap().text().contains("dispatch_queue_depth{status=\"READY\"} 0")
    })
    .await;
}
