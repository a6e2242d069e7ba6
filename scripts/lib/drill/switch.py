"""The kill switch, judged from the receiver's log: nothing starts while it is off, and no burst comes after it.

The drill and the receiver are on one machine, whose monotonic clock both read. A first byte came between the moments
`since_ns` and `first_ns` of its receipt (see demo/rate.py): it counts only if it is wrong wherever it lies between them.
"""

from demo import rate

# From the commit of the pause to the last start; the drill knows the commit by its answer.
BOUND_MS = 400
# After going on: in so short a window, within so long. The limit's slots are evenly spaced, so that a fifth of a second has
# a fifth of the cap, and at most 70 ms' worth more; half of the cap at once is what waited and came together.
BURST_MS, BURST_S, BURST_SHARE = 200, 5, 0.5
# Something has to have been under way, or the switch has shown nothing.
BEFORE_S = 30

MS, S = 1_000_000, 1_000_000_000


class Thrown:
    """When it was off: from the answer that said so to the question that put it on again, in ns of the monotonic clock."""

    def __init__(self, off_ns, on_ns):
        self.off_ns = off_ns
        self.on_ns = on_ns


def judge(receipts, thrown, cap):
    """(figures, problems)"""
    off, on = thrown.off_ns, thrown.on_ns
    meanwhile = [r for r in receipts if off <= r["first_ns"] < on]
    started = sum(r["since_ns"] >= off + BOUND_MS * MS for r in meanwhile)
    last_ms = max(((r["since_ns"] - off) // MS for r in meanwhile), default=0)
    after = [r for r in receipts if on <= r["first_ns"] < on + BURST_S * S]
    burst = max(rate.surely_together(after, BURST_MS), default=0)
    problems = []
    if started:
        problems.append(f"{started} calls started while the switch was off, the last one {last_ms} ms after that was answered")
    if burst > cap * BURST_SHARE:
        problems.append(f"{burst} calls within {BURST_MS} ms after the switch was on again: a burst")
    if not any(off - BEFORE_S * S <= r["first_ns"] < off for r in receipts):
        problems.append("nothing was being sent when the switch was thrown: it has shown nothing")
    if not any(r["since_ns"] >= on for r in receipts):
        problems.append("nothing was sent after the switch was on again: it has shown nothing")
    return {"off_s": round((on - off) / S, 1), "off_started": started, "off_last_ms": max(0, last_ms), "on_burst": burst}, problems
