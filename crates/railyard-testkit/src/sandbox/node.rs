//! One node as a process: started, killed, frozen, asked to end, started again at the same address.

use std::net::SocketAddr;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use railyard_postgres::freeze;
use rustix::process::{Pid, Signal, kill_process};

use super::Sandbox;
use super::log::LogFile;
use crate::{Http, eventually_some, free_port};

/// How long a node may take to be ready, its wait for the database included.
const READY_WITHIN: Duration = Duration::from_secs(30);

/// A process of `railyard serve`. Dropped, it is killed; if the test is failing then, the end of its log is printed.
#[derive(Debug)]
pub struct NodeProcess {
    name: String,
    address: SocketAddr,
    token: String,
    log: LogFile,
    pid_file: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    command: Command,
    child: Option<Child>,
}

impl NodeProcess {
    pub(super) fn new(sandbox: &Sandbox, number: usize) -> NodeProcess {
        let name = format!("node-{number}");
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let config = sandbox.config_file();
        let mut command = sandbox.command(&["serve", "--config", &config.to_string_lossy()]);
        command.env("RAILYARD_API__LISTEN", format!("\"{address}\""));
        if closes_cluster_port() {
            command.envs(closed_cluster_port());
        }
        // A group of its own: a signal to the test's group is for the test, which then decides.
        command.process_group(0).stdin(Stdio::null());
        let log = LogFile::new(sandbox.home().join(format!("{name}.log")));
        let pid_file = sandbox.home().join(format!("{name}.pid"));
        let state = Mutex::new(State { command, child: None });
        NodeProcess { name, address, token: sandbox.token().to_owned(), log, pid_file, state }
    }

    /// Sets a variable for the next start.
    pub fn set_env(&self, name: &str, value: &str) {
        self.state().command.env(name, value);
    }

    /// Arms a failpoint for the next start: a name, or `name:action`.
    pub fn set_failpoint(&self, failpoint: &str) {
        self.set_env("RAILYARD_FAILPOINT", failpoint);
    }

    /// No failpoint at the next start.
    pub fn clear_failpoint(&self) {
        self.state().command.env_remove("RAILYARD_FAILPOINT");
    }

    /// Starts the process, and does not wait for anything.
    ///
    /// # Panics
    /// When it runs already or cannot be started.
    pub fn start(&self) {
        let mut state = self.state();
        assert!(state.child.is_none(), "{} runs already", self.name);
        let (output, errors) = self.log.handles();
        let child = state.command.stdout(output).stderr(errors).spawn().expect("start the binary");
        std::fs::write(&self.pid_file, format!("{}\n", child.id())).expect("write the process id");
        state.child = Some(child);
    }

    /// Waits until `GET /readyz` says 200.
    ///
    /// # Panics
    /// When the process ends first, or after 30 s; with the end of its log.
    pub async fn await_ready(&self) {
        let http = self.http().with_timeout(Duration::from_secs(2));
        let ready = async {
            loop {
                if http.get("/readyz").await.is_ok_and(|answer| answer.status == 200) {
                    return;
                }
                if let Some(status) = self.exited() {
                    panic!("{} ended before it was ready ({status}):\n{}", self.name, self.log.tail());
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        if tokio::time::timeout(READY_WITHIN, ready).await.is_err() {
            panic!("{} was not ready within {READY_WITHIN:?}:\n{}", self.name, self.log.tail());
        }
    }

    /// SIGKILL, and its end awaited: when this returns the process is gone. Nothing if it is not running.
    pub fn kill9(&self) {
        let child = self.state().child.take();
        if let Some(mut child) = child {
            // It may have ended by itself; it is reaped in any case.
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = std::fs::remove_file(&self.pid_file);
    }

    /// SIGSTOP: it keeps its connections and does nothing; when this returns, each of its threads has stopped.
    pub fn stop(&self) {
        if let Some(child) = &self.state().child {
            freeze(Pid::from_child(child));
        }
    }

    /// SIGCONT: it goes on where it was.
    pub fn cont(&self) {
        self.signal(Signal::CONT);
    }

    /// SIGTERM: asks it to end in order. See [`NodeProcess::await_exit`].
    pub fn term(&self) {
        self.signal(Signal::TERM);
    }

    /// Waits for its end and returns the exit code, or the negative number of the signal that ended it.
    ///
    /// # Panics
    /// When it still runs at the deadline, with the end of its log.
    pub async fn await_exit(&self, deadline: Duration) -> i32 {
        let what = format!("{} ended", self.name);
        let status = eventually_some(deadline, &what, || async { self.exited() }).await;
        self.state().child = None;
        let _ = std::fs::remove_file(&self.pid_file);
        status.code().unwrap_or_else(|| -status.signal().unwrap_or(0))
    }

    /// Kills it if it runs, starts it again and waits until it is ready.
    ///
    /// # Panics
    /// As [`NodeProcess::await_ready`].
    pub async fn restart(&self) {
        self.kill9();
        self.start();
        self.await_ready().await;
    }

    /// Whether the process is there, frozen or not.
    pub fn is_running(&self) -> bool {
        let mut state = self.state();
        state.child.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(None)))
    }

    /// Its process id, while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.state().child.as_ref().map(Child::id)
    }

    /// Where its API listens; the same over restarts.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its API as a URL, without a slash at the end.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// A client of its API with the sandbox's token.
    pub fn http(&self) -> Http {
        Http::to(self.address).with_token(&self.token)
    }

    /// Everything it printed, over all its starts.
    pub fn log(&self) -> String {
        self.log.text()
    }

    fn exited(&self) -> Option<ExitStatus> {
        self.state().child.as_mut().and_then(|child| child.try_wait().ok().flatten())
    }

    fn signal(&self, signal: Signal) {
        if let Some(child) = &self.state().child {
            // Not reaped, so the id is still its own; it may have ended, which the test will see.
            let _ = kill_process(Pid::from_child(child), signal);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A test that panicked while it held this is failing already; the process must be ended all the same.
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// `RAILYARD_TEST_CLUSTER_PORT=closed`: every node has links configured, and nobody reaches anybody's port.
#[expect(clippy::disallowed_methods, reason = "a switch for tests, not configuration of Railyard")]
fn closes_cluster_port() -> bool {
    std::env::var("RAILYARD_TEST_CLUSTER_PORT").is_ok_and(|port| port == "closed")
}

/// Links to an address at which nobody listens.
fn closed_cluster_port() -> [(&'static str, String); 5] {
    [
        ("RAILYARD_CLUSTER__LISTEN", format!("\"127.0.0.1:{}\"", free_port())),
        ("RAILYARD_CLUSTER__ADVERTISE", "\"127.0.0.1:1\"".to_owned()),
        ("RAILYARD_CLUSTER__PLAINTEXT", "true".to_owned()),
        ("RAILYARD_CLUSTER__COOKIE_ENV", "\"CLUSTER_COOKIE\"".to_owned()),
        ("CLUSTER_COOKIE", "known to all of them, 0123456789abcdef".to_owned()),
    ]
}

impl Drop for NodeProcess {
    fn drop(&mut self) {
        self.kill9();
        if std::thread::panicking() {
            eprintln!("---- the end of {}'s log ----\n{}\n----", self.name, self.log.tail());
        }
    }
}
