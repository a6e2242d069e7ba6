//! S3-44 and S3-46: secrets and payloads are in the one place where they belong, and nowhere else.

use railyard_core::ParticipantId;
use railyard_testkit::{Answer, FakeRail, Gate, Sandbox, eventually, verify};
use serde_json::json;
use tokio_postgres::Client;

use crate::api::{Api, CREDENTIALS, JOBS};
use crate::world::{SECRET, SOON, TOKEN, World};

/// In a payload, and nowhere else in a test.
const MARK: &str = "payload-mark-7f3a";

/// Everything that could give a text away: as it is, and in the two spellings of its bytes.
fn spellings(text: &str) -> Vec<String> {
    let hex: String = text.bytes().map(|byte| format!("{byte:02x}")).collect();
    vec![text.to_owned(), hex]
}

/// Every row of these tables, as text with bytes in hex.
async fn rows(sql: &Client, tables: &[String]) -> String {
    let mut all = String::new();
    for table in tables {
        let query = format!("SELECT coalesce(string_agg(t::text, E'\\n'), '') FROM {table} t");
        let text: String = sql.query_one(&query, &[]).await.unwrap().get(0);
        all.push_str(&text);
    }
    all
}

/// Every table and view of the schema.
async fn tables(sql: &Client) -> Vec<String> {
    let names = "SELECT c.oid::regclass::text FROM pg_class c
                 WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p', 'v') ORDER BY 1";
    sql.query(names, &[]).await.unwrap().iter().map(|row| row.get(0)).collect()
}

fn assert_absent(what: &str, text: &str, secrets: &[&str]) {
    for secret in secrets {
        for spelling in spellings(secret) {
            assert!(!text.contains(&spelling), "{what} holds {spelling:?}");
        }
    }
}

async fn told(answers: &mut String, answer: Answer) {
    answers.push_str(&answer.text());
    answers.push_str(&format!("{:?}", answer.headers));
}

/// Deliveries that succeed and fail, refusals, look-ups, metrics, with the log at its most talkative: no secret in any
/// answer, in the log, or in any table.
#[tokio::test(flavor = "multi_thread")]
async fn s3_44_secrets_are_in_no_answer_no_log_and_no_table() {
    let talkative = |sandbox: Sandbox| sandbox.set("log.filter", "\"trace\"");
    let api = Api::with(talkative).await;
    // A receiver that answers with what it was sent, as debugging services do.
    let echo = format!("{{\"authorization\": \"Bearer {TOKEN}\", \"signed with\": \"{SECRET}\"}}");
    let rail = FakeRail::start().await.status(401).body(echo.clone()).status(500).body(echo).then_ok();
    let mut answers = String::new();
    let made = api.post(&api.job(&rail, "{}", &json!({ "groupId": "g", "idempotencyKey": "k" }))).await;
    let id = made.json()["id"].as_str().unwrap().to_owned();
    api.ended(&made).await;
    let dead = api.job(&rail, "{}", &json!({ "targetUrl": "https://127.0.0.1:1/?token=hidden", "maxRetries": 1 }));
    let dead = api.post(&dead).await.expect_status(201);
    api.ended(&dead).await;
    for path in [
        format!("{JOBS}/{id}"),
        format!("{JOBS}/{id}/attempts"),
        CREDENTIALS.to_owned(),
        format!("{CREDENTIALS}/{}", api.credentials),
        "/metrics".to_owned(),
        "/admin/groups".to_owned(),
        "/admin/audit".to_owned(),
        "/admin/rails".to_owned(),
        "/admin/node".to_owned(),
        "/admin/dlq".to_owned(),
        "/healthz".to_owned(),
        "/readyz".to_owned(),
    ] {
        told(&mut answers, api.http().get(&path).await.unwrap()).await;
    }
    let wrong =
        json!({ "bearerToken": format!("{TOKEN}\n"), "signingSecret": format!("{SECRET} "), "algorithm": SECRET });
    told(&mut answers, api.http().post(CREDENTIALS, &wrong).await.unwrap().expect_status(400)).await;
    let broken = format!("{{\"signingSecret\": \"{SECRET}\", \"bearerToken\": {TOKEN}}}");
    told(&mut answers, api.http().post_text(CREDENTIALS, &broken).await.unwrap().expect_status(400)).await;
    let used = api.http().delete(&format!("{CREDENTIALS}/{}", api.credentials)).await.unwrap();
    told(&mut answers, used).await;
    let words = SECRET.strip_prefix("whsec_").unwrap();
    let secrets = [words, TOKEN];
    assert_absent("an answer", &answers, &secrets);
    let log = api.node.log();
    assert!(log.contains("TRACE"), "the log was to be talkative");
    assert_absent("the log", &log, &secrets);
    assert!(!log.contains(api.sandbox.token()), "the API's token is in the log");
    let receipts = rail.receipts();
    let signature = receipts[0].header("X-FLOWCATALYST-SIGNATURE").unwrap();
    assert!(!log.contains(signature), "a signature is in the log");
    let sql = api.db.connect().await;
    let tables = tables(&sql).await;
    assert!(tables.iter().any(|name| name == "dispatch_credentials"), "{tables:?}");
    assert_absent("a table", &rows(&sql, &tables).await, &secrets);
    assert_eq!(verify::signature_failures(&receipts, SECRET), verify::NONE, "it was signed all the while");
}

