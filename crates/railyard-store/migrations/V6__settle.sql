-- A result that comes after somebody healed its attempt. Called by settle for the rows that were gone.
-- Returns what was done: ALREADY (this very result is on record), LATE_FAILURE, LATE_FLAGGED (its next attempt is in
-- flight and now knows), LATE_TAKEN (the waiting message is finished), LATE_ENDED (it had ended; a group that it blocked
-- goes on), UNKNOWN (no such attempt was ever committed), FOREIGN (the number belongs to another attempt).
CREATE FUNCTION settle_late(
  p_attempt_id uuid, p_outbox_id uuid, p_attempt_no integer, p_state text, p_completed_at timestamptz,
  p_latency_ms integer, p_response_code integer, p_response_body bytea, p_response_truncated boolean,
  p_rail_reference text, p_rail_code text, p_error_code text, p_error_message text) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
  v_archived payment_outbox_attempt_archive%ROWTYPE;
  v_pending payment_outbox_pending%ROWTYPE;
BEGIN
  SELECT * INTO v_archived FROM payment_outbox_attempt_archive
  WHERE outbox_id = p_outbox_id AND attempt_no = p_attempt_no AND NOT late;
  IF NOT FOUND THEN RETURN 'UNKNOWN'; END IF;
  IF v_archived.attempt_id <> p_attempt_id THEN RETURN 'FOREIGN'; END IF;
  -- Healed: given up as unknown, or as unknown and with no attempt left; neither ever has a time of completion.
  IF v_archived.state <> 'ZOMBIE_REQUEUE' AND NOT (v_archived.state = 'FAILED' AND v_archived.completed_at IS NULL) THEN
    RETURN 'ALREADY';
  END IF;
  IF p_state NOT IN ('DISPATCHED', 'RETRYABLE', 'FAILED') THEN RETURN 'ALREADY'; END IF;

  INSERT INTO payment_outbox_attempt_archive (outbox_id, attempt_no, late, attempt_id, state, participant_id, sequence_id,
    rail_type, epoch, node_id, claimed_at, completed_at, recorded_at, latency_ms, response_code, response_body,
    response_truncated, rail_reference, rail_code, error_code, error_message)
  VALUES (p_outbox_id, p_attempt_no, true, p_attempt_id, p_state, v_archived.participant_id, v_archived.sequence_id,
    v_archived.rail_type, v_archived.epoch, v_archived.node_id, v_archived.claimed_at, p_completed_at, clock_timestamp(),
    p_latency_ms, p_response_code, p_response_body, p_response_truncated, p_rail_reference, p_rail_code, p_error_code,
    p_error_message)
  ON CONFLICT DO NOTHING;
  IF NOT FOUND THEN RETURN 'ALREADY'; END IF;
  IF p_state <> 'DISPATCHED' THEN RETURN 'LATE_FAILURE'; END IF;

  -- The message is in exactly one place, and may move while we look: each look is a statement with a fresh snapshot.
  FOR v_try IN 1 .. 20 LOOP
    UPDATE in_flight SET known_success = true WHERE outbox_id = p_outbox_id;
    IF FOUND THEN RETURN 'LATE_FLAGGED'; END IF;
    DELETE FROM payment_outbox_pending WHERE outbox_id = p_outbox_id RETURNING * INTO v_pending;
    IF FOUND THEN
      INSERT INTO dispatch_job_outcome (outbox_id, status, participant_id, sequence_id, attempt_count, duration_millis, recorded_at)
      VALUES (p_outbox_id, 'COMPLETED', v_pending.participant_id, v_pending.sequence_id, v_pending.attempt_count,
              greatest(0, floor(extract(epoch FROM p_completed_at - v_pending.created_at) * 1000)), clock_timestamp());
      -- A message without a group is held under its own id.
      DELETE FROM group_hold WHERE participant_id = coalesce(v_pending.participant_id, p_outbox_id::text)
        AND kind = 'in_doubt' AND outbox_id = p_outbox_id;
      INSERT INTO admin_audit (action, actor, reason, participant_id, outbox_id)
      VALUES ('late_success', 'settle', 'an attempt that was given up had succeeded', v_pending.participant_id, p_outbox_id);
      UPDATE ready_group r
      SET due_at = CASE WHEN EXISTS (SELECT 1 FROM group_hold h WHERE h.participant_id = r.participant_id)
                        THEN r.due_at ELSE clock_timestamp() END
      WHERE r.participant_id = v_pending.participant_id;
      RETURN 'LATE_TAKEN';
    END IF;
    PERFORM 1 FROM dispatch_job_outcome WHERE outbox_id = p_outbox_id;
    IF FOUND THEN
      -- What was scheduled and given up with it follows (V14).
      PERFORM exec_late_success(p_outbox_id);
      -- It blocks its group for having failed, and it has not: the group goes on. What others hold it for stays.
      WITH gone AS (
        DELETE FROM group_hold h
        WHERE h.participant_id = v_archived.participant_id AND h.kind = 'blocked' AND h.outbox_id = p_outbox_id
        RETURNING h.kind, h.outbox_id
      )
      INSERT INTO admin_audit (action, actor, reason, participant_id, outbox_id, detail)
      SELECT 'group.release', 'settle', 'the message that blocked it had succeeded', v_archived.participant_id, p_outbox_id,
        jsonb_build_object('holds', jsonb_build_array(jsonb_build_object('kind', g.kind, 'jobId', g.outbox_id)))
      FROM gone g;
      IF FOUND THEN
        -- As a person's release does: the hint is locked before it is decided, in a younger snapshot, whether a hold remains.
        INSERT INTO ready_group AS r (participant_id, partition_id, due_at)
        SELECT v_archived.participant_id, partition_of(v_archived.participant_id), 'infinity'
        WHERE EXISTS (SELECT 1 FROM payment_outbox_pending p WHERE p.participant_id = v_archived.participant_id)
        ON CONFLICT (participant_id) DO UPDATE SET due_at = r.due_at;
        UPDATE ready_group r
        SET due_at = CASE WHEN EXISTS (SELECT 1 FROM group_hold h WHERE h.participant_id = r.participant_id)
                          THEN r.due_at ELSE clock_timestamp() END
        WHERE r.participant_id = v_archived.participant_id;
        PERFORM pg_notify('outbox_pending', 'new_work');
      END IF;
      RETURN 'LATE_ENDED';
    END IF;
  END LOOP;
  RAISE EXCEPTION 'message % is in no table', p_outbox_id USING ERRCODE = 'RY500';
