use jiff::Timestamp;
use railyard_core::backoff::RetryStrategy;
use railyard_core::job::NewJob;
use railyard_core::settlement::EndStatus;
use railyard_core::{Mode, OutboxId, ParticipantId, SequenceId};
use uuid::Uuid;

use super::*;
use crate::StoreError;
use crate::testing::TestStore;

#[tokio::test]
async fn s3_01_a_job_is_stored_as_it_was_given() {
    let t = TestStore::new().await;
    let mut job = t.job(Some("grüppe/1"));
    job.payload = bytes::Bytes::from_static(b"\x00\xff {\"bb\": 1, \"a\":1.10,  \"a\":2}");
    job.external_id = Some("e".repeat(32));
    job.mode = Mode::BlockOnError;
    job.pool = Some("p".to_owned());
    job.max_attempts = 7;
    job.retry = RetryStrategy::Fixed;
    job.timeout_s = 9;
    job.headers = vec![("X-B".to_owned(), "2".to_owned()), ("X-A".to_owned(), "\u{e9}".to_owned())];
    job.metadata = [("tenant".to_owned(), "acme".to_owned())].into();
    job.expires_at = Some("2999-01-01T00:00:00Z".parse().unwrap());
    job.idempotency_key = Some("k".to_owned());
    let made = t.create(&job).await;
    assert_eq!(made.taken, Taken::Created);
    assert_eq!(made.sequence_id, Some(SequenceId(1)));

    let row = get(&t.store, made.outbox_id).await.unwrap().unwrap();
    assert_eq!(row.payload, job.payload);
    assert_eq!(row.group, Some(ParticipantId::new("grüppe/1")));
    assert_eq!((row.mode, row.max_attempts, row.retry, row.timeout_ms), (job.mode, 7, RetryStrategy::Fixed, 9000));
    assert_eq!(row.headers["X-A"], "\u{e9}");
    assert_eq!(row.metadata, job.metadata);
    assert_eq!((row.external_id, row.pool), (job.external_id, job.pool));
    assert_eq!((row.expires_at, row.idempotency_key), (job.expires_at, job.idempotency_key));
    assert_eq!((row.status, row.attempt_count, row.sequence_id), (JobStatus::Pending, 0, Some(SequenceId(1))));
    assert_eq!(row.created_at, made.created_at, "the id tells the time of its row");
}

#[tokio::test]
async fn s3_04_a_key_stands_for_one_content() {
    let t = TestStore::new().await;
    let mut job = t.job(Some("g"));
    job.idempotency_key = Some("once".to_owned());
    let first = t.create(&job).await;
    let again = t.create(&job).await;
    assert_eq!((again.outbox_id, again.taken), (first.outbox_id, Taken::Repeated));
    let mut other = job.clone();
    other.payload = bytes::Bytes::from_static(b"{\"a\":1}");
    let conflict = t.create(&other).await;
    assert_eq!((conflict.outbox_id, conflict.taken), (first.outbox_id, Taken::Conflict));
    let mut elsewhere = other.clone();
    elsewhere.source = "warehouse".to_owned();
    assert_eq!(t.create(&elsewhere).await.taken, Taken::Created, "keys are unique within a source");
    assert_eq!(
        t.one::<i64>("SELECT next_sequence_id FROM participant_outbox_sequences").await,
        3,
        "no number is burnt"
    );
}

#[tokio::test]
async fn a_batch_keeps_its_order_and_is_all_or_nothing() {
    let t = TestStore::new().await;
    let mut batch = vec![t.job(Some("b")), t.job(Some("a")), t.job(None), t.job(Some("b"))];
    let made = create(&t.store, &batch).await.unwrap();
    let sequences: Vec<Option<i64>> = made.iter().map(|one| one.sequence_id.map(|id| id.0)).collect();
    assert_eq!(sequences, [Some(1), Some(1), None, Some(2)]);
    let mut created: Vec<Timestamp> = made.iter().map(|one| one.created_at).collect();
    created.dedup();
    assert_eq!(created.len(), 1);

    batch[2].credentials_id = Some(railyard_core::CredentialsId(Uuid::nil()));
    let refused = create(&t.store, &batch).await.unwrap_err();
    let StoreError::Invalid { field, ordinal, .. } = refused else { panic!("{refused}") };
    assert_eq!((field.as_str(), ordinal), ("credentials_id", 3));
    assert_eq!(t.one::<i64>("SELECT count(*) FROM dispatch_job").await, 4);
    assert_eq!(create(&t.store, &[]).await.unwrap(), []);
}

