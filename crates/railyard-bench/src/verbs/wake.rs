//! `bench wake`: how long a message waits that meets an idle node.

use std::time::Duration;

use clap::Args;
use tokio_postgres::Statement;
use uuid::Uuid;

use crate::database::Database;
use crate::node::Node;
use crate::options::Common;
use crate::progress::{self, say};
use crate::report::Report;
use crate::stand::Stand;
use crate::statistics::{median, percentile, ratio};

/// The product's own function, called by a producer in a transaction of its own.
const ENQUEUE: &str = "SELECT enqueue_payment_outbox($1, $2, $1, 'webhook', $3, $4, $5)";
/// What is allowed: the bound is this many commits and so many milliseconds besides.
const COMMITS: f64 = 3.0;
const BESIDES_MS: f64 = 5.0;

/// Measures the time from a commit to the receiver's first byte (200 messages over 200 groups by default).
///
/// A node runs and has nothing to do. One message at a time is committed by SQL; when it has arrived and has its outcome,
/// and after a pause, the next one follows. first_byte_ms runs from the moment when COMMIT returned to the producer until
/// the receiver has the request; both clocks are the machine's CLOCK_BOOTTIME. What bounds it is the disk: commit_ms is
/// a bare commit of one small row, measured in between. limit_ms = 3 × commit_ms + 5 and ratio = first_byte_ms /
/// limit_ms.
#[derive(Debug, Args)]
pub struct Wake {
    #[command(flatten)]
    common: Common,
    /// Milliseconds of quiet before each message.
    #[arg(long, value_name = "MS", default_value_t = 60)]
    pause_ms: u64,
}

/// Milliseconds of one round.
#[derive(Default)]
struct Times {
    first_byte: Vec<f64>,
    commit: Vec<f64>,
}

impl Wake {
    pub(crate) async fn run(&self) -> anyhow::Result<()> {
        let stand = Stand::start(&self.common).await?;
        let report = self.measure(&stand).await;
        stand.clear().await?;
        report?.print(self.common.json)
    }

    async fn measure(&self, stand: &Stand) -> anyhow::Result<Report> {
        let size = self.common.size(200, 200);
        let database = stand.server.database().await?;
        let mut node = stand.node(&database, &[])?;
        node.ready(&database).await?;
        stand.receiver.stamp().await?;
        let enqueue = database.sql.prepare(ENQUEUE).await?;
        // The first message makes connections and caches: it is not counted.
        self.one(stand, &database, &enqueue, "warm-up").await?;
        let mut rounds = Vec::new();
        for round in 1..=self.common.rounds {
            say(&format!("round {round} of {}", self.common.rounds));
            let bar = progress::bar("one at a time", size.messages());
            let mut times = Times::default();
            for message in 0..size.messages() {
                times.commit.extend(database.bare_commits_ms(1).await?);
                let group = format!("wake-{}", message % size.groups);
                times.first_byte.push(self.one(stand, &database, &enqueue, &group).await?);
                node.alive()?;
                bar.inc(1);
            }
            bar.finish_and_clear();
            rounds.push(times);
        }
        stop(node, &database).await.map(|completed| {
            let mut report = Report::of("wake", &self.common, size, stand.server.version());
            report.option("pause_ms", self.pause_ms);
            figures(&mut report, &rounds);
            report.set("completed", completed);
            report
        })
    }

    /// One message, from its commit to its outcome; gives the milliseconds to its first byte.
    async fn one(&self, stand: &Stand, database: &Database, enqueue: &Statement, group: &str) -> anyhow::Result<f64> {
        while database.unsettled(&stand.receiver.endpoint()).await? {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        tokio::time::sleep(Duration::from_millis(self.pause_ms)).await;
        let target = stand.receiver.accepting();
        let job = stand.job(database, &target);
        let instruction = Uuid::new_v4().to_string();
        let credentials = database.credentials_id.0;
        let payload: &[u8] = &job.payload;
        let (id, committed) =
            database.sql.committed(enqueue, &[&instruction, &group, &payload, &target, &credentials]).await?;
        let arrived = Duration::from_nanos(stand.receiver.wait(&id.to_string()).await?);
        Ok((arrived.as_secs_f64() - committed.as_secs_f64()) * 1000.0)
    }
}

async fn stop(node: Node, database: &Database) -> anyhow::Result<i64> {
    node.stop().await?;
    database.completed().await
}

fn figures(report: &mut Report, rounds: &[Times]) {
    let of = |values: fn(&Times) -> f64| rounds.iter().map(values).collect::<Vec<_>>();
    let first_byte = report.rounds("first_byte_ms", &of(|times| median(&times.first_byte)));
    report.rounds("first_byte_p99_ms", &of(|times| percentile(&times.first_byte, 99)));
    let commit = report.rounds("commit_ms", &of(|times| median(&times.commit)));
    let limit = COMMITS * commit + BESIDES_MS;
    report.number("limit_ms", limit);
    report.number("ratio", ratio(first_byte, limit));
}
