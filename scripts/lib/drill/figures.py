"""What is read from the database while the drill goes on, and the reconciliation at its end: with psql, not by Railyard."""

from demo import record

RUN = "exec-payment-"


def statuses(url):
    """{queue status: how many}"""
    return dict(record.rows(url, "SELECT json_build_array(queue_status, count(*)) FROM payment_exec_queue GROUP BY queue_status"))


def batches(url):
    """[(claimed items: handed over, failed and put back; of these, put back)] of each batch"""
    sql = r"""
    SELECT json_build_array(max(n[1]::int + n[2]::int + n[3]::int), max(n[3]::int)) FROM (
      SELECT batch_id, regexp_match(detail, '^dispatched (\d+), failed (\d+), put back (\d+)') AS n
      FROM dispatch_audit_log WHERE batch_id LIKE 'BATCH-%' AND action = 'BATCH_COMPLETE') b
    WHERE n IS NOT NULL GROUP BY batch_id"""
    return record.rows(url, sql)


def analyze(url):
    """What has been filled within minutes is joined by plans for what it is now."""
    record.rows(url, "ANALYZE payment, payment_exec_queue, dispatch_job, dispatch_job_outcome, payment_outbox_attempt_archive")


def recovered(url):
    """Claims of dispatchers that had died."""
    return record.rows(url, "SELECT count(*) FROM dispatch_audit_log WHERE action = 'STALE_RECOVERY'")[0]


def jobs(url):
    """{payment: Job} of everything on record."""
    return {run.removeprefix(RUN): job for run, job in record.jobs(url).items()}


def reconciliation(url):
    """Every payment accounted for: {what: (how many, cents)}; a healthy end has nothing but `executed`."""
    sql = """
    SELECT json_build_array(s.what, count(*), sum(s.amount * 100)::bigint) FROM (
      SELECT p.amount, CASE
        WHEN q.payment_id IS NULL THEN 'not in the queue'
        WHEN p.status = 'PROCESSING' AND q.queue_status = 'COMPLETED' AND j.ends = 1 THEN 'executed'
        ELSE p.status || ' ' || q.queue_status || ' with ' || j.ends || ' ends' END AS what
      FROM payment p
      LEFT JOIN payment_exec_queue q ON q.item_type = 'PAYMENT' AND q.payment_id = p.payment_id
      CROSS JOIN LATERAL (SELECT count(*) AS ends FROM dispatch_job_outcome o
                          WHERE o.outbox_id = q.exec_outbox_id AND o.status = 'COMPLETED') j) s
    GROUP BY s.what"""
    return {what: (count, cents) for what, count, cents in record.rows(url, sql)}


def left_over(url):
    """Rows that should be gone: contexts, steps, messages under way."""
    sql = """SELECT (SELECT count(*) FROM payment_exec_context) + (SELECT count(*) FROM exec_step)
      + (SELECT count(*) FROM payment_outbox_pending) + (SELECT count(*) FROM in_flight) + (SELECT count(*) FROM scheduled_job)"""
    return record.rows(url, sql)[0]
