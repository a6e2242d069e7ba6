//! Keys and batches under fire: one key is one job, whoever sends it how often and whatever dies meanwhile (S3-04, S3-39).

use std::collections::{BTreeMap, BTreeSet};

use railyard_testkit::{Answer, FakeRail, eventually};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::api::{Api, JOBS};
use crate::world::SOON;

const BATCH: &str = "/api/dispatch/jobs/batch";

/// The same request from so many clients at once, each with its own body.
async fn at_once(api: &Api, path: &'static str, bodies: Vec<Value>) -> Vec<Answer> {
    let mut posts = JoinSet::new();
    for body in bodies {
        let http = api.http();
        posts.spawn(async move { http.post(path, &body).await.unwrap() });
    }
    posts.join_all().await
}

async fn one(api: &Api, sql: &str) -> i64 {
    api.db.connect().await.query_one(sql, &[]).await.unwrap().get(0)
}

/// Fifty posts at once under one key, twenty rounds: in half of them all carry the same content, in the others each its
/// own. There is one job a key, and no answer but 201, 200, 409, or 503 with Retry-After; after delivery and after a
/// restart of the node as well.
#[tokio::test(flavor = "multi_thread")]
async fn s3_04_one_key_is_one_job_under_fire() {
    let api = Api::new().await;
    let rail = FakeRail::start().await;
    let body = |round: usize, n: usize| {
        let payload = if round.is_multiple_of(2) { "same".to_owned() } else { format!("own {n}") };
        api.job(&rail, &payload, &json!({ "idempotencyKey": format!("round-{round}"), "groupId": "g" }))
    };
    let mut winners: BTreeMap<usize, (Value, Value)> = BTreeMap::new();
    for round in 0..20 {
        let bodies: Vec<Value> = (0..50).map(|n| body(round, n)).collect();
        let answers = at_once(&api, JOBS, bodies.clone()).await;
        let mut created = Vec::new();
        for (answer, body) in answers.iter().zip(&bodies) {
            match answer.status {
                201 => created.push((answer.json()["id"].clone(), answer.json()["createdAt"].clone(), body.clone())),
                200 => assert_eq!(round % 2, 0, "other content is no repeat: {}", answer.text()),
                409 => assert_eq!(round % 2, 1, "the same content is no conflict: {}", answer.text()),
                503 => assert!(answer.header("retry-after").is_some(), "{}", answer.text()),
                status => panic!("{status}: {}", answer.text()),
            }
        }
        let [(id, created_at, _)] = &created[..] else { panic!("{} were made in round {round}", created.len()) };
        winners.insert(round, (id.clone(), created_at.clone()));
        let named = answers.iter().filter(|answer| matches!(answer.status, 200 | 409));
        let ids: BTreeSet<String> = named
            .map(|answer| answer.json()[if answer.status == 200 { "id" } else { "firstId" }].to_string())
            .collect();
        let id = id.to_string();
        assert!(ids.iter().all(|named| *named == id), "{ids:?}");
    }
    let completed = "SELECT count(*) FROM dispatch_job_outcome WHERE status = 'COMPLETED'";
    eventually(SOON, "all are delivered", || async { one(&api, completed).await == 20 }).await;
    for restart in [false, true] {
        if restart {
            api.node.restart().await;
        }
        for (round, (id, created_at)) in &winners {
            let mut other = body(1, 1000 + round);
            other["idempotencyKey"] = json!(format!("round-{round}"));
            let refused = api.post(&other).await.expect_status(409);
            assert_eq!(&refused.json()["firstId"], id);
            if round.is_multiple_of(2) {
                let again = api.post(&body(*round, 0)).await.expect_status(200).json();
                assert_eq!((&again["id"], &again["createdAt"]), (id, created_at));
            }
        }
    }
    assert_eq!(one(&api, "SELECT count(*) FROM dispatch_job").await, 20);
    assert_eq!(rail.receipts().len(), 20, "each went out once");
    assert_eq!(one(&api, "SELECT next_sequence_id FROM participant_outbox_sequences").await, 21, "no number is burnt");
}

