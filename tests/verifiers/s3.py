"""S3's rule for receivers, from its text and nothing of ours: the time as ISO 8601 in UTC, no more than 300 seconds
old, then HMAC-SHA256 over time and body, compared in constant time. Input and output are those of verify.py; `now`, in
seconds since 1970, stands for the receiver's clock where it is given."""

import datetime
import hashlib
import hmac
import json
import sys
import time

TOLERANCE_S = 300


def judge(secret, headers, body, now):
    timestamp, signature = headers["x-flowcatalyst-timestamp"], headers["x-flowcatalyst-signature"]
    try:
        at = datetime.datetime.strptime(timestamp, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=datetime.timezone.utc)
    except ValueError:
        return "refused form"
    if len(timestamp) != len("2025-10-04T14:30:45.123Z"):
        return "refused form"
    if now - at.timestamp() > TOLERANCE_S:
        return "refused age"
    expected = hmac.new(secret.encode(), timestamp.encode() + body, hashlib.sha256).hexdigest()
    return "accepted" if hmac.compare_digest(expected.encode(), signature.encode()) else "refused signature"


for seen in json.load(sys.stdin):
    print(judge(seen["secret"], seen["headers"], bytes.fromhex(seen["body"]), seen.get("now", time.time())))
