//! S2-27 and S2-30: bringing a database to this version, whatever it was before.

use railyard_store::migrate::{check, latest, migrate};
use railyard_store::{Store, StoreConfig};
use railyard_testkit::TestDb;
use tokio_postgres::Client;
use uuid::Uuid;

use crate::producer::sqlstate;
use crate::world::{World, credentials, master_keys};

/// All of a schema that can differ: columns, constraints, indexes, functions, triggers, rights.
const SHAPE: &str = "
SELECT format('column %s.%s %s %s %s', c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull,
              pg_get_expr(d.adbin, d.adrelid))
FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid LEFT JOIN pg_attrdef d ON (d.adrelid, d.adnum) = (a.attrelid, a.attnum)
WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p', 'v') AND a.attnum > 0 AND NOT a.attisdropped
UNION ALL SELECT format('constraint %s %s', conrelid::regclass, pg_get_constraintdef(oid)) FROM pg_constraint
  WHERE connamespace = 'public'::regnamespace
UNION ALL SELECT format('index %s', indexdef) FROM pg_indexes WHERE schemaname = 'public'
UNION ALL SELECT format('function %s %s', oid::regprocedure, md5(pg_get_functiondef(oid))) FROM pg_proc
  WHERE pronamespace = 'public'::regnamespace
UNION ALL SELECT format('trigger %s %s', tgrelid::regclass, pg_get_triggerdef(oid)) FROM pg_trigger WHERE NOT tgisinternal
UNION ALL SELECT format('rights %s %s', relname, relacl) FROM pg_class WHERE relnamespace = 'public'::regnamespace
ORDER BY 1";

async fn shape(sql: &Client) -> Vec<String> {
    sql.query(SHAPE, &[]).await.unwrap().iter().map(|row| row.get(0)).collect()
}

async fn exists(sql: &Client, relation: &str) -> bool {
    sql.query_one("SELECT to_regclass($1::text) IS NOT NULL", &[&relation]).await.unwrap().get(0)
}

/// A database with the outbox that this one takes the place of.
async fn with_old_outbox() -> (TestDb, Client) {
    let db = TestDb::create().await;
    let sql = db.connect().await;
    sql.batch_execute(
        "CREATE TABLE payment_outbox (id bigint PRIMARY KEY, status text);
         CREATE INDEX payment_outbox_status ON payment_outbox (status);
         CREATE FUNCTION notify_payment_outbox() RETURNS trigger LANGUAGE plpgsql AS
           $$BEGIN PERFORM pg_notify('outbox_pending', ''); RETURN NEW; END$$;
         CREATE TRIGGER notify AFTER INSERT ON payment_outbox FOR EACH ROW EXECUTE FUNCTION notify_payment_outbox();
         CREATE VIEW open_payments AS SELECT * FROM payment_outbox WHERE status = 'NEW';
         CREATE TABLE customer (id int); INSERT INTO customer VALUES (7)",
    )
    .await
    .unwrap();
    (db, sql)
}

/// The old outbox goes, with what hung on it; what is not ours stays. A second run changes nothing.
#[tokio::test]
async fn s2_27_the_old_outbox_is_dropped_and_a_second_run_changes_nothing() {
    let (db, sql) = with_old_outbox().await;
    let done = migrate(db.url()).await.unwrap();
    assert_eq!(done.version, latest());
    assert_eq!(done.steps, (1..=latest()).collect::<Vec<_>>());
    for old in ["payment_outbox", "open_payments", "payment_outbox_status"] {
        assert!(!exists(&sql, old).await, "{old} is still there");
    }
    let function = "SELECT to_regproc('notify_payment_outbox') IS NULL";
    assert!(sql.query_one(function, &[]).await.unwrap().get::<_, bool>(0));
    let customer: i32 = sql.query_one("SELECT id FROM customer", &[]).await.unwrap().get(0);
    assert_eq!(customer, 7);

    let first = shape(&sql).await;
    let again = migrate(db.url()).await.unwrap();
    assert_eq!(again.steps, [] as [i32; 0]);
    assert_eq!(shape(&sql).await, first);
    assert_eq!(check(db.url()).await.unwrap().steps, [] as [i32; 0]);
}

