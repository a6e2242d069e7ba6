-- Scheduled payments (S0): accepted early, held as rows until their time comes. Four tables in the source's names without
-- foreign keys, its three indexes, and beside them the payments themselves and the rules that they are held against.
-- Items of other types have the same queue and contexts; only `payment` is of one type.

-- One row a type, read anew in each cycle: change it with SQL at any time.
CREATE TABLE exec_rate_config (
  item_type                    text PRIMARY KEY CHECK (item_type ~ '^[A-Z][A-Z0-9_]{0,31}$'),
  enabled                      smallint NOT NULL DEFAULT 1 CHECK (enabled IN (0, 1)),
  batch_size                   integer NOT NULL DEFAULT 500 CHECK (batch_size BETWEEN 1 AND 10000),
  dispatch_interval_secs       integer NOT NULL DEFAULT 5 CHECK (dispatch_interval_secs BETWEEN 1 AND 3600),
  jitter_window_ms             integer NOT NULL DEFAULT 4000 CHECK (jitter_window_ms BETWEEN 0 AND 3600000),
  pre_start_buffer_mins        integer NOT NULL DEFAULT 30 CHECK (pre_start_buffer_mins BETWEEN 0 AND 1440),
  max_dispatch_retries         integer NOT NULL DEFAULT 5 CHECK (max_dispatch_retries BETWEEN 1 AND 100),
  stale_claim_threshold_mins   integer NOT NULL DEFAULT 2 CHECK (stale_claim_threshold_mins BETWEEN 1 AND 1440),
  max_stale_recovery_per_cycle integer NOT NULL DEFAULT 100 CHECK (max_stale_recovery_per_cycle BETWEEN 1 AND 10000),
  exec_workflow_type           text NOT NULL,
  exec_task_queue              text NOT NULL,
  rate_config                  text NOT NULL CHECK (rate_config ~ '^[A-Za-z0-9_.-]{1,64}$'),
  created_at                   timestamptz NOT NULL DEFAULT clock_timestamp(),
  updated_at                   timestamptz NOT NULL DEFAULT clock_timestamp()
);
COMMENT ON COLUMN exec_rate_config.enabled IS 'the kill switch: 0, and nothing of this type is claimed, nor anything sent on a payment rail that only such types begin with';
COMMENT ON COLUMN exec_rate_config.exec_workflow_type IS 'how the execution is called in the source''s words';
COMMENT ON COLUMN exec_rate_config.exec_task_queue IS 'the rail that the execution goes to first';
COMMENT ON COLUMN exec_rate_config.rate_config IS 'the configuration that the planner gives slots by';
INSERT INTO exec_rate_config (item_type, exec_workflow_type, exec_task_queue, rate_config)
VALUES ('PAYMENT', 'PaymentExecWorkflow', 'payment_webhook', 'payments');

-- What the source drains a queue with: 500 in 5 seconds.
INSERT INTO rate_limit_config (config_name, max_per_window, window_size_secs, grid, is_active, created_by)
VALUES ('payments', 500, 5, 0, true, 'migration');
UPDATE rate_limit_config SET grid = config_id WHERE config_name = 'payments';

