//! One measured run over messages that are loaded already: from the receiver's first receipt until every outcome is in
//! the database.

use std::time::{Duration, Instant};

use crate::database::Database;
use crate::node::{Node, Setting};
use crate::profile::{Profile, Statements};
use crate::progress;
use crate::receiver::Receiver;
use crate::stand::Stand;

/// How often the receiver is asked while a run goes on: what a run's end is known to.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// A run in which nothing arrives for so long is a failure.
const STALLED: Duration = Duration::from_secs(60);

/// What a run showed.
pub(crate) struct Delivered {
    /// From the first receipt to the last outcome.
    pub(crate) seconds: f64,
    /// Calls that were answered with 200 in the run.
    pub(crate) receipts: u64,
    /// What it cost, where it can be told.
    pub(crate) profile: Profile,
}

impl Delivered {
    pub(crate) fn per_second(&self) -> f64 {
        crate::statistics::ratio(self.receipts as f64, self.seconds)
    }
}

/// Starts a node on what is loaded, lets it deliver `messages` to the stand's receiver, and stops it.
pub(crate) async fn run(
    stand: &Stand,
    database: &Database,
    settings: &[Setting],
    messages: u64,
) -> anyhow::Result<Delivered> {
    stand.receiver.reset().await?;
    let statements = Statements::start(database).await?;
    let mut nodes = vec![stand.node(database, settings)?];
    let delivered = watch(stand, database, &mut nodes, messages, statements).await?;
    stop(delivered, database, nodes).await
}

/// Watches running nodes deliver `messages`, which they have just been shown.
pub(crate) async fn watch(
    stand: &Stand,
    database: &Database,
    nodes: &mut [Node],
    messages: u64,
    statements: Statements,
) -> anyhow::Result<Delivered> {
    let first = arrived(&stand.receiver, nodes, 1).await?;
    let (node_ms, server_ms) = (processor_ms(nodes)?, stand.server.processor_ms());
    let bar = progress::bar("delivering", messages);
    let (receipts, ended) = settled(&stand.receiver, nodes, database, messages, &bar).await?;
    bar.finish_and_clear();
    let node_ms = processor_ms(nodes)? - node_ms;
    let server_ms = stand.server.processor_ms().zip(server_ms).map(|(after, before)| after - before);
    let mut profile = statements.stop(database).await?;
    profile.node_ms = node_ms;
    profile.server_ms = server_ms;
    let seconds = ended.saturating_sub(first).as_secs_f64();
    Ok(Delivered { seconds, receipts, profile })
}

/// Stops the nodes, and counts what is known only then: backends hand their counters over at their end at the latest.
pub(crate) async fn stop(mut delivered: Delivered, database: &Database, nodes: Vec<Node>) -> anyhow::Result<Delivered> {
    for node in nodes {
        node.stop().await?;
    }
    delivered.profile.count_transactions(database).await?;
    Ok(delivered)
}

fn processor_ms(nodes: &[Node]) -> anyhow::Result<f64> {
    nodes.iter().map(Node::processor_ms).sum()
}

/// Waits for so many receipts; says when the first of all came.
pub(crate) async fn arrived(receiver: &Receiver, nodes: &mut [Node], messages: u64) -> anyhow::Result<Duration> {
    let mut patience = Patience::new();
    loop {
        let counts = receiver.count().await?;
        if counts.delivered >= messages {
            return Ok(Duration::from_nanos(counts.first_ns));
        }
        patience.look(counts.delivered, nodes)?;
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Waits for so many receipts and for all their outcomes; says how many there were and when the last was recorded.
pub(crate) async fn settled(
    receiver: &Receiver,
    nodes: &mut [Node],
    database: &Database,
    messages: u64,
    bar: &indicatif::ProgressBar,
) -> anyhow::Result<(u64, Duration)> {
    let mut patience = Patience::new();
    loop {
        let delivered = receiver.count().await?.delivered;
        bar.set_position(delivered.min(messages));
        if delivered >= messages {
            break;
        }
        patience.look(delivered, nodes)?;
        tokio::time::sleep(LOOK_EVERY).await;
    }
    // What was received is in flight or has its outcome.
    while database.unsettled(&receiver.endpoint()).await? {
        patience.look(messages, nodes)?;
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let ended = railyard_store::clock::boottime();
    Ok((receiver.count().await?.delivered, ended))
}

/// Gives up on nodes of which one has ended, or that have stopped delivering.
struct Patience {
    last: u64,
    since: Instant,
}

impl Patience {
    fn new() -> Self {
        Self { last: 0, since: Instant::now() }
    }

    fn look(&mut self, delivered: u64, nodes: &mut [Node]) -> anyhow::Result<()> {
        for node in &mut *nodes {
            node.alive()?;
        }
        if delivered > self.last {
            *self = Self { last: delivered, since: Instant::now() };
        }
        let tails = || nodes.iter().map(Node::tail).collect::<Vec<_>>().join("\n");
        anyhow::ensure!(self.since.elapsed() < STALLED, "nothing arrived after {delivered} messages: {}", tails());
        Ok(())
    }
}
