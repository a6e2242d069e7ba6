//! Statement 6: outcomes as they are given to the database, and what became of them.

use std::collections::HashMap;

use railyard_core::AttemptId;
use railyard_core::settlement::{EndStatus, Next};
use railyard_core::text::clean_str;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::Ended;
use crate::clock::boottime;
use crate::connect::Conn;
use crate::error::StoreError;

const LATE: &str = "SELECT settle_late($1, $2, $3, $4, clock_timestamp() - $5::bigint * interval '1 millisecond',
  $6, $7, $8, $9, $10, $11, $12, $13)";

/// What became of one outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Settled {
    /// It was written, with what follows from it.
    Applied {
        /// How the message ended, if it did.
        ended: Option<EndStatus>,
        /// An earlier attempt's success ended it, not this result.
        known_success: bool,
        /// The message ended, its group goes on, and has something else that is due.
        more: bool,
    },
    /// Somebody had healed the attempt first.
    Late(Late),
}

/// A result whose in-flight row was gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Late {
    /// This very result is on record: an answer got lost.
    Already,
    /// A late failure: evidence, nothing else.
    Failure,
    /// A late success; the next attempt is in flight and knows now.
    Flagged,
    /// A late success; the waiting message is finished.
    Taken,
    /// A late success; the message had ended.
    Ended,
    /// The attempt was never committed.
    Unknown,
    /// The number belongs to another attempt: refused (LEASE_LOST).
    Foreign,
}

impl Late {
    fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "ALREADY" => Self::Already,
            "LATE_FAILURE" => Self::Failure,
            "LATE_FLAGGED" => Self::Flagged,
            "LATE_TAKEN" => Self::Taken,
            "LATE_ENDED" => Self::Ended,
            "UNKNOWN" => Self::Unknown,
            "FOREIGN" => Self::Foreign,
            _ => return None,
        })
    }
}

/// Longest `error_message`, in characters (the column's CHECK).
const ERROR_MESSAGE_CHARS_MAX: usize = 4000;
/// Longest reference or code that is kept of a rail's answer.
const RAIL_TEXT_CHARS_MAX: usize = 255;

/// Outcomes, column by column.
#[derive(Default)]
pub(crate) struct Params {
    attempts: Vec<Uuid>,
    states: Vec<&'static str>,
    end_status: Vec<Option<&'static str>>,
    blocks: Vec<bool>,
    after_ms: Vec<i64>,
    spends: Vec<bool>,
    ago_ms: Vec<i64>,
    latency_ms: Vec<Option<i32>>,
    response_code: Vec<Option<i32>>,
    response_body: Vec<Option<Vec<u8>>>,
    response_truncated: Vec<bool>,
    rail_reference: Vec<Option<String>>,
    rail_code: Vec<Option<String>>,
    error_code: Vec<Option<String>>,
    error_message: Vec<Option<String>>,
}

impl Params {
    pub(crate) fn of(ended: &[Ended]) -> Self {
        let mut params = Self::default();
        for one in ended {
            params.push(one);
        }
        params
    }

    fn push(&mut self, ended: &Ended) {
        let settlement = &ended.settlement;
        let (end_status, blocks, after_ms, spends) = match settlement.next {
            Next::End { status, blocks } => (Some(status.as_str()), blocks, 0, false),
            Next::Again { after, spends_budget } => {
                (None, false, i64::try_from(after.as_millis()).unwrap_or(i64::MAX), spends_budget)
            }
        };
        let ago = boottime().saturating_sub(ended.ended_at);
        let answer = settlement.answer.as_ref();
        self.attempts.push(settlement.attempt_id.0);
        self.states.push(settlement.state.as_str());
        self.end_status.push(end_status);
        self.blocks.push(blocks);
        self.after_ms.push(after_ms);
        self.spends.push(spends);
        self.ago_ms.push(i64::try_from(ago.as_millis()).unwrap_or(i64::MAX));
        self.latency_ms.push(settlement.latency.map(|span| i32::try_from(span.as_millis()).unwrap_or(i32::MAX)));
        self.response_code.push(answer.map(|answer| i32::from(answer.status)));
        self.response_body.push(answer.map(|answer| answer.body.clone()));
        self.response_truncated.push(answer.is_some_and(|answer| answer.truncated));
        let rail_text = |text: Option<&String>| text.map(|text| clean_str(text, RAIL_TEXT_CHARS_MAX));
        self.rail_reference.push(rail_text(answer.and_then(|answer| answer.rail_reference.as_ref())));
        self.rail_code.push(rail_text(answer.and_then(|answer| answer.rail_code.as_ref())));
        self.error_code.push(settlement.code.map(|code| code.to_string()));
        self.error_message.push(settlement.detail.as_deref().map(|text| clean_str(text, ERROR_MESSAGE_CHARS_MAX)));
    }

