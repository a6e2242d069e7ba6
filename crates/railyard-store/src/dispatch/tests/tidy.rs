//! What is kept for how long, and what does not grow with what has been.

use super::*;

#[tokio::test]
async fn what_was_completed_goes_after_its_days_and_what_a_person_has_to_decide_stays() {
    let t = ready().await;
    due(&t, &["a", "b", "c"]).await;
    cycle(&t).await;
    for (id, status) in [("a", "COMPLETED"), ("b", "ERROR"), ("c", "COMPLETED")] {
        ended(&t, job(&t, id).await, status).await;
    }
    let age = "SET session_replication_role = replica;
               UPDATE payment_exec_queue SET scheduled_exec_time = now() - interval '11 days', completed_at = completed_at - interval '11 days'
               WHERE payment_id IN ('a', 'b');
               UPDATE exec_group_reach SET latest_slot = now() - interval '11 days';
               UPDATE dispatch_audit_log SET created_at = now() - interval '11 days' WHERE payment_id = 'a';
               SET session_replication_role = origin";
    t.sql.batch_execute(age).await.unwrap();
    let log = audit(&t, "DISPATCHED").await;
    assert_eq!(payments::drop_completed(&t.store, 12).await.unwrap(), 0);
    assert_eq!(payments::drop_completed(&t.store, 10).await.unwrap(), 1);
    assert!(payments::get(&t.store, "a").await.unwrap().is_none());
    for id in ["b", "c"] {
        assert!(payments::get(&t.store, id).await.unwrap().is_some(), "{id}");
    }
    assert_eq!((log, audit(&t, "DISPATCHED").await), (3, 2), "what is old of the log");
    assert_eq!(t.one::<i64>("SELECT count(*) FROM exec_group_reach").await, 2);
    assert_eq!(payments::drop_completed(&t.store, 10).await.unwrap(), 0);
}

#[tokio::test]
async fn contexts_are_looked_through_page_by_page() {
    let t = ready().await;
    due(&t, &["a", "d"]).await;
    let orphans = "INSERT INTO payment_exec_context (item_type, payment_id, context_json, context_version)
                   VALUES ('INVOICE', 'a', '{}', 1), ('PAYMENT', 'b', '{}', 1), ('PAYMENT', 'c', '{}', 1);
                   UPDATE payment_exec_context SET updated_at = clock_timestamp() - interval '2 hours'";
    t.sql.batch_execute(orphans).await.unwrap();
    let page = "SELECT swept, scanned, last_type, last_id FROM exec_context_sweep($1, $2, 2)";
    let mut after: (Option<String>, Option<String>) = (None, None);
    let mut pages = Vec::new();
    for _ in 0..3 {
        let row = t.sql.query_one(page, &[&after.0, &after.1]).await.unwrap();
        after = (row.get(2), row.get(3));
        pages.push((row.get::<_, i32>(0), row.get::<_, i32>(1)));
    }
    assert_eq!(pages, [(1, 2), (2, 2), (0, 1)]);
    let left: Vec<String> = t.one("SELECT array_agg(payment_id ORDER BY payment_id) FROM payment_exec_context").await;
    assert_eq!(left, ["a", "d"]);
}

/// Thousands that a debtor has planned for later, each for another time, and one for now.
#[tokio::test]
async fn a_slot_is_found_however_much_of_its_debtor_waits() {
    let t = ready().await;
    let planned = "SELECT count(*) FROM exec_enqueue('PAYMENT',
        (SELECT array_agg('p' || n) FROM generate_series(1, 5000) n), array_fill('g'::text, ARRAY[5000]),
        (SELECT array_agg(now() + interval '30 days' + n * interval '1 minute' ORDER BY n) FROM generate_series(1, 5000) n),
        (SELECT array_agg(now() + interval '30 days' + n * interval '1 minute' ORDER BY n) FROM generate_series(1, 5000) n), '{}')";
    assert_eq!(t.one::<i64>(planned).await, 5000);
    t.sql.batch_execute("VACUUM ANALYZE payment_exec_queue, exec_group, exec_group_reach").await.unwrap();
    let one = |id: &str| {
        format!(
            "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON)
             SELECT exec_enqueue('PAYMENT', '{{{id}}}', '{{g}}', ARRAY[now()], ARRAY[now()], '{{}}')"
        )
    };
    // The second one: the first reads what nobody has read yet.
    t.one::<serde_json::Value>(&one("x")).await;
    let plan: serde_json::Value = t.one(&one("y")).await;
    let buffers = plan[0]["Plan"]["Shared Hit Blocks"].as_u64().unwrap();
    assert!(buffers < 200, "{buffers} buffers");
    let reach = "SELECT count(*) FROM exec_group_reach";
    assert_eq!(t.one::<i64>(reach).await, 5002);
    // One that comes to stand behind all of them, though it was asked for before them, says what they said.
    let behind = "SELECT scheduled_exec_time > now() + interval '80 days' FROM exec_enqueue('PAYMENT', '{z}', '{g}',
                    ARRAY[now()], ARRAY[now() + interval '90 days'], '{}')";
    assert!(t.one::<bool>(behind).await);
    assert_eq!(t.one::<i64>(reach).await, 3);
    let next = "SELECT scheduled_exec_time > now() + interval '80 days' FROM exec_enqueue('PAYMENT', '{zz}', '{g}',
                  ARRAY[now() + interval '31 days'], ARRAY[now() + interval '31 days'], '{}')";
    assert!(t.one::<bool>(next).await, "it was accepted later and asked for later");
}
