-- What is written once: jobs, their ends, the archive of attempts, idempotency keys.
-- Everything here but the keys is partitioned by day on the time inside the job's UUIDv7.

-- The nth id of a call: all of a call's ids carry the call's millisecond and fraction, then their position, then
-- chance. So the order of ids is the order of (created_at, id), created_at being kept to the millisecond, and every
-- list that is paged by id alone is in that order. The time is given in microseconds, chance as hexadecimal digits. One
-- expression, as are those below, so that a statement which makes a thousand ids has it inlined.
CREATE FUNCTION uuid7_of(p_us bigint, p_nth integer, p_digits text) RETURNS uuid
LANGUAGE sql IMMUTABLE AS $$
  SELECT (lpad(to_hex(p_us / 1000), 12, '0') || '7' || lpad(to_hex(p_us % 1000 * 4096 / 1000), 3, '0')
          || '80' || lpad(to_hex(p_nth), 6, '0') || left(p_digits, 8))::uuid
$$;
CREATE FUNCTION uuid7_nth(p_at timestamptz, p_nth integer) RETURNS uuid
LANGUAGE sql VOLATILE AS $$
  SELECT uuid7_of(floor(extract(epoch FROM p_at) * 1000000)::bigint, p_nth, gen_random_uuid()::text)
$$;

-- A UUIDv7 of a time: 48 bits of milliseconds, 12 bits of their fraction, the rest random.
CREATE FUNCTION uuid7(p_at timestamptz) RETURNS uuid
LANGUAGE sql VOLATILE AS $$
  SELECT (lpad(to_hex(floor(extract(epoch FROM p_at) * 1000)::bigint), 12, '0') || '7'
          || lpad(to_hex(floor(extract(epoch FROM p_at) * 1000000)::bigint % 1000 * 4096 / 1000), 3, '0')
          || substr(gen_random_uuid()::text, 20))::uuid
$$;

-- The smallest id of a moment: the bounds of partitions.
CREATE FUNCTION uuid7_floor(p_at timestamptz) RETURNS uuid
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
  SELECT (encode(substring(int8send(floor(extract(epoch FROM p_at) * 1000)::bigint) FROM 3 FOR 6), 'hex')
          || repeat('0', 20))::uuid
$$;

-- The partition of a group, as railyard_core::partition computes it. STABLE, as convert_to is: said to be more, it would
-- not be inlined.
CREATE FUNCTION partition_of(p_participant_id text) RETURNS smallint
LANGUAGE sql STABLE STRICT PARALLEL SAFE AS $$
  SELECT get_byte(sha256(convert_to(p_participant_id, 'UTF8')), 0)::smallint
$$;

CREATE FUNCTION partition_of_id(p_outbox_id uuid) RETURNS smallint
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
  SELECT get_byte(sha256(uuid_send(p_outbox_id)), 0)::smallint
$$;

