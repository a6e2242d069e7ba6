//! Phase A against a database.

use std::time::Duration;

use futures_util::future::join_all;
use jiff::{SignedDuration, Timestamp};
use railyard_core::payment::{Payment, PaymentRequest, PaymentStatus, QueueStatus, Step};
use serde_json::Value;

use super::*;
use crate::testing::TestStore;
use crate::{Store, StoreConfig};

mod later;

/// IBANs of five debtors.
const DEBTORS: [&str; 5] = [
    "DE89370400440532013000",
    "GB82WEST12345698765432",
    "FR1420041010050500013M02606",
    "NL91ABNA0417164300",
    "CH9300762011623852957",
];

fn request(id: &str) -> PaymentRequest {
    PaymentRequest {
        payment_id: id.to_owned(),
        debtor_name: "Anna Example".to_owned(),
        debtor_iban: DEBTORS[0].to_owned(),
        creditor_name: "Bert Example".to_owned(),
        creditor_iban: "ES9121000418450200051332".to_owned(),
        amount: "99.90".to_owned(),
        currency: "EUR".to_owned(),
        ..PaymentRequest::default()
    }
}

fn payment(id: &str) -> Payment {
    request(id).validate().unwrap()
}

/// The database's clock is the machine's; within a year from now, and far from it.
async fn ahead(t: &TestStore, seconds: i64) -> Timestamp {
    t.one::<Timestamp>("SELECT date_trunc('minute', clock_timestamp()) + interval '1 day'").await
        + SignedDuration::from_secs(seconds)
}

async fn one(t: &TestStore, payment: Payment) -> Accepted {
    accept(&t.store, &[payment], "test").await.remove(0)
}

#[track_caller]
fn enqueued(answer: &Accepted) -> &Enqueued {
    let Accepted::Enqueued(enqueued) = answer else { panic!("{answer:?}") };
    enqueued
}

/// Payments, contexts, queue rows and confirmed slots.
async fn rows(t: &TestStore) -> [i64; 4] {
    let row = t
        .sql
        .query_one(
            "SELECT (SELECT count(*) FROM payment), (SELECT count(*) FROM payment_exec_context),
                    (SELECT count(*) FROM payment_exec_queue),
                    (SELECT count(*) FROM rate_limit_event_slot WHERE confirm_by IS NULL)",
            &[],
        )
        .await
        .unwrap();
    [0, 1, 2, 3].map(|column| row.get(column))
}

/// From now on, rows of this id cannot be written to this table.
async fn break_table(t: &TestStore, table: &str, id: &str) {
    let sql = format!(
        "CREATE FUNCTION boom() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'boom'; END $$;
         CREATE TRIGGER boom BEFORE INSERT ON {table} FOR EACH ROW WHEN (NEW.payment_id = '{id}') EXECUTE FUNCTION boom()"
    );
    t.sql.batch_execute(&sql).await.unwrap();
}

async fn mend_table(t: &TestStore, table: &str) {
    t.sql.batch_execute(&format!("DROP TRIGGER boom ON {table}; DROP FUNCTION boom()")).await.unwrap();
}

#[tokio::test]
async fn s0_01_a_payment_is_scheduled_with_its_context_and_ready() {
    let t = TestStore::new().await;
    let requested = ahead(&t, 0).await;
    let answer = one(&t, Payment { requested_time: Some(requested), ..payment("a") }).await;
    let place = enqueued(&answer).clone();
    assert_eq!((place.requested, place.acceptance_no), (requested, 1));
    assert!(place.scheduled >= requested && place.scheduled < requested + SignedDuration::from_secs(5));
    assert_eq!(rows(&t).await, [1, 1, 1, 1]);
    let row = get(&t.store, "a").await.unwrap().unwrap();
    assert_eq!((row.status, row.queue_status), (PaymentStatus::Scheduled, QueueStatus::Ready));
    assert_eq!((row.amount.as_str(), row.scheduled, row.accepted_by.as_str()), ("99.90", place.scheduled, "test"));
    assert_eq!(row.group, payment("a").group());
    let context: Value = t.one("SELECT context_json FROM payment_exec_context WHERE item_type = 'PAYMENT'").await;
    assert_eq!((&context["paymentId"], &context["instruction"]["amount"]), (&"a".into(), &"99.90".into()));
    assert!(get(&t.store, "b").await.unwrap().is_none());
}

