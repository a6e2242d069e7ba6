//! Limits: slots for starts, and the switch of rails that have no limit. `core::limiter` says what holds and why.

use std::time::Duration;

use jiff::Timestamp;
use railyard_core::limiter::{Ask, Denial, Grant, Limit, Unused};

use crate::clock::boottime;
use crate::connect::{Conn, Store};
use crate::error::StoreError;

pub(crate) const GRANT: &str = "SELECT * FROM limiter_grant($1, $2, $3, $4, $5, $6)";

pub(crate) const TAKE_BACK: &str = "SELECT limiter_take_back($1, $2, $3, $4, $5)";

pub(crate) const SWITCH: &str = "SELECT paused FROM rail_limiter WHERE limit_key = $1";

/// A row for a rail without a limit. Should it get one, it starts anew: nothing is known of what was sent.
const MAKE_SWITCH: &str = "
    INSERT INTO rail_limiter (limit_key, next_at, asked_at, paused)
    VALUES ($1, 'infinity', clock_timestamp(),
      EXISTS (SELECT 1 FROM rail_switch s WHERE s.kind = 'rail' AND 'rail:' || s.name = $1 AND s.paused))
    ON CONFLICT DO NOTHING";

/// Written in the transaction that switches the rail: who asks for a slot waits for it and reads it.
pub(crate) const PAUSE: &str = "
    INSERT INTO rail_limiter AS r (limit_key, next_at, asked_at, paused)
    VALUES ('rail:' || $1, 'infinity', clock_timestamp(), true)
    ON CONFLICT (limit_key) DO UPDATE SET paused = true";

/// Nothing gathers while a rail is paused: the next slot is now or later, and its followers are a gap apart.
pub(crate) const RESUME: &str = "UPDATE rail_limiter SET paused = false WHERE limit_key = 'rail:' || $1";

/// An answer, and the node's clock ([`boottime`]) around the question.
#[derive(Clone, Copy, Debug)]
pub struct Answered<T> {
    /// Before it was sent.
    pub sent: Duration,
    /// After the answer was there.
    pub replied: Duration,
    /// What it says.
    pub answer: T,
}

impl Store {
    /// Asks for slots of the limits with these keys, in one short transaction.
    ///
    /// # Errors
    /// Errors of the database; whatever was granted is not used.
    pub async fn limiter_grant(&self, keys: &[String], ask: &Ask<'_>) -> Result<Answered<Grant>, StoreError> {
        let conn = self.work().await?;
        let answered = grant_at(&conn, keys, ask, None).await?;
        conn.ok();
        Ok(answered)
    }

    /// Gives a slot of the limits with these keys back to their rows. Whether any of them could still take it.
    ///
    /// # Errors
    /// Errors of the database; nobody has the slot then.
    pub async fn limiter_take_back(
        &self,
        keys: &[String],
        limits: &[Limit],
        unused: Unused,
    ) -> Result<bool, StoreError> {
        let conn = self.work().await?;
        let taken = take_back_at(&conn, keys, limits, unused, None).await?;
        conn.ok();
        Ok(taken)
    }

    /// Whether the switch with this key is off.
    ///
    /// # Errors
    /// Errors of the database.
    pub async fn limiter_paused(&self, key: &str) -> Result<Answered<bool>, StoreError> {
        let conn = self.work().await?;
        let statement = conn.prepare_cached(SWITCH).await?;
        loop {
            let sent = boottime();
            let found = conn.query_opt(&statement, &[&key]).await?;
            let replied = boottime();
            if let Some(row) = found {
                let answer = row.try_get(0)?;
                conn.ok();
                return Ok(Answered { sent, replied, answer });
            }
            conn.execute(MAKE_SWITCH, &[&key]).await?;
        }
    }

    /// The database's clock, in microseconds.
    ///
    /// # Errors
    /// Errors of the database.
    pub async fn clock_us(&self) -> Result<Answered<i64>, StoreError> {
        let conn = self.work().await?;
        let statement = conn.prepare_cached("SELECT clock_timestamp()").await?;
        let sent = boottime();
        let row = conn.query_one(&statement, &[]).await?;
        let replied = boottime();
        let answer = row.try_get::<_, Timestamp>(0)?.as_microsecond();
        conn.ok();
        Ok(Answered { sent, replied, answer })
    }
}

async fn grant_at(
    conn: &Conn,
    keys: &[String],
    ask: &Ask<'_>,
    at: Option<Timestamp>,
) -> Result<Answered<Grant>, StoreError> {
    let gaps: Vec<i64> = ask.limits.iter().map(|limit| limit.gap_us()).collect();
    // SPENT is added by the function; a test holds the two to each other.
    let us_of = |window: Duration| i64::try_from(window.as_micros()).unwrap_or(i64::MAX / 4);
    let windows: Vec<i64> = ask.limits.iter().map(|limit| us_of(limit.window)).collect();
    let want = i32::try_from(ask.want).unwrap_or(i32::MAX);
    let statement = conn.prepare_cached(GRANT).await?;
    let sent = boottime();
    let row = conn.query_one(&statement, &[&keys, &gaps, &windows, &want, &ask.burn, &at]).await?;
    let replied = boottime();
    let us = |column: &str| row.try_get::<_, Timestamp>(column).map(Timestamp::as_microsecond);
    let now_us = us("now_at")?;
    let answer = match row.try_get::<_, Option<String>>("why")? {
        None => {
            let granted: i32 = row.try_get("granted")?;
            let count = u32::try_from(granted).unwrap_or(0);
            Grant::Slots { now_us, first_us: us("first_at")?, spacing_us: row.try_get("spacing_us")?, count }
        }
        Some(why) => {
            let unreadable = || StoreError::Unreadable { detail: format!("why is {why}") };
            Grant::Denied { now_us, ask_us: us("ask_at")?, why: Denial::parse(&why).ok_or_else(unreadable)? }
        }
    };
    Ok(Answered { sent, replied, answer })
}

async fn take_back_at(
    conn: &Conn,
    keys: &[String],
    limits: &[Limit],
    unused: Unused,
    at: Option<Timestamp>,
) -> Result<bool, StoreError> {
    let gaps: Vec<i64> = limits.iter().map(|limit| limit.gap_us()).collect();
    let unreadable = |error: jiff::Error| StoreError::Unreadable { detail: error.to_string() };
    let slot = Timestamp::from_microsecond(unused.slot_us).map_err(unreadable)?;
    let granted = Timestamp::from_microsecond(unused.granted_us).map_err(unreadable)?;
    let statement = conn.prepare_cached(TAKE_BACK).await?;
    Ok(conn.query_one(&statement, &[&keys, &gaps, &slot, &granted, &at]).await?.try_get(0)?)
}

#[cfg(test)]
mod tests;