-- Host and port of a URL as they stand there.
CREATE FUNCTION authority_of(p_url text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT split_part(split_part(split_part(lower(p_url), '/', 3), '?', 1), '#', 1)
$$;

-- The key of caps and breakers: scheme, host and port of a target; NULL of NULL. Not STRICT: it would not be inlined.
CREATE FUNCTION endpoint_of(p_target_url text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT lower(split_part(p_target_url, ':', 1)) || '://' || rtrim(authority_of(p_target_url), '.')
    || CASE WHEN authority_of(p_target_url) ~ ':[0-9]+$' THEN '' WHEN p_target_url ILIKE 'https:%' THEN ':443' ELSE ':80' END
$$;

CREATE TABLE dispatch_job (
  outbox_id            uuid PRIMARY KEY,
  external_id          text CHECK (length(external_id) <= 32),
  source               text NOT NULL,
  type                 text NOT NULL,
  participant_id       text,
  mode                 text NOT NULL CHECK (mode IN ('IMMEDIATE', 'NEXT_ON_ERROR', 'BLOCK_ON_ERROR')),
  rail_type            text NOT NULL,
  pool                 text,
  target_url           text NOT NULL,
  protocol             text NOT NULL DEFAULT 'HTTP_WEBHOOK' CHECK (protocol = 'HTTP_WEBHOOK'),
  headers              jsonb CHECK (jsonb_typeof(headers) = 'object'),
  payload              bytea NOT NULL,
  payload_content_type text NOT NULL,
  credentials_id       uuid NOT NULL,
  max_attempts         integer NOT NULL CHECK (max_attempts BETWEEN 1 AND 100),
  retry_strategy       text NOT NULL CHECK (retry_strategy IN ('exponential', 'fixed', 'immediate')),
  timeout_ms           integer NOT NULL CHECK (timeout_ms BETWEEN 1000 AND 90000),
  scheduled_for        timestamptz,
  expires_at           timestamptz,
  instruction_id       text,
  idempotency_key      text,
  replay_of            uuid,
  rail_key             uuid NOT NULL,
  traceparent          text,
  created_at           timestamptz NOT NULL
) PARTITION BY RANGE (outbox_id);
COMMENT ON COLUMN dispatch_job.rail_key IS
  'the idempotency key that the rail sees: the first id in a chain of replays';
-- The bytes are stored as they came; compressing them again costs more than it saves at these sizes.
ALTER TABLE dispatch_job ALTER COLUMN payload SET STORAGE EXTERNAL;
CREATE INDEX idx_dispatch_external_id ON dispatch_job (external_id) WHERE external_id IS NOT NULL;
CREATE INDEX idx_dispatch_source ON dispatch_job (source, outbox_id);
CREATE INDEX idx_dispatch_type ON dispatch_job (type, outbox_id);
CREATE INDEX idx_dispatch_group_id ON dispatch_job (participant_id, outbox_id) WHERE participant_id IS NOT NULL;
CREATE INDEX idx_dispatch_scheduled ON dispatch_job (scheduled_for) WHERE scheduled_for IS NOT NULL;
-- Our own lists go by id. This one is for people's SQL with a bound on created_at: rows come in that order, so a few
-- bytes for each stretch of pages say where a time is, and nothing is written for each row.
CREATE INDEX idx_dispatch_created ON dispatch_job USING brin (created_at) WITH (pages_per_range = 16, autosummarize = on);

CREATE TABLE dispatch_job_metadata (
  dispatch_job_id uuid NOT NULL,
  meta_key        text NOT NULL,
  meta_value      text NOT NULL,
  CONSTRAINT idx_metadata_job_id PRIMARY KEY (dispatch_job_id, meta_key)
) PARTITION BY RANGE (dispatch_job_id);
CREATE INDEX idx_metadata_key_value ON dispatch_job_metadata (meta_key, meta_value, dispatch_job_id);

CREATE TABLE dispatch_job_outcome (
  outbox_id       uuid PRIMARY KEY,
  status          text NOT NULL CHECK (status IN ('COMPLETED', 'ERROR', 'CANCELLED', 'EXPIRED')),
  participant_id  text,
  sequence_id     bigint,
  attempt_count   integer NOT NULL CHECK (attempt_count >= 0),
  last_error      text,
  duration_millis bigint,
  recorded_at     timestamptz NOT NULL
) PARTITION BY RANGE (outbox_id);
CREATE INDEX idx_dispatch_status ON dispatch_job_outcome (status, outbox_id) WHERE status <> 'COMPLETED';

CREATE TABLE payment_outbox_attempt_archive (
  outbox_id          uuid NOT NULL,
  attempt_no         integer NOT NULL CHECK (attempt_no >= 1),
  late               boolean NOT NULL,
  attempt_id         uuid NOT NULL,
  state              text NOT NULL CHECK (state IN
    ('DISPATCHED', 'RETRYABLE', 'FAILED', 'ZOMBIE_REQUEUE', 'DEFERRED', 'NOT_STARTED')),
  participant_id     text,
  sequence_id        bigint,
  rail_type          text NOT NULL,
  epoch              bigint NOT NULL,
  node_id            uuid NOT NULL,
  claimed_at         timestamptz NOT NULL,
  completed_at       timestamptz,
  recorded_at        timestamptz NOT NULL,
  latency_ms         integer,
  response_code      integer,
  response_body      bytea,
  response_truncated boolean NOT NULL DEFAULT false,
  rail_reference     text,
  rail_code          text,
  error_code         text,
  error_message      text CHECK (length(error_message) <= 4000),
  CONSTRAINT idx_attempt_job_id PRIMARY KEY (outbox_id, attempt_no, late)
) PARTITION BY RANGE (outbox_id);
CREATE UNIQUE INDEX ux_attempt_terminal ON payment_outbox_attempt_archive (outbox_id)
  WHERE state IN ('DISPATCHED', 'FAILED') AND NOT late;
-- S3's word for an attempt, which the view dispatch_attempt shows (V9). It is inlined, so a condition on the view's status
-- finds the index. Successes, nearly all rows, are not in it.
CREATE FUNCTION attempt_status(p_state text, p_error_code text, p_error_message text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT CASE p_state
    WHEN 'DISPATCHED' THEN 'SUCCESS'
    WHEN 'ZOMBIE_REQUEUE' THEN 'UNKNOWN'
    WHEN 'DEFERRED' THEN 'DEFERRED'
    WHEN 'NOT_STARTED' THEN 'NOT_STARTED'
    ELSE CASE
      WHEN p_error_code IN ('DISPATCH_TIMEOUT', 'CONNECT_TIMEOUT')
        OR p_error_code = 'RETRY_CEILING_EXCEEDED'
           AND (starts_with(p_error_message, 'DISPATCH_TIMEOUT') OR starts_with(p_error_message, 'CONNECT_TIMEOUT'))
      THEN 'TIMEOUT' ELSE 'FAILURE' END
    END
$$;
CREATE INDEX idx_attempt_status ON payment_outbox_attempt_archive (attempt_status(state, error_code, error_message))
  WHERE attempt_status(state, error_code, error_message) <> 'SUCCESS';
CREATE INDEX idx_attempt_attempted_at ON payment_outbox_attempt_archive USING brin (claimed_at)
  WITH (pages_per_range = 16, autosummarize = on);
CREATE INDEX ix_attempts_failed ON payment_outbox_attempt_archive (recorded_at) WHERE state = 'FAILED' AND NOT late;

-- Append-only, whoever asks: the owner as well.
CREATE FUNCTION refuse_change() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  RAISE EXCEPTION 'attempts are append-only: % refused', TG_OP
    USING ERRCODE = 'P0001', HINT = 'a correction is a new row; nothing that was recorded is ever changed';
END $$;
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON payment_outbox_attempt_archive
  FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER append_only_truncate BEFORE TRUNCATE ON payment_outbox_attempt_archive
  FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

-- Outlives the message: a key that was used stays used.
CREATE TABLE idempotency_key (
  kind         text NOT NULL CHECK (kind IN ('instruction', 'source', 'event')),
  scope        text NOT NULL,
  key          text NOT NULL,
  outbox_id    uuid NOT NULL,
  content_hash bytea NOT NULL,
  created_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (kind, scope, key)
);
CREATE INDEX ix_idempotency_age ON idempotency_key (created_at);
