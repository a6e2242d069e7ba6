-- Events and who wants them. An event is stored with its jobs, one for each subscription that matches, in one transaction.

CREATE TABLE event (
  event_id         uuid PRIMARY KEY,
  external_id      text,
  type             text NOT NULL,
  source           text NOT NULL,
  subject          text,
  data             bytea,
  time             timestamptz,
  correlation_id   text,
  message_group    text,
  deduplication_id text,
  metadata         jsonb CHECK (jsonb_typeof(metadata) = 'object'),
  jobs             integer NOT NULL CHECK (jobs >= 0),
  created_at       timestamptz NOT NULL
) PARTITION BY RANGE (event_id);
COMMENT ON COLUMN event.data IS 'the JSON text as it came, byte for byte: the payload of its jobs';
COMMENT ON COLUMN event.jobs IS 'subscriptions that it matched when it came';
ALTER TABLE event ALTER COLUMN data SET STORAGE EXTERNAL;
INSERT INTO partitioned_table VALUES ('event', 'event_id', 'jobs');
SELECT create_day_partitions((clock_timestamp() AT TIME ZONE 'UTC')::date - 1, 16);

CREATE TABLE event_subscription (
  subscription_id uuid PRIMARY KEY,
  name            text NOT NULL UNIQUE CHECK (name ~ '^[A-Za-z0-9_.-]{1,64}$'),
  type_pattern    text NOT NULL CHECK (type_pattern <> '' AND length(type_pattern) <= 255),
  source          text CHECK (source <> '' AND length(source) <= 255),
  target_url      text NOT NULL,
  credentials_id  uuid NOT NULL,
  mode            text NOT NULL CHECK (mode IN ('IMMEDIATE', 'NEXT_ON_ERROR', 'BLOCK_ON_ERROR')),
  max_attempts    integer NOT NULL CHECK (max_attempts BETWEEN 1 AND 100),
  retry_strategy  text NOT NULL CHECK (retry_strategy IN ('exponential', 'fixed', 'immediate')),
  timeout_ms      integer NOT NULL CHECK (timeout_ms BETWEEN 1000 AND 90000),
  headers         jsonb CHECK (jsonb_typeof(headers) = 'object'),
  enabled         boolean NOT NULL DEFAULT true,
  created_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
  updated_at      timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX ix_subscription_credentials ON event_subscription (credentials_id);

-- '*' matches every type, 'order.*' every type that begins with 'order.', anything else the type that is spelt like it.
CREATE FUNCTION event_type_matches(p_pattern text, p_type text) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$
  SELECT p_pattern = '*' OR p_pattern = p_type
      OR (right(p_pattern, 2) = '.*' AND starts_with(p_type, left(p_pattern, -1)))
$$;

-- The group of an event's job: the event's own, for each subscription by itself. A name that would become too long is
-- stood for by its hash.
CREATE FUNCTION subscription_group(p_subscription_id uuid, p_message_group text) RETURNS text
LANGUAGE sql STABLE AS $$
  SELECT p_subscription_id || ':' || CASE WHEN length(p_message_group) <= 200 THEN p_message_group
                                          ELSE encode(sha256(convert_to(p_message_group, 'UTF8')), 'hex') END
$$;

-- What a receiver is told about the event beside its data: CloudEvents' headers, where the words fit into a header.
CREATE FUNCTION event_headers(p_event_id uuid, p_type text, p_source text) RETURNS jsonb
LANGUAGE sql STABLE AS $$
  SELECT jsonb_strip_nulls(jsonb_build_object('ce-specversion', '1.0', 'ce-id', p_event_id,
    'ce-type', CASE WHEN p_type ~ '^[\x21-\x7e]+$' THEN p_type END,
    'ce-source', CASE WHEN p_source ~ '^[\x21-\x7e]+$' THEN p_source END))
$$;

-- What would keep every job of such a subscription out, and its events with them: asked when it is made. The event's own
-- headers, at their longest, go out beside the subscription's.
CREATE FUNCTION subscription_fault(p_target_url text, p_mode text, p_max_attempts integer, p_retry_strategy text,
  p_timeout_ms integer, p_headers jsonb) RETURNS text
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT outbox_item_fault('webhook', true, clock_timestamp(), 'source', 'type', NULL, NULL, p_mode, 'webhook', NULL,
    p_target_url, '', 'application/json', '00000000-0000-0000-0000-000000000000', p_max_attempts, p_retry_strategy,
    p_timeout_ms, coalesce(p_headers, '{}') || event_headers('00000000-0000-0000-0000-000000000000', repeat('x', 200),
    repeat('x', 200)), NULL, NULL, NULL, NULL, NULL, NULL)
$$;

CREATE TYPE event_item AS (
  external_id      text,
  type             text,
  source           text,
  subject          text,
  data             bytea,
  time             timestamptz,
  correlation_id   text,
  message_group    text,
  deduplication_id text,
  metadata         jsonb
);

-- Stores events, in order, and their jobs, all in the caller's transaction. Keys first, in order, then enqueue_outbox takes
-- the groups in order. created, conflict: as there; outbox_id is the event's id, jobs how many subscriptions it matched.
CREATE FUNCTION publish_events(p_events event_item[])
RETURNS TABLE (ordinal integer, outbox_id uuid, created boolean, conflict boolean, sequence_id bigint,
               created_at timestamptz, fault text, jobs integer)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
#variable_conflict use_column
DECLARE
  v_at timestamptz := clock_timestamp();
  v_created_at timestamptz := date_trunc('milliseconds', v_at); -- what the ids say: see uuid7_nth
  v_ids uuid[];
  v_keys text[];
  v_hashes bytea[];
  v_first uuid[];
  v_first_at timestamptz[];
  v_created boolean[];
  v_conflict boolean[];
  v_jobs integer[];
  v_items outbox_item[];
BEGIN
  IF coalesce(cardinality(p_events), 0) = 0 THEN RETURN; END IF;
  SELECT array_agg(uuid7_nth(v_at, e.n::integer) ORDER BY e.n),
         array_agg(coalesce(e.deduplication_id, e.external_id) ORDER BY e.n),
         array_agg(sha256(sha256(coalesce(e.data, '')) || convert_to(jsonb_build_array(e.external_id, e.type, e.subject,
           e.data IS NULL, extract(epoch FROM e.time), e.correlation_id, e.message_group, e.metadata)::text, 'UTF8')) ORDER BY e.n)
  INTO v_ids, v_keys, v_hashes
  FROM unnest(p_events) WITH ORDINALITY
    AS e(external_id, type, source, subject, data, time, correlation_id, message_group, deduplication_id, metadata, n);

  INSERT INTO idempotency_key (kind, scope, key, outbox_id, content_hash, created_at)
  SELECT 'event', (k.e).source, k.key, k.id, k.hash, v_created_at
  FROM (SELECT generate_subscripts(v_ids, 1) AS n, unnest(p_events) AS e, unnest(v_keys) AS key, unnest(v_ids) AS id,
               unnest(v_hashes) AS hash) k
  WHERE k.key IS NOT NULL
  ORDER BY 2, 3, k.n
  ON CONFLICT DO NOTHING;

  SELECT array_agg(s.first ORDER BY s.n), array_agg(s.first_at ORDER BY s.n), array_agg(s.first = s.id ORDER BY s.n),
         array_agg(s.first <> s.id AND s.first_hash <> s.hash ORDER BY s.n)
  INTO v_first, v_first_at, v_created, v_conflict
  FROM (
    SELECT k.n, k.id, k.hash, coalesce(f.outbox_id, k.id) AS first, f.content_hash AS first_hash,
           coalesce(f.created_at, v_created_at) AS first_at
    FROM (SELECT generate_subscripts(v_ids, 1) AS n, unnest(p_events) AS e, unnest(v_keys) AS key, unnest(v_ids) AS id,
                 unnest(v_hashes) AS hash) k
    LEFT JOIN LATERAL (SELECT x.outbox_id, x.content_hash, x.created_at FROM idempotency_key x
                       WHERE x.kind = 'event' AND x.scope = (k.e).source AND x.key = k.key OFFSET 0) f ON true) s;

  -- The jobs in the order of their events: that is their order in each subscription's group.
  WITH wanted AS MATERIALIZED (
    SELECT k.n, k.e, k.id, s.*
    FROM (SELECT generate_subscripts(v_ids, 1) AS n, unnest(p_events) AS e, unnest(v_ids) AS id,
                 unnest(v_created) AS created) k
    JOIN event_subscription s ON s.enabled AND event_type_matches(s.type_pattern, (k.e).type)
                             AND (s.source IS NULL OR s.source = (k.e).source)
    WHERE k.created)
  SELECT (SELECT array_agg(coalesce(c.jobs, 0) ORDER BY i.n)
          FROM generate_subscripts(v_ids, 1) AS i(n)
          LEFT JOIN (SELECT w.n, count(*)::integer AS jobs FROM wanted w GROUP BY w.n) c ON c.n = i.n),
         (SELECT array_agg(ROW((w.e).source, (w.e).type,
              CASE WHEN length((w.e).external_id) <= 32 THEN (w.e).external_id END,
              subscription_group(w.subscription_id, (w.e).message_group), w.mode, 'webhook', NULL, w.target_url,
              coalesce((w.e).data, ''), 'application/json', w.credentials_id, w.max_attempts, w.retry_strategy, w.timeout_ms,
              coalesce(w.headers, '{}') || event_headers(w.id, (w.e).type, (w.e).source), coalesce((w.e).metadata, '{}') || jsonb_build_object('eventId', w.id, 'subscription', w.name),
              NULL, NULL, NULL, NULL, NULL)::outbox_item ORDER BY w.n, w.subscription_id)
          FROM wanted w)
  INTO v_jobs, v_items;

  INSERT INTO event (event_id, external_id, type, source, subject, data, time, correlation_id, message_group,
    deduplication_id, metadata, jobs, created_at)
  SELECT k.id, (k.e).external_id, (k.e).type, (k.e).source, (k.e).subject, (k.e).data, (k.e).time, (k.e).correlation_id,
    (k.e).message_group, (k.e).deduplication_id, (k.e).metadata, k.jobs, v_created_at
  FROM (SELECT unnest(p_events) AS e, unnest(v_ids) AS id, unnest(v_created) AS created, unnest(v_jobs) AS jobs) k
  WHERE k.created;

  PERFORM count(*) FROM enqueue_outbox(v_items);

  RETURN QUERY SELECT a.n, a.first, a.created, a.conflict, NULL::bigint, a.first_at, NULL::text, a.jobs
    FROM (SELECT generate_subscripts(v_ids, 1) AS n, unnest(v_first) AS first, unnest(v_created) AS created,
                 unnest(v_conflict) AS conflict, unnest(v_first_at) AS first_at, unnest(v_jobs) AS jobs) a;
END $$;

REVOKE ALL ON event, event_subscription FROM PUBLIC;
REVOKE ALL ON FUNCTION event_type_matches(text, text), subscription_group(uuid, text),
  event_headers(uuid, text, text), subscription_fault(text, text, integer, text, integer, jsonb),
  publish_events(event_item[]) FROM PUBLIC;
GRANT SELECT, INSERT ON event TO railyard_runtime;
GRANT SELECT, INSERT, UPDATE, DELETE ON event_subscription TO railyard_runtime;
GRANT EXECUTE ON FUNCTION subscription_fault(text, text, integer, text, integer, jsonb), publish_events(event_item[])
  TO railyard_runtime;