    pub(crate) fn as_sql(&self) -> [&(dyn ToSql + Sync); 15] {
        [
            &self.attempts,
            &self.states,
            &self.end_status,
            &self.blocks,
            &self.after_ms,
            &self.spends,
            &self.ago_ms,
            &self.latency_ms,
            &self.response_code,
            &self.response_body,
            &self.response_truncated,
            &self.rail_reference,
            &self.rail_code,
            &self.error_code,
            &self.error_message,
        ]
    }

    /// The arguments of `settle_late` for the nth outcome.
    fn late<'a>(&'a self, n: usize, ended: &'a Ended, attempt_no: &'a i32) -> [&'a (dyn ToSql + Sync); 13] {
        [
            &self.attempts[n],
            &ended.settlement.outbox_id.0,
            attempt_no,
            &self.states[n],
            &self.ago_ms[n],
            &self.latency_ms[n],
            &self.response_code[n],
            &self.response_body[n],
            &self.response_truncated[n],
            &self.rail_reference[n],
            &self.rail_code[n],
            &self.error_code[n],
            &self.error_message[n],
        ]
    }
}

/// Reads the outcomes that were written.
pub(crate) fn read<'a>(rows: impl IntoIterator<Item = &'a Row>) -> Result<HashMap<AttemptId, Settled>, StoreError> {
    let mut settled = HashMap::new();
    for row in rows {
        let ended: Option<String> = row.try_get("ended")?;
        let ended = match ended {
            Some(text) => Some(EndStatus::parse(&text).ok_or_else(|| unreadable("ended", &text))?),
            None => None,
        };
        let applied =
            Settled::Applied { ended, known_success: row.try_get("known_success")?, more: row.try_get("more")? };
        settled.insert(AttemptId(row.try_get("attempt_id")?), applied);
    }
    Ok(settled)
}

/// Deals, in a transaction of their own, with the outcomes whose row was gone.
pub(crate) async fn write_late(
    conn: &Conn,
    given: &[Ended],
    settled: &mut HashMap<AttemptId, Settled>,
) -> Result<(), StoreError> {
    let mut gone: Vec<(usize, &Ended)> =
        given.iter().enumerate().filter(|(_, one)| !settled.contains_key(&one.settlement.attempt_id)).collect();
    if gone.is_empty() {
        return Ok(());
    }
    // One order of locks for everybody: by group.
    gone.sort_by(|(_, a), (_, b)| a.settlement.lane.cmp(&b.settlement.lane));
    let params = Params::of(given);
    let statement = conn.prepare_cached(LATE).await?;
    let mut late = Vec::with_capacity(gone.len());
    conn.batch_execute("BEGIN").await?;
    for (n, one) in gone {
        let attempt_no = i32::try_from(one.settlement.attempt_no).unwrap_or(i32::MAX);
        let row = conn.query_one(&statement, &params.late(n, one, &attempt_no)).await?;
        let text: String = row.try_get(0)?;
        let fate = Late::parse(&text).ok_or_else(|| unreadable("settle_late", &text))?;
        late.push((one.settlement.attempt_id, Settled::Late(fate)));
    }
    conn.batch_execute("COMMIT").await?;
    settled.extend(late);
    Ok(())
}

fn unreadable(column: &str, value: &str) -> StoreError {
    StoreError::Unreadable { detail: format!("{column} is {value:?}") }
}
