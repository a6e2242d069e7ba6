//! `bench claim`: what it costs to find work and to begin it, when much waits and when little does.

use std::time::{Duration, Instant};

use clap::Args;
use railyard_core::backoff::Backoff;
use railyard_core::settlement::settle;
use railyard_core::{CallOutcome, ErrorCode, Message};
use railyard_store::clock::boottime;
use railyard_store::work::{Batch, Ended};

use crate::database::Database;
use crate::load::load;
use crate::options::{Common, Size};
use crate::profile::buffers;
use crate::progress::{self, say};
use crate::report::Report;
use crate::sql_ceiling::Member;
use crate::stand::Stand;
use crate::statistics::{median, ratio};

/// Groups that are begun at once: a full transaction.
const BEGUN: usize = 100;
const SLACK: Duration = Duration::from_secs(5);
/// Looks that make connections, plans and caches, and are not counted.
const WARM_UP: u32 = 5;

/// Measures discovering due work and beginning 100 groups (1000000 messages over 100000 groups by default, beside --few).
///
/// Both are the store's own: looks over all partitions until 100 groups are found, and one transaction that begins
/// them. Then the 100 are put back, which is not counted. The peer is the same with --few messages waiting, one a group.
/// Times are medians over all samples; buffers are shared buffers touched by the product's statements
/// (pg_stat_statements). ratio_time and ratio_buffers are the cost with many ÷ the cost with few; ratio is the larger.
/// hints_few and hints_many say how many groups the looks showed, and the two halves are shown apart.
#[derive(Debug, Args)]
pub struct Claim {
    #[command(flatten)]
    common: Common,
    /// Messages that wait in the peer.
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..))]
    few: u64,
    /// Looks and begins in each round.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    samples: u32,
}

/// One look and one begin.
#[derive(Clone, Copy, Default)]
struct Sample {
    discover_ms: f64,
    begin_ms: f64,
    discover_buffers: f64,
    begin_buffers: f64,
    hints: f64,
    begun: usize,
}

/// A database with its backlog, and our membership of it.
struct Side {
    database: Database,
    member: Member,
    samples: Vec<Vec<Sample>>,
}

impl Claim {
    pub(crate) async fn run(&self) -> anyhow::Result<()> {
        let stand = Stand::start(&self.common).await?;
        let report = self.measure(&stand).await;
        stand.clear().await?;
        report?.print(self.common.json)
    }

    async fn measure(&self, stand: &Stand) -> anyhow::Result<Report> {
        let size = self.common.size(1_000_000, 100_000);
        let mut few = Side::prepare(stand, Size::of(self.few, self.few)).await?;
        let mut many = Side::prepare(stand, size).await?;
        for round in 1..=self.common.rounds {
            say(&format!("round {round} of {}", self.common.rounds));
            few.round(self.samples).await?;
            many.round(self.samples).await?;
        }
        let mut report = Report::of("claim", &self.common, size, stand.server.version());
        report.option("few", self.few);
        report.option("samples", self.samples);
        figures(&mut report, &few.samples, &many.samples);
        few.member.leave().await?;
        many.member.leave().await?;
        Ok(report)
    }
}

impl Side {
    async fn prepare(stand: &Stand, size: Size) -> anyhow::Result<Self> {
        let database = stand.server.database().await?;
        let job = stand.job(&database, &stand.receiver.accepting());
        load(&database.store, &job, "waiting", size).await?;
        database.rest().await?;
        let member = Member::join(&database.store).await?;
        Ok(Self { database, member, samples: Vec::new() })
    }

    async fn round(&mut self, samples: u32) -> anyhow::Result<()> {
        for _ in 0..WARM_UP {
            self.sample().await?;
        }
        let bar = progress::bar("looking and beginning", samples.into());
        let mut taken = Vec::new();
        for _ in 0..samples {
            taken.push(self.sample().await?);
            bar.inc(1);
        }
        bar.finish_and_clear();
        self.samples.push(taken);
        Ok(())
    }

    async fn sample(&self) -> anyhow::Result<Sample> {
        let store = &self.database.store;
        let before = buffers(&self.database).await?;
        let started = Instant::now();
        let mut requests = self.member.hints(store, BEGUN).await?;
        let discover = started.elapsed();
        let between = buffers(&self.database).await?;
        let hints = requests.len();
        requests.truncate(BEGUN);
        let batch = Batch { settle: Vec::new(), begin: requests, slack: SLACK };
        let started = Instant::now();
        let done = store.run(self.member.node, &batch).await.map_err(|failed| failed.error)?;
        let begin = started.elapsed();
        let after = buffers(&self.database).await?;
        let begun = done.begun.len();
        anyhow::ensure!(begun == batch.begin.len(), "{begun} of {} groups were begun", batch.begin.len());
        let back = done.begun.values().map(put_back(self.database.now().await?)).collect();
        let back = Batch { settle: back, begin: Vec::new(), slack: SLACK };
        store.run(self.member.node, &back).await.map_err(|failed| failed.error)?;
        Ok(Sample {
            discover_ms: discover.as_secs_f64() * 1000.0,
            begin_ms: begin.as_secs_f64() * 1000.0,
            discover_buffers: between - before,
            begin_buffers: after - between,
            hints: hints as f64,
            begun,
        })
    }
}

/// As a call that was not made, to be looked at again at once.
fn put_back(now: jiff::Timestamp) -> impl Fn(&Message) -> Ended {
    move |message| {
        let outcome = CallOutcome::NotStarted {
            code: ErrorCode::LeaseLost,
            detail: "put back by a bench".to_owned(),
            after: Duration::ZERO,
        };
        let settlement = settle(message, outcome, None, &Backoff::webhook(), now, 0.5);
        Ended { settlement, ended_at: boottime() }
    }
}

fn figures(report: &mut Report, few: &[Vec<Sample>], many: &[Vec<Sample>]) {
    let mut pair = |name: &str, value: fn(&Sample) -> f64| {
        let of = |rounds: &[Vec<Sample>]| -> Vec<f64> {
            rounds.iter().map(|round| median(&round.iter().map(value).collect::<Vec<_>>())).collect()
        };
        let few = report.rounds(&format!("{name}_few"), &of(few));
        let many = report.rounds(&format!("{name}_many"), &of(many));
        ratio(many, few)
    };
    pair("hints", |sample| sample.hints);
    let discover = pair("discover_ms", |sample| sample.discover_ms);
    let begin = pair("begin_ms", |sample| sample.begin_ms);
    let time = pair("ms", |sample| sample.discover_ms + sample.begin_ms);
    let discover_buffers = pair("discover_buffers", |sample| sample.discover_buffers);
    let begin_buffers = pair("begin_buffers", |sample| sample.begin_buffers);
    let touched = pair("buffers", |sample| sample.discover_buffers + sample.begin_buffers);
    report.number("ratio_discover_time", discover);
    report.number("ratio_begin_time", begin);
    report.number("ratio_discover_buffers", discover_buffers);
    report.number("ratio_begin_buffers", begin_buffers);
    report.number("ratio_time", time);
    report.number("ratio_buffers", touched);
    report.number("ratio", time.max(touched));
    report.set("begun", many.iter().chain(few).flatten().map(|sample| sample.begun).sum::<usize>());
}
