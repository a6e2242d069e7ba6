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
  attempt_status(state, error_code, error_message) AS status,
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

-- The reason why this job is not made again, or null: its name for programs, and words.
CREATE FUNCTION replay_refusal(p_id uuid, OUT result text, OUT detail text)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
  v_status text;
BEGIN
  PERFORM 1 FROM dispatch_job WHERE outbox_id = p_id;
  IF NOT FOUND THEN
    result := 'UNKNOWN';
    detail := 'no job has this id';
    RETURN;
  END IF;
  SELECT o.status INTO v_status FROM dispatch_job_outcome o WHERE o.outbox_id = p_id;
  IF v_status IS NULL OR v_status = 'COMPLETED' THEN
    result := 'REFUSED';
    detail := format('the job %s', CASE WHEN v_status IS NULL THEN 'has not ended' ELSE 'was delivered' END);
    RETURN;
  END IF;
  -- It, or one that it replays, was given up, and turned out to have succeeded afterwards.
  IF EXISTS (
    WITH RECURSIVE chain AS (
      SELECT p_id AS id
      UNION ALL
      SELECT j.replay_of FROM chain c JOIN dispatch_job j ON j.outbox_id = c.id WHERE j.replay_of IS NOT NULL
    )
    SELECT 1 FROM chain c JOIN payment_outbox_attempt_archive a ON a.outbox_id = c.id WHERE a.late AND a.state = 'DISPATCHED'
  ) THEN
    result := 'REFUSED';
    detail := 'a late answer says that it was delivered';
  END IF;
END $$;

