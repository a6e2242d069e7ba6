-- What people's SQL reads: S3's job and attempt under S3's names. Columns are added here, never renamed or dropped.
-- S3 calls its table dispatch_job; ours of that name has what never changes, and no status: a job's status follows from
-- the one place where its message stands. One branch a place, so that a condition on the status reads that place alone.
CREATE VIEW dispatch_job_view AS
-- ended
SELECT j.outbox_id AS id, j.external_id, j.source, j.type, j.participant_id AS group_id, j.mode, j.rail_type, j.pool,
  j.target_url, j.protocol, j.headers, j.payload, j.payload_content_type, j.credentials_id,
  o.status AS status, o.sequence_id AS sequence, o.attempt_count AS attempt_count, j.max_attempts AS max_retries, j.retry_strategy, j.timeout_ms / 1000 AS timeout_seconds, j.scheduled_for, j.expires_at,
  j.instruction_id, j.idempotency_key, j.replay_of, j.created_at,
  o.recorded_at AS updated_at,
  (SELECT max(a.claimed_at) FROM payment_outbox_attempt_archive a WHERE a.outbox_id = j.outbox_id AND NOT a.late) AS last_attempt_at,
  NULL::timestamptz AS next_attempt_at, o.recorded_at AS completed_at, o.duration_millis AS duration_millis,
  o.last_error AS last_error
FROM dispatch_job j JOIN dispatch_job_outcome o ON o.outbox_id = j.outbox_id
UNION ALL -- out at this moment
SELECT j.outbox_id AS id, j.external_id, j.source, j.type, j.participant_id AS group_id, j.mode, j.rail_type, j.pool,
  j.target_url, j.protocol, j.headers, j.payload, j.payload_content_type, j.credentials_id,
  'IN_PROGRESS' AS status, f.sequence_id AS sequence, f.attempt_no AS attempt_count, j.max_attempts AS max_retries, j.retry_strategy, j.timeout_ms / 1000 AS timeout_seconds, j.scheduled_for, j.expires_at,
  j.instruction_id, j.idempotency_key, j.replay_of, j.created_at,
  f.claimed_at AS updated_at,
  f.claimed_at AS last_attempt_at,
  NULL AS next_attempt_at, NULL AS completed_at, NULL AS duration_millis,
  (SELECT coalesce(a.error_code || coalesce(': ' || a.error_message, ''), a.error_message)
   FROM payment_outbox_attempt_archive a WHERE a.outbox_id = j.outbox_id AND NOT a.late
   ORDER BY a.attempt_no DESC LIMIT 1) AS last_error
FROM dispatch_job j JOIN in_flight f ON f.outbox_id = j.outbox_id
UNION ALL -- to be tried again
SELECT j.outbox_id AS id, j.external_id, j.source, j.type, j.participant_id AS group_id, j.mode, j.rail_type, j.pool,
  j.target_url, j.protocol, j.headers, j.payload, j.payload_content_type, j.credentials_id,
  'FAILED' AS status, p.sequence_id AS sequence, p.attempt_count AS attempt_count, j.max_attempts AS max_retries, j.retry_strategy, j.timeout_ms / 1000 AS timeout_seconds, j.scheduled_for, j.expires_at,
  j.instruction_id, j.idempotency_key, j.replay_of, j.created_at,
  coalesce((SELECT max(a.claimed_at) FROM payment_outbox_attempt_archive a WHERE a.outbox_id = j.outbox_id AND NOT a.late), j.created_at) AS updated_at,
  (SELECT max(a.claimed_at) FROM payment_outbox_attempt_archive a WHERE a.outbox_id = j.outbox_id AND NOT a.late) AS last_attempt_at,
  nullif(p.next_attempt_at, 'infinity') AS next_attempt_at, NULL AS completed_at, NULL AS duration_millis,
  (SELECT coalesce(a.error_code || coalesce(': ' || a.error_message, ''), a.error_message)
   FROM payment_outbox_attempt_archive a WHERE a.outbox_id = j.outbox_id AND NOT a.late
   ORDER BY a.attempt_no DESC LIMIT 1) AS last_error
