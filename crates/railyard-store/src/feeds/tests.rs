//! Feeds and their reconciliation against a database: every place that a payment can be in, and everything that can be lost.

use railyard_core::payment::{Payment, PaymentRequest};
use railyard_core::{NodeId, OutboxId};
use uuid::Uuid;

use super::*;
use crate::dispatch;
use crate::payments::{self, Accepted, PAYMENT};
use crate::testing::TestStore;

mod doubt;

/// A debtor for each payment: no group but its own holds it.
const DEBTORS: [&str; 7] = [
    "DE89370400440532013000",
    "GB82WEST12345698765432",
    "FR1420041010050500013M02606",
    "NL91ABNA0417164300",
    "CH9300762011623852957",
    "MT84MALT011000012345MTLCAST001S",
    "AT611904300234573201",
];

fn payment(id: &str, debtor: usize, amount: &str, currency: &str) -> Payment {
    let request = PaymentRequest {
        payment_id: id.to_owned(),
        debtor_name: "Anna".to_owned(),
        debtor_iban: DEBTORS[debtor].to_owned(),
        creditor_name: "Bert".to_owned(),
        creditor_iban: "ES9121000418450200051332".to_owned(),
        amount: amount.to_owned(),
        currency: currency.to_owned(),
        ..PaymentRequest::default()
    };
    request.validate().unwrap()
}

async fn ready() -> TestStore {
    let t = TestStore::new().await;
    let sql = format!(
        "UPDATE rail SET target_url = 'https://bank.example/pay', credentials_id = '{}' WHERE rail_type = 'payment_webhook';
         UPDATE exec_rate_config SET jitter_window_ms = 0, max_dispatch_retries = 1;
         UPDATE rate_limit_config SET max_per_window = 100000",
        t.credentials.0
    );
    t.sql.batch_execute(&sql).await.unwrap();
    t
}

fn new(items: i64) -> NewFeed<'static> {
    NewFeed { feed_id: "feed-1", format: FeedFormat::Csv, name: "pay.csv", sha256: [7; 32], items, actor: "test" }
}

fn line(item: i64, payment: &Payment) -> FeedLine {
    let amount = (payment.amount.to_string(), payment.amount.currency().code().to_owned());
    FeedLine {
        item,
        line: item + 1,
        payment_id: Some(payment.payment_id.clone()),
        amount: Some(amount),
        rejected: None,
    }
}

fn rejected(item: i64) -> FeedLine {
    let rejected = Some((Some("amount".to_owned()), "is not above zero".to_owned()));
    FeedLine { item, line: item + 1, payment_id: None, amount: None, rejected }
}

async fn accepted_lines(t: &TestStore, payments: &[Payment]) {
    for answer in payments::accept(&t.store, payments, "test").await {
        assert!(matches!(answer, Accepted::Enqueued(_)), "{answer:?}");
    }
    let lines: Vec<FeedLine> = (1..).zip(payments).map(|(item, payment)| line(item, payment)).collect();
    record(&t.store, "feed-1", &lines).await.unwrap();
}

/// All that are due go to the outbox.
async fn hand_over(t: &TestStore) {
    t.sql.batch_execute("UPDATE payment_exec_queue SET scheduled_exec_time = least(scheduled_exec_time, clock_timestamp()) WHERE queue_status = 'READY'").await.unwrap();
    let me = NodeId(Uuid::new_v4());
    let node = "INSERT INTO node (node_id, name, lease_until) VALUES ($1, 'n', clock_timestamp() + interval '1 hour')";
    t.sql.execute(node, &[&me.0]).await.unwrap();
    let claimed = dispatch::claim(&t.store, PAYMENT, &dispatch::batch_name(), u32::MAX).await.unwrap();
    let config = dispatch::config(&t.store, PAYMENT).await.unwrap();
    let done = dispatch::hand_over(&t.store, me, PAYMENT, &claimed.batch, &claimed.orders(&config)).await.unwrap();
    assert!(done.is_some());
}

