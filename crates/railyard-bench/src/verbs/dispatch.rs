//! `bench dispatch`: what a dispatcher's claim costs, when a million items wait and when ten thousand do.

use std::time::Instant;

use clap::Args;
use railyard_store::dispatch;
use railyard_store::payments::PAYMENT;

use crate::database::Database;
use crate::options::{Common, Size};
use crate::profile::buffers;
use crate::progress::{self, say};
use crate::report::Report;
use crate::stand::Stand;
use crate::statistics::{median, ratio};

/// Claims that make connections, plans and caches, and are not counted: the database keeps a plan after the fifth.
const WARM_UP: u32 = 8;
/// Bytes that a context has beside its payload.
const CONTEXT: u32 = 40;

/// Measures a claim of 500 scheduled items with their contexts (1000000 READY over 100000 groups by default, beside --few).
///
/// The claim is the dispatcher's own, and what it took is put back, which is not counted. The peer is the same with --few
/// items, claimed in turn with the other. Times are medians of each round; buffers are shared buffers touched by the claim
/// (pg_stat_statements). ratio_time and ratio_buffers are the cost with many ÷ the cost with few; ratio is the larger one.
#[derive(Debug, Args)]
pub struct Dispatch {
    #[command(flatten)]
    common: Common,
    /// Items that are READY in the peer.
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..))]
    few: u64,
    /// Claims of each round.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    samples: u32,
}

/// One claim.
#[derive(Clone, Copy)]
struct Sample {
    ms: f64,
    buffers: f64,
    claimed: usize,
}

/// A database and what was taken of it.
struct Side {
    database: Database,
    samples: Vec<Vec<Sample>>,
}

impl Dispatch {
    pub(crate) async fn run(&self) -> anyhow::Result<()> {
        let stand = Stand::start(&self.common).await?;
        let report = self.measure(&stand).await;
        stand.clear().await?;
        report?.print(self.common.json)
    }

    async fn measure(&self, stand: &Stand) -> anyhow::Result<Report> {
        let size = self.common.size(1_000_000, 100_000);
        let mut few = Side::prepare(stand, Size::of(self.few, size.groups), self.common.payload).await?;
        let mut many = Side::prepare(stand, size, self.common.payload).await?;
        for round in 1..=self.common.rounds {
            say(&format!("round {round} of {}", self.common.rounds));
            self.round(&mut few, &mut many).await?;
        }
        let mut report = Report::of("dispatch", &self.common, size, stand.server.version());
        report.option("few", self.few);
        report.option("samples", self.samples);
        figures(&mut report, &few.samples, &many.samples);
        Ok(report)
    }

    /// In turn, and either is first as often: whatever else the machine does meets both.
    async fn round(&self, few: &mut Side, many: &mut Side) -> anyhow::Result<()> {
        few.warm_up().await?;
        many.warm_up().await?;
        let bar = progress::bar("claiming", self.samples.into());
        let (mut of_few, mut of_many) = (Vec::new(), Vec::new());
        for n in 0..self.samples {
            if n % 2 == 0 {
                of_few.push(few.sample().await?);
                of_many.push(many.sample().await?);
            } else {
                of_many.push(many.sample().await?);
                of_few.push(few.sample().await?);
            }
            bar.inc(1);
        }
        bar.finish_and_clear();
        few.samples.push(of_few);
        many.samples.push(of_many);
        Ok(())
    }
}

impl Side {
    async fn prepare(stand: &Stand, size: Size, payload: u32) -> anyhow::Result<Self> {
        let database = stand.server.database().await?;
        let (items, groups, bytes) = (size.messages(), size.groups, payload.saturating_sub(CONTEXT));
        let fill = format!(
            "INSERT INTO payment_exec_queue (item_type, payment_id, scheduled_exec_time, group_id, requested_time, acceptance_no,
               init_workflow_id)
             SELECT 'PAYMENT', 'p' || n, now() - interval '1 day' + n * interval '1 ms', 'g' || n % {groups}, now(), n, 'init'
             FROM generate_series(1, {items}) n;
             INSERT INTO payment_exec_context
             SELECT 'PAYMENT', 'p' || n, jsonb_build_object('instruction', repeat('x', {bytes})), 1 FROM generate_series(1, {items}) n"
        );
        database.sql.run(&fill).await?;
        database.rest().await?;
        Ok(Self { database, samples: Vec::new() })
    }

    async fn warm_up(&self) -> anyhow::Result<()> {
        for _ in 0..WARM_UP {
            self.sample().await?;
        }
        // What was claimed and put back leaves dead rows in front of the queue: the same on both sides.
        self.database.rest().await
    }

    async fn sample(&self) -> anyhow::Result<Sample> {
        let store = &self.database.store;
        let name = dispatch::batch_name();
        let before = buffers(&self.database).await?;
        let started = Instant::now();
        let claimed = dispatch::claim(store, PAYMENT, &name, u32::MAX).await?.items.len();
        let ms = started.elapsed().as_secs_f64() * 1000.0;
        let after = buffers(&self.database).await?;
        anyhow::ensure!(claimed > 0, "nothing was claimed");
        dispatch::put_back(store, PAYMENT, &name).await?;
        Ok(Sample { ms, buffers: after - before, claimed })
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
    // Where these differ, it was not the same work.
    pair("claimed", |sample| sample.claimed as f64);
    let time = pair("ms", |sample| sample.ms);
    let touched = pair("buffers", |sample| sample.buffers);
    report.number("ratio_time", time);
    report.number("ratio_buffers", touched);
    report.number("ratio", time.max(touched));
    report.set("claimed", many.iter().chain(few).flatten().map(|sample| sample.claimed).sum::<usize>());
}
