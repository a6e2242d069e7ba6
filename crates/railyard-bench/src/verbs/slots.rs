//! `bench slots`: what it costs to plan, many events at one instant, and one behind many windows that are full.

use std::time::{Duration, Instant};

use clap::Args;
use futures_util::future::try_join_all;
use jiff::{Span, Timestamp};
use railyard_core::slots::RateConfig;
use railyard_store::rate::{self, ASSIGN_MAX, SlotRequest};

use crate::database::Database;
use crate::load::load_unseen;
use crate::options::{Common, Size};
use crate::progress::{self, say};
use crate::report::Report;
use crate::stand::{Stand, message};
use crate::statistics::{median, percentile, ratio};

/// Events of a window, and its seconds: the source's.
const PER_WINDOW: u32 = 100;
const WINDOW_S: u32 = 4;
/// Who plans at once, one event at a time.
const SINGLES: usize = 8;
/// Single assignments that make connections and plans, and are not counted.
const WARM_UP: usize = 50;

/// The peer of a bulk assignment: the same rows with the same indexes, and nothing counted.
const BARE_TABLE: &str = "
    CREATE TABLE IF NOT EXISTS bare_slot (event_id text PRIMARY KEY, config_name text NOT NULL, config_id bigint NOT NULL,
      window_start timestamptz NOT NULL, scheduled_time timestamptz NOT NULL, requested_time timestamptz NOT NULL,
      confirm_by timestamptz, created_at timestamptz NOT NULL DEFAULT clock_timestamp());
    CREATE INDEX IF NOT EXISTS ix_bare_slot ON bare_slot (config_name, scheduled_time)";
const BARE_ROWS: &str = "
    INSERT INTO bare_slot SELECT e.id, $2, 1, to_timestamp(e.n / 100 * 4), to_timestamp(e.n / 25.0), now(), NULL
    FROM unnest($1::text[]) WITH ORDINALITY AS e(id, n) ORDER BY e.id";
/// Windows with more than they may have, or with another count than they have slots.
const WRONG: &str = "
    SELECT count(*) FROM rate_limit_window_counter c
    LEFT JOIN (SELECT config_name, window_start, count(*) AS slots FROM rate_limit_event_slot GROUP BY 1, 2) s
      USING (config_name, window_start)
    WHERE c.slot_count > $1 OR c.slot_count <> coalesce(s.slots, 0)";

/// Measures assigning slots, many at once and one at a time (1000000 events to one instant by default).
///
/// bulk_per_second: all of them by calls of 10,000, 100 to a window of 4 s; the peer (bare_per_second) inserts the same
/// rows into a table with the same indexes and counts nothing. depth_ratio: the median time of one assignment behind
/// --full full windows ÷ that of one behind none, taken in turn. singles_per_second: eight callers at once, one event at a
/// time, to one instant. held_max_ms: the slowest single assignment while a business transaction, which has enqueued and
/// whose slot was asked for, is held open for --hold-seconds. wrong must be 0: windows over their maximum, or whose counter is not the number of their slots.
#[derive(Debug, Args)]
pub struct Slots {
    #[command(flatten)]
    common: Common,
    /// Full windows in front of a single assignment.
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    full: u32,
    /// Single assignments of each kind in each round.
    #[arg(long, value_name = "N", default_value_t = 400, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    samples: u32,
    /// How long a business transaction is held open.
    #[arg(long, value_name = "S", default_value_t = 5, value_parser = clap::value_parser!(u64).range(0..=60))]
    hold_seconds: u64,
}

/// One round.
#[derive(Default)]
struct Round {
    bulk: f64,
    bare: f64,
    deep_ms: f64,
    deep_p99_ms: f64,
    shallow_ms: f64,
    singles: f64,
    held_max_ms: f64,
}

impl Slots {
    pub(crate) async fn run(&self) -> anyhow::Result<()> {
        let stand = Stand::start(&self.common).await?;
        let report = self.measure(&stand).await;
        stand.clear().await?;
        report?.print(self.common.json)
    }

