-- Who is there and who owns what.

-- node_id is fresh at every join: a lapsed lease is never revived.
CREATE TABLE node (
  node_id     uuid PRIMARY KEY,
  name        text NOT NULL,
  process     uuid,
  address     text,
  joined_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
  lease_until timestamptz NOT NULL,
  leaving     boolean NOT NULL DEFAULT false
) WITH (fillfactor = 50);
COMMENT ON COLUMN node.process IS 'fresh at each start of a process, the same over its memberships; NULL: it has no links';
COMMENT ON COLUMN node.address IS 'where other nodes reach it, host:port';
COMMENT ON COLUMN node.leaving IS 'it lets its calls end, owns nothing and takes nothing';

CREATE TABLE partition_lease (
  partition_id smallint PRIMARY KEY CHECK (partition_id BETWEEN 0 AND 255),
  owner        uuid,
  epoch        bigint NOT NULL DEFAULT 0,
  moved_at     timestamptz NOT NULL DEFAULT '-infinity'
) WITH (fillfactor = 50);
INSERT INTO partition_lease (partition_id) SELECT generate_series(0, 255);

CREATE TABLE admin_audit (
  audit_id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  at             timestamptz NOT NULL DEFAULT clock_timestamp(),
  action         text NOT NULL,
  actor          text NOT NULL,
  reason         text,
  participant_id text,
  outbox_id      uuid,
  detail         jsonb
);
CREATE INDEX ix_audit_group ON admin_audit (participant_id, audit_id);
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON admin_audit
  FOR EACH ROW EXECUTE FUNCTION refuse_change();
