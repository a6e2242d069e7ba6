//! The node under test: `railyard serve` of this very binary, in a process of its own, configured by environment.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::Context;
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

use crate::database::{Database, MASTER_KEY_ID};
use crate::processes;

const READY_WITHIN: Duration = Duration::from_secs(30);
const GONE_WITHIN: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// Of the log, when a node fails.
const TAIL_BYTES: usize = 4000;

/// A configuration key and its value, as TOML writes it.
pub(crate) type Setting = (&'static str, String);

/// A running node. Dropped, it is killed.
pub(crate) struct Node {
    child: Child,
    process: u32,
    address: SocketAddr,
    log: PathBuf,
}

impl Node {
    /// Starts it on this database and waits for nothing. `home` is watched by the stand's undertaker; `environment` is
    /// beside the settings.
    pub(crate) fn start(
        name: &str,
        home: &Path,
        database: &Database,
        settings: &[Setting],
        environment: &[(&str, String)],
    ) -> anyhow::Result<Self> {
        // A file of its own: the next node starts while this one reads.
        let key_file = home.join(format!("{name}.key"));
        std::fs::write(&key_file, database.master_key.as_bytes())?;
        let address = SocketAddr::from(([127, 0, 0, 1], railyard_postgres::free_port()));
        let log = home.join(format!("{name}.log"));
        let mut command = Command::new(std::env::current_exe()?);
        // Nothing of the caller's environment: a variable set for another node would change what is measured.
        command.arg("serve").env_clear().current_dir(home);
        let own = [
            ("node.name", format!("\"{name}\"")),
            ("database.url", format!("\"{}\"", database.url)),
            ("api.listen", format!("\"{address}\"")),
            ("http.allow_networks", "[\"127.0.0.0/8\"]".to_owned()),
            ("secrets.master_keys", format!("[{{id=\"{MASTER_KEY_ID}\", key_file=\"{}\"}}]", key_file.display())),
            ("log.filter", "\"warn\"".to_owned()),
        ];
        for (key, value) in own.iter().chain(settings) {
            command.env(format!("RAILYARD_{}", key.to_ascii_uppercase().replace('.', "__")), value);
        }
        command.envs(environment.iter().map(|(name, value)| (*name, value)));
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(std::fs::File::options().create(true).append(true).open(&log)?);
        let child = command.process_group(0).kill_on_drop(true).spawn().context("start a node")?;
        let process = child.id().context("the node ended at its start")?;
        std::fs::write(home.join(format!("{name}.pid")), format!("{process}\n"))?;
        Ok(Self { child, process, address, log })
    }

    /// Waits until it owns every partition.
    pub(crate) async fn ready(&mut self, database: &Database) -> anyhow::Result<()> {
        let deadline = Instant::now() + READY_WITHIN;
        while !database.owned().await? {
            self.alive()?;
            anyhow::ensure!(Instant::now() < deadline, "the node was not ready in time: {}", self.tail());
            tokio::time::sleep(LOOK_EVERY).await;
        }
        Ok(())
    }

    /// An error with the end of its log, if it has ended.
    pub(crate) fn alive(&mut self) -> anyhow::Result<()> {
        match self.child.try_wait()? {
            Some(status) => anyhow::bail!("the node ended ({status}): {}", self.tail()),
            None => Ok(()),
        }
    }

    /// SIGKILL, and its end awaited.
    pub(crate) async fn kill(mut self) -> anyhow::Result<()> {
        Ok(self.child.kill().await?)
    }

    /// SIGSTOP; returns when none of its threads runs any more.
    pub(crate) fn freeze(&self) -> anyhow::Result<()> {
        railyard_postgres::freeze(self.pid()?);
        Ok(())
    }

    /// SIGCONT.
    pub(crate) fn thaw(&self) -> anyhow::Result<()> {
        railyard_postgres::thaw(self.pid()?);
        Ok(())
    }

    fn pid(&self) -> anyhow::Result<Pid> {
        i32::try_from(self.process).ok().and_then(Pid::from_raw).context("a process id")
    }

    pub(crate) fn processor_ms(&self) -> anyhow::Result<f64> {
        Ok(processes::processor_time(self.process)?.as_secs_f64() * 1000.0)
    }

    pub(crate) fn resident_bytes(&self) -> anyhow::Result<u64> {
        processes::resident_bytes(self.process)
    }

    /// A gauge or counter of its own, by its name.
    pub(crate) async fn metric(&self, name: &str) -> anyhow::Result<f64> {
        let mut stream = TcpStream::connect(self.address).await?;
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        let value = answer.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        Ok(value.with_context(|| format!("no metric {name}"))?.trim().parse()?)
    }

    /// The same of a metric that is there once something was counted.
    pub(crate) async fn counted(&self, name: &str) -> f64 {
        self.metric(name).await.unwrap_or(0.0)
    }

    /// Asks it to end, and waits.
    pub(crate) async fn stop(mut self) -> anyhow::Result<()> {
        kill_process(self.pid()?, Signal::TERM)?;
        match tokio::time::timeout(GONE_WITHIN, self.child.wait()).await {
            Ok(status) => anyhow::ensure!(status?.success(), "the node ended badly: {}", self.tail()),
            Err(_) => self.child.kill().await?,
        }
        Ok(())
    }

    /// The end of its log.
    pub(crate) fn tail(&self) -> String {
        let bytes = std::fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(TAIL_BYTES)..]).into_owned()
    }
}
