//! The rest of S0 with nodes: workers that die, kinds of work that are slow, other types, answers of the database that are lost.

use std::time::Duration;

use railyard_store::{Store, StoreConfig};
use railyard_testkit::{Cut, FakeRail, FaultProxy, Mode, Moment, eventually, verify};

use crate::fleet::{Fleet, LATER};
use crate::matrix::address_in;
use crate::producer::Item;
use crate::s0_dispatch::{accept, completed, fleet_of, payment};
use crate::world::{SECRET, SOON, World};

/// A node that dies with a call under way: the outbox heals it, and what that means its rail says.
#[tokio::test(flavor = "multi_thread")]
async fn s0_24_an_item_whose_worker_died_is_executed_or_held_and_never_stuck() {
    for idempotent in [true, false] {
        let rail = FakeRail::start().await;
        let fleet = fleet_of(&rail, idempotent).await;
        let dying = fleet.node("dying");
        dying.set_failpoint("after_call");
        dying.start();
        dying.await_ready().await;
        accept(&fleet.world.store, &[payment("a", 0)]).await;
        eventually(LATER, "it has called and died", || async { !dying.is_running() }).await;
        assert_eq!(rail.receipts().len(), 1);
        let status = "SELECT queue_status FROM payment_exec_queue";
        assert_eq!(fleet.world.one::<String>(status).await, "DISPATCHED");
        // Nobody has to wait for the deadline of a call whose caller is dead.
        fleet.world.sql.batch_execute("UPDATE in_flight SET call_deadline = clock_timestamp()").await.unwrap();
        let other = fleet.ready("other").await;
        if idempotent {
            completed(&fleet.world, 1).await;
            assert_eq!(rail.receipts().len(), 2, "in doubt, so again, under the same key");
        } else {
            eventually(LATER, "a person has to decide", || async {
                let held = "SELECT count(*) FROM group_hold WHERE kind = 'in_doubt'";
                fleet.world.one::<i64>(held).await == 1
            })
            .await;
            assert_eq!((fleet.world.one::<String>(status).await.as_str(), rail.receipts().len()), ("DISPATCHED", 1));
        }
        drop(other);
    }
}

/// Four calls at once, twenty messages of one kind that nobody answers, and a dozen of the other kind.
#[tokio::test(flavor = "multi_thread")]
async fn s0_36_a_kind_of_work_that_nobody_answers_keeps_none_of_the_other_waiting() {
    for payments_hang in [false, true] {
        let slow = [
            FakeRail::start().await.otherwise().silence().forever(),
            FakeRail::start().await.otherwise().silence().forever(),
        ];
        let quick = FakeRail::start().await;
        let world = World::new().await;
        let node = world
            .node_with(|options| {
                options.calls_in_flight = 4;
                options.credits = 8;
            })
            .await;
        let item = |hangs: bool, url: &str, id: &str| match hangs == payments_hang {
            true => Item::payment(&world, url, id, id),
            false => Item::webhook(&world, url, id, id),
        };
        for n in 0..20 {
            item(true, &slow[n % 2].url(), &format!("slow-{n}")).by(&world.sql).await.unwrap();
        }
        eventually(SOON, "as many are open as may be", || async { open(&slow) == 4 }).await;
        for n in 0..12 {
            item(false, &quick.url(), &format!("quick-{n}")).by(&world.sql).await.unwrap();
        }
        quick.await_receipts(12, SOON).await;
        assert_eq!(open(&slow), 4, "none of these has ended meanwhile");
        drop(node);
    }
}

fn open(rails: &[FakeRail]) -> usize {
    rails.iter().map(|rail| rail.exchanges().len()).sum()
}