    async fn measure(&self, stand: &Stand) -> anyhow::Result<Report> {
        let events = self.common.messages.unwrap_or(1_000_000);
        let database = stand.server.database().await?;
        database.sql.run(BARE_TABLE).await?;
        let mut rounds = Vec::new();
        for round in 1..=self.common.rounds {
            say(&format!("round {round} of {}", self.common.rounds));
            rounds.push(self.round(&database, round, usize::try_from(events)?).await?);
        }
        let wrong: i64 = database.sql.value(WRONG, &[&i32::try_from(PER_WINDOW)?]).await?;
        anyhow::ensure!(wrong == 0, "{wrong} windows are overfull or miscounted");
        let mut report = Report::of("slots", &self.common, Size::of(events, 1), stand.server.version());
        report.option("full", self.full);
        report.option("samples", self.samples);
        report.option("hold_seconds", self.hold_seconds);
        figures(&mut report, &rounds);
        report.set("wrong", wrong);
        report.set("assigned", database.sql.one::<i64>("SELECT count(*) FROM rate_limit_event_slot").await?);
        report.set("contended", database.store.rates().counts().contention);
        Ok(report)
    }

    async fn round(&self, database: &Database, round: u32, events: usize) -> anyhow::Result<Round> {
        let at = ahead(database).await?;
        let mut taken = Round::default();
        let bulk = config(database, &format!("bulk-{round}")).await?;
        taken.bulk = bulk_per_second(database, &bulk, "assigning", events, at).await?;
        taken.bare = bare_per_second(database, &bulk, events).await?;
        database.sql.run("TRUNCATE bare_slot").await?;
        database.checkpoint().await?;

        let (deep, shallow) = (format!("deep-{round}"), format!("shallow-{round}"));
        config(database, &deep).await?;
        config(database, &shallow).await?;
        let filled = usize::try_from(self.full)? * usize::try_from(PER_WINDOW)?;
        bulk_per_second(database, &deep, "filling", filled, at).await?;
        database.checkpoint().await?;
        (taken.deep_ms, taken.deep_p99_ms, taken.shallow_ms) = self.in_turn(database, &deep, &shallow, at).await?;

        let many = config(database, &format!("singles-{round}")).await?;
        taken.singles = self.at_once(database, &many, at).await?;
        taken.held_max_ms = self.held(database, &many, at).await?;
        Ok(taken)
    }

    /// Medians of both kinds, and what a hundredth of the deep ones exceeds.
    async fn in_turn(
        &self,
        database: &Database,
        deep: &str,
        shallow: &str,
        at: Timestamp,
    ) -> anyhow::Result<(f64, f64, f64)> {
        let (mut deep_ms, mut shallow_ms) = (Vec::new(), Vec::new());
        for n in 0..usize::try_from(self.samples)? + WARM_UP {
            let far = one_ms(database, deep, n, at).await?;
            // A window later once one is full: as many new windows as the others meet, and none that is full in front.
            let windows = i64::try_from(n / usize::try_from(PER_WINDOW)?)?;
            let later = at.checked_add(Span::new().seconds(windows * i64::from(WINDOW_S)))?;
            let near = one_ms(database, shallow, n, later).await?;
            if n >= WARM_UP {
                deep_ms.push(far);
                shallow_ms.push(near);
            }
        }
        Ok((median(&deep_ms), percentile(&deep_ms, 99), median(&shallow_ms)))
    }

    async fn at_once(&self, database: &Database, config: &str, at: Timestamp) -> anyhow::Result<f64> {
        let each = usize::try_from(self.samples)?;
        let started = Instant::now();
        let callers = (0..SINGLES).map(|caller| async move {
            for n in 0..each {
                one_ms(database, config, caller * each + n, at).await?;
            }
            anyhow::Ok(())
        });
        try_join_all(callers).await?;
        Ok((SINGLES * each) as f64 / started.elapsed().as_secs_f64())
    }

