"""Is this request authentic, fresh and whole? Written from the documents of both schemes, over the raw bytes.

Every rule that a request breaks gives one short text; an empty list means that nothing is wrong with it.
"""

import base64
import hashlib
import hmac
import re
import time
from datetime import datetime, timezone

FRESH_S = 300
TIMESTAMP = re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")
TRACEPARENT = re.compile(r"^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$")
# Each must be there exactly once: a second one could be the one that somebody else's receiver believes.
ONCE = (
    "authorization", "x-flowcatalyst-timestamp", "x-flowcatalyst-signature", "webhook-id", "webhook-timestamp",
    "webhook-signature", "idempotency-key", "x-railyard-group", "x-railyard-sequence", "x-railyard-attempt",
    "content-type", "user-agent", "host",
)


class Verifier:
    """Holds the secret and the token that the sender must prove to know."""

    def __init__(self, secret, bearer):
        self.secret = secret.encode()
        self.standard_key = base64.b64decode(secret.removeprefix("whsec_"), validate=True)
        self.bearer = bearer

    def faults(self, headers, body):
        """`headers` maps lower-case names to the list of their values; `body` is what came over the wire."""
        missing = [f"{name} is there {len(headers.get(name, []))} times" for name in ONCE if len(headers.get(name, [])) != 1]
        if missing:
            return missing
        head = {name: headers[name][0] for name in ONCE}
        # The producer's trace context, where it gave one.
        head["traceparent"] = ",".join(headers.get("traceparent", []))
        return [fault for fault in self._checks(head, body) if fault]

    def _checks(self, head, body):
        yield None if hmac.compare_digest(head["authorization"], f"Bearer {self.bearer}") else "wrong bearer token"
        yield self._source_scheme(head["x-flowcatalyst-timestamp"], head["x-flowcatalyst-signature"], body)
        yield self._standard_scheme(head["webhook-id"], head["webhook-timestamp"], head["webhook-signature"], body)
        yield None if head["webhook-id"] == head["idempotency-key"] else "webhook-id and idempotency-key differ"
        yield None if head["user-agent"].startswith("Railyard/") else "unknown user agent"
        yield None if not head["traceparent"] or TRACEPARENT.match(head["traceparent"]) else "malformed traceparent"

    def _source_scheme(self, timestamp, signature, body):
        if not TIMESTAMP.match(timestamp):
            return f"timestamp {timestamp!r} is not of the form 2025-10-04T14:30:45.123Z"
        at = datetime.strptime(timestamp, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=timezone.utc).timestamp()
        if abs(time.time() - at) > FRESH_S:
            return f"timestamp {timestamp} is not fresh"
        expected = hmac.new(self.secret, timestamp.encode() + body, hashlib.sha256).hexdigest()
        return None if hmac.compare_digest(expected, signature) else "wrong signature"

    def _standard_scheme(self, webhook_id, timestamp, signatures, body):
        if not timestamp.isdigit():
            return f"webhook-timestamp {timestamp!r} is not a number of seconds"
        if abs(time.time() - int(timestamp)) > FRESH_S:
            return f"webhook-timestamp {timestamp} is not fresh"
        signed = f"{webhook_id}.{timestamp}.".encode() + body
        expected = "v1," + base64.b64encode(hmac.new(self.standard_key, signed, hashlib.sha256).digest()).decode()
        right = [one for one in signatures.split(" ") if hmac.compare_digest(expected, one)]
        return None if right else "wrong standard webhooks signature"
