-- A result that comes after somebody healed its attempt (store.md step 6). Called by settle for the rows that were gone.
-- Returns what was done: ALREADY (this very result is on record), LATE_FAILURE, LATE_FLAGGED (its next attempt is in
-- flight and now knows), LATE_TAKEN (the waiting message is finished), LATE_ENDED (it had ended), UNKNOWN (no such
-- attempt was ever committed), FOREIGN (the number belongs to another attempt).
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
    IF FOUND THEN RETURN 'LATE_ENDED'; END IF;
  END LOOP;
  RAISE EXCEPTION 'message % is in no table', p_outbox_id USING ERRCODE = 'RY500';
END $$;
