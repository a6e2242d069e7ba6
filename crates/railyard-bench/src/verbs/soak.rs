//! `bench soak`: the same load for a long time. What grows, grows here.

mod latencies;

use std::time::{Duration, Instant};

use clap::Args;
use railyard_core::job::NewJob;
use railyard_store::clock::boottime;
use railyard_store::jobs;
use serde_json::{Value, json};

use crate::database::Database;
use crate::deliveries::settled;
use crate::load::of_group;
use crate::node::Node;
use crate::options::{Common, Size};
use crate::progress::{self, say};
use crate::report::Report;
use crate::stand::Stand;
use crate::statistics::ratio;
use latencies::Latencies;

/// Tables whose rows come and go.
const HOT: [&str; 5] =
    ["payment_outbox_pending", "ready_group", "in_flight", "participant_outbox_sequences", "group_hold"];
/// Transactions a second in which the load is committed.
const TICKS: u64 = 10;
/// Share of the time that is not counted at its start, in percent.
const WARM_UP_PERCENT: u64 = 10;

/// Measures latency and table sizes under a fixed load, early and late (--per-second 200 for --seconds 600).
///
/// Ten times a second a part of the load is committed as the API does it, over --groups groups (1000 by default) in turn.
/// Latency runs from the commit's return to the receiver's receipt. After a warm-up of 10 % the rest is halved: p50_ratio
/// and p99_ratio are the second half ÷ the first, and size_ratio the bytes of the hot tables with their indexes at the
/// end ÷ in the middle. Each should stay near 1: nothing grows with time. --messages and --rounds have no effect.
#[derive(Debug, Args)]
pub struct Soak {
    #[command(flatten)]
    common: Common,
    /// How long the load lasts.
    #[arg(long, value_name = "S", default_value_t = 600, value_parser = clap::value_parser!(u64).range(2..=1_000_000))]
    seconds: u64,
    /// Messages a second.
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u64).range(10..=100_000))]
    per_second: u64,
}

impl Soak {
    pub(crate) async fn run(&self) -> anyhow::Result<()> {
        let stand = Stand::start(&self.common).await?;
        let report = self.measure(&stand).await;
        stand.clear().await?;
        report?.print(self.common.json)
    }

    async fn measure(&self, stand: &Stand) -> anyhow::Result<Report> {
        let database = stand.server.database().await?;
        let mut node = stand.node(&database, &[])?;
        node.ready(&database).await?;
        stand.receiver.stamp().await?;
        say("the load is on");
        let load = self.load(stand, &database, &mut node).await?;
        let bar = progress::bar("the rest", load.messages);
        let (receipts, _) =
            settled(&stand.receiver, std::slice::from_mut(&mut node), &database, load.messages, &bar).await?;
        bar.finish_and_clear();
        let latencies = load.latencies.received(stand.receiver.drain().await?);
        let end = sizes(&database).await?;
        let memory = node.resident_bytes()?;
        node.stop().await?;
        let groups = self.common.groups.unwrap_or(1000);
        let size = Size { groups, depth: load.messages.div_ceil(groups) };
        let mut report = Report::of("soak", &self.common, size, stand.server.version());
        report.option("seconds", self.seconds);
        report.option("per_second", self.per_second);
        report.option("messages", load.messages);
        report.number("per_second", ratio(load.messages as f64, load.lasted.as_secs_f64()));
        latencies.figures(&mut report, WARM_UP_PERCENT);
        report.number("size_ratio", ratio(total(&end), total(&load.middle)));
        report.set("sizes_middle", shown(&load.middle));
        report.set("sizes_end", shown(&end));
        report.set("node_bytes_middle", load.memory);
        report.set("node_bytes_end", memory);
        report.set("messages", load.messages);
        report.set("receipts", receipts);
        report.set("completed", database.completed().await?);
        Ok(report)
    }

    async fn load(&self, stand: &Stand, database: &Database, node: &mut Node) -> anyhow::Result<Load> {
        let job = stand.job(database, &stand.receiver.accepting());
        let groups = self.common.groups.unwrap_or(1000);
        let ticks = self.seconds * TICKS;
        let bar = progress::bar("under load", ticks);
        let started = Instant::now();
        let mut load = Load::default();
        for tick in 0..ticks {
            let due = started + Duration::from_millis(tick * 1000 / TICKS);
            tokio::time::sleep_until(due.into()).await;
            // Rounded so that the whole second has exactly what was asked for.
            let count = (tick + 1) * self.per_second / TICKS - tick * self.per_second / TICKS;
            load.commit(database, &job, groups, count).await?;
            if tick % TICKS == TICKS - 1 {
                node.alive()?;
                load.latencies = load.latencies.received(stand.receiver.drain().await?);
            }
            if tick == ticks * (100 + WARM_UP_PERCENT) / 200 {
                load.middle = sizes(database).await?;
                load.memory = node.resident_bytes()?;
            }
            bar.inc(1);
        }
        load.lasted = started.elapsed();
        bar.finish_and_clear();
        Ok(load)
    }
}

/// What was committed, and what stood in the middle.
#[derive(Default)]
struct Load {
    messages: u64,
    lasted: Duration,
    latencies: Latencies,
    middle: Vec<(&'static str, i64, i64)>,
    memory: u64,
}

impl Load {
    /// One transaction and its wake-up, as the API does both.
    async fn commit(&mut self, database: &Database, job: &NewJob, groups: u64, count: u64) -> anyhow::Result<()> {
        let batch: Vec<NewJob> =
            (self.messages..self.messages + count).map(|n| of_group(job, "soak", n % groups)).collect();
        let created = jobs::create(&database.store, &batch).await?;
        let at = boottime();
        jobs::notify(&database.store).await?;
        self.latencies.committed(created.iter().map(|created| created.outbox_id.to_string()), at);
        self.messages += count;
        Ok(())
    }
}

async fn sizes(database: &Database) -> anyhow::Result<Vec<(&'static str, i64, i64)>> {
    let mut sizes = Vec::new();
    for table in HOT {
        let (rows, indexes) = database.sizes(table).await?;
        sizes.push((table, rows, indexes));
    }
    Ok(sizes)
}

fn total(sizes: &[(&'static str, i64, i64)]) -> f64 {
    sizes.iter().map(|(_, rows, indexes)| rows + indexes).sum::<i64>() as f64
}

fn shown(sizes: &[(&'static str, i64, i64)]) -> Value {
    let table = |(table, rows, indexes): &(&str, i64, i64)| {
        ((*table).to_owned(), json!({ "table_bytes": rows, "index_bytes": indexes }))
    };
    Value::Object(sizes.iter().map(table).collect())
}
