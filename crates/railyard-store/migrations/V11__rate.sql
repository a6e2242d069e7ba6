-- The planner: when each event may start. Time is cut into windows that are aligned to the epoch; window n of a
-- configuration begins at n times its size. What is written here says how many have been planned into each.
--
-- A *grid* is a size of windows and a calendar; it is named by the configuration row that began it. Windows of two grids
-- are never compared: a change of either begins a new grid and counts what is planned anew, by its time.
-- A *run* is an unbroken stretch of windows that all have a counter (or are closed): where it ends is the frontier of
-- everything that is asked for within it. What has room within a run is found by an index of its own, so the cost of a
-- search depends neither on how many windows are full nor on how far away the next free one is.

-- Rows are history: a change inserts one and deactivates the one before; none is deleted, none changed besides.
CREATE TABLE rate_limit_config (
  config_id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  config_name      text NOT NULL CHECK (config_name ~ '^[A-Za-z0-9_.-]{1,64}$'),
  max_per_window   integer NOT NULL CHECK (max_per_window BETWEEN 1 AND 1000000),
  window_size_secs integer NOT NULL CHECK (window_size_secs BETWEEN 1 AND 86400),
  frontier         boolean NOT NULL DEFAULT true,
  max_lookahead    integer NOT NULL DEFAULT 200 CHECK (max_lookahead BETWEEN 1 AND 1000000),
  calendar         jsonb CHECK (jsonb_typeof(calendar) = 'object'),
  grid             bigint NOT NULL,
  is_active        boolean NOT NULL,
  created_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
  created_by       text NOT NULL,
  deactivated_at   timestamptz
);
COMMENT ON COLUMN rate_limit_config.frontier IS 'false: search no more than max_lookahead windows from the requested one';
COMMENT ON COLUMN rate_limit_config.grid IS 'config_id of the row that began this size and calendar';
CREATE UNIQUE INDEX ux_rate_limit_config_active ON rate_limit_config (config_name) WHERE is_active;
CREATE INDEX ix_rate_limit_config_name ON rate_limit_config (config_name, config_id);

CREATE TABLE rate_limit_window_counter (
  config_name  text NOT NULL,
  grid         bigint NOT NULL,
  window_start timestamptz NOT NULL,
  slot_count   integer NOT NULL CHECK (slot_count >= 0),
  is_full      boolean NOT NULL,
  room_start   timestamptz GENERATED ALWAYS AS (CASE WHEN NOT is_full THEN window_start END) STORED,
  PRIMARY KEY (config_name, grid, window_start)
) WITH (fillfactor = 70);
COMMENT ON COLUMN rate_limit_window_counter.is_full IS 'slot_count >= max_per_window of the active configuration';
COMMENT ON COLUMN rate_limit_window_counter.room_start IS 'window_start while there is room: a column of its own, so that no plan walks the primary key past full windows';
CREATE INDEX ix_rate_limit_window_room ON rate_limit_window_counter (config_name, grid, room_start) WHERE room_start IS NOT NULL;

CREATE TABLE rate_limit_run (
  config_name  text NOT NULL,
  grid         bigint NOT NULL,
  first_window bigint NOT NULL,
  next_window  bigint NOT NULL CHECK (next_window > first_window),
  PRIMARY KEY (config_name, grid, first_window)
) WITH (fillfactor = 50);
COMMENT ON TABLE rate_limit_run IS 'windows first_window up to, not including, next_window have counters or are closed';

CREATE TABLE rate_limit_event_slot (
  event_id       text PRIMARY KEY CHECK (event_id <> '' AND length(event_id) <= 255),
  config_name    text NOT NULL,
  config_id      bigint NOT NULL,
  window_start   timestamptz NOT NULL,
  scheduled_time timestamptz NOT NULL,
  requested_time timestamptz NOT NULL,
  confirm_by     timestamptz,
  created_at     timestamptz NOT NULL DEFAULT clock_timestamp()
);
COMMENT ON COLUMN rate_limit_event_slot.window_start IS 'of the grid that it was planned in';
COMMENT ON COLUMN rate_limit_event_slot.confirm_by IS 'not confirmed until then: the slot is given back';
CREATE INDEX ix_rate_limit_slot_time ON rate_limit_event_slot (config_name, scheduled_time);
CREATE INDEX ix_rate_limit_slot_unconfirmed ON rate_limit_event_slot (confirm_by) WHERE confirm_by IS NOT NULL;