async fn job(t: &TestStore, id: &str) -> OutboxId {
    let sql = "SELECT exec_outbox_id FROM payment_exec_queue WHERE payment_id = $1";
    OutboxId(t.sql.query_one(sql, &[&id]).await.unwrap().get::<_, Option<Uuid>>(0).unwrap())
}

async fn of_feed(t: &TestStore) -> Reconciled {
    reconcile(&t.store, Of::Feed("feed-1")).await.unwrap()
}

async fn of_day(t: &TestStore) -> Reconciled {
    let day =
        t.sql.query_one("SELECT date_trunc('day', now()), date_trunc('day', now()) + interval '1 day'", &[]).await;
    let day = day.unwrap();
    reconcile(&t.store, Of::Between(day.get(0), day.get(1))).await.unwrap()
}

/// `STANDING count amount currency`, in order.
fn said(found: &Reconciled) -> Vec<String> {
    let text = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
    let said =
        |sum: &Sum| format!("{} {} {} {}", sum.standing.as_str(), sum.count, text(&sum.amount), text(&sum.currency));
    let mut all: Vec<String> = found.sums.iter().map(said).collect();
    all.sort();
    all
}

#[tokio::test]
async fn a_feed_is_one_file_and_remembers_what_was_accepted() {
    let t = ready().await;
    assert_eq!(get(&t.store, "feed-1").await.unwrap(), None);
    assert_eq!(items(&t.store, "feed-1").await.unwrap(), None);
    assert!(open(&t.store, new(3)).await.unwrap());
    assert!(!open(&t.store, new(3)).await.unwrap());
    for other in [new(4), NewFeed { sha256: [8; 32], ..new(3) }, NewFeed { format: FeedFormat::Ndjson, ..new(3) }] {
        let refused = open(&t.store, other).await.unwrap_err();
        assert!(matches!(&refused, StoreError::Conflict { detail } if detail.contains("pay.csv")), "{refused}");
    }
    let one = payment("a", 0, "1.10", "EUR");
    record(&t.store, "feed-1", &[line(1, &one), rejected(2)]).await.unwrap();
    // The same again: what was accepted stays so, what was rejected may be accepted after all.
    record(&t.store, "feed-1", &[rejected(1), line(2, &one)]).await.unwrap();
    let known = |item| Known { item, payment_id: "a".to_owned(), is_dropped: false };
    assert_eq!(accepted(&t.store, "feed-1", &[1, 2, 3]).await.unwrap(), [known(1), known(2)]);
    let feed = get(&t.store, "feed-1").await.unwrap().unwrap();
    assert_eq!((feed.items, feed.accepted, feed.rejected, feed.created_by.as_str()), (3, 2, 0, "test"));
}