/// At rest a set is sealed under the key that its row names: neither another row's bytes nor altered ones open.
#[tokio::test(flavor = "multi_thread")]
async fn s3_44_what_is_sealed_opens_in_its_own_row_alone() {
    let world = World::new().await;
    let rail = FakeRail::start().await;
    let other = crate::world::credentials(&world.store, &world.keys).await;
    let key: String = world.one("SELECT string_agg(DISTINCT key_id, ',') FROM dispatch_credentials").await;
    assert_eq!(key, "test");
    let copy =
        "UPDATE dispatch_credentials SET sealed = (SELECT sealed FROM dispatch_credentials WHERE credentials_id = $1)
                WHERE credentials_id = $2";
    world.sql.execute(copy, &[&world.credentials.0, &other.0]).await.unwrap();
    let node = world.node().await;
    let moved = world.hook(&rail.url(), "{}", |job| job.credentials_id = Some(other)).await;
    let good = world.hook(&rail.url(), "{}", |_| {}).await;
    world.ended(good).await;
    eventually(SOON, "an attempt that was not started", || async {
        world.history(moved).await.first().is_some_and(|first| first == "NOT_STARTED/CREDENTIALS_UNAVAILABLE")
    })
    .await;
    assert_eq!(rail.exchanges().len(), 1);
    node.stop(SOON).await;
}

/// What moves inside carries an id and a group: while a message waits, is in flight, is woken for and is shown, its
/// payload stands in its job's row and nowhere else, and the call has loaded it from there.
#[tokio::test(flavor = "multi_thread")]
async fn s3_46_payloads_are_loaded_by_id_and_travel_nowhere_else() {
    let world = World::new().await;
    let gate = Gate::closed();
    let rail = FakeRail::start().await.hold_until(&gate);
    let mut heard = world.store.listen().await.unwrap();
    let node = world.node().await;
    let group = |job: &mut railyard_core::job::NewJob| job.group = Some(ParticipantId::new("g"));
    let first = world.hook(&rail.url(), MARK, group).await;
    let waits = world.hook(&rail.url(), MARK, group).await;
    eventually(SOON, "a call is open", || async { gate.waiting() == 1 }).await;
    let hot = ["payment_outbox_pending", "in_flight", "ready_group", "participant_outbox_sequences", "group_hold"];
    let hot: Vec<String> = hot.into_iter().map(str::to_owned).collect();
    let moving = rows(&world.sql, &hot).await;
    assert!(moving.contains(&first.to_string()) && moving.contains(&waits.to_string()), "{moving}");
    assert_absent("a table of moving parts", &moving, &[MARK]);
    assert_absent("what the actors show", &node.observe().await.to_string(), &[MARK]);
    let notice = tokio::time::timeout(SOON, heard.next()).await.unwrap().unwrap();
    assert!(!format!("{notice:?}").contains(MARK), "{notice:?}");
    gate.open();
    world.ended(waits).await;
    assert!(rail.receipts().iter().all(|receipt| receipt.body == MARK.as_bytes()));
    let places: i64 = world
        .one(&format!(
            "SELECT count(*) FROM (SELECT payload FROM dispatch_job) j(payload) WHERE payload = convert_to('{MARK}', 'UTF8')"
        ))
        .await;
    assert_eq!(places, 2);
    node.stop(SOON).await;
}