/// Invoices by an executor of their own, parcels by nothing but a row: both are dispatched as payments are.
#[tokio::test(flavor = "multi_thread")]
async fn s0_35_another_type_is_a_row_and_an_executor_or_a_row_alone() {
    let (post, books) = (FakeRail::start().await, FakeRail::start().await);
    let fleet = Fleet::with(|sandbox| sandbox).await;
    let file = fleet.sandbox.config_file();
    let mut text = std::fs::read_to_string(&file).unwrap();
    for (name, rail) in [("post", &post), ("books", &books)] {
        text += &format!(
            "\n[rails.{name}]\nkind = \"webhook\"\ntarget_url = \"{}\"\ncredentials_id = \"{}\"\n",
            rail.url(),
            fleet.world.credentials
        );
    }
    std::fs::write(&file, text).unwrap();
    let rows = "INSERT INTO exec_rate_config (item_type, exec_workflow_type, exec_task_queue, rate_config, jitter_window_ms, dispatch_interval_secs, step_rails)
                VALUES ('INVOICE', 'InvoiceExecWorkflow', 'post', 'payments', 0, 1, '{\"BOOK\": \"books\"}'),
                       ('PARCEL', 'PostContext', 'books', 'payments', 0, 1, '{}');
                INSERT INTO payment_exec_context VALUES ('INVOICE', 'i', '{\"total\": 12345678901234567890.10}', 1),
                                                        ('PARCEL', 'p', '{\"weight\": 0.10}', 1);
                SELECT exec_enqueue('INVOICE', '{i}', '{customer}', ARRAY[clock_timestamp()], ARRAY[clock_timestamp()], '{}');
                SELECT exec_enqueue('PARCEL', '{p}', '{customer}', ARRAY[clock_timestamp()], ARRAY[clock_timestamp()], '{}')";
    fleet.world.sql.batch_execute(rows).await.unwrap();
    let node = fleet.ready("a").await;
    eventually(LATER, "both are completed", || async {
        fleet.world.one::<i64>("SELECT count(*) FROM payment_exec_queue WHERE queue_status = 'COMPLETED'").await == 2
    })
    .await;
    let bodies = |rail: &FakeRail| {
        let mut bodies: Vec<String> =
            rail.receipts().iter().map(|receipt| String::from_utf8(receipt.body.to_vec()).unwrap()).collect();
        bodies.sort_unstable();
        bodies
    };
    let (invoice, parcel) = ("{\"total\": 12345678901234567890.10}", "{\"weight\": 0.10}");
    assert_eq!(
        (bodies(&post), bodies(&books)),
        (vec![invoice.to_owned()], vec![invoice.to_owned(), parcel.to_owned()])
    );
    for rail in [&post, &books] {
        assert_eq!(verify::signature_failures(&rail.receipts(), SECRET), verify::NONE);
    }
    let jobs = "SELECT array_agg(type || ' ' || idempotency_key ORDER BY type) FROM dispatch_job";
    let expected = ["invoice.book exec-invoice-i/BOOK", "invoice.send exec-invoice-i", "item.execute exec-parcel-p"]
        .map(str::to_owned);
    assert_eq!(fleet.world.one::<Vec<String>>(jobs).await, expected);
    // S0-33: all figures, under both paths.
    for path in ["/metrics", "/q/metrics"] {
        let shown = node.http().get(path).await.unwrap().expect_status(200).text();
        for name in [
            "dispatch_batch_claimed_total 2",
            "dispatch_workflow_started_total 2",
            "dispatch_workflow_start_failures_total 0",
            "dispatch_stale_recovered_total 0",
            "dispatch_dead_letter_total 0",
            "dispatch_cycle_duration_seconds_count",
            "dispatch_queue_depth{status=\"READY\"}",
        ] {
            assert!(shown.contains(name), "{path}: {name} is not in\n{shown}");
        }
    }
}

/// A type that nobody can execute and one whose item has lost its context: both are told, and payments go on.
#[tokio::test(flavor = "multi_thread")]
async fn s0_07_s0_20_s0_33_a_type_that_fails_is_told_and_keeps_no_other_from_going_on() {
    let rail = FakeRail::start().await;
    let fleet = fleet_of(&rail, true).await;
    let rows = "INSERT INTO exec_rate_config (item_type, exec_workflow_type, exec_task_queue, rate_config, jitter_window_ms, dispatch_interval_secs, max_dispatch_retries)
                VALUES ('BROKEN', 'NobodysWorkflow', 'payment_webhook', 'payments', 0, 1, 1),
                       ('PARCEL', 'PostContext', 'payment_webhook', 'payments', 0, 1, 1);
                SELECT exec_enqueue('PARCEL', '{p}', '{customer}', ARRAY[clock_timestamp()], ARRAY[clock_timestamp()], '{}')";
    fleet.world.sql.batch_execute(rows).await.unwrap();
    accept(&fleet.world.store, &[payment("a", 0)]).await;
    let node = fleet.ready("a").await;
    completed(&fleet.world, 1).await;
    eventually(LATER, "the parcel is given up", || async {
        let dead = "SELECT count(*) FROM payment_exec_queue WHERE item_type = 'PARCEL' AND queue_status = 'DEAD_LETTER'
                    AND retry_count = 1";
        fleet.world.one::<i64>(dead).await == 1
    })
    .await;
    eventually(LATER, "both are told", || async {
        let shown = node.http().get("/metrics").await.unwrap().text();
        shown.contains("dispatch_workflow_start_failures_total 1")
            && shown.contains("dispatch_dead_letter_total 1")
            && shown.contains("dispatch_queue_depth{status=\"DEAD_LETTER\"} 1")
            && node.log().contains("NobodysWorkflow")
    })
    .await;
    assert_eq!(rail.receipts().len(), 1);
}

