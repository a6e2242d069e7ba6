//! `bench enqueue`: what it costs to commit work, beside bare INSERTs of the same rows.

use std::sync::Arc;
use std::time::Instant;

use clap::Args;
use railyard_core::job::NewJob;
use railyard_core::limits::BATCH_ITEMS_MAX;
use railyard_core::rail::{PAYMENT_WEBHOOK, RailKind};
use railyard_store::jobs;
use serde_json::json;
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::bare_rows::{BareBatch, BareWriter, Rows};
use crate::client::Client;
use crate::database::Database;
use crate::load::of_group;
use crate::options::{Common, Size};
use crate::progress::say;
use crate::report::{Report, rounded};
use crate::server::Server;
use crate::statistics::{median, ratio};

/// One payment by a producer, in a transaction of its own.
const ENQUEUE: &str = "SELECT enqueue_payment_outbox($1, $2, $1, 'payment_webhook', $3, $4, $5)";
const TARGET: &str = "https://receiver.example/hook";

/// Measures committing messages (16000 over 1000 groups by default), fsync on, no node running.
///
/// single: --writers producers, a connection each, call enqueue_payment_outbox, one message and one transaction at a time.
/// one_group: the same, all in one group. bulk: one writer, --batch messages a transaction, through the function that the
/// API's batches use. The peer of each writes the same rows into the same tables by INSERT and COMMIT: the idempotency key,
/// the job, the group's number (an upsert), the waiting row, the group's hint. It checks nothing, computes no hash, is told
/// every id and number, and sends its prepared statements in one go, COMMIT included; in bulk each table has one multi-row
/// INSERT (unnest of arrays that were made before). ratio = messages per second ÷ the peer's; rounds alternate.
#[derive(Debug, Args)]
pub struct Enqueue {
    #[command(flatten)]
    common: Common,
    /// Producers at once.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=90))]
    writers: u16,
    /// Messages in one transaction of bulk.
    #[arg(long, value_name = "N", default_value_t = BATCH_ITEMS_MAX as u64,
          value_parser = clap::value_parser!(u64).range(1..=BATCH_ITEMS_MAX as u64))]
    batch: u64,
}

/// Messages per second of the product and of its peer, a value a round.
#[derive(Default)]
struct Pair {
    ours: Vec<f64>,
    bare: Vec<f64>,
}

impl Enqueue {
    pub(crate) async fn run(&self) -> anyhow::Result<()> {
        say("starting PostgreSQL");
        let server = Server::start(self.common.database_url.as_deref()).await?;
        let report = self.measure(&server).await;
        server.clear().await?;
        report?.print(self.common.json)
    }

    async fn measure(&self, server: &Server) -> anyhow::Result<Report> {
        let size = self.common.size(16_000, 1000);
        let database = Arc::new(server.database().await?);
        let one_group = Size::of(size.messages(), 1);
        let (mut single, mut hot, mut bulk) = (Pair::default(), Pair::default(), Pair::default());
        let mut stored = 0;
        // The round before the first makes connections, plans and files, and is not counted.
        for round in 0..=self.common.rounds {
            say(&format!("round {round} of {}", self.common.rounds));
            for ours in [round % 2 == 0, round % 2 == 1] {
                let per_second = [
                    self.singles(&database, ours, size, &format!("s{ours}-")).await?,
                    self.singles(&database, ours, one_group, &format!("o{ours}{round}-")).await?,
                    self.batches(&database, ours, size, &format!("b{ours}-"), round).await?,
                ];
                stored += 3 * size.messages();
                for (pair, value) in [&mut single, &mut hot, &mut bulk].into_iter().zip(per_second) {
                    match (round, ours) {
                        (0, _) => {}
                        (_, true) => pair.ours.push(value),
                        (_, false) => pair.bare.push(value),
                    }
                }
            }
        }
        let found: i64 = database.sql.one("SELECT count(*) FROM payment_outbox_pending").await?;
        anyhow::ensure!(u64::try_from(found)? == stored, "{found} of {stored} messages are there");
        let mut report = Report::of("enqueue", &self.common, size, server.version());
        report.option("writers", self.writers);
        report.option("batch", self.batch);
        report.set("settings", server.settings().await?);
        for (name, pair) in [("single", &single), ("one_group", &hot), ("bulk", &bulk)] {
            let ours = report.rounds(&format!("{name}_per_second"), &pair.ours);
            let bare = report.rounds(&format!("{name}_bare_per_second"), &pair.bare);
            let each: Vec<_> = pair.ours.iter().zip(&pair.bare).map(|(ours, bare)| ratio(*ours, *bare)).collect();
            let figures = json!({ "ratio": rounded(ratio(ours, bare)), "ratio_of_rounds": rounded(median(&each)) });
            report.set(name, figures);
        }
        report.set("stored", stored);
        Ok(report)
    }