END $$;

-- Begin and settle (store.md steps 4 and 6): one transaction's outcomes and begins in one call, so that a transaction is
-- one statement. In the order of locks: the fence (node), messages, holds, hints. Each step is a statement with a
-- snapshot of its own: the claim's is younger than the moment the fence was taken.
--
-- Every array p_begin ... p_rail has an element a lane, every array p_attempt ... p_error_message an element an outcome.
-- A lane is a group (p_group) or a message without one (p_single). Rows come back of three kinds:
-- settled: an outcome that was written (one that is missing was not in flight any more);
-- begun: an in-flight row as it was inserted;
-- fenced: the lease is not good, nothing was begun.
--
-- Plans are made once and for all, so nothing in these statements is left to estimates: OFFSET 0 keeps each test a
-- look-up of its own for each lane (as a join it may read a whole index), rows are taken by their place, and what the
-- caller gave is found again by position. Names need no search path of their own: the caller runs as railyard_runtime.
CREATE FUNCTION work_batch(
  p_node uuid, p_slack_ms bigint,
  p_begin uuid[], p_group text[], p_single uuid[], p_probe bigint[], p_partition smallint[], p_epoch bigint[],
  p_endpoint text[], p_rail text[],
  p_attempt uuid[], p_state text[], p_end_status text[], p_blocks boolean[], p_after_ms bigint[], p_spends boolean[],
  p_ago_ms bigint[], p_latency_ms integer[], p_response_code integer[], p_response_body bytea[],
  p_response_truncated boolean[], p_rail_reference text[], p_rail_code text[], p_error_code text[],
  p_error_message text[])
RETURNS TABLE (
  kind text, attempt_id uuid, ended text, more boolean, known_success boolean,
  outbox_id uuid, participant_id text, sequence_id bigint, partition_id smallint, epoch bigint, attempt_no integer,
  failures integer, max_attempts integer, mode text, rail_type text, endpoint text, timeout_ms integer,
  claimed_at timestamptz, transaction text)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_good boolean := false;
  v_settled record;
  v_groups text[];
  v_partitions smallint[];
  v_due timestamptz[];
  v_alone boolean := false;
  v_singles tid[] := '{}';
  v_begun bigint := 0;
