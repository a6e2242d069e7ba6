"""The drill's installation: the demo's, whose rail goes to the drill's receiver under the drill's cap."""

import http.client
import json
import os
import re
import sys

from demo.installation import Installation
from demo.processes import Gone
from demo.rate import Limit


class Stand(Installation):
    """One database, three nodes and a receiver; payments go in by the API of the last node, which lives on."""

    def __init__(self, root, binary, folder, processes, cap):
        super().__init__(root, binary, folder, processes)
        self.cap = cap
        self.api = None

    def limit(self):
        return Limit(self.cap, 1000)

    def start_payments_receiver(self, payments, debtors):
        self.receiver = self.processes.start(
            "the receiver", [sys.executable, "-m", "drill.receiver", "--payments", str(payments), "--debtors", str(debtors),
                             "--log", self.receipts],
            self.log("receiver"), self.environment())
        return self.receiver.line_with("listening: ", 120)

    def configure(self, target):
        """A configuration whose payments go there, signed by credentials that the first start makes."""
        self.start_one()
        self.create_credentials()
        self.nodes[-1].process.stop()
        with open(self.config, encoding="utf-8") as file:
            text = re.sub(r"^limit = .*$", f"limit = {{ starts = {self.cap}, window_ms = 1000 }}", file.read(), flags=re.M)
        # The rail's section is the last one.
        text += f'target_url = "{target}"\ncredentials_id = "{self.credentials}"\n'
        self.config = os.path.join(self.folder, "railyard.toml")
        with open(self.config, "w", encoding="utf-8") as file:
            file.write(text)

    def call(self, method, path, body):
        """One request to the last node; its answer. A connection that has rested for too long is made anew: every call that
        is made here has one effect, however often it arrives."""
        try:
            answer, text = self._ask(method, path, body)
        except (http.client.HTTPException, ConnectionError):
            self.api = None
            answer, text = self._ask(method, path, body)
        if answer.status not in (200, 201):
            raise Gone(f"{method} {path}: {answer.status} {text[:500].decode('utf-8', 'replace')}")
        return json.loads(text)

    def _ask(self, method, path, body):
        if self.api is None:
            self.api = http.client.HTTPConnection("127.0.0.1", self.nodes[-1].port, timeout=120)
        headers = {"Authorization": f"Bearer {self.admin_token}", "Content-Type": "application/json"}
        self.api.request(method, path, json.dumps(body), headers)
        answer = self.api.getresponse()
        return answer, answer.read()

    def set_dispatch(self, **settings):
        self.call("PUT", "/admin/dispatch/config/PAYMENT", settings)

    def resident_kb(self):
        """Of the node that takes the payments in."""
        with open(f"/proc/{self.nodes[-1].process.pid}/status", encoding="utf-8") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))