    /// One message a transaction, by all writers at once.
    async fn singles(&self, database: &Arc<Database>, ours: bool, size: Size, prefix: &str) -> anyhow::Result<f64> {
        database.checkpoint().await?;
        let mut job = self.job(database);
        PAYMENT_WEBHOOK.clone_into(&mut job.rail_type);
        job.mode = RailKind::Payment.default_mode();
        job.max_attempts = RailKind::Payment.default_max_attempts();
        let job = Arc::new(job);
        let mut clients = Vec::new();
        for _ in 0..self.writers {
            clients.push(Client::connect(&database.url).await?);
        }
        let first = database.next_sequences(prefix).await?;
        let mut writers = JoinSet::new();
        let started = Instant::now();
        for (index, client) in clients.into_iter().enumerate() {
            let numbers = (index as u64..size.messages()).step_by(usize::from(self.writers));
            let (job, prefix) = (Arc::clone(&job), prefix.to_owned());
            writers.spawn(async move {
                match ours {
                    true => produce(&client, &job, &prefix, size, numbers).await,
                    false => {
                        let writer = BareWriter::prepare(&client).await?;
                        for number in numbers {
                            let group = number % size.groups;
                            let row = Rows::of(&of_group(&job, &prefix, group), first + (number / size.groups))?;
                            writer.write(&client, &row).await?;
                        }
                        Ok(())
                    }
                }
            });
        }
        while let Some(done) = writers.join_next().await {
            done??;
        }
        Ok(ratio(size.messages() as f64, started.elapsed().as_secs_f64()))
    }

    /// Many messages a transaction, by one writer.
    async fn batches(
        &self,
        database: &Database,
        ours: bool,
        size: Size,
        prefix: &str,
        round: u32,
    ) -> anyhow::Result<f64> {
        database.checkpoint().await?;
        let job = self.job(database);
        let first = database.next_sequences(prefix).await?;
        let keyed = |number: u64| {
            let mut job = of_group(&job, prefix, number % size.groups);
            job.idempotency_key = Some(format!("{prefix}{round}-{number}"));
            job
        };
        let starts: Vec<u64> = (0..size.messages()).step_by(usize::try_from(self.batch)?).collect();
        let numbers = |from: u64| from..(from + self.batch).min(size.messages());
        let seconds = if ours {
            let batches: Vec<Vec<NewJob>> = starts.iter().map(|from| numbers(*from).map(keyed).collect()).collect();
            let started = Instant::now();
            for batch in &batches {
                jobs::create(&database.store, batch).await?;
            }
            started.elapsed().as_secs_f64()
        } else {
            let rows = |from: u64| numbers(from).map(|n| Rows::of(&keyed(n), first + n / size.groups));
            let batches =
                starts.iter().map(|from| Ok(BareBatch::of(&rows(*from).collect::<anyhow::Result<Vec<Rows>>>()?)));
            let batches: Vec<BareBatch> = batches.collect::<anyhow::Result<_>>()?;
            let client = Client::connect(&database.url).await?;
            let started = Instant::now();
            let statements = BareBatch::prepare(&client).await?;
            for batch in &batches {
                batch.write(&client, &statements).await?;
            }
            started.elapsed().as_secs_f64()
        };
        Ok(ratio(size.messages() as f64, seconds))
    }

    fn job(&self, database: &Database) -> NewJob {
        let mut job = crate::stand::message(self.common.payload, TARGET);
        job.credentials_id = Some(database.credentials_id);
        job
    }
}

async fn produce(
    client: &Client,
    job: &NewJob,
    prefix: &str,
    size: Size,
    numbers: impl Iterator<Item = u64>,
) -> anyhow::Result<()> {
    let enqueue = client.prepare(ENQUEUE).await?;
    let credentials = job.credentials_id.map(|id| id.0);
    let payload: &[u8] = &job.payload;
    for number in numbers {
        let group = format!("{prefix}-{}", number % size.groups);
        let instruction = Uuid::new_v4().to_string();
        client.execute(&enqueue, &[&instruction, &group, &payload, &TARGET, &credentials]).await?;
    }
    Ok(())
}
