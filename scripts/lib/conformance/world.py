"""What the requests of the conformance run meet: credentials, jobs in every state, held groups, a receiver.

The world is made over HTTP before the run and is refilled by its hooks, so that operations that use something up
(delete, skip, cancel) find something again and again.
"""

import http.server
import itertools
import json
import threading
import time
import urllib.error
import urllib.request

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
PATIENCE_S = 60


class Receiver(http.server.ThreadingHTTPServer):
    """Answers what the path asks for: /ok 200, /gone 410, /fail 500; anything else 200."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Answering)
        threading.Thread(target=self.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server_address[1]}"


class Answering(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        status = {"/gone": 410, "/fail": 500}.get(self.path, 200)
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


class World:
    """A client with an admin's token and a supply of everything that has to be there already."""

    def __init__(self, api, token, receiver):
        self.api, self.token, self.receiver = api, token, receiver
        self.numbers = itertools.count(1)
        self.credentials = self.make_credentials()
        self.rate_config = self.make_rate_config()
        # No rail has a target of its own here: a payment that comes due is given up at once.
        self.must("POST", "/admin/rate-limit/config",
                  {"configName": "payments", "maxPerWindow": 1_000_000, "windowSizeSecs": 1})
        self.must("PUT", "/admin/dispatch/config/PAYMENT",
                  {"maxDispatchRetries": 1, "dispatchIntervalSecs": 1, "batchSize": 10_000})

    def call(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.api + path, data=data, method=method)
        request.add_header("Authorization", f"Bearer {self.token}")
        if data is not None:
            request.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                text = answer.read()
                return answer.status, json.loads(text) if text else None
        except urllib.error.HTTPError as refused:
            return refused.code, json.loads(refused.read() or b"null")

    def must(self, method, path, body=None):
        status, answer = self.call(method, path, body)
        if status >= 300:
            raise RuntimeError(f"{method} {path}: {status} {answer}")
        return answer

    def name(self, what):
        return f"{what}-{next(self.numbers)}-{time.monotonic_ns()}"

    def make_credentials(self):
        secrets = {"bearerToken": self.name("sk"), "signingSecret": SECRET, "name": "conformance"}
        return self.must("POST", "/api/admin/dispatch/credentials", secrets)["id"]

    def job_body(self, path="/ok", **fields):
        return {"source": "conformance", "type": "made", "targetUrl": self.receiver + path, "payload": "{}",
                "credentialsId": self.credentials, **fields}

    def make_job(self, path="/ok", **fields):
        return self.must("POST", "/api/dispatch/jobs", self.job_body(path, **fields))["id"]

    def make_waiting_job(self):
        return self.make_job(scheduledFor="2027-06-01T00:00:00Z" if time.gmtime().tm_year < 2027 else time.strftime(
            "%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 30 * 86400)))

    def make_ended_job(self):
        """A job that ended in ERROR."""
        id = self.make_job("/gone")
        self.wait(f"job {id} ends", lambda: self.must("GET", f"/api/dispatch/jobs/{id}")["status"] == "ERROR")
        return id

    def make_rate_config(self):
        config = {"configName": "conformance", "maxPerWindow": 100000, "windowSizeSecs": 4}
        return self.must("POST", "/admin/rate-limit/config", config)["configName"]

    def make_slot(self):
        event = {"eventId": self.name("event"), "configName": self.rate_config}
        return self.must("POST", "/api/v1/slots", event)["eventId"]

    def make_subscription(self):
        body = {"name": self.name("subscription"), "typePattern": "conformance.*", "targetUrl": self.receiver + "/ok",
                "credentialsId": self.credentials}
        return self.must("POST", "/api/admin/subscriptions", body)["id"]

    def make_payment(self, debtor="DE89370400440532013000"):
        body = {"paymentId": self.name("payment"), "debtorName": "Anna", "debtorIban": debtor,
                "creditorName": "Bert", "creditorIban": "NL91ABNA0417164300", "amount": "1.00", "currency": "EUR"}
        return self.must("POST", "/api/payments", body)["paymentId"]

    def make_feed(self):
        feed = {"format": "csv", "name": "conformance.csv", "sha256": "ab" * 32, "items": 1000}
        return self.must("PUT", f"/api/payments/feeds/{self.name('feed')}", feed)["feedId"]

    def make_dead_letter(self):
        payment = self.make_payment("FR1420041010050500013M02606")
        self.wait(f"payment {payment} is given up",
                  lambda: self.must("GET", f"/api/payments/{payment}")["queueStatus"] == "DEAD_LETTER")
        return payment

    def make_held_group(self):
        """A group that stands at a job that ended in ERROR."""
        group = self.name("held")
        for _ in range(2):
            self.make_job("/gone", groupId=group, mode="BLOCK_ON_ERROR")
        self.wait(f"group {group} is held",
                  lambda: self.must("GET", f"/admin/groups/{group}")["state"] == "blocked")
        return group

    def wait(self, what, is_so):
        deadline = time.monotonic() + PATIENCE_S
        while not is_so():
            if time.monotonic() > deadline:
                raise RuntimeError(f"waited {PATIENCE_S} s in vain until {what}")
            time.sleep(0.02)
