//! Processes of the real binary: nodes and commands, in a directory that goes with the test.
//!
//! A sandbox is one installation: a database, a configuration file, a token, a master key. Its nodes read the file;
//! single keys are set by environment, as an operator would. A node is a process like any other: it can be killed,
//! frozen, asked to end, started again. Whatever happens to the test, an undertaker ends the nodes.

mod log;
mod node;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use railyard_postgres::{Farewell, Undertaker};
use sha2::{Digest, Sha256};
use tempfile::TempDir;

pub use node::NodeProcess;

/// One installation of Railyard. Keep it longer than its nodes.
#[derive(Debug)]
pub struct Sandbox {
    binary: PathBuf,
    home: PathBuf,
    token: String,
    environment: Vec<(String, String)>,
    nodes: AtomicUsize,
    /// Ends what is left; after the nodes, before the directory.
    _undertaker: Undertaker,
    _dir: TempDir,
}

/// What a command printed and how it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// Exit code; `None` if a signal ended it.
    pub code: Option<i32>,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Output {
    /// Standard output of a command that succeeded.
    ///
    /// # Panics
    /// When it failed, with what it printed.
    #[track_caller]
    pub fn ok(self) -> String {
        assert_eq!(self.code, Some(0), "{}{}", self.stdout, self.stderr);
        self.stdout
    }
}

/// What every sandbox has in its file. Short leases: a dead node is noticed after three seconds.
const FILE: &str = r#"
[secrets]
master_keys = [{ id = "test", key_env = "RAILYARD_MASTER_KEY" }]

[lease]
lease_s = 3
renewal_s = 1

[dispatch]
slack_ms = 500

[reaper]
interval_s = 1
"#;

impl Sandbox {
    /// An installation on this database. Nothing is started or migrated yet.
    ///
    /// # Panics
    /// When there is no binary (`RAILYARD_BIN`, or beside the test's own), or no temporary directory.
    pub fn new(database_url: &str) -> Sandbox {
        Sandbox::with_binary(binary(), database_url)
    }

    /// As [`Sandbox::new`], of another binary: an older version, or a stand-in.
    ///
    /// # Panics
    /// When there is no temporary directory.
    pub fn with_binary(binary: PathBuf, database_url: &str) -> Sandbox {
        let dir = tempfile::Builder::new().prefix("railyard-sandbox-").tempdir().expect("a temporary directory");
        let home = dir.path().canonicalize().expect("it was just made");
        let token = format!("token-{:032x}", rand::random::<u128>());
        let hash = hex::encode(Sha256::digest(token.as_bytes()));
        let tokens = format!("[[api.tokens]]\nname = \"test\"\nrole = \"admin\"\nsha256 = \"{hash}\"\n");
        std::fs::write(home.join("railyard.toml"), format!("{FILE}\n{tokens}")).expect("write the configuration");
        let undertaker = Undertaker::hire(Farewell::Kill, &home, &[]).expect("start a shell");
        let master_key: [u8; 32] = rand::random();
        let environment = vec![
            ("RAILYARD_DATABASE__URL".to_owned(), database_url.to_owned()),
            ("RAILYARD_MASTER_KEY".to_owned(), BASE64.encode(master_key)),
            ("RAILYARD_TOKEN".to_owned(), token.clone()),
        ];
        let nodes = AtomicUsize::new(0);
        Sandbox { binary, home, token, environment, nodes, _undertaker: undertaker, _dir: dir }
    }

    /// Sets a configuration key for everything started from now on, for example `set("dispatch.poll_ms", 250)`; text
    /// is given with its quotes, a list with its brackets.
    pub fn set(self, key: &str, value: impl std::fmt::Display) -> Sandbox {
        let name = format!("RAILYARD_{}", key.to_ascii_uppercase().replace('.', "__"));
        self.env(&name, value)
    }

    /// Sets a variable for everything started from now on.
    pub fn env(mut self, name: &str, value: impl std::fmt::Display) -> Sandbox {
        self.environment.retain(|(known, _)| known != name);
        self.environment.push((name.to_owned(), value.to_string()));
        self
    }

    /// Adds text to the configuration file, for example a table that has no place in the environment.
    ///
    /// # Panics
    /// When the file cannot be written.
    pub fn with_toml(self, text: &str) -> Sandbox {
        let file = self.config_file();
        let before = std::fs::read_to_string(&file).expect("it was written at the start");
        std::fs::write(&file, format!("{before}\n{text}\n")).expect("write the configuration");
        self
    }

