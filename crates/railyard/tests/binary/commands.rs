//! The client commands against a node.

use railyard_testkit::FakeRail;
use serde_json::Value;

use crate::{Installation, SECRET, SOON};

#[tokio::test(flavor = "multi_thread")]
async fn a_job_goes_out_and_can_be_looked_at() {
    let there = Installation::new().await;
    let node = there.sandbox.node().await;
    let rail = FakeRail::start().await.fails(1).then_ok();
    let credentials = there.credentials(&node).await;
    let job = there.job(&node, &rail, &credentials, "g").await;
    rail.await_answered(1, SOON).await;
    let shown: Value = serde_json::from_str(&there.at(&node, &["jobs", "get", &job, "--json"]).await.ok()).unwrap();
    assert_eq!((&shown["id"], &shown["groupId"]), (&Value::from(job.as_str()), &Value::from("g")));
    railyard_testkit::eventually(SOON, "the failure is on record", || async {
        there.at(&node, &["jobs", "attempts", &job]).await.ok().contains("HTTP_5XX")
            || there.at(&node, &["jobs", "attempts", &job]).await.ok().contains("500")
    })
    .await;
    let listed = there.at(&node, &["credentials", "list"]).await.ok();
    assert!(listed.contains(&credentials) && !listed.contains(SECRET), "{listed}");
    let missing = there.at(&node, &["jobs", "get", "00000000-0000-0000-0000-000000000000"]).await;
    assert_eq!(missing.code, Some(1));
    assert!(missing.stderr.contains("404"), "{}", missing.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn groups_are_held_and_let_go_on_record() {
    let there = Installation::new().await;
    let node = there.sandbox.node().await;
    let rail = FakeRail::start().await;
    let credentials = there.credentials(&node).await;
    let group = "a/b Łódź";
    there.at(&node, &["groups", "pause", group, "--reason", "end of day"]).await.ok();
    let job = there.job(&node, &rail, &credentials, group).await;
    let held = there.at(&node, &["groups", "list"]).await.ok();
    assert!(held.contains(group) && held.contains("paused"), "{held}");
    let skipped = there.at(&node, &["groups", "skip", group, "--reason", "sent by hand", "--head", &job]).await.ok();
    assert!(skipped.contains(&job), "{skipped}");
    let again = there.at(&node, &["groups", "pause", group, "--reason", "again"]).await;
    assert_eq!(again.code, Some(1));
    assert!(again.stderr.contains("409") && again.stderr.contains("paused already"), "{}", again.stderr);
    there.at(&node, &["groups", "resume", group, "--reason", "new day"]).await.ok();
    there.job(&node, &rail, &credentials, group).await;
    let receipts = rail.await_receipts(1, SOON).await;
    assert_eq!(receipts[0].sequence(), Some(2), "the skipped one was never sent");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_token_no_answer_and_the_hint_names_it() {
    let there = Installation::new().await;
    let node = there.sandbox.node().await;
    let output = there.at(&node, &["credentials", "list", "--token", "wrong"]).await;
    assert_eq!(output.code, Some(1));
    assert!(output.stderr.contains("401"), "{}", output.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn usage_errors_are_2_and_a_wrong_signature_is_1() {
    let sandbox = crate::sandbox("postgres://nobody@127.0.0.1:1/none");
    for words in [&["jobs"][..], &["nonsense"], &["jobs", "create", "--strict"], &["groups", "pause", "g"]] {
        assert_eq!(sandbox.run(words).await.code, Some(2), "{words:?}");
    }
    let bad_url = sandbox.run(&["credentials", "list", "--url", "ftp://x"]).await;
    assert_eq!(bad_url.code, Some(2), "{}", bad_url.stderr);
    let verify = |signature: &'static str| {
        let fixed = ["verify", "--secret", "whsec_xyz789", "--timestamp", "2025-10-04T14:30:45.123Z"];
        [&fixed[..], &["--at", "2025-10-04T14:30:45Z", "--body-file", "-", "--signature", signature]].concat()
    };
    let body = r#"{"orderId":"12345","amount":99.99}"#;
    let good = verify("2501382cba528add2eb4c6e93131fd7967093bb6d8f80af96fe6df4357407988");
    assert!(sandbox.run_with_input(&good, body).await.ok().contains("valid"));
    let bad = sandbox.run_with_input(&verify("00"), body).await;
    assert_eq!(bad.code, Some(1));
    assert!(bad.stdout.contains("not valid"), "{}", bad.stdout);
}
