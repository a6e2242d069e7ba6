"""What the database says, read with psql: the demo's judge does not ask Railyard about itself."""

import json
import os
import subprocess
import sys
import tempfile
import threading

from .judge import Job

JOBS = """
SELECT json_build_array(j.outbox_id, j.idempotency_key, floor(extract(epoch FROM j.created_at) * 1000), o.status)
FROM dispatch_job j LEFT JOIN dispatch_job_outcome o ON o.outbox_id = j.outbox_id
"""
ATTEMPTS = """
SELECT json_build_array(outbox_id, attempt_no, state, error_code) FROM payment_outbox_attempts WHERE NOT late
"""


PATIENCE_S = 300


class Unreadable(Exception):
    """psql could not say; its own words follow."""


def _words(url, sql, *settings):
    program = os.path.join(os.environ["RAILYARD_PG_BIN"], "psql")
    return [program, "-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1", *settings, "-c", sql, url]


def _psql(url, sql):
    done = subprocess.run(_words(url, sql),
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    if done.returncode != 0:
        raise Unreadable(f"psql: {done.stderr.strip()}")
    return done.stdout


def _lines(url, sql):
    """Line by line as they come, for what is as long as the feed: neither side keeps all of it."""
    with tempfile.TemporaryFile("w+") as said, subprocess.Popen(
            _words(url, sql.strip(), "-v", "FETCH_COUNT=10000"), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=said, text=True) as psql:
        patience = threading.Timer(PATIENCE_S, psql.kill)
        patience.start()
        try:
            yield from psql.stdout
        finally:
            patience.cancel()
            # Whoever does not want the rest does not wait for it.
            psql.stdout.close()
        if psql.wait() != 0:
            said.seek(0)
            raise Unreadable(f"psql: {said.read().strip() or f'not within {PATIENCE_S} s'}")


def rows(url, sql):
    """What each row's one column holds, which is JSON."""
    return [json.loads(line) for line in _psql(url, sql).splitlines()]


def owners(url):
    """{node: partitions}"""
    sql = "SELECT json_build_array(n.name, count(*)) FROM partition_lease l JOIN node n ON n.node_id = l.owner GROUP BY n.name"
    return dict(map(json.loads, _psql(url, sql).splitlines()))


def left_by(url, name):
    """What a node has, read before anybody takes over: its groups with a call in flight, and those whose first message is
    due and waits."""
    sql = f"""
    SELECT json_build_array(g.participant_id, g.called, g.due) FROM (
      SELECT participant_id, true AS called, false AS due FROM in_flight WHERE participant_id IS NOT NULL
      UNION ALL
      SELECT h.participant_id, false, h.next_attempt_at <= clock_timestamp() FROM (
        SELECT DISTINCT ON (participant_id) participant_id, next_attempt_at FROM payment_outbox_pending p
        WHERE participant_id IS NOT NULL ORDER BY participant_id, sequence_id) h
      WHERE NOT EXISTS (SELECT FROM in_flight f WHERE f.participant_id = h.participant_id)) g
    JOIN partition_lease l ON l.partition_id = partition_of(g.participant_id) JOIN node n ON n.node_id = l.owner
    WHERE n.name = '{name}'"""
    groups = [json.loads(line) for line in _psql(url, sql).splitlines()]
    return {group for group, called, _ in groups if called}, {group for group, _, due in groups if due}


def completed(url):
    return int(_psql(url, "SELECT count(*) FROM dispatch_job_outcome WHERE status = 'COMPLETED'"))


def jobs(url):
    """{instruction: Job} of everything on record."""
    by_id, out = {}, {}
    for job_id, instruction, created_ms, status in map(json.loads, _lines(url, JOBS)):
        job_id = sys.intern(job_id)
        by_id[job_id] = out[sys.intern(instruction)] = Job(job_id, created_ms, status and sys.intern(status))
    for job_id, number, state, code in map(json.loads, _lines(url, ATTEMPTS)):
        by_id[job_id].attempts[number] = (sys.intern(state), code and sys.intern(code))
    return out
