-- Day partitions are made and dropped by these two functions alone: a role that owned a partition could truncate it.

CREATE TABLE partitioned_table (
  name           text PRIMARY KEY,
  key_column     text NOT NULL,
  retention_kind text NOT NULL CHECK (retention_kind IN ('jobs', 'attempts'))
);
INSERT INTO partitioned_table VALUES
  ('dispatch_job', 'outbox_id', 'jobs'),
  ('dispatch_job_metadata', 'dispatch_job_id', 'jobs'),
  ('dispatch_job_outcome', 'outbox_id', 'jobs'),
  ('payment_outbox_attempt_archive', 'outbox_id', 'attempts');

-- Makes what is missing from p_from for p_days days; returns how many it could not make just now.
-- LIKE + CHECK + ATTACH takes no lock that an open insert would make it wait for; PARTITION OF did, and stalled others.
CREATE FUNCTION create_day_partitions(p_from date, p_days integer) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp SET lock_timeout = '200ms' SET timezone = 'UTC' AS $$
DECLARE
  v_table record;
  v_day date;
  v_name text;
  v_low uuid;
  v_high uuid;
  v_missing integer := 0;
BEGIN
  FOR v_table IN SELECT name, key_column FROM partitioned_table ORDER BY name LOOP
    FOR v_day IN SELECT p_from + n FROM generate_series(0, p_days - 1) n LOOP
      v_name := v_table.name || '_p' || to_char(v_day, 'YYYYMMDD');
      CONTINUE WHEN EXISTS (SELECT 1 FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
                            WHERE i.inhparent = ('public.' || v_table.name)::regclass AND c.relname = v_name);
      v_low := uuid7_floor(v_day::timestamptz);
      v_high := uuid7_floor((v_day + 1)::timestamptz);
      BEGIN
        EXECUTE format('CREATE TABLE public.%I (LIKE public.%I INCLUDING ALL, CONSTRAINT in_range CHECK (%I >= %L AND %I < %L))',
                       v_name, v_table.name, v_table.key_column, v_low, v_table.key_column, v_high);
        EXECUTE format('ALTER TABLE public.%I ATTACH PARTITION public.%I FOR VALUES FROM (%L) TO (%L)',
                       v_table.name, v_name, v_low, v_high);
        -- The bound says the same from now on.
        EXECUTE format('ALTER TABLE public.%I DROP CONSTRAINT in_range', v_name);
      EXCEPTION WHEN lock_not_available OR duplicate_table OR unique_violation THEN
        v_missing := v_missing + 1;
      END;
    END LOOP;
  END LOOP;
  RETURN v_missing;
END $$;

-- Drops days that ended before p_before; a day with a message that is still open stays. Returns the names it dropped.
CREATE FUNCTION drop_day_partitions(p_retention_kind text, p_before date) RETURNS text[]
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp SET lock_timeout = '200ms' SET timezone = 'UTC' AS $$
DECLARE
  v_part record;
  v_low uuid;
  v_high uuid;
  v_dropped text[] := '{}';
BEGIN
  IF p_before > current_date - 2 THEN
    RAISE EXCEPTION 'p_before must be at least two days ago, got %', p_before USING ERRCODE = 'RY400';
  END IF;
  FOR v_part IN
    SELECT c.relname AS name, to_date(right(c.relname, 8), 'YYYYMMDD') AS day
    FROM partitioned_table t
    JOIN pg_inherits i ON i.inhparent = ('public.' || t.name)::regclass
    JOIN pg_class c ON c.oid = i.inhrelid
    WHERE t.retention_kind = p_retention_kind AND c.relname ~ '_p[0-9]{8}$'
    ORDER BY 2, 1
  LOOP
    CONTINUE WHEN v_part.day >= p_before;
    v_low := uuid7_floor(v_part.day::timestamptz);
    v_high := uuid7_floor((v_part.day + 1)::timestamptz);
    CONTINUE WHEN EXISTS (SELECT 1 FROM payment_outbox_pending WHERE outbox_id >= v_low AND outbox_id < v_high)
      OR EXISTS (SELECT 1 FROM scheduled_job WHERE outbox_id >= v_low AND outbox_id < v_high)
      OR EXISTS (SELECT 1 FROM in_flight WHERE outbox_id >= v_low AND outbox_id < v_high)
      OR EXISTS (SELECT 1 FROM group_hold WHERE outbox_id >= v_low AND outbox_id < v_high);
    BEGIN
      EXECUTE format('DROP TABLE public.%I', v_part.name);
      v_dropped := v_dropped || v_part.name;
    EXCEPTION WHEN lock_not_available THEN
      NULL; -- an open transaction reads it: the next round tries again
    END;
  END LOOP;
  RETURN v_dropped;
END $$;

SELECT create_day_partitions((clock_timestamp() AT TIME ZONE 'UTC')::date - 1, 16);
