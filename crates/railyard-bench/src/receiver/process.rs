//! The receiver as its parent sees it.

use std::collections::HashMap;
use std::process::Stdio;
use std::time::Duration;

use anyhow::Context;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::Mutex;

/// The longest wait for an answer; only `wait` takes long, and a message that takes longer is lost.
const ANSWER_WITHIN: Duration = Duration::from_secs(60);

/// A running receiver. Dropped, it ends.
pub(crate) struct Receiver {
    address: String,
    pipes: Mutex<Pipes>,
    _child: Child,
}

struct Pipes {
    to: ChildStdin,
    from: Lines<BufReader<ChildStdout>>,
}

/// What came since the last reset.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(crate) struct Counts {
    /// Calls that were answered with 200.
    pub(crate) delivered: u64,
    /// Calls that were answered with 503.
    pub(crate) refused: u64,
    /// When the first of the delivered came, in nanoseconds of CLOCK_BOOTTIME; 0 if none did.
    pub(crate) first_ns: u64,
}

/// When calls came.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Starts {
    /// Each, in nanoseconds of CLOCK_BOOTTIME, in any order.
    pub(crate) at_ns: Vec<u64>,
    /// How late the receiver itself ran at worst.
    pub(crate) late_ns: u64,
}

impl Receiver {
    pub(crate) async fn start() -> anyhow::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["bench", "receiver"]).stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().context("start the receiver")?;
        let to = child.stdin.take().context("the receiver's standard input")?;
        let from = child.stdout.take().context("the receiver's standard output")?;
        let mut from = BufReader::new(from).lines();
        let address = from.next_line().await?.context("the receiver ended at its start")?;
        Ok(Self { address, pipes: Mutex::new(Pipes { to, from }), _child: child })
    }

    /// The key that the product gives to calls to it.
    pub(crate) fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Where calls are answered with 200.
    pub(crate) fn accepting(&self) -> String {
        format!("http://{}/ok", self.address)
    }

    /// Where calls are answered with 503.
    pub(crate) fn failing(&self) -> String {
        format!("http://{}/fail", self.address)
    }

    /// Forgets everything.
    pub(crate) async fn reset(&self) -> anyhow::Result<()> {
        self.ask::<bool>("reset").await.map(drop)
    }

    pub(crate) async fn count(&self) -> anyhow::Result<Counts> {
        self.ask("count").await
    }

    /// Keeps from now on when each message came.
    pub(crate) async fn stamp(&self) -> anyhow::Result<()> {
        self.ask::<bool>("stamps on").await.map(drop)
    }

    /// Waits for a message, and says when it came.
    pub(crate) async fn wait(&self, key: &str) -> anyhow::Result<u64> {
        self.ask(&format!("wait {key}")).await.with_context(|| format!("message {key}"))
    }

    /// When each message came that came since the last call.
    pub(crate) async fn drain(&self) -> anyhow::Result<HashMap<String, u64>> {
        let stamps: Vec<(String, u64)> = self.ask("drain").await?;
        Ok(stamps.into_iter().collect())
    }

    /// When each call came, since moments are kept.
    pub(crate) async fn starts(&self) -> anyhow::Result<Starts> {
        self.ask("starts").await
    }

    async fn ask<T: DeserializeOwned>(&self, question: &str) -> anyhow::Result<T> {
        let mut pipes = self.pipes.lock().await;
        pipes.to.write_all(format!("{question}\n").as_bytes()).await.context("the receiver is gone")?;
        let answer = tokio::time::timeout(ANSWER_WITHIN, pipes.from.next_line()).await;
        let answer = answer.with_context(|| format!("the receiver did not answer {question}"))??;
        Ok(serde_json::from_str(&answer.context("the receiver is gone")?)?)
    }
}
