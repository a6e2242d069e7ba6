//! A slot for an event, or for many that are asked for at one time.

use std::time::Duration;

use jiff::Timestamp;
use railyard_core::slots::{Dice, HORIZON_DAYS, Openings};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::RateError;
use super::cache::Known;
use crate::connect::{Conn, Store};
use crate::error::StoreError;
use crate::transaction::{connection_survives, repeated};

/// Most events of one call: its transaction is to stay short, since others of its kind wait for it.
pub const ASSIGN_MAX: usize = 10_000;
/// Stretches of open windows that are sent along at first, and how many times more each time they did not suffice.
const STRETCHES: usize = 64;
const STRETCHES_GROW: usize = 8;
/// A configuration that changed under an assignment is read anew, so many times in all.
const STALE_MAX: u32 = 10;
/// How far back from our idea of the database's time the stretches begin.
const CLOCK_MARGIN: Duration = Duration::from_secs(60);

const ASSIGN: &str = "
    SELECT outcome, assigned_at, depth, contended, created, config_names, windows, scheduled
    FROM rate_assign($1, $2, $3, $4, $5, $6, $7)";

/// Which events are to start when.
#[derive(Clone, Copy, Debug)]
pub struct SlotRequest<'a> {
    /// By which limit.
    pub config: &'a str,
    /// Their ids; the same id has the same slot for ever.
    pub event_ids: &'a [String],
    /// Not before; none, or what is past, is now.
    pub requested: Option<Timestamp>,
    /// Given back unless confirmed within so many seconds; none: it is theirs.
    pub confirm_s: Option<u32>,
}

/// Where an event has its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slot {
    /// The event.
    pub event_id: String,
    /// The configuration that it was planned by.
    pub config_name: String,
    /// The window's beginning.
    pub window_start: Timestamp,
    /// When to start.
    pub scheduled: Timestamp,
    /// How long until then, by the database's clock; zero if that is past.
    pub delay: Duration,
    /// Whether this call has made it.
    pub created: bool,
}

/// What a call has come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// In the order of the ids.
    pub slots: Vec<Slot>,
    /// From the window that was asked for to the last one that was taken.
    pub depth: u64,
    /// Windows that others had locked.
    pub contended: u64,
}

/// Gives each event its slot, or finds the one that it has. All or none.
///
/// # Errors
/// [`RateError`]; transient errors of the database, among them that no connection is free, leave nothing behind.
pub async fn assign(store: &Store, request: SlotRequest<'_>) -> Result<Assignment, RateError> {
    let mut stretches = STRETCHES;
    let mut stale = 0;
    loop {
        let Some(known) = store.rates().find(store, request.config).await? else {
            return Err(RateError::UnknownConfig { name: request.config.to_owned() });
        };
        let openings = openings(&known, request.requested, stretches);
        match once(store, &known, &openings, request).await? {
            Tried::Done(done) => return Ok(done),
            Tried::Stale if stale < STALE_MAX => {
                stale += 1;
                store.rates().forget(&known.row);
            }
            Tried::Stale => {
                let detail = "the rate configuration keeps changing".to_owned();
                return Err(StoreError::Busy { detail }.into());
            }
            Tried::TooShort if openings.spans().is_some_and(|spans| spans.len() >= stretches) => {
                stretches = stretches.saturating_mul(STRETCHES_GROW);
            }
            Tried::TooShort => return Err(exhausted(store, request, windows_to_horizon(&known))),
            Tried::Full { searched } => return Err(exhausted(store, request, searched)),
        }
    }
}

fn exhausted(store: &Store, request: SlotRequest<'_>, searched: u64) -> RateError {
    store.rates().failed();
    let event = request.event_ids.first().map_or("", String::as_str);
    tracing::error!(
        target: "SlotAssignmentService",
        "Lookahead exhausted for event {event}, searched {searched} windows"
    );
    RateError::Exhausted { searched }
}

/// The calendar leaves nothing open for as long as it is looked at.
fn windows_to_horizon(known: &Known) -> u64 {
    let days = u64::try_from(HORIZON_DAYS).unwrap_or(0);
    days * 86_400 / u64::from(known.row.spec.window_size_s.max(1))
}