#[tokio::test]
async fn every_place_of_a_payment_is_told_with_exact_totals() {
    let t = ready().await;
    open(&t.store, new(9)).await.unwrap();
    let all = [
        payment("delivered", 0, "0.10", "EUR"),
        payment("dead", 1, "0.20", "EUR"),
        payment("held", 1, "1000000000.01", "EUR"),
        payment("doubt", 2, "7", "JPY"),
        payment("waiting", 3, "0.005", "BHD"),
        payment("flying", 4, "0.40", "EUR"),
        payment("later", 5, "0.80", "EUR"),
    ];
    accepted_lines(&t, &all[..6]).await;
    hand_over(&t).await;
    accepted_lines(&t, &all[6..]).await;
    // The seventh is line 7 of the file.
    record(&t.store, "feed-1", &[line(7, &all[6]), rejected(8), line(9, &all[0])]).await.unwrap();
    t.begin(job(&t, "delivered").await).await;
    t.finish(job(&t, "delivered").await, "COMPLETED", false).await;
    t.begin(job(&t, "dead").await).await;
    t.finish(job(&t, "dead").await, "ERROR", false).await;
    t.begin(job(&t, "flying").await).await;
    let hold = "INSERT INTO group_hold (participant_id, kind, outbox_id, reason, actor)
        SELECT group_id, k.kind, exec_outbox_id, k.why, 'test' FROM payment_exec_queue q
        JOIN (VALUES ('dead', 'blocked', 'refused'), ('doubt', 'in_doubt', 'outcome unknown')) k(id, kind, why) ON k.id = q.payment_id
        ON CONFLICT DO NOTHING";
    t.sql.batch_execute(hold).await.unwrap();
    let found = of_feed(&t).await;
    let expected = [
        "DEAD 1 0.20 EUR",
        "DELIVERED 1 0.10 EUR",
        "DISPATCHED 1 0.005 BHD",
        "DISPATCHED 1 0.40 EUR",
        "HELD 1 1000000000.01 EUR",
        "IN_DOUBT 1 7 JPY",
        "REJECTED 1 - -",
        "REPEATED 1 0.10 EUR",
        "SCHEDULED 1 0.80 EUR",
    ];
    assert_eq!(said(&found), expected);
    assert_eq!((found.unaccounted_count(), found.unaccounted.len()), (0, 0));
    let waiting: Vec<(&str, Standing)> =
        found.waiting.iter().map(|one| (one.payment_id.as_str(), one.standing)).collect();
    assert_eq!(waiting.len(), 3, "{waiting:?}");
    for one in [("dead", Standing::Dead), ("held", Standing::Held), ("doubt", Standing::InDoubt)] {
        assert!(waiting.contains(&one), "{waiting:?}");
    }
    // A day has no repeats: it is told by payments.
    let day: Vec<String> = said(&of_day(&t).await);
    assert_eq!(day, expected.into_iter().filter(|said| !said.starts_with("REPEATED")).collect::<Vec<_>>());
    let shown = payments::get(&t.store, "held").await.unwrap().unwrap();
    assert_eq!(shown.standing, Standing::Held);
    assert!(shown.reason.unwrap().contains(&job(&t, "dead").await.to_string()));
    let later = payments::get(&t.store, "later").await.unwrap().unwrap();
    assert_eq!((later.until, later.reason), (Some(later.scheduled), None));
    t.sql.batch_execute("DELETE FROM group_hold; INSERT INTO rail_switch (kind, name, paused, reason, actor) VALUES ('rail', 'payment_webhook', true, 'night', 'test')").await.unwrap();
    let paused = payments::get(&t.store, "waiting").await.unwrap().unwrap();
    assert_eq!((paused.standing, paused.reason.unwrap().contains("night")), (Standing::Held, true));
}

#[tokio::test]
async fn whatever_is_lost_is_missed() {
    let t = ready().await;
    open(&t.store, new(6)).await.unwrap();
    let all: Vec<Payment> = (0..6).map(|n| payment(&format!("p{n}"), n, "1.00", "EUR")).collect();
    accepted_lines(&t, &all).await;
    hand_over(&t).await;
    assert_eq!((of_feed(&t).await.unaccounted_count(), of_day(&t).await.unaccounted_count()), (0, 0));
    for (lost, reason, in_day) in [
        ("DELETE FROM payment_exec_queue WHERE payment_id = 'p0'", "it has no row in the queue", 1),
        ("DELETE FROM payment WHERE payment_id = 'p1'", "there is no such payment", 2),
        (
            "DELETE FROM payment WHERE payment_id = 'p2'; DELETE FROM payment_exec_queue WHERE payment_id = 'p2'",
            "there is no such payment",
            3,
        ),
        (
            "DELETE FROM payment_outbox_pending w USING payment_exec_queue q WHERE w.outbox_id = q.exec_outbox_id AND q.payment_id = 'p3'",
            "its job is nowhere",
            4,
        ),
        ("UPDATE payment SET amount = 1.01 WHERE payment_id = 'p4'", "it is of another amount: 1.01 EUR", 4),
        ("DELETE FROM payment_feed_line WHERE item_no = 6", "has not been answered", 5),
    ] {
        let before = of_feed(&t).await.unaccounted_count();
        t.sql.batch_execute(lost).await.unwrap();
        let found = of_feed(&t).await;
        assert_eq!(found.unaccounted_count(), before + 1, "{lost}: {:?}", found.unaccounted);
        assert!(found.unaccounted.iter().any(|one| one.reason == reason), "{lost}: {:?}", found.unaccounted);
        assert_eq!(of_day(&t).await.unaccounted_count(), in_day, "{lost}");
    }
    let missing = of_feed(&t).await.unaccounted.into_iter().find(|one| one.item == Some(6)).unwrap();
    assert_eq!((missing.payment_id, missing.line), (None, None));
    // Of no feed: the queue remembers it.
    let alone = payment("alone", 6, "1.00", "EUR");
    payments::accept(&t.store, std::slice::from_ref(&alone), "test").await;
    t.sql.batch_execute("DELETE FROM payment WHERE payment_id = 'alone'").await.unwrap();
    let found = of_day(&t).await;
    assert!(found.unaccounted.iter().any(|one| one.payment_id.as_deref() == Some("alone")), "{:?}", found.unaccounted);
}

