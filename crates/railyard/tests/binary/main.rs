//! The real binary: what it prints, how it ends, and that its commands do what they say, with a real database, a real
//! node and a real receiver.
#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

mod commands;
mod dev;
mod feed;
mod signals;
mod start;

use std::time::Duration;

use railyard_testkit::{FakeRail, NodeProcess, Output, Sandbox, TestDb};

/// How long anything that should happen soon may take on a busy machine.
const SOON: Duration = Duration::from_secs(30);
/// The secret that everything here is signed with.
const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// An installation on a migrated database, and the database.
struct Installation {
    sandbox: Sandbox,
    // Dropped last: it drops the database.
    db: TestDb,
}

impl Installation {
    /// Loopback receivers allowed.
    async fn new() -> Self {
        let db = TestDb::from_template(&railyard_store::migrate::fingerprint(), |url| async move {
            railyard_store::migrate::migrate(&url).await.unwrap();
        })
        .await;
        Self { sandbox: sandbox(db.url()), db }
    }

    /// A command that is a client of this node.
    async fn at(&self, node: &NodeProcess, words: &[&str]) -> Output {
        self.with_input(node, words, "").await
    }

    /// The same with standard input.
    async fn with_input(&self, node: &NodeProcess, words: &[&str], input: &str) -> Output {
        let url = node.url();
        self.sandbox.run_with_input(&[words, &["--url", &url]].concat(), input).await
    }

    /// Stores credentials and gives their id.
    async fn credentials(&self, node: &NodeProcess) -> String {
        let create = ["credentials", "create", "--bearer-token", "sk_test", "--signing-secret", SECRET];
        self.at(node, &create).await.ok().trim().to_owned()
    }

    /// Creates one job and gives its id.
    async fn job(&self, node: &NodeProcess, rail: &FakeRail, credentials: &str, group: &str) -> String {
        let url = rail.url();
        let fixed = ["jobs", "create", "--source", "s", "--type", "t", "--payload", "{\"a\":1}", "--group", group];
        let there = ["--target-url", &url, "--credentials", credentials];
        self.at(node, &[&fixed[..], &there].concat()).await.ok().trim().to_owned()
    }
}

fn sandbox(url: &str) -> Sandbox {
    let binary = env!("CARGO_BIN_EXE_railyard").into();
    Sandbox::with_binary(binary, url).with_toml("[http]\nallow_networks = [\"127.0.0.0/8\"]")
}