BEGIN
  IF cardinality(p_begin) > 0 THEN
    PERFORM 1 FROM node n WHERE n.node_id = p_node AND n.lease_until > clock_timestamp() FOR KEY SHARE;
    v_good := FOUND;
    IF NOT v_good THEN
      kind := 'fenced';
      RETURN NEXT;
    END IF;
  END IF;

  -- Whoever deletes the in-flight row writes everything that follows from it. Without the epoch: until somebody has
  -- healed it, an attempt's own result is the truth, whoever owns the partition. known_success is read from the deleted
  -- row: it may have been set while the call ran.
  IF cardinality(p_attempt) > 0 THEN
    kind := 'settled';
    FOR v_settled IN
      WITH gone AS (
        DELETE FROM in_flight f WHERE f.attempt_id = ANY (p_attempt)
        RETURNING f.*, array_position(p_attempt, f.attempt_id) AS n
      ), decided AS MATERIALIZED (
        SELECT g.*, CASE WHEN known_success THEN 'COMPLETED' ELSE p_end_status[n] END AS ended,
               p_blocks[n] AND NOT known_success AS holds,
               clock_timestamp() - p_ago_ms[n] * interval '1 millisecond' AS completed_at,
               clock_timestamp() + p_after_ms[n] * interval '1 millisecond' AS again_at
        FROM gone g
      ), archived AS (
        INSERT INTO payment_outbox_attempt_archive (outbox_id, attempt_no, late, attempt_id, state, participant_id,
          sequence_id, rail_type, epoch, node_id, claimed_at, completed_at, recorded_at, latency_ms, response_code,
          response_body, response_truncated, rail_reference, rail_code, error_code, error_message)
        SELECT outbox_id, attempt_no, false, attempt_id, p_state[n], participant_id, sequence_id, rail_type, epoch,
          node_id, claimed_at, completed_at, clock_timestamp(), p_latency_ms[n], p_response_code[n],
          p_response_body[n], p_response_truncated[n], p_rail_reference[n], p_rail_code[n], p_error_code[n],
          p_error_message[n]
        FROM decided
      ), ended AS (
        INSERT INTO dispatch_job_outcome (outbox_id, status, participant_id, sequence_id, attempt_count, last_error,
          duration_millis, recorded_at)
        SELECT outbox_id, ended, participant_id, sequence_id, attempt_no,
          CASE WHEN ended <> 'COMPLETED'
            THEN coalesce(p_error_code[n] || coalesce(': ' || p_error_message[n], ''), ended) END,
          greatest(0, floor(extract(epoch FROM completed_at - created_at) * 1000)), clock_timestamp()
        FROM decided WHERE ended IS NOT NULL
      ), back AS (
        INSERT INTO payment_outbox_pending (outbox_id, participant_id, sequence_id, partition_id, rail_type, endpoint,
          mode, max_attempts, timeout_ms, attempt_count, failures, zombies, next_attempt_at, created_at)
        SELECT outbox_id, participant_id, sequence_id, partition_id, rail_type, endpoint, mode, max_attempts, timeout_ms,
          attempt_no, failures + p_spends[n]::integer, zombies, again_at, created_at
        FROM decided WHERE ended IS NULL
      ), held AS (
        INSERT INTO group_hold (participant_id, kind, outbox_id, reason, actor)
        SELECT participant_id, 'blocked', outbox_id, coalesce(p_error_code[n], ended), 'settle'
        FROM decided WHERE holds AND participant_id IS NOT NULL ORDER BY participant_id
        ON CONFLICT DO NOTHING
      )
      SELECT attempt_id, ended, known_success, participant_id, partition_id,
        CASE WHEN holds THEN 'infinity' WHEN ended IS NOT NULL THEN clock_timestamp() ELSE again_at END AS due_at,
        array_position(p_group, participant_id) IS NULL AS alone,
        -- Whether the group has something else that is due; one that goes on in this batch will see for itself.
        ended IS NOT NULL AND NOT holds AND array_position(p_group, participant_id) IS NULL AND EXISTS (
          SELECT 1 FROM payment_outbox_pending q
          WHERE q.participant_id = d.participant_id AND q.sequence_id > d.sequence_id
            AND q.next_attempt_at <= clock_timestamp() OFFSET 0) AS more
      FROM decided d
    LOOP
      attempt_id := v_settled.attempt_id;
      ended := v_settled.ended;
      known_success := v_settled.known_success;
      more := v_settled.more;
      RETURN NEXT;
      IF v_settled.participant_id IS NOT NULL THEN
        v_groups := v_groups || v_settled.participant_id;
        v_partitions := v_partitions || v_settled.partition_id;
        v_due := v_due || v_settled.due_at;
        v_alone := v_alone OR v_settled.alone;
      END IF;
    END LOOP;
  END IF;

  -- A head is begun when the fence was taken, it is due and unheld, its rail runs, its group has nothing in flight and
  -- the partition is the node's.
  IF v_good THEN
    -- Messages without a group: their places alone. One that changes before the claim's snapshot is not there any more.
    IF num_nonnulls(VARIADIC p_single) > 0 THEN
      v_singles := ARRAY(
        SELECT p.place
        FROM unnest(p_single, p_partition, p_epoch) AS g(outbox_id, partition_id, epoch)
        CROSS JOIN LATERAL (
          SELECT q.ctid AS place, q.participant_id, q.next_attempt_at, q.rail_type FROM payment_outbox_pending q
          WHERE q.outbox_id = g.outbox_id LIMIT 1) p
        WHERE p.participant_id IS NULL AND p.next_attempt_at <= clock_timestamp()
          AND EXISTS (SELECT 1 FROM partition_lease l
                      WHERE l.partition_id = g.partition_id AND l.owner = p_node AND l.epoch = g.epoch OFFSET 0)
          AND NOT EXISTS (SELECT 1 FROM rail_switch s
                          WHERE s.kind = 'rail' AND s.name = p.rail_type AND s.paused OFFSET 0));
    END IF;
    RETURN QUERY
    WITH head AS MATERIALIZED (
      SELECT p.place
      FROM unnest(p_group, p_probe, p_partition, p_epoch, p_endpoint, p_rail)
        AS g(participant_id, probe, partition_id, epoch, endpoint, rail_type)
      CROSS JOIN LATERAL (
        SELECT q.ctid AS place, q.next_attempt_at, q.endpoint, q.rail_type FROM payment_outbox_pending q
        WHERE q.participant_id = g.participant_id AND q.sequence_id >= g.probe ORDER BY q.sequence_id LIMIT 1) p
      WHERE p.next_attempt_at <= clock_timestamp() AND p.endpoint = g.endpoint AND p.rail_type = g.rail_type
        AND EXISTS (SELECT 1 FROM partition_lease l
                    WHERE l.partition_id = g.partition_id AND l.owner = p_node AND l.epoch = g.epoch OFFSET 0)
        AND NOT EXISTS (SELECT 1 FROM group_hold h WHERE h.participant_id = g.participant_id OFFSET 0)
        AND NOT EXISTS (SELECT 1 FROM in_flight f WHERE f.participant_id = g.participant_id OFFSET 0)
        AND NOT EXISTS (SELECT 1 FROM rail_switch s
                        WHERE s.kind = 'rail' AND s.name = p.rail_type AND s.paused OFFSET 0)
    ), taken AS (
      DELETE FROM payment_outbox_pending p
      WHERE p.ctid = ANY (ARRAY(SELECT place FROM head) || v_singles) AND p.next_attempt_at <= clock_timestamp()
      RETURNING p.*,
        -- array_position finds a NULL in an array as well: each kind is looked up among its own.
        CASE WHEN p.participant_id IS NULL THEN array_position(p_single, p.outbox_id)
             ELSE array_position(p_group, p.participant_id) END AS n
    ), begun AS (
      INSERT INTO in_flight (attempt_id, outbox_id, participant_id, sequence_id, partition_id, epoch, node_id, rail_type,
        endpoint, mode, on_unknown, max_attempts, timeout_ms, attempt_no, failures, zombies, claimed_at, call_deadline,
        created_at)
      SELECT p_begin[n], outbox_id, participant_id, sequence_id, partition_id, p_epoch[n], p_node, rail_type, endpoint,
        mode, (SELECT r.on_unknown FROM rail r WHERE r.rail_type = t.rail_type), max_attempts, timeout_ms,
        attempt_count + 1, failures, zombies, clock_timestamp(),
        clock_timestamp() + (timeout_ms + p_slack_ms) * interval '1 millisecond', created_at
      FROM taken t
      RETURNING *
    )
    SELECT 'begun', b.attempt_id, NULL::text, NULL::boolean, b.known_success, b.outbox_id, b.participant_id,
      b.sequence_id, b.partition_id, b.epoch, b.attempt_no, b.failures, b.max_attempts, b.mode, b.rail_type, b.endpoint,
      b.timeout_ms, b.claimed_at, pg_current_xact_id()::text
    FROM begun b;
    GET DIAGNOSTICS v_begun = ROW_COUNT;
  END IF;

  -- A group that went on has a row in flight and keeps its hint, which was early when it began. The others' hints are
  -- put right; one that is early already is locked and left as it is.
  IF v_groups IS NOT NULL AND (v_alone OR v_begun < cardinality(p_begin)) THEN
    INSERT INTO ready_group AS r (participant_id, partition_id, due_at)
    SELECT g.participant_id, g.partition_id, g.due_at
    FROM unnest(v_groups, v_partitions, v_due) AS g(participant_id, partition_id, due_at)
    WHERE NOT EXISTS (SELECT 1 FROM in_flight f WHERE f.participant_id = g.participant_id OFFSET 0)
    ORDER BY g.participant_id
    ON CONFLICT (participant_id) DO UPDATE SET due_at = excluded.due_at
      WHERE r.due_at <> 'infinity' AND (excluded.due_at > clock_timestamp() OR excluded.due_at < r.due_at);
  END IF;
END $$;
