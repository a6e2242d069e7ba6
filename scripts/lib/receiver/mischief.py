"""How this receiver misbehaves, now and then. The seed, the instruction and the number of its receipt decide, so that
a run can be repeated whatever the order of arrival."""

import hashlib

# Parts per thousand, and what they mean.
ERROR_5XX = 20
TOO_MANY = 5
RESET = 5
SLOW = 25
SLOW_MS_MAX = 300
# After so many bad answers an instruction is left in peace: back-off is not what the demo shows.
BAD_MAX = 2


class Answer:
    """One of: a status (with a Retry-After or not), or a reset. `accepted`: whether the payment was taken all the same,
    as with a reset after the work was done, which the sender can't tell from one before it."""

    def __init__(self, status, accepted, delay_ms=0, retry_after=None):
        self.status = status
        self.accepted = accepted
        self.delay_ms = delay_ms
        self.retry_after = retry_after


class Mischief:
    """A seeded chooser; `off` answers 200 at once, always."""

    def __init__(self, seed, off=False):
        self.seed = seed
        self.off = off

    def answer(self, instruction, receipt, bad_before):
        """How to answer the `receipt`-th arrival (from 1) of an instruction that got `bad_before` bad answers."""
        if self.off:
            return Answer(200, True)
        digest = hashlib.sha256(f"{self.seed}:{instruction}:{receipt}".encode()).digest()
        kind = int.from_bytes(digest[:4], "big") % 1000
        slow = int.from_bytes(digest[4:8], "big") % 1000 < SLOW
        delay_ms = int.from_bytes(digest[8:12], "big") % SLOW_MS_MAX if slow else 0
        if bad_before < BAD_MAX:
            if kind < ERROR_5XX:
                return Answer((500, 502, 503, 504)[digest[12] % 4], False, delay_ms)
            if kind < ERROR_5XX + TOO_MANY:
                return Answer(429, False, delay_ms, retry_after=1)
            if kind < ERROR_5XX + TOO_MANY + RESET:
                return Answer("reset", digest[13] % 2 == 0, delay_ms)
        return Answer(200, True, delay_ms)