-- Makes these jobs again, which have been claimed, in one call of the way in: in their order, so at their groups' tails.
CREATE FUNCTION replay_claimed(p_ids uuid[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
  v_job dispatch_job%ROWTYPE;
  v_item outbox_item;
  v_items outbox_item[] := '{}';
  v_new uuid[];
BEGIN
  FOR n IN 1 .. cardinality(p_ids) LOOP
    SELECT * INTO STRICT v_job FROM dispatch_job WHERE outbox_id = p_ids[n];
    v_item := NULL;
    v_item.source := v_job.source;
    v_item.type := v_job.type;
    v_item.external_id := v_job.external_id;
    v_item.participant_id := v_job.participant_id;
    v_item.mode := v_job.mode;
    v_item.rail_type := v_job.rail_type;
    v_item.pool := v_job.pool;
    v_item.target_url := v_job.target_url;
    v_item.payload := v_job.payload;
    v_item.payload_content_type := v_job.payload_content_type;
    v_item.credentials_id := v_job.credentials_id;
    v_item.max_attempts := v_job.max_attempts;
    v_item.retry_strategy := v_job.retry_strategy;
    v_item.timeout_ms := v_job.timeout_ms;
    v_item.headers := v_job.headers;
    v_item.metadata := (SELECT jsonb_object_agg(m.meta_key, m.meta_value) FROM dispatch_job_metadata m
                        WHERE m.dispatch_job_id = p_ids[n]);
    v_item.traceparent := v_job.traceparent;
    -- A date that has passed has no say any more.
    v_item.scheduled_for := CASE WHEN v_job.scheduled_for > clock_timestamp() THEN v_job.scheduled_for END;
    v_item.expires_at := CASE WHEN v_job.expires_at > clock_timestamp() + interval '1 second' THEN v_job.expires_at END;
    v_items := v_items || v_item;
  END LOOP;
  SELECT array_agg(e.outbox_id ORDER BY e.ordinal) FILTER (WHERE e.created) INTO v_new FROM enqueue_outbox(v_items) e;
  IF coalesce(cardinality(v_new), 0) <> cardinality(p_ids) THEN
    RAISE EXCEPTION 'its content is not accepted any more' USING ERRCODE = 'RY400';
  END IF;
  FOR n IN 1 .. cardinality(p_ids) LOOP
    -- What the way in does not take from producers: whose replay it is, and the key that the rail knows it by.
    UPDATE dispatch_job j SET replay_of = o.outbox_id, rail_key = o.rail_key, instruction_id = o.instruction_id
    FROM dispatch_job o WHERE j.outbox_id = v_new[n] AND o.outbox_id = p_ids[n];
    UPDATE job_replay SET outbox_id = v_new[n] WHERE replay_of = p_ids[n];
    PERFORM exec_follow_replay(p_ids[n], v_new[n]);
  END LOOP;
END $$;

-- Makes jobs that ended without success again: new jobs with the same content. One that blocks its group takes its own
-- place there, and the block ends; the others go to the tail. What cannot be made is left out and says why; the others
-- are made. result: CREATED, EXISTING (it was replayed before; outbox_id is that replay), REFUSED, UNKNOWN.
-- A scheduled item follows the replay of its job (exec_follow_replay, V14), unless it was requeued: then that is its new run.
-- Locks in everybody's order: scheduled items, keys (job_replay), sequences, messages, holds, hints.
CREATE FUNCTION replay_jobs(p_ids uuid[], p_actor text, p_reason text)
RETURNS TABLE (replay_of uuid, outbox_id uuid, result text, detail text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
#variable_conflict use_column
DECLARE
  v_ids uuid[];
  v_claimed uuid[];
  v_heads uuid[];
  v_set uuid[];
  v_id uuid;
  v_why text;
  v_refused jsonb := '{}';
  v_refusal record;
  v_placed record;
BEGIN
  SELECT coalesce(array_agg(DISTINCT i ORDER BY i), '{}') INTO v_ids FROM unnest(p_ids) i;
  PERFORM exec_lock_items(v_ids);
  FOREACH v_id IN ARRAY v_ids LOOP
    SELECT * INTO v_refusal FROM replay_refusal(v_id);
    IF v_refusal.result IS NULL AND exec_is_requeued(v_id) THEN
      v_refusal.result := 'REFUSED';
      v_refusal.detail := 'its scheduled item was requeued: that is its new run';
    END IF;
    IF v_refusal.result IS NOT NULL THEN
      v_refused := v_refused || jsonb_build_object(v_id, jsonb_build_array(v_refusal.result, v_refusal.detail));
    END IF;
  END LOOP;

  WITH claimed AS (
    INSERT INTO job_replay (replay_of) SELECT i FROM unnest(v_ids) i WHERE NOT v_refused ? i::text ORDER BY i
    ON CONFLICT DO NOTHING RETURNING replay_of
  )
  SELECT coalesce(array_agg(replay_of ORDER BY replay_of), '{}') INTO v_claimed FROM claimed;

  PERFORM 1 FROM participant_outbox_sequences s
  WHERE s.participant_id IN (SELECT j.participant_id FROM unnest(v_claimed) i JOIN dispatch_job j ON j.outbox_id = i
                             WHERE j.mode <> 'IMMEDIATE')
  ORDER BY s.participant_id FOR UPDATE;

  SELECT coalesce(array_agg(i ORDER BY i), '{}') INTO v_heads FROM unnest(v_claimed) i
  WHERE EXISTS (SELECT 1 FROM group_hold h WHERE h.kind = 'blocked' AND h.outbox_id = i);

  -- Heads first: each is its group's only one of its call, so its number is the last that the group has given out.
  FOR n IN 1 .. 2 LOOP
    v_set := CASE n WHEN 1 THEN v_heads ELSE ARRAY(SELECT i FROM unnest(v_claimed) i WHERE i <> ALL (v_heads) ORDER BY i) END;
    BEGIN
      PERFORM replay_claimed(v_set);
    EXCEPTION WHEN SQLSTATE 'RY400' THEN
      FOREACH v_id IN ARRAY v_set LOOP
        BEGIN
          PERFORM replay_claimed(ARRAY[v_id]);
        EXCEPTION WHEN SQLSTATE 'RY400' THEN
          GET STACKED DIAGNOSTICS v_why = MESSAGE_TEXT;
          v_refused := v_refused || jsonb_build_object(v_id, jsonb_build_array('REFUSED', v_why));
          DELETE FROM job_replay r WHERE r.replay_of = v_id;
        END;
      END LOOP;
    END;
    CONTINUE WHEN n = 2;
    FOR v_placed IN
      DELETE FROM group_hold h USING job_replay r, dispatch_job_outcome o
      WHERE h.kind = 'blocked' AND h.outbox_id = ANY (v_set) AND r.replay_of = h.outbox_id AND o.outbox_id = h.outbox_id
      RETURNING h.participant_id, r.outbox_id, o.sequence_id
    LOOP
      UPDATE participant_outbox_sequences s SET next_sequence_id = s.next_sequence_id - 1
      WHERE s.participant_id = v_placed.participant_id;
      UPDATE payment_outbox_pending p SET sequence_id = v_placed.sequence_id WHERE p.outbox_id = v_placed.outbox_id;
      -- Its row is locked first, and the holds are looked at afterwards: a release may be under way.
      PERFORM 1 FROM ready_group g WHERE g.participant_id = v_placed.participant_id FOR UPDATE;
      UPDATE ready_group g SET due_at = CASE WHEN EXISTS (SELECT 1 FROM group_hold h WHERE h.participant_id = g.participant_id)
                                             THEN g.due_at ELSE clock_timestamp() END
      WHERE g.participant_id = v_placed.participant_id;
    END LOOP;
  END LOOP;

  INSERT INTO admin_audit (action, actor, reason, participant_id, outbox_id, detail)
  SELECT 'job.replay', p_actor, p_reason, j.participant_id, i, jsonb_build_object('replayedBy', r.outbox_id)
  FROM unnest(v_claimed) i JOIN job_replay r ON r.replay_of = i JOIN dispatch_job j ON j.outbox_id = i ORDER BY i;

  RETURN QUERY
  SELECT i.id, r.outbox_id,
    CASE WHEN v_refused ? i.id::text AND r.outbox_id IS NULL THEN v_refused -> i.id::text ->> 0
         WHEN i.id = ANY (v_claimed) THEN 'CREATED' ELSE 'EXISTING' END,
    CASE WHEN v_refused ? i.id::text AND r.outbox_id IS NULL THEN v_refused -> i.id::text ->> 1 END
  FROM unnest(p_ids) WITH ORDINALITY AS i(id, n) LEFT JOIN job_replay r ON r.replay_of = i.id ORDER BY i.n;
END $$;

REVOKE ALL ON FUNCTION replay_refusal(uuid), replay_claimed(uuid[]), replay_jobs(uuid[], text, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION replay_refusal(uuid), replay_jobs(uuid[], text, text) TO railyard_runtime;

REVOKE ALL ON dispatch_job_view, dispatch_attempt, job_replay FROM PUBLIC;
GRANT SELECT ON dispatch_job_view, dispatch_attempt, job_replay TO railyard_runtime;