/// Lists are paged by id and promise (created_at, id): the two are one order, also where calls meet in a millisecond.
#[tokio::test]
async fn s3_08_the_order_of_ids_is_that_of_created_at() {
    let t = TestStore::new().await;
    let batch: Vec<_> = (0..50).map(|_| t.job(None)).collect();
    let (one, other) = (create(&t.store, &batch), create(&t.store, &batch));
    let (one, other) = futures_util::future::join(one, other).await;
    let (one, other) = (one.unwrap(), other.unwrap());
    assert!(one.windows(2).all(|pair| pair[0].outbox_id < pair[1].outbox_id), "in the order given");
    assert!(one.iter().all(|made| made.created_at == one[0].created_at), "one moment for all of a call");
    let mut by_id: Vec<_> = one.iter().chain(&other).map(|made| (made.outbox_id, made.created_at)).collect();
    by_id.sort_unstable();
    assert!(by_id.is_sorted_by_key(|(_, created_at)| *created_at));
    let sql = "SELECT coalesce(bool_and(created_at = date_trunc('milliseconds', created_at)
                 AND outbox_id >= uuid7_floor(created_at)
                 AND outbox_id < uuid7_floor(created_at + interval '1 ms')), false) FROM dispatch_job";
    assert!(t.one::<bool>(sql).await);
}

#[tokio::test]
async fn a_second_user_of_a_key_waits_a_moment_and_is_then_told_to_come_again() {
    let t = TestStore::new().await;
    let mut job = t.job(Some("g"));
    job.idempotency_key = Some("slow".to_owned());
    t.sql.batch_execute("BEGIN").await.unwrap();
    let hold = "INSERT INTO idempotency_key (kind, scope, key, outbox_id, content_hash) \
                VALUES ('source', 'shop', 'slow', gen_random_uuid(), '')";
    t.sql.execute(hold, &[]).await.unwrap();
    let refused = create(&t.store, std::slice::from_ref(&job)).await.unwrap_err();
    assert!(matches!(refused, StoreError::Busy { .. }), "{refused}");
    t.sql.batch_execute("ROLLBACK").await.unwrap();
    assert_eq!(t.create(&job).await.taken, Taken::Created);
}

#[tokio::test]
async fn s3_21_the_status_follows_from_where_the_message_stands() {
    let t = TestStore::new().await;
    let id = t.create(&t.job(Some("g"))).await.outbox_id;
    let status = async || get(&t.store, id).await.unwrap().unwrap();
    t.begin(id).await;
    let out = status().await;
    assert_eq!((out.status, out.attempt_count), (JobStatus::InProgress, 1));
    assert!(out.last_attempt_at.is_some());
    t.put_back(id, "DEFERRED", 0).await;
    let deferred = status().await;
    assert_eq!((deferred.status, deferred.attempt_count), (JobStatus::Pending, 1), "a deferral is no failure");
    t.begin(id).await;
    t.put_back(id, "RETRYABLE", 1).await;
    let failed = status().await;
    assert_eq!((failed.status, failed.last_error.as_deref()), (JobStatus::Failed, Some("HTTP_503: down")));
    assert!(failed.next_attempt_at.is_some() && failed.completed_at.is_none());
    t.begin(id).await;
    t.finish(id, "ERROR", false).await;
    let ended = status().await;
    assert_eq!((ended.status, ended.attempt_count), (JobStatus::Ended(EndStatus::Error), 3));
    assert_eq!((ended.last_error.as_deref(), ended.duration_millis), (Some("boom"), Some(7)));
    assert!(ended.completed_at.is_some() && ended.next_attempt_at.is_none());
}

#[tokio::test]
async fn s3_09_attempts_come_in_order_with_the_open_one_last() {
    let t = TestStore::new().await;
    let id = t.create(&t.job(None)).await.outbox_id;
    assert!(attempts(&t.store, id, 0).await.unwrap().is_empty());
    t.begin(id).await;
    t.put_back(id, "RETRYABLE", 1).await;
    t.begin(id).await;
    let rows = attempts(&t.store, id, 0).await.unwrap();
    let states: Vec<(u32, &str)> = rows.iter().map(|row| (row.attempt_no, row.state.as_str())).collect();
    assert_eq!(states, [(1, "RETRYABLE"), (2, "DISPATCHING")]);
    assert_eq!(rows[0].response_body.as_deref(), Some(&b"no\xff"[..]));
    assert_eq!(attempts(&t.store, id, 1).await.unwrap().len(), 1);
}