#[tokio::test]
async fn s0_02_s0_03_s0_04_a_step_that_fails_says_its_name_and_leaves_nothing() {
    let t = TestStore::new().await;
    for (table, step) in
        [("payment", Step::Persist), ("payment_exec_context", Step::SaveContext), ("payment_exec_queue", Step::Enqueue)]
    {
        break_table(&t, table, "a").await;
        let answer = one(&t, payment("a")).await;
        let Accepted::Failed { step: failed, detail } = &answer else { panic!("{table}: {answer:?}") };
        assert_eq!(*failed, step);
        assert!(detail.contains("boom"), "{detail}");
        assert_eq!(rows(&t).await, [0; 4], "{table}");
        mend_table(&t, table).await;
    }
    enqueued(&one(&t, payment("a")).await);
    assert_eq!(rows(&t).await, [1; 4], "the same again is accepted once");
}

#[tokio::test]
async fn s0_02_rules_and_configuration_that_speak_against_it_are_named() {
    let t = TestStore::new().await;
    let sql = "INSERT INTO payment_rule (kind, currency, max_amount, reason) VALUES ('limit', 'EUR', 50, 'test');
               INSERT INTO payment_rule (kind, party, reason) VALUES ('blocked', 'ES', 'test'), ('blocked', 'FR', 'test')";
    t.sql.batch_execute(sql).await.unwrap();
    let answer = one(&t, payment("a")).await;
    let Accepted::Refused { step: Step::ApplyRules, errors } = &answer else { panic!("{answer:?}") };
    let fields: Vec<&str> = errors.iter().map(|error| error.field.as_str()).collect();
    assert_eq!(fields, ["amount", "creditorIban"]);
    t.sql.batch_execute("UPDATE payment_rule SET is_active = false").await.unwrap();
    t.sql
        .batch_execute(
            "INSERT INTO payment_rule (kind, cut_off_at, time_zone, reason) VALUES ('cut_off', '16:00', 'Mars', 'x')",
        )
        .await
        .unwrap();
    let unreadable = one(&t, payment("a")).await;
    assert!(matches!(unreadable, Accepted::Failed { step: Step::ApplyRules, .. }), "{unreadable:?}");
    t.sql.batch_execute("DELETE FROM payment_rule; UPDATE rate_limit_config SET is_active = false").await.unwrap();
    let unplanned = one(&t, payment("a")).await;
    assert!(matches!(unplanned, Accepted::Failed { step: Step::AssignSlot, .. }), "{unplanned:?}");
    t.sql.batch_execute("DELETE FROM exec_rate_config").await.unwrap();
    let unknown = one(&t, payment("a")).await;
    assert!(matches!(unknown, Accepted::Failed { step: Step::Enrich, .. }), "{unknown:?}");
    let far = Payment { requested_time: Some("2400-01-01T00:00:00Z".parse().unwrap()), ..payment("a") };
    t.sql.batch_execute("INSERT INTO exec_rate_config (item_type, exec_workflow_type, exec_task_queue, rate_config) VALUES ('PAYMENT', 'x', 'x', 'payments')").await.unwrap();
    let far = one(&t, far).await;
    assert!(matches!(far, Accepted::Refused { step: Step::Enrich, .. }), "{far:?}");
    assert_eq!(rows(&t).await, [0; 4]);
}

#[tokio::test]
async fn s0_05_an_old_context_is_replaced_and_a_repeat_changes_nothing() {
    let t = TestStore::new().await;
    let orphan = "INSERT INTO payment_exec_context (item_type, payment_id, context_json, context_version) VALUES ('PAYMENT', 'a', '{\"old\": 1}', 0)";
    t.sql.batch_execute(orphan).await.unwrap();
    enqueued(&one(&t, payment("a")).await);
    let context: Value = t.one("SELECT context_json FROM payment_exec_context").await;
    assert_eq!(context["paymentId"], "a");
    let before = get(&t.store, "a").await.unwrap().unwrap();
    // Whatever has come in between: rules that would refuse it now.
    t.sql
        .batch_execute("INSERT INTO payment_rule (kind, party, reason) VALUES ('blocked', 'DE', 'test')")
        .await
        .unwrap();
    assert_eq!(one(&t, payment("a")).await, Accepted::Repeated);
    let other = Payment { remittance_information: Some("other".to_owned()), ..payment("a") };
    assert_eq!(one(&t, other).await, Accepted::Conflict);
    assert!(get(&t.store, "a").await.unwrap().unwrap() == before);
    assert_eq!(rows(&t).await, [1; 4]);
}

#[tokio::test]
async fn s0_06_repeats_at_once_from_two_nodes_are_one_payment() {
    let t = TestStore::new().await;
    let other = Store::new(StoreConfig::at(t.db.url())).unwrap();
    let calls = (0..24).map(|n| {
        let store = if n % 2 == 0 { &t.store } else { &other };
        let amount = if n % 8 == 7 { "1.00" } else { "99.90" };
        let payments: Vec<Payment> = (0..4)
            .map(|p| PaymentRequest { amount: amount.to_owned(), ..request(&format!("p{p}")) }.validate().unwrap())
            .collect();
        async move { accept(store, &payments, "test").await }
    });
    let answers: Vec<Accepted> = join_all(calls).await.into_iter().flatten().collect();
    let made = answers.iter().filter(|answer| matches!(answer, Accepted::Enqueued(_))).count();
    assert_eq!(made, 4, "{answers:?}");
    for answer in &answers {
        let fine =
            matches!(answer, Accepted::Enqueued(_) | Accepted::Repeated | Accepted::Conflict | Accepted::Later { .. });
        assert!(fine, "{answer:?}");
    }
    assert_eq!(rows(&t).await, [4; 4]);
}

