-- The runtime reads and writes what its statements need; producers call functions; PUBLIC has nothing.
REVOKE ALL ON ALL TABLES IN SCHEMA public FROM PUBLIC;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA public FROM PUBLIC;

GRANT USAGE ON SCHEMA public TO railyard_runtime, railyard_producer;
GRANT SELECT, INSERT ON dispatch_job, dispatch_job_metadata, dispatch_job_outcome, payment_outbox_attempt_archive, admin_audit
  TO railyard_runtime;
GRANT SELECT ON payment_outbox_attempts, dispatch_job_headers, partitioned_table TO railyard_runtime;
GRANT SELECT, INSERT, UPDATE, DELETE ON idempotency_key, participant_outbox_sequences, payment_outbox_pending, scheduled_job,
  ready_group, group_hold, in_flight, rail, rail_switch, dispatch_credentials, node, partition_lease TO railyard_runtime;
GRANT EXECUTE ON FUNCTION uuid7(timestamptz), uuid7_floor(timestamptz), partition_of(text), partition_of_id(uuid),
  endpoint_of(text), create_day_partitions(date, integer), drop_day_partitions(text, date), enqueue_outbox(outbox_item[]),
  settle_late(uuid, uuid, integer, text, timestamptz, integer, integer, bytea, boolean, text, text, text, text)
  TO railyard_runtime;

GRANT EXECUTE ON FUNCTION enqueue_payment_outbox(text, text, text, text, bytea, text, uuid, text, text, text, integer, text,
  integer, jsonb, jsonb, timestamptz, timestamptz), enqueue_payment_outbox(outbox_item[]), bump_participant_outbox_seq(text)
  TO railyard_runtime, railyard_producer;
