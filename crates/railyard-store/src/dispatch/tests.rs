//! Phase B against a database: jobs end here as settle ends them.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use railyard_core::payment::{Payment, PaymentRequest, PaymentStatus, QueueStatus};
use railyard_core::{NodeId, OutboxId};
use uuid::Uuid;

use super::*;
use crate::holds::Decision;
use crate::payments::{self, Accepted, PAYMENT, PaymentRow};
use crate::testing::TestStore;

mod again;
mod named;
mod shown;
mod switch;
mod tidy;

/// Who hands over.
const ME: NodeId = NodeId(Uuid::from_u128(7));
/// As many as the configuration says.
const ALL: u32 = u32::MAX;

/// A rail and what goes to it, beside the payments' tests: ready to be claimed at once.
async fn ready() -> TestStore {
    let t = TestStore::new().await;
    let sql = format!(
        "UPDATE rail SET target_url = 'https://bank.example/pay', credentials_id = '{0}' WHERE rail_type = 'payment_webhook';
         INSERT INTO rail (rail_type, kind, on_unknown, target_url, credentials_id)
         VALUES ('mail', 'webhook', 'retry', 'https://mail.example/', '{0}');
         UPDATE exec_rate_config SET jitter_window_ms = 0;
         UPDATE rate_limit_config SET max_per_window = 100000;
         INSERT INTO node (node_id, name, lease_until) VALUES ('{1}', 'me', clock_timestamp() + interval '1 hour')",
        t.credentials.0, ME.0
    );
    t.sql.batch_execute(&sql).await.unwrap();
    t
}

const DEBTORS: [&str; 3] = ["DE89370400440532013000", "GB82WEST12345698765432", "CH9300762011623852957"];

