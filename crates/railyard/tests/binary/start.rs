//! What stops a start, by name; what a start waits for.

use railyard_testkit::{FaultProxy, Mode, Sandbox, TestDb, eventually, eventually_some};
use serde_json::json;

use crate::{Installation, SOON, sandbox};

/// A start that is refused: exit status and what was said.
async fn refused(sandbox: Sandbox, code: i32) -> String {
    let file = sandbox.config_file();
    let output = sandbox.run(&["serve", "--config", &file.to_string_lossy()]).await;
    assert_eq!(output.code, Some(code), "{}", output.stderr);
    output.stderr
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_that_cannot_be_used_are_named() {
    let away = || sandbox("postgres://nobody@127.0.0.1:1/none");
    for (key, value, expect) in [
        ("lease.lease", "3", "lease.lease: unknown key; known are lease_s, renewal_s (from RAILYARD_LEASE__LEASE)"),
        ("lease.lease_s", "2", "lease.lease_s: 2 is not between 3 and 300"),
        ("dispatch.poll_ms", "\"fast\"", "dispatch.poll_ms: invalid type"),
        ("api.tokens", "[]", "api.tokens: is empty, and api.listen = 0.0.0.0:0 is not a loopback address"),
        ("secrets.master_keys", "[]", "secrets.master_keys: no master key is configured"),
    ] {
        let said = refused(away().set("api.listen", "\"0.0.0.0:0\"").set(key, value), 2).await;
        assert!(said.contains(expect), "{key}: {said}");
    }
    let said = refused(away().env("RAILYARD_MASTER_KEY", "not-a-key-but-secret"), 2).await;
    assert!(said.contains("secrets.master_keys[0].key_env: ") && !said.contains("but-secret"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_without_the_schema_is_refused_with_the_remedy() {
    let db = TestDb::create().await;
    let said = refused(sandbox(db.url()), 1).await;
    assert!(said.contains("is at version 0 and lacks V1, ") && said.contains("run `railyard migrate`"), "{said}");
    let sandbox = sandbox(db.url());
    let check = sandbox.run(&["migrate", "--check", "--json"]).await;
    assert_eq!(check.code, Some(1), "{}", check.stderr);
    sandbox.run(&["migrate"]).await.ok();
    assert!(sandbox.run(&["migrate", "--check"]).await.ok().contains("nothing to do"));
    sandbox.node().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_is_away_is_waited_for_and_a_signal_ends_the_wait() {
    let sandbox = sandbox(&format!("postgres://nobody@127.0.0.1:{}/none", railyard_postgres::free_port()));
    let node = sandbox.idle_node();
    node.start();
    eventually(SOON, "it says that it waits", || async { node.log().contains("waiting for the database") }).await;
    node.term();
    assert_eq!(node.await_exit(SOON).await, 0, "{}", node.log());
}

/// An orchestrator that got no answer would start it again and again, later and later.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_waits_for_its_database_lives_and_goes_on_by_itself() {
    let there = Installation::new().await;
    let direct = there.db.url();
    let address = direct.split_once('@').unwrap().1.split('/').next().unwrap().parse().unwrap();
    let way = FaultProxy::postgres(address).await;
    way.set(Mode::Refuse);
    let sandbox = sandbox(&way.url(direct));
    let node = sandbox.idle_node();
    node.start();
    let first = eventually_some(SOON, "it answers", || async { node.http().get("/healthz").await.ok() }).await;
    assert_eq!(first.expect_status(200).json(), json!({ "status": "live" }));
    let ready = node.http().get("/readyz").await.unwrap().expect_status(503).json();
    assert!(ready["reasons"][0].as_str().unwrap().contains("waiting for the database"), "{ready}");
    let job = node.http().post("/api/dispatch/jobs", &json!({})).await.unwrap().expect_status(503);
    assert_eq!(job.header("Retry-After"), Some("1"), "{}", job.text());
    // Somebody who says nothing keeps nobody waiting.
    let _silent = tokio::net::TcpStream::connect(node.address()).await.unwrap();
    way.set(Mode::Pass);
    node.await_ready().await;
    node.http().get("/admin/cluster").await.unwrap().expect_status(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_looks_at_everything_and_says_what_is_wrong() {
    let there = Installation::new().await;
    let file = there.sandbox.config_file();
    let doctor = ["doctor", "--json", "--config", &file.to_string_lossy()];
    let checks: serde_json::Value = serde_json::from_str(&there.sandbox.run(&doctor).await.ok()).unwrap();
    let names: Vec<&str> = checks.as_array().unwrap().iter().map(|check| check["check"].as_str().unwrap()).collect();
    for expect in ["configuration", "master keys", "server version", "schema", "rights", "clock", "pooler", "listen"] {
        assert!(names.contains(&expect), "{expect}: {names:?}");
    }
    let empty = TestDb::create().await;
    let output = sandbox(empty.url()).run(&["doctor", "--config", &file.to_string_lossy()]).await;
    assert_eq!(output.code, Some(1), "{}", output.stdout);
}
