//! What the tables hold while the hot statements run.

/// 100,000 groups with 10 waiting each, 20,000 blocked groups with 10 each, 90 days, a thousand jobs and more a day.
pub(super) const FILL: &str = "
INSERT INTO participant_outbox_sequences SELECT 'g' || g, 11 FROM generate_series(1, 120000) g;
INSERT INTO payment_outbox_pending (outbox_id, participant_id, sequence_id, partition_id, rail_type, endpoint, mode,
  max_attempts, timeout_ms, next_attempt_at, created_at)
SELECT CASE WHEN n = 1 THEN uuid7(now() - (g % 87) * interval '1 day') ELSE gen_random_uuid() END, 'g' || g, n, partition_of('g' || g), 'webhook', 'http://h', 'BLOCK_ON_ERROR', 3, 30000, now(), now()
FROM generate_series(1, 120000) g, generate_series(1, 10) n;
INSERT INTO ready_group SELECT 'g' || g, partition_of('g' || g), CASE WHEN g > 100000 THEN 'infinity' ELSE now() - g * interval '1 ms' END
FROM generate_series(1, 120000) g;
INSERT INTO group_hold (participant_id, kind, reason, actor) SELECT 'g' || g, 'blocked', 'x', 'x' FROM generate_series(100001, 120000) g;
INSERT INTO scheduled_job SELECT uuid7(now()), (n % 256)::smallint, now() + (n || ' seconds')::interval FROM generate_series(1, 100000) n;
";

/// Their first messages' jobs.
pub(super) const JOBS: &str = "
INSERT INTO dispatch_job (outbox_id, source, type, participant_id, mode, rail_type, target_url, payload, payload_content_type,
  credentials_id, max_attempts, retry_strategy, timeout_ms, rail_key, created_at)
SELECT p.outbox_id, 's', 't', p.participant_id, p.mode, p.rail_type, 'http://h/x', '{}', 'application/json', p.outbox_id, 3, 'exponential',
  30000, p.outbox_id, p.created_at
FROM payment_outbox_pending p WHERE p.sequence_id = 1;
";

/// Who begins.
pub(super) const NODE: &str = "
INSERT INTO node (node_id, name, lease_until) VALUES ('00000000-0000-0000-0000-000000000001', 'n', now() + interval '1 day');
UPDATE partition_lease SET owner = '00000000-0000-0000-0000-000000000001', epoch = 1;
";

/// The days that the jobs are of.
pub(super) const DAYS: &str = "SELECT create_day_partitions(current_date - 88, 87)";

/// A function plans each of its statements when it first comes to it: this brings it to all of them, one row each.
pub(super) const VISIT: &str = "
INSERT INTO in_flight (attempt_id, outbox_id, participant_id, sequence_id, partition_id, epoch, node_id, rail_type, endpoint,
  mode, on_unknown, max_attempts, timeout_ms, attempt_no, failures, zombies, claimed_at, call_deadline, created_at)
VALUES ('00000000-0000-0000-0000-00000000000a', uuid7(now()), 'visited', 1, 1, 1, gen_random_uuid(), 'webhook', 'http://h',
  'BLOCK_ON_ERROR', 'retry', 3, 30000, 1, 0, 0, now(), now(), now());
SELECT * FROM work_batch('00000000-0000-0000-0000-000000000001', 5000,
  '{00000000-0000-0000-0000-00000000000b}', '{visited}', '{null}', '{0}', '{1}', '{1}', '{http://h}', '{webhook}',
  '{00000000-0000-0000-0000-00000000000a}', '{DISPATCHED}', '{COMPLETED}', '{f}', '{0}', '{f}', '{0}', '{1}', '{200}',
  '{ok}', '{f}', '{null}', '{null}', '{null}', '{null}')";
