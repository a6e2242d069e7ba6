//! `bench nodes`: whether a message costs more when several nodes share one database.

use std::time::{Duration, Instant};

use clap::Args;
use serde_json::{Value, json};

use crate::database::Database;
use crate::deliveries::{self, Delivered};
use crate::idle::without_idle;
use crate::load::load_unseen;
use crate::node::{Node, Setting};
use crate::options::{Common, Size};
use crate::profile::{Profile, Statements};
use crate::progress::say;
use crate::report::{Report, rounded};
use crate::stand::Stand;
use crate::statistics::{median, ratio};

/// Shares have settled when no partition has moved for so long: longer than an owner keeps one at least.
const QUIET: Duration = Duration::from_secs(3);
const SETTLED_WITHIN: Duration = Duration::from_secs(90);
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// A member counts after three renewals: at one a second, nodes share the partitions within seconds.
const RENEWAL_S: u32 = 1;

/// Measures statements and WAL per delivered message with 1, 2 and 4 nodes (10000 groups, 20000 messages by default).
///
/// Nodes are processes like replicas: each has --concurrency calls of its own. In each round, for each number of nodes in
/// turn: they start on a database without work and share the partitions; what they do then, by the clock alone, is counted
/// for --idle-ms; all messages are written in one transaction, and its COMMIT shows them to all nodes at once; everything
/// is counted from there until the last outcome is recorded. statements and wal_bytes are per message, less what the idle
/// nodes do in the same time (renewals, looks at scheduled jobs and at what is in flight); a look for work counts even if
/// it was in vain. statements_all and wal_bytes_all have everything. statements_ratio and wal_ratio = the figure ÷ the
/// first number's. batch is begins and outcomes in one transaction: the ratios stay near 1 as long as it does not shrink.
#[derive(Debug, Args)]
pub struct Nodes {
    #[command(flatten)]
    common: Common,
    /// Numbers of nodes; the first is what the others are compared with.
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_values_t = [1, 2, 4],
          value_parser = clap::value_parser!(u32).range(1..=8))]
    nodes: Vec<u32>,
    /// Milliseconds for which idle nodes are watched.
    #[arg(long, value_name = "MS", default_value_t = 5000, value_parser = clap::value_parser!(u64).range(100..=600_000))]
    idle_ms: u64,
}

/// What one number of nodes showed, a value a round. Costs are per message.
#[derive(Default)]
struct Figures {
    per_second: Vec<f64>,
    statements: Vec<f64>,
    statements_all: Vec<f64>,
    wal: Vec<f64>,
    wal_all: Vec<f64>,
    batch: Vec<f64>,
    node_ms: Vec<f64>,
    smallest_share: i64,
    receipts: u64,
    last: Option<Delivered>,
}

impl Nodes {
    pub(crate) async fn run(&self) -> anyhow::Result<()> {
        let stand = Stand::start(&self.common).await?;
        let report = self.measure(&stand).await;
        stand.clear().await?;
        report?.print(self.common.json)
    }

    async fn measure(&self, stand: &Stand) -> anyhow::Result<Report> {
        let size = self.common.size(20_000, 10_000);
        let database = stand.server.database().await?;
        let mut figures: Vec<(u32, Figures)> = self.nodes.iter().map(|count| (*count, Figures::default())).collect();
        for round in 1..=self.common.rounds {
            // Another one goes first in each round: tables grow.
            let first = (round as usize - 1) % figures.len();
            for turn in 0..figures.len() {
                let place = (first + turn) % figures.len();
                let (count, figures) = &mut figures[place];
                say(&format!("round {round} of {}, {count} nodes", self.common.rounds));
                self.one(stand, &database, size, &format!("nodes-{round}-{place}"), *count, figures).await?;
            }
        }
        let mut report = Report::of("nodes", &self.common, size, stand.server.version());
        report.option("nodes", self.nodes.clone());
        report.option("idle_ms", self.idle_ms);
        report.set("settings", stand.server.settings().await?);
        report.set("receipts", figures.iter().map(|(_, figures)| figures.receipts).sum::<u64>());
        report.set("completed", database.completed().await?);
        show(&mut report, &figures, size);
        Ok(report)
    }

