"""The drill's receiver: the demo's, which takes everything, and knows what is right by a payment's number alone."""

import argparse
import asyncio
import json
import os
import sys

from receiver.ledger import Group, Instruction, Ledger
from receiver.mischief import Mischief
from receiver.server import Gateway, serve
from receiver.verify import Verifier

from . import feed


class PaymentLedger(Ledger):
    """Of each debtor the n-th may come only when those before it were taken; nothing about one may have changed."""

    def __init__(self, payments, debtors):
        super().__init__(os.devnull)
        self.debtors = debtors
        self.messages = payments
        self.groups = {debtor: Group() for debtor in range(debtors)}
        self.by_group = {debtor: [] for debtor in range(debtors)}
        self.by_number = []
        for number in range(payments):
            one = Instruction(feed.name(number), number % debtors, number // debtors + 1)
            self.by_number.append(one)
            self.by_group[one.group].append(one)

    def find(self, body):
        try:
            found = json.loads(body)
            number = feed.number_of(found["paymentId"])
            right = found["amount"] == feed.amount(number) and found["debtor"]["iban"] == feed.iban(number % self.debtors)
            return self.by_number[number] if right else None
        except (ValueError, KeyError, TypeError, IndexError):
            return None

    @staticmethod
    def _order(instruction, group, head):
        n = instruction.ordinal
        yield f"{group.in_flight} of the debtor under way already" if group.in_flight else None
        yield f"number {n} came before number {group.taken + 1} was taken" if n > group.taken + 1 else None
        yield f"number {n} came after number {group.highest}" if n < group.highest else None
        yield None if head.get("x-railyard-sequence") == str(n) else f"sequence {head.get('x-railyard-sequence')} for number {n}"


def main():
    parser = argparse.ArgumentParser(description="Receives the drill's payments and checks each.")
    parser.add_argument("--payments", type=int, required=True)
    parser.add_argument("--debtors", type=int, required=True)
    parser.add_argument("--log", required=True, help="where each receipt goes, one JSON object a line")
    options = parser.parse_args()
    verifier = Verifier(os.environ["DEMO_SIGNING_SECRET"], os.environ["DEMO_BEARER_TOKEN"])
    ledger = PaymentLedger(options.payments, options.debtors)
    with open(options.log, "a", encoding="utf-8") as log:
        asyncio.run(serve(Gateway(verifier, ledger, Mischief(1, off=True), log), 0))
    return 0


if __name__ == "__main__":
    sys.exit(main())
