"""The demo's receiver: a bank's payment gateway that trusts nobody. Standard library only, none of Railyard's code.

One request through it: server.py reads it from the socket and keeps the raw bytes; verify.py checks who sent it and
whether a byte changed; ledger.py checks order, overlap and attempt numbers against the feed; mischief.py decides, by a
seed, whether this one is answered badly; the receipt goes to the log, and /__report tells the sums.
"""
