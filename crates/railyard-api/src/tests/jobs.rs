use axum::body::Body;
use axum::http::StatusCode;
use serde_json::{Value, json};

use super::kit::{ADMIN, Api, asking};
use crate::{ApiOptions, Auth, Role};

const JOBS: &str = "/api/dispatch/jobs";

#[tokio::test]
async fn s3_01_the_whole_body_is_taken_and_given_back() {
    let api = Api::new().await;
    let body = api.job_with(json!({
        "groupId": "order-12345",
        "externalId": "ext-1",
        "metadata": {"tenantId": "acme-corp", "priority": "high"},
        "protocol": "HTTP_WEBHOOK",
        "headers": {"X-Custom-Header": "value"},
        "payloadContentType": "application/json",
        "maxRetries": 4,
        "retryStrategy": "fixed",
        "timeoutSeconds": 7,
        "mode": "BLOCK_ON_ERROR",
        "scheduledFor": "2025-10-04T15:00:00Z",
        "expiresAt": "2999-01-01T02:00:00+02:00",
        "idempotencyKey": "key-1",
        "queueUrl": "http://localhost:9324/000000000000/flow-catalyst-dispatch.fifo",
    }));
    let made = api.post(JOBS, &body).await;
    assert_eq!(made.status, StatusCode::CREATED, "{}", made.text());
    let job = made.json();
    assert_eq!((&job["status"], &job["attemptCount"], &job["sequence"]), (&json!("PENDING"), &json!(0), &json!(1)));
    let id = job["id"].as_str().unwrap();
    assert_eq!(made.headers["location"], format!("{JOBS}/{id}"));

    let read = api.get(&format!("{JOBS}/{id}")).await.json();
    for (field, value) in body.as_object().unwrap() {
        match field.as_str() {
            "queueUrl" => assert!(read.get(field).is_none()),
            "scheduledFor" => assert_eq!(read[field], "2025-10-04T15:00:00.000Z"),
            "expiresAt" => assert_eq!(read[field], "2999-01-01T00:00:00.000Z"),
            _ => assert_eq!(&read[field], value, "{field}"),
        }
    }
    assert_eq!((&read["createdAt"], &read["status"]), (&job["createdAt"], &job["status"]));
    assert_eq!(api.get(&format!("/api/dispatch-jobs/{id}")).await.json(), read);
    assert_eq!(api.get(&format!("{JOBS}/{id}/attempts")).await.json(), json!([]));
    assert_eq!(api.node.wakes.load(std::sync::atomic::Ordering::SeqCst), 1);
}

#[tokio::test]
async fn s3_02_every_wrong_field_is_named_at_once() {
    let api = Api::new().await;
    let missing = api.post(JOBS, &json!({})).await.fields();
    assert_eq!(missing, ["source", "type", "targetUrl", "payload", "credentialsId"]);
    let wrong = json!({
        "source": 1, "type": " ", "targetUrl": "ftp://x", "payload": {"a": 1}, "credentialsId": "no",
        "maxRetries": 0, "timeoutSeconds": 1.5, "retryStrategy": "often", "mode": "immediate",
        "protocol": "GRPC", "externalId": "e".repeat(33), "scheduledFor": "tomorrow", "metadata": {"a": 1},
        "headers": {"Authorization": "mine"}, "groupId": "a\u{0}b", "shoeSize": 43,
    });
    let mut fields = api.post(JOBS, &wrong).await.fields();
    fields.sort();
    let mut all: Vec<&String> = wrong.as_object().unwrap().keys().collect();
    all.sort();
    assert_eq!(fields.iter().collect::<Vec<_>>(), all);
    let unknown = api.job_with(json!({"credentialsId": "00000000-0000-7000-8000-000000000000"}));
    assert_eq!(api.post(JOBS, &unknown).await.fields(), ["credentialsId"]);
    let rail = api.job_with(json!({"railType": "pigeon"}));
    assert_eq!(api.post(JOBS, &rail).await.fields(), ["railType"]);
    let late = api.job_with(json!({"expiresAt": "2020-01-01T00:00:00Z"}));
    assert_eq!(api.post(JOBS, &late).await.fields(), ["expiresAt"]);
}