/// A database that many payments are in, by a way that can be cut.
async fn by_a_way() -> (World, FakeRail, FaultProxy, Store) {
    let rail = FakeRail::start().await;
    let world = World::new().await;
    let proxy = FaultProxy::postgres(address_in(world.db.url())).await;
    let store = Store::new(StoreConfig::at(&proxy.url(world.db.url()))).unwrap();
    let set = format!(
        "UPDATE rail SET target_url = '{}', credentials_id = '{}' WHERE rail_type = 'payment_webhook';
         UPDATE exec_rate_config SET dispatch_interval_secs = 1, jitter_window_ms = 0, batch_size = 4;
         UPDATE rate_limit_config SET max_per_window = 100000",
        rail.url(),
        world.credentials
    );
    world.sql.batch_execute(&set).await.unwrap();
    (world, rail, proxy, store)
}

async fn nothing_was_counted(world: &World) {
    let counted = "SELECT sum(retry_count) + (SELECT count(*) FROM dispatch_audit_log WHERE action IN ('STALE_RECOVERY', 'DISPATCH_FAILED'))
                   FROM payment_exec_queue";
    assert_eq!(world.one::<i64>(counted).await, 0);
}

/// What the claim's answer would have said is asked for by its name.
#[tokio::test(flavor = "multi_thread")]
async fn s0_40_a_claim_whose_answer_is_lost_costs_no_retry() {
    let (world, rail, proxy, store) = by_a_way().await;
    let all: Vec<_> = (0..12).map(|n| payment(&format!("p{n}"), n % 4)).collect();
    accept(&world.store, &all).await;
    proxy.cut_around(Moment::BeforeItsAnswer, Cut::Reset, 2, |sql| sql.contains("dispatch_claim("));
    let node = world.node_on(store, |_| {}).await;
    completed(&world, 12).await;
    assert_eq!((proxy.counters().statement_cuts, rail.receipts().len()), (2, 12));
    nothing_was_counted(&world).await;
    drop(node);
}

/// The database goes away in the middle of it all, twice: cycles fail without a word to anybody, and the next ones go on.
#[tokio::test(flavor = "multi_thread")]
async fn s0_40_cycles_go_on_where_the_database_was_away() {
    let (world, rail, proxy, store) = by_a_way().await;
    let node = world.node_on(store, |_| {}).await;
    for round in 0..2 {
        let all: Vec<_> = (0..12).map(|n| payment(&format!("r{round}p{n}"), n % 4)).collect();
        accept(&world.store, &all).await;
        rail.await_receipts(round * 12 + 4, LATER).await;
        proxy.set(Mode::Refuse);
        proxy.cut(Cut::Reset);
        let cut = proxy.counters().connections;
        eventually(SOON, "the node tries to reach it", || async { proxy.counters().connections >= cut + 2 }).await;
        proxy.set(Mode::Pass);
        completed(&world, 12 * (i64::try_from(round).unwrap() + 1)).await;
    }
    assert_eq!(rail.receipts().len(), 24, "each arrives once");
    nothing_was_counted(&world).await;
    drop(node);
}

