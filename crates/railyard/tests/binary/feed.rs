//! `jobs create --file` against a node that lives and one that dies.

use std::collections::HashSet;

use railyard_testkit::{FakeRail, eventually};
use serde_json::Value;

use crate::{Installation, SOON};

fn line(group: usize, number: usize) -> String {
    format!(r#"{{"source":"s","type":"t","groupId":"g{group}","idempotencyKey":"k{number}","payload":"{number}"}}"#)
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_lines_are_named_and_the_others_go_out_in_order() {
    let there = Installation::new().await;
    let node = there.sandbox.node().await;
    let rail = FakeRail::start().await;
    let (url, credentials) = (rail.url(), there.credentials(&node).await);
    let mut lines: Vec<String> = (0..30).map(|number| line(number % 3, number)).collect();
    lines.insert(4, "nonsense".to_owned());
    lines.insert(9, r#"{"source":"s","payload":"","amount":1}"#.to_owned());
    let create = ["jobs", "create", "--file", "-", "--json", "--target-url", &url, "--credentials", &credentials];
    let output = there.with_input(&node, &create, &lines.join("\n")).await;
    assert_eq!(output.code, Some(1), "{}", output.stderr);
    assert!(output.stderr.contains("line 5: ") && output.stderr.contains("line 10: 400"), "{}", output.stderr);
    assert!(output.stderr.contains("amount: ") && output.stderr.contains("type: "), "{}", output.stderr);
    let summary: Value = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!((&summary["created"], &summary["refused"]), (&Value::from(30), &Value::from(2)));
    let receipts = rail.await_receipts(30, SOON).await;
    for group in 0..3 {
        let name = format!("g{group}");
        let bodies: Vec<usize> = receipts
            .iter()
            .filter(|receipt| receipt.group() == Some(&name))
            .map(|receipt| receipt.text().parse().unwrap())
            .collect();
        assert!(bodies.is_sorted() && bodies.len() == 10, "{name}: {bodies:?}");
    }
    let again = there.with_input(&node, &create, &line(0, 0)).await.ok();
    let summary: Value = serde_json::from_str(&again).unwrap();
    assert_eq!((&summary["created"], &summary["existing"]), (&Value::from(0), &Value::from(1)));
}

/// The node is killed in the middle of the file and started again: the command waits, every line is one job. The calls'
/// deadline is short, since what died in flight is repeated only after it.
#[tokio::test(flavor = "multi_thread")]
async fn a_killed_node_neither_loses_nor_repeats_a_line() {
    let there = Installation::new().await;
    let node = there.sandbox.node().await;
    let rail = FakeRail::start().await;
    let (url, credentials) = (rail.url(), there.credentials(&node).await);
    let lines: Vec<String> = (0..400).map(|number| line(number % 7, number)).collect();
    let create = ["jobs", "create", "--file", "-", "--json", "--timeout-seconds", "2", "--target-url", &url];
    let create = [&create[..], &["--credentials", &credentials]].concat();
    let input = lines.join("\n");
    let kill = async {
        eventually(SOON, "the file is under way", || async { rail.receipts().len() >= 20 }).await;
        node.kill9();
        node.restart().await;
    };
    let (output, ()) = tokio::join!(there.with_input(&node, &create, &input), kill);
    let summary: Value = serde_json::from_str(&output.ok()).unwrap();
    assert_eq!(summary["created"].as_u64().unwrap() + summary["existing"].as_u64().unwrap(), 400);
    let all = || async {
        let keys: HashSet<String> =
            rail.receipts().iter().filter(|receipt| receipt.accepted()).map(|receipt| receipt.text()).collect();
        keys.len() == 400
    };
    eventually(SOON, "everything is delivered", all).await;
    assert_eq!(rail.order_violations(), Vec::<String>::new());
    let sql = there.db.connect().await;
    let jobs: i64 = sql.query_one("SELECT count(*) FROM dispatch_job", &[]).await.unwrap().get(0);
    assert_eq!(jobs, 400);
}