#[test]
fn words_are_read_as_they_are_written() {
    assert!(STANDINGS.into_iter().all(|standing| Standing::parse(standing.as_str()) == Some(standing)));
    assert!(FeedFormat::ALL.into_iter().all(|format| FeedFormat::parse(format.as_str()) == Some(format)));
}

#[tokio::test]
async fn a_feed_accounts_for_what_has_gone_after_its_retention() {
    let t = ready().await;
    open(&t.store, new(2)).await.unwrap();
    let all = [payment("a", 0, "1.10", "EUR"), payment("b", 1, "2.20", "EUR")];
    accepted_lines(&t, &all).await;
    hand_over(&t).await;
    let age = "SET session_replication_role = replica;
               UPDATE payment SET status = 'PROCESSING' WHERE payment_id = 'a';
               UPDATE payment_exec_queue SET queue_status = 'COMPLETED', scheduled_exec_time = now() - interval '11 days',
                 completed_at = now() - interval '11 days' WHERE payment_id = 'a';
               SET session_replication_role = origin";
    t.sql.batch_execute(age).await.unwrap();
    assert_eq!(payments::drop_completed(&t.store, 10).await.unwrap(), 1);
    assert!(payments::get(&t.store, "a").await.unwrap().is_none());
    let known = accepted(&t.store, "feed-1", &[1, 2]).await.unwrap();
    assert_eq!(known.iter().map(|known| known.is_dropped).collect::<Vec<bool>>(), [true, false]);
    let found = of_feed(&t).await;
    assert_eq!(
        (said(&found), found.unaccounted_count()),
        (vec!["DELIVERED 1 1.10 EUR".into(), "DISPATCHED 1 2.20 EUR".into()], 0)
    );
    assert_eq!(of_day(&t).await.unaccounted_count(), 0);
}

