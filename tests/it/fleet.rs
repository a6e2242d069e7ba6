//! Nodes as processes of the real binary, on a world's database: to be killed, frozen and started again.

use std::time::Duration;

use railyard_testkit::{NodeProcess, Sandbox, eventually};

use crate::producer::Item;
use crate::world::{SOON, World};

/// How long a debug build on a busy machine may need to take over, heal and deliver what was left.
pub(crate) const LATER: Duration = Duration::from_secs(60);

/// A database and an installation of the binary.
pub(crate) struct Fleet {
    /// First: its nodes end before the database goes.
    pub(crate) sandbox: Sandbox,
    pub(crate) world: World,
}

impl Fleet {
    /// Leases of three seconds; payments that are in doubt are repeated.
    pub(crate) async fn new() -> Self {
        Self::with(|sandbox| {
            sandbox
                .with_toml("[rails.payment_webhook]\nkind = \"payment\"\nidempotent = true\n")
                .set("reaper.zombies_max", 100)
        })
        .await
    }

    /// The same with links in plaintext; each node still needs an address for them.
    pub(crate) async fn linked() -> Self {
        Self::with(|sandbox| {
            sandbox
                .with_toml("[rails.payment_webhook]\nkind = \"payment\"\nidempotent = true\n")
                .with_toml("[cluster]\nplaintext = true\ncookie_env = \"CLUSTER_COOKIE\"\n")
                .env("CLUSTER_COOKIE", crate::linked::COOKIE)
                .set("reaper.zombies_max", 100)
        })
        .await
    }

    /// The same with what is in doubt held for a person, as configured by default.
    pub(crate) async fn holding() -> Self {
        Self::with(|sandbox| sandbox).await
    }

    /// With settings of the test's own.
    pub(crate) async fn with(change: impl FnOnce(Sandbox) -> Sandbox) -> Self {
        let world = World::new().await;
        let sandbox = Sandbox::new(world.db.url())
            .env("RAILYARD_MASTER_KEY", "5a".repeat(32))
            .set("http.allow_networks", r#"["127.0.0.0/8"]"#)
            // A busy machine may take so long from a begin to its call.
            .set("dispatch.slack_ms", 1500)
            .set("log.filter", "\"info,railyard_node=debug\"");
        Self { sandbox: change(sandbox), world }
    }

    /// A node by name that is not started yet.
    pub(crate) fn node(&self, name: &str) -> NodeProcess {
        let node = self.sandbox.idle_node();
        node.set_env("RAILYARD_NODE__NAME", &format!("\"{name}\""));
        node
    }

    /// A node by name, started and ready.
    pub(crate) async fn ready(&self, name: &str) -> NodeProcess {
        let node = self.node(name);
        node.start();
        node.await_ready().await;
        node
    }

    /// A payment whose call may take a second and that has tries to spare.
    pub(crate) fn payment(&self, url: &str, group: &str, key: &str) -> Item {
        Item::payment(&self.world, url, group, key).timeout_ms(1000).max_attempts(100)
    }

    /// Waits until this many messages have ended COMPLETED and nothing is left of any.
    pub(crate) async fn all_completed(&self, messages: usize) {
        let all = i64::try_from(messages).unwrap();
        eventually(LATER, "everything has ended and nothing is left", || async {
            crate::record::completed(&self.world.sql).await == all
                && crate::record::unfinished(&self.world.sql).await == 0
        })
        .await;
    }
}

/// Waits until the process stands still: stopped by a signal, whoever sent it.
pub(crate) async fn frozen(node: &NodeProcess) {
    eventually(SOON, "the process stands still", || async { is_frozen(node) }).await;
}

/// Whether the process stands still.
pub(crate) fn is_frozen(node: &NodeProcess) -> bool {
    let text = std::fs::read_to_string(format!("/proc/{}/stat", node.pid().unwrap())).unwrap();
    text.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
}
