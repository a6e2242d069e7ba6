-- What changes: small, in memory, vacuumed eagerly.

-- Producers': the row lock, held to commit, makes sequence order the order of commits inside a group.
CREATE TABLE participant_outbox_sequences (
  participant_id   text PRIMARY KEY CHECK (participant_id <> '' AND length(participant_id) <= 255),
  next_sequence_id bigint NOT NULL CHECK (next_sequence_id >= 1)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);

CREATE TABLE payment_outbox_pending (
  outbox_id       uuid PRIMARY KEY,
  participant_id  text,
  sequence_id     bigint CHECK (sequence_id >= 1),
  partition_id    smallint NOT NULL CHECK (partition_id BETWEEN 0 AND 255),
  rail_type       text NOT NULL,
  endpoint        text NOT NULL,
  mode            text NOT NULL,
  max_attempts    integer NOT NULL,
  timeout_ms      integer NOT NULL,
  attempt_count   integer NOT NULL DEFAULT 0 CHECK (attempt_count >= 0),
  failures        integer NOT NULL DEFAULT 0 CHECK (failures >= 0),
  zombies         integer NOT NULL DEFAULT 0 CHECK (zombies >= 0),
  next_attempt_at timestamptz NOT NULL,
  created_at      timestamptz NOT NULL,
  UNIQUE (participant_id, sequence_id),
  CHECK ((participant_id IS NULL) = (sequence_id IS NULL))
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
COMMENT ON COLUMN payment_outbox_pending.attempt_count IS 'begins so far, those that sent nothing included';
COMMENT ON COLUMN payment_outbox_pending.failures IS 'retry budget spent: answered failures and unknowns';
COMMENT ON COLUMN payment_outbox_pending.zombies IS 'times that a dead node left it in doubt';
CREATE INDEX ix_pending_unordered ON payment_outbox_pending (partition_id, next_attempt_at, outbox_id)
  WHERE participant_id IS NULL;
-- S3's FAILED: few among many that wait.
CREATE INDEX ix_pending_failed ON payment_outbox_pending (outbox_id) WHERE failures > 0;

CREATE TABLE scheduled_job (
  outbox_id    uuid PRIMARY KEY,
  partition_id smallint NOT NULL CHECK (partition_id BETWEEN 0 AND 255),
  due_at       timestamptz NOT NULL
);
CREATE INDEX ix_scheduled_due ON scheduled_job (partition_id, due_at, outbox_id);

-- A hint where to look: may be early, never late.
CREATE TABLE ready_group (
  participant_id text PRIMARY KEY,
  partition_id   smallint NOT NULL CHECK (partition_id BETWEEN 0 AND 255),
  due_at         timestamptz NOT NULL
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX ix_ready_due ON ready_group (partition_id, due_at, participant_id);

-- Several reasons may stand at once; only a recorded decision deletes one.
CREATE TABLE group_hold (
  participant_id text NOT NULL,
  kind           text NOT NULL CHECK (kind IN ('blocked', 'in_doubt', 'paused')),
  outbox_id      uuid,
  reason         text NOT NULL,
  actor          text NOT NULL,
  since          timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (participant_id, kind)
);
CREATE INDEX ix_hold_outbox ON group_hold (outbox_id);

-- Intent, committed before the first byte. UNIQUE (participant_id): not even a bug has two of one group in flight.
CREATE TABLE in_flight (
  attempt_id     uuid PRIMARY KEY,
  outbox_id      uuid NOT NULL UNIQUE,
  participant_id text UNIQUE,
  sequence_id    bigint,
  partition_id   smallint NOT NULL,
  epoch          bigint NOT NULL,
  node_id        uuid NOT NULL,
  rail_type      text NOT NULL,
  endpoint       text NOT NULL,
  mode           text NOT NULL,
  on_unknown     text NOT NULL CHECK (on_unknown IN ('retry', 'hold')),
  max_attempts   integer NOT NULL,
  timeout_ms     integer NOT NULL,
  attempt_no     integer NOT NULL CHECK (attempt_no >= 1),
  failures       integer NOT NULL,
  zombies        integer NOT NULL,
  known_success  boolean NOT NULL DEFAULT false,
  claimed_at     timestamptz NOT NULL,
  call_deadline  timestamptz NOT NULL,
  created_at     timestamptz NOT NULL,
  CHECK ((participant_id IS NULL) = (sequence_id IS NULL))
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
COMMENT ON COLUMN in_flight.known_success IS
  'an earlier attempt turned out to have succeeded: this one''s failure ends the message too';

-- Rails by name. Rows come from configuration at start; the kill switch is a table of its own.
CREATE TABLE rail (
  rail_type      text PRIMARY KEY CHECK (rail_type ~ '^[a-z][a-z0-9_]{0,62}$'),
  kind           text NOT NULL CHECK (kind IN ('webhook', 'payment')),
  on_unknown     text NOT NULL CHECK (on_unknown IN ('retry', 'hold')),
  target_url     text,
  credentials_id uuid
);
COMMENT ON COLUMN rail.target_url IS 'where jobs of this rail go that name no target';
INSERT INTO rail (rail_type, kind, on_unknown) VALUES ('webhook', 'webhook', 'retry'), ('payment_webhook', 'payment', 'hold');

CREATE TABLE rail_switch (
  kind   text NOT NULL CHECK (kind IN ('rail', 'pool', 'item_type')),
  name   text NOT NULL,
  paused boolean NOT NULL,
  reason text NOT NULL,
  actor  text NOT NULL,
  since  timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (kind, name)
);

CREATE TABLE dispatch_credentials (
  credentials_id uuid PRIMARY KEY,
  name           text,
  algorithm      text NOT NULL CHECK (algorithm = 'HMAC_SHA256'),
  schemes        text[] NOT NULL,
  key_id         text NOT NULL,
  sealed         bytea NOT NULL,
  active_from    timestamptz,
  overlap_until  timestamptz,
  created_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
  updated_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
  deleted_at     timestamptz,
  CHECK (num_nulls(active_from, overlap_until) IN (0, 2)),
  CHECK (overlap_until >= active_from)
);
COMMENT ON COLUMN dispatch_credentials.sealed IS
  'bearer token and signing secret, during a rotation what replaces them, AES-256-GCM under key_id, the row''s id as associated data; empty once deleted';
COMMENT ON COLUMN dispatch_credentials.overlap_until IS
  'a rotation: what replaces the token or the secret is in effect from active_from on; what it replaces is wiped after this';
CREATE INDEX idx_dispatch_credentials_rotating ON dispatch_credentials (overlap_until) WHERE overlap_until IS NOT NULL;
