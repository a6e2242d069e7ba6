//! `bench limit`: the hard cap at the receiver, over every sliding second, while things go wrong; and how much of it is
//! used when nothing does.

use std::path::Path;
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::json;

use crate::client::Client;
use crate::database::Database;
use crate::load::load;
use crate::node::{Node, Setting};
use crate::options::{Common, Size};
use crate::progress::{self, say};
use crate::receiver::Starts;
use crate::report::Report;
use crate::stand::Stand;
use crate::statistics::ratio;

/// How often the receiver is asked how far they are.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// A run in which nothing arrives for so long is a failure.
const STALLED: Duration = Duration::from_secs(60);
/// How long a stopped process stands still.
const STOPPED: Duration = Duration::from_secs(5);
/// After what was done to it, the cluster has so long to be itself again before its rate counts.
const RECOVERED: Duration = Duration::from_secs(8);
/// A sliding window.
const WINDOW_NS: u64 = 1_000_000_000;

/// Measures the hard cap: three nodes, 50 times the limit due at one instant (five in each group, to one endpoint).
///
/// In the first half one node is killed and started again, one is stopped for five seconds, a backend of the database is
/// killed (a crash restart; only of a private server), and one node's wall clock is ten minutes ahead throughout (where
/// libfaketime is installed). max_in_window is the most calls whose first bytes the receiver read within any second, on
/// its own monotonic clock; measuring_error_ms is how late the receiver itself ran at worst. mean_ratio is the rate over
/// the undisturbed rest, while work is waiting, divided by the limit; 0.93 is what slots allow at a window of a second.
/// burned counts slots that no call used.
#[derive(Debug, Args)]
pub struct Limit {
    /// Starts in any second.
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=5000))]
    starts: u32,
    /// A second limit over the same calls, as large or larger.
    #[arg(long, value_name = "M", value_parser = clap::value_parser!(u32).range(1..=5000))]
    second: Option<u32>,
    /// Leave everything alone.
    #[arg(long)]
    undisturbed: bool,
    #[command(flatten)]
    common: Common,
}

struct Run {
    starts: Starts,
    /// From when on nothing was done to it, in nanoseconds of CLOCK_BOOTTIME.
    quiet_ns: u64,
    granted: f64,
    burned: f64,
    done: Vec<&'static str>,
}

impl Limit {
    pub(crate) async fn run(&self) -> anyhow::Result<()> {
        let stand = Stand::start(&self.common).await?;
        let report = self.measure(&stand).await;
        stand.clear().await?;
        report?.print(self.common.json)
    }

    async fn measure(&self, stand: &Stand) -> anyhow::Result<Report> {
        let size = self.common.size(u64::from(self.starts) * 50, u64::from(self.starts) * 10);
        let database = stand.server.database().await?;
        let job = stand.job(&database, &stand.receiver.accepting());
        load(&database.store, &job, "limit", size).await?;
        database.rest().await?;
        let run = self.played(stand, &database, size).await?;
        // The bench's own connection ended with the backend.
        let sql = Client::connect(&database.url).await?;
        let completed: i64 = sql.one("SELECT count(*) FROM dispatch_job_outcome WHERE status = 'COMPLETED'").await?;
        Ok(self.report(stand, size, &run, completed))
    }

    fn report(&self, stand: &Stand, size: Size, run: &Run, completed: i64) -> Report {
        let mut at = run.starts.at_ns.clone();
        at.sort_unstable();
        let mut report = Report::of("limit", &stand.common, size, stand.server.version());
        report.option("starts", self.starts);
        report.option("second", self.second);
        report.option("nodes", 3);
        report.set("limit", self.starts);
        report.set("max_in_window", most_within(&at, WINDOW_NS));
        report.number("mean_ratio", self.mean(&at, run.quiet_ns) / f64::from(self.bound()));
        report.number("burned", run.burned);
        report.number("granted", run.granted);
        report.number("measuring_error_ms", run.starts.late_ns as f64 / 1e6);
        report.set("disturbed_by", json!(run.done));
        report.set("receipts", at.len());
        report.set("completed", completed);
        report
    }

    /// What binds.
    fn bound(&self) -> u32 {
        self.second.unwrap_or(self.starts).min(self.starts)
    }

    /// Calls a second over the quiet part, while work is waiting: without the last two seconds, in which lanes run out.
    fn mean(&self, at: &[u64], quiet_ns: u64) -> f64 {
        let end = at.last().copied().unwrap_or(0).saturating_sub(2 * WINDOW_NS);
        let quiet: Vec<u64> = at.iter().copied().filter(|at| (quiet_ns..=end).contains(at)).collect();
        match (quiet.first(), quiet.last()) {
            (Some(first), Some(last)) => ratio((quiet.len() - 1) as f64, (last - first) as f64 / 1e9),
            _ => 0.0,
        }
    }