-- Locks are named by (this, n): n is a window, -1 the configuration as such, -2 whoever takes many windows.
CREATE FUNCTION rate_lock_of(p_config_name text) RETURNS integer
LANGUAGE sql IMMUTABLE AS $$ SELECT hashtext('railyard rate ' || p_config_name) $$;

CREATE FUNCTION rate_micros(p_at timestamptz) RETURNS bigint
LANGUAGE sql STABLE AS $$ SELECT (extract(epoch FROM p_at) * 1000000)::bigint $$;

CREATE FUNCTION rate_time(p_micros bigint) RETURNS timestamptz
LANGUAGE sql STABLE AS $$ SELECT timestamptz 'epoch' + p_micros * interval '1 microsecond' $$;

-- Notes that the windows from p_from up to p_to have counters now. Runs that touch become one; whoever does it locks runs
-- in ascending order, and the one before only if it is free.
CREATE FUNCTION rate_touched(p_config_name text, p_grid bigint, p_from bigint, p_to bigint) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  v_first bigint;
  v_next bigint;
  v_before bigint;
BEGIN
  UPDATE rate_limit_run r SET next_window = greatest(r.next_window, p_to)
  WHERE r.config_name = p_config_name AND r.grid = p_grid AND r.next_window >= p_from
    AND r.first_window = (SELECT b.first_window FROM rate_limit_run b
                          WHERE b.config_name = p_config_name AND b.grid = p_grid AND b.first_window <= p_from
                          ORDER BY b.first_window DESC LIMIT 1)
  RETURNING r.first_window, r.next_window INTO v_first, v_next;
  IF v_first IS NULL THEN
    INSERT INTO rate_limit_run AS r VALUES (p_config_name, p_grid, p_from, p_to)
    ON CONFLICT (config_name, grid, first_window) DO UPDATE SET next_window = greatest(r.next_window, excluded.next_window)
    RETURNING r.first_window, r.next_window INTO v_first, v_next;
  END IF;
  WITH gone AS (
    DELETE FROM rate_limit_run r
    WHERE r.config_name = p_config_name AND r.grid = p_grid AND r.first_window > v_first AND r.first_window <= v_next
    RETURNING r.next_window)
  UPDATE rate_limit_run r SET next_window = greatest(r.next_window, g.next_window)
  FROM (SELECT max(next_window) AS next_window FROM gone) g
  WHERE r.config_name = p_config_name AND r.grid = p_grid AND r.first_window = v_first AND g.next_window > r.next_window;
  SELECT b.first_window INTO v_before FROM (
    SELECT r.first_window, r.next_window FROM rate_limit_run r
    WHERE r.config_name = p_config_name AND r.grid = p_grid AND r.first_window < v_first
    ORDER BY r.first_window DESC LIMIT 1 FOR UPDATE SKIP LOCKED) b
  WHERE b.next_window >= v_first;
  IF FOUND THEN
    WITH gone AS (
      DELETE FROM rate_limit_run r WHERE r.config_name = p_config_name AND r.grid = p_grid AND r.first_window = v_first
      RETURNING r.next_window)
    UPDATE rate_limit_run r SET next_window = greatest(r.next_window, g.next_window)
    FROM gone g WHERE r.config_name = p_config_name AND r.grid = p_grid AND r.first_window = v_before;
  END IF;
END $$;

