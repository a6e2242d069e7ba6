//! The launcher against a real PostgreSQL: it starts whoever runs it, keeps its port, and leaves nothing behind.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use railyard_postgres::{Error, PrivatePostgres};

/// One query by psql: this crate has no SQL client of its own.
fn ask(server: &PrivatePostgres, database: &str, sql: &str) -> Result<String, String> {
    let mut psql = Command::new(server.binaries().program("psql"));
    psql.args(["-X", "-A", "-t", "-d", &server.url(database), "-c", sql]).env("PGCONNECT_TIMEOUT", "2");
    let output = psql.output().unwrap();
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

fn postmaster_pid(data: &Path) -> String {
    std::fs::read_to_string(data.join("postmaster.pid")).unwrap().lines().next().unwrap().to_owned()
}

fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !condition() {
        assert!(Instant::now() < deadline, "not within 20 s: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[tokio::test]
async fn data_survive_an_immediate_restart_and_a_kill_at_the_same_address() {
    let server = PrivatePostgres::options().fsync(false).setting("autovacuum", "off").start().await.unwrap();
    server.create_database("kept").await.unwrap();
    server.create_database("kept").await.unwrap();
    ask(&server, "kept", "create table t as select 7 as n").unwrap();
    let url = server.url("kept");

    server.restart_immediate().await.unwrap();
    assert_eq!(ask(&server, "kept", "select n from t").as_deref(), Ok("7"));

    server.kill_hard().await.unwrap();
    assert!(!server.is_running());
    assert!(ask(&server, "kept", "select 1").is_err());
    server.start_again().await.unwrap();
    assert!(server.is_running());
    assert_eq!(ask(&server, "kept", "select n from t").as_deref(), Ok("7"));
    assert_eq!(server.url("kept"), url);
    assert_eq!(ask(&server, "kept", "show autovacuum").as_deref(), Ok("off"));
    assert_eq!(ask(&server, "kept", "show fsync").as_deref(), Ok("off"));
}

#[tokio::test]
async fn a_paused_server_answers_nothing_and_goes_on_when_resumed() {
    let server = PrivatePostgres::options().fsync(false).start().await.unwrap();
    server.pause();
    assert!(ask(&server, "postgres", "select 1").is_err());
    server.resume();
    assert_eq!(ask(&server, "postgres", "select 1").as_deref(), Ok("1"));
}

#[tokio::test]
async fn a_named_data_directory_is_kept_and_a_temporary_one_goes() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let server = PrivatePostgres::options().data_dir(&data).fsync(false).start().await.unwrap();
    server.create_database("kept").await.unwrap();
    let sockets = server.socket_dir().to_path_buf();
    drop(server);
    assert!(data.join("PG_VERSION").exists());
    assert!(!data.join("postmaster.pid").exists(), "not stopped in order");
    assert!(!sockets.exists());

    let server = PrivatePostgres::options().data_dir(&data).fsync(false).start().await.unwrap();
    assert_eq!(ask(&server, "kept", "select 1").as_deref(), Ok("1"));

    let temporary = PrivatePostgres::options().fsync(false).start().await.unwrap();
    let its_data = temporary.data_dir().to_path_buf();
    drop(temporary);
    assert!(!its_data.exists());
}

#[tokio::test]
async fn a_broken_setting_is_reported_in_the_servers_own_words() {
    let error = PrivatePostgres::options().fsync(false).setting("no_such_setting", "1").start().await.unwrap_err();
    assert!(error.to_string().contains("no_such_setting"), "{error}");
}

#[tokio::test]
async fn a_database_name_that_would_need_quoting_is_refused() {
    let server = PrivatePostgres::options().fsync(false).start().await.unwrap();
    for name in ["", "a b", "a;drop", "A", "1a", "a\"b"] {
        assert!(matches!(server.create_database(name).await, Err(Error::BadName(_))), "{name:?}");
    }
}

/// Not a test: the program that the next one kills. It says where its server lives and waits for its end.
#[tokio::test]
#[ignore = "started by the test below as a process of its own"]
async fn victim() {
    let server = PrivatePostgres::options().fsync(false).start().await.unwrap();
    println!("\nvictim {} {}", server.data_dir().display(), server.socket_dir().display());
    tokio::time::sleep(Duration::from_secs(600)).await;
}

#[test]
fn nothing_is_left_when_the_program_is_killed() {
    let mut victim = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "victim", "--ignored", "--nocapture"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let lines = BufReader::new(victim.stdout.take().unwrap()).lines().map_while(Result::ok);
    let line = lines.into_iter().find(|line| line.starts_with("victim ")).unwrap();
    let dirs: Vec<PathBuf> = line.split(' ').skip(1).map(PathBuf::from).collect();
    let pid = postmaster_pid(&dirs[0]);
    victim.kill().unwrap();
    victim.wait().unwrap();
    wait_until("the directories are removed", || dirs.iter().all(|dir| !dir.exists()));
    // A zombie that nobody reaped has no working directory any more.
    wait_until("the postmaster is gone", || std::fs::read_link(format!("/proc/{pid}/cwd")).is_err());
}
