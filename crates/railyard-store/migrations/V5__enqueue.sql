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

CREATE FUNCTION refuse_item(p_ordinal integer, p_field text, p_detail text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  RAISE EXCEPTION '%: %', p_field, p_detail
    USING ERRCODE = 'RY400', COLUMN = p_field, DETAIL = format('item %s', p_ordinal),
          HINT = 'correct the named field; nothing of this call was stored';
END $$;

CREATE FUNCTION check_text(p_ordinal integer, p_field text, p_value text, p_chars_max integer, p_required boolean)
RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  IF p_value IS NULL THEN
    IF p_required THEN PERFORM refuse_item(p_ordinal, p_field, 'is required'); END IF;
  ELSIF p_value = '' THEN
    PERFORM refuse_item(p_ordinal, p_field, 'must not be empty');
  ELSIF length(p_value) > p_chars_max THEN
    PERFORM refuse_item(p_ordinal, p_field, format('at most %s characters, got %s', p_chars_max, length(p_value)));
  END IF;
END $$;

-- A map of text to text, as headers and metadata are.
CREATE FUNCTION check_map(p_ordinal integer, p_field text, p_value jsonb, p_entries_max integer) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  IF p_value IS NULL THEN RETURN; END IF;
  IF jsonb_typeof(p_value) <> 'object' THEN
    PERFORM refuse_item(p_ordinal, p_field, 'must be a JSON object of strings');
  END IF;
  IF (SELECT count(*) FROM jsonb_object_keys(p_value)) > p_entries_max THEN
    PERFORM refuse_item(p_ordinal, p_field, format('at most %s entries', p_entries_max));
  END IF;
  IF EXISTS (SELECT 1 FROM jsonb_each(p_value) e WHERE jsonb_typeof(e.value) <> 'string' OR e.key = '') THEN
    PERFORM refuse_item(p_ordinal, p_field, 'every key must be non-empty and every value a string');
  END IF;
END $$;

-- Headers that Railyard sets itself or that belong to one hop; railyard_core::headers holds the same list.
CREATE FUNCTION check_headers(p_ordinal integer, p_headers jsonb) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
  v record;
BEGIN
  PERFORM check_map(p_ordinal, 'headers', p_headers, 50);
  IF p_headers IS NULL THEN RETURN; END IF;
  IF (SELECT sum(octet_length(e.key) + octet_length(e.value)) FROM jsonb_each_text(p_headers) e) > 8192 THEN
    PERFORM refuse_item(p_ordinal, 'headers', 'at most 8192 bytes in all');
  END IF;
  FOR v IN SELECT lower(e.key) AS name, e.key, e.value FROM jsonb_each_text(p_headers) e LOOP
    IF v.key !~ '^[A-Za-z0-9!#$%&''*+.^_`|~-]+$' THEN
      PERFORM refuse_item(p_ordinal, 'headers', format('%s is not a header name', to_jsonb(v.key)));
    ELSIF v.value ~ '[\x01-\x08\x0a-\x1f\x7f]' THEN
      PERFORM refuse_item(p_ordinal, 'headers', format('%s has a control character in its value', v.key));
    ELSIF v.name ~ '^(x-flowcatalyst-|webhook-|x-railyard-|proxy-)'
       OR v.name IN ('authorization', 'host', 'content-length', 'content-type', 'content-encoding', 'transfer-encoding',
                     'connection', 'keep-alive', 'te', 'trailer', 'upgrade', 'expect', 'user-agent', 'http2-settings',
                     'idempotency-key', 'traceparent', 'tracestate') THEN
      PERFORM refuse_item(p_ordinal, 'headers', format('%s is reserved', v.key));
    END IF;
  END LOOP;
  IF (SELECT count(*) <> count(DISTINCT lower(k)) FROM jsonb_object_keys(p_headers) k) THEN
    PERFORM refuse_item(p_ordinal, 'headers', 'two names differ in letter case only');
  END IF;
END $$;

CREATE FUNCTION check_payment_payload(p_ordinal integer, p_payload bytea) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  BEGIN
    IF json_typeof(convert_from(p_payload, 'UTF8')::json) = 'object' THEN RETURN; END IF;
  EXCEPTION WHEN data_exception OR statement_too_complex OR character_not_in_repertoire OR untranslatable_character THEN
    NULL; -- not JSON: refused below like any other payload that is no object
  END;
  PERFORM refuse_item(p_ordinal, 'payload', 'a payment rail takes a JSON object');
END $$;

-- Fills defaults in and refuses what cannot be delivered. Returns the item as it is stored.
CREATE FUNCTION check_outbox_item(p_ordinal integer, p_item outbox_item) RETURNS outbox_item
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
  i outbox_item := p_item;
  v_rail rail%ROWTYPE;
BEGIN
  i.rail_type := coalesce(i.rail_type, 'webhook');
  SELECT * INTO v_rail FROM rail WHERE rail_type = i.rail_type;
  IF NOT FOUND THEN
    PERFORM refuse_item(p_ordinal, 'rail_type', format('%s is not a configured rail', to_jsonb(i.rail_type)));
  END IF;
  i.mode := coalesce(i.mode, CASE v_rail.kind WHEN 'payment' THEN 'BLOCK_ON_ERROR' ELSE 'NEXT_ON_ERROR' END);
  i.max_attempts := coalesce(i.max_attempts, CASE v_rail.kind WHEN 'payment' THEN 20 ELSE 3 END);
  i.retry_strategy := coalesce(i.retry_strategy, 'exponential');
  i.timeout_ms := coalesce(i.timeout_ms, 30000);
  i.payload_content_type := coalesce(i.payload_content_type, 'application/json');
  i.target_url := coalesce(i.target_url, v_rail.target_url);
  i.credentials_id := coalesce(i.credentials_id, v_rail.credentials_id);

  PERFORM check_text(p_ordinal, 'source', i.source, 255, true);
  PERFORM check_text(p_ordinal, 'type', i.type, 255, true);
  PERFORM check_text(p_ordinal, 'external_id', i.external_id, 32, false);
  PERFORM check_text(p_ordinal, 'participant_id', i.participant_id, 255, v_rail.kind = 'payment');
  IF i.participant_id ~ '[\x01-\x1f\x7f]' THEN
    PERFORM refuse_item(p_ordinal, 'participant_id', 'must not have control characters: it goes out as a header');
  END IF;
  PERFORM check_text(p_ordinal, 'pool', i.pool, 255, false);
  PERFORM check_text(p_ordinal, 'instruction_id', i.instruction_id, 255, false);
  PERFORM check_text(p_ordinal, 'idempotency_key', i.idempotency_key, 255, i.instruction_id IS NOT NULL);
  PERFORM check_text(p_ordinal, 'payload_content_type', i.payload_content_type, 255, true);
  PERFORM check_text(p_ordinal, 'target_url', i.target_url, 2048, true);
  IF i.payload_content_type !~ '^[\x20-\x7e]+$' THEN
    PERFORM refuse_item(p_ordinal, 'payload_content_type', 'must be printable ASCII');
  END IF;
  IF i.mode NOT IN ('IMMEDIATE', 'NEXT_ON_ERROR', 'BLOCK_ON_ERROR') THEN
    PERFORM refuse_item(p_ordinal, 'mode', 'must be IMMEDIATE, NEXT_ON_ERROR or BLOCK_ON_ERROR');
  END IF;
  IF i.retry_strategy NOT IN ('exponential', 'fixed', 'immediate') THEN
    PERFORM refuse_item(p_ordinal, 'retry_strategy', 'must be exponential, fixed or immediate');
  END IF;
  IF i.max_attempts NOT BETWEEN 1 AND 100 THEN
    PERFORM refuse_item(p_ordinal, 'max_attempts', format('must be 1 to 100, got %s', i.max_attempts));
  END IF;
  IF i.timeout_ms NOT BETWEEN 1000 AND 90000 THEN
    PERFORM refuse_item(p_ordinal, 'timeout_ms', format('must be 1000 to 90000, got %s', i.timeout_ms));
  END IF;
  IF i.target_url !~* '^https?://[^/?#\\@[:space:][:cntrl:]]+([/?#][^[:space:][:cntrl:]]*)?$' THEN
    PERFORM refuse_item(p_ordinal, 'target_url', 'must be an http or https URL with a host and without user name');
  END IF;
  IF i.traceparent IS NOT NULL AND i.traceparent !~ '^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$' THEN
    PERFORM refuse_item(p_ordinal, 'traceparent', 'is not a W3C traceparent');
  END IF;
  IF i.payload IS NULL THEN
    PERFORM refuse_item(p_ordinal, 'payload', 'is required');
  ELSIF octet_length(i.payload) > 16777216 THEN
    PERFORM refuse_item(p_ordinal, 'payload', format('at most 16777216 bytes, got %s', octet_length(i.payload)));
  ELSIF v_rail.kind = 'payment' THEN
    PERFORM check_payment_payload(p_ordinal, i.payload);
  END IF;
  IF i.credentials_id IS NULL THEN
    PERFORM refuse_item(p_ordinal, 'credentials_id', 'is required: nothing is sent unsigned');
  ELSIF NOT EXISTS (SELECT 1 FROM dispatch_credentials c WHERE c.credentials_id = i.credentials_id AND c.deleted_at IS NULL) THEN
    PERFORM refuse_item(p_ordinal, 'credentials_id', format('%s is unknown', i.credentials_id));
  END IF;
  IF i.scheduled_for = 'infinity' OR i.scheduled_for > clock_timestamp() + interval '366 days' THEN
    PERFORM refuse_item(p_ordinal, 'scheduled_for', 'at most 366 days ahead');
  END IF;
  IF i.expires_at <= coalesce(greatest(i.scheduled_for, clock_timestamp()), clock_timestamp()) THEN
    PERFORM refuse_item(p_ordinal, 'expires_at', 'must lie ahead, after scheduled_for');
  END IF;
  PERFORM check_headers(p_ordinal, i.headers);
  PERFORM check_map(p_ordinal, 'metadata', i.metadata, 50);
  IF EXISTS (SELECT 1 FROM jsonb_each_text(i.metadata) m WHERE length(m.key) > 255 OR length(m.value) > 1024) THEN
    PERFORM refuse_item(p_ordinal, 'metadata', 'keys at most 255, values at most 1024 characters');
  END IF;
  RETURN i;
END $$;

-- What makes two jobs the same: store.md, idempotency_key.
CREATE FUNCTION content_hash(i outbox_item, p_scheduled_as_given timestamptz) RETURNS bytea
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp SET timezone = 'UTC' AS $$
  SELECT sha256(sha256(i.payload) || convert_to(jsonb_build_array(
    i.type, i.target_url, i.credentials_id, i.participant_id, i.mode, i.headers, i.metadata, p_scheduled_as_given)::text, 'UTF8'))
$$;

-- The one way in. All items in one transaction, the caller's: keys first, in order, then groups, in order, so that
-- two callers never wait for each other in a circle. A constant number of statements whatever the number of items.
-- created = false: the key was used before, outbox_id is the first's; conflict = true: for other content.
CREATE FUNCTION enqueue_outbox(p_items outbox_item[])
RETURNS TABLE (ordinal integer, outbox_id uuid, created boolean, conflict boolean, sequence_id bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
#variable_conflict use_column
DECLARE
  v_items outbox_item[] := '{}';
  v_payloads bytea[] := '{}';
  v_ids uuid[] := '{}';
  v_hashes bytea[] := '{}';
  v_first uuid[];
  v_created boolean[];
  v_conflict boolean[];
  v_sequences bigint[];
  v_at timestamptz := clock_timestamp();
  v_created_at timestamptz := date_trunc('milliseconds', v_at); -- what the ids say: see uuid7_nth
  v_item outbox_item;
  v_wake boolean;
BEGIN
  FOR n IN 1 .. coalesce(array_length(p_items, 1), 0) LOOP
    v_item := check_outbox_item(n, p_items[n]);
    v_ids := v_ids || uuid7_nth(v_at, n);
    v_hashes := v_hashes || content_hash(v_item, p_items[n].scheduled_for);
    -- Apart from the rest: each look at a field of an item copies the whole item.
    v_payloads := v_payloads || v_item.payload;
    v_item.payload := NULL;
    v_items := v_items || v_item;
  END LOOP;

  INSERT INTO idempotency_key (kind, scope, key, outbox_id, content_hash)
  SELECT CASE WHEN i.instruction_id IS NULL THEN 'source' ELSE 'instruction' END, coalesce(i.instruction_id, i.source),
         i.idempotency_key, v_ids[i.n], v_hashes[i.n]
  FROM (SELECT n, (v_items[n]).* FROM generate_series(1, cardinality(v_items)) n) i
  WHERE i.idempotency_key IS NOT NULL
  ORDER BY 1, 2, 3, i.n
  ON CONFLICT DO NOTHING;

  SELECT array_agg(coalesce(k.outbox_id, v_ids[i.n]) ORDER BY i.n),
         array_agg(k.outbox_id IS NULL OR k.outbox_id = v_ids[i.n] ORDER BY i.n),
         array_agg(k.outbox_id IS NOT NULL AND k.content_hash <> v_hashes[i.n] ORDER BY i.n)
  INTO v_first, v_created, v_conflict
  FROM (SELECT n, (v_items[n]).* FROM generate_series(1, cardinality(v_items)) n) i
  LEFT JOIN idempotency_key k
    ON k.kind = CASE WHEN i.instruction_id IS NULL THEN 'source' ELSE 'instruction' END
   AND k.scope = coalesce(i.instruction_id, i.source) AND k.key = i.idempotency_key;

  WITH numbered AS (
    SELECT i.n, i.participant_id, row_number() OVER (PARTITION BY i.participant_id ORDER BY i.n) AS rank,
           count(*) OVER (PARTITION BY i.participant_id) AS total
    FROM (SELECT n, (v_items[n]).* FROM generate_series(1, cardinality(v_items)) n) i
    WHERE v_created[i.n] AND i.participant_id IS NOT NULL AND i.mode <> 'IMMEDIATE'
      AND (i.scheduled_for IS NULL OR i.scheduled_for <= v_at)
  ), bumped AS (
    INSERT INTO participant_outbox_sequences AS s (participant_id, next_sequence_id)
    SELECT participant_id, total + 1 FROM numbered WHERE rank = 1 ORDER BY participant_id
    ON CONFLICT (participant_id) DO UPDATE SET next_sequence_id = s.next_sequence_id + excluded.next_sequence_id - 1
    RETURNING s.participant_id, s.next_sequence_id
  )
  SELECT array_agg(b.next_sequence_id - m.total + m.rank - 1 ORDER BY i.n)
  INTO v_sequences
  FROM generate_series(1, cardinality(v_items)) AS i(n)
  LEFT JOIN (numbered m JOIN bumped b USING (participant_id)) ON m.n = i.n;

  INSERT INTO dispatch_job (outbox_id, external_id, source, type, participant_id, mode, rail_type, pool, target_url,
    headers, payload, payload_content_type, credentials_id, max_attempts, retry_strategy, timeout_ms, scheduled_for,
    expires_at, instruction_id, idempotency_key, rail_key, traceparent, created_at)
  SELECT v_ids[n], i.external_id, i.source, i.type, i.participant_id, i.mode, i.rail_type, i.pool, i.target_url,
    i.headers, v_payloads[n], i.payload_content_type, i.credentials_id, i.max_attempts, i.retry_strategy, i.timeout_ms,
    i.scheduled_for, i.expires_at, i.instruction_id, i.idempotency_key, v_ids[n], i.traceparent, v_created_at
  FROM (SELECT n, (v_items[n]).* FROM generate_series(1, cardinality(v_items)) n) i WHERE v_created[n];

  INSERT INTO dispatch_job_metadata (dispatch_job_id, meta_key, meta_value)
  SELECT v_ids[n], m.key, m.value
  FROM generate_series(1, cardinality(v_items)) n, jsonb_each_text((v_items[n]).metadata) m WHERE v_created[n];

  INSERT INTO scheduled_job (outbox_id, partition_id, due_at)
  SELECT v_ids[n], CASE WHEN i.participant_id IS NULL OR i.mode = 'IMMEDIATE' THEN partition_of_id(v_ids[n])
                        ELSE partition_of(i.participant_id) END, i.scheduled_for
  FROM (SELECT n, (v_items[n]).* FROM generate_series(1, cardinality(v_items)) n) i
  WHERE v_created[n] AND i.scheduled_for > v_at;

  v_wake := coalesce(current_setting('railyard.notify', true), '') <> 'off';
  IF v_wake THEN
    -- An unordered message wakes the relayer only where none stands before it: that one has woken it already.
    v_wake := EXISTS (
      SELECT 1 FROM (SELECT n, (v_items[n]).* FROM generate_series(1, cardinality(v_items)) n) i
      WHERE v_created[n] AND (i.participant_id IS NULL OR i.mode = 'IMMEDIATE')
        AND (i.scheduled_for IS NULL OR i.scheduled_for <= v_at)
        AND NOT EXISTS (SELECT 1 FROM payment_outbox_pending p
                        WHERE p.participant_id IS NULL AND p.partition_id = partition_of_id(v_ids[n])
                          AND p.next_attempt_at <= v_at));
  END IF;

  INSERT INTO payment_outbox_pending (outbox_id, participant_id, sequence_id, partition_id, rail_type, endpoint, mode,
    max_attempts, timeout_ms, next_attempt_at, created_at)
  SELECT v_ids[n], CASE WHEN v_sequences[n] IS NOT NULL THEN i.participant_id END, v_sequences[n],
    CASE WHEN v_sequences[n] IS NOT NULL THEN partition_of(i.participant_id) ELSE partition_of_id(v_ids[n]) END,
    i.rail_type, endpoint_of(i.target_url), i.mode, i.max_attempts, i.timeout_ms, v_at, v_created_at
  FROM (SELECT n, (v_items[n]).* FROM generate_series(1, cardinality(v_items)) n) i
  WHERE v_created[n] AND (i.scheduled_for IS NULL OR i.scheduled_for <= v_at);

  -- Last, with the time of now: the owner's scan has no bound below which it never looks again.
  INSERT INTO ready_group (participant_id, partition_id, due_at)
  SELECT DISTINCT i.participant_id, partition_of(i.participant_id), clock_timestamp()
  FROM (SELECT n, (v_items[n]).* FROM generate_series(1, cardinality(v_items)) n) i
  WHERE v_sequences[n] IS NOT NULL ORDER BY 1
  ON CONFLICT DO NOTHING;
  IF (FOUND OR v_wake) AND coalesce(current_setting('railyard.notify', true), '') <> 'off' THEN
    PERFORM pg_notify('outbox_pending', 'new_work');
  END IF;

  RETURN QUERY SELECT n, v_first[n], v_created[n], v_conflict[n], v_sequences[n]
    FROM generate_series(1, cardinality(v_items)) n ORDER BY n;
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
  v_item outbox_item;
BEGIN
  IF p_instruction_id IS NULL THEN PERFORM refuse_item(1, 'instruction_id', 'is required'); END IF;
  IF p_idempotency_key IS NULL THEN PERFORM refuse_item(1, 'idempotency_key', 'is required'); END IF;
  v_item.source := p_source;
  v_item.type := p_type;
  v_item.participant_id := p_participant_id;
  v_item.mode := p_mode;
  v_item.rail_type := coalesce(p_rail_type, 'payment_webhook');
  v_item.target_url := p_target_url;
  v_item.payload := p_payload;
  v_item.credentials_id := p_credentials_id;
  v_item.max_attempts := p_max_attempts;
  v_item.retry_strategy := p_retry_strategy;
  v_item.timeout_ms := p_timeout_ms;
  v_item.headers := p_headers;
  v_item.metadata := p_metadata;
  v_item.scheduled_for := p_scheduled_for;
  v_item.expires_at := p_expires_at;
  v_item.instruction_id := p_instruction_id;
  v_item.idempotency_key := p_idempotency_key;
  RETURN (enqueue_payment_outbox(ARRAY[v_item]))[1];
END $$;

-- The array form: ids in the order of the items. All or nothing.
CREATE FUNCTION enqueue_payment_outbox(p_items outbox_item[]) RETURNS uuid[]
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
  v_ids uuid[];
  v_conflicts integer[];
  v_first uuid;
BEGIN
  SELECT array_agg(e.outbox_id ORDER BY e.ordinal), array_agg(e.ordinal ORDER BY e.ordinal) FILTER (WHERE e.conflict),
         (array_agg(e.outbox_id ORDER BY e.ordinal) FILTER (WHERE e.conflict))[1]
  INTO v_ids, v_conflicts, v_first
  FROM enqueue_outbox(p_items) e;
  IF v_conflicts IS NOT NULL THEN
    RAISE EXCEPTION 'idempotency_key: used before for other content'
      USING ERRCODE = 'RY409', COLUMN = 'idempotency_key',
            DETAIL = format('item %s, first used by %s', v_conflicts[1], v_first),
            HINT = 'a repeat must carry the same content; other work needs a key of its own';
  END IF;
  RETURN coalesce(v_ids, '{}');
END $$;

-- The next number of a group, taken in the caller's transaction (S2). enqueue_payment_outbox takes its own.
CREATE FUNCTION bump_participant_outbox_seq(p_participant_id text) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
  v_sequence bigint;
BEGIN
  PERFORM check_text(1, 'participant_id', p_participant_id, 255, true);
  INSERT INTO participant_outbox_sequences AS s (participant_id, next_sequence_id) VALUES (p_participant_id, 2)
  ON CONFLICT (participant_id) DO UPDATE SET next_sequence_id = s.next_sequence_id + 1
  RETURNING next_sequence_id - 1 INTO v_sequence;
  RETURN v_sequence;
END $$;
