//! Payments that were given up while nobody knows whether the rail has taken them.

use railyard_core::ErrorCode;

use super::*;
use crate::holds::Decision;
use crate::payments::{Filter, Page};

/// An attempt: its state, its code and its text.
type Tried = (&'static str, &'static str, &'static str);

/// An attempt as it stands on record, in its order. `None` for the code of one that was healed: it has no end either.
async fn attempt(t: &TestStore, job: OutboxId, number: i32, state: &str, said: Option<(&str, &str)>, late: bool) {
    let sql = "
        INSERT INTO payment_outbox_attempt_archive (outbox_id, attempt_no, late, attempt_id, state, rail_type, epoch, node_id,
          claimed_at, completed_at, recorded_at, error_code, error_message)
        SELECT $1::uuid, $2::integer, $3::boolean, gen_random_uuid(), $4::text, 'payment_webhook', 1, gen_random_uuid(),
          clock_timestamp(), CASE WHEN $5::text IS NOT NULL THEN clock_timestamp() END, clock_timestamp(), $5::text, $6::text";
    let (code, text) = said.unzip();
    t.sql.execute(sql, &[&job.0, &number, &late, &state, &code, &text]).await.unwrap();
}

async fn given_up(t: &TestStore, job: OutboxId, status: &str) {
    t.begin(job).await;
    t.finish(job, status, false).await;
}

async fn standing(t: &TestStore, id: &str) -> Standing {
    payments::get(&t.store, id).await.unwrap().unwrap().standing
}

const CEILING: &str = "RETRY_CEILING_EXCEEDED";

#[tokio::test]
async fn a_payment_that_was_given_up_without_an_answer_is_in_doubt() {
    let t = ready().await;
    open(&t.store, new(7)).await.unwrap();
    let lost = ("RETRYABLE", "DISPATCH_TIMEOUT", "no answer");
    let down = ("RETRYABLE", "HTTP_500", "the receiver answered 500");
    let cases: [(&str, &[Tried], Standing); 7] = [
        ("timeout", &[down, ("FAILED", CEILING, "DISPATCH_TIMEOUT: no answer")], Standing::InDoubt),
        ("reset", &[("FAILED", CEILING, "CONNECTION_RESET: gone")], Standing::InDoubt),
        // Nothing was sent the last time: the answer that is missing is an earlier one's.
        ("before", &[lost, ("FAILED", CEILING, "CONNECT_REFUSED: closed")], Standing::InDoubt),
        // Another answer later says nothing about the one that never came.
        ("answered", &[lost, ("FAILED", CEILING, "HTTP_503: down")], Standing::InDoubt),
        ("down", &[down, ("FAILED", CEILING, "HTTP_500: down")], Standing::Dead),
        ("closed", &[("FAILED", CEILING, "CONNECT_TIMEOUT: nobody there")], Standing::Dead),
        ("refused", &[("FAILED", "RAIL_REFUSED", "AC04")], Standing::Dead),
    ];
    let all: Vec<Payment> = (0..).zip(&cases).map(|(n, (id, ..))| payment(id, n, "1.00", "EUR")).collect();
    accepted_lines(&t, &all).await;
    hand_over(&t).await;
    for (id, attempts, expected) in &cases {
        let job = job(&t, id).await;
        for (number, (state, code, text)) in (1..).zip(*attempts) {
            attempt(&t, job, number, state, Some((*code, *text)), false).await;
        }
        assert_eq!(standing(&t, id).await, Standing::Dispatched, "{id}");
        given_up(&t, job, "ERROR").await;
        assert_eq!(standing(&t, id).await, *expected, "{id}");
    }
    let sums = ["DEAD 3 3.00 EUR".to_owned(), "IN_DOUBT 4 4.00 EUR".to_owned()];
    for found in [of_feed(&t).await, of_day(&t).await] {
        assert_eq!(said(&found), sums);
        let doubts = found.waiting.iter().filter(|one| one.standing == Standing::InDoubt);
        assert_eq!(doubts.count(), 4, "{:?}", found.waiting);
    }
    let listed = payments::search(&t.store, &Filter::default(), &Page::After { place: None, size: 100 }).await.unwrap();
    let row = listed.payments.iter().find(|row| row.payment_id == "timeout").unwrap();
    assert_eq!((row.standing, row.queue_status.as_str()), (Standing::InDoubt, "DEAD_LETTER"));
    assert!(row.reason.as_ref().unwrap().contains("no answer: boom"), "{:?}", row.reason);
}

#[tokio::test]
async fn a_late_answer_or_the_rails_own_refusal_ends_the_doubt() {
    let t = ready().await;
    open(&t.store, new(3)).await.unwrap();
    let all = [payment("late", 0, "1", "EUR"), payment("asked", 1, "1", "EUR"), payment("skipped", 2, "1", "EUR")];
    accepted_lines(&t, &all).await;
    hand_over(&t).await;
    // Healed, with no attempt left; then its answer comes after all.
    let late = job(&t, "late").await;
    attempt(&t, late, 1, "FAILED", None, false).await;
    given_up(&t, late, "ERROR").await;
    assert_eq!(standing(&t, "late").await, Standing::InDoubt);
    attempt(&t, late, 1, "RETRYABLE", Some(("HTTP_500", "down")), true).await;
    assert_eq!(standing(&t, "late").await, Standing::Dead);
    // What a rail says of a repeat is its word on both, if it knows a repeat when it sees one.
    let asked = job(&t, "asked").await;
    attempt(&t, asked, 1, "ZOMBIE_REQUEUE", None, false).await;
    attempt(&t, asked, 2, "FAILED", Some(("RAIL_REFUSED", "AC04")), false).await;
    given_up(&t, asked, "ERROR").await;
    assert_eq!(standing(&t, "asked").await, Standing::InDoubt);
    let idempotent = "UPDATE rail SET on_unknown = 'retry' WHERE rail_type = 'payment_webhook'";
    t.sql.batch_execute(idempotent).await.unwrap();
    assert_eq!(standing(&t, "asked").await, Standing::Dead);
    // A person has decided.
    let skipped = job(&t, "skipped").await;
    attempt(&t, skipped, 1, "ZOMBIE_REQUEUE", None, false).await;
    given_up(&t, skipped, "CANCELLED").await;
    assert_eq!(standing(&t, "skipped").await, Standing::Dead);
}

/// A new run that never reached the rail answers nothing.
#[tokio::test]
async fn a_new_run_inherits_the_doubt_of_the_one_before() {
    let t = ready().await;
    open(&t.store, new(1)).await.unwrap();
    accepted_lines(&t, &[payment("a", 0, "1", "EUR")]).await;
    hand_over(&t).await;
    let first = job(&t, "a").await;
    attempt(&t, first, 1, "FAILED", Some((CEILING, "PROTOCOL_ERROR: no HTTP")), false).await;
    given_up(&t, first, "ERROR").await;
    assert_eq!(standing(&t, "a").await, Standing::InDoubt);
    let decision = Decision { actor: "operator", reason: "the bank has not seen it" };
    assert_eq!(dispatch::requeue(&t.store, PAYMENT, "a", decision).await.unwrap(), dispatch::Requeue::Done);
    assert_eq!(standing(&t, "a").await, Standing::Scheduled);
    hand_over(&t).await;
    let second = job(&t, "a").await;
    assert_ne!(second, first);
    assert_eq!(standing(&t, "a").await, Standing::Dispatched);
    attempt(&t, second, 1, "FAILED", Some((CEILING, "DNS_FAILED: no such name")), false).await;
    given_up(&t, second, "ERROR").await;
    assert_eq!(standing(&t, "a").await, Standing::InDoubt);
}

/// The words that the database looks for are those of the core.
#[tokio::test]
async fn the_database_and_the_core_agree_on_what_has_lost_its_answer() {
    let t = TestStore::new().await;
    let source: String = t.one("SELECT prosrc FROM pg_proc WHERE proname = 'exec_is_in_doubt'").await;
    let known = [
        ErrorCode::DispatchTimeout,
        ErrorCode::ConnectTimeout,
        ErrorCode::ConnectRefused,
        ErrorCode::ConnectFailed,
        ErrorCode::DnsFailed,
        ErrorCode::TlsFailed,
        ErrorCode::AddressRefused,
        ErrorCode::ConnectionReset,
        ErrorCode::ConnectionClosed,
        ErrorCode::ProtocolError,
        ErrorCode::HttpStatus(500),
        ErrorCode::RedirectRefused(302),
        ErrorCode::Gone,
        ErrorCode::RateLimited,
        ErrorCode::ServiceUnavailable,
        ErrorCode::NotAcknowledged,
        ErrorCode::InvalidRequest,
        ErrorCode::Expired,
        ErrorCode::CommitLost,
    ];
    for code in known {
        assert_eq!(source.contains(&format!("'{code}'")), code.answer_lost(), "{code}");
    }
}