/// What the database bounds in characters, the API does too, whatever bytes they take; and a group of the longest name is
/// an operator's to decide about.
#[tokio::test]
async fn names_and_keys_are_as_long_as_the_database_takes_them() {
    let api = Api::new().await;
    let body = |chars: usize| {
        let text = "\u{20ac}".repeat(chars);
        api.job_with(json!({"groupId": text, "idempotencyKey": text, "instructionId": text}))
    };
    let made = api.post(JOBS, &body(255)).await;
    assert_eq!(made.status, StatusCode::CREATED, "{}", made.text());
    let longest = "%E2%82%AC".repeat(255);
    assert_eq!(api.get(&format!("/admin/groups/{longest}")).await.status, StatusCode::OK);
    assert_eq!(api.post(JOBS, &body(256)).await.fields(), ["groupId", "idempotencyKey", "instructionId"]);
}

#[tokio::test]
async fn s3_16_a_job_cannot_set_what_we_sign_with() {
    let api = Api::new().await;
    for name in [
        "authorization",
        "X-FlowCatalyst-Signature",
        "x-flowcatalyst-timestamp",
        "WEBHOOK-ID",
        "Host",
        "Transfer-Encoding",
        "Content-Length",
        "Idempotency-Key",
        "X-Railyard-Sequence",
    ] {
        let body = api.job_with(json!({"headers": {name: "x"}}));
        assert_eq!(api.post(JOBS, &body).await.fields(), ["headers"], "{name}");
    }
    for value in ["a\r\nAuthorization: mine", "a\u{0}"] {
        let body = api.job_with(json!({"headers": {"X-A": value}}));
        assert_eq!(api.post(JOBS, &body).await.fields(), ["headers"]);
    }
}

#[tokio::test]
async fn s3_47_targets_other_than_http_are_refused() {
    let api = Api::new().await;
    for target in ["file:///etc/passwd", "javascript:alert(1)", "https://user:pass@x/", "http://", "x"] {
        let body = api.job_with(json!({"targetUrl": target}));
        assert_eq!(api.post(JOBS, &body).await.fields(), ["targetUrl"], "{target}");
    }
}

#[tokio::test]
async fn s3_04_a_key_stands_for_one_content() {
    let api = Api::new().await;
    let body = api.job_with(json!({"idempotencyKey": "k", "groupId": "g"}));
    let first = api.post(JOBS, &body).await;
    assert_eq!(first.status, StatusCode::CREATED);
    let again = api.post(JOBS, &body).await;
    assert_eq!(again.status, StatusCode::OK);
    assert_eq!(again.json()["id"], first.json()["id"]);
    assert_eq!(again.json()["createdAt"], first.json()["createdAt"]);
    let other = api.job_with(json!({"idempotencyKey": "k", "groupId": "g", "payload": "{}"}));
    let refused = api.post(JOBS, &other).await;
    assert_eq!(refused.status, StatusCode::CONFLICT);
    assert_eq!(refused.json()["firstId"], first.json()["id"]);
    assert_eq!(refused.json()["type"], "urn:railyard:problem:idempotency-key-reused");
    let shown = api.get(&format!("{JOBS}/{}", first.json()["id"].as_str().unwrap())).await.json();
    let mut whole = again.json();
    whole["payload"] = shown["payload"].clone();
    assert_eq!(whole, shown, "the first job as it stands");
    let counted = api.get("/metrics").await.text();
    for line in ["created\"} 1", "repeated\"} 1", "conflict\"} 1"] {
        assert!(counted.contains(&format!("railyard_api_jobs_total{{result=\"{line}")), "{line}: {counted}");
    }
    // The job's day is dropped before its key is.
    api.sql.batch_execute("TRUNCATE dispatch_job, dispatch_job_outcome").await.unwrap();
    let past = api.post(JOBS, &body).await;
    assert_eq!((past.status, past.json()), (StatusCode::OK, json!({"id": first.json()["id"]})));
}

/// What is wrong is told by the name that the caller sent it under.
#[tokio::test]
async fn s4_09_an_id_is_told_as_an_id() {
    let api = Api::new().await;
    for bad in ["i".repeat(33), "a\u{0}".to_owned(), " ".to_owned()] {
        assert_eq!(api.post(JOBS, &api.job_with(json!({ "id": bad }))).await.fields(), ["id"], "{bad:?}");
    }
    let other = json!({ "id": "i", "externalId": "e".repeat(33), "idempotencyKey": " " });
    assert_eq!(api.post(JOBS, &api.job_with(other)).await.fields(), ["externalId", "idempotencyKey"]);
    let counted = api.get("/metrics").await.text();
    assert!(counted.contains("railyard_api_jobs_total{result=\"refused\"} 4"), "{counted}");
    assert_eq!(api.post(JOBS, &api.job_with(json!({ "id": "i" }))).await.status, StatusCode::CREATED);
    let refused = api.post(JOBS, &api.job_with(json!({ "id": "i", "payload": "other" }))).await;
    assert_eq!(refused.status, StatusCode::CONFLICT);
    assert!(refused.json()["detail"].as_str().unwrap().starts_with("id was used"), "{}", refused.text());
    let many =
        api.post(&format!("{JOBS}/batch"), &json!([api.job_with(json!({ "id": "i", "payload": "other" }))])).await;
    assert_eq!(many.json()["results"][0]["errors"][0]["field"], "id", "{}", many.text());
}