-- Gives each event a slot in the first window that is open and has room at or after p_requested (now, if that is past).
-- One statement and one transaction: nobody's process can stop in the middle of it. Either all of them have slots
-- afterwards or the call has done nothing.
--
-- p_dice: for each event a number below 2^24, its place within its window. p_open_first, p_open_end: stretches of open
-- windows in order, the end exclusive; NULL, if all are open. p_confirm_s: see confirm_by.
-- outcome: 'assigned'; 'stale': the configuration is not the active one any more, nothing was done.
-- Raises RY503 'N windows' if nothing free was found, RY504 if the stretches of open windows do not reach far enough.
-- Locks: configuration, then windows (never waited for), their counters, all of them before any run, and slots last.
CREATE FUNCTION rate_assign(p_config_id bigint, p_event_ids text[], p_requested timestamptz, p_dice bigint[],
  p_open_first bigint[], p_open_end bigint[], p_confirm_s integer,
  OUT outcome text, OUT assigned_at timestamptz, OUT depth bigint, OUT contended timestamptz[],
  OUT created boolean[], OUT config_names text[], OUT windows timestamptz[], OUT scheduled timestamptz[])
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off AS $$
#variable_conflict use_column
DECLARE
  v_config rate_limit_config;
  v_lock integer;
  v_size bigint; -- in microseconds
  v_at bigint;
  v_new text[];
  v_made text[];
  v_starts timestamptz[]; -- the windows of those that were made
  v_start timestamptz;
  v_slots bigint[] := '{}'; -- the window of each new event
  v_taken bigint[];
  v_busy bigint[] := '{}';
  v_from bigint[] := '{}'; -- stretches of new counters
  v_to bigint[] := '{}';
  v_left integer;
  v_requested bigint; -- the window that was asked for
  v_window bigint;
  v_room bigint;
  v_gap bigint;
  v_next bigint;
  v_limit bigint;
  v_end bigint := 9000000000000;
  v_span integer := 0;
  v_tries integer := 0;
  v_locks integer := 0;
  v_max integer; -- of this window
  v_many bigint;
  v_count integer;
  v_is_new boolean;