fn payment(id: &str, debtor: usize) -> Payment {
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

async fn accepted(t: &TestStore, payments: &[Payment]) {
    for answer in payments::accept(&t.store, payments, "test").await {
        assert!(matches!(answer, Accepted::Enqueued(_)), "{answer:?}");
    }
}

/// Payments of these ids, each of a debtor by its first digit, due now.
async fn due(t: &TestStore, ids: &[&str]) {
    let debtor = |id: &str| id.bytes().next().map_or(0, |first| usize::from(first % 3));
    let payments: Vec<Payment> = ids.iter().map(|id| payment(id, debtor(id))).collect();
    accepted(t, &payments).await;
    t.sql.batch_execute("UPDATE payment_exec_queue SET scheduled_exec_time = least(scheduled_exec_time, clock_timestamp()) WHERE queue_status = 'READY'").await.unwrap();
}

async fn set(t: &TestStore, change: &str) {
    t.sql.batch_execute(&format!("UPDATE exec_rate_config SET {change}")).await.unwrap();
}

fn ids(claimed: &Claimed) -> Vec<&str> {
    claimed.items.iter().map(|(id, _)| id.as_str()).collect()
}

async fn claimed(t: &TestStore) -> Claimed {
    claim(&t.store, PAYMENT, &batch_name(), ALL).await.unwrap()
}

async fn handed(t: &TestStore, claimed: &Claimed) -> HandedOver {
    let config = config(&t.store, PAYMENT).await.unwrap();
    hand_over(&t.store, ME, PAYMENT, &claimed.batch, &claimed.orders(&config)).await.unwrap().unwrap()
}

async fn cycle(t: &TestStore) -> HandedOver {
    let claimed = claimed(t).await;
    handed(t, &claimed).await
}

async fn row(t: &TestStore, id: &str) -> PaymentRow {
    payments::get(&t.store, id).await.unwrap().unwrap()
}

async fn status(t: &TestStore, id: &str) -> (PaymentStatus, QueueStatus) {
    let row = row(t, id).await;
    (row.status, row.queue_status)
}

/// The job of an item's step.
async fn job(t: &TestStore, id: &str) -> OutboxId {
    let sql = "SELECT exec_outbox_id FROM payment_exec_queue WHERE payment_id = $1";
    OutboxId(t.sql.query_one(sql, &[&id]).await.unwrap().get::<_, Option<Uuid>>(0).unwrap())
}

async fn ended(t: &TestStore, job: OutboxId, status: &str) {
    t.begin(job).await;
    t.finish(job, status, false).await;
}

/// What the ends of steps said is due.
async fn steps(t: &TestStore) -> StepsHandedOver {
    hand_over_steps(&t.store, PAYMENT).await.unwrap()
}

async fn audit(t: &TestStore, action: &str) -> i64 {
    t.sql.query_one("SELECT count(*) FROM dispatch_audit_log WHERE action = $1", &[&action]).await.unwrap().get(0)
}

#[tokio::test]
async fn s0_07_a_type_without_a_row_is_named_and_others_go_on() {
    let t = ready().await;
    let missing = config(&t.store, "PARCEL").await.unwrap_err().to_string();
    assert!(missing.contains("PARCEL"), "{missing}");
    let due = look(&t.store, NodeId(Uuid::new_v4())).await.unwrap();
    let seen: Vec<_> = due.iter().map(|due| (due.item_type.as_str(), due.turn)).collect();
    assert_eq!(seen, [("PAYMENT", true)]);
    assert!(config(&t.store, PAYMENT).await.unwrap().enabled);
    for (change, field, value) in [
        ("exec_workflow_type = 'Nobody'", "exec_workflow_type", "Nobody"),
        ("exec_workflow_type = 'PostContext', exec_task_queue = 'nowhere'", "exec_task_queue", "nowhere"),
        ("exec_task_queue = 'mail', step_rails = '{\"NOTIFY\": \"away\"}'", "step_rails", "away"),
        ("step_rails = '{\"NOTIFY\": 5}'", "step_rails", "strings"),
    ] {
        set(&t, change).await;
        let said = config(&t.store, PAYMENT).await.unwrap_err().to_string();
        assert!(said.contains("PAYMENT: ") && said.contains(field) && said.contains(value), "{said}");
    }
    set(&t, "step_rails = '{\"NOTIFY\": \"mail\"}'").await;
    assert_eq!(config(&t.store, PAYMENT).await.unwrap().first_rail, "mail");
}

#[tokio::test]
async fn s0_08_s0_09_the_switch_and_the_batch_size_take_effect_at_once() {
    let t = ready().await;
    due(&t, &["a", "b", "c", "d", "e"]).await;
    t.sql.batch_execute("UPDATE payment_exec_queue SET group_id = payment_id").await.unwrap();
    set(&t, "enabled = 0").await;
    assert_eq!(ids(&claimed(&t).await), [""; 0]);
    assert_eq!(row(&t, "a").await.queue_status, QueueStatus::Ready);
    set(&t, "enabled = 1, batch_size = 2").await;
    let two = claimed(&t).await;
    assert_eq!(two.items.len(), 2);
    set(&t, "batch_size = 10").await;
    assert_eq!(claimed(&t).await.items.len(), 3);
    // Switched off between claim and hand-over: everything goes back, and costs nothing.
    set(&t, "enabled = 0").await;
    assert_eq!(handed(&t, &two).await, HandedOver { put_back: 2, ..HandedOver::default() });
    assert_eq!((row(&t, "a").await.queue_status, row(&t, "a").await.retry_count), (QueueStatus::Ready, 0));
}

#[tokio::test]
async fn s0_12_s0_14_s0_15_a_claim_takes_what_is_due_soon_oldest_first_with_its_context() {
    let t = ready().await;
    due(&t, &["a", "b", "c", "d"]).await;
    let sql = "UPDATE payment_exec_queue q SET scheduled_exec_time = clock_timestamp() + s.ahead * interval '1 minute', retry_count = s.retries, group_id = q.payment_id
               FROM (VALUES ('a', 29, 0), ('b', 5, 0), ('c', 31, 0), ('d', 0, 5)) s(id, ahead, retries) WHERE q.payment_id = s.id;
               INSERT INTO payment_exec_queue (item_type, payment_id, scheduled_exec_time, group_id, requested_time, acceptance_no, init_workflow_id)
               VALUES ('INVOICE', 'x', now(), 'g', now(), 1, 'init')";
    t.sql.batch_execute(sql).await.unwrap();
    let batch = claimed(&t).await;
    assert_eq!(ids(&batch), ["b", "a"]);
    assert!(batch.batch.starts_with("BATCH-"));
    assert!(
        batch.items.iter().all(|(id, context)| context.as_ref().unwrap().contains(&format!("\"paymentId\": \"{id}\"")))
    );
    let claimed: i64 = t.one("SELECT count(*) FROM payment_exec_queue WHERE queue_status = 'CLAIMED' AND claimed_at IS NOT NULL AND dispatch_batch_id LIKE 'BATCH-%'").await;
    assert_eq!(claimed, 2);
}

#[tokio::test]
async fn s0_13_two_claims_at_once_are_disjoint_and_neither_waits() {
    let t = ready().await;
    due(&t, &["a", "b", "c", "d"]).await;
    let other = t.db.connect().await;
    set(&t, "batch_size = 2").await;
    other.batch_execute("BEGIN").await.unwrap();
    let first = other.query("SELECT payment_id FROM dispatch_claim('PAYMENT', 'BATCH-1')", &[]).await.unwrap();
    // Not committed yet: the second one passes over what the first is taking.
    let second = tokio::time::timeout(Duration::from_secs(10), claimed(&t)).await.unwrap();
    other.batch_execute("COMMIT").await.unwrap();
    let mut all: Vec<String> = first.iter().map(|row| row.get(0)).collect();
    all.extend(ids(&second).into_iter().map(str::to_owned));
    all.sort_unstable();
    assert_eq!(all, ["a", "b", "c", "d"]);
}

#[tokio::test]
async fn s0_14_a_claim_that_is_not_committed_leaves_ready() {
    let t = ready().await;
    due(&t, &["a"]).await;
    let other = t.db.connect().await;
    other.batch_execute("BEGIN").await.unwrap();
    assert_eq!(other.query("SELECT * FROM dispatch_claim('PAYMENT', 'BATCH-1')", &[]).await.unwrap().len(), 1);
    drop(other);
    let again = async || !claimed(&t).await.items.is_empty();
    railyard_testkit::eventually(Duration::from_secs(10), "it is READY", again).await;
}

#[tokio::test]
async fn s0_17_s0_25_s0_30_a_payment_goes_through_its_steps_to_the_end() {
    let t = ready().await;
    set(&t, "step_rails = '{\"NOTIFY\": \"mail\"}'").await;
    due(&t, &["a"]).await;
    assert_eq!(cycle(&t).await, HandedOver { dispatched: 1, ..HandedOver::default() });
    assert_eq!(status(&t, "a").await, (PaymentStatus::Scheduled, QueueStatus::Dispatched));
    let run: String = t.one("SELECT exec_workflow_id FROM payment_exec_queue").await;
    assert_eq!(run, "exec-payment-a");
    let execute = job(&t, "a").await;
    let sql = "SELECT type, participant_id, rail_type, idempotency_key FROM dispatch_job WHERE outbox_id = $1";
    let made = t.sql.query_one(sql, &[&execute.0]).await.unwrap();
    let fields: [String; 4] = [0, 1, 2, 3].map(|n| made.get(n));
    let group = row(&t, "a").await.group;
    assert_eq!(fields, ["payment.execute", group.as_str(), "payment_webhook", "exec-payment-a"]);
    ended(&t, execute, "COMPLETED").await;
    // Post-processing has nothing to send; the notification is a job of its own, without an order.
    assert_eq!(status(&t, "a").await, (PaymentStatus::Accepted, QueueStatus::Dispatched));
    assert_eq!(steps(&t).await.started, 1);
    let notify = job(&t, "a").await;
    assert_ne!(notify, execute);
    let made = t.sql.query_one(sql, &[&notify.0]).await.unwrap();
    let fields: [String; 4] = [0, 1, 2, 3].map(|n| made.get(n));
    assert_eq!(fields, ["payment.notify", &format!("{group}/NOTIFY"), "mail", "exec-payment-a/NOTIFY"]);
    assert_eq!(t.one::<i64>("SELECT count(*) FROM payment_outbox_pending WHERE participant_id IS NULL").await, 1);
    ended(&t, notify, "COMPLETED").await;
    assert_eq!(status(&t, "a").await, (PaymentStatus::Processing, QueueStatus::Completed));
    assert!(row(&t, "a").await.completed_at.is_some());
    let left: i64 =
        t.one("SELECT (SELECT count(*) FROM payment_exec_context) + (SELECT count(*) FROM exec_step)").await;
    assert_eq!(left, 0, "context and steps are gone");
    assert_eq!((audit(&t, "DISPATCHED").await, audit(&t, "BATCH_COMPLETE").await), (1, 1));
    assert!(t.sql.batch_execute("UPDATE dispatch_audit_log SET detail = 'x'").await.is_err(), "append-only");
    assert!(t.sql.batch_execute("DELETE FROM dispatch_audit_log").await.is_err());
}

#[tokio::test]
async fn s0_17_s0_18_a_second_start_of_a_run_is_refused_and_counts_as_started() {
    let t = ready().await;
    due(&t, &["a"]).await;
    cycle(&t).await;
    let first = job(&t, "a").await;
    ended(&t, first, "COMPLETED").await;
    // As if nothing of it had been seen: claimed again, with its context back.
    let forget = "SET session_replication_role = replica;
                  UPDATE payment_exec_queue SET queue_status = 'READY', completed_at = NULL, step_no = 1, exec_outbox_id = NULL;
                  UPDATE payment SET status = 'SCHEDULED';
                  SET session_replication_role = origin;
                  INSERT INTO payment_exec_context VALUES ('PAYMENT', 'a', '{\"instruction\": {\"amount\": \"1\"}}', 1)";
    t.sql.batch_execute(forget).await.unwrap();
    assert_eq!(cycle(&t).await.dispatched, 1);
    assert_eq!(t.one::<i64>("SELECT count(*) FROM dispatch_job").await, 1, "nothing is executed again");
    assert_eq!(status(&t, "a").await, (PaymentStatus::Processing, QueueStatus::Completed));
}

#[tokio::test]
async fn s0_16_s0_19_s0_20_what_cannot_be_started_is_tried_again_and_given_up_in_the_end() {
    let t = ready().await;
    due(&t, &["a", "b", "d"]).await;
    set(&t, "max_dispatch_retries = 2").await;
    t.sql.batch_execute("DELETE FROM payment_exec_context WHERE payment_id = 'a'").await.unwrap();
    // d is of a's debtor and stands behind it; b is of another one.
    assert_eq!(cycle(&t).await, HandedOver { dispatched: 1, failed: 1, put_back: 1, ..HandedOver::default() });
    let a = row(&t, "a").await;
    assert_eq!(
        (a.queue_status, a.retry_count, a.last_error.as_deref()),
        (QueueStatus::Ready, 1, Some("has no context"))
    );
    let cleared: bool = t.one("SELECT claimed_at IS NULL AND dispatch_batch_id IS NULL AND exec_workflow_id IS NULL FROM payment_exec_queue WHERE payment_id = 'a'").await;
    assert!(cleared);
    assert_eq!(row(&t, "d").await.retry_count, 0);
    assert_eq!(cycle(&t).await, HandedOver { failed: 1, dead: 1, ..HandedOver::default() }, "d is not even claimed");
    assert_eq!(row(&t, "a").await.queue_status, QueueStatus::DeadLetter);
    assert_eq!(cycle(&t).await.dispatched, 1, "then what stood behind it goes on");
    assert_eq!(audit(&t, "DISPATCH_FAILED").await, 2);
}

#[tokio::test]
async fn s0_19_a_rail_that_takes_nothing_fails_each_by_itself_and_nothing_overtakes() {
    let t = ready().await;
    // a, d, g are of one debtor; b of another; c of a third.
    due(&t, &["a", "d", "g", "b", "c"]).await;
    let batch = claimed(&t).await;
    let config = config(&t.store, PAYMENT).await.unwrap();
    let mut orders = batch.orders(&config);
    for (id, steps) in &mut orders {
        if id == "d" || id == "b" {
            steps.as_mut().unwrap()[0].rail = Some("nowhere".to_owned());
        }
    }
    let done = hand_over(&t.store, ME, PAYMENT, &batch.batch, &orders).await.unwrap().unwrap();
    assert_eq!(done, HandedOver { dispatched: 2, failed: 2, put_back: 1, ..HandedOver::default() });
    for (id, status) in [
        ("a", QueueStatus::Dispatched),
        ("c", QueueStatus::Dispatched),
        ("d", QueueStatus::Ready),
        ("g", QueueStatus::Ready),
    ] {
        assert_eq!(row(&t, id).await.queue_status, status, "{id}");
    }
    assert!(row(&t, "b").await.last_error.unwrap().contains("nowhere"));
    assert_eq!(t.one::<i64>("SELECT count(*) FROM dispatch_job").await, 2);
}

#[tokio::test]
async fn s0_21_s0_22_s0_23_stale_claims_come_back_a_few_at_a_time() {
    let t = ready().await;
    due(&t, &["a", "b", "c", "d"]).await;
    set(&t, "max_stale_recovery_per_cycle = 2, max_dispatch_retries = 2").await;
    let batch = claimed(&t).await;
    assert_eq!(recover(&t.store, PAYMENT, ALL).await.unwrap(), Recovered::default(), "nothing is stale yet");
    let age = "UPDATE payment_exec_queue SET claimed_at = clock_timestamp() - interval '121 seconds' WHERE queue_status = 'CLAIMED'";
    t.sql.batch_execute(age).await.unwrap();
    assert_eq!(recover(&t.store, PAYMENT, ALL).await.unwrap(), Recovered { recovered: 2, ..Recovered::default() });
    assert_eq!(recover(&t.store, PAYMENT, ALL).await.unwrap(), Recovered { recovered: 2, ..Recovered::default() });
    assert_eq!(audit(&t, "STALE_RECOVERY").await, 4);
    // The dispatcher was only stopped, and goes on: its claims are not its own any more.
    let lost = handed(&t, &batch).await;
    assert_eq!(lost, HandedOver { lost: 4, ..HandedOver::default() });
    assert_eq!(t.one::<i64>("SELECT count(*) FROM dispatch_job").await, 0);
    claimed(&t).await;
    t.sql.batch_execute(age).await.unwrap();
    assert_eq!(recover(&t.store, PAYMENT, ALL).await.unwrap().dead, 2, "once too often");
}

#[tokio::test]
async fn s0_22_a_stale_claim_whose_run_exists_is_marked_and_not_run_again() {
    let t = ready().await;
    due(&t, &["a"]).await;
    cycle(&t).await;
    let first = job(&t, "a").await;
    let forget = "SET session_replication_role = replica;
                  UPDATE payment_exec_queue SET queue_status = 'CLAIMED', claimed_at = clock_timestamp() - interval '1 hour', exec_outbox_id = NULL;
                  SET session_replication_role = origin";
    t.sql.batch_execute(forget).await.unwrap();
    assert_eq!(recover(&t.store, PAYMENT, ALL).await.unwrap(), Recovered { marked: 1, ..Recovered::default() });
    assert_eq!((row(&t, "a").await.queue_status, job(&t, "a").await), (QueueStatus::Dispatched, first));
}

#[tokio::test]
async fn s0_26_s0_27_an_execution_that_fails_is_given_up_and_a_person_starts_a_new_run() {
    let t = ready().await;
    due(&t, &["a"]).await;
    cycle(&t).await;
    let first = job(&t, "a").await;
    let decision = Decision { actor: "operator", reason: "bank is back" };
    assert_eq!(requeue(&t.store, PAYMENT, "a", decision).await.unwrap(), Requeue::NotEnded(QueueStatus::Dispatched));
    assert_eq!(requeue(&t.store, PAYMENT, "b", decision).await.unwrap(), Requeue::Unknown);
    ended(&t, first, "ERROR").await;
    assert_eq!(status(&t, "a").await, (PaymentStatus::Scheduled, QueueStatus::DeadLetter));
    assert_eq!(claimed(&t).await.items.len(), 0, "nothing takes it up again by itself");
    assert_eq!(requeue(&t.store, PAYMENT, "a", decision).await.unwrap(), Requeue::Done);
    assert_eq!((audit(&t, "REQUEUED").await, row(&t, "a").await.queue_status), (1, QueueStatus::Ready));
    cycle(&t).await;
    let second = job(&t, "a").await;
    assert_ne!(second, first);
    let sql = "SELECT d.idempotency_key, d.rail_key, d.replay_of FROM dispatch_job d WHERE d.outbox_id = $1";
    let made = t.sql.query_one(sql, &[&second.0]).await.unwrap();
    assert_eq!(
        (made.get::<_, String>(0), made.get::<_, Uuid>(1), made.get::<_, Option<Uuid>>(2)),
        ("exec-payment-a-r1".to_owned(), first.0, Some(first.0))
    );
    ended(&t, second, "COMPLETED").await;
    assert_eq!(status(&t, "a").await, (PaymentStatus::Processing, QueueStatus::Completed));
}

#[tokio::test]
async fn a_new_run_does_not_execute_what_was_executed() {
    let t = ready().await;
    set(&t, "step_rails = '{\"NOTIFY\": \"mail\"}'").await;
    due(&t, &["a"]).await;
    cycle(&t).await;
    ended(&t, job(&t, "a").await, "COMPLETED").await;
    steps(&t).await;
    let notify = job(&t, "a").await;
    ended(&t, notify, "CANCELLED").await;
    assert_eq!(status(&t, "a").await, (PaymentStatus::Accepted, QueueStatus::Failed));
    requeue(&t.store, PAYMENT, "a", Decision { actor: "operator", reason: "x" }).await.unwrap();
    assert_eq!(cycle(&t).await.dispatched, 1);
    let again: String = t
        .sql
        .query_one("SELECT type FROM dispatch_job WHERE outbox_id = $1", &[&job(&t, "a").await.0])
        .await
        .unwrap()
        .get(0);
    assert_eq!(again, "payment.notify");
    assert_eq!(t.one::<i64>("SELECT count(*) FROM dispatch_job WHERE type = 'payment.execute'").await, 1);
    ended(&t, job(&t, "a").await, "COMPLETED").await;
    assert_eq!(status(&t, "a").await, (PaymentStatus::Processing, QueueStatus::Completed));
}

#[tokio::test]
async fn s0_10_s0_38_nothing_starts_early_and_jitter_is_a_debtors() {
    let t = ready().await;
    set(&t, "jitter_window_ms = 4000").await;
    let soon = t.one::<Timestamp>("SELECT clock_timestamp()").await + SignedDuration::from_secs(600);
    let payments: Vec<Payment> =
        (0..60).map(|n| Payment { requested_time: Some(soon), ..payment(&format!("p{n:02}"), n % 3) }).collect();
    accepted(&t, &payments).await;
    assert_eq!(cycle(&t).await.dispatched, 60);
    let rows = t.sql.query("SELECT group_id, scheduled_exec_time, exec_start_at, (SELECT s.due_at FROM scheduled_job s WHERE s.outbox_id = q.exec_outbox_id) FROM payment_exec_queue q ORDER BY group_id, acceptance_no", &[]).await.unwrap();
    for row in &rows {
        let (scheduled, start): (Timestamp, Timestamp) = (row.get(1), row.get(2));
        assert!(start >= scheduled && scheduled >= soon, "never early");
        assert!(start.duration_since(scheduled) < SignedDuration::from_secs(4), "within the window");
        assert_eq!(row.get::<_, Option<Timestamp>>(3), Some(start), "it waits in the outbox");
    }
    for pair in rows.windows(2).filter(|pair| pair[0].get::<_, String>(0) == pair[1].get::<_, String>(0)) {
        assert!(pair[0].get::<_, Timestamp>(2) <= pair[1].get::<_, Timestamp>(2), "in order");
    }
    // What comes later of the same debtors, without jitter, does not overtake what waits.
    set(&t, "jitter_window_ms = 0").await;
    due(&t, &["c"]).await;
    t.sql.batch_execute("UPDATE payment_exec_queue SET scheduled_exec_time = scheduled_exec_time + interval '1 hour' WHERE payment_id = 'c'").await.unwrap();
    set(&t, "pre_start_buffer_mins = 120").await;
    let last: Timestamp = t.one("SELECT max(exec_start_at) FROM payment_exec_queue q WHERE group_id = (SELECT group_id FROM payment_exec_queue WHERE payment_id = 'c')").await;
    assert_eq!(cycle(&t).await.dispatched, 1);
    let start: Timestamp = t.one("SELECT exec_start_at FROM payment_exec_queue WHERE payment_id = 'c'").await;
    assert!(start >= last, "{start} is before {last}");
}

#[tokio::test]
async fn none_is_handed_over_while_an_earlier_one_of_its_debtor_is_claimed_elsewhere() {
    let t = ready().await;
    due(&t, &["a", "d"]).await;
    set(&t, "batch_size = 1").await;
    // Two at once: the second does not see yet that the first one is taken.
    let other = t.db.connect().await;
    other.batch_execute("BEGIN").await.unwrap();
    let rows = other.query("SELECT payment_id, context_json::text FROM dispatch_claim('PAYMENT', 'BATCH-1')", &[]);
    let items = rows.await.unwrap().iter().map(|row| (row.get(0), row.get(1))).collect();
    let first = Claimed { batch: "BATCH-1".to_owned(), items };
    let second = claimed(&t).await;
    other.batch_execute("COMMIT").await.unwrap();
    assert_eq!((ids(&first), ids(&second)), (vec!["a"], vec!["d"]));
    assert_eq!(handed(&t, &second).await, HandedOver { put_back: 1, ..HandedOver::default() });
    assert_eq!(handed(&t, &first).await.dispatched, 1);
    assert_eq!(cycle(&t).await.dispatched, 1);
    let order = "SELECT array_agg(d.instruction_id ORDER BY p.sequence_id) FROM payment_outbox_pending p JOIN dispatch_job d USING (outbox_id)";
    assert_eq!(t.one::<Vec<String>>(order).await, ["a", "d"]);
}

#[tokio::test]
async fn none_is_handed_over_from_behind_one_that_the_batch_has_not() {
    let t = ready().await;
    due(&t, &["a", "d", "g"]).await;
    let batch = claimed(&t).await;
    assert_eq!(batch.items.len(), 3);
    // As another dispatcher's, or passed over since it was locked.
    let other = "UPDATE payment_exec_queue SET dispatch_batch_id = 'BATCH-other' WHERE payment_id = 'd'";
    t.sql.batch_execute(other).await.unwrap();
    assert_eq!(handed(&t, &batch).await, HandedOver { dispatched: 1, put_back: 1, lost: 1, ..HandedOver::default() });
    assert_eq!(row(&t, "g").await.queue_status, QueueStatus::Ready);
}

#[tokio::test]
async fn s0_29_one_dispatcher_at_a_time_and_none_before_the_interval_is_over() {
    let t = ready().await;
    let (one, two) = (NodeId(Uuid::new_v4()), NodeId(Uuid::new_v4()));
    let node = "INSERT INTO node (node_id, name, lease_until) VALUES ($1, 'n', clock_timestamp() + interval '1 hour')";
    for me in [one, two] {
        t.sql.execute(node, &[&me.0]).await.unwrap();
    }
    assert!(take_turn(&t.store, PAYMENT, one).await.unwrap());
    assert!(!take_turn(&t.store, PAYMENT, two).await.unwrap(), "somebody has it");
    assert!(take_turn(&t.store, PAYMENT, one).await.unwrap(), "who lost the answer goes on");
    assert!(take_turn(&t.store, "INVOICE", two).await.unwrap(), "types are apart");
    assert!(!end_turn(&t.store, PAYMENT, two).await.unwrap());
    t.sql.execute("UPDATE node SET lease_until = clock_timestamp() WHERE node_id = $1", &[&one.0]).await.unwrap();
    assert!(take_turn(&t.store, PAYMENT, two).await.unwrap(), "whoever had it has died");
    assert!(!end_turn(&t.store, PAYMENT, one).await.unwrap());
    assert!(end_turn(&t.store, PAYMENT, two).await.unwrap());
    assert!(!take_turn(&t.store, PAYMENT, two).await.unwrap(), "not yet");
}

#[tokio::test]
async fn s0_41_huge_errors_are_cut() {
    let t = ready().await;
    due(&t, &["a"]).await;
    let batch = claimed(&t).await;
    let orders = [("a".to_owned(), Err("x".repeat(100_000)))];
    assert_eq!(hand_over(&t.store, ME, PAYMENT, &batch.batch, &orders).await.unwrap().unwrap().failed, 1);
    assert_eq!(row(&t, "a").await.last_error.unwrap().len(), 4000);
    assert_eq!(t.one::<i32>("SELECT max(length(detail)) FROM dispatch_audit_log").await, 500);
}

#[tokio::test]
async fn s0_35_another_type_is_a_row_and_its_switch_is_its_own() {
    let t = ready().await;
    due(&t, &["a"]).await;
    let invoice = "INSERT INTO exec_rate_config (item_type, exec_workflow_type, exec_task_queue, rate_config, jitter_window_ms) VALUES ('INVOICE', 'PostContext', 'mail', 'payments', 0);
                   INSERT INTO payment_exec_context VALUES ('INVOICE', 'a', '{\"invoice\": 12345678901234567890.10}', 1);
                   SELECT exec_enqueue('INVOICE', '{a}', '{customer}', ARRAY[clock_timestamp()], ARRAY[clock_timestamp()], '{}');
                   UPDATE exec_rate_config SET enabled = 0 WHERE item_type = 'PAYMENT'";
    t.sql.batch_execute(invoice).await.unwrap();
    assert!(claimed(&t).await.items.is_empty());
    let batch = claim(&t.store, "INVOICE", &batch_name(), ALL).await.unwrap();
    let config = config(&t.store, "INVOICE").await.unwrap();
    let done = hand_over(&t.store, ME, "INVOICE", &batch.batch, &batch.orders(&config)).await.unwrap();
    assert_eq!(done.unwrap().dispatched, 1);
    let job: Uuid = t.one("SELECT exec_outbox_id FROM payment_exec_queue WHERE item_type = 'INVOICE'").await;
    let payload: Vec<u8> =
        t.sql.query_one("SELECT payload FROM dispatch_job WHERE outbox_id = $1", &[&job]).await.unwrap().get(0);
    assert_eq!(payload, b"{\"invoice\": 12345678901234567890.10}", "digit by digit");
    ended(&t, OutboxId(job), "COMPLETED").await;
    assert_eq!(
        t.one::<String>("SELECT queue_status FROM payment_exec_queue WHERE item_type = 'INVOICE'").await,
        "COMPLETED"
    );
    assert_eq!(
        status(&t, "a").await,
        (PaymentStatus::Scheduled, QueueStatus::Ready),
        "the payment of that id is another item"
    );
}
