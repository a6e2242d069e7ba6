//! `bench deliver`: the rate over many groups, between the ceilings of its two halves, and the cost of one delivery.

use clap::Args;

use crate::bare_calls::BareCalls;
use crate::database::Database;
use crate::deliveries::{self, Delivered};
use crate::load::load;
use crate::options::{Common, Size};
use crate::progress::say;
use crate::report::Report;
use crate::sql_ceiling;
use crate::stand::Stand;
use crate::statistics::{in_a_row, ratio};

/// Measures deliveries per second over many groups (10000 groups, 20000 messages by default).
///
/// Everything is loaded and committed, then a node is started; time runs from the receiver's first receipt until every
/// outcome is in the database. Two ceilings are measured in the same rounds: http_ceiling is the node's own HTTP client
/// with the same signed requests and the same calls at once, and nothing else; sql_ceiling is the node's own
/// transactions (two at once, each settling 100 messages and beginning 100) without a call. A delivery needs both, so
/// ceiling = 1 / (1/http_ceiling + 1/sql_ceiling) and ratio = per_second / ceiling. The profile says what one delivery
/// costs: statements, transactions, WAL, processor time of node and database.
#[derive(Debug, Args)]
pub struct Deliver {
    #[command(flatten)]
    common: Common,
}

#[derive(Default)]
struct Rounds {
    http: Vec<f64>,
    sql: Vec<f64>,
    delivered: Vec<Delivered>,
}

impl Deliver {
    pub(crate) async fn run(&self) -> anyhow::Result<()> {
        let stand = Stand::start(&self.common).await?;
        let report = self.measure(&stand).await;
        stand.clear().await?;
        report?.print(self.common.json)
    }

    async fn measure(&self, stand: &Stand) -> anyhow::Result<Report> {
        let size = self.common.size(20_000, 10_000);
        let database = stand.server.database().await?;
        let mut rounds = Rounds::default();
        for round in 1..=self.common.rounds {
            say(&format!("round {round} of {}", self.common.rounds));
            one(stand, &database, size, round, &mut rounds).await?;
        }
        report(stand, &database, size, &rounds).await
    }
}

async fn one(stand: &Stand, database: &Database, size: Size, round: u32, rounds: &mut Rounds) -> anyhow::Result<()> {
    let job = stand.job(database, &stand.receiver.accepting());
    let bare = BareCalls::prepare(stand, database, &job).await?;
    say("bare calls");
    rounds.http.push(bare.per_second(size.messages()).await?);
    load(&database.store, &job, &format!("sql-{round}"), size).await?;
    database.rest().await?;
    say("bare transactions");
    rounds.sql.push(sql_ceiling::per_second(&database.store, size, database.now().await?).await?);
    load(&database.store, &job, &format!("node-{round}"), size).await?;
    database.rest().await?;
    rounds.delivered.push(deliveries::run(stand, database, &[], size.messages()).await?);
    Ok(())
}

async fn report(stand: &Stand, database: &Database, size: Size, rounds: &Rounds) -> anyhow::Result<Report> {
    let mut report = Report::of("deliver", &stand.common, size, stand.server.version());
    report.set("settings", stand.server.settings().await?);
    let per_second: Vec<f64> = rounds.delivered.iter().map(Delivered::per_second).collect();
    let per_second = report.rounds("per_second", &per_second);
    let http = report.rounds("http_ceiling", &rounds.http);
    let sql = report.rounds("sql_ceiling", &rounds.sql);
    report.number("ceiling", in_a_row(http, sql));
    report.number("ratio", ratio(per_second, in_a_row(http, sql)));
    report.set("receipts", rounds.delivered.iter().map(|delivered| delivered.receipts).sum::<u64>());
    // The transactions without calls count as well: they settle as if delivered.
    report.set("completed", database.completed().await?);
    if let Some(last) = rounds.delivered.last() {
        report.profile(&last.profile, size.messages());
    }
    Ok(report)
}
