"""Did everything come once, whole and in order? The feed itself is the yardstick: the n-th instruction of a debtor may
come only when the n-1 before it were taken, never again once a later one came, and never beside another of its debtor.
"""

import json

VIOLATIONS_KEPT = 50


class Instruction:
    """One line of the feed and what was seen of it."""

    __slots__ = ("id", "group", "ordinal", "job", "receipts", "bad", "accepted", "last_attempt", "last_timestamp")

    def __init__(self, instruction, group, ordinal):
        self.id = instruction
        self.group = group
        self.ordinal = ordinal
        self.job = None
        self.receipts = 0
        self.bad = 0
        self.accepted = False
        self.last_attempt = 0
        self.last_timestamp = None


class Group:
    """Where a debtor's instructions have got to."""

    __slots__ = ("taken", "highest", "in_flight")

    def __init__(self):
        self.taken = 0
        self.highest = 0
        self.in_flight = 0


class Ledger:
    """The feed in memory, indexed by the payload's bytes: finding an instruction is proving that no byte changed."""

    def __init__(self, feed_path):
        self.by_payload = {}
        self.by_group = {}
        self.groups = {}
        with open(feed_path, encoding="utf-8") as feed:
            for line in feed:
                self._add(json.loads(line))
        self.messages = len(self.by_payload)
        self.receipts = 0
        self.accepted = 0
        self.order_violations = 0
        self.faulty = 0
        self.samples = []
        self.answers = {}

    def _add(self, job):
        payload, group = job["payload"].encode(), job["groupId"]
        line = self.by_group.setdefault(group, [])
        instruction = Instruction(job["idempotencyKey"], group, len(line) + 1)
        if payload in self.by_payload:
            raise SystemExit(f"the feed holds the payload of {instruction.id} twice")
        line.append(instruction)
        self.groups.setdefault(group, Group())
        self.by_payload[payload] = instruction

    def find(self, body):
        """The instruction whose payload is this body, byte for byte; None if there is none."""
        return self.by_payload.get(body)

    def receive(self, instruction, head):
        """Takes note of an arrival. Gives two lists of texts: what is wrong with its order, and with its numbers."""
        group = self.groups[instruction.group]
        instruction.receipts += 1
        order = [text for text in self._order(instruction, group, head) if text]
        numbers = [text for text in self._numbers(instruction, head) if text]
        group.highest = max(group.highest, instruction.ordinal)
        group.in_flight += 1
        return order, numbers

    @staticmethod
    def _order(instruction, group, head):
        n = instruction.ordinal
        yield f"{group.in_flight} of the group under way already" if group.in_flight else None
        yield f"number {n} came before number {group.taken + 1} was taken" if n > group.taken + 1 else None
        yield f"number {n} came after number {group.highest}" if n < group.highest else None
        yield None if head.get("x-railyard-group") == instruction.group else "group of another instruction"
        yield None if head.get("x-railyard-sequence") == str(n) else f"sequence {head.get('x-railyard-sequence')} for number {n}"

    @staticmethod
    def _numbers(instruction, head):
        job, attempt = head.get("idempotency-key"), head.get("x-railyard-attempt", "")
        timestamp = head.get("x-flowcatalyst-timestamp")
        yield "idempotency key changed" if instruction.job not in (None, job) else None
        yield f"attempt {attempt!r} after {instruction.last_attempt}" if not (
            attempt.isdigit() and int(attempt) > instruction.last_attempt) else None
        yield "timestamp of an earlier attempt" if timestamp == instruction.last_timestamp else None
        instruction.job = job
        instruction.last_timestamp = timestamp
        instruction.last_attempt = int(attempt) if attempt.isdigit() else instruction.last_attempt

    def decide(self, instruction, accepted, bad):
        """The receiver has made up its mind, whether or not the sender will hear of it."""
        instruction.bad += bad
        if not accepted or instruction.accepted:
            return
        instruction.accepted = True
        self.accepted += 1
        group, line = self.groups[instruction.group], self.by_group[instruction.group]
        while group.taken < len(line) and line[group.taken].accepted:
            group.taken += 1

    def leave(self, instruction):
        """The exchange is over: answered, reset or cut."""
        self.groups[instruction.group].in_flight -= 1

    def count(self, answer, order, faults, what):
        """Adds one exchange to the sums and keeps the first violations in full."""
        self.receipts += 1
        self.answers[str(answer)] = self.answers.get(str(answer), 0) + 1
        self.order_violations += bool(order)
        self.faulty += bool(faults)
        if (order or faults) and len(self.samples) < VIOLATIONS_KEPT:
            self.samples.append({"what": what, "order": order, "faults": faults})

    def report(self):
        """The sums so far, as /__report gives them."""
        return {
            "messages": self.messages,
            "groups": len(self.groups),
            "receipts": self.receipts,
            "accepted": self.accepted,
            "in_flight": sum(group.in_flight for group in self.groups.values()),
            "order_violations": self.order_violations,
            "signature_failures": self.faulty,
            "answers": self.answers,
            "samples": self.samples,
        }
