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

-- Notes that these windows (ascending) have counters now. Runs that touch become one. Whoever does it locks runs in ascending
-- order, and each but once, however many windows there are: a row that is changed again and again in one transaction is
-- found by walking over all that it has been.
CREATE FUNCTION rate_touched(p_config_name text, p_grid bigint, p_windows bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  v_low bigint := p_windows[1];
  v_high bigint := p_windows[cardinality(p_windows)] + 1;
  v_before bigint;
  v_first bigint[];
  v_next bigint[];
  v_from bigint[];
  v_to bigint[];
BEGIN
  -- The run that ends where the first of them begins; and the one that ends where that begins, since those who touched
  -- both at once have not seen each other.
  FOR i IN 1 .. 8 LOOP
    SELECT b.first_window INTO v_before FROM (
      SELECT r.first_window, r.next_window FROM rate_limit_run r
      WHERE r.config_name = p_config_name AND r.grid = p_grid AND r.first_window < v_low
      ORDER BY r.first_window DESC LIMIT 1) b
    WHERE b.next_window >= v_low;
    EXIT WHEN NOT FOUND;
    v_low := v_before;
  END LOOP;
  SELECT coalesce(array_agg(l.first_window), '{}'), coalesce(array_agg(l.next_window), '{}') INTO v_first, v_next
  FROM (SELECT r.first_window, r.next_window FROM rate_limit_run r
        WHERE r.config_name = p_config_name AND r.grid = p_grid
          AND r.first_window BETWEEN v_low AND v_high
        ORDER BY r.first_window FOR UPDATE) l;

  -- A stretch begins where the ones before have ended.
  SELECT array_agg(i.lo ORDER BY i.lo), array_agg(i.hi ORDER BY i.lo) INTO v_from, v_to
  FROM (SELECT min(e.lo) AS lo, max(e.hi) AS hi
        FROM (SELECT b.lo, b.hi, sum(b.begins) OVER (ORDER BY b.lo, b.hi ROWS UNBOUNDED PRECEDING) AS island
              FROM (SELECT a.lo, a.hi, (a.lo > coalesce(max(a.hi) OVER (ORDER BY a.lo, a.hi
                      ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), a.lo - 1))::integer AS begins
                    FROM (SELECT r.lo, r.hi FROM unnest(v_first, v_next) AS r(lo, hi)
                          UNION ALL SELECT w, w + 1 FROM unnest(p_windows) AS w) a) b) e
        GROUP BY e.island) i;
  DELETE FROM rate_limit_run r
  WHERE r.config_name = p_config_name AND r.grid = p_grid
    AND r.first_window = ANY (ARRAY(SELECT unnest(v_first) EXCEPT SELECT unnest(v_from)));
  INSERT INTO rate_limit_run AS r
  SELECT p_config_name, p_grid, i.lo, i.hi FROM unnest(v_from, v_to) AS i(lo, hi) ORDER BY i.lo
  ON CONFLICT (config_name, grid, first_window) DO UPDATE SET next_window = excluded.next_window
  WHERE r.next_window < excluded.next_window;
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
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
  v_config rate_limit_config;
  v_lock integer;
  v_size bigint; -- in microseconds
  v_at bigint;
  v_new text[];
  v_made text[];
  v_starts timestamptz[]; -- the windows of those that were made
  v_slots bigint[] := '{}'; -- the window of each new event
  v_touched bigint[] := '{}'; -- windows with new counters
  v_counts integer[] := '{}'; -- and what these say
  v_taken bigint[];
  v_busy bigint[] := '{}';
  v_left integer;
  v_requested bigint; -- the window that was asked for
  v_share bigint; -- how many events it takes
  v_window bigint;
  v_limit bigint;
  v_end bigint := 9000000000000;
  v_horizon bigint;
  v_bound bigint;
  v_span integer := 0;
  v_tries integer := 0;
  v_locks integer := 0;
  v_many bigint; -- windows that are looked at in one round
  v_run_first bigint[];
  v_run_next bigint[];
  v_seen bigint;
  v_some bigint[]; -- windows that are to be taken
  v_fresh boolean[]; -- those without a counter
  v_got boolean[]; -- those that nobody else has locked
  v_counted bigint[];
  v_room bigint[];
  v_takes bigint[];
  v_made_new bigint[];
  v_made_full integer[];
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
  -- What is left of the first one has its share of the events.
  v_share := v_config.max_per_window * ((v_requested + 1) * v_size - v_at) / v_size;

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

    IF v_tries >= v_config.max_lookahead THEN
      RAISE EXCEPTION '% windows', v_config.max_lookahead USING ERRCODE = 'RY503';
    END IF;

    -- The next windows that may have room, some hundred at a time where there are many events: the same few statements
    -- whether they follow each other, lie between full ones, or are half full themselves.
    v_many := least(v_left, greatest(256, v_left / v_config.max_per_window + 2));
    -- Runs from here on. The one that this window lies in, or that ended before it, is the first; the window itself stands
    -- among them as a run without length, since there may be none before it.
    SELECT array_agg(r.lo ORDER BY r.lo, r.hi), array_agg(r.hi ORDER BY r.lo, r.hi) INTO v_run_first, v_run_next
    FROM (SELECT v_window AS lo, v_window AS hi
          UNION ALL
          (SELECT r.first_window, r.next_window FROM rate_limit_run r
           WHERE r.config_name = v_config.config_name AND r.grid = v_config.grid
             AND r.first_window >= coalesce((
               SELECT b.first_window FROM rate_limit_run b
               WHERE b.config_name = v_config.config_name AND b.grid = v_config.grid AND b.first_window <= v_window
               ORDER BY b.first_window DESC LIMIT 1), v_window)
           ORDER BY r.first_window LIMIT v_many + 1)) r;
    -- What lies behind the last of them is not known, unless it is the last of all.
    v_horizon := CASE WHEN cardinality(v_run_first) = v_many + 2 THEN v_run_first[cardinality(v_run_first)] END;
    v_bound := least(v_end, v_limit, v_horizon);
    SELECT coalesce(array_agg(t.n ORDER BY t.n) FILTER (WHERE t.room > 0), '{}'),
           coalesce(array_agg(t.fresh ORDER BY t.n) FILTER (WHERE t.room > 0), '{}'), max(t.n)
    INTO v_some, v_fresh, v_seen
    FROM (
      SELECT w.*, coalesce(sum(greatest(w.room, 0)) OVER (ORDER BY w.n ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0)
        AS before
      FROM (
        SELECT u.n, u.fresh, CASE WHEN u.n = v_requested THEN v_share ELSE v_config.max_per_window END - u.slots AS room
        FROM (
          (SELECT rate_micros(c.room_start) / v_size AS n, false AS fresh, c.slot_count AS slots
           FROM rate_limit_window_counter c
           WHERE c.config_name = v_config.config_name AND c.grid = v_config.grid
             AND c.room_start >= rate_time(v_window * v_size)
           ORDER BY c.room_start LIMIT v_many)
          UNION ALL
          SELECT g.n, true, 0
          FROM (SELECT s.lo, s.hi, coalesce(sum(s.hi - s.lo) OVER (ORDER BY s.lo ROWS BETWEEN UNBOUNDED PRECEDING
                         AND 1 PRECEDING), 0) AS before
                FROM (SELECT p.lo, least(p.next_lo, p.lo + v_many) AS hi
                      FROM (SELECT greatest(max(r.hi) OVER (ORDER BY r.ord ROWS UNBOUNDED PRECEDING), v_window) AS lo,
                                   lead(r.lo) OVER (ORDER BY r.ord) AS next_lo
                            FROM unnest(v_run_first, v_run_next) WITH ORDINALITY AS r(lo, hi, ord)) p) s
                WHERE s.hi > s.lo) f, generate_series(f.lo, f.hi - 1) AS g(n)
          WHERE f.before < v_many) u
        WHERE u.n < v_bound ORDER BY u.n LIMIT v_many) w) t
    WHERE t.before < v_left;

    IF v_seen IS NULL THEN
      -- Closed, or not looked at yet: go on from there.
      IF v_bound = v_end OR v_bound = v_horizon THEN
        v_window := v_bound;
        CONTINUE;
      END IF;
      RAISE EXCEPTION '% windows', v_config.max_lookahead USING ERRCODE = 'RY503';
    END IF;
    v_window := v_seen + 1;

    -- The server has room for some thousand locks in all; without this one a counter may have to be waited for.
    SELECT coalesce(array_agg(l.got ORDER BY l.ord), '{}') INTO v_got
    FROM (SELECT w.ord, CASE WHEN v_locks + w.ord <= 1000
                        THEN pg_try_advisory_xact_lock(v_lock, (w.n % 2147483648)::integer) ELSE true END AS got
          FROM unnest(v_some) WITH ORDINALITY AS w(n, ord) ORDER BY w.ord OFFSET 0) l;
    v_locks := v_locks + cardinality(v_some);

    SELECT coalesce(array_agg(c.n), '{}'), coalesce(array_agg(c.room), '{}') INTO v_counted, v_room
    FROM (SELECT w.n, CASE WHEN w.n = v_requested THEN v_share ELSE v_config.max_per_window END - k.slot_count AS room
          FROM unnest(v_some, v_fresh, v_got) WITH ORDINALITY AS w(n, fresh, got, ord)
          CROSS JOIN LATERAL (
            SELECT c.slot_count FROM rate_limit_window_counter c
            WHERE c.config_name = v_config.config_name AND c.grid = v_config.grid
              AND c.window_start = rate_time(w.n * v_size) FOR UPDATE SKIP LOCKED) k
          WHERE w.got AND NOT w.fresh ORDER BY w.ord) c;
    v_taken := ARRAY(SELECT w.n FROM unnest(v_some, v_fresh, v_got) AS w(n, fresh, got) WHERE NOT w.got OR NOT w.fresh
                     EXCEPT SELECT unnest(v_counted) ORDER BY 1);
    v_busy := v_busy || v_taken;
    v_tries := v_tries + cardinality(v_taken);

    -- How many each takes, the first ones first. New counters are written as they will be: one that was full a moment after it
    -- was not would leave something behind in the index of those with room, which every search walks over.
    SELECT coalesce(array_agg(w.n ORDER BY w.n), '{}'), coalesce(array_agg(w.fresh ORDER BY w.n), '{}'),
           coalesce(array_agg(least(w.room, v_left - w.before) ORDER BY w.n), '{}')
    INTO v_some, v_fresh, v_takes
    FROM (SELECT a.*, coalesce(sum(a.room) OVER (ORDER BY a.n ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0)::bigint
            AS before
          FROM (SELECT c.n, false AS fresh, c.room FROM unnest(v_counted, v_room) AS c(n, room) WHERE c.room > 0
                UNION ALL
                SELECT f.n, true, CASE WHEN f.n = v_requested THEN v_share ELSE v_config.max_per_window END
                FROM unnest(v_some, v_fresh, v_got) AS f(n, fresh, got) WHERE f.got AND f.fresh) a) w
    WHERE w.before < v_left;
    WITH put AS (
      INSERT INTO rate_limit_window_counter AS c
      SELECT v_config.config_name, v_config.grid, rate_time(w.n * v_size), w.takes, w.takes >= v_config.max_per_window
      FROM unnest(v_some, v_fresh, v_takes) AS w(n, fresh, takes) WHERE w.fresh ORDER BY w.n
      ON CONFLICT DO NOTHING RETURNING rate_micros(c.window_start) / v_size AS n, c.slot_count AS takes)
    SELECT coalesce(array_agg(put.n ORDER BY put.n), '{}'), coalesce(array_agg(put.takes ORDER BY put.n), '{}')
    INTO v_made_new, v_made_full FROM put;
    v_touched := v_touched || v_made_new;
    v_counts := v_counts || v_made_full;

    v_taken := ARRAY(
      SELECT w.n
      FROM (SELECT c.n, c.takes FROM unnest(v_some, v_fresh, v_takes) AS c(n, fresh, takes) WHERE NOT c.fresh
            UNION ALL SELECT m.n, m.takes FROM unnest(v_made_new, v_made_full) AS m(n, takes)) w,
        generate_series(1, w.takes) ORDER BY w.n);
    v_slots := v_slots || v_taken;
    v_left := v_left - cardinality(v_taken);
  END LOOP;

  IF v_touched <> '{}' THEN
    PERFORM rate_touched(v_config.config_name, v_config.grid, v_touched);
  END IF;

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
  -- By their places: joined, a plan that was made while the table was empty would read all counters.
  UPDATE rate_limit_window_counter c
  SET slot_count = c.slot_count + u.slots, is_full = c.slot_count + u.slots >= v_config.max_per_window
  FROM (SELECT k.place, w.slots
        FROM (SELECT d.at, sum(d.n)::integer AS slots
              FROM (SELECT s.at, 1 AS n FROM unnest(v_starts) AS s(at)
                    UNION ALL SELECT rate_time(p.n * v_size), -p.slots FROM unnest(v_touched, v_counts) AS p(n, slots)) d
              GROUP BY d.at HAVING sum(d.n) <> 0 OFFSET 0) w
        CROSS JOIN LATERAL (
          SELECT c.ctid AS place FROM rate_limit_window_counter c
          WHERE c.config_name = v_config.config_name AND c.grid = v_config.grid AND c.window_start = w.at OFFSET 0) k
        OFFSET 0) u
  WHERE c.ctid = u.place;

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
REVOKE ALL ON FUNCTION rate_lock_of(text), rate_micros(timestamptz), rate_time(bigint), rate_touched(text, bigint, bigint[]),
  rate_assign(bigint, text[], timestamptz, bigint[], bigint[], bigint[], integer), rate_release(text[], boolean),
  rate_recount(bigint), rate_set_config(text, integer, integer, boolean, integer, jsonb, text) FROM PUBLIC;
GRANT SELECT, INSERT, UPDATE ON rate_limit_config TO railyard_runtime;
GRANT SELECT, INSERT, UPDATE, DELETE ON rate_limit_window_counter, rate_limit_run, rate_limit_event_slot TO railyard_runtime;
GRANT EXECUTE ON FUNCTION rate_lock_of(text), rate_micros(timestamptz), rate_time(bigint),
  rate_touched(text, bigint, bigint[]),
  rate_assign(bigint, text[], timestamptz, bigint[], bigint[], bigint[], integer), rate_release(text[], boolean),
  rate_recount(bigint), rate_set_config(text, integer, integer, boolean, integer, jsonb, text) TO railyard_runtime;