#[tokio::test]
async fn one_payment_that_fails_keeps_no_other_out() {
    let t = TestStore::new().await;
    enqueued(&one(&t, payment("known")).await);
    break_table(&t, "payment_exec_queue", "poison").await;
    let twice = Payment { end_to_end_id: Some("x".to_owned()), ..payment("b") };
    let far = Payment { requested_time: Some("2400-01-01T00:00:00Z".parse().unwrap()), ..payment("far") };
    let call =
        [payment("a"), payment("poison"), payment("b"), twice, payment("b"), payment("known"), far, payment("poison")];
    let answers = accept(&t.store, &call, "test").await;
    enqueued(&answers[0]);
    assert!(matches!(answers[1], Accepted::Failed { step: Step::Enqueue, .. }), "{:?}", answers[1]);
    enqueued(&answers[2]);
    assert_eq!(answers[3..6], [Accepted::Conflict, Accepted::Repeated, Accepted::Repeated]);
    assert!(matches!(answers[6], Accepted::Refused { step: Step::Enrich, .. }));
    assert!(matches!(answers[7], Accepted::Later { .. }), "{:?}", answers[7]);
    assert_eq!(rows(&t).await, [3; 4]);
    assert_eq!(accept(&t.store, &[], "test").await, []);
}

#[tokio::test]
async fn slots_of_one_debtor_never_go_back() {
    let t = TestStore::new().await;
    // Three in a window: most of a call is spread over many windows, at random within each.
    t.sql.batch_execute("UPDATE rate_limit_config SET max_per_window = 3").await.unwrap();
    let mut accepted: Vec<(String, Timestamp, Enqueued)> = Vec::new();
    for round in 0_i64..12 {
        let mut call = Vec::new();
        for n in 0_i64..8 {
            // Earlier and later times than those before, and the same again and again.
            let requested = ahead(&t, (round * 7 + n * 5) % 4 * 10).await;
            let debtor = DEBTORS[usize::try_from((round + n) % 3).unwrap()].to_owned();
            let request = PaymentRequest { debtor_iban: debtor, ..request(&format!("r{round}n{n}")) };
            call.push(Payment { requested_time: Some(requested), ..request.validate().unwrap() });
        }
        let answers = accept(&t.store, &call, "test").await;
        accepted.extend(call.iter().zip(&answers).map(|(payment, answer)| {
            (payment.payment_id.clone(), payment.requested_time.unwrap(), enqueued(answer).clone())
        }));
    }
    for (n, (id, requested, place)) in accepted.iter().enumerate() {
        assert!(place.scheduled >= *requested, "{id} is early");
        for (other, asked, earlier) in accepted[..n].iter().filter(|(_, _, earlier)| earlier.group == place.group) {
            assert!(earlier.acceptance_no < place.acceptance_no, "{other} before {id}");
            assert!(asked > requested || earlier.scheduled < place.scheduled, "{id} overtakes {other}");
        }
    }
    let numbers = accepted.iter().map(|(_, _, place)| place.acceptance_no).max().unwrap();
    assert_eq!(numbers, 32, "8 × 12 payments of three debtors");
}

#[tokio::test]
async fn a_slot_that_was_given_back_is_not_written_with() {
    let t = TestStore::new().await;
    let sql = "SELECT * FROM exec_enqueue('PAYMENT', '{a}', '{g}', ARRAY[clock_timestamp()], ARRAY[clock_timestamp()], '{payment/a}')";
    let error = t.sql.query(sql, &[]).await.unwrap_err();
    assert_eq!(error.code().unwrap().code(), "40001");
    assert_eq!(rows(&t).await, [0; 4]);
    // One that nothing was written with is given back, and the payment gets another one.
    break_table(&t, "payment", "a").await;
    one(&t, payment("a")).await;
    mend_table(&t, "payment").await;
    t.sql.batch_execute("UPDATE rate_limit_event_slot SET confirm_by = clock_timestamp()").await.unwrap();
    assert_eq!(crate::rate::give_back(&t.store).await.unwrap(), 1);
    enqueued(&one(&t, payment("a")).await);
}