/// What a job is called when it is made, it is called when it is read.
#[tokio::test]
async fn a_fresh_job_is_shown_as_it_is_read() {
    let api = Api::new().await;
    let soon = "SELECT to_char((now() + interval '1 day') AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"')";
    let soon: String = api.sql.query_one(soon, &[]).await.unwrap().get(0);
    for more in [json!({}), json!({ "groupId": "g" }), json!({ "groupId": "g", "scheduledFor": soon })] {
        let made = api.post(JOBS, &api.job_with(more)).await.json();
        let mut read = api.get(&format!("{JOBS}/{}", made["id"].as_str().unwrap())).await.json();
        read.as_object_mut().unwrap().remove("payload");
        assert_eq!(made, read);
    }
}

#[tokio::test]
async fn fifty_posts_with_one_key_make_one_job() {
    let api = Api::new().await;
    let body = api.job_with(json!({"idempotencyKey": "k", "groupId": "g"})).to_string();
    let mut posts = tokio::task::JoinSet::new();
    for _ in 0..50 {
        let (router, body) = (api.router.clone(), body.clone());
        posts.spawn(async move {
            let request = asking("POST", JOBS, ADMIN).header("content-type", "application/json");
            super::kit::call(&router, request.body(Body::from(body)).unwrap()).await
        });
    }
    let answers = posts.join_all().await;
    let with = |status| answers.iter().filter(|answer| answer.status == status).count();
    assert_eq!(with(StatusCode::CREATED), 1);
    let good = [StatusCode::CREATED, StatusCode::OK, StatusCode::SERVICE_UNAVAILABLE];
    assert!(answers.iter().all(|answer| good.contains(&answer.status)));
    assert!(with(StatusCode::OK) > 0);
    let ids: std::collections::BTreeSet<String> = answers
        .iter()
        .filter(|answer| answer.status != StatusCode::SERVICE_UNAVAILABLE)
        .map(|answer| answer.json()["id"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(ids.len(), 1);
    let jobs: i64 = api.sql.query_one("SELECT count(*) FROM dispatch_job", &[]).await.unwrap().get(0);
    assert_eq!(jobs, 1);
}

#[tokio::test]
async fn a_key_whose_first_user_has_not_committed_is_503_with_retry_after() {
    let api = Api::new().await;
    let hold = "BEGIN; INSERT INTO idempotency_key (kind, scope, key, outbox_id, content_hash) \
                VALUES ('source', 'order-service', 'k', gen_random_uuid(), '')";
    api.sql.batch_execute(hold).await.unwrap();
    let busy = api.post(JOBS, &api.job_with(json!({"idempotencyKey": "k"}))).await;
    assert_eq!(busy.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(busy.headers["retry-after"], "1");
    api.sql.batch_execute("ROLLBACK").await.unwrap();
}

#[tokio::test]
async fn payloads_are_kept_byte_for_byte() {
    let api = Api::new().await;
    let tricky =
        "{\"bb\": 1, \"a\":1.10,  \"a\":2, \"e\":1e2, \"big\":12345678901234567890.000, \"u\":\"\\u00e9\\u001B\\/\"}";
    for payload in ["", " ", tricky, "\u{feff}{}", "nul \u{0} in it", "\u{1f600}\r\n", "not json"] {
        let made = api.post(JOBS, &api.job_with(json!({"payload": payload}))).await;
        assert_eq!(made.status, StatusCode::CREATED, "{payload:?}: {}", made.text());
        let id = made.json()["id"].as_str().unwrap().to_owned();
        let sql = "SELECT payload FROM dispatch_job WHERE outbox_id = $1::text::uuid";
        let stored: Vec<u8> = api.sql.query_one(sql, &[&id]).await.unwrap().get(0);
        assert_eq!(stored, payload.as_bytes());
        assert_eq!(api.get(&format!("{JOBS}/{id}")).await.json()["payload"], payload);
    }
}

#[tokio::test]
async fn bodies_that_are_no_jobs_get_400_with_their_place() {
    let api = Api::new().await;
    for (body, place) in [
        ("{\n  \"source\": }", "line 2, column 13"),
        ("[]", "line 1"),
        ("", "line 1"),
        ("{\"payload\": \"\\ud800\"}", ""),
        ("{} {}", "line 1"),
    ] {
        let refused = api.post_text(JOBS, body).await;
        assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{body}");
        assert!(refused.json()["detail"].as_str().unwrap().contains(place), "{}", refused.text());
    }
    let deep = format!("{{\"payload\": {}{}}}", "[".repeat(100_000), "]".repeat(100_000));
    assert!(api.post_text(JOBS, &deep).await.fields().contains(&"payload".to_owned()));
    let twice = "{\"source\": \"a\", \"source\": \"b\"}";
    assert!(api.post_text(JOBS, twice).await.fields().contains(&"source".to_owned()));
    let raw = asking("POST", JOBS, ADMIN).header("content-type", "application/json");
    let bad_utf8 = api.call(raw.body(Body::from(&b"{\"source\": \"\xff\"}"[..])).unwrap()).await;
    assert_eq!(bad_utf8.status, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn what_is_too_large_or_of_another_kind() {
    let auth = Auth::new(vec![super::kit::token(Role::Admin, ADMIN)]);
    let api = Api::with(auth, ApiOptions { payload_bytes_max: 1000, ..ApiOptions::default() }).await;
    let post = async |payload: String| api.post(JOBS, &api.job_with(json!({"payload": payload}))).await.status;
    assert_eq!(post("x".repeat(1000)).await, StatusCode::CREATED);
    assert_eq!(post("\u{1}".repeat(1000)).await, StatusCode::CREATED, "escapes count as the byte that they are");
    assert_eq!(post("x".repeat(1001)).await, StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(post("x".repeat(1_000_000)).await, StatusCode::PAYLOAD_TOO_LARGE);
    // So many chunks of a KiB, without a length in front.
    let chunks = (0..2000).map(|_| Ok::<_, std::io::Error>(vec![b' '; 1024]));
    let chunked = Body::from_stream(futures_util::stream::iter(chunks));
    let request = asking("POST", JOBS, ADMIN).header("content-type", "application/json").body(chunked).unwrap();
    assert_eq!(api.call(request).await.status, StatusCode::PAYLOAD_TOO_LARGE);
    for content_type in ["text/plain", "application/x-www-form-urlencoded", "application/json; charset=latin1"] {
        let request = asking("POST", JOBS, ADMIN).header("content-type", content_type);
        let refused = api.call(request.body(Body::from("{}")).unwrap()).await;
        assert_eq!(refused.status, StatusCode::UNSUPPORTED_MEDIA_TYPE);
        assert_eq!(refused.json()["status"], 415);
    }
    let zipped =
        asking("POST", JOBS, ADMIN).header("content-type", "application/json").header("content-encoding", "gzip");
    let refused = api.call(zipped.body(Body::from("{}")).unwrap()).await;
    assert_eq!(refused.status, StatusCode::UNSUPPORTED_MEDIA_TYPE);
    let put = api.call(asking("PUT", JOBS, ADMIN).body(Body::empty()).unwrap()).await;
    assert_eq!((put.status, &put.json()["status"]), (StatusCode::METHOD_NOT_ALLOWED, &json!(405)));
    assert_eq!(put.headers["allow"], "POST,GET,HEAD");
    let lost = api.get("/api/dispatch/job").await;
    assert_eq!((lost.status, &lost.json()["status"]), (StatusCode::NOT_FOUND, &json!(404)));
}

#[tokio::test]
async fn s3_07_unknown_jobs_are_404() {
    let api = Api::new().await;
    for id in ["x", "00000000-0000-7000-8000-000000000000"] {
        for path in [format!("{JOBS}/{id}"), format!("{JOBS}/{id}/attempts")] {
            let answer = api.get(&path).await;
            assert_eq!(answer.status, StatusCode::NOT_FOUND);
            assert_eq!(answer.headers["content-type"], "application/problem+json");
        }
    }
    assert_eq!(api.get(&format!("{JOBS}/x/attempts?before=1")).await.status, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn s3_09_attempts_speak_s3s_words() {
    let api = Api::new().await;
    let made = api.post(JOBS, &api.job()).await.json();
    let id = made["id"].as_str().unwrap();
    let rows = "
        INSERT INTO payment_outbox_attempt_archive (outbox_id, attempt_no, late, attempt_id, state, rail_type, epoch,
          node_id, claimed_at, completed_at, recorded_at, latency_ms, response_code, response_body, error_code,
          error_message)
        SELECT $1::text::uuid, n, late, gen_random_uuid(), state, 'webhook', 1, gen_random_uuid(),
          '2025-10-04T14:30:00Z', '2025-10-04T14:30:01Z', now(), 1234, 500, body, code, message
        FROM (VALUES (1, false, 'RETRYABLE', '\\x6f6b'::bytea, 'HTTP_500', 'said 500'),
                     (2, false, 'RETRYABLE', NULL, 'DISPATCH_TIMEOUT', 'slow'),
                     (3, false, 'ZOMBIE_REQUEUE', NULL, 'ZOMBIE_REQUEUE', 'unknown'),
                     (3, true, 'DISPATCHED', '\\xff00', NULL, NULL),
                     (4, false, 'DEFERRED', NULL, 'RATE_LIMITED', NULL),
                     (5, false, 'FAILED', NULL, 'RETRY_CEILING_EXCEEDED', 'DISPATCH_TIMEOUT: slow'))
          AS a(n, late, state, body, code, message)";
    api.sql.execute(rows, &[&id]).await.unwrap();
    let attempts = api.get(&format!("{JOBS}/{id}/attempts")).await.json();
    let words: Vec<&str> = attempts.as_array().unwrap().iter().map(|one| one["status"].as_str().unwrap()).collect();
    assert_eq!(words, ["FAILURE", "TIMEOUT", "UNKNOWN", "SUCCESS", "DEFERRED", "TIMEOUT"]);
    let first = &attempts[0];
    assert_eq!((&first["attemptNumber"], &first["responseCode"]), (&json!(1), &json!(500)));
    assert_eq!((&first["durationMillis"], &first["errorMessage"]), (&json!(1234), &json!("said 500")));
    assert_eq!(first["attemptedAt"], "2025-10-04T14:30:00.000Z");
    assert_eq!(first["completedAt"], "2025-10-04T14:30:01.000Z");
    assert_eq!((&first["responseBody"], &first["late"]), (&json!("ok"), &Value::Null));
    assert_eq!((&attempts[3]["late"], &attempts[3]["responseBodyBase64"]), (&json!(true), &json!("/wA=")));
    assert_eq!(api.get(&format!("{JOBS}/{id}/attempts?after=3")).await.json().as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn payment_rails_take_objects_alone_and_have_their_own_defaults() {
    let api = Api::new().await;
    let payment = |more: Value| {
        let mut job = api.job_with(json!({"railType": "payment_webhook", "groupId": "debtor-1"}));
        job.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        job
    };
    let made = api.post(JOBS, &payment(json!({}))).await.json();
    assert_eq!((&made["mode"], &made["maxRetries"]), (&json!("BLOCK_ON_ERROR"), &json!(20)));
    assert_eq!(api.post(JOBS, &payment(json!({"payload": "[]"}))).await.fields(), ["payload"]);
    assert_eq!(api.post(JOBS, &payment(json!({"groupId": null}))).await.fields(), ["groupId"]);
    let alias = json!({"credentialsId": null, "serviceAccountId": api.credentials});
    assert_eq!(api.post(JOBS, &payment(alias)).await.status, StatusCode::CREATED);
    let both = json!({"serviceAccountId": "00000000-0000-7000-8000-000000000000"});
    assert_eq!(api.post(JOBS, &payment(both)).await.fields(), ["serviceAccountId"]);
}

#[tokio::test]
async fn s3_03_one_protocol_is_known() {
    let api = Api::new().await;
    for bad in ["SMTP", "http_webhook", "HTTP_WEBHOOK ", ""] {
        assert_eq!(api.post(JOBS, &api.job_with(json!({"protocol": bad}))).await.fields(), ["protocol"], "{bad:?}");
    }
    let made = api.post(JOBS, &api.job_with(json!({"protocol": "HTTP_WEBHOOK"}))).await;
    assert_eq!((made.status, &made.json()["protocol"]), (StatusCode::CREATED, &json!("HTTP_WEBHOOK")));
}