    async fn one(
        &self,
        stand: &Stand,
        database: &Database,
        size: Size,
        prefix: &str,
        count: u32,
        figures: &mut Figures,
    ) -> anyhow::Result<()> {
        database.rest().await?;
        let settings: [Setting; 1] = [("lease.renewal_s", RENEWAL_S.to_string())];
        let mut nodes = stand.nodes(count, database, &settings)?;
        share(database, &mut nodes, count).await?;
        figures.smallest_share = database.smallest_share().await?;
        let idle = self.idle(database).await?;
        let job = stand.job(database, &stand.receiver.accepting());
        let messages = load_unseen(database, &job, prefix, size).await?;
        database.checkpoint().await?;
        stand.receiver.reset().await?;
        let statements = Statements::start(database).await?;
        messages.show().await?;
        let delivered = deliveries::watch(stand, database, &mut nodes, size.messages(), statements).await?;
        anyhow::ensure!(database.shared(count, QUIET).await?, "partitions moved while messages were delivered");
        figures.batch.push(batch(&nodes).await?);
        let delivered = deliveries::stop(delivered, database, nodes).await?;
        figures.add(delivered, &idle, size.messages() as f64);
        Ok(())
    }

    async fn idle(&self, database: &Database) -> anyhow::Result<Profile> {
        let statements = Statements::start(database).await?;
        tokio::time::sleep(Duration::from_millis(self.idle_ms)).await;
        statements.stop(database).await
    }
}

impl Figures {
    fn add(&mut self, delivered: Delivered, idle: &Profile, messages: f64) {
        let profile = &delivered.profile;
        let each = |value: f64| ratio(value, messages);
        if let Some(statements) = profile.statements {
            self.statements.push(each(without_idle(&profile.calls, &idle.calls)));
            self.statements_all.push(each(statements));
        }
        let idle_wal = ratio(idle.wal_bytes, idle.calls.seconds) * profile.calls.seconds;
        self.wal.push(each((profile.wal_bytes - idle_wal).max(0.0)));
        self.wal_all.push(each(profile.wal_bytes));
        self.node_ms.push(each(profile.node_ms));
        self.per_second.push(delivered.per_second());
        self.receipts += delivered.receipts;
        self.last = Some(delivered);
    }

    /// Medians, beside those of the first number of nodes. Statements are null where nobody counts them.
    fn shown(&self, count: u32, first: &Self, size: Size) -> Value {
        let counted = |value: f64| if self.statements.is_empty() { Value::Null } else { rounded(value) };
        let to_first = |of: fn(&Self) -> &Vec<f64>| ratio(median(of(self)), median(of(first)));
        let top = self.last.as_ref().map(|last| last.profile.top(size.messages()).1);
        json!({
            "n": count,
            "statements_ratio": counted(to_first(|figures| &figures.statements)),
            "wal_ratio": rounded(to_first(|figures| &figures.wal)),
            "statements": counted(median(&self.statements)),
            "wal_bytes": rounded(median(&self.wal)),
            "statements_all": counted(median(&self.statements_all)),
            "wal_bytes_all": rounded(median(&self.wal_all)),
            "per_second": rounded(median(&self.per_second)),
            "batch": rounded(median(&self.batch)),
            "node_cpu_ms": rounded(median(&self.node_ms)),
            "smallest_share": self.smallest_share,
            "top_by_calls": top,
        })
    }
}

fn show(report: &mut Report, figures: &[(u32, Figures)], size: Size) {
    let Some((_, first)) = figures.first() else { return };
    report.set("nodes", figures.iter().map(|(count, figures)| figures.shown(*count, first, size)).collect::<Value>());
    for (count, figures) in figures {
        report.rounds(&format!("statements_{count}"), &figures.statements);
        report.rounds(&format!("wal_bytes_{count}"), &figures.wal);
        report.rounds(&format!("per_second_{count}"), &figures.per_second);
        report.rounds(&format!("batch_{count}"), &figures.batch);
    }
}

/// Waits until the nodes have settled who owns what.
async fn share(database: &Database, nodes: &mut [Node], count: u32) -> anyhow::Result<()> {
    let deadline = Instant::now() + SETTLED_WITHIN;
    while !database.shared(count, QUIET).await? {
        for node in &mut *nodes {
            node.alive()?;
        }
        anyhow::ensure!(Instant::now() < deadline, "{count} nodes did not share the partitions in time");
        tokio::time::sleep(LOOK_EVERY).await;
    }
    Ok(())
}

/// Begins and outcomes in one transaction, over all nodes.
async fn batch(nodes: &[Node]) -> anyhow::Result<f64> {
    let (mut items, mut transactions) = (0.0, 0.0);
    for node in nodes {
        items += node.metric("railyard_settle_batch_size_sum").await?;
        transactions += node.metric("railyard_settle_batch_size_count").await?;
    }
    Ok(ratio(items, transactions))
}