#[tokio::test]
async fn what_was_asked_for_before_and_not_accepted_decides_nothing() {
    let t = TestStore::new().await;
    break_table(&t, "payment", "a").await;
    let far = t.one::<Timestamp>("SELECT clock_timestamp()").await + SignedDuration::from_hours(720);
    one(&t, Payment { requested_time: Some(far), ..payment("a") }).await;
    assert_eq!(t.one::<i64>("SELECT count(*) FROM rate_limit_event_slot").await, 1, "it waits to be given back");
    mend_table(&t, "payment").await;
    let answer = one(&t, payment("a")).await;
    assert!(enqueued(&answer).scheduled < far - SignedDuration::from_hours(700), "{answer:?}");
}

#[tokio::test]
async fn s0_04_contexts_without_a_queue_row_are_swept() {
    let t = TestStore::new().await;
    enqueued(&one(&t, payment("a")).await);
    let sql = "INSERT INTO payment_exec_context (item_type, payment_id, context_json, context_version)
               VALUES ('PAYMENT', 'orphan', '{}', 1), ('INVOICE', 'a', '{}', 1), ('PAYMENT', 'young', '{}', 1);
               UPDATE payment_exec_context SET updated_at = clock_timestamp() - interval '61 minutes' WHERE payment_id <> 'young'";
    t.sql.batch_execute(sql).await.unwrap();
    let mut sweep = Sweep::default();
    assert_eq!(sweep_contexts(&t.store, &mut sweep).await.unwrap(), 2);
    assert!(sweep.is_through);
    let left: Vec<String> = t.one("SELECT array_agg(payment_id ORDER BY payment_id) FROM payment_exec_context").await;
    assert_eq!(left, ["a", "young"]);
}

#[tokio::test]
async fn s0_30_the_database_refuses_every_other_change_of_a_status() {
    let t = TestStore::new().await;
    enqueued(&one(&t, payment("a")).await);
    let force = |table: &str, column: &str, status: &str| {
        format!(
            "SET session_replication_role = replica; UPDATE {table} SET {column} = '{status}', claimed_at = now(), dispatch_batch_id = 'x'; SET session_replication_role = origin"
        )
    };
    let mut found = Vec::new();
    for from in QueueStatus::ALL {
        for to in QueueStatus::ALL.into_iter().filter(|to| *to != from) {
            t.sql.batch_execute(&force("payment_exec_queue", "queue_status", from.as_str())).await.unwrap();
            let changed = t.sql.execute("UPDATE payment_exec_queue SET queue_status = $1", &[&to.as_str()]).await;
            if changed.is_ok() != from.may_become(to) {
                found.push(format!("{from:?} -> {to:?}: {}", changed.is_ok()));
            }
        }
    }
    for from in PaymentStatus::ALL {
        for to in PaymentStatus::ALL.into_iter().filter(|to| *to != from) {
            let set = format!(
                "SET session_replication_role = replica; UPDATE payment SET status = '{}'; SET session_replication_role = origin",
                from.as_str()
            );
            t.sql.batch_execute(&set).await.unwrap();
            let changed = t.sql.execute("UPDATE payment SET status = $1", &[&to.as_str()]).await;
            if changed.is_ok() != from.may_become(to) {
                found.push(format!("{from:?} -> {to:?}: {}", changed.is_ok()));
            }
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}

#[tokio::test]
async fn s0_32_four_tables_without_foreign_keys_and_three_indexes() {
    let t = TestStore::new().await;
    let tables = "SELECT count(*) FROM pg_tables WHERE tablename IN ('exec_rate_config', 'payment_exec_queue', 'payment_exec_context', 'dispatch_audit_log')";
    assert_eq!(t.one::<i64>(tables).await, 4);
    assert_eq!(t.one::<i64>("SELECT count(*) FROM pg_constraint WHERE contype = 'f'").await, 0);
    let indexes = "SELECT count(*) FROM pg_indexes WHERE indexname IN ('idx_peq_dispatch', 'idx_peq_stale_claims', 'idx_peq_batch')";
    assert_eq!(t.one::<i64>(indexes).await, 3);
}

#[tokio::test]
async fn while_the_first_is_being_written_the_second_waits_a_moment() {
    let t = TestStore::new().await;
    let first = t.db.connect().await;
    let sql = "BEGIN; INSERT INTO payment (payment_id, group_id, amount, currency, debtor_name, debtor_iban, creditor_name, creditor_iban, requested_time, content_hash, accepted_by)
               VALUES ('a', 'g', 1, 'EUR', 'x', 'x', 'y', 'y', now(), sha256('x'), 'other')";
    first.batch_execute(sql).await.unwrap();
    let answer = tokio::time::timeout(Duration::from_secs(20), one(&t, payment("a"))).await.unwrap();
    assert!(matches!(answer, Accepted::Later { step: Step::Persist, .. }), "{answer:?}");
    first.batch_execute("ROLLBACK").await.unwrap();
    enqueued(&one(&t, payment("a")).await);
}