/// The log of a node names messages by id, group and attempt, and repeats no payload, however talkative it is.
#[tokio::test(flavor = "multi_thread")]
async fn s3_46_the_log_names_messages_and_repeats_no_payload() {
    let api = Api::with(|sandbox| sandbox.set("log.filter", "\"info,railyard=trace,railyard_node=trace,railyard_store=trace,railyard_rail=trace,railyard_api=trace,railyard_core=trace\"")).await;
    let rail = FakeRail::start().await.status(500).then_ok();
    let good = api.post(&api.job(&rail, MARK, &json!({ "groupId": "a-group" }))).await.expect_status(201);
    api.ended(&good).await;
    let refused = api.job(
        &rail,
        &format!("{{\"amount\":\"{MARK}\"}}"),
        &json!({
            "railType": "payment_webhook", "groupId": "a-debtor",
        }),
    );
    let refused = api.post(&refused).await.expect_status(201);
    assert_eq!(api.ended(&refused).await["status"], "ERROR");
    let log = api.node.log();
    let id = good.json()["id"].as_str().unwrap().to_owned();
    assert!(log.contains(&id) && log.contains("a-group"), "the log names what it speaks of");
    assert_absent("the log", &log, &[MARK]);
    let attempts = api.http().get(&format!("{JOBS}/{id}/attempts")).await.unwrap().text();
    assert_absent("the attempts", &attempts, &[MARK]);
}

/// A secret that an editor has put a line's end behind, given by file: it signs as it was meant. One that is no base64
/// signs by the source's scheme alone, and the answer says so.
#[tokio::test(flavor = "multi_thread")]
async fn trap_a_secret_from_a_file_signs_without_its_line_end() {
    const PLAIN: &str = "plain-secret-é";
    let api = Api::new().await;
    let rail = FakeRail::start().await;
    let home = api.sandbox.home();
    for (name, text) in
        [("token", format!("{TOKEN}\n")), ("base64", format!("{SECRET}\r\n")), ("plain", format!("{PLAIN}\n"))]
    {
        std::fs::write(home.join(name), text).unwrap();
    }
    for (file, secret) in [("base64", SECRET), ("plain", PLAIN)] {
        let words = ["credentials", "create", "--bearer-token-file", "token", "--signing-secret-file", file, "--json"];
        let printed = api.sandbox.run_at(&api.node, &words, "").await.ok();
        assert!(!printed.contains(secret) && !printed.contains(TOKEN), "{printed}");
        let set: serde_json::Value = serde_json::from_str(&printed).unwrap();
        let made = api.post(&api.job(&rail, "{}", &json!({ "credentialsId": set["id"] }))).await.expect_status(201);
        api.ended(&made).await;
        let last = rail.receipts().pop().unwrap();
        assert_eq!(last.headers_named("Authorization"), [format!("Bearer {TOKEN}")]);
        assert_eq!(verify::signature_failures(std::slice::from_ref(&last), secret), verify::NONE, "{file}");
        let both = file == "base64";
        assert_eq!(last.header("webhook-signature").is_some(), both, "{file}");
        assert_eq!(set["notes"].is_null(), both, "{set}");
    }
}
