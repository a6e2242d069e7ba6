"""Payments made up by number: number n is the debtor's (n // debtors + 1)-th, and everything else about it follows."""

PREFIX = "drill-"


def name(number):
    return f"{PREFIX}{number:07d}"


def number_of(payment_id):
    """None of what is not a name."""
    digits = payment_id.removeprefix(PREFIX)
    return int(digits) if payment_id.startswith(PREFIX) and digits.isdigit() else None


def iban(account):
    bban = f"37040044{account:010d}"
    # D and E are 13 and 14; the check digits stand for 00 while they are computed.
    return f"DE{98 - int(bban + '131400') % 97:02d}{bban}"


def cents(number):
    return number % 900_000 + 100


def amount(number):
    return f"{cents(number) // 100}.{cents(number) % 100:02d}"


def payment(number, debtors, instant):
    return {
        "paymentId": name(number),
        "debtorName": f"Debtor {number % debtors}",
        "debtorIban": iban(number % debtors),
        "creditorName": "Creditor",
        "creditorIban": iban(5_000_000_000 + number % 97),
        "amount": amount(number),
        "currency": "EUR",
        "requestedTime": instant,
    }
