"""The receiver's checks: each must fail a request that breaks it."""

import asyncio
import base64
import hashlib
import hmac
import json
import tempfile
import time
import unittest
from datetime import datetime, timezone

from receiver.ledger import Ledger
from receiver.mischief import BAD_MAX, Mischief
from receiver.server import BadRequest, Beat, parse_head, take_body
from receiver.verify import Verifier

KEY = bytes(range(32))
SECRET = "whsec_" + base64.b64encode(KEY).decode()


def signed(body, at=None, **changes):
    """Headers as a right sender would give them, then changed."""
    at = time.time() if at is None else at
    stamp = datetime.fromtimestamp(at, timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%f")[:23] + "Z"
    standard = hmac.new(KEY, f"id.{int(at)}.".encode() + body, hashlib.sha256).digest()
    headers = {
        "host": "h", "content-type": "application/json", "user-agent": "Railyard/0.1.0", "authorization": "Bearer token",
        "x-flowcatalyst-timestamp": stamp,
        "x-flowcatalyst-signature": hmac.new(SECRET.encode(), stamp.encode() + body, hashlib.sha256).hexdigest(),
        "webhook-id": "id", "webhook-timestamp": str(int(at)), "idempotency-key": "id",
        "webhook-signature": "v1," + base64.b64encode(standard).decode(),
        "x-railyard-group": "g", "x-railyard-sequence": "1", "x-railyard-attempt": "1",
        "traceparent": f"00-{'a' * 32}-{'b' * 16}-01",
    }
    headers.update(changes)
    return {name: value if isinstance(value, list) else [value] for name, value in headers.items()}


class VerifierTest(unittest.TestCase):
    def faults(self, body=b"{}", sent=None, **changes):
        at = changes.pop("at", None)
        return Verifier(SECRET, "token").faults(signed(body, at, **changes), body if sent is None else sent)

    def test_the_vector_of_the_contract(self):
        """Computed with openssl: HMAC-SHA256 over the timestamp followed by the body, key whsec_xyz789."""
        stamp, body = b"2025-10-04T14:30:45.123Z", b'{"orderId":"12345","amount":99.99}'
        expected = "2501382cba528add2eb4c6e93131fd7967093bb6d8f80af96fe6df4357407988"
        self.assertEqual(hmac.new(b"whsec_xyz789", stamp + body, hashlib.sha256).hexdigest(), expected)

    def test_a_right_request_has_no_fault(self):
        self.assertEqual(self.faults(), [])

    def test_each_kind_of_forgery_is_noticed(self):
        self.assertIn("wrong signature", self.faults(sent=b"{ }"))
        self.assertIn("wrong standard webhooks signature", self.faults(sent=b"{ }"))
        self.assertEqual(self.faults(**{"x-flowcatalyst-signature": "0" * 64}), ["wrong signature"])
        self.assertEqual(self.faults(authorization="Bearer other"), ["wrong bearer token"])
        self.assertEqual(self.faults(**{"idempotency-key": "other"}), ["webhook-id and idempotency-key differ"])
        self.assertEqual(self.faults(**{"x-flowcatalyst-signature": ["a", "b"]}), ["x-flowcatalyst-signature is there 2 times"])
        self.assertIn("not of the form", self.faults(**{"x-flowcatalyst-timestamp": "2025-10-04T14:30:45Z"})[0])
        self.assertEqual(self.faults(traceparent="00-1-2-3"), ["malformed traceparent"])
        self.assertEqual(self.faults(traceparent=[]), [])
        self.assertIn("not fresh", self.faults(at=time.time() - 301)[0])


class LedgerTest(unittest.TestCase):
    def setUp(self):
        self.feed = tempfile.NamedTemporaryFile("w", suffix=".ndjson")
        for n in (1, 2, 3):
            self.feed.write(json.dumps({"idempotencyKey": f"i{n}", "groupId": "g", "payload": f'{{"n":{n}}}'}) + "\n")
        self.feed.flush()
        self.addCleanup(self.feed.close)
        self.ledger = Ledger(self.feed.name)

    def arrive(self, n, attempt=1, sequence=None, taken=True, leave=True):
        instruction = self.ledger.find(f'{{"n":{n}}}'.encode())
        head = {"x-railyard-group": "g", "x-railyard-sequence": str(sequence or n), "x-railyard-attempt": str(attempt),
                "idempotency-key": f"job{n}", "x-flowcatalyst-timestamp": f"{n}.{attempt}"}
        order, numbers = self.ledger.receive(instruction, head)
        self.ledger.decide(instruction, taken, not taken)
        if leave:
            self.ledger.leave(instruction)
        return order + numbers

    def test_in_order_with_a_retry(self):
        steps = [self.arrive(1, taken=False), self.arrive(1, 2), self.arrive(2), self.arrive(3)]
        self.assertEqual(steps, [[], [], [], []])
        self.assertEqual(self.ledger.report()["accepted"], 3)

    def test_overtaking_going_back_overlap_and_repeated_attempts(self):
        self.assertEqual(self.arrive(2), ["number 2 came before number 1 was taken"])
        self.assertEqual(self.arrive(1, leave=False), ["number 1 came after number 2"])
        self.assertIn("1 of the group under way already", self.arrive(3))
        self.assertIn("attempt '1' after 1", self.arrive(3))

    def test_a_wrong_sequence_number(self):
        self.assertEqual(self.arrive(1, sequence=7), ["sequence 7 for number 1"])

    def test_a_changed_byte_is_nobody(self):
        self.assertIsNone(self.ledger.find(b'{"n": 1}'))


class MischiefTest(unittest.TestCase):
    def test_repeatable_and_patient(self):
        first = [Mischief(7).answer(f"i{n}", 1, 0) for n in range(4000)]
        again = [Mischief(7).answer(f"i{n}", 1, 0) for n in range(4000)]
        self.assertEqual([vars(a) for a in first], [vars(a) for a in again])
        kinds = {a.status for a in first}
        self.assertEqual(kinds, {200, 429, 500, 502, 503, 504, "reset"})
        self.assertTrue(20 < sum(a.status in (500, 502, 503, 504) for a in first) < 160)
        self.assertTrue(all(Mischief(7).answer(f"i{n}", 5, BAD_MAX).status == 200 for n in range(4000)))


class HttpTest(unittest.TestCase):
    def test_heads_and_bodies(self):
        self.assertEqual(parse_head(b"POST /p HTTP/1.1\r\nA: 1\r\na: 2"), ("POST", "/p", {"a": ["1", "2"]}))
        self.assertEqual(take_body(b"abcd", {"content-length": ["3"]}), (b"abc", b"d"))
        self.assertIsNone(take_body(b"ab", {"content-length": ["3"]}))
        self.assertEqual(take_body(b"2\r\nab\r\n0\r\n\r\n", {"transfer-encoding": ["chunked"]}), (b"ab", b""))
        with self.assertRaises(BadRequest):
            take_body(b"", {"content-length": ["1", "2"]})


class BeatTest(unittest.TestCase):
    def test_what_kept_the_loop_busy_is_part_of_the_error(self):
        async def run():
            beat = Beat()
            beat.go_on(asyncio.get_running_loop())
            busy = time.monotonic_ns()
            time.sleep(0.05)
            now, since = beat.read_now()
            self.assertLessEqual(since, busy)
            self.assertGreaterEqual(now - since, 50_000_000)
            while beat.read_now()[1] <= now:
                await asyncio.sleep(0.001)

        asyncio.run(asyncio.wait_for(run(), 20))


if __name__ == "__main__":
    unittest.main()
