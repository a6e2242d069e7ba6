//! `railyard dev`: a private server, a token, a node; all of it ends with the command.

use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use railyard_testkit::eventually;

use crate::SOON;

#[tokio::test(flavor = "multi_thread")]
async fn dev_brings_everything_and_takes_it_away() {
    let dir = tempfile::Builder::new().prefix("railyard-dev-").tempdir().unwrap();
    // PostgreSQL runs as another user where this test runs as root.
    std::fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let data = dir.path().join("data");
    let log = dir.path().join("log");
    let address = format!("127.0.0.1:{}", railyard_postgres::free_port());
    let mut child = Command::new(env!("CARGO_BIN_EXE_railyard"))
        .args(["dev", "--no-fsync", "--data-dir"])
        .arg(&data)
        .env("RAILYARD_API__LISTEN", &address)
        .stdin(Stdio::null())
        .stdout(std::fs::File::create(&log).unwrap())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let said = || std::fs::read_to_string(&log).unwrap();
    let started = tokio::time::timeout(SOON, async {
        while !said().contains("database: postgres://") {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    if started.is_err() {
        child.kill().unwrap();
        child.wait().unwrap();
        panic!("{}", said());
    }
    let token = std::fs::read_to_string(data.join("admin.token")).unwrap();
    assert!(said().contains(&format!("api:      http://{address}")) && said().contains(token.trim()), "{}", said());
    for secret in ["admin.token", "master.key"] {
        assert_eq!(std::fs::metadata(data.join(secret)).unwrap().mode() & 0o777, 0o600, "{secret}");
    }
    let http = railyard_testkit::Http::to(address.parse().unwrap()).with_token(token.trim());
    eventually(SOON, "the node is ready", || async {
        http.get("/readyz").await.is_ok_and(|answer| answer.status == 200)
    })
    .await;
    assert_eq!(http.get("/api/admin/dispatch/credentials").await.unwrap().status, 200);
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0), "{}", said());
    assert!(!data.join("postgres/postmaster.pid").exists(), "the server has ended in order");
}
