//! The judge of a run: what the receiver saw, held against what the database has on record.
//!
//! `railyard_testkit::verify` judges the receiver's log alone; here every request must have its row in
//! `payment_outbox_attempts`, every repeat its reason there, and nothing may be left behind.

use std::collections::HashMap;

use railyard_testkit::Receipt;
use tokio_postgres::Client;

/// An attempt as the database tells it, late results left out.
#[derive(Clone, Debug)]
pub(crate) struct Attempt {
    /// DISPATCHING, DISPATCHED, RETRYABLE, …
    pub(crate) state: String,
    /// What the receiver answered, as far as the node heard it.
    pub(crate) response_code: Option<i32>,
    /// Why it is not DISPATCHED.
    pub(crate) error_code: Option<String>,
}

/// All attempts by outbox id and number.
#[derive(Debug)]
pub(crate) struct Record {
    attempts: HashMap<(String, i64), Attempt>,
}

impl Record {
    /// Reads the whole record.
    pub(crate) async fn read(sql: &Client) -> Self {
        let rows = sql
            .query(
                "SELECT outbox_id::text, attempt_no::bigint, state, response_code, error_code
                 FROM payment_outbox_attempts WHERE NOT late",
                &[],
            )
            .await
            .unwrap();
        let attempts = rows.iter().map(|row| {
            let attempt = Attempt { state: row.get(2), response_code: row.get(3), error_code: row.get(4) };
            ((row.get(0), row.get(1)), attempt)
        });
        Self { attempts: attempts.collect() }
    }

    /// The attempt that a request was.
    pub(crate) fn of(&self, receipt: &Receipt) -> Option<&Attempt> {
        self.attempts.get(&(receipt.message_key(), receipt.attempt()?))
    }

    /// Attempts that stand in another state.
    pub(crate) fn besides(&self, state: &str) -> Vec<String> {
        let others = self.attempts.iter().filter(|(_, attempt)| attempt.state != state);
        others.map(|((id, number), attempt)| format!("attempt {number} of {id}: {attempt:?}")).collect()
    }

    /// How many attempts stand in this state.
    pub(crate) fn count(&self, state: &str) -> usize {
        self.attempts.values().filter(|attempt| attempt.state == state).count()
    }

    /// Requests that were sent without an intent on record, or whose row contradicts what was answered.
    pub(crate) fn contradictions(&self, exchanges: &[Receipt]) -> Vec<String> {
        exchanges.iter().filter_map(|receipt| self.contradiction(receipt)).collect()
    }

    fn contradiction(&self, receipt: &Receipt) -> Option<String> {
        let line = receipt.line();
        let Some(attempt) = self.of(receipt) else { return Some(format!("no row for {line}")) };
        let fits = match attempt.state.as_str() {
            "DISPATCHED" => receipt.accepted(),
            "RETRYABLE" | "FAILED" if attempt.response_code.is_some() => !receipt.accepted(),
            // Given up, or its answer got lost: anything may have been answered.
            "ZOMBIE_REQUEUE" | "RETRYABLE" | "FAILED" | "DEFERRED" => true,
            _ => false,
        };
        (!fits).then(|| format!("{} ({:?}) is on record for {line}", attempt.state, attempt.response_code))
    }

    /// Messages that were sent again after the receiver had taken them, without a row that says why: the taken
    /// attempt must be on record as given up, deferred, or as one whose answer was lost.
    pub(crate) fn unexplained(&self, receipts: &[Receipt]) -> Vec<String> {
        let mut offences = Vec::new();
        for repeated in railyard_testkit::verify::resent_after_acceptance(receipts) {
            for pair in repeated.receipts.windows(2) {
                if pair[0].accepted() && !self.explains(&pair[0]) {
                    offences.push(format!(
                        "{} although {:?} ({:?})",
                        pair[1].line(),
                        self.of(&pair[0]),
                        pair[0].line()
                    ));
                }
            }
        }
        offences
    }

    fn explains(&self, taken: &Receipt) -> bool {
        self.of(taken).is_some_and(|attempt| match attempt.state.as_str() {
            "ZOMBIE_REQUEUE" | "DEFERRED" => true,
            "RETRYABLE" => attempt.response_code.is_none() && attempt.error_code.is_some(),
            _ => false,
        })
    }
}

/// Rows of work in progress: 0 when everything has ended and its traces are tidied away.
pub(crate) async fn unfinished(sql: &Client) -> i64 {
    sql.query_one(
        "SELECT (SELECT count(*) FROM payment_outbox_pending) + (SELECT count(*) FROM in_flight)
              + (SELECT count(*) FROM scheduled_job) + (SELECT count(*) FROM ready_group)",
        &[],
    )
    .await
    .unwrap()
    .get(0)
}

/// How many messages ended COMPLETED.
pub(crate) async fn completed(sql: &Client) -> i64 {
    sql.query_one("SELECT count(*) FROM dispatch_job_outcome WHERE status = 'COMPLETED'", &[]).await.unwrap().get(0)
}

/// Places in the sequence of any group that are neither ended nor anywhere else, or there twice.
pub(crate) async fn misplaced(sql: &Client) -> Vec<String> {
    let rows = sql
        .query(
            "WITH place AS (
               SELECT outbox_id FROM payment_outbox_pending UNION ALL SELECT outbox_id FROM in_flight
               UNION ALL SELECT outbox_id FROM scheduled_job UNION ALL SELECT outbox_id FROM dispatch_job_outcome)
             SELECT j.outbox_id::text, count(p.outbox_id) FROM dispatch_job j LEFT JOIN place p USING (outbox_id)
             GROUP BY j.outbox_id HAVING count(p.outbox_id) <> 1",
            &[],
        )
        .await
        .unwrap();
    rows.iter().map(|row| format!("{} is in {} places", row.get::<_, String>(0), row.get::<_, i64>(1))).collect()
}
