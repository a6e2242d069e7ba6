//! S2-01 to S2-05 and S2-31: how work is committed by producers who speak SQL.

use std::collections::BTreeSet;

use railyard_store::listen::Heard;
use railyard_testkit::{FakeRail, eventually};
use tokio::task::JoinSet;
use tokio_postgres::Client;
use uuid::Uuid;

use crate::producer::{Item, column, sqlstate};
use crate::world::{SOON, World};

/// Where nothing is ever sent to: no node runs.
const NOWHERE: &str = "http://127.0.0.1:9/";

async fn sequences(world: &World, group: &str) -> Vec<i64> {
    let sql = "SELECT sequence_id FROM payment_outbox_pending WHERE participant_id = $1 ORDER BY sequence_id";
    world.sql.query(sql, &[&group]).await.unwrap().iter().map(|row| row.get(0)).collect()
}

async fn committed(world: &World, group: &str, key: &str) -> i64 {
    let id = Item::payment(world, NOWHERE, group, key).by(&world.sql).await.unwrap();
    let sql = "SELECT sequence_id FROM payment_outbox_pending WHERE outbox_id = $1";
    world.sql.query_one(sql, &[&id]).await.unwrap().get(0)
}

/// Numbers start at 1 and go up by 1 in each group by itself, with fifty producers at once.
#[tokio::test]
async fn s2_01_sequences_start_at_one_and_have_no_gap() {
    let world = World::new().await;
    let mut producers = JoinSet::new();
    for n in 0..50 {
        let sql = world.db.connect().await;
        let items: Vec<Item> = (0..4)
            .map(|m| Item::payment(&world, NOWHERE, if (n + m) % 2 == 0 { "even" } else { "odd" }, &format!("{n}-{m}")))
            .collect();
        producers.spawn(async move {
            for item in items {
                item.by(&sql).await.unwrap();
            }
        });
    }
    producers.join_all().await;
    let expected: Vec<i64> = (1..=100).collect();
    assert_eq!(sequences(&world, "even").await, expected);
    assert_eq!(sequences(&world, "odd").await, expected);
}

/// Inside a group the numbers are in the order of the commits: a later number is never visible before an earlier one.
#[tokio::test]
async fn s2_01_numbers_become_visible_in_order() {
    let world = World::new().await;
    let mut first = world.db.connect().await;
    let first_open = first.transaction().await.unwrap();
    Item::payment(&world, NOWHERE, "g", "one").by(&first_open).await.unwrap();
    let second = world.db.connect().await;
    let pid: i32 = second.query_one("SELECT pg_backend_pid()", &[]).await.unwrap().get(0);
    let item = Item::payment(&world, NOWHERE, "g", "two");
    let mut waiting = JoinSet::new();
    waiting.spawn(async move { item.by(&second).await.unwrap() });
    eventually(SOON, "the second producer waits for the first", || async {
        let blocked = "SELECT cardinality(pg_blocking_pids($1)) > 0";
        world.sql.query_one(blocked, &[&pid]).await.unwrap().get(0)
    })
    .await;
    assert_eq!(sequences(&world, "g").await, [] as [i64; 0]);
    first_open.commit().await.unwrap();
    waiting.join_all().await;
    assert_eq!(sequences(&world, "g").await, [1, 2]);
}

