//! The handling of processes, with a stand-in for the binary: this test program, started as an ignored test.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
#![allow(clippy::disallowed_methods, reason = "the stand-in reads its environment, as the binary does")]

use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use railyard_testkit::Sandbox;

const SOON: Duration = Duration::from_secs(5);

/// Not a test: answers every request with 200 and its own process id, for ever.
#[test]
#[ignore = "started by the tests below as a process of its own"]
fn stand_in() {
    let failpoint = std::env::var("RAILYARD_FAILPOINT").unwrap_or_default();
    eprintln!("stand-in with failpoint {failpoint:?}, url {}", std::env::var("RAILYARD_DATABASE__URL").unwrap());
    assert_ne!(failpoint, "at_start", "the failpoint was met");
    let listen = std::env::var("RAILYARD_API__LISTEN").unwrap();
    let listener = TcpListener::bind(listen.trim_matches('"')).unwrap();
    for stream in listener.incoming() {
        let mut stream = stream.unwrap();
        let _ = stream.read(&mut [0; 4096]);
        let body = std::process::id().to_string();
        let _ = write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    }
}

/// A sandbox whose binary runs the stand-in; the directory holds the script.
fn sandbox() -> (tempfile::TempDir, Sandbox) {
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("railyard");
    let test = std::env::current_exe().unwrap();
    let text = format!(
        "#!/bin/sh\n[ \"$1\" = serve ] && exec {} --exact stand_in --ignored --nocapture\ncat; echo \"$@\"; exit 3\n",
        test.display()
    );
    std::fs::write(&script, text).unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    (dir, Sandbox::with_binary(script, "postgres://nobody@nowhere/x"))
}

#[tokio::test]
async fn a_node_is_killed_and_comes_back_at_its_address() {
    let (_dir, sandbox) = sandbox();
    let node = sandbox.node().await;
    let first = node.http().get("/").await.unwrap().text();
    assert_eq!(first, node.pid().unwrap().to_string());
    node.kill9();
    assert!(!node.is_running());
    assert!(node.http().get("/").await.is_err());
    node.restart().await;
    assert_ne!(node.http().get("/").await.unwrap().text(), first);
    assert!(node.log().contains("url postgres://nobody@nowhere/x"), "{}", node.log());
}

#[tokio::test]
async fn a_frozen_node_answers_nothing_until_it_goes_on() {
    let (_dir, sandbox) = sandbox();
    let node = sandbox.node().await;
    node.stop();
    let http = node.http().with_timeout(Duration::from_millis(100));
    assert!(http.get("/").await.is_err());
    assert!(node.is_running());
    node.cont();
    node.http().get("/").await.unwrap();
    node.term();
    assert_eq!(node.await_exit(SOON).await, -15);
}

#[tokio::test]
async fn a_failpoint_is_for_the_starts_that_it_was_set_for() {
    let (_dir, sandbox) = sandbox();
    let node = sandbox.idle_node();
    node.set_failpoint("at_start");
    node.start();
    assert_ne!(node.await_exit(SOON).await, 0);
    assert!(node.log().contains("the failpoint was met"), "{}", node.log());
    node.clear_failpoint();
    node.restart().await;
}

#[tokio::test]
async fn a_command_gets_its_input_and_gives_what_it_printed() {
    let (_dir, sandbox) = sandbox();
    let output = sandbox.run_with_input(&["jobs", "list"], "input\n").await;
    assert_eq!((output.code, output.stdout.as_str()), (Some(3), "input\njobs list\n"));
}

#[tokio::test]
async fn settings_are_merged_into_the_environment_and_the_file() {
    let (_dir, sandbox) = sandbox();
    let sandbox = sandbox.set("lease.lease_s", 9).with_toml("[log]\nformat = \"json\"");
    let text = std::fs::read_to_string(sandbox.config_file()).unwrap();
    assert!(text.contains("[[api.tokens]]") && text.ends_with("[log]\nformat = \"json\"\n"), "{text}");
}