/// The same for batches: the keys of a batch are sent by eight clients at once, forwards and backwards, so that each
/// meets the others' keys and groups in the opposite order. Nobody deadlocks, nobody is answered anything but what became
/// of the item, and each key is one job.
#[tokio::test(flavor = "multi_thread")]
async fn s3_39_batches_in_opposite_orders_never_meet_in_a_circle() {
    let api = Api::new().await;
    let rail = FakeRail::start().await;
    for round in 0..10 {
        let items: Vec<Value> = (0..40)
            .map(|n| {
                let key = format!("{round}-{n}");
                api.job(&rail, "{}", &json!({ "idempotencyKey": key, "groupId": format!("g{}", n % 7) }))
            })
            .collect();
        let backwards: Vec<Value> = items.iter().rev().cloned().collect();
        let bodies = (0..8).map(|n| json!(if n % 2 == 0 { &items } else { &backwards })).collect();
        let mut made = 0;
        for answer in at_once(&api, BATCH, bodies).await {
            if answer.status == 503 {
                assert!(answer.header("retry-after").is_some());
                continue;
            }
            assert!(matches!(answer.status, 200 | 201), "{}", answer.text());
            for result in answer.json()["results"].as_array().unwrap() {
                match result["status"].as_str().unwrap() {
                    "SUCCESS" => made += 1,
                    "SKIPPED" | "RETRY" => {}
                    other => panic!("{other}: {result}"),
                }
            }
        }
        assert_eq!(made, 40, "each key is made once");
    }
    assert_eq!(one(&api, "SELECT count(*) FROM dispatch_job").await, 400);
    let gaps = "SELECT count(*) FROM participant_outbox_sequences s
                WHERE next_sequence_id - 1 <> (SELECT count(*) FROM dispatch_job j WHERE j.participant_id = s.participant_id)";
    assert_eq!(one(&api, gaps).await, 0);
    let deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()";
    assert_eq!(one(&api, deadlocks).await, 0);
}

/// A node is killed while a batch waits inside the database; the batch is sent again after a restart. Whether the first
/// went through or not, each key is one job.
#[tokio::test(flavor = "multi_thread")]
async fn s3_39_killed_in_the_middle_and_sent_again() {
    let api = Api::new().await;
    let rail = FakeRail::start().await;
    for round in 0..3 {
        let items: Vec<Value> = (0..20)
            .map(|n| {
                let key = format!("{round}-{n:02}");
                api.job(&rail, &key, &json!({ "idempotencyKey": key, "groupId": format!("g{}", n % 3) }))
            })
            .collect();
        // Another transaction holds one of the keys.
        let other = api.db.connect().await;
        let hold = "INSERT INTO idempotency_key (kind, scope, key, outbox_id, content_hash)
                    VALUES ('source', 'orders', $1, gen_random_uuid(), '')";
        other.batch_execute("BEGIN").await.unwrap();
        other.execute(hold, &[&format!("{round}-07")]).await.unwrap();
        let (http, body) = (api.http(), json!(items));
        let mut posting = JoinSet::new();
        posting.spawn(async move { http.post(BATCH, &body).await.is_ok() });
        let waits = "SELECT count(*) FROM pg_stat_activity
                     WHERE datname = current_database() AND wait_event_type = 'Lock'";
        eventually(SOON, "the batch waits for the key", || async { one(&api, waits).await > 0 }).await;
        api.node.kill9();
        other.batch_execute("ROLLBACK").await.unwrap();
        assert_eq!(posting.join_all().await, [false], "nobody answered");
        api.node.restart().await;
        let again = api.http().post(BATCH, &json!(items)).await.unwrap();
        for result in again.json()["results"].as_array().unwrap() {
            assert!(matches!(result["status"].as_str(), Some("SUCCESS" | "SKIPPED")), "{result}");
        }
    }
    let completed = "SELECT count(*) FROM dispatch_job_outcome WHERE status = 'COMPLETED'";
    eventually(SOON, "all are delivered", || async { one(&api, completed).await == 60 }).await;
    assert_eq!(rail.receipts().len(), 60);
    assert_eq!(one(&api, "SELECT count(*) FROM dispatch_job").await, 60);
}
