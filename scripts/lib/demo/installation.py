"""All that the demo knows of Railyard's command line and configuration: start, stop, kill, feed."""

import base64
import hashlib
import os
import re
import secrets
import subprocess
import sys
import time
import urllib.error
import urllib.request

from . import record
from .judge import Death
from .port import free_port
from .processes import Gone
from .rate import Limit
from .watch import wait_until

DATABASE_S = 90
READY_S = 60
NODES = 3


def now_ms():
    return time.time_ns() // 1_000_000


class Node:
    """One of the nodes: a name, a port, and its process once it runs."""

    def __init__(self, number):
        self.name = f"railyard-{number}"
        self.port = free_port()
        self.api = f"http://127.0.0.1:{self.port}"
        self.process = None

    def ready(self):
        try:
            with urllib.request.urlopen(self.api + "/readyz", timeout=2) as answer:
                return answer.status == 200
        except (urllib.error.URLError, OSError):
            return False


class Installation:
    """One database, three nodes, one receiver, one feeder, and the secrets that they share."""

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
        self.nodes = [Node(number) for number in range(NODES)]
        self.database_url = None
        self.credentials = None
        self.database = self.receiver = self.feeder = None

    def log(self, name):
        return os.path.join(self.folder, f"{name}.log")

    def environment(self, node=None):
        """The keys that differ from run to run and from node to node, over config/demo/railyard.toml. Commands ask the
        last node, which lives on."""
        node = node or self.nodes[-1]
        token_hash = hashlib.sha256(self.admin_token.encode()).hexdigest()
        return {
            **os.environ,
            "RAILYARD_DATABASE__URL": self.database_url,
            "RAILYARD_NODE__NAME": f'"{node.name}"',
            "RAILYARD_API__LISTEN": f"127.0.0.1:{node.port}",
            "RAILYARD_API__TOKENS": f'[{{name="demo", role="admin", sha256="{token_hash}"}}]',
            "RAILYARD_MASTER_KEY": self.master_key,
            "RAILYARD_TOKEN": self.admin_token,
            "RAILYARD_URL": node.api,
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

    def start(self, node):
        node.process = self.processes.start(
            f"node {node.name}", [self.binary, "serve", "--config", self.config], self.log(node.name),
            self.environment(node))

    def start_nodes(self):
        """Starts them at once; waits until each is ready and all of them share the work."""
        began = time.monotonic()
        for node in self.nodes:
            self.start(node)
        running = [node.process for node in self.nodes]
        for node in self.nodes:
            wait_until(node.ready, running, READY_S, f"{node.name} is ready")
        wait_until(lambda: len(record.owners(self.database_url)) == NODES, running, READY_S, "the nodes share the work")
        shares = ", ".join(f"{name} {share}" for name, share in sorted(record.owners(self.database_url).items()))
        return f"{NODES} nodes after {time.monotonic() - began:.1f} s; partitions: {shares}"

    def start_one(self):
        """The last one alone, where one is enough."""
        began, node = time.monotonic(), self.nodes[-1]
        self.start(node)
        wait_until(node.ready, [node.process], READY_S, "the node is ready")
        return f"node {node.process.pid} on {node.api}, ready after {time.monotonic() - began:.1f} s"

    def lease_s(self):
        """After how long a silent node counts as dead."""
        with open(self.config, encoding="utf-8") as file:
            return next(int(line.split("=")[1]) for line in file if line.startswith("lease_s"))

    def limit(self):
        """The hard cap on calls of the demo's rail."""
        with open(self.config, encoding="utf-8") as file:
            found = re.search(r"^limit = \{ starts = (\d+), window_ms = (\d+) \}$", file.read(), re.MULTILINE)
        return Limit(*map(int, found.groups()))

    def kill_node(self):
        """kill -9 of the first one, then a look at what it left."""
        ended_ms = now_ms()
        self.nodes[0].process.kill()
        seen_ms = now_ms()
        return Death("SIGKILL", ended_ms, seen_ms, *record.left_by(self.database_url, self.nodes[0].name))

    def term_node(self):
        """A look at what the first one has, then SIGTERM: a moment later it has nothing."""
        seen_ms = now_ms()
        left = record.left_by(self.database_url, self.nodes[0].name)
        ended_ms = now_ms()
        self.nodes[0].process.term()
        return Death("SIGTERM", ended_ms, seen_ms, *left)

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
        return [self.database, self.receiver, *(node.process for node in self.nodes[1:])]

    def stop_feeding_side(self):
        """The nodes first, so that they can settle what is under way; then the receiver, whose log is then whole."""
        for node in self.nodes[1:]:
            node.process.stop()
        self.receiver.stop()
