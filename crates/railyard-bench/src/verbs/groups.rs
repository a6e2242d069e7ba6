//! `bench groups`: the memory of a group that has an actor and nothing to do, and whether memory grows with groups that
//! were there once.

use std::time::Duration;

use clap::Args;

use crate::database::Database;
use crate::deliveries::settled;
use crate::load::load;
use crate::node::Node;
use crate::options::{Common, Size};
use crate::progress::{self, say};
use crate::report::Report;
use crate::stand::Stand;
use crate::statistics::{median, ratio};

/// Groups whose messages make connections and caches before the warm figure.
const WARM: Size = Size { groups: 64, depth: 10 };

/// Measures resident memory of the node per idle group (20000 groups, one message each, by default).
///
/// bytes_per_group = (memory with all groups resident and idle − memory right after the start) ÷ groups, with actors that
/// stay (idle_group_s = 3600). What the first deliveries cost once (connections, plans, caches) is in it;
/// bytes_per_group_warm starts counting after 64 groups. growth = memory after --turns times as many groups were active,
/// one lot after the other, ÷ memory after the first lot, at the default limit of resident groups. Memory is what the
/// system says (VmRSS): what the allocator has freed and kept is in it.
#[derive(Debug, Args)]
pub struct Groups {
    #[command(flatten)]
    common: Common,
    /// Lots of groups for the growth.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(2..=100))]
    turns: u32,
    /// Milliseconds to come to rest before memory is read.
    #[arg(long, value_name = "MS", default_value_t = 3000)]
    quiet_ms: u64,
}

#[derive(Default)]
struct Rounds {
    per_group: Vec<f64>,
    per_group_warm: Vec<f64>,
    start: Vec<f64>,
    resident: Vec<f64>,
    first_lot: Vec<f64>,
    last_lot: Vec<f64>,
    groups_resident: Vec<f64>,
    receipts: u64,
}

impl Groups {
    pub(crate) async fn run(&self) -> anyhow::Result<()> {
        let stand = Stand::start(&self.common).await?;
        let report = self.measure(&stand).await;
        stand.clear().await?;
        report?.print(self.common.json)
    }

    async fn measure(&self, stand: &Stand) -> anyhow::Result<Report> {
        let size = self.common.size(20_000, 20_000);
        let database = stand.server.database().await?;
        let mut rounds = Rounds::default();
        for round in 1..=self.common.rounds {
            say(&format!("round {round} of {}", self.common.rounds));
            self.resident(stand, &database, size, round, &mut rounds).await?;
            // The hints that the first node left would be the second one's first work, and its memory.
            database.rest().await?;
            self.in_turn(stand, &database, size, round, &mut rounds).await?;
        }
        let mut report = Report::of("groups", &self.common, size, stand.server.version());
        report.option("turns", self.turns);
        report.rounds("bytes_per_group", &rounds.per_group);
        report.rounds("bytes_per_group_warm", &rounds.per_group_warm);
        report.rounds("groups_resident", &rounds.groups_resident);
        report.rounds("start_bytes", &rounds.start);
        report.rounds("resident_bytes", &rounds.resident);
        report.rounds("first_lot_bytes", &rounds.first_lot);
        report.rounds("last_lot_bytes", &rounds.last_lot);
        report.number("growth", ratio(median(&rounds.last_lot), median(&rounds.first_lot)));
        report.set("receipts", rounds.receipts);
        report.set("completed", database.completed().await?);
        Ok(report)
    }

    async fn in_turn(
        &self,
        stand: &Stand,
        database: &Database,
        size: Size,
        round: u32,
        rounds: &mut Rounds,
    ) -> anyhow::Result<()> {
        let mut node = stand.node(database, &[])?;
        node.ready(database).await?;
        for turn in 1..=self.turns {
            rounds.receipts += self.deliver(stand, database, &mut node, &format!("lot-{round}-{turn}"), size).await?;
            let bytes = node.resident_bytes()? as f64;
            if turn == 1 {
                rounds.first_lot.push(bytes);
            } else if turn == self.turns {
                rounds.last_lot.push(bytes);
            }
        }
        node.stop().await
    }

    async fn resident(
        &self,
        stand: &Stand,
        database: &Database,
        size: Size,
        round: u32,
        rounds: &mut Rounds,
    ) -> anyhow::Result<()> {
        let room = (size.groups + WARM.groups).to_string();
        let settings = [("dispatch.idle_group_s", "3600".to_owned()), ("dispatch.resident_groups", room)];
        let mut node = stand.node(database, &settings)?;
        node.ready(database).await?;
        tokio::time::sleep(self.quiet()).await;
        let start = node.resident_bytes()? as f64;
        rounds.receipts += self.deliver(stand, database, &mut node, &format!("warm-{round}"), WARM).await?;
        let warm = node.resident_bytes()? as f64;
        rounds.receipts += self.deliver(stand, database, &mut node, &format!("resident-{round}"), size).await?;
        let full = node.resident_bytes()? as f64;
        rounds.groups_resident.push(node.metric("railyard_groups_resident").await?);
        rounds.start.push(start);
        rounds.resident.push(full);
        rounds.per_group.push(ratio(full - start, (size.groups + WARM.groups) as f64));
        rounds.per_group_warm.push(ratio(full - warm, size.groups as f64));
        node.stop().await
    }

    /// Lets a running node deliver a lot, and come to rest.
    async fn deliver(
        &self,
        stand: &Stand,
        database: &Database,
        node: &mut Node,
        prefix: &str,
        size: Size,
    ) -> anyhow::Result<u64> {
        stand.receiver.reset().await?;
        let job = stand.job(database, &stand.receiver.accepting());
        load(&database.store, &job, prefix, size).await?;
        let bar = progress::bar(prefix, size.messages());
        let (receipts, _) =
            settled(&stand.receiver, std::slice::from_mut(node), database, size.messages(), &bar).await?;
        bar.finish_and_clear();
        tokio::time::sleep(self.quiet()).await;
        Ok(receipts)
    }

    fn quiet(&self) -> Duration {
        Duration::from_millis(self.quiet_ms)
    }
}
