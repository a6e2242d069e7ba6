-- Phase B of what is scheduled (S0): claimed in batches when its time is near, handed over to the outbox in one transaction,
-- and followed to its end by the outcome of each of its jobs, in the transaction that writes that outcome.

ALTER TABLE exec_rate_config ADD COLUMN step_rails jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(step_rails) = 'object');
COMMENT ON COLUMN exec_rate_config.step_rails IS 'rails of later steps by their names; a step without one has nothing to send';

ALTER TABLE payment_exec_queue
  ADD COLUMN run_no         integer NOT NULL DEFAULT 0 CHECK (run_no >= 0),
  ADD COLUMN step_no        smallint NOT NULL DEFAULT 1 CHECK (step_no >= 1),
  ADD COLUMN exec_outbox_id uuid,
  ADD COLUMN exec_start_at  timestamptz,
  ADD COLUMN step_due_at    timestamptz;
COMMENT ON COLUMN payment_exec_queue.run_no IS 'how often a person has requeued it';
COMMENT ON COLUMN payment_exec_queue.step_no IS 'the step that its execution is at, or goes on with';
COMMENT ON COLUMN payment_exec_queue.exec_outbox_id IS 'the job of that step; of the run before, until a new one is handed over';
COMMENT ON COLUMN payment_exec_queue.exec_start_at IS 'not before, its jitter included';
COMMENT ON COLUMN payment_exec_queue.step_due_at IS 'since when its step waits to be handed over, which is a later one';
CREATE INDEX ix_peq_job ON payment_exec_queue (exec_outbox_id) WHERE exec_outbox_id IS NOT NULL AND queue_status <> 'COMPLETED';
-- What stands before an item in its group, however much of the group has ended.
CREATE INDEX ix_peq_open ON payment_exec_queue (item_type, group_id, scheduled_exec_time, requested_time, acceptance_no)
  WHERE queue_status IN ('READY', 'CLAIMED', 'DISPATCHED');
-- What a claim does not reach behind: few at any time.
CREATE INDEX ix_peq_bar ON payment_exec_queue (item_type, group_id, scheduled_exec_time, requested_time, acceptance_no)
  WHERE step_no = 1 AND (queue_status = 'CLAIMED' OR queue_status = 'READY' AND retry_count > 0);
CREATE INDEX ix_peq_retried ON payment_exec_queue (item_type, retry_count) WHERE queue_status = 'READY' AND retry_count > 0;
CREATE INDEX ix_peq_step_due ON payment_exec_queue (item_type, step_due_at) WHERE step_due_at IS NOT NULL;

-- What an execution consists of, written when it is handed over, gone when it is completed. Each step is a job; one
-- without a rail has nothing to send.
CREATE TABLE exec_step (
  item_type    text NOT NULL,
  payment_id   text COLLATE "C" NOT NULL,
  step_no      smallint NOT NULL CHECK (step_no >= 1),
  name         text NOT NULL CHECK (name ~ '^[A-Z][A-Z0-9_]{0,31}$'),
  rail_type    text,
  job_type     text NOT NULL,
  payload      bytea NOT NULL,
  status_after text,
  first_job    uuid,
  PRIMARY KEY (item_type, payment_id, step_no)
);
COMMENT ON COLUMN exec_step.status_after IS 'what a payment becomes by it';
COMMENT ON COLUMN exec_step.first_job IS 'of its first run: what the rail knows the step by, in every run';

