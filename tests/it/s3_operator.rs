//! What operators type: `jobs list|get|cancel|replay`, `dlq list|replay`.

use railyard_testkit::FakeRail;
use serde_json::{Value, json};

use crate::api::{Api, JOBS};
use crate::world::SOON;

async fn run(api: &Api, words: &[&str]) -> (Option<i32>, String, String) {
    let output = api.sandbox.run_at(&api.node, words, "").await;
    (output.code, output.stdout, output.stderr)
}

async fn read(api: &Api, words: &[&str]) -> Value {
    let (code, stdout, stderr) = run(api, words).await;
    assert_eq!(code, Some(0), "{words:?}: {stdout}{stderr}");
    serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{error}: {stdout}"))
}

/// List with filters, walk all, cancel one, replay the dead letters after a preview; each ends as its exit status says.
#[tokio::test(flavor = "multi_thread")]
async fn s3_08_s3_22_s3_32_the_command_line_lists_cancels_and_replays() {
    let api = Api::new().await;
    let rail = FakeRail::start().await.status(410).status(410).then_ok();
    for n in 0..2 {
        let made = api.post(&api.job(&rail, &n.to_string(), &json!({ "metadata": { "n": n.to_string() } }))).await;
        assert_eq!(api.ended(&made.expect_status(201)).await["status"], "ERROR");
    }
    let sql =
        "SELECT to_char((clock_timestamp() + interval '1 hour') AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"')";
    let at: String = api.db.connect().await.query_one(sql, &[]).await.unwrap().get(0);
    let later = api.post(&api.job(&rail, "later", &json!({ "scheduledFor": at }))).await.expect_status(201);
    let later = later.json()["id"].as_str().unwrap().to_owned();

    let listed = read(&api, &["jobs", "list", "--json", "--status", "error", "--metadata", "n=1"]).await;
    assert_eq!(listed["totalItems"], 1, "{listed}");
    let (code, table, _) = run(&api, &["jobs", "list", "--status", "pending"]).await;
    assert_eq!(code, Some(0));
    assert!(table.contains(&later) && table.contains("PENDING"), "{table}");
    let (_, lines, _) = run(&api, &["jobs", "list", "--all", "--json"]).await;
    assert_eq!(lines.lines().count(), 3, "{lines}");

    let cancelled = read(&api, &["jobs", "cancel", &later, "--reason", "not wanted", "--json"]).await;
    assert_eq!(cancelled["status"], "CANCELLED");
    let (code, _, stderr) = run(&api, &["jobs", "cancel", &later]).await;
    assert_eq!(code, Some(1), "{stderr}");
    assert!(stderr.contains("CANCELLED"), "{stderr}");

    let letters = read(&api, &["dlq", "list", "--json"]).await;
    assert_eq!(letters["items"].as_array().unwrap().len(), 2, "{letters}");
    let preview = read(&api, &["dlq", "replay", "--preview", "--json"]).await;
    assert_eq!(preview["replayed"], 2, "{preview}");
    let (code, _, stderr) = run(&api, &["dlq", "replay", "--reason", "back"]).await;
    assert_eq!(code, Some(2), "nobody to ask: {stderr}");
    assert_eq!(rail.receipts().len(), 2, "nothing was sent");
    let done = read(&api, &["dlq", "replay", "--reason", "back", "--yes", "--json"]).await;
    assert_eq!((&done["replayed"], &done["refused"]), (&json!(2), &json!(0)), "{done}");
    rail.await_answered(4, SOON).await;
    let (code, stdout, _) = run(&api, &["jobs", "replay", &later, "--reason", "wanted after all"]).await;
    assert_eq!(code, Some(0), "{stdout}");
    let job = api.http().get(&format!("{JOBS}/{}", stdout.trim())).await.unwrap().expect_status(200).json();
    assert_eq!(job["replayOf"], later.as_str());
}