/// A batch that takes the database longer than a statement may: half as many are claimed, down to what it takes in time,
/// and more again once it is quick.
#[tokio::test(flavor = "multi_thread")]
async fn s0_09_a_batch_that_takes_the_database_too_long_is_halved_and_grows_again() {
    let (world, rail, slow) = (World::new().await, FakeRail::start().await, Duration::from_secs(2));
    let store = StoreConfig { statement_timeout: slow, lock_timeout: slow / 2, ..StoreConfig::at(world.db.url()) };
    let set = format!(
        "UPDATE rail SET target_url = '{}', credentials_id = '{}' WHERE rail_type = 'payment_webhook';
         UPDATE exec_rate_config SET dispatch_interval_secs = 1, jitter_window_ms = 0, batch_size = 20;
         UPDATE rate_limit_config SET max_per_window = 100000;
         CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$
         BEGIN PERFORM pg_sleep(0.08); RETURN NEW; END $$;
         CREATE TRIGGER slow BEFORE INSERT ON exec_step FOR EACH ROW EXECUTE FUNCTION slow()",
        rail.url(),
        world.credentials
    );
    world.sql.batch_execute(&set).await.unwrap();
    // Three steps each: twenty take 4.8 s, ten 2.4, five 1.2, which is no reason to try more.
    let first: Vec<_> = (0..20).map(|n| payment(&format!("first-{n}"), n % 4)).collect();
    accept(&world.store, &first).await;
    let node = world.node_on(Store::new(store).unwrap(), |_| {}).await;
    completed(&world, 20).await;
    let largest = "SELECT max(n) FROM (SELECT count(*) AS n FROM dispatch_audit_log WHERE action = 'DISPATCHED' GROUP BY batch_id) b";
    let so_far: i64 = world.one(largest).await;
    assert!(so_far <= 5, "{so_far} at once");
    nothing_was_counted(&world).await;
    world.sql.batch_execute("DROP TRIGGER slow ON exec_step").await.unwrap();
    let second: Vec<_> = (0..60).map(|n| payment(&format!("second-{n}"), n % 4)).collect();
    accept(&world.store, &second).await;
    completed(&world, 80).await;
    let then: i64 = world.one(largest).await;
    assert!(then > 5, "{then} at once is no more than while it was slow");
    nothing_was_counted(&world).await;
    assert_eq!(rail.receipts().len(), 80, "each arrives once");
    drop(node);
}

/// A row that nobody can read: its type stands still and has no turn, the log says which field it is, and others go on.
#[tokio::test(flavor = "multi_thread")]
async fn s0_07_a_row_that_cannot_be_read_takes_no_turn_and_its_field_is_named() {
    let rail = FakeRail::start().await;
    let fleet = fleet_of(&rail, true).await;
    let parcel = "INSERT INTO exec_rate_config (item_type, exec_workflow_type, exec_task_queue, rate_config, jitter_window_ms, dispatch_interval_secs)
                  VALUES ('PARCEL', 'PostContext', 'nowhere', 'payments', 0, 1);
                  INSERT INTO payment_exec_context VALUES ('PARCEL', 'p', '{\"debtor\": {\"iban\": \"x\"}, \"paymentId\": \"p\", \"amount\": \"1\", \"currency\": \"EUR\", \"destination\": \"y\"}', 1);
                  SELECT exec_enqueue('PARCEL', '{p}', '{customer}', ARRAY[clock_timestamp()], ARRAY[clock_timestamp()], '{}')";
    fleet.world.sql.batch_execute(parcel).await.unwrap();
    let node = fleet.ready("a").await;
    eventually(LATER, "the field is named", || async {
        node.log().contains("exec_rate_config of item type PARCEL: exec_task_queue names")
    })
    .await;
    accept(&fleet.world.store, &[payment("a", 0), payment("b", 1)]).await;
    completed(&fleet.world, 2).await;
    assert_eq!(fleet.world.one::<i64>("SELECT count(*) FROM exec_turn WHERE item_type = 'PARCEL'").await, 0);
    let untouched = "SELECT count(*) FROM payment_exec_queue
                     WHERE item_type = 'PARCEL' AND queue_status = 'READY' AND retry_count = 0";
    assert_eq!(fleet.world.one::<i64>(untouched).await, 1, "a name that is wrong costs nobody a retry");
    let mend = "UPDATE exec_rate_config SET exec_task_queue = 'payment_webhook' WHERE item_type = 'PARCEL'";
    fleet.world.sql.batch_execute(mend).await.unwrap();
    eventually(LATER, "it goes on once it is put right", || async {
        fleet.world.one::<i64>("SELECT count(*) FROM payment_exec_queue WHERE queue_status = 'COMPLETED'").await == 3
    })
    .await;
    drop(node);
}