FROM dispatch_job j JOIN payment_outbox_pending p ON p.outbox_id = j.outbox_id
WHERE p.failures > 0
UNION ALL -- waits, and has not failed
SELECT j.outbox_id AS id, j.external_id, j.source, j.type, j.participant_id AS group_id, j.mode, j.rail_type, j.pool,
  j.target_url, j.protocol, j.headers, j.payload, j.payload_content_type, j.credentials_id,
  'PENDING' AS status, p.sequence_id AS sequence, p.attempt_count AS attempt_count, j.max_attempts AS max_retries, j.retry_strategy, j.timeout_ms / 1000 AS timeout_seconds, j.scheduled_for, j.expires_at,
  j.instruction_id, j.idempotency_key, j.replay_of, j.created_at,
  coalesce((SELECT max(a.claimed_at) FROM payment_outbox_attempt_archive a WHERE a.outbox_id = j.outbox_id AND NOT a.late), j.created_at) AS updated_at,
  (SELECT max(a.claimed_at) FROM payment_outbox_attempt_archive a WHERE a.outbox_id = j.outbox_id AND NOT a.late) AS last_attempt_at,
  nullif(p.next_attempt_at, 'infinity') AS next_attempt_at, NULL AS completed_at, NULL AS duration_millis,
  (SELECT coalesce(a.error_code || coalesce(': ' || a.error_message, ''), a.error_message)
   FROM payment_outbox_attempt_archive a WHERE a.outbox_id = j.outbox_id AND NOT a.late
   ORDER BY a.attempt_no DESC LIMIT 1) AS last_error
FROM dispatch_job j JOIN payment_outbox_pending p ON p.outbox_id = j.outbox_id
WHERE p.failures = 0
UNION ALL -- waits for its date
SELECT j.outbox_id AS id, j.external_id, j.source, j.type, j.participant_id AS group_id, j.mode, j.rail_type, j.pool,
  j.target_url, j.protocol, j.headers, j.payload, j.payload_content_type, j.credentials_id,
  'PENDING' AS status, NULL AS sequence, 0 AS attempt_count, j.max_attempts AS max_retries, j.retry_strategy, j.timeout_ms / 1000 AS timeout_seconds, j.scheduled_for, j.expires_at,
  j.instruction_id, j.idempotency_key, j.replay_of, j.created_at,
  j.created_at AS updated_at,
  NULL AS last_attempt_at,
  s.due_at AS next_attempt_at, NULL AS completed_at, NULL AS duration_millis,
  NULL AS last_error
FROM dispatch_job j JOIN scheduled_job s ON s.outbox_id = j.outbox_id;

-- All attempts, the open ones among them, in S3's words. S3 keeps a stack trace; there is none here.
CREATE VIEW dispatch_attempt AS
SELECT attempt_id AS id, outbox_id AS dispatch_job_id, attempt_no AS attempt_number, claimed_at AS attempted_at, completed_at,
  latency_ms AS duration_millis,
  CASE state
    WHEN 'DISPATCHED' THEN 'SUCCESS'
    WHEN 'ZOMBIE_REQUEUE' THEN 'UNKNOWN'
    WHEN 'DEFERRED' THEN 'DEFERRED'
    WHEN 'NOT_STARTED' THEN 'NOT_STARTED'
    ELSE CASE
      WHEN error_code IN ('DISPATCH_TIMEOUT', 'CONNECT_TIMEOUT')
        OR error_code = 'RETRY_CEILING_EXCEEDED'
           AND (starts_with(error_message, 'DISPATCH_TIMEOUT') OR starts_with(error_message, 'CONNECT_TIMEOUT'))
      THEN 'TIMEOUT' ELSE 'FAILURE' END
    END AS status,
  state, late, response_code, response_body, response_truncated, error_code, error_message,
  NULL::text AS error_stack_trace, rail_reference, rail_code, node_id
FROM payment_outbox_attempt_archive
UNION ALL
SELECT attempt_id, outbox_id, attempt_no, claimed_at, NULL, NULL, 'IN_PROGRESS', 'DISPATCHING', false, NULL, NULL, false,
  NULL, NULL, NULL, NULL, NULL, node_id
FROM in_flight;

-- A job is replayed once, for ever: whoever asks again is shown the replay, and what failed again is replayed itself.
-- Its row goes with the day of the job that it is about.
CREATE TABLE job_replay (
  replay_of  uuid PRIMARY KEY,
  outbox_id  uuid,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp()
) PARTITION BY RANGE (replay_of);
COMMENT ON COLUMN job_replay.outbox_id IS 'the new job; null only inside the transaction that makes it';
INSERT INTO partitioned_table VALUES ('job_replay', 'replay_of', 'jobs');
SELECT create_day_partitions(min(d.day), max(d.day) - min(d.day) + 1)
FROM (SELECT to_date(right(c.relname, 8), 'YYYYMMDD') AS day
      FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = 'dispatch_job'::regclass) d;

REVOKE ALL ON dispatch_job_view, dispatch_attempt, job_replay FROM PUBLIC;
GRANT SELECT ON dispatch_job_view, dispatch_attempt, job_replay TO railyard_runtime;
