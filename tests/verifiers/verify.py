"""The official verifier of PyPI. Reads a JSON list of {secret, headers, body (hex)} on standard input and prints a line
for each: "accepted", or "refused" and why."""

import json
import sys

from standardwebhooks import Webhook

for seen in json.load(sys.stdin):
    body = bytes.fromhex(seen["body"])
    try:
        Webhook(seen["secret"]).verify(body, seen["headers"])
        print("accepted")
    except json.JSONDecodeError:
        # It has accepted the signature, and cannot read the body, which need not be JSON.
        print("accepted")
    except Exception as error:  # its own exceptions and those of base64
        print("refused", type(error).__name__, error)
