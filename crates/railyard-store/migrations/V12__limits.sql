-- The hard cap and the switch of rails (core::limiter says why each number is what it is).

-- One row per limit: 'rail:NAME', 'endpoint:SCHEME://HOST:PORT', 'global'. UNLOGGED: a crash or a promotion empties it, and a
-- row that is made anew starts a window after everything that the lost one can have granted.
CREATE UNLOGGED TABLE rail_limiter (
  limit_key text COLLATE "C" PRIMARY KEY,
  next_at   timestamptz NOT NULL,
  asked_at  timestamptz NOT NULL,
  paused    boolean NOT NULL DEFAULT false
) WITH (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
COMMENT ON COLUMN rail_limiter.next_at IS 'the next slot; infinity: of a row that was made by the switch, nothing is known';

-- Slots that all these limits allow, on this clock: core::limiter::grant, statement by statement. Keys in any order; rows
-- are locked in the order of their names. p_at: the clock, for tests.
CREATE FUNCTION limiter_grant(p_keys text[], p_gap_us bigint[], p_window_us bigint[], p_want integer, p_burn boolean,
  p_at timestamptz DEFAULT NULL)
RETURNS TABLE (now_at timestamptz, first_at timestamptz, spacing_us bigint, granted integer, ask_at timestamptz, why text)
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
  c_horizon CONSTANT bigint := 250000;
  c_delta CONSTANT bigint := 50000;
  c_lead CONSTANT bigint := 25000;
  c_spent CONSTANT bigint := 320000;
  us CONSTANT interval := interval '1 microsecond';
  v_found integer;
  v_latest timestamptz;
  v_paused boolean;
  v_off boolean;
  v_last timestamptz;
BEGIN
  -- Nothing here is worth waiting for a disk.
  PERFORM set_config('synchronous_commit', 'off', true);
  PERFORM 1 FROM rail_limiter r WHERE r.limit_key = ANY (p_keys) ORDER BY r.limit_key FOR UPDATE;
  GET DIAGNOSTICS v_found = ROW_COUNT;
  -- Read while the rows are locked: what was granted before was granted by this clock.
  now_at := coalesce(p_at, clock_timestamp());
  granted := 0;
  spacing_us := 0;

  IF v_found < cardinality(p_keys) THEN
    -- A pause that is being committed waits for this row or is waited for: it writes the row as well as the switch.
    INSERT INTO rail_limiter (limit_key, next_at, asked_at, paused)
    SELECT u.k, now_at + (u.w + c_spent) * us, now_at,
      EXISTS (SELECT 1 FROM rail_switch s WHERE s.kind = 'rail' AND 'rail:' || s.name = u.k AND s.paused)
    FROM unnest(p_keys, p_window_us) AS u(k, w)
    WHERE NOT EXISTS (SELECT 1 FROM rail_limiter r WHERE r.limit_key = u.k)
    ORDER BY u.k COLLATE "C"
    ON CONFLICT DO NOTHING;
    SELECT max(r.next_at) - c_horizon * us INTO ask_at FROM rail_limiter r WHERE r.limit_key = ANY (p_keys);
    ask_at := least(ask_at, now_at + interval '1 hour');
    why := 'made';
    RETURN NEXT;
    RETURN;
  END IF;

  SELECT bool_or(r.paused), greatest(max(r.next_at), now_at + c_lead * us), max(u.gap),
    bool_or(p_burn OR r.asked_at > now_at + c_delta * us OR r.next_at > now_at + (u.w + c_spent + c_delta) * us)
  INTO v_paused, v_latest, spacing_us, v_off
  FROM unnest(p_keys, p_gap_us, p_window_us) AS u(k, gap, w) JOIN rail_limiter r ON r.limit_key = u.k;
  IF v_off THEN
    UPDATE rail_limiter r SET next_at = now_at + (u.w + c_spent) * us, asked_at = now_at
    FROM unnest(p_keys, p_window_us) AS u(k, w)
    WHERE r.limit_key = u.k
      AND (p_burn OR r.asked_at > now_at + c_delta * us OR r.next_at > now_at + (u.w + c_spent + c_delta) * us);
    SELECT greatest(max(r.next_at), now_at + c_lead * us) INTO v_latest
    FROM rail_limiter r WHERE r.limit_key = ANY (p_keys);
  END IF;

  ask_at := v_latest - c_horizon * us;
  IF v_paused THEN
    ask_at := now_at;
    why := 'paused';
  ELSIF v_off THEN
    why := 'reset';
  ELSIF ask_at > now_at THEN
    why := 'full';
  ELSE
    granted := least(greatest(p_want, 1),
      floor(extract(epoch FROM now_at - ask_at) * 1000000 / spacing_us)::bigint + 1)::integer;
    first_at := v_latest;
    v_last := v_latest + (granted - 1) * spacing_us * us;
    -- Every row goes on from the common slot.
    UPDATE rail_limiter r SET next_at = v_last + u.gap * us, asked_at = now_at
    FROM unnest(p_keys, p_gap_us) AS u(k, gap) WHERE r.limit_key = u.k;
  END IF;
  RETURN NEXT;
END $$;

-- Takes back a slot that nobody will use: core::limiter::take_back. The two moments together name its grant.
CREATE FUNCTION limiter_take_back(p_keys text[], p_gap_us bigint[], p_slot timestamptz, p_granted timestamptz,
  p_at timestamptz DEFAULT NULL)
RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
  c_horizon CONSTANT bigint := 250000;
  us CONSTANT interval := interval '1 microsecond';
  v_now timestamptz;
BEGIN
  PERFORM set_config('synchronous_commit', 'off', true);
  PERFORM 1 FROM rail_limiter r WHERE r.limit_key = ANY (p_keys) ORDER BY r.limit_key FOR UPDATE;
  v_now := coalesce(p_at, clock_timestamp());
  UPDATE rail_limiter r
  SET next_at = least(r.next_at, CASE WHEN p_slot > v_now THEN p_slot ELSE v_now + c_horizon * us END)
  FROM unnest(p_keys, p_gap_us) AS u(k, gap)
  WHERE r.limit_key = u.k AND r.asked_at = p_granted AND r.next_at = p_slot + u.gap * us;
  RETURN FOUND;
END $$;

REVOKE ALL ON rail_limiter FROM PUBLIC;
REVOKE ALL ON FUNCTION limiter_grant(text[], bigint[], bigint[], integer, boolean, timestamptz) FROM PUBLIC;
REVOKE ALL ON FUNCTION limiter_take_back(text[], bigint[], timestamptz, timestamptz, timestamptz) FROM PUBLIC;
GRANT SELECT, INSERT, UPDATE, DELETE ON rail_limiter TO railyard_runtime;
GRANT EXECUTE ON FUNCTION limiter_take_back(text[], bigint[], timestamptz, timestamptz, timestamptz) TO railyard_runtime;
GRANT EXECUTE ON FUNCTION limiter_grant(text[], bigint[], bigint[], integer, boolean, timestamptz) TO railyard_runtime;

-- Pools (S3): at most so many calls at once, on all nodes. A slot's row is taken for an attempt before it is begun, and freed
-- when its call has ended. What a dead node held is taken by others: ten seconds after it was taken, unless the attempt
-- is in flight. A node that begins an attempt makes no call for it later than five seconds after it took the slot.
CREATE TABLE dispatch_pool (
  code        text COLLATE "C" PRIMARY KEY CHECK (code ~ '^[A-Za-z0-9_.-]{1,64}$'),
  concurrency integer NOT NULL CHECK (concurrency BETWEEN 1 AND 1000),
  updated_at  timestamptz NOT NULL DEFAULT clock_timestamp()
);
-- Rows beyond the pool's concurrency stay where they are and are not taken.
CREATE TABLE pool_slot (
  pool       text COLLATE "C" NOT NULL,
  n          integer NOT NULL CHECK (n >= 1),
  attempt_id uuid,
  taken_at   timestamptz,
  PRIMARY KEY (pool, n)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

REVOKE ALL ON dispatch_pool, pool_slot FROM PUBLIC;
GRANT SELECT, INSERT, UPDATE, DELETE ON dispatch_pool, pool_slot TO railyard_runtime;
