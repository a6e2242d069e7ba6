"""The receiver's log, read once: as small as may be, since there are as many lines as payments and all are judged together."""

import json
import sys

KEPT = ("instruction", "group", "at_ms", "first_ns", "since_ns", "job", "attempt", "receipt", "answer", "accepted")


class Receipt:
    """One line, read like the dict that it was: a dict of it takes five times the memory."""

    __slots__ = (*KEPT, "order", "faults")

    def __init__(self, line):
        for key in KEPT:
            setattr(self, key, line.get(key))
        # The same few names stand in the feed, in the log and in the record.
        self.instruction, self.job = (text and sys.intern(text) for text in (self.instruction, self.job))
        self.receipt = self.receipt or 0
        self.order = line["order"] or ()
        self.faults = line["faults"] or ()

    def __getitem__(self, key):
        return getattr(self, key)

    def get(self, key, default=None):
        return getattr(self, key, default)


def read(path):
    """All of a log, in its order."""
    with open(path, encoding="utf-8") as log:
        return [Receipt(json.loads(line)) for line in log]