CREATE TABLE payment_exec_queue (
  item_type           text NOT NULL,
  payment_id          text COLLATE "C" NOT NULL,
  queue_status        text NOT NULL DEFAULT 'READY'
    CHECK (queue_status IN ('READY', 'CLAIMED', 'DISPATCHED', 'COMPLETED', 'FAILED', 'DEAD_LETTER')),
  scheduled_exec_time timestamptz NOT NULL,
  group_id            text NOT NULL CHECK (group_id <> '' AND length(group_id) <= 255),
  requested_time      timestamptz NOT NULL,
  acceptance_no       bigint NOT NULL CHECK (acceptance_no >= 1),
  init_workflow_id    text NOT NULL,
  dispatch_batch_id   text,
  exec_workflow_id    text,
  claimed_at          timestamptz,
  dispatched_at       timestamptz,
  completed_at        timestamptz,
  retry_count         integer NOT NULL DEFAULT 0 CHECK (retry_count >= 0),
  last_error          text CHECK (length(last_error) <= 4000),
  created_at          timestamptz NOT NULL DEFAULT clock_timestamp(),
  updated_at          timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (item_type, payment_id),
  CHECK ((queue_status = 'CLAIMED') <= (claimed_at IS NOT NULL AND dispatch_batch_id IS NOT NULL))
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
COMMENT ON COLUMN payment_exec_queue.payment_id IS 'of whatever type the item is';
COMMENT ON COLUMN payment_exec_queue.acceptance_no IS 'rises within a group in the order of acceptance; may have gaps';
COMMENT ON COLUMN payment_exec_queue.init_workflow_id IS 'what accepted it: init-{type}-{id}';
CREATE INDEX idx_peq_dispatch ON payment_exec_queue (item_type, queue_status, scheduled_exec_time, retry_count);
CREATE INDEX idx_peq_stale_claims ON payment_exec_queue (item_type, queue_status, claimed_at);
CREATE INDEX idx_peq_batch ON payment_exec_queue (dispatch_batch_id) WHERE dispatch_batch_id IS NOT NULL;

CREATE TABLE payment_exec_context (
  item_type       text NOT NULL,
  payment_id      text COLLATE "C" NOT NULL,
  context_json    jsonb NOT NULL CHECK (jsonb_typeof(context_json) = 'object'),
  context_version integer NOT NULL,
  created_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
  updated_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (item_type, payment_id)
);

-- What dispatchers did. Rows are only added.
CREATE TABLE dispatch_audit_log (
  audit_id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  batch_id      text NOT NULL,
  item_type     text NOT NULL,
  payment_id    text,
  action        text NOT NULL,
  status_before text,
  status_after  text,
  detail        text CHECK (length(detail) <= 500),
  created_at    timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX ix_dispatch_audit_item ON dispatch_audit_log (item_type, payment_id, audit_id);

-- Nobody but the owner may delete at all, and what is young nobody: the rest goes with its retention.
CREATE FUNCTION dispatch_audit_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP = 'DELETE' AND OLD.created_at < clock_timestamp() - interval '2 days' THEN RETURN OLD; END IF;
  RAISE EXCEPTION 'dispatch_audit_log is append-only';
END $$;
CREATE TRIGGER dispatch_audit_guard BEFORE UPDATE OR DELETE ON dispatch_audit_log
FOR EACH ROW EXECUTE FUNCTION dispatch_audit_guard();

-- How many items of a group have been accepted: its row lock, held to commit, makes the order of numbers that of acceptance.
CREATE TABLE exec_group (
  item_type text NOT NULL,
  group_id  text COLLATE "C" NOT NULL,
  accepted  bigint NOT NULL CHECK (accepted >= 1),
  PRIMARY KEY (item_type, group_id)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);

-- How far a group's slots have come, by what was asked for: of all that was asked for no later than requested_time, the
-- latest slot is latest_slot. Both rise together: what would say no more than an earlier row is not kept, so the next
-- slot's bound is one look-up however many items wait.
CREATE TABLE exec_group_reach (
  item_type      text NOT NULL,
  group_id       text COLLATE "C" NOT NULL,
  requested_time timestamptz NOT NULL,
  latest_slot    timestamptz NOT NULL,
  PRIMARY KEY (item_type, group_id, requested_time)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);

CREATE TABLE payment (
  payment_id             text COLLATE "C" PRIMARY KEY CHECK (payment_id ~ '^[A-Za-z0-9][A-Za-z0-9._:-]{0,63}$'),
  status                 text NOT NULL DEFAULT 'SCHEDULED' CHECK (status IN ('SCHEDULED', 'ACCEPTED', 'PROCESSING')),
  group_id               text NOT NULL,
  amount                 numeric NOT NULL CHECK (amount > 0),
  currency               text NOT NULL CHECK (currency ~ '^[A-Z]{3}$'),
  debtor_name            text NOT NULL,
  debtor_iban            text NOT NULL,
  debtor_bic             text,
  creditor_name          text NOT NULL,
  creditor_iban          text NOT NULL,
  creditor_bic           text,
  end_to_end_id          text,
  remittance_information text,
  requested_time         timestamptz NOT NULL,
  content_hash           bytea NOT NULL CHECK (octet_length(content_hash) = 32),
  accepted_by            text NOT NULL,
  created_at             timestamptz NOT NULL DEFAULT clock_timestamp(),
  updated_at             timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (fillfactor = 85);
COMMENT ON COLUMN payment.amount IS 'with as many decimals as its currency has';
COMMENT ON COLUMN payment.requested_time IS 'not before; a cut-off may have moved it';
CREATE INDEX ix_payment_group ON payment (group_id, created_at);

-- Read anew for each call: change it with SQL at any time.
CREATE TABLE payment_rule (
  rule_id    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  kind       text NOT NULL CHECK (kind IN ('limit', 'cut_off', 'blocked')),
  currency   text CHECK (currency ~ '^[A-Z]{3}$'),
  max_amount numeric CHECK (max_amount >= 0 AND max_amount < 'infinity'),
  cut_off_at time,
  time_zone  text,
  party      text CHECK (party ~ '^[A-Z0-9]{2,34}$'),
  reason     text NOT NULL,
  is_active  boolean NOT NULL DEFAULT true,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  CHECK (CASE kind
    WHEN 'limit' THEN num_nonnulls(currency, max_amount) = 2 AND num_nonnulls(cut_off_at, time_zone, party) = 0
    WHEN 'cut_off' THEN num_nonnulls(cut_off_at, time_zone) = 2 AND num_nonnulls(max_amount, party) = 0
    ELSE party IS NOT NULL AND num_nonnulls(currency, max_amount, cut_off_at, time_zone) = 0 END)
);
COMMENT ON TABLE payment_rule IS
  'limit: no payment of this currency above max_amount; cut_off: accepted later than cut_off_at of its day in time_zone, it goes to the next day (currency NULL: all); blocked: an account (IBAN without spaces), a bank (BIC of 8 or 11 characters) or a country (two letters) that nothing is paid by or to';
CREATE INDEX ix_payment_rule_party ON payment_rule (party) WHERE kind = 'blocked';
CREATE INDEX ix_payment_rule_other ON payment_rule (rule_id) WHERE kind <> 'blocked';

-- The rows that concern these parties, and all that concern everybody.
CREATE FUNCTION payment_rules(p_terms text[])
RETURNS TABLE (kind text, currency text, max_amount text, cut_off_at text, time_zone text, party text)
LANGUAGE sql STABLE AS $$
  SELECT r.kind, r.currency, r.max_amount::text, r.cut_off_at::text, r.time_zone, NULL
  FROM payment_rule r WHERE r.kind <> 'blocked' AND r.is_active
  UNION ALL
  SELECT r.kind, NULL, NULL, NULL, NULL, r.party
  FROM payment_rule r WHERE r.kind = 'blocked' AND r.party = ANY (p_terms) AND r.is_active
$$;

-- No status changes in any other way than core::payment says, whoever changes it.
CREATE FUNCTION payment_status_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF (OLD.status, NEW.status) IN (('SCHEDULED', 'ACCEPTED'), ('ACCEPTED', 'PROCESSING')) THEN RETURN NEW; END IF;
  RAISE EXCEPTION 'payment %: % does not become %', OLD.payment_id, OLD.status, NEW.status USING ERRCODE = 'check_violation';
END $$;
CREATE TRIGGER payment_status_guard BEFORE UPDATE OF status ON payment
FOR EACH ROW WHEN (OLD.status <> NEW.status) EXECUTE FUNCTION payment_status_guard();

CREATE FUNCTION exec_queue_status_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF (OLD.queue_status, NEW.queue_status) IN (('READY', 'CLAIMED'), ('READY', 'DEAD_LETTER'), ('CLAIMED', 'READY'),
      ('CLAIMED', 'DISPATCHED'), ('CLAIMED', 'DEAD_LETTER'), ('DISPATCHED', 'COMPLETED'), ('DISPATCHED', 'FAILED'),
      ('DISPATCHED', 'DEAD_LETTER'), ('FAILED', 'READY'), ('FAILED', 'DISPATCHED'), ('FAILED', 'DEAD_LETTER'),
      ('DEAD_LETTER', 'READY'), ('DEAD_LETTER', 'DISPATCHED')) THEN
    RETURN NEW;
  END IF;
  RAISE EXCEPTION '% %: % does not become %', OLD.item_type, OLD.payment_id, OLD.queue_status, NEW.queue_status
    USING ERRCODE = 'check_violation';
END $$;
CREATE TRIGGER exec_queue_status_guard BEFORE UPDATE OF queue_status ON payment_exec_queue
FOR EACH ROW WHEN (OLD.queue_status <> NEW.queue_status) EXECUTE FUNCTION exec_queue_status_guard();

-- The last step of acceptance, in the transaction that wrote the items and their contexts: each takes its number and its
-- place in its group, and its slot is its own. A slot of a group is never earlier than that of what was accepted before it
-- and asked for no later: then the planner's slot is moved back, to a microsecond behind that one, so that the order of a
-- group's slots is that of its items. What is in the queue already stays as it is.
-- Raises 40001 if a slot was given back meanwhile. Whatever the planner thinks of the tables, each look-up is one.
CREATE FUNCTION exec_enqueue(p_item_type text, p_ids text[], p_groups text[], p_requested timestamptz[],
  p_slots timestamptz[], p_slot_events text[])
RETURNS TABLE (payment_id text, scheduled_exec_time timestamptz, acceptance_no bigint)
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off AS $$
#variable_conflict use_column
DECLARE
  v_confirmed integer;
BEGIN
  INSERT INTO exec_group AS e (item_type, group_id, accepted)
  SELECT p_item_type, g.id, count(*) FROM unnest(p_groups) AS g(id) GROUP BY g.id ORDER BY g.id COLLATE "C"
  ON CONFLICT (item_type, group_id) DO UPDATE SET accepted = e.accepted + excluded.accepted;

  -- A statement of its own: it sees what others enqueued while the groups were waited for.
  RETURN QUERY
  WITH item AS MATERIALIZED (
    SELECT u.id, u.group_id, u.requested, u.slot,
           e.accepted - count(*) OVER (PARTITION BY u.group_id) + row_number() OVER (PARTITION BY u.group_id ORDER BY u.n) AS no
    FROM unnest(p_ids, p_groups, p_requested, p_slots) WITH ORDINALITY AS u(id, group_id, requested, slot, n)
    CROSS JOIN LATERAL (SELECT x.accepted FROM exec_group x
                        WHERE x.item_type = p_item_type AND x.group_id = u.group_id OFFSET 0) e
  ), placed AS MATERIALIZED (
    SELECT i.*, greatest(b.slot, max(greatest(i.slot, i.requested) - i.rank * tick) OVER (
                  PARTITION BY i.group_id ORDER BY i.requested, i.no)) + i.rank * tick AS at
    FROM (SELECT i.*, row_number() OVER (PARTITION BY i.group_id ORDER BY i.requested, i.no) AS rank,
                 interval '1 microsecond' AS tick FROM item i) i
    LEFT JOIN LATERAL (
      SELECT e.latest_slot AS slot FROM exec_group_reach e
      WHERE e.item_type = p_item_type AND e.group_id = i.group_id AND e.requested_time <= i.requested
      ORDER BY e.requested_time DESC LIMIT 1) b ON true
  ), reached AS MATERIALIZED (
    SELECT p.group_id, p.requested, max(p.at) AS slot FROM placed p GROUP BY p.group_id, p.requested
  ), marked AS (
    INSERT INTO exec_group_reach AS e (item_type, group_id, requested_time, latest_slot)
    SELECT p_item_type, r.group_id, r.requested, r.slot FROM reached r ORDER BY r.group_id COLLATE "C", r.requested
    ON CONFLICT (item_type, group_id, requested_time) DO UPDATE SET latest_slot = excluded.latest_slot
  ), passed AS (
    -- Asked for later than one of these, and no further: they say no more. What comes behind them says more.
    DELETE FROM exec_group_reach e
    WHERE e.ctid = ANY (ARRAY(
      SELECT o.place
      FROM reached r
      LEFT JOIN LATERAL (
        SELECT x.requested_time FROM exec_group_reach x
        WHERE x.item_type = p_item_type AND x.group_id = r.group_id AND x.requested_time > r.requested
          AND x.latest_slot > r.slot
        ORDER BY x.requested_time LIMIT 1) f ON true
      CROSS JOIN LATERAL (
        SELECT x.ctid AS place, x.requested_time FROM exec_group_reach x
        WHERE x.item_type = p_item_type AND x.group_id = r.group_id AND x.requested_time > r.requested
          AND x.requested_time < coalesce(f.requested_time, 'infinity') OFFSET 0) o
      WHERE NOT EXISTS (SELECT 1 FROM reached k WHERE k.group_id = r.group_id AND k.requested = o.requested_time)))
  )
  INSERT INTO payment_exec_queue AS q (item_type, payment_id, scheduled_exec_time, group_id, requested_time, acceptance_no,
    init_workflow_id)
  SELECT p_item_type, p.id, p.at, p.group_id, p.requested, p.no, 'init-' || lower(p_item_type) || '-' || p.id
  FROM placed p ORDER BY p.id COLLATE "C"
  ON CONFLICT DO NOTHING
  RETURNING q.payment_id, q.scheduled_exec_time, q.acceptance_no;

  UPDATE rate_limit_event_slot s SET confirm_by = NULL
  WHERE s.event_id = ANY (ARRAY(SELECT e.id FROM unnest(p_slot_events) AS e(id) ORDER BY e.id));
  GET DIAGNOSTICS v_confirmed = ROW_COUNT;
  IF v_confirmed < cardinality(p_slot_events) THEN
    RAISE EXCEPTION 'a slot was given back before it was confirmed' USING ERRCODE = 'serialization_failure';
  END IF;
END $$;

-- Contexts of items that are not in the queue: nothing will ask for them. Those of an hour ago are old enough. A page of
-- them, in the order of their keys, behind the one that p_after names (both NULL: from the first); scanned < p_limit says
-- that it was the last.
CREATE FUNCTION exec_context_sweep(p_after_type text, p_after_id text, p_limit integer,
  OUT swept integer, OUT scanned integer, OUT last_type text, OUT last_id text)
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
  v_types text[];
  v_ids text[];
BEGIN
  SELECT array_agg(c.item_type), array_agg(c.payment_id) INTO v_types, v_ids
  FROM (SELECT o.item_type, o.payment_id FROM payment_exec_context o
        WHERE (o.item_type, o.payment_id) > (coalesce(p_after_type, ''), coalesce(p_after_id, ''))
        ORDER BY o.item_type, o.payment_id LIMIT p_limit) c;
  scanned := coalesce(cardinality(v_types), 0);
  last_type := v_types[scanned];
  last_id := v_ids[scanned];
  DELETE FROM payment_exec_context o
  USING unnest(v_types, v_ids) AS c(item_type, payment_id)
  WHERE o.item_type = c.item_type AND o.payment_id = c.payment_id AND o.updated_at < clock_timestamp() - interval '1 hour'
    AND NOT EXISTS (SELECT 1 FROM payment_exec_queue q
                    WHERE q.item_type = o.item_type AND q.payment_id = o.payment_id OFFSET 0);
  GET DIAGNOSTICS swept = ROW_COUNT;
END $$;

-- What was completed so many days ago, with the payments and how far their groups had come, and what was written down of
-- them; at most so many of each kind. What ended without success stays: a person has to decide.
CREATE FUNCTION drop_completed_items(p_days integer, p_limit integer, OUT items integer, OUT entries integer)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
  v_before timestamptz := clock_timestamp() - greatest(p_days, 2) * interval '1 day';
  v_type text;
  v_ids text[];
  v_groups text[];
BEGIN
  items := 0;
  FOR v_type IN SELECT c.item_type FROM exec_rate_config c ORDER BY c.item_type LOOP
    WITH gone AS (
      DELETE FROM payment_exec_queue q
      WHERE q.ctid = ANY (ARRAY(SELECT o.ctid FROM payment_exec_queue o
                                WHERE o.item_type = v_type AND o.queue_status = 'COMPLETED'
                                  AND o.scheduled_exec_time < v_before AND o.completed_at < v_before
                                ORDER BY o.scheduled_exec_time LIMIT p_limit FOR UPDATE SKIP LOCKED))
        AND q.queue_status = 'COMPLETED'
      RETURNING q.payment_id, q.group_id
    )
    SELECT array_agg(g.payment_id), array_agg(DISTINCT g.group_id) INTO v_ids, v_groups FROM gone g;
    CONTINUE WHEN v_ids IS NULL;
    items := items + cardinality(v_ids);
    DELETE FROM exec_group_reach e WHERE e.item_type = v_type AND e.group_id = ANY (v_groups) AND e.latest_slot < v_before;
    IF v_type = 'PAYMENT' THEN
      -- Their feeds (V15) still account for them, and know them if they are given again.
      PERFORM 1 FROM payment_feed_line l WHERE l.payment_id = ANY (v_ids) AND l.is_accepted AND NOT l.is_dropped
      ORDER BY l.feed_id, l.item_no FOR UPDATE;
      UPDATE payment_feed_line l SET is_dropped = true WHERE l.payment_id = ANY (v_ids) AND l.is_accepted AND NOT l.is_dropped;
      DELETE FROM payment p WHERE p.payment_id = ANY (v_ids);
    END IF;
  END LOOP;
  DELETE FROM dispatch_audit_log l
  WHERE l.audit_id = ANY (ARRAY(SELECT o.audit_id
                                FROM (SELECT a.audit_id, a.created_at FROM dispatch_audit_log a ORDER BY a.audit_id LIMIT p_limit) o
                                WHERE o.created_at < v_before));
  GET DIAGNOSTICS entries = ROW_COUNT;
END $$;

REVOKE ALL ON exec_rate_config, payment_exec_queue, payment_exec_context, dispatch_audit_log, exec_group, exec_group_reach, payment,
  payment_rule FROM PUBLIC;
REVOKE ALL ON FUNCTION payment_rules(text[]), payment_status_guard(), exec_queue_status_guard(),
  dispatch_audit_guard(), exec_enqueue(text, text[], text[], timestamptz[], timestamptz[], text[]),
  exec_context_sweep(text, text, integer), drop_completed_items(integer, integer) FROM PUBLIC;
GRANT SELECT, INSERT, UPDATE ON exec_rate_config, exec_group, payment TO railyard_runtime;
GRANT SELECT ON payment_rule TO railyard_runtime;
GRANT SELECT, INSERT ON dispatch_audit_log TO railyard_runtime;
GRANT SELECT, INSERT, UPDATE, DELETE ON payment_exec_queue, payment_exec_context, exec_group_reach TO railyard_runtime;
GRANT EXECUTE ON FUNCTION payment_rules(text[]),
  exec_enqueue(text, text[], text[], timestamptz[], timestamptz[], text[]), exec_context_sweep(text, text, integer),
  drop_completed_items(integer, integer) TO railyard_runtime;
