"""scripts/schemathesis: a private database, one node, a receiver, and requests made from the node's own description."""

import argparse
import collections
import hashlib
import json
import os
import secrets
import subprocess
import sys
import tempfile
import time
import urllib.request

from demo.installation import Installation
from demo.processes import Gone, Processes

from .world import Receiver, World

REQUESTS_MIN = 20_000
SHORT_EXAMPLES = 8
LONG_EXAMPLES = 150
LONG_ROUNDS_MAX = 12
ROUND_S_MAX = 3600

CONFIG = """
[secrets]
master_keys = [{ id = "conformance", key_env = "RAILYARD_MASTER_KEY" }]

[http]
allow_networks = ["127.0.0.1/32"]

# Stopped and let go on by the run; nothing goes out here.
[rails.webhook_unused]
kind = "webhook"
"""


# All checks are on, as they are by default (named on the command line, they would be on for these operations too).
# A wrong item of a batch is no wrong batch: it is answered in its result, and the others are taken.
JUDGEMENT = """
[[operations]]
include-operation-id = ["createJobs", "createJobsAlias", "publishEvents", "createPayments", "sendFeedLines"]
checks.negative_data_rejection.enabled = false
"""


class Place(Installation):
    """The demo's installation with another configuration."""

    def __init__(self, root, binary, folder, processes):
        super().__init__(root, binary, folder, processes)
        self.config = os.path.join(folder, "railyard.toml")
        with open(self.config, "w") as file:
            file.write(CONFIG)
        self.judgement = os.path.join(folder, "schemathesis.toml")
        with open(self.judgement, "w") as file:
            file.write(JUDGEMENT)


def say(text):
    print(f"   {text}", flush=True)


def one_round(args, place, receivers, seed, phases, examples):
    """One run of schemathesis; gives its exit status and the answers by operation and status."""
    answers = os.path.join(place.folder, f"answers-{seed}.json")
    good, failing = receivers
    given = {"api": place.nodes[-1].api, "token": place.admin_token, "receiver": good.url, "failing": failing.url, "seed": seed,
             "answers": answers}
    command = [
        args.schemathesis, "--config-file", place.judgement, "run", place.nodes[-1].api + "/openapi.json", "--phases", phases, "--max-examples",
        str(examples), "--seed", str(seed), "--workers", "1", "--continue-on-failure", "--request-timeout", "30",
        "--suppress-health-check", "all", "--warnings", "off", "--output-sanitize", "true", "--no-color",
        "--header", f"Authorization: Bearer {place.admin_token}",
    ]
    env = {**os.environ, "SCHEMATHESIS_HOOKS": "conformance.hooks", "RAILYARD_CONFORMANCE": json.dumps(given)}
    log = os.path.join(args.report or place.folder, f"schemathesis-{seed}.log")
    with open(log, "wb") as out:
        status = subprocess.run(command, cwd=place.folder, env=env, stdin=subprocess.DEVNULL, stdout=out,
                                stderr=subprocess.STDOUT, timeout=ROUND_S_MAX, check=False).returncode
    if status != 0:
        with open(log, encoding="utf-8", errors="replace") as text:
            lines = text.read().splitlines()
        print("\n".join(lines[-400:]))
    with open(answers) as file:
        return status, collections.Counter(json.load(file))


def judge(document, answers, status, requests_min):
    """What is wrong, in sentences."""
    wrong = []
    by_operation = collections.defaultdict(collections.Counter)
    for key, count in answers.items():
        operation, code = key.split(" ")
        by_operation[operation][int(code)] += count
    print(f"\n   {'operation':<28} requests  answers")
    for item in document["paths"].values():
        for operation in item.values():
            name = operation["operationId"]
            seen = by_operation[name]
            codes = " ".join(f"{code}:{count}" for code, count in sorted(seen.items()))
            say(f"{name:<28} {sum(seen.values()):>8}  {codes}")
            if not any(200 <= code < 300 for code in seen):
                wrong.append(f"{name} never answered 2xx")
            wrong.extend(f"{name} answered {code}" for code in seen if code >= 500)
    total = sum(answers.values())
    say(f"{'all':<28} {total:>8}")
    if status != 0:
        wrong.append(f"schemathesis found something (exit status {status})")
    if total < requests_min:
        wrong.append(f"only {total} requests were made; {requests_min} are asked for")
    return wrong


def run(args, place):
    place.start_database()
    say(place.start_one())
    receivers = Receiver(), Receiver()
    World(place.nodes[-1].api, place.admin_token, receivers[0].url).make_job(groupId="conformance")
    with urllib.request.urlopen(place.nodes[-1].api + "/openapi.json", timeout=30) as answer:
        document = json.load(answer)
    # Schemathesis makes no requests for the document itself.
    answers, status, seed, began = collections.Counter({"getOpenapi 200": 1}), 0, args.seed, time.monotonic()
    while True:
        phases = "examples,coverage,fuzzing" if args.short else "examples,coverage,fuzzing,stateful"
        code, counted = one_round(args, place, receivers, seed, phases, SHORT_EXAMPLES if args.short else LONG_EXAMPLES)
        answers.update(counted)
        status = status or code
        say(f"seed {seed}: {sum(counted.values())} requests, exit status {code}, {time.monotonic() - began:.0f} s")
        enough = sum(answers.values()) >= REQUESTS_MIN or seed - args.seed >= LONG_ROUNDS_MAX
        if args.short or enough or status != 0:
            break
        seed += 1
    place.nodes[-1].process.check()
    return judge(document, answers, status, 1 if args.short else REQUESTS_MIN)


def main():
    parser = argparse.ArgumentParser(prog="scripts/schemathesis", description=__doc__)
    parser.add_argument("--binary", required=True, help=argparse.SUPPRESS)
    parser.add_argument("--schemathesis", required=True, help=argparse.SUPPRESS)
    parser.add_argument("--short", action="store_true", help="a few minutes instead of 20,000 requests")
    parser.add_argument("--seed", type=int, default=1, help="another run of the same kind (default 1)")
    parser.add_argument("--report", help="a folder for the logs of schemathesis")
    args = parser.parse_args()
    if args.report:
        os.makedirs(args.report, exist_ok=True)
    root = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", ".."))
    with tempfile.TemporaryDirectory(prefix="railyard-conformance-") as folder:
        # The database's own user has to get to its data.
        os.chmod(folder, 0o755)
        with Processes() as processes:
            try:
                wrong = run(args, Place(root, args.binary, folder, processes))
            except (Gone, RuntimeError, OSError, subprocess.TimeoutExpired) as error:
                wrong = [str(error)]
    print()
    for sentence in wrong:
        say(f"WRONG: {sentence}")
    if not wrong:
        say("every operation answered 2xx, nothing answered 5xx, every answer was as described")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