/// A second run with work in the tables loses none of it.
#[tokio::test]
async fn s2_27_a_second_run_keeps_what_is_there() {
    let world = World::new().await;
    let rail = railyard_testkit::FakeRail::start().await;
    world.pay(&rail, "g", "key").await;
    let all = "SELECT (SELECT count(*) FROM payment_outbox_pending) + (SELECT count(*) FROM dispatch_job)
                 + (SELECT count(*) FROM idempotency_key) + (SELECT count(*) FROM ready_group)";
    assert_eq!(world.one::<i64>(all).await, 4);
    migrate(world.db.url()).await.unwrap();
    assert_eq!(world.one::<i64>(all).await, 4);
}

/// Several nodes that start at once migrate once between them, and all of them find the schema in place.
#[tokio::test]
async fn s2_27_several_at_once() {
    let (db, sql) = with_old_outbox().await;
    let (one, two, three) = tokio::join!(migrate(db.url()), migrate(db.url()), migrate(db.url()));
    let mut steps: Vec<usize> = [one, two, three].into_iter().map(|done| done.unwrap().steps.len()).collect();
    steps.sort_unstable();
    assert_eq!(steps, [0, 0, usize::try_from(latest()).unwrap()]);
    assert!(exists(&sql, "payment_outbox_pending").await);
}

/// A server that brings its own `uuidv7` (PostgreSQL 18) and one that does not end with the same schema and take work.
#[tokio::test]
async fn s2_30_with_or_without_uuidv7() {
    let (with, without) = (TestDb::create().await, TestDb::create().await);
    let sql = with.connect().await;
    sql.batch_execute("CREATE FUNCTION uuidv7() RETURNS uuid LANGUAGE sql AS 'SELECT gen_random_uuid()'")
        .await
        .unwrap();
    for db in [&with, &without] {
        migrate(db.url()).await.unwrap();
        let store = Store::new(StoreConfig::at(db.url())).unwrap();
        let credentials = credentials(&store, &master_keys()).await;
        let sql = db.connect().await;
        let enqueue =
            "SELECT enqueue_payment_outbox('i', 'g', 'k', 'payment_webhook', '{}', 'http://127.0.0.1:9/', $1)";
        let id: Uuid = sql.query_one(enqueue, &[&credentials.0]).await.unwrap().get(0);
        assert_eq!(id.get_version_num(), 7, "{id}");
    }
    let ours = |mut shape: Vec<String>| {
        shape.retain(|line| !line.starts_with("function uuidv7()"));
        shape
    };
    assert_eq!(ours(shape(&sql).await), ours(shape(&without.connect().await).await));
}

/// Ids are UUIDv7 of the database's clock: version, variant, milliseconds, and growing with time.
#[tokio::test]
async fn s2_30_ids_carry_the_databases_time_and_grow() {
    let world = World::new().await;
    let made = "SELECT uuid7(t), floor(extract(epoch FROM t) * 1000)::bigint
                FROM generate_series(timestamptz '2001-02-03 04:05:06.789', '2001-02-03 04:05:06.799', '0.1 ms') t";
    let rows = world.sql.query(made, &[]).await.unwrap();
    let mut last = Uuid::nil();
    for row in &rows {
        let (id, millis): (Uuid, i64) = (row.get(0), row.get(1));
        assert_eq!(id.get_version_num(), 7);
        assert_eq!(id.get_variant(), uuid::Variant::RFC4122);
        let (seconds, nanos) = id.get_timestamp().unwrap().to_unix();
        assert_eq!(i64::try_from(seconds).unwrap() * 1000 + i64::from(nanos / 1_000_000), millis);
        assert!(id > last, "{id} after {last}");
        last = id;
    }
    // An id from a time without a partition is refused, not put anywhere.
    let stray = "INSERT INTO dispatch_job_outcome (outbox_id, status, attempt_count, recorded_at)
                 VALUES (uuid7('2001-02-03'), 'COMPLETED', 0, now())";
    assert_eq!(sqlstate(&world.sql.execute(stray, &[]).await.unwrap_err()), "23514");
}
