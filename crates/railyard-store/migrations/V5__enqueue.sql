-- How work comes in, inside the caller's own transaction. SQLSTATEs: RY400 bad input (COLUMN names the field),
-- RY409 an idempotency key that was used for other content.

CREATE TYPE outbox_item AS (
  source               text,
  type                 text,
  external_id          text,
  participant_id       text,
  mode                 text,
  rail_type            text,
  pool                 text,
  target_url           text,
  payload              bytea,
  payload_content_type text,
  credentials_id       uuid,
  max_attempts         integer,
  retry_strategy       text,
  timeout_ms           integer,
  headers              jsonb,
  metadata             jsonb,
  scheduled_for        timestamptz,
  expires_at           timestamptz,
  instruction_id       text,
  idempotency_key      text,
  traceparent          text
);

-- Faults are texts: 'field: what is wrong with it', or NULL where nothing is. Functions of one expression are inlined into
-- the statements that check a thousand items at once.
CREATE FUNCTION refuse_item(p_ordinal integer, p_fault text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  RAISE EXCEPTION '%', p_fault
    USING ERRCODE = 'RY400', COLUMN = split_part(p_fault, ': ', 1), DETAIL = format('item %s', p_ordinal),
          HINT = 'correct the named field; nothing of this call was stored';
END $$;

CREATE FUNCTION text_fault(p_field text, p_value text, p_chars_max integer, p_required boolean) RETURNS text
LANGUAGE sql STABLE AS $$
  SELECT CASE WHEN p_value IS NULL THEN CASE WHEN p_required THEN p_field || ': is required' END
              WHEN p_value = '' THEN p_field || ': must not be empty'
              WHEN length(p_value) > p_chars_max
                THEN p_field || ': at most ' || p_chars_max || ' characters, got ' || length(p_value) END
$$;

-- A map of text to text, as headers and metadata are.
CREATE FUNCTION map_fault(p_field text, p_value jsonb, p_entries_max integer) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  RETURN p_field || CASE
    WHEN jsonb_typeof(p_value) <> 'object' THEN ': must be a JSON object of strings'
    WHEN (SELECT count(*) FROM jsonb_object_keys(p_value)) > p_entries_max THEN format(': at most %s entries', p_entries_max)
    WHEN EXISTS (SELECT 1 FROM jsonb_each(p_value) e WHERE jsonb_typeof(e.value) <> 'string' OR e.key = '')
      THEN ': every key must be non-empty and every value a string' END;
END $$;

-- Headers that Railyard sets itself or that belong to one hop; railyard_core::headers holds the same list.
CREATE FUNCTION headers_fault(p_headers jsonb) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
  v record;
  v_fault text := map_fault('headers', p_headers, 50);
BEGIN
  IF v_fault IS NOT NULL THEN RETURN v_fault; END IF;
  IF (SELECT sum(octet_length(e.key) + octet_length(e.value)) FROM jsonb_each_text(p_headers) e) > 8192 THEN
    RETURN 'headers: at most 8192 bytes in all';
  END IF;
  FOR v IN SELECT lower(e.key) AS name, e.key, e.value FROM jsonb_each_text(p_headers) e LOOP
    IF v.key !~ '^[A-Za-z0-9!#$%&''*+.^_`|~-]+$' THEN
      RETURN format('headers: %s is not a header name', to_jsonb(v.key));
    ELSIF v.value ~ '[\x01-\x08\x0a-\x1f\x7f]' THEN
      RETURN format('headers: %s has a control character in its value', v.key);
    ELSIF v.name ~ '^(x-flowcatalyst-|webhook-|x-railyard-|proxy-)'
       OR v.name IN ('authorization', 'host', 'content-length', 'content-type', 'content-encoding', 'transfer-encoding',
                     'connection', 'keep-alive', 'te', 'trailer', 'upgrade', 'expect', 'user-agent', 'http2-settings',
                     'idempotency-key', 'traceparent', 'tracestate') THEN
      RETURN format('headers: %s is reserved', v.key);
    END IF;
  END LOOP;
  IF (SELECT count(*) <> count(DISTINCT lower(k)) FROM jsonb_object_keys(p_headers) k) THEN
    RETURN 'headers: two names differ in letter case only';
  END IF;
  RETURN NULL;
END $$;

CREATE FUNCTION metadata_fault(p_metadata jsonb) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  RETURN coalesce(map_fault('metadata', p_metadata, 50), CASE
    -- Bytes: both together are a row of an index.
    WHEN EXISTS (SELECT 1 FROM jsonb_each_text(p_metadata) m WHERE octet_length(m.key) > 128 OR octet_length(m.value) > 1024)
      THEN 'metadata: keys at most 128, values at most 1024 bytes' END);
END $$;

CREATE FUNCTION payment_payload_fault(p_payload bytea) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  IF json_typeof(convert_from(p_payload, 'UTF8')::json) = 'object' THEN RETURN NULL; END IF;
  RETURN 'payload: a payment rail takes a JSON object';
EXCEPTION WHEN data_exception OR statement_too_complex OR character_not_in_repertoire OR untranslatable_character THEN
  RETURN 'payload: a payment rail takes a JSON object';
END $$;

-- The first fault of an item whose defaults are filled in. p_kind is its rail's, NULL if there is no such rail.
CREATE FUNCTION outbox_item_fault(
  p_kind text, p_credentials_known boolean, p_at timestamptz,
  p_source text, p_type text, p_external_id text, p_participant_id text, p_mode text, p_rail_type text, p_pool text,
  p_target_url text, p_payload bytea, p_payload_content_type text, p_credentials_id uuid, p_max_attempts integer,
  p_retry_strategy text, p_timeout_ms integer, p_headers jsonb, p_metadata jsonb, p_scheduled_for timestamptz,
  p_expires_at timestamptz, p_instruction_id text, p_idempotency_key text, p_traceparent text) RETURNS text
LANGUAGE sql STABLE AS $$
  SELECT coalesce(
    CASE WHEN p_kind IS NULL THEN 'rail_type: ' || to_jsonb(p_rail_type)::text || ' is not a configured rail' END,
    text_fault('source', p_source, 255, true),
    text_fault('type', p_type, 255, true),
    text_fault('external_id', p_external_id, 32, false),
    text_fault('participant_id', p_participant_id, 255, p_kind = 'payment'),
    CASE WHEN p_participant_id ~ '[\x01-\x1f\x7f]'
      THEN 'participant_id: must not have control characters: it goes out as a header' END,
    text_fault('pool', p_pool, 255, false),
    text_fault('instruction_id', p_instruction_id, 255, false),
    text_fault('idempotency_key', p_idempotency_key, 255, p_instruction_id IS NOT NULL),
    CASE WHEN p_payload_content_type <> 'application/json' THEN coalesce(
      text_fault('payload_content_type', p_payload_content_type, 255, true),
      CASE WHEN p_payload_content_type !~ '^[\x20-\x7e]+$' THEN 'payload_content_type: must be printable ASCII' END) END,
    text_fault('target_url', p_target_url, 2048, true),
    CASE WHEN p_mode NOT IN ('IMMEDIATE', 'NEXT_ON_ERROR', 'BLOCK_ON_ERROR')
      THEN 'mode: must be IMMEDIATE, NEXT_ON_ERROR or BLOCK_ON_ERROR' END,
    CASE WHEN p_retry_strategy NOT IN ('exponential', 'fixed', 'immediate')
      THEN 'retry_strategy: must be exponential, fixed or immediate' END,
    CASE WHEN p_max_attempts NOT BETWEEN 1 AND 100 THEN 'max_attempts: must be 1 to 100, got ' || p_max_attempts END,
    CASE WHEN p_timeout_ms NOT BETWEEN 1000 AND 90000 THEN 'timeout_ms: must be 1000 to 90000, got ' || p_timeout_ms END,
    CASE WHEN p_target_url !~* '^https?://[^/?#\\@[:space:][:cntrl:]]+([/?#][^[:space:][:cntrl:]]*)?$'
      THEN 'target_url: must be an http or https URL with a host and without user name' END,
    CASE WHEN p_traceparent !~ '^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$'
      THEN 'traceparent: is not a W3C traceparent' END,
    CASE WHEN p_payload IS NULL THEN 'payload: is required'
         WHEN octet_length(p_payload) > 16777216
           THEN 'payload: at most 16777216 bytes, got ' || octet_length(p_payload)
         WHEN p_kind = 'payment' THEN payment_payload_fault(p_payload) END,
    CASE WHEN p_credentials_id IS NULL THEN 'credentials_id: is required: nothing is sent unsigned'
         WHEN NOT p_credentials_known THEN 'credentials_id: ' || p_credentials_id || ' is unknown' END,
    CASE WHEN p_scheduled_for = 'infinity' OR p_scheduled_for > p_at + interval '366 days'
      THEN 'scheduled_for: at most 366 days ahead' END,
    CASE WHEN p_expires_at <= greatest(p_scheduled_for, p_at) THEN 'expires_at: must lie ahead, and after the time for which it is scheduled' END,
    CASE WHEN p_headers IS NOT NULL THEN headers_fault(p_headers) END,
    CASE WHEN p_metadata IS NOT NULL THEN metadata_fault(p_metadata) END)
$$;

-- What makes two jobs the same: what the receiver gets, where, when, and in which order.
CREATE FUNCTION content_hash(
  p_payload bytea, p_type text, p_target_url text, p_credentials_id uuid, p_participant_id text, p_mode text,
  p_headers jsonb, p_metadata jsonb, p_scheduled_as_given timestamptz) RETURNS bytea
LANGUAGE sql STABLE AS $$
  SELECT sha256(sha256(p_payload) || convert_to(ROW(
    p_type, p_target_url, p_credentials_id, p_participant_id, p_mode, p_headers, p_metadata,
    extract(epoch FROM p_scheduled_as_given))::text, 'UTF8'))
$$;

-- Whether this very content was taken under this key. Its repeat has no fault, whatever has passed or gone since: an expiry,
-- the credentials. Asked for faulty items alone.
CREATE FUNCTION taken_before(p_source text, p_instruction_id text, p_idempotency_key text, p_hash bytea) RETURNS boolean
LANGUAGE sql STABLE AS $$
  SELECT EXISTS (SELECT 1 FROM idempotency_key k
                 WHERE k.kind = CASE WHEN p_instruction_id IS NULL THEN 'source' ELSE 'instruction' END
                   AND k.scope = coalesce(p_instruction_id, p_source) AND k.key = p_idempotency_key
                   AND k.content_hash = p_hash)
$$;

-- What an item leaves out: defaults of its rail's kind. One place for both ways in.
CREATE FUNCTION default_mode(p_kind text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
  SELECT CASE p_kind WHEN 'payment' THEN 'BLOCK_ON_ERROR' ELSE 'NEXT_ON_ERROR' END
$$;
CREATE FUNCTION default_max_attempts(p_kind text) RETURNS integer LANGUAGE sql IMMUTABLE AS $$
  SELECT CASE p_kind WHEN 'payment' THEN 20 ELSE 3 END
$$;

-- The way in for many. All items in one transaction, the caller's: keys first, in order, then groups, in order, so that
-- two callers never wait for each other in a circle. A constant number of statements whatever the number of items.
-- created = false: the key was used before, outbox_id is the first's; conflict = true: for other content. created_at is the
-- first's too. An item with a fault fails the call (RY400), or, with p_partial, is left out and says so in `fault`.
CREATE FUNCTION enqueue_outbox(p_items outbox_item[], p_partial boolean DEFAULT false)
RETURNS TABLE (ordinal integer, outbox_id uuid, created boolean, conflict boolean, sequence_id bigint,
               created_at timestamptz, fault text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
#variable_conflict use_column
DECLARE
  v_at timestamptz := clock_timestamp();
  v_created_at timestamptz := date_trunc('milliseconds', v_at); -- what the ids say: see uuid7_nth
  v_us bigint := floor(extract(epoch FROM v_at) * 1000000)::bigint;
  -- Random bits for all ids of the call: to ask the system for each costs as much as to store a row.
  v_seed text := gen_random_uuid()::text;
  -- One value an item, in the order of the items. Payloads stand apart, so that nothing else copies them.
  v_items outbox_item[];
  v_payloads bytea[];
  v_ids uuid[];
  v_hashes bytea[];
  v_faults text[];
  v_first uuid[];
  v_first_at timestamptz[];
  v_created boolean[];
  v_conflict boolean[];
  v_sequences bigint[];
  v_bad integer;
  v_keys integer;
  v_any_metadata boolean;
  v_any_scheduled boolean;
  v_taken integer;
  v_notify boolean := coalesce(current_setting('railyard.notify', true), '') <> 'off';
  v_wake boolean := false;
BEGIN
  IF coalesce(cardinality(p_items), 0) = 0 THEN RETURN; END IF;

  SELECT array_agg(ROW(i.source, i.type, i.external_id, i.participant_id, i.mode, i.rail_type, i.pool, i.target_url, NULL,
           i.payload_content_type, i.credentials_id, i.max_attempts, i.retry_strategy, i.timeout_ms, i.headers, i.metadata,
           i.scheduled_for, i.expires_at, i.instruction_id, i.idempotency_key, i.traceparent)::outbox_item),
         array_agg(i.payload), array_agg(i.id), array_agg(i.hash), array_agg(i.fault), array_agg(i.fault IS NULL),
         min(i.n) FILTER (WHERE i.fault IS NOT NULL),
         count(i.idempotency_key) FILTER (WHERE i.fault IS NULL),
         bool_or(i.metadata IS NOT NULL), bool_or(i.scheduled_for > v_at)
  INTO v_items, v_payloads, v_ids, v_hashes, v_faults, v_created, v_bad, v_keys, v_any_metadata, v_any_scheduled
  FROM (
    SELECT g.*, uuid7_of(v_us, g.n::integer, md5(v_seed || g.n)) AS id,
      CASE WHEN g.idempotency_key IS NOT NULL THEN content_hash(g.payload, g.type, g.target_url, g.credentials_id,
        g.participant_id, g.mode, g.headers, g.metadata, g.scheduled_for) END AS hash,
      outbox_item_fault(g.kind, EXISTS (SELECT 1 FROM dispatch_credentials c
                                        WHERE c.credentials_id = g.credentials_id AND c.deleted_at IS NULL), v_at,
        g.source, g.type, g.external_id, g.participant_id, g.mode, g.rail_type, g.pool, g.target_url, g.payload,
        g.payload_content_type, g.credentials_id, g.max_attempts, g.retry_strategy, g.timeout_ms, g.headers, g.metadata,
        g.scheduled_for, g.expires_at, g.instruction_id, g.idempotency_key, g.traceparent) AS fault
    FROM (
      SELECT t.n, r.kind, t.source, t.type, t.external_id, t.participant_id, coalesce(t.mode, default_mode(r.kind)) AS mode,
        coalesce(t.rail_type, 'webhook') AS rail_type, t.pool, coalesce(t.target_url, r.target_url) AS target_url, t.payload,
        coalesce(t.payload_content_type, 'application/json') AS payload_content_type,
        coalesce(t.credentials_id, r.credentials_id) AS credentials_id,
        coalesce(t.max_attempts, default_max_attempts(r.kind)) AS max_attempts,
        coalesce(t.retry_strategy, 'exponential') AS retry_strategy, coalesce(t.timeout_ms, 30000) AS timeout_ms,
        t.headers, t.metadata, t.scheduled_for, t.expires_at, t.instruction_id, t.idempotency_key, t.traceparent
      FROM unnest(p_items) WITH ORDINALITY AS t(source, type, external_id, participant_id, mode, rail_type, pool, target_url,
        payload, payload_content_type, credentials_id, max_attempts, retry_strategy, timeout_ms, headers, metadata,
        scheduled_for, expires_at, instruction_id, idempotency_key, traceparent, n)
      LEFT JOIN rail r ON r.rail_type = coalesce(t.rail_type, 'webhook')
      ORDER BY t.n
      -- Keeps what is computed above from being computed anew at each use.
      OFFSET 0) g
    OFFSET 0) i;
  IF v_bad IS NOT NULL THEN
    SELECT array_agg(f.fault ORDER BY f.n), array_agg(f.fault IS NULL ORDER BY f.n),
           min(f.n) FILTER (WHERE f.fault IS NOT NULL), count((f.i).idempotency_key) FILTER (WHERE f.fault IS NULL)
    INTO v_faults, v_created, v_bad, v_keys
    FROM (SELECT t.n, t.i, CASE WHEN t.fault IS NOT NULL
                   AND NOT taken_before((t.i).source, (t.i).instruction_id, (t.i).idempotency_key, t.hash) THEN t.fault END AS fault
          FROM (SELECT generate_subscripts(v_ids, 1) AS n, unnest(v_items) AS i, unnest(v_hashes) AS hash,
                       unnest(v_faults) AS fault) t) f;
    IF v_bad IS NOT NULL AND NOT p_partial THEN PERFORM refuse_item(v_bad, v_faults[v_bad]); END IF;
  END IF;

  v_first := v_ids;
  v_first_at := array_fill(v_created_at, ARRAY[cardinality(v_ids)]);
  v_conflict := array_fill(false, ARRAY[cardinality(v_ids)]);
  IF v_keys > 0 THEN
    INSERT INTO idempotency_key (kind, scope, key, outbox_id, content_hash, created_at)
    SELECT k.kind, k.scope, k.key, k.id, k.hash, v_created_at
    FROM (SELECT t.n, CASE WHEN (t.i).instruction_id IS NULL THEN 'source' ELSE 'instruction' END AS kind,
                 coalesce((t.i).instruction_id, (t.i).source) AS scope, (t.i).idempotency_key AS key, t.id, t.hash
          FROM (SELECT generate_subscripts(v_ids, 1) AS n, unnest(v_items) AS i, unnest(v_ids) AS id,
                       unnest(v_hashes) AS hash, unnest(v_created) AS good) t
          WHERE t.good AND (t.i).idempotency_key IS NOT NULL) k
    -- In the order of bytes: nobody but this function takes several keys, and it is compared fastest.
    ORDER BY k.kind COLLATE "C", k.scope COLLATE "C", k.key COLLATE "C", k.n
    ON CONFLICT DO NOTHING;
    GET DIAGNOSTICS v_taken = ROW_COUNT;
    IF v_taken < v_keys THEN
      SELECT array_agg(s.first), array_agg(s.first_at), array_agg(s.good AND s.first = s.id),
             array_agg(s.good AND s.first <> s.id AND s.first_hash <> s.hash)
      INTO v_first, v_first_at, v_created, v_conflict
      FROM (
        SELECT k.id, k.hash, k.good, coalesce(f.outbox_id, k.id) AS first, f.content_hash AS first_hash,
               coalesce(f.created_at, v_created_at) AS first_at
        FROM (SELECT generate_subscripts(v_ids, 1) AS n, unnest(v_items) AS i, unnest(v_ids) AS id,
                     unnest(v_hashes) AS hash, unnest(v_created) AS good) k
        -- OFFSET 0: a look-up each, whatever the planner thinks of the table's size.
        LEFT JOIN LATERAL (SELECT x.outbox_id, x.content_hash, x.created_at FROM idempotency_key x
                           WHERE x.kind = CASE WHEN (k.i).instruction_id IS NULL THEN 'source' ELSE 'instruction' END
                             AND x.scope = coalesce((k.i).instruction_id, (k.i).source) AND x.key = (k.i).idempotency_key
                           OFFSET 0) f ON k.good
        ORDER BY k.n) s;
    END IF;
  END IF;

  INSERT INTO dispatch_job (outbox_id, external_id, source, type, participant_id, mode, rail_type, pool, target_url,
    headers, payload, payload_content_type, credentials_id, max_attempts, retry_strategy, timeout_ms, scheduled_for,
    expires_at, instruction_id, idempotency_key, rail_key, traceparent, created_at)
  SELECT j.id, j.external_id, j.source, j.type, j.participant_id, j.mode, j.rail_type, j.pool, j.target_url,
    j.headers, j.bytes, j.payload_content_type, j.credentials_id, j.max_attempts, j.retry_strategy, j.timeout_ms, j.scheduled_for,
    j.expires_at, j.instruction_id, j.idempotency_key, j.id, j.traceparent, v_created_at
  FROM ROWS FROM (unnest(v_items), unnest(v_payloads), unnest(v_ids), unnest(v_created))
    AS j(source, type, external_id, participant_id, mode, rail_type, pool, target_url, payload, payload_content_type,
      credentials_id, max_attempts, retry_strategy, timeout_ms, headers, metadata, scheduled_for, expires_at, instruction_id,
      idempotency_key, traceparent, bytes, id, created)
  WHERE j.created;

  IF v_any_metadata THEN
    INSERT INTO dispatch_job_metadata (dispatch_job_id, meta_key, meta_value)
    SELECT j.id, m.key, m.value
    FROM (SELECT unnest(v_items) AS i, unnest(v_ids) AS id, unnest(v_created) AS created) j,
         jsonb_each_text((j.i).metadata) m
    WHERE j.created;
  END IF;
  IF v_any_scheduled THEN
    INSERT INTO scheduled_job (outbox_id, partition_id, due_at)
    SELECT j.id, CASE WHEN (j.i).participant_id IS NULL OR (j.i).mode = 'IMMEDIATE' THEN partition_of_id(j.id)
                      ELSE partition_of((j.i).participant_id) END, (j.i).scheduled_for
    FROM (SELECT unnest(v_items) AS i, unnest(v_ids) AS id, unnest(v_created) AS created) j
    WHERE j.created AND (j.i).scheduled_for > v_at;
  END IF;

  -- As late as may be: producers of one group queue behind this row until the commit.
  WITH numbered AS MATERIALIZED (
    SELECT j.n, j.participant_id, row_number() OVER w AS rank, count(*) OVER (PARTITION BY j.participant_id) AS total
    FROM (SELECT k.n, (k.i).participant_id
          FROM (SELECT generate_subscripts(v_ids, 1) AS n, unnest(v_items) AS i, unnest(v_created) AS created) k
          WHERE k.created AND (k.i).participant_id IS NOT NULL AND (k.i).mode <> 'IMMEDIATE'
            AND ((k.i).scheduled_for IS NULL OR (k.i).scheduled_for <= v_at)) j
    WINDOW w AS (PARTITION BY j.participant_id ORDER BY j.n)
  ), bumped AS (
    INSERT INTO participant_outbox_sequences AS s (participant_id, next_sequence_id)
    SELECT participant_id, total + 1 FROM numbered WHERE rank = 1 ORDER BY participant_id
    ON CONFLICT (participant_id) DO UPDATE SET next_sequence_id = s.next_sequence_id + excluded.next_sequence_id - 1
    RETURNING s.participant_id, s.next_sequence_id
  )
  SELECT array_agg(a.sequence_id) INTO v_sequences
  FROM (SELECT b.next_sequence_id - m.total + m.rank - 1 AS sequence_id
        FROM generate_series(1, cardinality(v_ids)) AS i(n)
        LEFT JOIN (numbered m JOIN bumped b USING (participant_id)) ON m.n = i.n
        ORDER BY i.n) a;

  IF v_notify THEN
    -- An unordered message wakes the relayer only where none stands before it: that one has woken it already.
    v_wake := EXISTS (
      SELECT 1
      FROM (SELECT unnest(v_items) AS i, unnest(v_ids) AS id, unnest(v_created) AS created) j
      WHERE j.created AND ((j.i).participant_id IS NULL OR (j.i).mode = 'IMMEDIATE')
        AND ((j.i).scheduled_for IS NULL OR (j.i).scheduled_for <= v_at)
        AND NOT EXISTS (SELECT 1 FROM payment_outbox_pending p
                        WHERE p.participant_id IS NULL AND p.partition_id = partition_of_id(j.id)
                          AND p.next_attempt_at <= v_at OFFSET 0));
  END IF;

  INSERT INTO payment_outbox_pending (outbox_id, participant_id, sequence_id, partition_id, rail_type, endpoint, mode,
    max_attempts, timeout_ms, next_attempt_at, created_at)
  SELECT j.id, CASE WHEN j.seq IS NOT NULL THEN (j.i).participant_id END, j.seq,
    CASE WHEN j.seq IS NOT NULL THEN partition_of((j.i).participant_id) ELSE partition_of_id(j.id) END,
    (j.i).rail_type, endpoint_of((j.i).target_url), (j.i).mode, (j.i).max_attempts, (j.i).timeout_ms, v_at, v_created_at
  FROM (SELECT unnest(v_items) AS i, unnest(v_ids) AS id, unnest(v_created) AS created, unnest(v_sequences) AS seq) j
  WHERE j.created AND ((j.i).scheduled_for IS NULL OR (j.i).scheduled_for <= v_at);

  -- Last, with the time of now: the owner's scan has no bound below which it never looks again.
  INSERT INTO ready_group (participant_id, partition_id, due_at)
  SELECT g.participant_id, partition_of(g.participant_id), clock_timestamp()
  FROM (SELECT DISTINCT (j.i).participant_id
        FROM (SELECT unnest(v_items) AS i, unnest(v_sequences) AS seq) j WHERE j.seq IS NOT NULL) g
  ORDER BY 1
  ON CONFLICT DO NOTHING;
  IF v_notify AND (FOUND OR v_wake) THEN
    PERFORM pg_notify('outbox_pending', 'new_work');
  END IF;

  RETURN QUERY SELECT a.n, CASE WHEN a.fault IS NULL THEN a.first END, a.created, a.conflict, a.seq,
                      CASE WHEN a.fault IS NULL THEN a.first_at END, a.fault
    FROM (SELECT generate_subscripts(v_ids, 1) AS n, unnest(v_first) AS first, unnest(v_created) AS created,
                 unnest(v_conflict) AS conflict, unnest(v_sequences) AS seq, unnest(v_first_at) AS first_at,
                 unnest(v_faults) AS fault) a;
END $$;

-- The way in for one: the same checks, the same order of locks, without arrays. What enqueue_outbox answers for one item.
CREATE FUNCTION enqueue_one(
  p_source text, p_type text, p_external_id text, p_participant_id text, p_mode text, p_rail_type text, p_pool text,
  p_target_url text, p_payload bytea, p_payload_content_type text, p_credentials_id uuid, p_max_attempts integer,
  p_retry_strategy text, p_timeout_ms integer, p_headers jsonb, p_metadata jsonb, p_scheduled_for timestamptz,
  p_expires_at timestamptz, p_instruction_id text, p_idempotency_key text, p_traceparent text,
  OUT outbox_id uuid, OUT created boolean, OUT conflict boolean, OUT sequence_id bigint, OUT created_at timestamptz)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
#variable_conflict use_column
DECLARE
  v_at timestamptz := clock_timestamp();
  v_created_at timestamptz := date_trunc('milliseconds', v_at);
  v_id uuid := uuid7_nth(v_at, 1);
  v_rail_type text := coalesce(p_rail_type, 'webhook');
  v_kind text;
  v_target_url text;
  v_credentials_id uuid;
  v_known boolean;
  v_mode text;
  v_max_attempts integer;
  v_retry_strategy text := coalesce(p_retry_strategy, 'exponential');
  v_timeout_ms integer := coalesce(p_timeout_ms, 30000);
  v_content_type text := coalesce(p_payload_content_type, 'application/json');
  v_fault text;
  v_kind_of_key text := CASE WHEN p_instruction_id IS NULL THEN 'source' ELSE 'instruction' END;
  v_scope text := coalesce(p_instruction_id, p_source);
  v_hash bytea;
  v_first_hash bytea;
  v_notify boolean := coalesce(current_setting('railyard.notify', true), '') <> 'off';
  v_wake boolean;
BEGIN
  SELECT r.kind, coalesce(p_target_url, r.target_url), coalesce(p_credentials_id, r.credentials_id),
         EXISTS (SELECT 1 FROM dispatch_credentials c
                 WHERE c.credentials_id = coalesce(p_credentials_id, r.credentials_id) AND c.deleted_at IS NULL)
  INTO v_kind, v_target_url, v_credentials_id, v_known
  FROM rail r WHERE r.rail_type = v_rail_type;
  v_mode := coalesce(p_mode, default_mode(v_kind));
  v_max_attempts := coalesce(p_max_attempts, default_max_attempts(v_kind));
  v_fault := outbox_item_fault(v_kind, v_known, v_at, p_source, p_type, p_external_id, p_participant_id, v_mode, v_rail_type,
    p_pool, v_target_url, p_payload, v_content_type, v_credentials_id, v_max_attempts, v_retry_strategy, v_timeout_ms,
    p_headers, p_metadata, p_scheduled_for, p_expires_at, p_instruction_id, p_idempotency_key, p_traceparent);
  IF p_idempotency_key IS NOT NULL THEN
    v_hash := content_hash(p_payload, p_type, v_target_url, v_credentials_id, p_participant_id, v_mode, p_headers,
                           p_metadata, p_scheduled_for);
  END IF;
  IF v_fault IS NOT NULL AND NOT taken_before(p_source, p_instruction_id, p_idempotency_key, v_hash) THEN
    PERFORM refuse_item(1, v_fault);
  END IF;
  conflict := false;

  WHILE p_idempotency_key IS NOT NULL LOOP
    INSERT INTO idempotency_key (kind, scope, key, outbox_id, content_hash, created_at)
    VALUES (v_kind_of_key, v_scope, p_idempotency_key, v_id, v_hash, v_created_at) ON CONFLICT DO NOTHING;
    EXIT WHEN FOUND;
    SELECT k.outbox_id, k.content_hash, k.created_at INTO outbox_id, v_first_hash, created_at FROM idempotency_key k
    WHERE k.kind = v_kind_of_key AND k.scope = v_scope AND k.key = p_idempotency_key;
    IF FOUND THEN
      created := false;
      conflict := v_first_hash <> v_hash;
      RETURN;
    END IF;
    -- It was cleared away in between: it is ours to take.
  END LOOP;
  outbox_id := v_id;
  created := true;
  created_at := v_created_at;

  INSERT INTO dispatch_job (outbox_id, external_id, source, type, participant_id, mode, rail_type, pool, target_url,
    headers, payload, payload_content_type, credentials_id, max_attempts, retry_strategy, timeout_ms, scheduled_for,
    expires_at, instruction_id, idempotency_key, rail_key, traceparent, created_at)
  VALUES (v_id, p_external_id, p_source, p_type, p_participant_id, v_mode, v_rail_type, p_pool, v_target_url, p_headers,
    p_payload, v_content_type, v_credentials_id, v_max_attempts, v_retry_strategy, v_timeout_ms, p_scheduled_for,
    p_expires_at, p_instruction_id, p_idempotency_key, v_id, p_traceparent, v_created_at);
  IF p_metadata IS NOT NULL THEN
    INSERT INTO dispatch_job_metadata (dispatch_job_id, meta_key, meta_value)
    SELECT v_id, m.key, m.value FROM jsonb_each_text(p_metadata) m;
  END IF;

  IF p_scheduled_for > v_at THEN
    INSERT INTO scheduled_job (outbox_id, partition_id, due_at)
    VALUES (v_id, CASE WHEN p_participant_id IS NULL OR v_mode = 'IMMEDIATE' THEN partition_of_id(v_id)
                       ELSE partition_of(p_participant_id) END, p_scheduled_for);
    RETURN;
  END IF;
  IF p_participant_id IS NULL OR v_mode = 'IMMEDIATE' THEN
    v_wake := v_notify AND NOT EXISTS (
      SELECT 1 FROM payment_outbox_pending p
      WHERE p.participant_id IS NULL AND p.partition_id = partition_of_id(v_id) AND p.next_attempt_at <= v_at);
    INSERT INTO payment_outbox_pending (outbox_id, partition_id, rail_type, endpoint, mode, max_attempts, timeout_ms,
      next_attempt_at, created_at)
    VALUES (v_id, partition_of_id(v_id), v_rail_type, endpoint_of(v_target_url), v_mode, v_max_attempts, v_timeout_ms,
      v_at, v_created_at);
  ELSE
    -- As late as may be: producers of one group queue behind this row until the commit.
    INSERT INTO participant_outbox_sequences AS s (participant_id, next_sequence_id) VALUES (p_participant_id, 2)
    ON CONFLICT (participant_id) DO UPDATE SET next_sequence_id = s.next_sequence_id + 1
    RETURNING s.next_sequence_id - 1 INTO sequence_id;
    INSERT INTO payment_outbox_pending (outbox_id, participant_id, sequence_id, partition_id, rail_type, endpoint, mode,
      max_attempts, timeout_ms, next_attempt_at, created_at)
    VALUES (v_id, p_participant_id, sequence_id, partition_of(p_participant_id), v_rail_type, endpoint_of(v_target_url),
      v_mode, v_max_attempts, v_timeout_ms, v_at, v_created_at);
    -- Last, with the time of now: the owner's scan has no bound below which it never looks again.
    INSERT INTO ready_group (participant_id, partition_id, due_at)
    VALUES (p_participant_id, partition_of(p_participant_id), clock_timestamp()) ON CONFLICT DO NOTHING;
    v_wake := FOUND AND v_notify;
  END IF;
  IF v_wake THEN PERFORM pg_notify('outbox_pending', 'new_work'); END IF;
END $$;

CREATE FUNCTION refuse_reused_key(p_ordinal integer, p_first uuid) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  RAISE EXCEPTION 'idempotency_key: used before for other content'
    USING ERRCODE = 'RY409', COLUMN = 'idempotency_key', DETAIL = format('item %s, first used by %s', p_ordinal, p_first),
          HINT = 'a repeat must carry the same content; other work needs a key of its own';
END $$;

-- One payment instruction (S2). A repeat with the same content returns the first id and burns no number.
CREATE FUNCTION enqueue_payment_outbox(
  p_instruction_id text, p_participant_id text, p_idempotency_key text, p_rail_type text, p_payload bytea,
  p_target_url text DEFAULT NULL, p_credentials_id uuid DEFAULT NULL, p_source text DEFAULT 'sql',
  p_type text DEFAULT 'payment.instruction', p_mode text DEFAULT NULL, p_max_attempts integer DEFAULT NULL,
  p_retry_strategy text DEFAULT NULL, p_timeout_ms integer DEFAULT NULL, p_metadata jsonb DEFAULT NULL,
  p_headers jsonb DEFAULT NULL, p_scheduled_for timestamptz DEFAULT NULL, p_expires_at timestamptz DEFAULT NULL)
RETURNS uuid LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
  v record;
BEGIN
  IF p_instruction_id IS NULL THEN PERFORM refuse_item(1, 'instruction_id: is required'); END IF;
  IF p_idempotency_key IS NULL THEN PERFORM refuse_item(1, 'idempotency_key: is required'); END IF;
  IF p_source = 'dispatch' THEN PERFORM refuse_item(1, 'source: "dispatch" is what scheduled items come from'); END IF;
  v := enqueue_one(p_source, p_type, NULL, p_participant_id, p_mode, coalesce(p_rail_type, 'payment_webhook'), NULL,
    p_target_url, p_payload, NULL, p_credentials_id, p_max_attempts, p_retry_strategy, p_timeout_ms, p_headers, p_metadata,
    p_scheduled_for, p_expires_at, p_instruction_id, p_idempotency_key, NULL);
  IF v.conflict THEN PERFORM refuse_reused_key(1, v.outbox_id); END IF;
  RETURN v.outbox_id;
END $$;

-- The array form: ids in the order of the items. All or nothing.
CREATE FUNCTION enqueue_payment_outbox(p_items outbox_item[]) RETURNS uuid[]
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
  v_ids uuid[];
  v_conflicts integer[];
  v_first uuid;
  v_reserved integer;
BEGIN
  SELECT min(t.ordinality) INTO v_reserved FROM unnest(p_items) WITH ORDINALITY t WHERE t.source = 'dispatch';
  IF v_reserved IS NOT NULL THEN
    PERFORM refuse_item(v_reserved, 'source: "dispatch" is what scheduled items come from');
  END IF;
  SELECT array_agg(e.outbox_id ORDER BY e.ordinal), array_agg(e.ordinal ORDER BY e.ordinal) FILTER (WHERE e.conflict),
         (array_agg(e.outbox_id ORDER BY e.ordinal) FILTER (WHERE e.conflict))[1]
  INTO v_ids, v_conflicts, v_first
  FROM enqueue_outbox(p_items) e;
  IF v_conflicts IS NOT NULL THEN PERFORM refuse_reused_key(v_conflicts[1], v_first); END IF;
  RETURN coalesce(v_ids, '{}');
END $$;

-- The next number of a group, taken in the caller's transaction (S2). enqueue_payment_outbox takes its own.
CREATE FUNCTION bump_participant_outbox_seq(p_participant_id text) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
  v_sequence bigint;
  v_fault text := text_fault('participant_id', p_participant_id, 255, true);
BEGIN
  IF v_fault IS NOT NULL THEN PERFORM refuse_item(1, v_fault); END IF;
  INSERT INTO participant_outbox_sequences AS s (participant_id, next_sequence_id) VALUES (p_participant_id, 2)
  ON CONFLICT (participant_id) DO UPDATE SET next_sequence_id = s.next_sequence_id + 1
  RETURNING next_sequence_id - 1 INTO v_sequence;
  RETURN v_sequence;
END $$;
