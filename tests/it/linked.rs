//! A fleet whose nodes are linked by mutual TLS, and what can be seen of its links from outside.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use railyard_testkit::fake_rail::Authority;
use railyard_testkit::{NodeProcess, eventually, free_port};

use crate::fleet::Fleet;
use crate::world::SOON;

/// What all nodes of a fleet know.
pub(crate) const COOKIE: &str = "a cookie that nobody guesses, 0123456789";
/// The name in every node's certificate.
pub(crate) const NAME: &str = "railyard";

/// A fleet and the authority of its certificates.
pub(crate) struct LinkedFleet {
    pub(crate) fleet: Fleet,
    authority: Authority,
}

impl LinkedFleet {
    pub(crate) async fn new() -> Self {
        let fleet = Fleet::with(|sandbox| {
            sandbox
                .with_toml("[rails.payment_webhook]\nkind = \"payment\"\nidempotent = true\n")
                .set("reaper.zombies_max", 100)
                .env("CLUSTER_COOKIE", COOKIE)
                .set("cluster.cookie_env", "\"CLUSTER_COOKIE\"")
        })
        .await;
        Self { fleet, authority: Authority::new() }
    }

    /// A node by name, not started yet, with an address for links and a certificate of its own.
    pub(crate) fn node(&self, name: &str) -> (NodeProcess, SocketAddr) {
        let (node, door) = self.bare(name);
        self.certify(&node, name, &self.authority, NAME);
        (node, door)
    }

    /// The same without TLS.
    pub(crate) fn plain(&self, name: &str) -> (NodeProcess, SocketAddr) {
        let (node, door) = self.bare(name);
        node.set_env("RAILYARD_CLUSTER__PLAINTEXT", "true");
        (node, door)
    }

    /// The same with the files of a folder, as a mounted Secret has them.
    pub(crate) fn mounted(&self, name: &str, folder: &Path) -> NodeProcess {
        let (node, _) = self.bare(name);
        for (key, file) in [("CERTIFICATE_FILE", "tls.crt"), ("KEY_FILE", "tls.key"), ("AUTHORITY_FILE", "ca.crt")] {
            node.set_env(&format!("RAILYARD_CLUSTER__{key}"), &format!("\"{}\"", folder.join(file).display()));
        }
        node
    }

    fn bare(&self, name: &str) -> (NodeProcess, SocketAddr) {
        let node = self.fleet.node(name);
        let door = SocketAddr::from(([127, 0, 0, 1], free_port()));
        node.set_env("RAILYARD_CLUSTER__LISTEN", &format!("\"{door}\""));
        (node, door)
    }

    /// Gives a node a certificate of `authority`, while it goes on to trust the fleet's.
    pub(crate) fn certify(&self, node: &NodeProcess, name: &str, authority: &Authority, carries: &str) {
        let (certificate, key) = authority.issue(&[carries]);
        let files = [
            ("CERTIFICATE_FILE", self.write(&format!("{name}.crt"), &certificate)),
            ("KEY_FILE", self.write(&format!("{name}.key"), &key)),
            ("AUTHORITY_FILE", self.write("authority.crt", self.authority.pem())),
        ];
        for (key, path) in files {
            node.set_env(&format!("RAILYARD_CLUSTER__{key}"), &format!("\"{}\"", path.display()));
        }
    }

    fn write(&self, file: &str, text: &str) -> PathBuf {
        let path = self.fleet.sandbox.home().join(file);
        std::fs::write(&path, text).unwrap();
        path
    }

    /// The authority of all certificates.
    pub(crate) fn authority(&self) -> &Authority {
        &self.authority
    }

    /// Starts them all and waits until each is linked to all others.
    pub(crate) async fn start<const N: usize>(&self, nodes: [&NodeProcess; N]) {
        self.start_more(nodes, N - 1).await;
    }

    /// Starts some more and waits until each is linked to so many.
    pub(crate) async fn start_more<const N: usize>(&self, nodes: [&NodeProcess; N], peers: usize) {
        for node in nodes {
            node.start();
        }
        for node in nodes {
            node.await_ready().await;
        }
        for node in nodes {
            linked_to(node, peers).await;
        }
    }
}

/// A metric's value, all its labels summed up.
pub(crate) async fn metric(node: &NodeProcess, name: &str) -> f64 {
    let Ok(answer) = node.http().get("/metrics").await else { return -1.0 };
    let text = answer.text();
    let lines = text.lines().filter_map(|line| line.strip_prefix(name)).filter(|rest| rest.starts_with([' ', '{']));
    lines.filter_map(|rest| rest.rsplit_once(' ')?.1.parse::<f64>().ok()).sum()
}

/// The same for one value of the label `reason`.
pub(crate) async fn reason(node: &NodeProcess, name: &str, reason: &str) -> f64 {
    metric(node, &format!("{name}{{reason=\"{reason}\"}}")).await
}

/// Waits until it is linked to so many.
pub(crate) async fn linked_to(node: &NodeProcess, peers: usize) {
    let peers = f64::from(u32::try_from(peers).unwrap());
    eventually(SOON, &format!("linked to {peers}"), || async {
        (metric(node, "railyard_links_up").await - peers).abs() < 0.5
    })
    .await;
}

/// How often its log says this.
pub(crate) fn said(node: &NodeProcess, words: &str) -> usize {
    node.log().lines().filter(|line| line.contains(words)).count()
}

/// Bytes of memory that it holds now.
pub(crate) fn resident(node: &NodeProcess) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", node.pid().unwrap())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().trim().parse::<u64>().unwrap() << 10
}