BEGIN
  SELECT * INTO v_config FROM rate_limit_config c WHERE c.config_id = p_config_id;
  v_lock := rate_lock_of(v_config.config_name);
  PERFORM pg_advisory_xact_lock_shared(v_lock, -1);
  IF cardinality(p_event_ids) > 1 THEN
    -- Two who take whole windows would only stand in each other's way.
    PERFORM pg_advisory_xact_lock(v_lock, -2);
  END IF;
  -- What was read before the lock may be of yesterday.
  SELECT * INTO v_config FROM rate_limit_config c WHERE c.config_id = p_config_id AND c.is_active;
  IF NOT FOUND THEN
    outcome := 'stale';
    RETURN;
  END IF;
  outcome := 'assigned';
  assigned_at := clock_timestamp();
  v_size := v_config.window_size_secs * 1000000::bigint;
  v_at := rate_micros(greatest(p_requested, assigned_at));
  v_requested := v_at / v_size;
  v_window := v_requested;
  -- A search without end would be one that others' locks keep from everything.
  v_limit := CASE WHEN v_config.frontier THEN NULL ELSE v_requested + v_config.max_lookahead END;

  SELECT coalesce(array_agg(e.id ORDER BY e.n), '{}') INTO v_new
  FROM (SELECT u.id, min(u.n) AS n FROM unnest(p_event_ids) WITH ORDINALITY AS u(id, n) GROUP BY u.id) e
  LEFT JOIN LATERAL (SELECT true AS known FROM rate_limit_event_slot s WHERE s.event_id = e.id OFFSET 0) s ON true
  WHERE s.known IS NULL;
  v_left := cardinality(v_new);

  WHILE v_left > 0 LOOP
    IF p_open_first IS NOT NULL THEN
      WHILE v_span = 0 OR p_open_end[v_span] <= v_window LOOP
        v_span := v_span + 1;
        -- Closed windows are not searched.
        v_limit := v_limit + greatest(0, p_open_first[v_span] - greatest(coalesce(p_open_end[v_span - 1], 0), v_requested));
      END LOOP;
      IF v_span > cardinality(p_open_end) THEN
        RAISE EXCEPTION 'open windows' USING ERRCODE = 'RY504';
      END IF;
      v_window := greatest(v_window, p_open_first[v_span]);
      v_end := p_open_end[v_span];
    END IF;

    -- The first one that has room and a counter.
    SELECT rate_micros(c.room_start) / v_size INTO v_room FROM rate_limit_window_counter c
    WHERE c.config_name = v_config.config_name AND c.grid = v_config.grid
      AND c.room_start >= rate_time(v_window * v_size)
    ORDER BY c.room_start LIMIT 1;
    -- The first one without: where the run ends.
    v_gap := v_window;
    LOOP
      SELECT r.next_window INTO v_next FROM rate_limit_run r
      WHERE r.config_name = v_config.config_name AND r.grid = v_config.grid AND r.first_window <= v_gap
      ORDER BY r.first_window DESC LIMIT 1;
      EXIT WHEN NOT FOUND OR v_next <= v_gap;
      v_gap := v_next;
    END LOOP;
    v_is_new := v_room IS NULL OR v_gap < v_room;
    v_window := CASE WHEN v_is_new THEN v_gap ELSE v_room END;
    -- Closed, or in a later stretch: look from there.
    CONTINUE WHEN v_window >= v_end;
    IF v_window >= v_limit OR v_tries >= v_config.max_lookahead THEN
      RAISE EXCEPTION '% windows', v_config.max_lookahead USING ERRCODE = 'RY503';
    END IF;
    -- The server has room for some thousand locks in all; without this one a counter may have to be waited for.
    v_locks := v_locks + 1;
    IF v_locks <= 1000 AND NOT pg_try_advisory_xact_lock(v_lock, (v_window % 2147483648)::integer) THEN
      v_busy := v_busy || v_window;
      v_tries := v_tries + 1;
      v_window := v_window + 1;
      CONTINUE;
    END IF;
    v_max := v_config.max_per_window;
    IF v_window = v_requested THEN
      -- What is left of it has its share of the events.
      v_max := v_max * ((v_requested + 1) * v_size - v_at) / v_size;
    END IF;

    IF NOT v_is_new THEN
      SELECT c.slot_count INTO v_count FROM rate_limit_window_counter c
      WHERE c.config_name = v_config.config_name AND c.grid = v_config.grid
        AND c.window_start = rate_time(v_window * v_size) FOR UPDATE SKIP LOCKED;
      IF NOT FOUND THEN
        v_busy := v_busy || v_window;
        v_tries := v_tries + 1;
      ELSIF v_count < v_max THEN
        v_count := least(v_left, v_max - v_count);
        v_slots := v_slots || array_fill(v_window, ARRAY[v_count]);
        v_left := v_left - v_count;
      END IF;
    ELSIF v_max > 0 THEN
      -- As many whole ones as are needed and nobody has touched.
      v_many := CASE WHEN v_left <= v_max THEN 1
                ELSE 1 + (v_left - v_max + v_config.max_per_window - 1) / v_config.max_per_window END;
      SELECT r.first_window INTO v_next FROM rate_limit_run r
      WHERE r.config_name = v_config.config_name AND r.grid = v_config.grid AND r.first_window > v_window
      ORDER BY r.first_window LIMIT 1;
      v_many := least(v_many, v_end - v_window, v_next - v_window, v_limit - v_window);
      WITH put AS (
        INSERT INTO rate_limit_window_counter AS c
        SELECT v_config.config_name, v_config.grid, rate_time(n * v_size), 0, false
        FROM generate_series(v_window, v_window + v_many - 1) AS n ORDER BY n
        ON CONFLICT DO NOTHING RETURNING rate_micros(c.window_start) / v_size AS n)
      SELECT coalesce(array_agg(put.n ORDER BY put.n), '{}') INTO v_taken FROM put;
      IF v_taken <> '{}' THEN
        v_from := v_from || v_window;
        v_to := v_to || v_window + v_many;
      END IF;
      v_taken := ARRAY(
        SELECT t.n FROM unnest(v_taken) AS t(n), generate_series(1, CASE WHEN t.n = v_requested THEN v_max
                                                                 ELSE v_config.max_per_window END)
        ORDER BY t.n LIMIT v_left);
      v_slots := v_slots || v_taken;
      v_left := v_left - cardinality(v_taken);
      v_window := v_window + v_many - 1;
    END IF;
    v_window := v_window + 1;
  END LOOP;

  FOR i IN 1 .. cardinality(v_from) LOOP
    PERFORM rate_touched(v_config.config_name, v_config.grid, v_from[i], v_to[i]);
  END LOOP;

  -- An event that somebody else has given a slot meanwhile is not counted. Ordered: two calls wait for each other in one
  -- direction only.
  WITH put AS (
    INSERT INTO rate_limit_event_slot AS s (event_id, config_name, config_id, window_start, scheduled_time, requested_time,
      confirm_by)
    SELECT e.id, v_config.config_name, p_config_id, rate_time(e.w * v_size),
      rate_time(CASE WHEN e.w = v_requested THEN v_at + ((((v_requested + 1) * v_size - v_at) * e.dice) >> 24)
                ELSE e.w * v_size + ((v_size * e.dice) >> 24) END),
      coalesce(p_requested, assigned_at), assigned_at + p_confirm_s * interval '1 second'
    FROM (SELECT unnest(v_new) AS id, unnest(v_slots) AS w, unnest(p_dice[1:cardinality(v_new)]) AS dice) e
    ORDER BY e.id
    ON CONFLICT DO NOTHING RETURNING s.event_id, s.window_start)
  SELECT coalesce(array_agg(put.event_id), '{}'), array_agg(put.window_start) INTO v_made, v_starts FROM put;
  -- One by one: joined, a plan that was made while the table was empty would read all counters.
  FOR v_start, v_count IN SELECT w.at, count(*)::integer FROM unnest(v_starts) AS w(at) GROUP BY w.at LOOP
    UPDATE rate_limit_window_counter c
    SET slot_count = c.slot_count + v_count, is_full = c.slot_count + v_count >= v_config.max_per_window
    WHERE c.config_name = v_config.config_name AND c.grid = v_config.grid AND c.window_start = v_start;
  END LOOP;

  SELECT array_agg(m.id IS NOT NULL ORDER BY e.n), array_agg(s.config_name ORDER BY e.n),
         array_agg(s.window_start ORDER BY e.n), array_agg(s.scheduled_time ORDER BY e.n)
  INTO created, config_names, windows, scheduled
  FROM unnest(p_event_ids) WITH ORDINALITY AS e(id, n)
  LEFT JOIN LATERAL (SELECT * FROM rate_limit_event_slot s WHERE s.event_id = e.id OFFSET 0) s ON true
  LEFT JOIN unnest(v_made) AS m(id) ON m.id = e.id;
  depth := coalesce(v_slots[cardinality(v_slots)] - v_requested, 0);
  contended := ARRAY(SELECT rate_time(b.n * v_size) FROM unnest(v_busy) AS b(n));
