//! The launcher against a real PostgreSQL: it starts whoever runs it, keeps its port, and leaves nothing behind.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
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

/// Not a test: the program that the next ones kill. It says where its server lives and waits for its end.
#[expect(clippy::disallowed_methods, reason = "a process of a test has no other way to be told")]
#[tokio::test]
#[ignore = "started by the tests below as a process of its own"]
async fn victim() {
    let mut options = PrivatePostgres::options().fsync(false);
    if let Some(data) = std::env::var_os("VICTIM_DATA") {
        options = options.data_dir(data);
    }
    let server = options.start().await.unwrap();
    println!("\nvictim {} {}", server.data_dir().display(), server.socket_dir().display());
    tokio::time::sleep(Duration::from_secs(600)).await;
}

/// Starts the victim and returns it with its directories when its server runs.
fn start_victim(data: Option<&Path>) -> (Child, Vec<PathBuf>) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "victim", "--ignored", "--nocapture"]).stdout(Stdio::piped()).stderr(Stdio::null());
    if let Some(data) = data {
        command.env("VICTIM_DATA", data);
    }
    let mut victim = command.spawn().unwrap();
    let mut lines = BufReader::new(victim.stdout.take().unwrap()).lines().map_while(Result::ok);
    let line = lines.find(|line| line.starts_with("victim ")).unwrap();
    (victim, line.split(' ').skip(1).map(PathBuf::from).collect())
}

#[test]
fn nothing_is_left_when_the_program_is_killed() {
    let (mut victim, dirs) = start_victim(None);
    let pid = postmaster_pid(&dirs[0]);
    victim.kill().unwrap();
    victim.wait().unwrap();
    wait_until("the directories are removed", || dirs.iter().all(|dir| !dir.exists()));
    // A zombie that nobody reaped has no working directory any more.
    wait_until("the postmaster is gone", || std::fs::read_link(format!("/proc/{pid}/cwd")).is_err());
}

#[tokio::test]
async fn a_kept_directory_is_taken_over_from_a_program_that_was_killed() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let (mut victim, _) = start_victim(Some(&data));
    victim.kill().unwrap();
    victim.wait().unwrap();
    let server = PrivatePostgres::options().data_dir(&data).fsync(false).start().await.unwrap();
    assert_eq!(ask(&server, "postgres", "select 1").as_deref(), Ok("1"));
}

#[tokio::test]
async fn what_an_interrupted_initdb_left_is_made_anew() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    std::fs::create_dir_all(data.join("base")).unwrap();
    std::fs::write(data.join("PG_VERSION"), "15\n").unwrap();
    std::fs::write(dir.path().join("data.half-made"), "").unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let server = PrivatePostgres::options().data_dir(&data).fsync(false).start().await.unwrap();
    assert_eq!(ask(&server, "postgres", "select 1").as_deref(), Ok("1"));
    assert!(!dir.path().join("data.half-made").exists());
}

#[tokio::test]
async fn a_directory_in_use_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let first = PrivatePostgres::options().data_dir(&data).fsync(false).start().await.unwrap();
    let error = PrivatePostgres::options().data_dir(&data).fsync(false).start().await.unwrap_err();
    assert!(matches!(error, Error::InUse { .. }), "{error}");
    assert_eq!(ask(&first, "postgres", "select 1").as_deref(), Ok("1"), "the first was harmed");
}
