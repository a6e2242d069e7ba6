"""The verdict: the receiver's log on one side, the database's record on the other, the feed as what was asked for.

Terms, as the report uses them:
- delivered: taken by the receiver and COMPLETED on record. lost: never taken by the receiver.
- retry: any receipt of an instruction after its first.
- duplicate: a receipt after one that the receiver had taken, or had not answered with a refusal. It is marked if the
  record explains it: an attempt since that earlier receipt reads ZOMBIE_REQUEUE, DEFERRED or answer lost.
- signature failure: a receipt with anything wrong about who sent it, when, or a single byte of it.
- rate violations: first bytes with which a window began that holds more than the rail's limit, see rate.py.
"""

from . import rate

# Outcomes after which nobody knows whether the receiver acted.
ANSWER_LOST = {"DISPATCH_TIMEOUT", "CONNECTION_RESET", "CONNECTION_CLOSED", "PROTOCOL_ERROR"}
# For so long after a kill the receiver may read on from the dead node's connections.
DYING_MS = 50
REFUSALS = {429, 500, 502, 503, 504}


class Job:
    """What the database says of one instruction."""

    __slots__ = ("id", "created_ms", "status", "attempts")

    def __init__(self, job_id, created_ms, status):
        self.id = job_id
        self.created_ms = created_ms
        self.status = status
        # {attempt number: (state, error code)}, late results left out.
        self.attempts = {}


