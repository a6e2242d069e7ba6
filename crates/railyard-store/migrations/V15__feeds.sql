-- Feeds: files of payments, and what became of each of their instructions. A line is written when that is known; what is
-- not there has not been answered yet, and the same file again finds out.

CREATE TABLE payment_feed (
  feed_id    text COLLATE "C" PRIMARY KEY CHECK (feed_id ~ '^[A-Za-z0-9][A-Za-z0-9._:-]{0,63}$'),
  format     text NOT NULL CHECK (format IN ('ndjson', 'csv', 'pain.001')),
  name       text NOT NULL CHECK (name <> '' AND length(name) <= 255),
  sha256     bytea NOT NULL CHECK (octet_length(sha256) = 32),
  items      bigint NOT NULL CHECK (items >= 0),
  created_by text NOT NULL,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
COMMENT ON COLUMN payment_feed.sha256 IS 'of the file: the same feed is never another file';
COMMENT ON COLUMN payment_feed.items IS 'instructions that the file holds';
CREATE INDEX ix_feed_created ON payment_feed (created_at);

CREATE TABLE payment_feed_line (
  feed_id     text COLLATE "C" NOT NULL,
  item_no     bigint NOT NULL CHECK (item_no >= 1),
  line_no     bigint NOT NULL CHECK (line_no >= 1),
  is_accepted boolean NOT NULL,
  payment_id  text COLLATE "C",
  amount      numeric,
  currency    text,
  field       text,
  reason      text CHECK (length(reason) <= 4000),
  is_dropped  boolean NOT NULL DEFAULT false,
  recorded_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (feed_id, item_no),
  CHECK (is_accepted = (reason IS NULL)),
  CHECK (NOT is_accepted OR num_nonnulls(payment_id, amount, currency) = 3)
) WITH (fillfactor = 90);
COMMENT ON COLUMN payment_feed_line.item_no IS 'which instruction of the file, from 1';
COMMENT ON COLUMN payment_feed_line.line_no IS 'the line that it begins in';
COMMENT ON COLUMN payment_feed_line.field IS 'of a rejected one: the first field that is wrong';
COMMENT ON COLUMN payment_feed_line.is_dropped IS 'its payment was completed, and has gone after its retention';
CREATE INDEX ix_feed_line_payment ON payment_feed_line (payment_id) WHERE is_accepted AND NOT is_dropped;
-- What its feed has to be kept for.
CREATE INDEX ix_feed_line_kept ON payment_feed_line (feed_id) WHERE is_accepted AND NOT is_dropped;
-- Rows come in the order of their time.
CREATE INDEX ix_feed_line_recorded ON payment_feed_line USING brin (recorded_at);

-- What was accepted stays so: a later try of the same instruction changes what was rejected alone. Raises 40001 if the feed
-- has gone after its retention: its lines are not written without it, and it is not dropped under them.
CREATE FUNCTION payment_feed_record(p_feed_id text, p_items bigint[], p_lines bigint[], p_accepted boolean[], p_ids text[],
  p_amounts text[], p_currencies text[], p_fields text[], p_reasons text[]) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  PERFORM 1 FROM payment_feed f WHERE f.feed_id = p_feed_id FOR KEY SHARE;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'there is no feed %', p_feed_id USING ERRCODE = 'serialization_failure';
  END IF;
  INSERT INTO payment_feed_line AS l (feed_id, item_no, line_no, is_accepted, payment_id, amount, currency, field, reason)
  SELECT p_feed_id, u.item, u.line, u.accepted, u.id, u.amount::numeric, u.currency, u.field, u.reason
  FROM unnest(p_items, p_lines, p_accepted, p_ids, p_amounts, p_currencies, p_fields, p_reasons)
    AS u(item, line, accepted, id, amount, currency, field, reason)
  ORDER BY u.item
  ON CONFLICT (feed_id, item_no) DO UPDATE
  SET line_no = excluded.line_no, is_accepted = excluded.is_accepted, payment_id = excluded.payment_id,
    amount = excluded.amount, currency = excluded.currency, field = excluded.field, reason = excluded.reason,
    recorded_at = excluded.recorded_at
  WHERE NOT l.is_accepted;
END $$;

-- Drops one feed that was opened so many days ago, with its lines, none of whose payments is there any more: what was
-- completed has gone after its own retention, and what was not, or is missing, keeps its feed. One that somebody records
-- lines of at this moment is passed over. Whether there was one.
CREATE FUNCTION drop_feed(p_days integer) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
  v_feed text;
BEGIN
  SELECT f.feed_id INTO v_feed FROM payment_feed f
  WHERE f.created_at < clock_timestamp() - greatest(p_days, 2) * interval '1 day'
    AND NOT EXISTS (SELECT 1 FROM payment_feed_line l WHERE l.feed_id = f.feed_id AND l.is_accepted AND NOT l.is_dropped OFFSET 0)
  ORDER BY f.created_at LIMIT 1 FOR UPDATE SKIP LOCKED;
  IF v_feed IS NULL THEN RETURN false; END IF;
  -- A younger look: what was recorded before the lock was there is seen.
  PERFORM 1 FROM payment_feed_line l WHERE l.feed_id = v_feed AND l.is_accepted AND NOT l.is_dropped LIMIT 1;
  IF NOT FOUND THEN
    DELETE FROM payment_feed_line l WHERE l.feed_id = v_feed;
    DELETE FROM payment_feed f WHERE f.feed_id = v_feed;
  END IF;
  RETURN true;
END $$;

-- For lists, newest first, and for all of a day.
CREATE INDEX ix_payment_created ON payment (created_at, payment_id);

-- Where each payment is, in the words of whoever has to account for it:
--   SCHEDULED    waits for its time
--   DISPATCHED   the outbox has it, and will deliver it or try again
--   DELIVERED    the rail has taken it, whatever became of the steps behind that
--   IN_DOUBT     whether the rail has taken it is unknown, and a person has to find out: its group is held for that, or its
--                tries are spent and one of them has had no answer
--   HELD         stands behind something that a person has to decide about
--   DEAD         ended without success
--   UNACCOUNTED  none of these: a row is missing
-- reason says why it is not further, until when that holds: a moment, or nothing if nobody knows.
CREATE VIEW payment_standing AS
SELECT p.payment_id, p.created_at, p.amount, p.currency, q.exec_outbox_id AS job_id, s.standing, s.reason, s.until
FROM payment p
LEFT JOIN payment_exec_queue q ON q.item_type = 'PAYMENT' AND q.payment_id = p.payment_id
LEFT JOIN exec_rate_config config ON config.item_type = 'PAYMENT'
LEFT JOIN scheduled_job j ON j.outbox_id = q.exec_outbox_id
LEFT JOIN in_flight f ON f.outbox_id = q.exec_outbox_id
LEFT JOIN payment_outbox_pending w ON w.outbox_id = q.exec_outbox_id
LEFT JOIN group_hold doubt ON doubt.participant_id = w.participant_id AND doubt.kind = 'in_doubt'
LEFT JOIN group_hold block ON block.participant_id = w.participant_id AND block.kind = 'blocked'
LEFT JOIN group_hold pause ON pause.participant_id = w.participant_id AND pause.kind = 'paused'
LEFT JOIN rail_switch switch ON switch.kind = 'rail' AND switch.name = w.rail_type AND switch.paused
CROSS JOIN LATERAL (
  SELECT * FROM (VALUES
    (q.payment_id IS NULL, 'UNACCOUNTED', 'it has no row in the queue', NULL::timestamptz),
    (p.status <> 'SCHEDULED', 'DELIVERED',
      CASE WHEN q.queue_status IN ('FAILED', 'DEAD_LETTER') THEN 'a later step: ' || coalesce(q.last_error, q.queue_status) END, NULL),
    (q.queue_status IN ('READY', 'CLAIMED') AND config.enabled IS DISTINCT FROM 1, 'SCHEDULED', 'its item type is switched off', NULL),
    (q.queue_status IN ('READY', 'CLAIMED'), 'SCHEDULED', q.last_error, q.scheduled_exec_time),
    -- What somebody has cancelled or skipped (FAILED) was decided about.
    (CASE WHEN q.queue_status = 'DEAD_LETTER' AND q.exec_outbox_id IS NOT NULL THEN exec_is_in_doubt(q.exec_outbox_id) END,
      'IN_DOUBT', 'it was given up, and an attempt has had no answer: ' || coalesce(q.last_error, q.queue_status), NULL),
    (q.queue_status IN ('FAILED', 'DEAD_LETTER'), 'DEAD', coalesce(q.last_error, q.queue_status), NULL),
    (q.queue_status = 'COMPLETED', 'UNACCOUNTED', 'it is completed, and nothing was executed', NULL),
    (j.outbox_id IS NOT NULL, 'SCHEDULED', NULL, j.due_at),
    (f.outbox_id IS NOT NULL, 'DISPATCHED', 'attempt ' || f.attempt_no || ' is under way', f.call_deadline),
    (w.outbox_id IS NULL, 'UNACCOUNTED', 'its job is nowhere', NULL),
    (doubt.outbox_id = w.outbox_id, 'IN_DOUBT', doubt.reason, NULL),
    (doubt.kind IS NOT NULL, 'HELD', 'behind job ' || coalesce(doubt.outbox_id::text, '?') || ', which is in doubt', NULL),
    (block.kind IS NOT NULL, 'HELD', 'behind job ' || coalesce(block.outbox_id::text, '?') || ', which failed', NULL),
    (pause.kind IS NOT NULL, 'HELD', 'its group is paused: ' || pause.reason, NULL),
    (switch.name IS NOT NULL, 'HELD', 'its rail ' || w.rail_type || ' is paused: ' || switch.reason, NULL),
    (true, 'DISPATCHED', CASE WHEN w.failures > 0 THEN w.failures || ' attempts failed' END,
      CASE WHEN w.next_attempt_at < 'infinity' THEN w.next_attempt_at END)
  ) AS c(holds, standing, reason, until)
  WHERE c.holds LIMIT 1
) s;

REVOKE ALL ON payment_feed, payment_feed_line, payment_standing FROM PUBLIC;
REVOKE ALL ON FUNCTION payment_feed_record(text, bigint[], bigint[], boolean[], text[], text[], text[], text[], text[]),
  drop_feed(integer) FROM PUBLIC;
GRANT SELECT, INSERT ON payment_feed TO railyard_runtime;
GRANT SELECT ON payment_feed_line TO railyard_runtime;
GRANT SELECT ON payment_standing TO railyard_runtime;
GRANT EXECUTE ON FUNCTION payment_feed_record(text, bigint[], bigint[], boolean[], text[], text[], text[], text[], text[]),
  drop_feed(integer) TO railyard_runtime;