    async fn played(&self, stand: &Stand, database: &Database, size: Size) -> anyhow::Result<Run> {
        stand.receiver.reset().await?;
        stand.receiver.stamp().await?;
        let ahead: Vec<(&str, String)> = faketime();
        let mut done = Vec::new();
        if !ahead.is_empty() && !self.undisturbed {
            done.push("a wall clock ten minutes ahead");
        }
        let ahead = if self.undisturbed { &[] } else { ahead.as_slice() };
        let mut nodes = vec![
            self.node(stand, database, "one", &[])?,
            self.node(stand, database, "two", &[])?,
            self.node(stand, database, "three", ahead)?,
        ];
        self.until(stand, &mut nodes, size, size.messages() / 20).await?;
        if !self.undisturbed {
            say("killing a node");
            nodes.remove(0).kill().await?;
            nodes.insert(0, self.node(stand, database, "one", &[])?);
            done.push("kill -9 of a node");
            self.until(stand, &mut nodes, size, size.messages() / 8).await?;
            say("stopping a node");
            nodes[1].freeze()?;
            tokio::time::sleep(STOPPED).await;
            nodes[1].thaw()?;
            done.push("a node stopped for five seconds");
            self.until(stand, &mut nodes, size, size.messages() / 4).await?;
            if stand.server.is_private() {
                say("killing a backend of the database");
                stand.server.crash(database).await?;
                done.push("a backend killed");
            }
            tokio::time::sleep(RECOVERED).await;
        }
        let quiet_ns = u64::try_from(railyard_store::clock::boottime().as_nanos())?;
        self.until(stand, &mut nodes, size, size.messages()).await?;
        let (mut granted, mut burned) = (0.0, 0.0);
        for node in &nodes {
            granted += node.counted(r#"railyard_permits_granted_total{limit="rail:webhook"}"#).await;
            burned += node.counted(r#"railyard_permits_burned_total{limit="rail:webhook"}"#).await;
        }
        let starts = stand.receiver.starts().await?;
        for node in nodes {
            node.stop().await?;
        }
        Ok(Run { starts, quiet_ns, granted, burned, done })
    }

    fn node(&self, stand: &Stand, database: &Database, name: &str, ahead: &[(&str, String)]) -> anyhow::Result<Node> {
        let concurrency = self.common.concurrency.to_string();
        let limit = format!("{{ kind = \"webhook\", limit = {{ starts = {} }} }}", self.starts);
        let mut settings: Vec<Setting> = vec![
            ("rails.webhook", limit),
            ("http.endpoint_concurrency", concurrency),
            ("lease.lease_s", "3".to_owned()),
            ("lease.renewal_s", "1".to_owned()),
        ];
        if let Some(second) = self.second {
            settings.push(("limits.starts", second.to_string()));
        }
        stand.node_named(name, database, &settings, ahead)
    }

    async fn until(&self, stand: &Stand, nodes: &mut [Node], size: Size, messages: u64) -> anyhow::Result<()> {
        let bar = progress::bar("delivering", size.messages());
        let (mut last, mut since) = (0, Instant::now());
        loop {
            let delivered = stand.receiver.count().await?.delivered;
            bar.set_position(delivered.min(size.messages()));
            if delivered >= messages {
                bar.finish_and_clear();
                return Ok(());
            }
            if delivered > last {
                (last, since) = (delivered, Instant::now());
            }
            for node in nodes.iter_mut() {
                node.alive()?;
                anyhow::ensure!(since.elapsed() < STALLED, "nothing arrived after {delivered}: {}", node.tail());
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}

/// The most of these moments, which are in order, within any window, wherever it begins.
fn most_within(at: &[u64], window_ns: u64) -> usize {
    let mut first = 0;
    let mut most = 0;
    for (last, moment) in at.iter().enumerate() {
        while moment - at[first] >= window_ns {
            first += 1;
        }
        most = most.max(last + 1 - first);
    }
    most
}

/// The environment of a process whose wall clock is ten minutes ahead; empty without the library.
fn faketime() -> Vec<(&'static str, String)> {
    let places = ["/usr/lib/x86_64-linux-gnu/faketime", "/usr/lib/aarch64-linux-gnu/faketime", "/usr/lib/faketime"];
    let library = places.iter().map(|place| Path::new(place).join("libfaketimeMT.so.1")).find(|file| file.is_file());
    let Some(library) = library else { return Vec::new() };
    vec![
        ("LD_PRELOAD", library.display().to_string()),
        ("FAKETIME", "+600".to_owned()),
        ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
    ]
}

#[cfg(test)]
mod tests {
    use super::most_within;

    #[test]
    fn windows_are_counted_wherever_they_begin() {
        assert_eq!(most_within(&[0, 999, 1000, 1998], 1000), 3);
        assert_eq!(most_within(&[0, 1000, 2000], 1000), 1);
        assert_eq!(most_within(&[], 1000), 0);
    }
}