END $$;

-- Gives slots back: of work that was cancelled or has expired, or that was not confirmed in time. How many there were.
CREATE FUNCTION rate_release(p_event_ids text[], p_unconfirmed_only boolean) RETURNS integer
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
  v_names text[];
  v_times timestamptz[];
  v_freed record;
BEGIN
  PERFORM pg_advisory_xact_lock_shared(n.lock, -1)
  FROM (SELECT DISTINCT rate_lock_of(s.config_name) AS lock FROM rate_limit_event_slot s
        WHERE s.event_id = ANY (p_event_ids) ORDER BY 1) n;
  WITH gone AS (
    DELETE FROM rate_limit_event_slot s
    WHERE s.event_id = ANY (p_event_ids) AND (NOT p_unconfirmed_only OR s.confirm_by <= clock_timestamp())
    RETURNING s.config_name, s.scheduled_time)
  SELECT array_agg(g.config_name), array_agg(g.scheduled_time) INTO v_names, v_times FROM gone g;
  FOR v_freed IN
    SELECT a.config_name, a.grid, a.max_per_window, count(*)::integer AS n,
           rate_time(rate_micros(g.at) / (a.window_size_secs * 1000000::bigint) * a.window_size_secs * 1000000) AS window_start
    FROM unnest(v_names, v_times) AS g(name, at) JOIN rate_limit_config a ON a.config_name = g.name AND a.is_active
    GROUP BY 1, 2, 3, 5 ORDER BY 1, 5
  LOOP
    UPDATE rate_limit_window_counter c
    SET slot_count = greatest(c.slot_count - v_freed.n, 0), is_full = c.slot_count - v_freed.n >= v_freed.max_per_window
    WHERE c.config_name = v_freed.config_name AND c.grid = v_freed.grid AND c.window_start = v_freed.window_start;
  END LOOP;
  RETURN coalesce(cardinality(v_names), 0);
END $$;

-- Counts what is planned from now on into a grid's windows, as if there had never been a counter.
CREATE FUNCTION rate_recount(p_config_id bigint) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  v_config rate_limit_config;
  v_size bigint;
  v_from timestamptz;
