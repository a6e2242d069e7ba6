//! What a limit's row does with a question. The database runs the same in `limiter_grant` (migrations/V12); a test of the
//! store holds the two to each other, and the property test runs this one.

use super::{DELTA, HORIZON, LEAD, Limit, us};

/// A row that was made beside others that nothing is known of is asked again after this.
const MADE_WAIT_MAX_US: i64 = 3_600_000_000;

/// A limit's row. Times are microseconds on the database's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The next slot.
    pub next_us: i64,
    /// When it was asked last.
    pub asked_us: i64,
    /// The switch: nothing is granted.
    pub paused: bool,
}

/// A question for slots that several limits allow.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// One for each row.
    pub limits: &'a [Limit],
    /// How many slots.
    pub want: u32,
    /// The database's clock is known to have gone forward: start anew.
    pub burn: bool,
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grant {
    /// Slots at `first_us`, and every `spacing_us` behind it.
    Slots {
        /// The database's clock.
        now_us: i64,
        /// The first of them.
        first_us: i64,
        /// Between two of them.
        spacing_us: i64,
        /// How many; at least one.
        count: u32,
    },
    /// None now.
    Denied {
        /// The database's clock.
        now_us: i64,
        /// When asking may help.
        ask_us: i64,
        /// Why.
        why: Denial,
    },
}

/// A slot that its node did not use and never will.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unused {
    /// The slot.
    pub slot_us: i64,
    /// The database's clock when it was granted, alone.
    pub granted_us: i64,
}

/// Why there is no slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Denial {
    /// All within the horizon are given out.
    Full,
    /// The switch is off.
    Paused,
    /// A row was missing and was made.
    Made,
    /// A row started anew, since the database's clock is not where it was.
    Reset,
}

impl Denial {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Full, Self::Paused, Self::Made, Self::Reset];

    /// As the database says it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Paused => "paused",
            Self::Made => "made",
            Self::Reset => "reset",
        }
    }

    /// Reads what `as_str` wrote.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|why| why.as_str() == text)
    }
}

/// Answers a question at `now_us`; `rows` are those of `ask.limits`, all locked.
///
/// With several limits the latest of their slots is everybody's, and **every** row goes on from it: a row that went on
/// from its own would let its slots bunch behind the slower one's.
pub fn grant(rows: &mut [Option<Row>], ask: &Ask<'_>, now_us: i64) -> Grant {
    let denied = |ask_us: i64, why: Denial| Grant::Denied { now_us, ask_us, why };
    if rows.iter().any(Option::is_none) {
        for (row, limit) in rows.iter_mut().zip(ask.limits) {
            row.get_or_insert(Row { next_us: limit.ahead_us(now_us), asked_us: now_us, paused: false });
        }
        let latest = rows.iter().flatten().map(|row| row.next_us).max().unwrap_or(now_us);
        return denied((latest - us(HORIZON)).min(now_us + MADE_WAIT_MAX_US), Denial::Made);
    }
    let mut latest = now_us + us(LEAD);
    let mut spacing_us = 1;
    let (mut reset, mut paused) = (false, false);
    for (row, limit) in rows.iter_mut().flatten().zip(ask.limits) {
        let ahead = limit.ahead_us(now_us);
        if ask.burn || row.asked_us > now_us + us(DELTA) || row.next_us > ahead + us(DELTA) {
            *row = Row { next_us: ahead, asked_us: now_us, ..*row };
            reset = true;
        }
        latest = latest.max(row.next_us);
        spacing_us = spacing_us.max(limit.gap_us());
        paused |= row.paused;
    }
    let ask_us = latest - us(HORIZON);
    if paused {
        return denied(now_us, Denial::Paused);
    }
    if reset {
        return denied(ask_us, Denial::Reset);
    }
    if ask_us > now_us {
        return denied(ask_us, Denial::Full);
    }
    let fit = (now_us + us(HORIZON) - latest) / spacing_us + 1;
    let count = i64::from(ask.want.max(1)).min(fit);
    let last = latest + (count - 1) * spacing_us;
    for (row, limit) in rows.iter_mut().zip(ask.limits) {
        if let Some(row) = row {
            *row = Row { next_us: last + limit.gap_us(), asked_us: now_us, ..*row };
        }
    }
    Grant::Slots { now_us, first_us: latest, spacing_us, count: u32::try_from(count).unwrap_or(1) }
}

/// Takes back a slot at `now_us`, wherever nothing was granted behind it. Whether any row took it.
///
/// What a row grants then lies no earlier than the slot would have, so a gap behind whatever was used before it. A slot
/// that is over was too near for its begin: the next one lies as far ahead as one can, but no later than it would have.
pub fn take_back(rows: &mut [Option<Row>], limits: &[Limit], unused: Unused, now_us: i64) -> bool {
    let Unused { slot_us, granted_us } = unused;
    let again = if slot_us > now_us { slot_us } else { now_us + us(HORIZON) };
    let mut taken = false;
    for (row, limit) in rows.iter_mut().zip(limits) {
        let behind = slot_us + limit.gap_us();
        if let Some(row) = row.as_mut().filter(|row| row.asked_us == granted_us && row.next_us == behind) {
            row.next_us = again.min(behind);
            taken = true;
        }
    }
    taken
}