    /// The configuration file.
    pub fn config_file(&self) -> PathBuf {
        self.home.join("railyard.toml")
    }

    /// The sandbox's directory: working directory of its processes.
    pub fn home(&self) -> &Path {
        &self.home
    }

    /// A token with the role admin.
    pub fn token(&self) -> &str {
        &self.token
    }

    /// Runs a command of the binary to its end.
    ///
    /// # Panics
    /// When the process cannot be started.
    pub async fn run(&self, words: &[&str]) -> Output {
        finish(self.command(words), "").await
    }

    /// As [`Sandbox::run`], with text on standard input.
    ///
    /// # Panics
    /// When the process cannot be started.
    pub async fn run_with_input(&self, words: &[&str], input: &str) -> Output {
        finish(self.command(words), input).await
    }

    /// As [`Sandbox::run_with_input`], for commands that talk to a node (`RAILYARD_URL`).
    ///
    /// # Panics
    /// When the process cannot be started.
    pub async fn run_at(&self, node: &NodeProcess, words: &[&str], input: &str) -> Output {
        let mut command = self.command(words);
        command.env("RAILYARD_URL", node.url());
        finish(command, input).await
    }

    /// Starts a command that talks to a node, for tests that look at it while it runs, or end it.
    ///
    /// # Panics
    /// When the process cannot be started.
    pub fn start_at(&self, node: &NodeProcess, words: &[&str]) -> Child {
        let mut command = self.command(words);
        command.env("RAILYARD_URL", node.url()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("start the binary")
    }

    /// `railyard migrate`.
    ///
    /// # Panics
    /// When it fails, with what it printed.
    pub async fn migrate(&self) {
        let file = self.config_file();
        self.run(&["migrate", "--config", &file.to_string_lossy()]).await.ok();
    }

    /// Starts a node and waits until it is ready.
    ///
    /// # Panics
    /// When it ends or is not ready within 30 s, with the end of its log.
    pub async fn node(&self) -> NodeProcess {
        let node = self.idle_node();
        node.start();
        node.await_ready().await;
        node
    }

    /// A node that is not started yet, for changes to its environment.
    pub fn idle_node(&self) -> NodeProcess {
        let number = self.nodes.fetch_add(1, Ordering::SeqCst) + 1;
        NodeProcess::new(self, number)
    }

    /// A command with this sandbox's environment and none of the caller's `RAILYARD_…`.
    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.binary);
        command.args(words).current_dir(&self.home);
        for name in inherited() {
            command.env_remove(name);
        }
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }
}

/// Runs a process to its end on a thread that may block.
async fn finish(mut command: Command, input: &str) -> Output {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let input = input.to_owned();
    let run = move || {
        let mut child = command.spawn()?;
        let mut pipe = child.stdin.take().expect("it is piped");
        // Beside the reading, or both sides could wait for each other. A command that ends early is no failure.
        let writer = std::thread::spawn(move || std::io::Write::write_all(&mut pipe, input.as_bytes()));
        let output = child.wait_with_output();
        let _ = writer.join();
        output
    };
    let output = tokio::task::spawn_blocking(run).await.expect("not aborted").expect("start the binary");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Output { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

/// Variables of a developer's shell or a test run that would change a node.
fn inherited() -> Vec<OsString> {
    let names = std::env::vars_os().map(|(name, _)| name);
    names.filter(|name| name.to_string_lossy().starts_with("RAILYARD_")).collect()
}

/// `RAILYARD_BIN`, or the binary that was built beside this test.
fn binary() -> PathBuf {
    #[expect(clippy::disallowed_methods, reason = "a switch for tests, not configuration of Railyard")]
    if let Some(named) = std::env::var_os("RAILYARD_BIN") {
        return named.into();
    }
    // target/PROFILE/deps/NAME-HASH
    let test = std::env::current_exe().expect("a test knows its own path");
    let profile = test.parent().and_then(Path::parent).expect("tests are built into target/PROFILE/deps");
    let binary = profile.join("railyard");
    assert!(binary.is_file(), "no {}: build it first with `cargo build -p railyard`", binary.display());
    binary
}
