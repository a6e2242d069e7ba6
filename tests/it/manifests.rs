//! The Kubernetes manifests as the program reads them: a wrong key in a pod's variables or in its file stops every pod, and
//! no schema knows it.

use std::fs;
use std::path::Path;

use railyard_testkit::fake_rail::Authority;
use railyard_testkit::{NodeProcess, Sandbox, TestDb, free_port};

use crate::linked::{COOKIE, NAME, linked_to};

fn manifest(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../k8s").join(path)).unwrap()
}

/// Railyard's variables in a manifest, and their values where they stand there; others come from the Secret.
fn variables(manifest: &str) -> Vec<(&str, Option<&str>)> {
    let lines: Vec<&str> = manifest.lines().collect();
    let mut found = Vec::new();
    for (n, line) in lines.iter().copied().enumerate() {
        let Some(start) = line.find("name: RAILYARD_").map(|place| place + "name: ".len()) else { continue };
        let name = line[start..].split([',', ' ']).next().unwrap();
        let next = lines.get(n + 1).copied().filter(|next| next.trim_start().starts_with("value:"));
        found.push((name, quoted(line).or_else(|| quoted(next?))));
    }
    found
}

/// `value: '…'`
fn quoted(line: &str) -> Option<&str> {
    Some(line.split_once("value: '")?.1.rsplit_once('\'')?.0)
}

/// What the pods of production are given: a database, the Secrets, the configuration.
struct Namespace {
    sandbox: Sandbox,
    _db: TestDb,
}

impl Namespace {
    async fn new() -> Self {
        let db = crate::world::database().await;
        let sandbox = Sandbox::new(db.url()).env("CLUSTER_COOKIE", COOKIE);
        // Made up by Kubernetes for the Service, and no settings.
        let sandbox = sandbox.env("RAILYARD_SERVICE_HOST", "10.0.0.1").env("RAILYARD_PORT", "tcp://10.0.0.1:80");
        let file = fs::read_to_string(sandbox.config_file()).unwrap();
        let hash = file.split("sha256 = \"").nth(1).unwrap().split('"').next().unwrap();
        let home = sandbox.home().to_owned();
        let authority = Authority::new();
        let (certificate, key) = authority.issue(&[NAME]);
        let files = [("master-key", "5a".repeat(32)), ("tls.crt", certificate), ("tls.key", key)];
        for (name, text) in files.into_iter().chain([("ca.crt", authority.pem().to_owned())]) {
            fs::write(home.join(name), text).unwrap();
        }
        let config = manifest("base/railyard.toml").replace("/run/secrets/railyard/", &format!("{}/", home.display()));
        fs::write(sandbox.config_file(), config).unwrap();
        let tokens = format!("[{{name=\"test\", role=\"admin\", sha256=\"{hash}\"}}]");
        Self { sandbox: sandbox.env("RAILYARD_API__TOKENS", tokens), _db: db }
    }

    /// A pod with the variables of the manifests, and this machine's addresses and folders for theirs.
    fn pod(&self, name: &str) -> NodeProcess {
        let pod = self.sandbox.idle_node();
        let (port, home) = (free_port().to_string(), self.sandbox.home().display().to_string());
        for file in ["base/statefulset.yaml", "components/links/kustomization.yaml"] {
            let text = manifest(file);
            let found = variables(&text);
            assert!(found.len() >= 3, "{file}: {found:?}");
            for (variable, value) in found {
                let Some(value) = value else { continue };
                let value = value.replace("$(POD_NAME)", name).replace("$(POD_IP)", "127.0.0.1");
                let value = value.replace("0.0.0.0", "127.0.0.1").replace("7400", &port);
                pod.set_env(variable, &value.replace("/run/secrets/railyard-links", &home));
            }
        }
        pod.start();
        pod
    }
}

/// Two of them start with what the manifests say, under their names, and link.
#[tokio::test(flavor = "multi_thread")]
async fn kubernetes_pods_start_with_the_settings_of_the_manifests() {
    let namespace = Namespace::new().await;
    let pods = [namespace.pod("railyard-0"), namespace.pod("railyard-1")];
    for pod in &pods {
        pod.await_ready().await;
    }
    for pod in &pods {
        linked_to(pod, 1).await;
    }
    let cluster = pods[0].http().get("/admin/cluster").await.unwrap().expect_status(200).json();
    let names: Vec<_> =
        cluster["nodes"].as_array().unwrap().iter().map(|node| node["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["railyard-0", "railyard-1"]);
}