    /// Somebody has enqueued in a transaction and asked for a slot meanwhile, and the transaction stays open.
    async fn held(&self, database: &Database, config: &str, at: Timestamp) -> anyhow::Result<f64> {
        let mut job = message(self.common.payload, "http://127.0.0.1:9/");
        job.credentials_id = Some(database.credentials_id);
        let open = load_unseen(database, &job, config, Size::of(100, 100)).await?;
        let own = [format!("{config}-held")];
        rate::assign(&database.store, SlotRequest { confirm_s: Some(60), ..request(config, &own, at) }).await?;
        let (started, mut slowest) = (Instant::now(), 0.0_f64);
        let mut n = SINGLES * usize::try_from(self.samples)?;
        while started.elapsed() < Duration::from_secs(self.hold_seconds) {
            slowest = slowest.max(one_ms(database, config, n, at).await?);
            n += 1;
        }
        open.show().await?;
        Ok(slowest)
    }
}

/// An hour from now, so that no window of the run begins to pass.
async fn ahead(database: &Database) -> anyhow::Result<Timestamp> {
    let hour = i64::from(WINDOW_S) * 900;
    let now = database.now().await?.as_second();
    Ok(Timestamp::from_second((now / hour + 2) * hour)?)
}

async fn config(database: &Database, name: &str) -> anyhow::Result<String> {
    rate::set(&database.store, &RateConfig::new(name, PER_WINDOW, WINDOW_S), "bench").await?;
    Ok(name.to_owned())
}

fn ids(config: &str, from: usize, until: usize) -> Vec<String> {
    (from..until).map(|n| format!("{config}-{n:08}")).collect()
}

fn request<'a>(config: &'a str, event_ids: &'a [String], at: Timestamp) -> SlotRequest<'a> {
    SlotRequest { config, event_ids, requested: Some(at), confirm_s: None }
}

async fn bulk_per_second(
    database: &Database,
    config: &str,
    what: &str,
    events: usize,
    at: Timestamp,
) -> anyhow::Result<f64> {
    let bar = progress::bar(what, u64::try_from(events)?);
    let started = Instant::now();
    for from in (0..events).step_by(ASSIGN_MAX) {
        let event_ids = ids(config, from, events.min(from + ASSIGN_MAX));
        rate::assign(&database.store, request(config, &event_ids, at)).await?;
        bar.inc(u64::try_from(event_ids.len())?);
    }
    bar.finish_and_clear();
    Ok(events as f64 / started.elapsed().as_secs_f64())
}

async fn bare_per_second(database: &Database, config: &str, events: usize) -> anyhow::Result<f64> {
    let insert = database.sql.prepare(BARE_ROWS).await?;
    let started = Instant::now();
    for from in (0..events).step_by(ASSIGN_MAX) {
        let event_ids = ids(config, from, events.min(from + ASSIGN_MAX));
        database.sql.execute(&insert, &[&event_ids, &config]).await?;
    }
    Ok(events as f64 / started.elapsed().as_secs_f64())
}

async fn one_ms(database: &Database, config: &str, n: usize, at: Timestamp) -> anyhow::Result<f64> {
    let event_ids = [format!("{config}-one-{n:08}")];
    let started = Instant::now();
    rate::assign(&database.store, request(config, &event_ids, at)).await?;
    Ok(started.elapsed().as_secs_f64() * 1000.0)
}

fn figures(report: &mut Report, rounds: &[Round]) {
    let of = |value: fn(&Round) -> f64| rounds.iter().map(value).collect::<Vec<_>>();
    let bulk = report.rounds("bulk_per_second", &of(|round| round.bulk));
    let bare = report.rounds("bare_per_second", &of(|round| round.bare));
    report.number("bulk_ratio", ratio(bulk, bare));
    let deep = report.rounds("deep_ms", &of(|round| round.deep_ms));
    report.rounds("deep_p99_ms", &of(|round| round.deep_p99_ms));
    let shallow = report.rounds("shallow_ms", &of(|round| round.shallow_ms));
    report.number("depth_ratio", ratio(deep, shallow));
    report.rounds("singles_per_second", &of(|round| round.singles));
    report.rounds("held_max_ms", &of(|round| round.held_max_ms));
}
