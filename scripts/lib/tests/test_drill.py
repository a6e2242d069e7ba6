"""The drill's payments and the ledger that knows them by number."""

import json
import unittest

from drill import feed
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


if __name__ == "__main__":
    unittest.main()
