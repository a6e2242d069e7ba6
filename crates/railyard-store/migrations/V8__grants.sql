-- The runtime reads and writes what its statements need; producers call functions; PUBLIC has nothing.
-- Of what is ours alone: the application's own tables may stand in this schema, and are none of our business.
DO $$
DECLARE
  v_name text;
BEGIN
  FOR v_name IN SELECT c.oid::regclass::text FROM pg_class c
                WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p', 'v')
                  AND c.relowner = current_user::regrole ORDER BY 1 LOOP
    EXECUTE 'REVOKE ALL ON ' || v_name || ' FROM PUBLIC';
  END LOOP;
  FOR v_name IN SELECT p.oid::regprocedure::text FROM pg_proc p
                WHERE p.pronamespace = 'public'::regnamespace AND p.proowner = current_user::regrole ORDER BY 1 LOOP
    EXECUTE 'REVOKE ALL ON FUNCTION ' || v_name || ' FROM PUBLIC';
  END LOOP;
END $$;

GRANT USAGE ON SCHEMA public TO railyard_runtime, railyard_producer;
GRANT SELECT, INSERT ON dispatch_job, dispatch_job_metadata, dispatch_job_outcome, payment_outbox_attempt_archive, admin_audit
  TO railyard_runtime;
GRANT SELECT ON payment_outbox_attempts, dispatch_job_headers, partitioned_table TO railyard_runtime;
GRANT SELECT, INSERT, UPDATE, DELETE ON idempotency_key, participant_outbox_sequences, payment_outbox_pending, scheduled_job,
  ready_group, group_hold, in_flight, rail_switch, dispatch_credentials, node, partition_lease TO railyard_runtime;
-- No DELETE: begin joins each message's rail, and one without would be taken from pending into nowhere.
GRANT SELECT, INSERT, UPDATE ON rail TO railyard_runtime;
GRANT EXECUTE ON FUNCTION uuid7(timestamptz), uuid7_floor(timestamptz), partition_of(text), partition_of_id(uuid),
  attempt_status(text, text, text),
  endpoint_of(text), authority_of(text), create_day_partitions(date, integer), drop_day_partitions(text, date),
  enqueue_outbox(outbox_item[], boolean),
  enqueue_one(text, text, text, text, text, text, text, text, bytea, text, uuid, integer, text, integer, jsonb, jsonb,
    timestamptz, timestamptz, text, text, text),
  work_batch(uuid, bigint, uuid[], text[], uuid[], bigint[], smallint[], bigint[], text[], text[],
    uuid[], text[], text[], boolean[], bigint[], boolean[], bigint[], integer[], integer[], bytea[], boolean[], text[],
    text[], text[], text[]),
  settle_late(uuid, uuid, integer, text, timestamptz, integer, integer, bytea, boolean, text, text, text, text)
  TO railyard_runtime;

GRANT EXECUTE ON FUNCTION enqueue_payment_outbox(text, text, text, text, bytea, text, uuid, text, text, text, integer, text,
  integer, jsonb, jsonb, timestamptz, timestamptz), enqueue_payment_outbox(outbox_item[]), bump_participant_outbox_seq(text)
  TO railyard_runtime, railyard_producer;
