//! Lines of S0 that need many items or huge texts to be shown.

use super::*;

/// Items of a type that posts its context, each of a group of its own, due now.
async fn invoices(t: &TestStore, count: i32, jitter_ms: i32) {
    let sql = format!(
        "INSERT INTO exec_rate_config (item_type, exec_workflow_type, exec_task_queue, rate_config, batch_size, jitter_window_ms)
         VALUES ('INVOICE', 'PostContext', 'mail', 'payments', 10000, {jitter_ms});
         INSERT INTO payment_exec_context SELECT 'INVOICE', 'i' || n, '{{}}', 1 FROM generate_series(1, {count}) n;
         SELECT exec_enqueue('INVOICE', array_agg('i' || n), array_agg('customer-' || n), array_agg(clock_timestamp() + interval '10 minutes'),
           array_agg(clock_timestamp() + interval '10 minutes'), '{{}}') FROM generate_series(1, {count}) n"
    );
    t.sql.batch_execute(&sql).await.unwrap();
}

/// How many milliseconds behind its time each starts. The batch's name is fixed, and so are these.
async fn delays(t: &TestStore, batch: &str) -> Vec<i64> {
    let batch = claim(&t.store, "INVOICE", batch, ALL).await.unwrap();
    let config = config(&t.store, "INVOICE").await.unwrap();
    let done = hand_over(&t.store, ME, "INVOICE", &batch.batch, &batch.orders(&config)).await.unwrap();
    assert_eq!(usize::try_from(done.unwrap().dispatched).unwrap(), batch.items.len());
    let sql = "SELECT array_agg((extract(epoch FROM exec_start_at - scheduled_exec_time) * 1000)::bigint)
               FROM payment_exec_queue WHERE item_type = 'INVOICE'";
    t.one(sql).await
}

/// Eight stretches of the window get their share: a spread that leaves some out, or bunches, is seen.
#[tokio::test]
async fn s0_10_jitter_is_spread_over_the_whole_window_and_nothing_else() {
    let t = ready().await;
    invoices(&t, 800, 4000).await;
    let mut stretches = [0; 8];
    for delay in delays(&t, "BATCH-jitter").await {
        assert!((0..4000).contains(&delay), "{delay} ms");
        stretches[usize::try_from(delay / 500).unwrap()] += 1;
    }
    // A hundred each, give or take five deviations.
    assert!(stretches.iter().all(|count| (53..=147).contains(count)), "{stretches:?}");
    let t = ready().await;
    invoices(&t, 20, 0).await;
    assert_eq!(delays(&t, "BATCH-none").await, [0; 20], "no window, no delay");
}

/// What an execution ended with is cut as well, by characters, and nothing is lost by it.
#[tokio::test]
async fn s0_41_a_huge_error_of_a_job_does_not_break_the_transition() {
    let t = ready().await;
    due(&t, &["a"]).await;
    cycle(&t).await;
    let job = job(&t, "a").await;
    t.begin(job).await;
    let ended = "
        WITH f AS (DELETE FROM in_flight WHERE outbox_id = $1 RETURNING *)
        INSERT INTO dispatch_job_outcome (outbox_id, status, participant_id, sequence_id, attempt_count, last_error,
          duration_millis, recorded_at)
        SELECT outbox_id, 'ERROR', participant_id, sequence_id, attempt_no, repeat('ü', 100000), 7, clock_timestamp() FROM f";
    assert_eq!(t.sql.execute(ended, &[&job.0]).await.unwrap(), 1);
    let row = row(&t, "a").await;
    assert_eq!((row.queue_status, row.last_error), (QueueStatus::DeadLetter, Some("ü".repeat(4000))));
    let detail: String = t.one("SELECT detail FROM dispatch_audit_log WHERE action = 'EXECUTION_FAILED'").await;
    assert_eq!(detail, "ü".repeat(500));
}