#[tokio::test]
async fn scheduled_unordered_and_unknown_jobs() {
    let t = TestStore::new().await;
    let mut later = t.job(Some("g"));
    later.scheduled_for = Some(Timestamp::from_second(4_000_000_000).unwrap());
    later.expires_at = None;
    let refused = create(&t.store, std::slice::from_ref(&later)).await.unwrap_err();
    assert!(matches!(refused, StoreError::Invalid { ref field, .. } if field == "scheduled_for"), "{refused}");
    let soon: Timestamp = t.one("SELECT clock_timestamp() + interval '1 hour'").await;
    later.scheduled_for = Some(soon);
    let made = t.create(&later).await;
    assert_eq!(made.sequence_id, None, "a number is taken when the job comes due");
    let row = get(&t.store, made.outbox_id).await.unwrap().unwrap();
    assert_eq!((row.status, row.scheduled_for), (JobStatus::Pending, Some(soon)));

    let mut immediate = t.job(Some("g"));
    immediate.mode = Mode::Immediate;
    let made = t.create(&immediate).await;
    assert_eq!(made.sequence_id, None);
    let row = get(&t.store, made.outbox_id).await.unwrap().unwrap();
    assert_eq!(row.group, Some(ParticipantId::new("g")), "the group stays on the job for search");
    assert_eq!(get(&t.store, OutboxId(Uuid::nil())).await.unwrap(), None);
}

#[tokio::test]
async fn a_job_is_read_from_its_day_alone() {
    let t = TestStore::new().await;
    let id = t.create(&t.job(Some("g"))).await.outbox_id;
    t.sql.batch_execute("SET plan_cache_mode = force_generic_plan").await.unwrap();
    t.sql.batch_execute(&format!("PREPARE g (uuid[], boolean) AS {}", read::READ)).await.unwrap();
    let explain =
        format!("EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) EXECUTE g (ARRAY['{id}']::uuid[], true)");
    let plan: Vec<String> = t.sql.query(&explain, &[]).await.unwrap().iter().map(|row| row.get(0)).collect();
    let plan = plan.join("\n");
    assert!(!plan.contains("Seq Scan on dispatch_job"), "{plan}");
    for table in ["dispatch_job_p", "dispatch_job_outcome_p", "payment_outbox_attempt_archive_p"] {
        let opened = plan.lines().filter(|line| line.contains(table) && !line.contains("never executed")).count();
        assert!(opened <= 1, "{table} was opened {opened} times:\n{plan}");
    }
}

#[tokio::test]
async fn a_wake_up_is_heard() {
    let t = TestStore::new().await;
    let mut listening = t.store.listen().await.unwrap();
    t.create(&t.job(Some("g"))).await;
    notify(&t.store).await.unwrap();
    let heard = tokio::time::timeout(std::time::Duration::from_secs(10), listening.next()).await.unwrap().unwrap();
    assert_eq!(heard, crate::listen::Heard::Work);
}

/// The key of caps and breakers is the same whether core or SQL makes it, and one receiver has one.
#[tokio::test]
async fn s3_41_an_endpoint_has_one_name() {
    let t = TestStore::new().await;
    for target in [
        "http://example.com",
        "HTTP://Example.com:80/x",
        "https://example.com./?a=b:1",
        "https://EXAMPLE.com:8443/x?y#z",
        "http://127.0.0.1:9/a:80",
        "http://[2001:db8::1]/",
        "http://[2001:db8::1]:81/x",
    ] {
        let sql: String = t.sql.query_one("SELECT endpoint_of($1)", &[&target]).await.unwrap().get(0);
        assert_eq!(sql, railyard_core::job::endpoint_of(target).unwrap(), "{target}");
    }
}

/// As many statements for nine hundred jobs as for three: counted by triggers that fire once a statement.
#[tokio::test]
async fn s3_39_a_batch_costs_a_constant_number_of_statements() {
    let t = TestStore::new().await;
    t.sql
        .batch_execute(
            "CREATE TABLE counted (n int);
             GRANT INSERT ON counted TO PUBLIC;
             CREATE FUNCTION count_statement() RETURNS trigger LANGUAGE plpgsql AS
               $$ BEGIN INSERT INTO public.counted VALUES (1); RETURN NULL; END $$;
             DO $$ DECLARE v text; BEGIN
               FOREACH v IN ARRAY ARRAY['idempotency_key', 'dispatch_job', 'dispatch_job_metadata', 'scheduled_job',
                 'participant_outbox_sequences', 'payment_outbox_pending', 'ready_group'] LOOP
                 EXECUTE format('CREATE TRIGGER counting AFTER INSERT ON %I FOR EACH STATEMENT EXECUTE FUNCTION count_statement()', v);
               END LOOP;
             END $$",
        )
        .await
        .unwrap();
    let soon: Timestamp = t.one("SELECT clock_timestamp() + interval '1 hour'").await;
    let mut counts = Vec::new();
    for size in [3, 900] {
        let batch: Vec<_> = (0..size)
            .map(|n| {
                let mut job = t.job(Some(&format!("g{}", n % 50)));
                job.idempotency_key = Some(format!("{size}-{n}"));
                job.metadata = [("n".to_owned(), n.to_string())].into();
                job.scheduled_for = (n % 3 == 2).then_some(soon);
                job
            })
            .collect();
        create(&t.store, &batch).await.unwrap();
        counts.push(t.one::<i64>("SELECT count(*) FROM counted").await);
        t.sql.batch_execute("TRUNCATE counted").await.unwrap();
    }
    assert_eq!(counts, [7, 7], "one for each table");
    assert_eq!(t.one::<i64>("SELECT count(*) FROM dispatch_job").await, 903);
}

