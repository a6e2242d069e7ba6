//! `bench hot-group`: the rate of one group, whose messages go one by one.

use clap::Args;

use crate::bare_calls::BareCalls;
use crate::database::Database;
use crate::deliveries;
use crate::load::load;
use crate::options::{Common, Size};
use crate::progress::say;
use crate::report::Report;
use crate::stand::Stand;
use crate::statistics::median;

/// Calls and commits that are measured bare in each round.
const BARE: u64 = 200;

/// Measures deliveries per second of one single group (2000 messages by default).
///
/// Order allows one call at a time, and the next one only after the outcome is committed. So the ceiling is one round
/// trip and one commit per message: round_trip_ms is a bare signed call of the node's own HTTP client, commit_ms a bare
/// commit of one small row on one connection, both medians of the same round. ratio = per_second × (round_trip +
/// commit): 1 would be a node that costs nothing.
#[derive(Debug, Args)]
pub struct HotGroup {
    #[command(flatten)]
    common: Common,
}

#[derive(Default)]
struct Rounds {
    per_second: Vec<f64>,
    round_trip: Vec<f64>,
    commit: Vec<f64>,
    ratio: Vec<f64>,
    receipts: u64,
}

impl HotGroup {
    pub(crate) async fn run(&self) -> anyhow::Result<()> {
        let stand = Stand::start(&self.common).await?;
        let report = self.measure(&stand).await;
        stand.clear().await?;
        report?.print(self.common.json)
    }

    async fn measure(&self, stand: &Stand) -> anyhow::Result<Report> {
        let size = Size { groups: 1, depth: self.common.messages.unwrap_or(2000) };
        let database = stand.server.database().await?;
        let mut rounds = Rounds::default();
        let mut last = None;
        for round in 1..=self.common.rounds {
            say(&format!("round {round} of {}", self.common.rounds));
            last = Some(one(stand, &database, size, round, &mut rounds).await?);
        }
        let mut report = Report::of("hot-group", &self.common, size, stand.server.version());
        report.rounds("per_second", &rounds.per_second);
        report.rounds("round_trip_ms", &rounds.round_trip);
        report.rounds("commit_ms", &rounds.commit);
        report.rounds("ratio", &rounds.ratio);
        report.set("receipts", rounds.receipts);
        report.set("completed", database.completed().await?);
        if let Some(delivered) = last {
            report.profile(&delivered.profile, size.messages());
        }
        Ok(report)
    }
}

async fn one(
    stand: &Stand,
    database: &Database,
    size: Size,
    round: u32,
    rounds: &mut Rounds,
) -> anyhow::Result<deliveries::Delivered> {
    let job = stand.job(database, &stand.receiver.accepting());
    load(&database.store, &job, &format!("hot-{round}"), size).await?;
    database.rest().await?;
    let bare = BareCalls::prepare(stand, database, &job).await?;
    let round_trip = median(&bare.round_trips_ms(BARE).await?);
    let commit = median(&database.bare_commits_ms(BARE).await?);
    let delivered = deliveries::run(stand, database, &[], size.messages()).await?;
    let per_second = delivered.per_second();
    rounds.per_second.push(per_second);
    rounds.round_trip.push(round_trip);
    rounds.commit.push(commit);
    rounds.ratio.push(per_second * (round_trip + commit) / 1000.0);
    rounds.receipts += delivered.receipts;
    Ok(delivered)
}