-- The last thing that a hand-over asks: whether the switch of its type is as it found it. If not, all of it is taken back, and
-- done again with the switch as it is. Whoever throws it from here on waits for this commit, which nothing delays any more;
-- whoever is throwing it at this moment is not waited for, since it may want what is locked here.
CREATE FUNCTION exec_still(p_item_type text, p_enabled smallint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
  v_enabled smallint;
BEGIN
  SELECT c.enabled INTO v_enabled FROM exec_rate_config c WHERE c.item_type = p_item_type FOR SHARE NOWAIT;
  IF v_enabled IS DISTINCT FROM p_enabled THEN
    RAISE EXCEPTION 'the switch of % was thrown meanwhile', p_item_type USING ERRCODE = '40001';
  END IF;
END $$;

CREATE FUNCTION exec_is_member(p_node uuid) RETURNS boolean LANGUAGE sql VOLATILE AS $$
  SELECT EXISTS (SELECT 1 FROM node n WHERE n.node_id = p_node AND n.lease_until > clock_timestamp())
$$;

-- Whose turn it is: one dispatcher at a time for each type, in the whole cluster, and none before the interval is over.
CREATE TABLE exec_turn (
  item_type text PRIMARY KEY,
  holder    uuid,
  taken_at  timestamptz
);

CREATE FUNCTION exec_run_id(p_item_type text, p_id text, p_run_no integer) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
  SELECT 'exec-' || lower(p_item_type) || '-' || p_id || CASE WHEN p_run_no > 0 THEN '-r' || p_run_no ELSE '' END
$$;

-- What a run's step is known by in the outbox: the run's own id for the first step.
CREATE FUNCTION exec_job_key(p_item_type text, p_id text, p_run_no integer, p_step_no integer, p_step_name text) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
  SELECT exec_run_id(p_item_type, p_id, p_run_no) || CASE WHEN p_step_no = 1 THEN '' ELSE '/' || p_step_name END
$$;

-- A step's job. The first step takes its place among those of its group; a later one has no order, so that one that fails
-- keeps nothing waiting, and an outcome's transaction, which enqueues it, takes no number that a producer may hold.
CREATE FUNCTION exec_job(p_item_type text, p_id text, p_run_no integer, p_group text, p_step exec_step,
  p_start_at timestamptz) RETURNS outbox_item
LANGUAGE sql STABLE AS $$
  SELECT ROW('dispatch', p_step.job_type, NULL, CASE WHEN p_step.step_no = 1 THEN p_group ELSE left(p_group, 200) || '/' || p_step.name END,
    CASE WHEN p_step.step_no > 1 THEN 'IMMEDIATE' END, p_step.rail_type, NULL, NULL, p_step.payload, NULL, NULL, NULL, NULL, NULL, NULL,
    jsonb_build_object('itemType', p_item_type, 'itemId', p_id, 'step', p_step.name), p_start_at, NULL, p_id,
    exec_job_key(p_item_type, p_id, p_run_no, p_step.step_no, p_step.name), NULL)::outbox_item
$$;

-- Whether a job is this item's own, whatever key led to it: a producer may have used that key for work of its own.
CREATE FUNCTION exec_is_job(p_job uuid, p_item_type text, p_id text) RETURNS boolean LANGUAGE sql STABLE AS $$
  SELECT EXISTS (SELECT 1 FROM dispatch_job d WHERE d.outbox_id = p_job AND d.source = 'dispatch')
    AND (SELECT count(*) = 2 FROM dispatch_job_metadata m WHERE m.dispatch_job_id = p_job
           AND (m.meta_key, m.meta_value) IN (('itemType', p_item_type), ('itemId', p_id)))
$$;

-- For whoever replays jobs: their items, locked, so that each is requeued or follows its job's replay, and never both.
CREATE FUNCTION exec_lock_items(p_jobs uuid[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM 1 FROM payment_exec_queue q WHERE q.exec_outbox_id = ANY (p_jobs) AND q.queue_status <> 'COMPLETED'
  ORDER BY q.item_type, q.payment_id FOR UPDATE;
END $$;

CREATE FUNCTION exec_is_requeued(p_job uuid) RETURNS boolean LANGUAGE sql STABLE AS $$
  SELECT EXISTS (SELECT 1 FROM payment_exec_queue q
                 WHERE q.exec_outbox_id = p_job AND q.queue_status IN ('READY', 'CLAIMED'))
$$;

CREATE FUNCTION exec_follow_replay(p_job uuid, p_replay uuid) RETURNS void LANGUAGE sql AS $$
  WITH followed AS (
    UPDATE payment_exec_queue q SET queue_status = 'DISPATCHED', exec_outbox_id = p_replay, last_error = NULL,
      dispatched_at = clock_timestamp(), updated_at = clock_timestamp()
    WHERE q.exec_outbox_id = p_job AND q.queue_status IN ('FAILED', 'DEAD_LETTER')
    RETURNING q.item_type, q.payment_id
  )
  INSERT INTO dispatch_audit_log (batch_id, item_type, payment_id, action, status_after, detail)
  SELECT 'REPLAY', f.item_type, f.payment_id, 'REPLAYED', 'DISPATCHED', p_replay::text FROM followed f
$$;

-- How long until a type's turn is due and nobody has it, or who had it has died: 0 if so, NULL if a living node has it.
CREATE FUNCTION exec_turn_in_ms(p_turn exec_turn, p_node uuid, p_interval_secs integer) RETURNS bigint
LANGUAGE sql STABLE AS $$
  SELECT CASE
    WHEN (p_turn).taken_at IS NULL OR (p_turn).holder = p_node THEN 0
    WHEN (p_turn).holder IS NULL THEN greatest(0, ceil(extract(epoch FROM (p_turn).taken_at
      + p_interval_secs * interval '1 second' - clock_timestamp()) * 1000))::bigint
    WHEN NOT EXISTS (SELECT 1 FROM node n WHERE n.node_id = (p_turn).holder AND n.lease_until > clock_timestamp()) THEN 0 END
$$;

-- All that a node asks while there is nothing to do, of all types at once: whose turn it could take, where steps wait, and
-- in how many milliseconds it should ask again: at its turn, at the latest after the type's interval and after 5 s, and
-- after 1 s where steps may come.
CREATE FUNCTION dispatch_look(p_node uuid) RETURNS TABLE (item_type text, turn boolean, steps boolean, again_in_ms bigint)
LANGUAGE sql STABLE SET enable_seqscan = off AS $$
  SELECT c.item_type, c.enabled = 1 AND coalesce(i.ms = 0, false),
    c.enabled = 1 AND EXISTS (SELECT 1 FROM payment_exec_queue q
                              WHERE q.item_type = c.item_type AND q.step_due_at IS NOT NULL OFFSET 0),
    least(5000, CASE WHEN c.step_rails <> '{}' THEN 1000 END, c.dispatch_interval_secs * 1000::bigint, nullif(i.ms, 0))
  FROM exec_rate_config c
  LEFT JOIN exec_turn t ON t.item_type = c.item_type
  CROSS JOIN LATERAL (SELECT exec_turn_in_ms(t, p_node, c.dispatch_interval_secs) AS ms) i
  ORDER BY c.item_type
$$;

-- Takes the turn of a type, if it is due and no other living node has it. A holder that was only stopped is kept from harm
-- by the conditions of whatever it does next.
CREATE FUNCTION exec_take_turn(p_item_type text, p_node uuid) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO exec_turn (item_type) VALUES (p_item_type) ON CONFLICT DO NOTHING;
  UPDATE exec_turn t SET holder = p_node, taken_at = clock_timestamp()
  WHERE t.item_type = p_item_type
    AND exec_turn_in_ms(t, p_node, coalesce((SELECT c.dispatch_interval_secs FROM exec_rate_config c
                                             WHERE c.item_type = p_item_type), 0)) = 0;
  RETURN FOUND;
END $$;

-- Claims what is due soon, of an enabled type, oldest first; rows that another dispatcher is taking are passed over. The
-- contexts come along. A batch claims once: whoever asks under its name again gets nothing by this. p_most: no more than so
-- many, whatever the configuration says, for who found out that the database takes too long over more.
-- Where there is an index in the right order, nothing else is cheaper, whatever the planner thinks.
CREATE FUNCTION dispatch_claim(p_item_type text, p_batch text, p_most integer DEFAULT NULL) RETURNS TABLE (payment_id text, context_json jsonb)
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off AS $$
#variable_conflict use_column
DECLARE
  v_config exec_rate_config;
BEGIN
  SELECT * INTO STRICT v_config FROM exec_rate_config c WHERE c.item_type = p_item_type;
  IF v_config.enabled = 0 THEN RETURN; END IF;
  PERFORM pg_advisory_xact_lock(hashtextextended(p_batch, 0));
  IF EXISTS (SELECT 1 FROM payment_exec_queue q WHERE q.dispatch_batch_id = p_batch) THEN RETURN; END IF;
  RETURN QUERY
  WITH due AS MATERIALIZED (
    SELECT q.ctid AS place FROM payment_exec_queue q
    WHERE q.item_type = p_item_type AND q.queue_status = 'READY'
      AND q.scheduled_exec_time <= statement_timestamp() + v_config.pre_start_buffer_mins * interval '1 minute'
      AND q.retry_count < v_config.max_dispatch_retries
      -- Not from behind one that others have, or that could not be started before: it could only go back, and would take
      -- the place of other groups' items. A later step waits for nothing of its group.
      AND (q.step_no > 1 OR NOT EXISTS (
        SELECT 1 FROM payment_exec_queue b
        WHERE b.item_type = q.item_type AND b.group_id = q.group_id AND b.step_no = 1
          AND (b.queue_status = 'CLAIMED' OR b.queue_status = 'READY' AND b.retry_count > 0)
          AND (b.scheduled_exec_time, b.requested_time, b.acceptance_no)
            < (q.scheduled_exec_time, q.requested_time, q.acceptance_no)))
    ORDER BY q.scheduled_exec_time LIMIT least(v_config.batch_size, p_most) FOR UPDATE SKIP LOCKED
  ), claimed AS (
    UPDATE payment_exec_queue q SET queue_status = 'CLAIMED', claimed_at = clock_timestamp(), dispatch_batch_id = p_batch,
      updated_at = clock_timestamp()
    WHERE q.ctid = ANY (ARRAY(SELECT place FROM due)) AND q.queue_status = 'READY'
    RETURNING q.payment_id, q.scheduled_exec_time, q.requested_time, q.acceptance_no
  )
  SELECT c.payment_id, x.context_json
  FROM claimed c
  LEFT JOIN LATERAL (SELECT o.context_json FROM payment_exec_context o
                     WHERE o.item_type = p_item_type AND o.payment_id = c.payment_id OFFSET 0) x ON true
  ORDER BY c.scheduled_exec_time, c.requested_time, c.acceptance_no;
END $$;

-- What a batch has claimed and not handed over: for who never heard the claim's answer. Waits for a claim that is under way.
CREATE FUNCTION dispatch_claimed(p_item_type text, p_batch text) RETURNS TABLE (payment_id text, context_json jsonb)
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off AS $$
#variable_conflict use_column
BEGIN
  PERFORM pg_advisory_xact_lock(hashtextextended(p_batch, 0));
  RETURN QUERY
  SELECT q.payment_id, x.context_json FROM payment_exec_queue q
  LEFT JOIN LATERAL (SELECT o.context_json FROM payment_exec_context o
                     WHERE o.item_type = p_item_type AND o.payment_id = q.payment_id OFFSET 0) x ON true
  WHERE q.dispatch_batch_id = p_batch AND q.item_type = p_item_type AND q.queue_status = 'CLAIMED'
  ORDER BY q.scheduled_exec_time, q.requested_time, q.acceptance_no;
END $$;

-- Items that were claimed long ago and not handed over: their dispatcher died. What was handed over all the same is marked
-- so, everything else is READY again, or DEAD_LETTER if that was once too often. So is what failed more often than may be
-- since that was lowered: nothing would ever claim it, and it would keep its group waiting. p_most: as in dispatch_claim.
CREATE FUNCTION dispatch_recover(p_item_type text, p_most integer DEFAULT NULL,
  OUT recovered integer, OUT marked integer, OUT dead integer)
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off AS $$
#variable_conflict use_column
DECLARE
  v_config exec_rate_config;
  v_job uuid;
  v record;
BEGIN
  recovered := 0; marked := 0;
  SELECT * INTO STRICT v_config FROM exec_rate_config c WHERE c.item_type = p_item_type;
  WITH spent AS (
    UPDATE payment_exec_queue q SET queue_status = 'DEAD_LETTER', updated_at = clock_timestamp()
    WHERE q.ctid = ANY (ARRAY(SELECT s.ctid FROM payment_exec_queue s
                              WHERE s.item_type = p_item_type AND s.queue_status = 'READY' AND s.retry_count > 0
                                AND s.retry_count >= v_config.max_dispatch_retries
                              LIMIT least(v_config.max_stale_recovery_per_cycle, p_most) FOR UPDATE SKIP LOCKED))
      AND q.queue_status = 'READY'
    RETURNING q.payment_id, q.last_error
  ), logged AS (
    INSERT INTO dispatch_audit_log (batch_id, item_type, payment_id, action, status_before, status_after, detail)
    SELECT 'RETRIES-SPENT', p_item_type, s.payment_id, 'DISPATCH_FAILED', 'READY', 'DEAD_LETTER', left(s.last_error, 500)
    FROM spent s RETURNING 1
  )
  SELECT count(*)::integer INTO dead FROM logged;
  FOR v IN
    SELECT q.payment_id, q.run_no, q.step_no, q.retry_count, q.dispatch_batch_id FROM payment_exec_queue q
    WHERE q.item_type = p_item_type AND q.queue_status = 'CLAIMED'
      AND q.claimed_at < clock_timestamp() - v_config.stale_claim_threshold_mins * interval '1 minute'
    ORDER BY q.claimed_at LIMIT least(v_config.max_stale_recovery_per_cycle, p_most) FOR UPDATE SKIP LOCKED
  LOOP
    SELECT k.outbox_id INTO v_job FROM idempotency_key k
    WHERE k.kind = 'instruction' AND k.scope = v.payment_id
      AND k.key = exec_job_key(p_item_type, v.payment_id, v.run_no, v.step_no,
        (SELECT s.name FROM exec_step s
         WHERE s.item_type = p_item_type AND s.payment_id = v.payment_id AND s.step_no = v.step_no));
    IF FOUND AND exec_is_job(v_job, p_item_type, v.payment_id) THEN
      UPDATE payment_exec_queue q SET queue_status = 'DISPATCHED', exec_workflow_id = exec_run_id(p_item_type, v.payment_id, v.run_no),
        exec_outbox_id = v_job, dispatched_at = clock_timestamp(), updated_at = clock_timestamp()
      WHERE q.item_type = p_item_type AND q.payment_id = v.payment_id;
      marked := marked + 1;
      PERFORM exec_advance(ARRAY[v_job]);
    ELSE
      UPDATE payment_exec_queue q
      SET queue_status = CASE WHEN q.retry_count + 1 >= v_config.max_dispatch_retries THEN 'DEAD_LETTER' ELSE 'READY' END,
        retry_count = q.retry_count + 1, last_error = 'claimed by ' || q.dispatch_batch_id || ' and not handed over',
        claimed_at = NULL, dispatch_batch_id = NULL, exec_workflow_id = NULL, updated_at = clock_timestamp()
      WHERE q.item_type = p_item_type AND q.payment_id = v.payment_id;
      IF v.retry_count + 1 >= v_config.max_dispatch_retries THEN dead := dead + 1; ELSE recovered := recovered + 1; END IF;
    END IF;
    INSERT INTO dispatch_audit_log (batch_id, item_type, payment_id, action, status_before, status_after, detail)
    SELECT 'STALE-RECOVERY', p_item_type, v.payment_id, 'STALE_RECOVERY', 'CLAIMED', q.queue_status,
      'claimed by ' || v.dispatch_batch_id
    FROM payment_exec_queue q WHERE q.item_type = p_item_type AND q.payment_id = v.payment_id;
  END LOOP;
END $$;

-- Hands a claimed batch over: its items' first jobs, their steps and DISPATCHED, all in this statement. p_errors: why an
-- item cannot be started, NULL if it can; its steps follow in the p_step arrays, by its place in p_ids.
-- Items that are not claimed by this batch any more are left alone. An item behind another one of its group that is not
-- handed over goes back without a count: nothing overtakes. Two that start in one order stay in it, across batches as well.
-- A new run is a replay of the job before, and has its key in job_replay: nobody else makes that one again, and if
-- somebody has, or it turned out to have been delivered, the item is given up at once.
-- By a member of the cluster alone: all is NULL if the lease of p_node is over. A switch that is thrown in the middle, or a
-- lease that ends in it, takes everything back.
CREATE FUNCTION dispatch_hand_over(p_node uuid, p_item_type text, p_batch text, p_ids text[], p_errors text[],
  p_step_item integer[], p_step_no smallint[], p_step_name text[], p_step_rail text[], p_step_type text[],
  p_step_payload bytea[], p_step_status text[],
  OUT dispatched integer, OUT failed integer, OUT dead integer, OUT put_back integer, OUT lost integer)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
#variable_conflict use_column
DECLARE
  v_config exec_rate_config;
  v_at timestamptz := clock_timestamp();
  v record;
  v_starts_at timestamptz; -- the latest start of what stands before, and was handed over
  v_waits boolean; -- some of that waits for its start
  v_from record; -- how far that is known
  v_group text;
  v_stopped boolean; -- nothing more of this group is handed over
  v_bar record; -- the first of this group that is open and not of this batch
  v_jitter interval;
  v_start timestamptz;
  v_floor timestamptz; -- nothing of this group starts before it
  v_errors jsonb := '{}'; -- by id, found out on the way
  v_final jsonb := '{}'; -- those that no other try helps
  v_before jsonb := '{}'; -- jobs of the runs before, by id
  v_claimed uuid[] := '{}'; -- those of them whose replay is ours
  v_refusal record;
  v_faults jsonb;
  v_step exec_step;
  -- Of those that are handed over.
  v_items outbox_item[];
  v_ids text[];
  v_starts timestamptz[];
  v_jobs uuid[];
  v_known uuid[];
BEGIN
  IF NOT exec_is_member(p_node) THEN RETURN; END IF;
  SELECT * INTO STRICT v_config FROM exec_rate_config c WHERE c.item_type = p_item_type;
  FOR v IN SELECT q.payment_id FROM payment_exec_queue q
           WHERE q.dispatch_batch_id = p_batch AND q.item_type = p_item_type AND q.queue_status = 'CLAIMED'
           -- In one order with whoever else locks several.
           ORDER BY q.payment_id FOR UPDATE LOOP
    v_ids := v_ids || v.payment_id;
  END LOOP;
  -- What was started once stays as it is: a later run goes on with it.
  INSERT INTO exec_step AS e (item_type, payment_id, step_no, name, rail_type, job_type, payload, status_after)
  SELECT p_item_type, p_ids[s.item], s.no, s.name, s.rail, s.type, s.payload, s.status
  FROM unnest(p_step_item, p_step_no, p_step_name, p_step_rail, p_step_type, p_step_payload, p_step_status)
    AS s(item, no, name, rail, type, payload, status)
  WHERE p_ids[s.item] = ANY (v_ids) ORDER BY 2, 3
  ON CONFLICT (item_type, payment_id, step_no) DO UPDATE
  SET name = excluded.name, rail_type = excluded.rail_type, job_type = excluded.job_type, payload = excluded.payload,
    status_after = excluded.status_after
  WHERE e.first_job IS NULL;

  FOR v IN SELECT q.payment_id, q.exec_outbox_id AS job FROM payment_exec_queue q
           WHERE q.dispatch_batch_id = p_batch AND q.item_type = p_item_type AND q.queue_status = 'CLAIMED'
             AND q.exec_outbox_id IS NOT NULL AND v_config.enabled = 1 ORDER BY q.exec_outbox_id LOOP
    v_before := v_before || jsonb_build_object(v.payment_id, v.job);
    SELECT * INTO v_refusal FROM replay_refusal(v.job);
    IF v_refusal.result IS NULL THEN
      INSERT INTO job_replay (replay_of) VALUES (v.job) ON CONFLICT DO NOTHING;
      IF FOUND THEN v_claimed := v_claimed || v.job; ELSE v_refusal.detail := 'was replayed'; END IF;
    END IF;
    -- Of a job whose day has been dropped, nothing can be said any more.
    IF v_refusal.detail IS NOT NULL AND v_refusal.result IS DISTINCT FROM 'UNKNOWN' THEN
      v_final := v_final || jsonb_build_object(v.payment_id, format('job %s of the run before: %s', v.job, v_refusal.detail));
    END IF;
  END LOOP;
  v_errors := v_final;

  LOOP
    v_items := '{}'; v_ids := '{}'; v_starts := '{}'; v_jobs := '{}'; v_group := NULL;
    FOR v IN
      SELECT q.payment_id, q.group_id, q.scheduled_exec_time, q.requested_time, q.acceptance_no, q.run_no, q.step_no,
             coalesce(v_errors ->> q.payment_id, i.error, CASE WHEN i.n IS NULL THEN 'was claimed and not prepared' END) AS error
      FROM payment_exec_queue q
      LEFT JOIN unnest(p_ids, p_errors) WITH ORDINALITY AS i(id, error, n) ON i.id = q.payment_id
      WHERE q.dispatch_batch_id = p_batch AND q.item_type = p_item_type AND q.queue_status = 'CLAIMED'
      ORDER BY q.group_id, q.scheduled_exec_time, q.requested_time, q.acceptance_no
    LOOP
      IF v.group_id IS DISTINCT FROM v_group THEN
        v_group := v.group_id;
        -- Once per group and batch, so that the order within it stays.
        v_jitter := CASE WHEN v_config.jitter_window_ms = 0 THEN interval '0' ELSE
          ('x' || left(md5(p_batch || v_group), 8))::bit(32)::bigint % v_config.jitter_window_ms * interval '1 millisecond' END;
        v_floor := v_at + v_jitter;
        v_stopped := false;
        v_from := ROW('-infinity'::timestamptz, '-infinity'::timestamptz, 0::bigint);
        SELECT o.scheduled_exec_time, o.requested_time, o.acceptance_no INTO v_bar FROM payment_exec_queue o
        WHERE o.item_type = p_item_type AND o.group_id = v_group AND o.queue_status IN ('READY', 'CLAIMED') AND o.step_no = 1
          AND o.dispatch_batch_id IS DISTINCT FROM p_batch
        ORDER BY o.scheduled_exec_time, o.requested_time, o.acceptance_no LIMIT 1;
      END IF;
      -- A later step is not among those that have an order.
      IF v.step_no = 1 THEN
        v_stopped := v_stopped OR coalesce((v_bar.scheduled_exec_time, v_bar.requested_time, v_bar.acceptance_no)
          < (v.scheduled_exec_time, v.requested_time, v.acceptance_no), false);
        CONTINUE WHEN v_stopped;
        SELECT max(o.exec_start_at),
               coalesce(bool_or(EXISTS (SELECT 1 FROM scheduled_job s WHERE s.outbox_id = o.exec_outbox_id)), false)
        INTO v_starts_at, v_waits FROM payment_exec_queue o
        WHERE o.item_type = p_item_type AND o.group_id = v_group AND o.queue_status = 'DISPATCHED' AND o.step_no = 1
          AND (o.scheduled_exec_time, o.requested_time, o.acceptance_no) > (v_from.f1, v_from.f2, v_from.f3)
          AND (o.scheduled_exec_time, o.requested_time, o.acceptance_no)
            < (v.scheduled_exec_time, v.requested_time, v.acceptance_no);
        v_from := ROW(v.scheduled_exec_time, v.requested_time, v.acceptance_no);
        -- One that waits for its moment has no number yet: what comes behind it waits as well, until after this call.
        v_floor := greatest(v_floor, v_starts_at,
          CASE WHEN v_waits THEN clock_timestamp() + interval '1 second' + cardinality(p_ids) * interval '3 milliseconds' END);
      END IF;
      IF v.error IS NOT NULL OR v_config.enabled = 0 THEN
        v_stopped := v_stopped OR v.step_no = 1;
        CONTINUE;
      END IF;
      SELECT * INTO v_step FROM exec_step s
      WHERE s.item_type = p_item_type AND s.payment_id = v.payment_id AND s.step_no = v.step_no;
      IF v_step.rail_type IS NULL THEN
        v_errors := v_errors || jsonb_build_object(v.payment_id, format('step %s has no rail to go to', v.step_no));
        v_stopped := v_stopped OR v.step_no = 1;
        CONTINUE;
      END IF;
      v_start := CASE WHEN v.step_no = 1 THEN greatest(v_floor, v.scheduled_exec_time + v_jitter) ELSE v_at END;
      v_floor := CASE WHEN v.step_no = 1 THEN v_start ELSE v_floor END;
      v_ids := v_ids || v.payment_id;
      v_starts := v_starts || v_start;
      v_items := v_items || exec_job(p_item_type, v.payment_id, v.run_no, v.group_id, v_step, v_start);
    END LOOP;
    EXIT WHEN v_ids = '{}';

    -- What cannot be enqueued is found out here; then all is taken back, and done without it and what stands behind it.
    BEGIN
      SELECT array_agg(e.outbox_id ORDER BY e.ordinal),
             jsonb_object_agg(v_ids[e.ordinal], e.fault) FILTER (WHERE e.fault IS NOT NULL)
      INTO v_jobs, v_faults
      FROM (SELECT x.outbox_id, x.ordinal, coalesce(x.fault, CASE
              WHEN NOT x.created AND NOT exec_is_job(x.outbox_id, p_item_type, v_ids[x.ordinal])
                THEN format('its key is another job''s: %s', x.outbox_id) END) AS fault
            FROM enqueue_outbox(v_items, true) x) e;
      IF v_faults IS NOT NULL THEN
        v_errors := v_errors || v_faults;
        RAISE EXCEPTION 'taken back' USING ERRCODE = 'RY000';
      END IF;
      EXIT;
    EXCEPTION WHEN SQLSTATE 'RY000' THEN NULL;
    END;
  END LOOP;

  UPDATE payment_exec_queue q SET queue_status = 'DISPATCHED', exec_workflow_id = exec_run_id(p_item_type, q.payment_id, q.run_no),
    exec_outbox_id = h.job, exec_start_at = h.start, dispatched_at = clock_timestamp(), last_error = NULL,
    updated_at = clock_timestamp()
  FROM unnest(v_ids, v_jobs, v_starts) AS h(id, job, start)
  WHERE q.item_type = p_item_type AND q.payment_id = h.id;
  dispatched := cardinality(v_ids);
  UPDATE exec_step s SET first_job = coalesce(s.first_job, h.job)
  FROM unnest(v_ids, v_jobs) AS h(id, job)
  JOIN payment_exec_queue q ON q.item_type = p_item_type AND q.payment_id = h.id
  WHERE s.item_type = p_item_type AND s.payment_id = h.id AND s.step_no = q.step_no;
  -- A later run is to the rail what the first one was.
  FOR v IN SELECT h.job, s.first_job, (v_before ->> h.id)::uuid AS before
           FROM unnest(v_ids, v_jobs) AS h(id, job)
           JOIN payment_exec_queue q ON q.item_type = p_item_type AND q.payment_id = h.id
           JOIN exec_step s ON s.item_type = p_item_type AND s.payment_id = h.id AND s.step_no = q.step_no
           WHERE v_before ? h.id LOOP
    UPDATE dispatch_job d SET rail_key = v.first_job, replay_of = v.before WHERE d.outbox_id = v.job AND v.before <> v.job;
    UPDATE job_replay r SET outbox_id = v.job WHERE r.replay_of = v.before AND r.replay_of = ANY (v_claimed);
  END LOOP;
  DELETE FROM job_replay r WHERE r.replay_of = ANY (v_claimed) AND r.outbox_id IS NULL;

  -- What could not be started, and what stands behind it.
  failed := 0; dead := 0; put_back := 0;
  FOR v IN
    SELECT q.payment_id, v_final ? q.payment_id OR q.retry_count + 1 >= v_config.max_dispatch_retries AS spent,
           CASE WHEN v_config.enabled = 1
             THEN coalesce(v_errors ->> q.payment_id, i.error, CASE WHEN i.n IS NULL THEN 'was claimed and not prepared' END) END AS error
    FROM payment_exec_queue q
    LEFT JOIN unnest(p_ids, p_errors) WITH ORDINALITY AS i(id, error, n) ON i.id = q.payment_id
    WHERE q.dispatch_batch_id = p_batch AND q.item_type = p_item_type AND q.queue_status = 'CLAIMED'
  LOOP
    UPDATE payment_exec_queue q
    SET queue_status = CASE WHEN v.error IS NOT NULL AND v.spent THEN 'DEAD_LETTER' ELSE 'READY' END,
      retry_count = q.retry_count + (v.error IS NOT NULL)::integer, last_error = coalesce(left(v.error, 4000), q.last_error),
      claimed_at = NULL, dispatch_batch_id = NULL, exec_workflow_id = NULL, updated_at = clock_timestamp()
    WHERE q.item_type = p_item_type AND q.payment_id = v.payment_id;
    IF v.error IS NULL THEN
      put_back := put_back + 1;
    ELSE
      failed := failed + 1;
      dead := dead + v.spent::integer;
      INSERT INTO dispatch_audit_log (batch_id, item_type, payment_id, action, status_before, status_after, detail)
      VALUES (p_batch, p_item_type, v.payment_id, 'DISPATCH_FAILED', 'CLAIMED',
        CASE WHEN v.spent THEN 'DEAD_LETTER' ELSE 'READY' END, left(v.error, 500));
    END IF;
  END LOOP;
  lost := cardinality(p_ids) - dispatched - failed - put_back;

  INSERT INTO dispatch_audit_log (batch_id, item_type, payment_id, action, status_before, status_after, detail)
  SELECT p_batch, p_item_type, q.payment_id, 'DISPATCHED', 'CLAIMED', 'DISPATCHED', q.exec_workflow_id
  FROM payment_exec_queue q WHERE q.item_type = p_item_type AND q.payment_id = ANY (v_ids);
  INSERT INTO dispatch_audit_log (batch_id, item_type, action, detail)
  VALUES (p_batch, p_item_type, 'BATCH_COMPLETE',
    format('dispatched %s, failed %s, put back %s', dispatched, failed, put_back)
      || CASE WHEN lost > 0 THEN ', lost ' || lost ELSE '' END);

  -- What turned out to have been delivered has its step behind it.
  FOR v IN SELECT (v_before ->> f.id)::uuid AS job FROM jsonb_object_keys(v_final) AS f(id) ORDER BY 1 LOOP
    PERFORM exec_late_success(v.job);
  END LOOP;
  -- A run that was handed over before may have ended by now.
  SELECT array_agg(o.outbox_id) INTO v_known FROM dispatch_job_outcome o WHERE o.outbox_id = ANY (v_jobs);
  IF v_known IS NOT NULL THEN PERFORM exec_advance(v_known); END IF;
  PERFORM exec_still(p_item_type, v_config.enabled);
  IF NOT exec_is_member(p_node) THEN RAISE EXCEPTION 'its lease ended meanwhile' USING ERRCODE = '40001'; END IF;
END $$;

-- Whether a job, or one that it replays, was given up and turned out to have been delivered.
CREATE FUNCTION exec_was_delivered(p_job uuid) RETURNS boolean LANGUAGE sql STABLE AS $$
  WITH RECURSIVE chain AS (
    SELECT p_job AS id
    UNION ALL
    SELECT j.replay_of FROM chain c JOIN dispatch_job j ON j.outbox_id = c.id WHERE j.replay_of IS NOT NULL
  )
  SELECT EXISTS (SELECT 1 FROM chain c JOIN payment_outbox_attempt_archive a ON a.outbox_id = c.id
                 WHERE a.late AND a.state = 'DISPATCHED')
$$;

-- Whether a job that was given up may have been delivered all the same: an attempt of it, or of a job that it replays, got no
-- answer (core::error_code: answer_lost), none came late, and no later attempt was refused by the rail's own word, which on a
-- rail that knows a repeat by its key is the answer to all of them. What was never sent is no attempt that anybody could
-- have acted on.
CREATE FUNCTION exec_is_in_doubt(p_job uuid) RETURNS boolean LANGUAGE sql STABLE AS $$
  WITH RECURSIVE chain AS (
    SELECT p_job AS id
    UNION ALL
    SELECT j.replay_of FROM chain c
    CROSS JOIN LATERAL (SELECT x.replay_of FROM dispatch_job x WHERE x.outbox_id = c.id OFFSET 0) j
    WHERE j.replay_of IS NOT NULL
  ), attempt AS MATERIALIZED (
    SELECT a.outbox_id, a.attempt_no, a.late, a.claimed_at, a.rail_type, a.state = 'FAILED' AND a.error_code = 'RAIL_REFUSED' AS refused,
      a.state = 'ZOMBIE_REQUEUE' OR a.state = 'FAILED' AND a.completed_at IS NULL
        OR CASE WHEN a.error_code = 'RETRY_CEILING_EXCEEDED' THEN split_part(a.error_message, ':', 1) ELSE a.error_code END
          IN ('DISPATCH_TIMEOUT', 'CONNECTION_RESET', 'CONNECTION_CLOSED', 'PROTOCOL_ERROR') AS lost
    FROM chain c
    CROSS JOIN LATERAL (SELECT x.* FROM payment_outbox_attempt_archive x WHERE x.outbox_id = c.id OFFSET 0) a
  )
  SELECT EXISTS (
    SELECT 1 FROM attempt a
    WHERE a.lost AND NOT a.late
      AND NOT EXISTS (SELECT 1 FROM attempt l
                      WHERE l.outbox_id = a.outbox_id AND l.attempt_no = a.attempt_no AND l.late AND l.lost IS NOT TRUE)
      AND NOT EXISTS (SELECT 1 FROM attempt b JOIN rail r ON r.rail_type = b.rail_type AND r.on_unknown = 'retry'
                      WHERE b.refused AND b.claimed_at > a.claimed_at))
$$;

-- What follows from the ends of these jobs: the next step is due, or COMPLETED, or the end without success. p_delivered:
-- they succeeded, whatever was written down before that was known. Takes no lock but those of the items and their payments.
CREATE FUNCTION exec_advance(p_jobs uuid[], p_delivered boolean DEFAULT false) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
#variable_conflict use_column
DECLARE
  v record;
  v_step exec_step;
  v_status text;
BEGIN
  FOR v IN
    SELECT q.*, CASE WHEN p_delivered THEN 'COMPLETED' ELSE o.status END AS ended, o.last_error AS why
    FROM unnest(p_jobs) AS j(id)
    CROSS JOIN LATERAL (SELECT x.* FROM payment_exec_queue x
                        WHERE x.exec_outbox_id = j.id AND x.queue_status = 'DISPATCHED' LIMIT 1) q
    CROSS JOIN LATERAL (SELECT x.status, x.last_error FROM dispatch_job_outcome x WHERE x.outbox_id = j.id LIMIT 1) o
    ORDER BY q.item_type, q.payment_id
  LOOP
    PERFORM 1 FROM payment_exec_queue q
    WHERE q.item_type = v.item_type AND q.payment_id = v.payment_id AND q.queue_status = 'DISPATCHED'
      AND q.exec_outbox_id = v.exec_outbox_id FOR UPDATE;
    CONTINUE WHEN NOT FOUND;
    IF v.ended <> 'COMPLETED' AND NOT exec_was_delivered(v.exec_outbox_id) THEN
      -- ERROR: its retries are spent, or no retry helps. Else somebody, or its time, has ended it.
      v_status := CASE v.ended WHEN 'ERROR' THEN 'DEAD_LETTER' ELSE 'FAILED' END;
      UPDATE payment_exec_queue q SET queue_status = v_status, last_error = left(coalesce(v.why, v.ended), 4000),
        updated_at = clock_timestamp()
      WHERE q.item_type = v.item_type AND q.payment_id = v.payment_id;
      INSERT INTO dispatch_audit_log (batch_id, item_type, payment_id, action, status_before, status_after, detail)
      VALUES (coalesce(v.dispatch_batch_id, 'OUTBOX'), v.item_type, v.payment_id, 'EXECUTION_FAILED', 'DISPATCHED', v_status,
        left(coalesce(v.why, v.ended), 500));
      CONTINUE;
    END IF;
    LOOP
      SELECT * INTO v_step FROM exec_step s
      WHERE s.item_type = v.item_type AND s.payment_id = v.payment_id AND s.step_no = v.step_no;
      IF v_step.status_after IS NOT NULL AND v.item_type = 'PAYMENT' THEN
        UPDATE payment p SET status = v_step.status_after, updated_at = clock_timestamp()
        WHERE p.payment_id = v.payment_id
          AND (p.status, v_step.status_after) IN (('SCHEDULED', 'ACCEPTED'), ('ACCEPTED', 'PROCESSING'));
      END IF;
      SELECT * INTO v_step FROM exec_step s
      WHERE s.item_type = v.item_type AND s.payment_id = v.payment_id AND s.step_no > v.step_no ORDER BY s.step_no LIMIT 1;
      EXIT WHEN NOT FOUND;
      v.step_no := v_step.step_no;
      EXIT WHEN v_step.rail_type IS NOT NULL;
    END LOOP;
    IF v_step.step_no IS NULL THEN
      UPDATE payment_exec_queue q SET queue_status = 'COMPLETED', step_no = v.step_no, completed_at = clock_timestamp(),
        updated_at = clock_timestamp()
      WHERE q.item_type = v.item_type AND q.payment_id = v.payment_id;
      DELETE FROM payment_exec_context c WHERE c.item_type = v.item_type AND c.payment_id = v.payment_id;
      DELETE FROM exec_step s WHERE s.item_type = v.item_type AND s.payment_id = v.payment_id;
    ELSE
      UPDATE payment_exec_queue q SET step_no = v.step_no, exec_outbox_id = NULL, step_due_at = clock_timestamp(),
        updated_at = clock_timestamp()
      WHERE q.item_type = v.item_type AND q.payment_id = v.payment_id;
    END IF;
  END LOOP;
END $$;

-- Hands over the later steps that are due, of an enabled type; those that another node is at are passed over. In a
-- transaction of its own: it takes numbers of groups and keys, which an outcome's must not wait for.
CREATE FUNCTION dispatch_steps(p_item_type text, p_limit integer, OUT started integer, OUT dead integer)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off AS $$
#variable_conflict use_column
DECLARE
  v record;
  v_items outbox_item[] := '{}';
  v_ids text[] := '{}';
  v_step exec_step;
  v_error text;
BEGIN
  started := 0; dead := 0;
  PERFORM 1 FROM exec_rate_config c WHERE c.item_type = p_item_type AND c.enabled = 1;
  IF NOT FOUND THEN RETURN; END IF;
  FOR v IN
    SELECT q.payment_id, q.run_no, q.step_no, q.group_id FROM payment_exec_queue q
    WHERE q.item_type = p_item_type AND q.step_due_at IS NOT NULL AND q.queue_status = 'DISPATCHED'
    ORDER BY q.step_due_at LIMIT p_limit FOR UPDATE SKIP LOCKED
  LOOP
    SELECT * INTO v_step FROM exec_step s
    WHERE s.item_type = p_item_type AND s.payment_id = v.payment_id AND s.step_no = v.step_no;
    v_items := v_items || exec_job(p_item_type, v.payment_id, v.run_no, v.group_id, v_step, NULL);
    v_ids := v_ids || v.payment_id;
  END LOOP;
  FOR v IN SELECT e.outbox_id, e.created, e.fault, v_ids[e.ordinal] AS id FROM enqueue_outbox(v_items, true) e LOOP
    v_error := left(coalesce(v.fault, CASE WHEN NOT v.created AND NOT exec_is_job(v.outbox_id, p_item_type, v.id)
      THEN format('its key is another job''s: %s', v.outbox_id) END), 4000);
    UPDATE payment_exec_queue q SET exec_outbox_id = CASE WHEN v_error IS NULL THEN v.outbox_id END, last_error = v_error,
      queue_status = CASE WHEN v_error IS NULL THEN q.queue_status ELSE 'DEAD_LETTER' END, step_due_at = NULL,
      updated_at = clock_timestamp()
    WHERE q.item_type = p_item_type AND q.payment_id = v.id;
    IF v_error IS NULL THEN
      started := started + 1;
      UPDATE exec_step s SET first_job = coalesce(s.first_job, v.outbox_id)
      FROM payment_exec_queue q
      WHERE q.item_type = p_item_type AND q.payment_id = v.id
        AND s.item_type = p_item_type AND s.payment_id = v.id AND s.step_no = q.step_no;
    ELSE
      dead := dead + 1;
      INSERT INTO dispatch_audit_log (batch_id, item_type, payment_id, action, status_before, status_after, detail)
      VALUES ('OUTBOX', p_item_type, v.id, 'EXECUTION_FAILED', 'DISPATCHED', 'DEAD_LETTER', left(v_error, 500));
    END IF;
  END LOOP;
  IF v_ids <> '{}' THEN PERFORM exec_still(p_item_type, 1::smallint); END IF;
END $$;

-- An item whose job ended without success and turned out to have been delivered goes on as if that had been known.
CREATE FUNCTION exec_late_success(p_job uuid) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
  v_jobs uuid[];
BEGIN
  IF NOT exec_was_delivered(p_job) THEN RETURN; END IF;
  -- Whoever writes the end of its item at this moment is waited for, or waits and finds that it was delivered.
  PERFORM 1 FROM payment_exec_queue q
  WHERE q.exec_outbox_id = ANY (ARRAY(
    WITH RECURSIVE chain AS (
      SELECT p_job AS id
      UNION ALL
      SELECT r.outbox_id FROM chain c JOIN job_replay r ON r.replay_of = c.id WHERE r.outbox_id IS NOT NULL
    ) SELECT c.id FROM chain c))
  ORDER BY q.item_type, q.payment_id FOR UPDATE;
  -- Its job may have been made again since.
  WITH RECURSIVE chain AS (
    SELECT p_job AS id
    UNION ALL
    SELECT r.outbox_id FROM chain c JOIN job_replay r ON r.replay_of = c.id WHERE r.outbox_id IS NOT NULL
  ), followed AS (
    UPDATE payment_exec_queue q SET queue_status = 'DISPATCHED', last_error = NULL, updated_at = clock_timestamp()
    WHERE q.exec_outbox_id = ANY (ARRAY(SELECT c.id FROM chain c)) AND q.queue_status IN ('FAILED', 'DEAD_LETTER')
    RETURNING q.item_type, q.payment_id, q.exec_outbox_id
  ), logged AS (
    INSERT INTO dispatch_audit_log (batch_id, item_type, payment_id, action, status_after, detail)
    SELECT 'OUTBOX', f.item_type, f.payment_id, 'LATE_SUCCESS', 'DISPATCHED', p_job::text FROM followed f
  )
  SELECT array_agg(f.exec_outbox_id) INTO v_jobs FROM followed f;
  IF v_jobs IS NOT NULL THEN PERFORM exec_advance(v_jobs, true); END IF;
END $$;

-- Every way in which a job ends writes its outcome; what it means for a scheduled item is part of the same transaction.
CREATE FUNCTION exec_job_ended() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
  v_jobs uuid[];
BEGIN
  SELECT array_agg(e.outbox_id) INTO v_jobs FROM ended e
  WHERE EXISTS (SELECT 1 FROM payment_exec_queue q
                WHERE q.exec_outbox_id = e.outbox_id AND q.queue_status = 'DISPATCHED' OFFSET 0);
  IF v_jobs IS NOT NULL THEN PERFORM exec_advance(v_jobs); END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER exec_job_ended AFTER INSERT ON dispatch_job_outcome
REFERENCING NEW TABLE AS ended FOR EACH STATEMENT EXECUTE FUNCTION exec_job_ended();

-- A person's decision: a new run of what ended without success, from the step that it ended at. done is false if it is in
-- no such state; refused says why a new run would be once too often.
CREATE FUNCTION dispatch_requeue(p_item_type text, p_id text, p_actor text, p_reason text, OUT done boolean, OUT refused text)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v record;
  v_run integer;
BEGIN
  done := false;
  SELECT q.queue_status, q.exec_outbox_id, q.run_no, q.step_no, q.dispatched_at INTO v FROM payment_exec_queue q
  WHERE q.item_type = p_item_type AND q.payment_id = p_id AND q.queue_status IN ('FAILED', 'DEAD_LETTER') FOR UPDATE;
  IF NOT FOUND THEN RETURN; END IF;
  IF v.exec_outbox_id IS NOT NULL THEN
    SELECT CASE WHEN r.result = 'REFUSED' THEN format('job %s: %s', v.exec_outbox_id, r.detail) END INTO refused
    FROM replay_refusal(v.exec_outbox_id) r;
    IF refused IS NULL THEN
      SELECT format('job %s was replayed: %s', v.exec_outbox_id, r.outbox_id) INTO refused
      FROM job_replay r WHERE r.replay_of = v.exec_outbox_id;
    END IF;
    IF refused IS NOT NULL THEN RETURN; END IF;
  END IF;
  UPDATE payment_exec_queue q SET queue_status = 'READY', retry_count = 0,
    -- One that was never handed over has had no run, unless somebody else has its key.
    run_no = q.run_no + (q.dispatched_at IS NOT NULL OR EXISTS (
      SELECT 1 FROM idempotency_key k
      WHERE k.kind = 'instruction' AND k.scope = p_id
        AND k.key = exec_job_key(p_item_type, p_id, v.run_no, v.step_no,
          (SELECT s.name FROM exec_step s
           WHERE s.item_type = p_item_type AND s.payment_id = p_id AND s.step_no = v.step_no))))::integer,
    claimed_at = NULL, dispatch_batch_id = NULL, exec_workflow_id = NULL, dispatched_at = NULL, updated_at = clock_timestamp()
  WHERE q.item_type = p_item_type AND q.payment_id = p_id RETURNING q.run_no INTO v_run;
  INSERT INTO dispatch_audit_log (batch_id, item_type, payment_id, action, status_before, status_after, detail)
  VALUES ('REQUEUE', p_item_type, p_id, 'REQUEUED', v.queue_status, 'READY',
    left(format('run %s, by %s: %s', v_run, p_actor, p_reason), 500));
  INSERT INTO admin_audit (action, actor, reason, detail)
  VALUES ('dispatch.requeue', p_actor, p_reason, jsonb_build_object('itemType', p_item_type, 'itemId', p_id, 'run', v_run));
  done := true;
END $$;

-- Rails that a type began with before it was given another one: what was handed over then is there still, and a new run of
-- it goes there as well. Forgotten when nothing of that is left.
CREATE TABLE exec_former_rail (
  item_type text NOT NULL,
  rail_type text NOT NULL,
  since     timestamptz NOT NULL,
  PRIMARY KEY (item_type, rail_type)
);
COMMENT ON COLUMN exec_former_rail.since IS 'when the type was given another one';

CREATE FUNCTION exec_keep_rail() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  INSERT INTO exec_former_rail AS f (item_type, rail_type, since)
  VALUES (OLD.item_type, OLD.exec_task_queue, clock_timestamp())
  ON CONFLICT (item_type, rail_type) DO UPDATE SET since = excluded.since;
  RETURN NULL;
END $$;
CREATE TRIGGER exec_keep_rail AFTER UPDATE OF exec_task_queue ON exec_rate_config
FOR EACH ROW WHEN (OLD.exec_task_queue <> NEW.exec_task_queue) EXECUTE FUNCTION exec_keep_rail();

-- Which types' items go to a rail first, or may be there still.
CREATE VIEW exec_type_rail AS
SELECT c.item_type, c.exec_task_queue AS rail_type, c.enabled FROM exec_rate_config c
UNION
SELECT c.item_type, f.rail_type, c.enabled FROM exec_former_rail f JOIN exec_rate_config c ON c.item_type = f.item_type;

-- Locks in one order, whoever switches what: this one before any row of types or rails, then switches, hints and limiters,
-- each by name. So two who switch the last two types of a rail off see each other, and nobody waits for who waits for them.
CREATE FUNCTION exec_switch_lock() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  PERFORM pg_advisory_xact_lock(hashtext('railyard exec_switch_rails'));
  RETURN NULL;
END $$;
CREATE TRIGGER exec_switch_lock BEFORE INSERT OR DELETE OR UPDATE ON exec_rate_config
FOR EACH STATEMENT EXECUTE FUNCTION exec_switch_lock();
CREATE TRIGGER exec_switch_lock BEFORE INSERT OR UPDATE ON rail
FOR EACH STATEMENT EXECUTE FUNCTION exec_switch_lock();

-- The kill switch covers what was handed over: a payment rail that only switched-off types begin with, or began with, stops
-- with them, in the same transaction and whoever writes it, and goes on with the first of them, unless a person has stopped
-- it meanwhile. A rail that other types begin with as well goes on for them; one whose types are all gone stays as it is,
-- until a person says otherwise.
CREATE FUNCTION exec_switch_rails() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
  v record;
  v_off text[] := '{}'; -- rails that this stops
  v_on text[] := '{}'; -- rails that this lets go on
BEGIN
  -- Who was told that a type is off finds it off after a crash.
  PERFORM set_config('synchronous_commit', 'on', true);
  FOR v IN
    SELECT r.rail_type AS name, bool_and(t.enabled = 0) AS off,
           'item types: ' || string_agg(t.item_type, ', ' ORDER BY t.item_type) AS types
    FROM rail r JOIN exec_type_rail t ON t.rail_type = r.rail_type
    WHERE r.kind = 'payment' GROUP BY r.rail_type ORDER BY r.rail_type COLLATE "C"
  LOOP
    IF v.off THEN
      INSERT INTO rail_switch AS s (kind, name, paused, reason, actor)
      VALUES ('rail', v.name, true, 'switched off ' || v.types, 'exec_rate_config')
      ON CONFLICT (kind, name) DO UPDATE
      SET paused = true, reason = excluded.reason, actor = excluded.actor, since = clock_timestamp()
      WHERE NOT s.paused;
      CONTINUE WHEN NOT FOUND;
      v_off := v_off || v.name;
    ELSE
      UPDATE rail_switch s SET paused = false, reason = 'switched on ' || v.types, since = clock_timestamp()
      WHERE s.kind = 'rail' AND s.name = v.name AND s.paused AND s.actor = 'exec_rate_config';
      CONTINUE WHEN NOT FOUND;
      v_on := v_on || v.name;
    END IF;
    INSERT INTO admin_audit (action, actor, reason, detail)
    VALUES (CASE WHEN v.off THEN 'rail.pause' ELSE 'rail.resume' END, 'exec_rate_config',
      CASE WHEN v.off THEN 'switched off ' ELSE 'switched on ' END || v.types, jsonb_build_object('railType', v.name));
  END LOOP;
  IF cardinality(v_on) > 0 THEN
    -- As a person's word does: what waits is looked at now, and slots are granted last.
    PERFORM 1 FROM ready_group g
    WHERE g.due_at > clock_timestamp() AND g.due_at <= clock_timestamp() + interval '5 seconds'
    ORDER BY g.participant_id FOR UPDATE;
    UPDATE ready_group g SET due_at = clock_timestamp()
    WHERE g.due_at > clock_timestamp() AND g.due_at <= clock_timestamp() + interval '5 seconds';
    UPDATE payment_outbox_pending p SET next_attempt_at = clock_timestamp()
    WHERE p.participant_id IS NULL AND p.rail_type = ANY (v_on) AND p.attempt_count = 0
      AND p.next_attempt_at > clock_timestamp() AND p.next_attempt_at <= clock_timestamp() + interval '5 seconds';
  END IF;
  FOR v IN SELECT u.name, u.name = ANY (v_off) AS off FROM unnest(v_off || v_on) AS u(name) ORDER BY u.name COLLATE "C" LOOP
    IF v.off THEN
      INSERT INTO rail_limiter AS l (limit_key, next_at, asked_at, paused)
      VALUES ('rail:' || v.name, 'infinity', clock_timestamp(), true)
      ON CONFLICT (limit_key) DO UPDATE SET paused = true;
    ELSE
      UPDATE rail_limiter l SET paused = false WHERE l.limit_key = 'rail:' || v.name;
    END IF;
  END LOOP;
  IF cardinality(v_off || v_on) > 0 THEN
    PERFORM pg_notify('railyard_cache', 'rails');
    PERFORM pg_notify('outbox_pending', 'new_work');
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER exec_switch_rails AFTER INSERT OR DELETE OR UPDATE OF enabled, exec_task_queue ON exec_rate_config
FOR EACH STATEMENT EXECUTE FUNCTION exec_switch_rails();
CREATE TRIGGER exec_switch_rails AFTER INSERT OR UPDATE OF kind ON rail
FOR EACH STATEMENT EXECUTE FUNCTION exec_switch_rails();

REVOKE ALL ON exec_step, exec_turn, exec_former_rail, exec_type_rail FROM PUBLIC;
REVOKE ALL ON FUNCTION exec_still(text, smallint), exec_is_member(uuid), exec_is_job(uuid, text, text), exec_was_delivered(uuid), exec_is_in_doubt(uuid), exec_lock_items(uuid[]), exec_is_requeued(uuid), exec_follow_replay(uuid, uuid),
  exec_run_id(text, text, integer), exec_job_key(text, text, integer, integer, text),
  exec_job(text, text, integer, text, exec_step, timestamptz), exec_turn_in_ms(exec_turn, uuid, integer), dispatch_look(uuid),
  exec_take_turn(text, uuid), dispatch_claim(text, text, integer), dispatch_claimed(text, text), dispatch_steps(text, integer),
  exec_late_success(uuid), dispatch_recover(text, integer),
  dispatch_hand_over(uuid, text, text, text[], text[], integer[], smallint[], text[], text[], text[], bytea[], text[]),
  exec_advance(uuid[], boolean), exec_job_ended(), exec_switch_lock(), exec_switch_rails(), exec_keep_rail(), dispatch_requeue(text, text, text, text) FROM PUBLIC;
GRANT SELECT ON exec_step, exec_type_rail TO railyard_runtime;
GRANT SELECT, DELETE ON exec_former_rail TO railyard_runtime;
GRANT SELECT, INSERT, UPDATE ON exec_turn TO railyard_runtime;
GRANT EXECUTE ON FUNCTION exec_is_job(uuid, text, text), exec_is_in_doubt(uuid), exec_run_id(text, text, integer), exec_job_key(text, text, integer, integer, text),
  exec_turn_in_ms(exec_turn, uuid, integer), dispatch_look(uuid), exec_take_turn(text, uuid), dispatch_claim(text, text, integer),
  dispatch_claimed(text, text), dispatch_steps(text, integer), exec_late_success(uuid), dispatch_recover(text, integer),
  dispatch_hand_over(uuid, text, text, text[], text[], integer[], smallint[], text[], text[], text[], bytea[], text[]),
  exec_advance(uuid[], boolean), dispatch_requeue(text, text, text, text) TO railyard_runtime;
