-- All of S2's attempts in one place: the open one (DISPATCHING) and those on record.
CREATE VIEW payment_outbox_attempts AS
SELECT a.attempt_id, a.outbox_id, j.instruction_id, a.participant_id, a.sequence_id, j.idempotency_key, a.rail_type,
       j.payload, a.attempt_no, a.state, a.late, a.claimed_at, a.completed_at, a.recorded_at, a.rail_reference,
       a.rail_code, a.response_code, a.error_code, a.error_message, a.latency_ms, a.epoch, a.node_id,
       a.claimed_at AS created_at
FROM payment_outbox_attempt_archive a LEFT JOIN dispatch_job j ON j.outbox_id = a.outbox_id
UNION ALL
SELECT f.attempt_id, f.outbox_id, j.instruction_id, f.participant_id, f.sequence_id, j.idempotency_key, f.rail_type,
       j.payload, f.attempt_no, 'DISPATCHING', false, f.claimed_at, NULL, NULL, NULL,
       NULL, NULL, NULL, NULL, NULL, f.epoch, f.node_id,
       f.claimed_at
FROM in_flight f LEFT JOIN dispatch_job j ON j.outbox_id = f.outbox_id;

CREATE TRIGGER append_only INSTEAD OF INSERT OR UPDATE OR DELETE ON payment_outbox_attempts
  FOR EACH ROW EXECUTE FUNCTION refuse_change();

-- S3's shape of a job's headers; they are stored with the job, since nothing ever asks for them alone.
CREATE VIEW dispatch_job_headers AS
SELECT j.outbox_id AS dispatch_job_id, h.key AS header_name, h.value AS header_value
FROM dispatch_job j CROSS JOIN LATERAL jsonb_each_text(j.headers) h;
