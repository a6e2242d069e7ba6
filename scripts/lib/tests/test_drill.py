"""The drill's payments and the ledger that knows them by number."""

import json
import os
import tempfile
import unittest

from drill import feed, receipts, switch
from drill.receiver import PaymentLedger


def body(number, debtors, **other):
    payment = feed.payment(number, debtors, "2030-01-01T00:00:00Z")
    fields = {"paymentId": payment["paymentId"], "amount": payment["amount"], "debtor": {"iban": payment["debtorIban"]}}
    return json.dumps({**fields, **other}).encode()


class DrillTest(unittest.TestCase):
    def test_accounts_have_right_check_digits(self):
        for account in (0, 7, 999, 5_000_000_096):
            moved = feed.iban(account)[4:] + "1314" + feed.iban(account)[2:4]
            self.assertEqual(int(moved) % 97, 1)
        self.assertEqual((feed.amount(0), feed.amount(5), feed.amount(123_456)), ("1.00", "1.05", "1235.56"))

    def test_a_payment_is_found_by_its_number_if_nothing_about_it_has_changed(self):
        ledger = PaymentLedger(20, 3)
        self.assertEqual(ledger.find(body(4, 3)).ordinal, 2)
        for wrong in (body(20, 3), body(4, 3, amount="9.99"), body(4, 3, debtor={"iban": feed.iban(2)}), b"{}", b"x",
                      body(4, 3, paymentId="other-4")):
            self.assertIsNone(ledger.find(wrong))

    def test_order_is_the_debtors(self):
        ledger = PaymentLedger(20, 3)
        head = {"x-railyard-sequence": "1", "x-railyard-attempt": "1", "x-flowcatalyst-timestamp": "a"}
        first, second = ledger.find(body(0, 3)), ledger.find(body(3, 3))
        order, _ = ledger.receive(second, {**head, "x-railyard-sequence": "2"})
        self.assertEqual(order, ["number 2 came before number 1 was taken"])
        ledger.leave(second)
        order, _ = ledger.receive(first, head)
        self.assertEqual(order, ["number 1 came after number 2"])

    def test_the_log_is_read_as_it_was_written(self):
        line = {"instruction": "drill-1", "group": 1, "at_ms": 5, "first_ns": 7, "since_ns": 6, "job": "j", "attempt": 1,
                "receipt": 1, "answer": 200, "accepted": True, "order": [], "faults": ["late"], "took_ms": 3}
        stranger = {"at_ms": 5, "first_ns": 7, "since_ns": 6, "instruction": None, "answer": "unknown", "accepted": False,
                    "order": [], "faults": [], "body": "x"}
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "log")
            with open(path, "w", encoding="utf-8") as log:
                log.writelines(json.dumps(one) + "\n" for one in (line, stranger))
            one, other = receipts.read(path)
        self.assertEqual((one["instruction"], one["faults"], one["order"], one.get("receipt", 0)), ("drill-1", ["late"], (), 1))
        self.assertEqual((other["instruction"], other["job"], other["receipt"]), (None, None, 0))


MS = 1_000_000
# Off from 10 s to 17 s; a call each 5 ms around it, as under a cap of 200.
THROWN = switch.Thrown(10_000 * MS, 17_000 * MS)


def calls(*spans):
    """One each 5 ms, from and to so many ms, each read 2 ms after it may have come."""
    return [{"first_ns": ms * MS, "since_ns": (ms - 2) * MS} for first, last in spans for ms in range(first, last, 5)]


class SwitchTest(unittest.TestCase):
    def test_calls_that_end_in_time_and_go_on_at_their_pace(self):
        report, problems = switch.judge(calls((5_000, 10_300), (17_100, 30_000)), THROWN, 200)
        self.assertEqual((problems, report["off_started"], report["off_s"]), ([], 0, 7.0))
        self.assertTrue(290 <= report["off_last_ms"] <= 300 and 39 <= report["on_burst"] <= 42, report)

    def test_a_start_after_the_bound_is_one_wherever_it_came(self):
        late = {"first_ns": 10_500 * MS, "since_ns": 10_401 * MS}
        report, problems = switch.judge([*calls((5_000, 10_300), (17_100, 30_000)), late], THROWN, 200)
        self.assertEqual((report["off_started"], len(problems)), (1, 1))
        # It may have come in time, or when the switch was on again.
        for unsure in ({"first_ns": 10_500 * MS, "since_ns": 10_399 * MS}, {"first_ns": 17_001 * MS, "since_ns": 12_000 * MS}):
            _, problems = switch.judge([*calls((5_000, 10_300), (17_100, 30_000)), unsure], THROWN, 200)
            self.assertEqual(problems, [])

    def test_what_waited_and_comes_at_once_is_a_burst(self):
        burst = [{"first_ns": (17_050 * 10 + n) * MS // 10, "since_ns": (17_048 * 10 + n) * MS // 10} for n in range(101)]
        _, problems = switch.judge([*calls((5_000, 10_300), (18_000, 30_000)), *burst], THROWN, 200)
        self.assertEqual(len(problems), 1, problems)

    def test_a_switch_that_stopped_nothing_has_shown_nothing(self):
        for spans in [[(17_100, 30_000)], [(5_000, 10_300)]]:
            _, problems = switch.judge(calls(*spans), THROWN, 200)
            self.assertEqual(len(problems), 1, problems)


if __name__ == "__main__":
    unittest.main()