#[tokio::test]
async fn a_feed_goes_after_its_days_and_not_before_its_payments() {
    let t = ready().await;
    open(&t.store, new(3)).await.unwrap();
    open(&t.store, NewFeed { feed_id: "young", ..new(0) }).await.unwrap();
    let all = [payment("a", 0, "1.10", "EUR"), payment("b", 1, "2.20", "EUR")];
    accepted_lines(&t, &all).await;
    record(&t.store, "feed-1", &[rejected(3)]).await.unwrap();
    hand_over(&t).await;
    let age = "UPDATE payment_feed SET created_at = now() - interval '11 days' WHERE feed_id = 'feed-1';
               UPDATE payment_feed_line SET recorded_at = now() - interval '11 days'";
    t.sql.batch_execute(age).await.unwrap();
    let goes = async |id: &str| {
        let sql = format!(
            "SET session_replication_role = replica;
             UPDATE payment SET status = 'PROCESSING' WHERE payment_id = '{id}';
             UPDATE payment_exec_queue SET queue_status = 'COMPLETED', scheduled_exec_time = now() - interval '11 days',
               completed_at = now() - interval '11 days' WHERE payment_id = '{id}';
             SET session_replication_role = origin"
        );
        t.sql.batch_execute(&sql).await.unwrap();
        assert_eq!(payments::drop_completed(&t.store, 10).await.unwrap(), 1);
    };
    goes("a").await;
    assert_eq!(drop_old(&t.store, 10).await.unwrap(), 0, "b is still there");
    let accounted = ["DELIVERED 1 1.10 EUR", "DISPATCHED 1 2.20 EUR", "REJECTED 1 - -"];
    assert_eq!(
        (said(&of_feed(&t).await), of_feed(&t).await.unaccounted_count()),
        (accounted.map(str::to_owned).to_vec(), 0)
    );
    goes("b").await;
    assert_eq!(drop_old(&t.store, 12).await.unwrap(), 0, "it is too young");
    assert_eq!(drop_old(&t.store, 10).await.unwrap(), 1);
    assert_eq!(t.one::<i64>("SELECT count(*) FROM payment_feed_line").await, 0);
    assert_eq!((get(&t.store, "feed-1").await.unwrap(), items(&t.store, "young").await.unwrap()), (None, Some(0)));
    // Whoever was at it has to open it again.
    let late = record(&t.store, "feed-1", &[rejected(3)]).await.unwrap_err();
    assert!(matches!(late, StoreError::Repeat { .. }), "{late}");
    assert_eq!(t.one::<i64>("SELECT count(*) FROM payment_feed_line").await, 0);
}

/// A payment that is lost keeps its feed: somebody has to find that out.
#[tokio::test]
async fn a_feed_that_misses_a_payment_stays() {
    let t = ready().await;
    open(&t.store, new(1)).await.unwrap();
    accepted_lines(&t, &[payment("a", 0, "1.10", "EUR")]).await;
    let lost = "UPDATE payment_feed SET created_at = now() - interval '11 days'; DELETE FROM payment";
    t.sql.batch_execute(lost).await.unwrap();
    assert_eq!(drop_old(&t.store, 10).await.unwrap(), 0);
    assert_eq!(of_feed(&t).await.unaccounted_count(), 1);
}

/// Lines that are being recorded and a feed that is dropped: one of both is first.
#[tokio::test]
async fn a_feed_is_not_dropped_under_lines_that_are_recorded() {
    let t = ready().await;
    open(&t.store, new(1)).await.unwrap();
    t.sql.batch_execute("UPDATE payment_feed SET created_at = now() - interval '11 days'").await.unwrap();
    let other = t.db.connect().await;
    let recording = "BEGIN; SELECT payment_feed_record('feed-1', '{1}', '{2}', '{true}', '{a}', '{1}', '{EUR}', '{NULL}', '{NULL}')";
    other.batch_execute(recording).await.unwrap();
    assert_eq!(drop_old(&t.store, 10).await.unwrap(), 0, "it is passed over");
    other.batch_execute("COMMIT").await.unwrap();
    assert_eq!(drop_old(&t.store, 10).await.unwrap(), 0);
    assert_eq!(t.one::<i64>("SELECT count(*) FROM payment_feed_line").await, 1);
}

#[tokio::test]
async fn what_waits_for_a_switch_says_so_and_not_that_its_slot_will_do() {
    let t = ready().await;
    open(&t.store, new(1)).await.unwrap();
    accepted_lines(&t, &[payment("a", 0, "1.10", "EUR")]).await;
    let on = payments::get(&t.store, "a").await.unwrap().unwrap();
    assert_eq!((on.standing, on.reason, on.until.is_some()), (Standing::Scheduled, None, true));
    t.sql.batch_execute("UPDATE exec_rate_config SET enabled = 0").await.unwrap();
    let off = payments::get(&t.store, "a").await.unwrap().unwrap();
    assert_eq!((off.standing, off.until), (Standing::Scheduled, None));
    assert_eq!(off.reason.unwrap(), "its item type is switched off");
}
