"""What the database says, read with psql: the demo's judge does not ask Railyard about itself."""

import json
import os
import subprocess

from .judge import Job

JOBS = """
SELECT json_build_object('instruction', j.idempotency_key, 'id', j.outbox_id, 'status', o.status,
  'created_ms', floor(extract(epoch FROM j.created_at) * 1000),
  'attempts', (SELECT json_agg(json_build_array(a.attempt_no, a.state, a.error_code) ORDER BY a.attempt_no)
               FROM payment_outbox_attempts a WHERE a.outbox_id = j.outbox_id AND NOT a.late))
FROM dispatch_job j LEFT JOIN dispatch_job_outcome o ON o.outbox_id = j.outbox_id
"""


class Unreadable(Exception):
    """psql could not say; its own words follow."""


def _psql(url, sql):
    program = os.path.join(os.environ["RAILYARD_PG_BIN"], "psql")
    done = subprocess.run([program, "-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1", "-c", sql, url],
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode != 0:
        raise Unreadable(f"psql: {done.stderr.strip()}")
    return done.stdout


def in_flight(url):
    """Calls with intent on record and no outcome yet."""
    return int(_psql(url, "SELECT count(*) FROM in_flight"))


def completed(url):
    return int(_psql(url, "SELECT count(*) FROM dispatch_job_outcome WHERE status = 'COMPLETED'"))


def jobs(url):
    """{instruction: Job} of everything on record."""
    out = {}
    for line in _psql(url, JOBS).splitlines():
        row = json.loads(line)
        job = Job(row["id"], row["created_ms"], row["status"])
        job.attempts = {number: (state, code) for number, state, code in row["attempts"] or []}
        out[row["instruction"]] = job
    return out
