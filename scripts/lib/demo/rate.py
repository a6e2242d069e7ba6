"""The hard cap on calls, judged by the receiver's monotonic clock.

The receiver reads a first byte some time after it came. Each receipt says when it was read (`first_ns`) and since when
the receiver had not looked (`since_ns`): it came in between, and that is the measuring error. So calls are counted as in
one window only if they were whatever those moments are, and a receiver that runs late accuses nobody.
"""

from bisect import bisect_left


class Limit:
    """At most `starts` calls in any window of `window_ms`, wherever it begins."""

    def __init__(self, starts, window_ms):
        self.starts = starts
        self.window_ms = window_ms


def surely_together(receipts, window_ms):
    """For each first byte, how many from it on came within a window for certain."""
    reads = sorted(receipts, key=lambda receipt: receipt["first_ns"])
    times = [receipt["first_ns"] for receipt in reads]
    return [bisect_left(times, receipt["since_ns"] + window_ms * 1_000_000, n + 1) - n for n, receipt in enumerate(reads)]


def errors_ms(receipts):
    """How much earlier than it was read each first byte may have come, in ascending order."""
    return sorted(round((receipt["first_ns"] - receipt["since_ns"]) / 1_000_000, 1) for receipt in receipts)