fn openings(known: &Known, requested: Option<Timestamp>, stretches: usize) -> Openings {
    let now = known.now();
    let now = now.checked_sub(CLOCK_MARGIN).unwrap_or(now);
    known.row.spec.openings(requested.map_or(now, |requested| requested.max(now)), stretches)
}

enum Tried {
    Done(Assignment),
    /// Another configuration is the active one.
    Stale,
    /// The stretches of open windows ended.
    TooShort,
    Full {
        searched: u64,
    },
}

async fn once(
    store: &Store,
    known: &Known,
    openings: &Openings,
    request: SlotRequest<'_>,
) -> Result<Tried, StoreError> {
    let (first, end): (Vec<i64>, Vec<i64>) =
        openings.spans().unwrap_or_default().iter().map(|(first, end)| (first.0, end.0)).unzip();
    let spans = openings.spans().map(|_| (first, end)).unzip();
    let dice: Vec<i64> = request.event_ids.iter().map(|_| Dice::of(rand::random()).number()).collect();
    let confirm_s = request.confirm_s.map(|seconds| i32::try_from(seconds).unwrap_or(i32::MAX));
    let (spans, dice) = (&spans, &dice);
    repeated(|| async move {
        let parameters: [&(dyn ToSql + Sync); 7] =
            [&known.row.config_id, &request.event_ids, &request.requested, dice, &spans.0, &spans.1, &confirm_s];
        let conn = store.api().await?;
        let tried = run(&conn, &parameters).await;
        match &tried {
            Ok(_) => conn.ok(),
            Err(error) if connection_survives(error) => conn.ok(),
            Err(_) => {}
        }
        tried
    })
    .await
    .and_then(|tried| {
        Ok(match tried {
            Answer::Row(row) => match row.try_get::<_, &str>("outcome")? {
                "stale" => Tried::Stale,
                _ => Tried::Done(done(store, &row, request.event_ids)?),
            },
            Answer::TooShort => Tried::TooShort,
            Answer::Full { searched } => Tried::Full { searched },
        })
    })
}

enum Answer {
    Row(Row),
    TooShort,
    Full { searched: u64 },
}

async fn run(conn: &Conn, parameters: &[&(dyn ToSql + Sync)]) -> Result<Answer, StoreError> {
    let statement = conn.prepare_cached(ASSIGN).await?;
    let error = match conn.query_one(&statement, parameters).await {
        Ok(row) => return Ok(Answer::Row(row)),
        Err(error) => error,
    };
    match error.as_db_error().map(|db| (db.code().code(), db.message())) {
        Some(("RY503", said)) => {
            let searched = said.split(' ').next().and_then(|number| number.parse().ok());
            Ok(Answer::Full { searched: searched.unwrap_or(0) })
        }
        Some(("RY504", _)) => Ok(Answer::TooShort),
        Some(_) | None => Err(error.into()),
    }
}

fn done(store: &Store, row: &Row, event_ids: &[String]) -> Result<Assignment, StoreError> {
    let contended: Vec<Timestamp> = row.try_get("contended")?;
    for window in &contended {
        tracing::warn!(target: "SlotAssignmentService", "Window contention on {window}, skipping to next");
    }
    store.rates().contended(contended.len());
    let at: Timestamp = row.try_get("assigned_at")?;
    let created: Vec<bool> = row.try_get("created")?;
    let names: Vec<String> = row.try_get("config_names")?;
    let windows: Vec<Timestamp> = row.try_get("windows")?;
    let scheduled: Vec<Timestamp> = row.try_get("scheduled")?;
    let each = event_ids.iter().zip(created).zip(names).zip(windows).zip(scheduled);
    let slots = each.map(|((((event_id, created), config_name), window_start), scheduled)| Slot {
        event_id: event_id.clone(),
        config_name,
        window_start,
        scheduled,
        delay: Duration::try_from(scheduled.duration_since(at)).unwrap_or_default(),
        created,
    });
    let depth: i64 = row.try_get("depth")?;
    Ok(Assignment {
        slots: slots.collect(),
        depth: u64::try_from(depth).unwrap_or(0),
        contended: contended.len() as u64,
    })
}