def percentile(sorted_values, percent):
    """By nearest rank; None of nothing."""
    if not sorted_values:
        return None
    return sorted_values[min(len(sorted_values) - 1, len(sorted_values) * percent // 100)]


def by_instruction(receipts):
    """Receipts of each instruction, in the order of arrival."""
    out = {}
    for receipt in sorted(receipts, key=lambda r: (r["at_ms"], r.get("receipt", 0))):
        if receipt["instruction"] is not None:
            out.setdefault(receipt["instruction"], []).append(receipt)
    return out


def explained(job, first, second):
    """Does the record say why `second` followed `first`?"""
    for number in range(first["attempt"], second["attempt"]):
        state, code = job.attempts.get(number, (None, None))
        if state in ("ZOMBIE_REQUEUE", "DEFERRED") or code in ANSWER_LOST:
            return True
    return False


def duplicates(arrivals, jobs):
    """(marked, unmarked)"""
    marked = unmarked = 0
    for instruction, receipts in arrivals.items():
        for first, second in zip(receipts, receipts[1:]):
            if first["answer"] in REFUSALS:
                continue
            job = jobs.get(instruction)
            if job is not None and explained(job, first, second):
                marked += 1
            else:
                unmarked += 1
    return marked, unmarked


def went_on_ms(arrivals, groups, killed_ms):
    """From the kill to the first receipt afterwards of each of these groups, in ascending order. What the receiver still
    reads out of the dead node's connections comes at once and is no takeover."""
    first = {}
    for receipts in arrivals.values():
        for receipt in receipts:
            group = receipt["group"]
            if group in groups and receipt["at_ms"] >= killed_ms + DYING_MS:
                first[group] = min(first.get(group, receipt["at_ms"]), receipt["at_ms"])
    return sorted(at - killed_ms for at in first.values())


class Death:
    """A node's end: how and when, and its groups at that moment, with a call in flight (`called`) or with work that was
    due and waited (`idle`). `seen_ms`: when these were read; what a node that was asked to end still sent afterwards was
    in flight as well."""

    def __init__(self, how, ended_ms, seen_ms, called, idle):
        self.how = how
        self.ended_ms = ended_ms
        self.seen_ms = seen_ms
        self.called = called
        self.idle = idle

    def takeover(self, arrivals):
        """(takeover_ms, idle_takeover_ms): until the last group with a call in flight went on, and until the last of
        those without; None if there was no such group, as when there are places for all."""
        until = self.ended_ms + DYING_MS
        sent = {r["group"] for rs in arrivals.values() for r in rs if min(self.seen_ms, self.ended_ms) <= r["at_ms"] < until}
        idle = went_on_ms(arrivals, self.idle - sent, self.ended_ms)
        called = went_on_ms(arrivals, self.called, self.ended_ms) or idle
        return called[-1] if called else None, idle[-1] if idle else None


class Bounds:
    """How long the groups of a node may stand still that ends without a word, or in good order."""

    def __init__(self, lease_s, timeout_s):
        self.takeover_ms = (lease_s + timeout_s + 2) * 1000
        self.idle_ms = {"SIGKILL": (lease_s + 2) * 1000, "SIGTERM": 1000}


def problems_of(report, feed, arrivals, jobs):
    """What keeps this run from being a success, beyond the figures themselves."""
    out = []
    for key in ("lost", "order_violations", "signature_failures", "duplicates_unmarked", "rate_violations"):
        if report[key]:
            out.append(f"{key} is {report[key]}")
    if report["delivered"] != report["messages"]:
        open_jobs = [i for i in feed if i not in jobs or jobs[i].status != "COMPLETED"]
        out.append(f"delivered is {report['delivered']} of {report['messages']}; not completed on record: {open_jobs[:5]}")
    if len(jobs) != len(feed):
        out.append(f"{len(jobs)} jobs are on record for {len(feed)} lines")
    phantom = [i for i, job in jobs.items() if job.status == "COMPLETED" and not any(r["accepted"] for r in arrivals.get(i, []))]
    if phantom:
        out.append(f"completed on record, never taken by the receiver: {phantom[:5]}")
    unrecorded = [
        (i, r["attempt"]) for i, receipts in arrivals.items() for r in receipts
        if i not in jobs or r["attempt"] not in jobs[i].attempts]
    if unrecorded:
        out.append(f"received but not on record: {unrecorded[:5]}")
    strangers = [i for i, receipts in arrivals.items() if i in jobs and any(r["job"] != jobs[i].id for r in receipts)]
    if strangers:
        out.append(f"idempotency key is not the job's id: {strangers[:5]}")
    return out


def too_long(report, death, bounds):
    """Which takeover took longer than was promised."""
    for key, most in (("takeover_ms", bounds.takeover_ms), ("idle_takeover_ms", bounds.idle_ms[death.how])):
        if report[key] is not None and report[key] > most:
            yield f"{key} is {report[key]}, more than {most}"


def judge(feed, receipts, jobs, death, nodes, bounds, limit):
    """(report, problems). `feed`: {instruction: group}; `jobs`: {instruction: Job}; `death`: a Death, None if nobody died;
    `bounds`: Bounds; `limit`: rate.Limit."""
    arrivals = by_instruction(receipts)
    taken = {i: min(r["at_ms"] for r in rs if r["accepted"]) for i, rs in arrivals.items() if any(r["accepted"] for r in rs)}
    delivered = [i for i in taken if i in jobs and jobs[i].status == "COMPLETED"]
    latencies = sorted(max(0, taken[i] - jobs[i].created_ms) for i in taken if i in jobs)
    marked, unmarked = duplicates(arrivals, jobs)
    takeover_ms, idle_takeover_ms = death.takeover(arrivals) if death else (None, None)
    together = rate.surely_together(receipts, limit.window_ms)
    errors_ms = rate.errors_ms(receipts)
    span_ms = max(taken.values()) - min(r["at_ms"] for r in receipts) if taken else 0
    report = {
        "messages": len(feed),
        "groups": len(set(feed.values())),
        "nodes": nodes,
        "delivered": len(delivered),
        "lost": len(feed) - len(taken),
        "order_violations": sum(bool(r["order"]) for r in receipts),
        "signature_failures": sum(bool(r["faults"]) for r in receipts),
        "duplicates_marked": marked,
        "duplicates_unmarked": unmarked,
        "rate_violations": sum(count > limit.starts for count in together),
        "rate_limit": limit.starts,
        "rate_most": max(together, default=0),
        "rate_error_ms": {"p50": percentile(errors_ms, 50), "max": max(errors_ms, default=None)},
        "retries": sum(len(rs) - 1 for rs in arrivals.values()),
        "per_second": round(len(taken) * 1000 / span_ms, 1) if span_ms else None,
        "latency_ms": {"p50": percentile(latencies, 50), "p99": percentile(latencies, 99)},
        "ended_by": death.how if death else None,
        "takeover_ms": takeover_ms,
        "idle_takeover_ms": idle_takeover_ms,
    }
    problems = problems_of(report, feed, arrivals, jobs)
    if death is None:
        problems.append("no node was ended: everything was delivered before half-way was noticed")
        return report, problems
    if takeover_ms is None:
        problems.append("the node that ended had nothing to take over")
    if not any(at > death.ended_ms for at in taken.values()):
        problems.append("the end came after the last delivery")
    return report, problems + list(too_long(report, death, bounds))