/// The way for one and the way for many store the same rows and refuse with the same words.
#[tokio::test]
async fn one_and_many_are_the_same_way_in() {
    let t = TestStore::new().await;
    let mut full = t.job(Some("g"));
    full.metadata = [("a".to_owned(), "b".to_owned())].into();
    full.headers = vec![("X-A".to_owned(), "b".to_owned())];
    full.idempotency_key = Some("k1".to_owned());
    let (mut alone, mut immediate) = (t.job(None), t.job(Some("g")));
    alone.external_id = Some("e".to_owned());
    immediate.mode = Mode::Immediate;
    let kinds = [full, alone, immediate];
    for job in &kinds {
        t.create(job).await;
    }
    let mut again = kinds.to_vec();
    again[0].idempotency_key = Some("k2".to_owned());
    create(&t.store, &again).await.unwrap();
    let differ = "
        SELECT count(*) FROM (
          SELECT row_number() OVER (ORDER BY j.outbox_id) % 3 AS kind, to_jsonb(j) - '{outbox_id,rail_key,created_at,idempotency_key}'::text[] AS job,
            to_jsonb(p) - '{outbox_id,sequence_id,partition_id,created_at,next_attempt_at}'::text[] AS pending,
            encode(k.content_hash, 'hex') AS hash, (SELECT count(*) FROM dispatch_job_metadata WHERE dispatch_job_id = j.outbox_id) AS metadata
          FROM dispatch_job j JOIN payment_outbox_pending p USING (outbox_id) LEFT JOIN idempotency_key k USING (outbox_id)
        ) s GROUP BY kind, job, pending, hash, metadata HAVING count(*) = 2";
    assert_eq!(t.sql.query(differ, &[]).await.unwrap().len(), 3, "each kind twice, the same both times");
    // The first's own time comes back with its repeat, on both ways.
    let first = t.create(&kinds[0]).await;
    let of_row: Timestamp = t.one("SELECT created_at FROM dispatch_job WHERE idempotency_key = 'k1'").await;
    assert_eq!((first.taken, first.created_at), (Taken::Repeated, of_row));
    let pair = create(&t.store, &kinds[..2]).await.unwrap();
    assert_eq!((pair[0].taken, pair[0].created_at, pair[1].taken), (Taken::Repeated, of_row, Taken::Created));
    type Change = fn(&mut NewJob);
    let changes: [(&str, Change); 6] = [
        ("source", |job| job.source = "x".repeat(256)),
        ("target_url", |job| job.target_url = "ftp://x".to_owned()),
        ("headers", |job| job.headers = vec![("host".to_owned(), "x".to_owned())]),
        ("metadata", |job| job.metadata = [("k".repeat(256), String::new())].into()),
        ("rail_type", |job| job.rail_type = "pigeon".to_owned()),
        ("participant_id", |job| job.group = Some(ParticipantId::new("a\r\nb"))),
    ];
    for (field, change) in changes {
        let mut bad = t.job(Some("g"));
        change(&mut bad);
        let one = create(&t.store, std::slice::from_ref(&bad)).await.unwrap_err();
        let many = create(&t.store, &[t.job(None), bad.clone()]).await.unwrap_err();
        let (
            StoreError::Invalid { field: a, detail: said, .. },
            StoreError::Invalid { field: b, detail: also, ordinal },
        ) = (one, many)
        else {
            panic!("{field} is refused as bad input")
        };
        assert_eq!((a.as_str(), b.as_str(), ordinal, said), (field, field, 2, also));
        let each = create_each(&t.store, &[bad, t.job(None)]).await.unwrap();
        assert!(matches!(&each[0], Placed::Refused { field: named, .. } if named == field), "{each:?}");
        assert!(matches!(&each[1], Placed::Taken(made) if made.taken == Taken::Created), "{each:?}");
    }
}