BEGIN
  SELECT * INTO STRICT v_config FROM rate_limit_config c WHERE c.config_id = p_config_id;
  v_size := v_config.window_size_secs * 1000000::bigint;
  v_from := rate_time(rate_micros(clock_timestamp()) / v_size * v_size);
  DELETE FROM rate_limit_window_counter c WHERE c.config_name = v_config.config_name;
  DELETE FROM rate_limit_run r WHERE r.config_name = v_config.config_name;
  INSERT INTO rate_limit_window_counter
  SELECT v_config.config_name, v_config.grid, rate_time(w.n * v_size), w.slots, w.slots >= v_config.max_per_window
  FROM (SELECT rate_micros(s.scheduled_time) / v_size AS n, count(*)::integer AS slots FROM rate_limit_event_slot s
        WHERE s.config_name = v_config.config_name AND s.scheduled_time >= v_from GROUP BY 1) w;
  INSERT INTO rate_limit_run
  SELECT v_config.config_name, v_config.grid, min(i.n), max(i.n) + 1
  FROM (SELECT w.n, w.n - row_number() OVER (ORDER BY w.n) AS island
        FROM (SELECT rate_micros(c.window_start) / v_size AS n FROM rate_limit_window_counter c
              WHERE c.config_name = v_config.config_name AND c.grid = v_config.grid) w) i
  GROUP BY i.island;
END $$;

-- Makes a configuration the active one of its name. It waits for the assignments that are under way; those that come after
-- it see it. What is planned already stays as it is.
CREATE FUNCTION rate_set_config(p_name text, p_max integer, p_size integer, p_frontier boolean, p_lookahead integer,
  p_calendar jsonb, p_actor text)
RETURNS TABLE (config_id bigint, max_before integer)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_old rate_limit_config;
  v_id bigint;
  v_grid bigint;
BEGIN
  PERFORM pg_advisory_xact_lock(rate_lock_of(p_name), -1);
  UPDATE rate_limit_config c SET is_active = false, deactivated_at = clock_timestamp()
  WHERE c.config_name = p_name AND c.is_active RETURNING c.* INTO v_old;
  INSERT INTO rate_limit_config AS c (config_name, max_per_window, window_size_secs, frontier, max_lookahead, calendar, grid,
    is_active, created_by)
  VALUES (p_name, p_max, p_size, p_frontier, p_lookahead, p_calendar, 0, true, p_actor) RETURNING c.config_id INTO v_id;
  v_grid := CASE WHEN v_old.window_size_secs = p_size AND v_old.calendar IS NOT DISTINCT FROM p_calendar THEN v_old.grid
            ELSE v_id END;
  UPDATE rate_limit_config c SET grid = v_grid WHERE c.config_id = v_id;
  IF v_grid = v_id THEN
    PERFORM rate_recount(v_id);
  ELSIF v_old.max_per_window <> p_max THEN
    UPDATE rate_limit_window_counter c SET is_full = NOT c.is_full
    WHERE c.config_name = p_name AND c.grid = v_grid AND c.is_full <> (c.slot_count >= p_max);
  END IF;
  INSERT INTO admin_audit (action, actor, detail)
  VALUES ('rate.set', p_actor, jsonb_build_object('configName', p_name, 'configId', v_id, 'maxPerWindow', p_max,
    'windowSizeSecs', p_size, 'frontier', p_frontier, 'maxLookahead', p_lookahead, 'calendar', p_calendar,
    'maxPerWindowBefore', v_old.max_per_window, 'windowSizeSecsBefore', v_old.window_size_secs));
  PERFORM pg_notify('railyard_cache', 'rate');
  RETURN QUERY SELECT v_id, v_old.max_per_window;
END $$;

REVOKE ALL ON rate_limit_config, rate_limit_window_counter, rate_limit_run, rate_limit_event_slot FROM PUBLIC;
REVOKE ALL ON FUNCTION rate_lock_of(text), rate_micros(timestamptz), rate_time(bigint), rate_touched(text, bigint, bigint, bigint),
  rate_assign(bigint, text[], timestamptz, bigint[], bigint[], bigint[], integer), rate_release(text[], boolean),
  rate_recount(bigint), rate_set_config(text, integer, integer, boolean, integer, jsonb, text) FROM PUBLIC;
GRANT SELECT, INSERT, UPDATE ON rate_limit_config TO railyard_runtime;
GRANT SELECT, INSERT, UPDATE, DELETE ON rate_limit_window_counter, rate_limit_run, rate_limit_event_slot TO railyard_runtime;
GRANT EXECUTE ON FUNCTION rate_lock_of(text), rate_micros(timestamptz), rate_time(bigint),
  rate_touched(text, bigint, bigint, bigint),
  rate_assign(bigint, text[], timestamptz, bigint[], bigint[], bigint[], integer), rate_release(text[], boolean),
  rate_recount(bigint), rate_set_config(text, integer, integer, boolean, integer, jsonb, text) TO railyard_runtime;
