//! `bench backlog`: what a big backlog that is stuck costs everybody else.

use clap::Args;
use railyard_core::backoff::RetryStrategy;
use railyard_core::limits::ATTEMPTS_MAX;
use railyard_core::mode::Mode;

use crate::client::Client;
use crate::database::Database;
use crate::deliveries;
use crate::load::load;
use crate::node::Setting;
use crate::options::{Common, Size};
use crate::progress::say;
use crate::receiver::Receiver;
use crate::report::Report;
use crate::stand::Stand;
use crate::statistics::{median, ratio};

/// Measures the rate of healthy groups beside messages that are stuck (healthy: 10000 groups, 20000 messages by default).
///
/// Healthy messages are loaded and delivered, as in `deliver`: alone (the peer), beside --blocked messages whose groups'
/// heads are answered 503 by a second endpoint and tried again every --retry-s seconds, and the same once more while a
/// REPEATABLE READ snapshot is open from before the load to the end, so that nothing of the round can be vacuumed.
/// ratio = rate beside the backlog / rate alone; snapshot_ratio = rate with the snapshot / rate alone. Only healthy
/// deliveries count; how often the stuck heads were called meanwhile is shown as failing_per_second. The circuit breaker
/// of their endpoint works as by default, unless --without-breaker lets every retry call.
#[derive(Debug, Args)]
pub struct Backlog {
    #[command(flatten)]
    common: Common,
    /// Messages that are stuck, heads included.
    #[arg(long, value_name = "N", default_value_t = 200_000, value_parser = clap::value_parser!(u64).range(1..))]
    blocked: u64,
    /// Groups that they are spread over.
    #[arg(long, value_name = "N", default_value_t = 2000, value_parser = clap::value_parser!(u64).range(1..))]
    blocked_groups: u64,
    /// Seconds between two attempts of a stuck head.
    #[arg(long, value_name = "S", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=5))]
    retry_s: u32,
    /// Let the breaker of the failing endpoint never open.
    #[arg(long)]
    without_breaker: bool,
}

#[derive(Default)]
struct Rounds {
    alone: Vec<f64>,
    beside: Vec<f64>,
    snapshot: Vec<f64>,
    failing: Vec<f64>,
    receipts: u64,
}

/// One kind of run: its database and what stands in it.
struct Scene<'a> {
    stand: &'a Stand,
    failing: &'a Receiver,
    settings: Vec<Setting>,
    size: Size,
}

impl Backlog {
    pub(crate) async fn run(&self) -> anyhow::Result<()> {
        let stand = Stand::start(&self.common).await?;
        let report = self.measure(&stand).await;
        stand.clear().await?;
        report?.print(self.common.json)
    }

    async fn measure(&self, stand: &Stand) -> anyhow::Result<Report> {
        let failing = Receiver::start().await?;
        let blocked = Size::of(self.blocked, self.blocked_groups);
        let scene =
            Scene { stand, failing: &failing, settings: self.settings(), size: self.common.size(20_000, 10_000) };
        let (alone, beside) = (stand.server.database().await?, stand.server.database().await?);
        load_blocked(stand, &beside, &failing, blocked).await?;
        let mut rounds = Rounds::default();
        for round in 1..=self.common.rounds {
            say(&format!("round {round} of {}", self.common.rounds));
            let (rate, _) = scene.deliver(&alone, &format!("alone-{round}"), &mut rounds).await?;
            rounds.alone.push(rate);
            let (rate, failing) = scene.deliver(&beside, &format!("beside-{round}"), &mut rounds).await?;
            rounds.beside.push(rate);
            rounds.failing.push(failing);
            let snapshot = open_snapshot(&beside).await?;
            let (rate, _) = scene.deliver(&beside, &format!("snapshot-{round}"), &mut rounds).await?;
            rounds.snapshot.push(rate);
            snapshot.run("COMMIT").await?;
        }
        let mut report = Report::of("backlog", &self.common, scene.size, stand.server.version());
        report.option("blocked", blocked.messages());
        report.option("blocked_groups", blocked.groups);
        report.option("retry_s", self.retry_s);
        report.option("without_breaker", self.without_breaker);
        figures(&mut report, &rounds);
        report.set("blocked_left", blocked_left(&beside).await?);
        report.set("completed", alone.completed().await? + beside.completed().await?);
        Ok(report)
    }

    fn settings(&self) -> Vec<Setting> {
        let mut settings = vec![
            ("rails.webhook.kind", "\"webhook\"".to_owned()),
            ("rails.webhook.backoff_cap_s", self.retry_s.to_string()),
        ];
        if self.without_breaker {
            // A window in which there can never be calls enough.
            settings.push(("http.breaker.calls_min", "10000".to_owned()));
            settings.push(("http.breaker.window_s", "1".to_owned()));
        }
        settings
    }
}

impl Scene<'_> {
    /// Healthy deliveries per second, and calls of stuck heads per second meanwhile.
    async fn deliver(&self, database: &Database, prefix: &str, rounds: &mut Rounds) -> anyhow::Result<(f64, f64)> {
        say(prefix);
        let job = self.stand.job(database, &self.stand.receiver.accepting());
        load(&database.store, &job, prefix, self.size).await?;
        database.rest().await?;
        self.failing.reset().await?;
        let delivered = deliveries::run(self.stand, database, &self.settings, self.size.messages()).await?;
        rounds.receipts += delivered.receipts;
        let refused = self.failing.count().await?.refused;
        Ok((delivered.per_second(), ratio(refused as f64, delivered.seconds)))
    }
}

async fn load_blocked(stand: &Stand, database: &Database, failing: &Receiver, size: Size) -> anyhow::Result<()> {
    let mut job = stand.job(database, &failing.failing());
    job.mode = Mode::BlockOnError;
    job.retry = RetryStrategy::Fixed;
    job.max_attempts = ATTEMPTS_MAX;
    load(&database.store, &job, "blocked", size).await
}

/// A transaction that has read, and whose snapshot therefore holds everything that is deleted from now on.
async fn open_snapshot(database: &Database) -> anyhow::Result<Client> {
    let client = Client::connect(&database.url).await?;
    client.run("BEGIN ISOLATION LEVEL REPEATABLE READ").await?;
    client.run("SELECT 1 FROM payment_outbox_pending LIMIT 1").await?;
    Ok(client)
}

/// Those that still wait: all of them, or the retries of a head have come to their end.
async fn blocked_left(database: &Database) -> anyhow::Result<i64> {
    let sql = "SELECT (SELECT count(*) FROM payment_outbox_pending) + (SELECT count(*) FROM in_flight)";
    database.sql.one(sql).await
}

fn figures(report: &mut Report, rounds: &Rounds) {
    report.rounds("alone_per_second", &rounds.alone);
    report.rounds("beside_per_second", &rounds.beside);
    report.rounds("snapshot_per_second", &rounds.snapshot);
    report.rounds("failing_per_second", &rounds.failing);
    report.number("ratio", ratio(median(&rounds.beside), median(&rounds.alone)));
    report.number("snapshot_ratio", ratio(median(&rounds.snapshot), median(&rounds.alone)));
    report.set("receipts", rounds.receipts);
}
