"""All that the demo knows of Railyard's command line and configuration: start, stop, kill, feed."""

import base64
import hashlib
import os
import secrets
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

from .processes import Gone
from .watch import wait_until

DATABASE_S = 90
READY_S = 60


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Installation:
    """One database, one node, one receiver, one feeder, and the secrets that they share."""

    def __init__(self, root, binary, folder, processes):
        self.root = root
        self.binary = binary
        self.folder = folder
        self.processes = processes
        self.receipts = os.path.join(folder, "receipts.ndjson")
        self.config = os.path.join(root, "config", "demo", "railyard.toml")
        self.signing_secret = "whsec_" + base64.b64encode(secrets.token_bytes(32)).decode()
        self.bearer_token = secrets.token_urlsafe(24)
        self.admin_token = secrets.token_urlsafe(24)
        self.master_key = base64.b64encode(secrets.token_bytes(32)).decode()
        self.port = free_port()
        self.api = f"http://127.0.0.1:{self.port}"
        self.database_url = None
        self.credentials = None
        self.database = self.receiver = self.node = self.feeder = None

    def log(self, name):
        return os.path.join(self.folder, f"{name}.log")

    def environment(self):
        """The keys that differ from run to run, over config/demo/railyard.toml."""
        token_hash = hashlib.sha256(self.admin_token.encode()).hexdigest()
        return {
            **os.environ,
            "RAILYARD_DATABASE__URL": self.database_url,
            "RAILYARD_API__LISTEN": f"127.0.0.1:{self.port}",
            "RAILYARD_API__TOKENS": f'[{{name="demo", role="admin", sha256="{token_hash}"}}]',
            "RAILYARD_MASTER_KEY": self.master_key,
            "RAILYARD_TOKEN": self.admin_token,
            "RAILYARD_URL": self.api,
            "DEMO_SIGNING_SECRET": self.signing_secret,
            "DEMO_BEARER_TOKEN": self.bearer_token,
        }

    def command(self, *words):
        """Runs one command of the binary to its end and gives what it printed."""
        done = subprocess.run([self.binary, *words], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              env=self.environment(), timeout=120, check=False)
        if done.returncode != 0:
            raise Gone(f"railyard {words[0]} ended with status {done.returncode}:\n{done.stdout}{done.stderr}")
        return done.stdout.strip()

    def start_database(self):
        self.database = self.processes.start(
            "the database", [self.binary, "dev", "--only-database", "--data-dir", os.path.join(self.folder, "database")],
            self.log("database"))
        self.database_url = self.database.line_with("database: ", DATABASE_S)
        self.command("migrate", "--config", self.config)
        return self.database_url

    def start_receiver(self, feed, seed):
        self.receiver = self.processes.start(
            "the receiver", [sys.executable, os.path.join(self.root, "scripts", "demo-receiver"), "--feed", feed,
                             "--log", self.receipts, "--seed", str(seed)],
            self.log("receiver"), self.environment())
        return self.receiver.line_with("listening: ", 20)

    def start_node(self):
        began = time.monotonic()
        self.node = self.processes.start(
            "the node", [self.binary, "serve", "--config", self.config], self.log("node"), self.environment())
        wait_until(self.ready, [self.node], READY_S, "the node is ready")
        return f"node {self.node.pid} on {self.api}, ready after {time.monotonic() - began:.1f} s"

    def ready(self):
        try:
            with urllib.request.urlopen(self.api + "/readyz", timeout=2) as answer:
                return answer.status == 200
        except (urllib.error.URLError, OSError):
            return False

    def kill_node(self):
        """kill -9; gives the moment in milliseconds."""
        killed_ms = time.time_ns() // 1_000_000
        self.node.kill()
        return killed_ms

    def create_credentials(self):
        """By files: others on the machine see the command line."""
        token, secret = self.secret_file("bearer-token", self.bearer_token), self.secret_file("secret", self.signing_secret)
        self.credentials = self.command("credentials", "create", "--name", "demo", "--bearer-token-file", token,
                                        "--signing-secret-file", secret)

    def secret_file(self, name, text):
        path = os.path.join(self.folder, name)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(text)
        return path

    def start_feeding(self, feed, target):
        self.feeder = self.processes.start(
            "jobs create", [self.binary, "jobs", "create", "--file", feed, "--target-url", target,
                            "--credentials", self.credentials],
            self.log("feeder"), self.environment())

    def steady(self):
        """The children that must not end while the run goes on."""
        return [self.database, self.receiver, self.node]

    def stop_feeding_side(self):
        """The node first, so that it can settle what is under way; then the receiver, whose log is then whole."""
        self.node.stop()
        self.receiver.stop()