/// Neither a rollback, nor a rollback to a savepoint, a repeat, a conflict or a refusal burns a number.
#[tokio::test]
async fn s2_02_what_is_not_committed_burns_no_number() {
    let world = World::new().await;
    assert_eq!(committed(&world, "g", "one").await, 1);
    let mut sql = world.db.connect().await;

    let open = sql.transaction().await.unwrap();
    Item::payment(&world, NOWHERE, "g", "rolled-back").by(&open).await.unwrap();
    open.rollback().await.unwrap();
    assert_eq!(committed(&world, "g", "two").await, 2);

    let mut open = sql.transaction().await.unwrap();
    let savepoint = open.savepoint("s").await.unwrap();
    Item::payment(&world, NOWHERE, "g", "to-the-savepoint").by(&savepoint).await.unwrap();
    savepoint.rollback().await.unwrap();
    Item::payment(&world, NOWHERE, "g", "three").by(&open).await.unwrap();
    open.commit().await.unwrap();

    Item::payment(&world, NOWHERE, "g", "three").by(&sql).await.unwrap();
    let other = Item::payment(&world, NOWHERE, "g", "three").payload(br#"{"amount":"2"}"#);
    assert_eq!(sqlstate(&other.by(&sql).await.unwrap_err()), "RY409");
    let bad = Item::payment(&world, NOWHERE, "g", "bad").payload(b"[1]");
    assert_eq!(sqlstate(&bad.by(&sql).await.unwrap_err()), "RY400");
    assert_eq!(committed(&world, "g", "four").await, 4);
    assert_eq!(sequences(&world, "g").await, [1, 2, 3, 4]);
}

/// `bump_participant_outbox_seq` counts in the same row, in the caller's transaction.
#[tokio::test]
async fn s2_02_a_bump_is_part_of_its_transaction() {
    let world = World::new().await;
    let mut sql = world.db.connect().await;
    let bump = "SELECT bump_participant_outbox_seq('g')";
    let open = sql.transaction().await.unwrap();
    assert_eq!(open.query_one(bump, &[]).await.unwrap().get::<_, i64>(0), 1);
    open.rollback().await.unwrap();
    assert_eq!(sql.query_one(bump, &[]).await.unwrap().get::<_, i64>(0), 1);
    assert_eq!(committed(&world, "g", "two").await, 2);
    assert_eq!(sql.query_one(bump, &[]).await.unwrap().get::<_, i64>(0), 3);
}

/// The same instruction and key is one message with one id, one after the other and from fifty producers at once.
#[tokio::test]
async fn s2_03_a_repeat_gets_the_first_id() {
    let world = World::new().await;
    let first = Item::payment(&world, NOWHERE, "g", "key").by(&world.sql).await.unwrap();
    let again = Item::payment(&world, NOWHERE, "g", "key").by(&world.sql).await.unwrap();
    assert_eq!(first, again);

    let mut producers = JoinSet::new();
    for _ in 0..50 {
        let sql = world.db.connect().await;
        let item = Item::payment(&world, NOWHERE, "h", "parallel");
        producers.spawn(async move { item.by(&sql).await.unwrap() });
    }
    let ids: BTreeSet<Uuid> = producers.join_all().await.into_iter().collect();
    assert_eq!(ids.len(), 1, "{ids:?}");
    assert_eq!(sequences(&world, "h").await, [1]);
    assert_eq!(world.one::<i64>("SELECT count(*) FROM dispatch_job").await, 2);
}

/// Also after the message was delivered and has left pending: the key outlives the row, and nothing is sent again.
#[tokio::test(flavor = "multi_thread")]
async fn s2_03_a_repeat_after_delivery_is_no_new_message() {
    let world = World::new().await;
    let rail = FakeRail::start().await;
    let node = world.node().await;
    let first = world.pay(&rail, "g", "key").await;
    rail.await_answered(1, SOON).await;
    eventually(SOON, "it is on record", || async {
        world.one::<i64>("SELECT count(*) FROM dispatch_job_outcome").await == 1
    })
    .await;
    assert_eq!(world.pay(&rail, "g", "key").await, first);
    let other = Item::payment(&world, &rail.url(), "g", "key").payload(br#"{"amount":"2"}"#);
    assert_eq!(sqlstate(&other.by(&world.sql).await.unwrap_err()), "RY409", "other content under a used key");
    let later = world.pay(&rail, "g", "later").await;
    let receipts = rail.await_answered(2, SOON).await;
    let keys: Vec<&str> = receipts.iter().map(|r| r.idempotency_key().unwrap()).collect();
    assert_eq!(keys, [first.to_string(), later.to_string()], "the repeat was sent");
    assert_eq!(world.one::<i64>("SELECT count(*) FROM dispatch_job").await, 2);
    node.stop(SOON).await;
}

/// While the first's transaction is open, a second with the same key waits: it gets the first's id after the commit, and
/// becomes the first after a rollback. Whoever does not want to wait sets a lock timeout, and burns no number.
#[tokio::test]
async fn trap_a_second_producer_waits_for_the_first() {
    let world = World::new().await;
    for commit in [true, false] {
        let (group, key) = (format!("g-{commit}"), format!("k-{commit}"));
        let mut first = world.db.connect().await;
        let open = first.transaction().await.unwrap();
        let first_id = Item::payment(&world, NOWHERE, &group, &key).by(&open).await.unwrap();

        let hasty = world.db.connect().await;
        hasty.batch_execute("SET lock_timeout = '50ms'").await.unwrap();
        let error = Item::payment(&world, NOWHERE, &group, &key).by(&hasty).await.unwrap_err();
        assert_eq!(sqlstate(&error), "55P03");

        let second = world.db.connect().await;
        let pid: i32 = second.query_one("SELECT pg_backend_pid()", &[]).await.unwrap().get(0);
        let item = Item::payment(&world, NOWHERE, &group, &key);
        let mut waiting = JoinSet::new();
        waiting.spawn(async move { item.by(&second).await.unwrap() });
        eventually(SOON, "the second waits", || async {
            let blocked = "SELECT cardinality(pg_blocking_pids($1)) > 0";
            world.sql.query_one(blocked, &[&pid]).await.unwrap().get(0)
        })
        .await;
        if commit {
            open.commit().await.unwrap();
        } else {
            open.rollback().await.unwrap();
        }
        let second_id = waiting.join_all().await[0];
        assert_eq!(first_id == second_id, commit);
        assert_eq!(sequences(&world, &group).await, [1]);
    }
}

/// The database itself refuses a second row of the same place or the same key, whoever writes it.
#[tokio::test]
async fn s2_04_the_database_refuses_doubles() {
    let world = World::new().await;
    committed(&world, "g", "one").await;
    let place = "INSERT INTO payment_outbox_pending
                 SELECT gen_random_uuid(), participant_id, sequence_id, partition_id, rail_type, endpoint, mode,
                   max_attempts, timeout_ms, 0, 0, 0, next_attempt_at, created_at FROM payment_outbox_pending";
    assert_eq!(sqlstate(&world.sql.execute(place, &[]).await.unwrap_err()), "23505", "(participant, sequence)");
    let key = "INSERT INTO idempotency_key (kind, scope, key, outbox_id, content_hash)
               SELECT kind, scope, key, gen_random_uuid(), content_hash FROM idempotency_key";
    assert_eq!(sqlstate(&world.sql.execute(key, &[]).await.unwrap_err()), "23505", "(instruction, key)");
    // What is in flight is in the same place still.
    let flight =
        "INSERT INTO in_flight (attempt_id, outbox_id, participant_id, sequence_id, partition_id, epoch, node_id,
                    rail_type, endpoint, mode, on_unknown, max_attempts, timeout_ms, attempt_no, failures, zombies,
                    claimed_at, call_deadline, created_at)
                  SELECT gen_random_uuid(), gen_random_uuid(), 'g', n, 0, 1, gen_random_uuid(), 'webhook', 'http://x',
                    'NEXT_ON_ERROR', 'retry', 3, 1000, 1, 0, 0, now(), now(), now() FROM generate_series(1, 2) n";
    assert_eq!(sqlstate(&world.sql.execute(flight, &[]).await.unwrap_err()), "23505", "one of a group in flight");
    world.sql.execute("DELETE FROM payment_outbox_pending", &[]).await.unwrap();
    let left: i64 = world.one("SELECT count(*) FROM idempotency_key").await;
    assert_eq!(left, 1, "the key lives on when the message has left pending");
}

/// The outbox row, its notice and the producer's own row are one transaction: rolled back, there is none of them.
#[tokio::test]
async fn s2_05_a_rollback_leaves_no_row_and_no_notice() {
    let world = World::new().await;
    world.sql.batch_execute("CREATE TABLE business (n int)").await.unwrap();
    let mut heard = world.store.listen().await.unwrap();
    let mut sql = world.db.connect().await;
    let produce = async |sql: &mut Client, commit: bool| {
        let open = sql.transaction().await.unwrap();
        open.execute("INSERT INTO business VALUES (1)", &[]).await.unwrap();
        Item::payment(&world, NOWHERE, "g", "key").by(&open).await.unwrap();
        if commit {
            open.commit().await.unwrap();
        } else {
            open.rollback().await.unwrap();
        }
        // Notices come in the order of commits: what is heard before this one came from the transaction above.
        sql.batch_execute("NOTIFY railyard_cache, 'afterwards'").await.unwrap();
    };
    let afterwards = Heard::Cache("afterwards".to_owned());

    produce(&mut sql, false).await;
    assert_eq!(heard.next().await.unwrap(), afterwards);
    let left: i64 = world
        .one(
            "SELECT (SELECT count(*) FROM business) + (SELECT count(*) FROM payment_outbox_pending)
               + (SELECT count(*) FROM dispatch_job) + (SELECT count(*) FROM idempotency_key)
               + (SELECT count(*) FROM ready_group) + (SELECT count(*) FROM participant_outbox_sequences)",
        )
        .await;
    assert_eq!(left, 0);

    produce(&mut sql, true).await;
    assert_eq!(heard.next().await.unwrap(), Heard::Work);
    assert_eq!(heard.next().await.unwrap(), afterwards);
    assert_eq!(sequences(&world, "g").await, [1]);
}

/// A payment's payload is one JSON object; the refusal has a stable state, names the field and gives a hint.
#[tokio::test]
async fn s2_31_a_payment_is_a_json_object() {
    let world = World::new().await;
    for bad in
        [&b""[..], b"[1]", b"7", b"\"x\"", b"null", b"{", b"{}{}", b"\xef\xbb\xbf{}", b"{\"a\":\"\xff\"}", b"{\0}"]
    {
        let error = Item::payment(&world, NOWHERE, "g", "key").payload(bad).by(&world.sql).await.unwrap_err();
        let shown = String::from_utf8_lossy(bad);
        assert_eq!((sqlstate(&error), column(&error)), ("RY400", "payload"), "{shown:?}: {error}");
        assert!(error.as_db_error().unwrap().hint().is_some_and(|hint| !hint.is_empty()), "{shown:?} without a hint");
    }
    assert_eq!(world.one::<i64>("SELECT count(*) FROM dispatch_job").await, 0);
    // Spelled any way; a webhook takes any bytes.
    Item::payment(&world, NOWHERE, "g", "spaces").payload(b" {\n} ").by(&world.sql).await.unwrap();
    Item::webhook(&world, NOWHERE, "g", "bytes").payload(b"\0\xff[").by(&world.sql).await.unwrap();
}

async fn names(world: &World, sql: &str) -> Vec<String> {
    world.sql.query(sql, &[]).await.unwrap().iter().map(|row| row.get(0)).collect()
}

/// Functions that run with the owner's rights pin their search path, the caller's temporary schema last; PUBLIC may
/// do nothing with any table or function, a producer nothing but call the three functions that are for it.
#[tokio::test]
async fn s2_31_rights_and_search_paths() {
    let world = World::new().await;
    let loose = names(
        &world,
        "SELECT proname::text FROM pg_proc WHERE pronamespace = 'public'::regnamespace AND prosecdef
         AND NOT EXISTS (SELECT 1 FROM unnest(proconfig) c WHERE c ~ '^search_path=pg_catalog.*pg_temp$')",
    )
    .await;
    assert_eq!(loose, [] as [&str; 0], "SECURITY DEFINER without a pinned search path");
    world.sql.batch_execute("CREATE ROLE nobody_at_all_s2_31").await.ok();
    let open = names(
        &world,
        "SELECT oid::regprocedure::text FROM pg_proc WHERE pronamespace = 'public'::regnamespace
           AND has_function_privilege('nobody_at_all_s2_31', oid, 'EXECUTE')
         UNION ALL
         SELECT oid::regclass::text FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p', 'v')
           AND has_table_privilege('nobody_at_all_s2_31', oid, 'SELECT, INSERT, UPDATE, DELETE, TRUNCATE')",
    )
    .await;
    assert_eq!(open, [] as [&str; 0], "open to PUBLIC");
    let tables = names(
        &world,
        "SELECT oid::regclass::text FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p', 'v')
           AND has_table_privilege('railyard_producer', oid, 'SELECT, INSERT, UPDATE, DELETE, TRUNCATE')",
    )
    .await;
    assert_eq!(tables, [] as [&str; 0], "open to producers");
    let functions = names(
        &world,
        "SELECT DISTINCT proname::text FROM pg_proc WHERE pronamespace = 'public'::regnamespace
           AND has_function_privilege('railyard_producer', oid, 'EXECUTE') ORDER BY 1",
    )
    .await;
    assert_eq!(functions, ["bump_participant_outbox_seq", "enqueue_payment_outbox"]);
}

/// A producer who puts tables and functions of the same names before ours is served by ours all the same.
#[tokio::test]
async fn s2_31_a_producer_cannot_shadow_what_the_functions_use() {
    let world = World::new().await;
    let sql = world.db.connect().await;
    sql.batch_execute(
        "CREATE SCHEMA evil;
         CREATE FUNCTION evil.check_outbox_item(integer, public.outbox_item) RETURNS public.outbox_item
           LANGUAGE sql AS 'SELECT $2';
         GRANT USAGE ON SCHEMA evil TO PUBLIC;
         SET ROLE railyard_producer;
         CREATE TEMP TABLE payment_outbox_pending (LIKE public.payment_outbox_pending);
         CREATE TEMP TABLE idempotency_key (LIKE public.idempotency_key);
         SET search_path = pg_temp, evil, public",
    )
    .await
    .unwrap_err();
    // LIKE needs a right that a producer does not have; made by hand the tables can be anything.
    sql.batch_execute(
        "SET ROLE railyard_producer;
         CREATE TEMP TABLE payment_outbox_pending (outbox_id uuid);
         CREATE TEMP TABLE idempotency_key (outbox_id uuid);
         SET search_path = pg_temp, evil, public",
    )
    .await
    .unwrap();
    Item::payment(&world, NOWHERE, "g", "key").by(&sql).await.unwrap();
    assert_eq!(sequences(&world, "g").await, [1]);
    let bad = Item::payment(&world, NOWHERE, "g", "bad").payload(b"[]");
    assert_eq!(sqlstate(&bad.by(&sql).await.unwrap_err()), "RY400");
    // Nothing but the functions.
    for forbidden in ["SELECT count(*) FROM public.dispatch_job", "DELETE FROM public.payment_outbox_pending"] {
        assert_eq!(sqlstate(&sql.batch_execute(forbidden).await.unwrap_err()), "42501", "{forbidden}");
    }
}
