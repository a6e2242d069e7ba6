"""The story, top to bottom: start three nodes, feed, end one half-way, wait for the others, judge, report."""

import argparse
import json
import os
import shutil
import sys
import tempfile
import time

from . import record
from .installation import Installation
from .judge import Bounds, judge
from .processes import Gone, Processes
from .watch import Receiver, teller, wait_until

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
FEED = os.path.join(ROOT, "config", "demo", "payments.ndjson")
# No delivery for so long: something is broken, and waiting longer won't mend it.
STALLED_S = 60
# From half-way on, for so long the demo waits for a moment with calls in flight before a node ends anyhow.
CALM_S = 5


def load_feed(path):
    """({instruction: group} in the order of the file, the longest call's timeout in seconds)"""
    with open(path, encoding="utf-8") as feed:
        jobs = [json.loads(line) for line in feed]
    return {job["idempotencyKey"]: job["groupId"] for job in jobs}, max(job["timeoutSeconds"] for job in jobs)


class Run:
    """One run of the demo and what is known of it so far."""

    def __init__(self, installation, receiver, tell, messages, end_node):
        self.installation = installation
        self.receiver = receiver
        self.tell = tell
        self.messages = messages
        self.end_node = end_node
        self.death = None
        self.last = (0, time.monotonic())

    def look(self, note):
        """The receiver's report, shown; raises if nothing moves any more."""
        feeder = self.installation.feeder
        if feeder.process.poll():
            feeder.check()
        report = self.receiver.report()
        self.tell.progress(report["accepted"], self.messages, note)
        if report["signature_failures"]:
            raise Gone(f"the receiver found fault with a request: {report['samples'][0]}")
        if report["accepted"] != self.last[0]:
            self.last = (report["accepted"], time.monotonic())
        elif time.monotonic() - self.last[1] > STALLED_S:
            raise TimeoutError(f"nothing was delivered for {STALLED_S} s, {report['accepted']} of {self.messages} are")
        return report

    def end_one_half_way(self):
        """One node ends as soon as half is delivered, at a moment with calls in flight if there is one."""
        half = self.messages // 2
        others = self.installation.steady()
        wait_until(lambda: self.look("")["accepted"] >= half, others, 600, "half of the deliveries")
        calm_until = time.monotonic() + CALM_S
        while self.receiver.report()["in_flight"] == 0 and time.monotonic() < calm_until:
            pass
        self.death = self.end_node()

    def through(self):
        """End one, wait for the others. Gives what broke off the run, so that what there is can still be judged."""
        try:
            self.end_one_half_way()
            death = self.death
            self.tell.say(f"{death.how} to one: {len(death.called)} of its calls were in flight, {len(death.idle)} of its "
                          f"groups waited, {self.last[0]} of {self.messages} delivered")
            self.finish()
        except (Gone, TimeoutError) as error:
            return [str(error)]
        return []

    def finish(self):
        """Waits for the rest."""
        feeder, others = self.installation.feeder, self.installation.steady()
        wait_until(lambda: self.look("")["accepted"] >= self.messages, others, 900, "all deliveries")
        wait_until(lambda: not feeder.running(), others, 60, "the end of jobs create")
        if feeder.process.returncode:
            feeder.check()
        wait_until(lambda: record.completed(self.installation.database_url) >= self.messages, others, 60,
                   "the last outcomes on record")
        if self.death.how == "SIGTERM":
            asked = self.installation.nodes[0].process
            wait_until(lambda: not asked.running(), others, 60, "the end of the node that was asked to end")
            asked.check_success()


def play(options, tell, processes, folder):
    """Gives (report, problems, run)."""
    feed, timeout_s = load_feed(FEED)
    installation = Installation(ROOT, options.binary, folder, processes)
    end_node, how = (installation.term_node, "SIGTERM to") if options.term else (installation.kill_node, "kill -9 of")
    tell.step("A private PostgreSQL, migrated")
    tell.say(installation.start_database())
    tell.step("Three nodes and a receiver that verifies everything and misbehaves now and then")
    target = installation.start_receiver(FEED, options.seed)
    tell.say(f"{target}, seed {options.seed}: 5xx, 429, slow answers, resets")
    tell.say(installation.start_nodes())
    installation.create_credentials()
    run = Run(installation, Receiver(target), tell, len(feed), end_node)
    tell.step(f"{len(feed)} payments of {len(set(feed.values()))} debtors; {how} one node half-way")
    installation.start_feeding(FEED, target)
    broken = run.through()
    tell.step("The receiver's log against the database's record")
    installation.stop_feeding_side()
    with open(installation.receipts, encoding="utf-8") as log:
        receipts = [json.loads(line) for line in log]
    jobs = record.jobs(installation.database_url)
    bounds = Bounds(installation.lease_s(), timeout_s)
    report, problems = judge(feed, receipts, jobs, run.death, len(installation.nodes), bounds, installation.limit())
    return report, broken + problems, run


def print_report(report, problems, run, seconds, tell):
    latency = report["latency_ms"]
    idle_ms = report["idle_takeover_ms"]
    error_ms = report["rate_error_ms"]
    waiting = "no group waited without a call in flight" if idle_ms is None else f"what waited went on within {idle_ms} ms"
    rows = [
        ("messages", f"{report['messages']} in {report['groups']} groups"),
        ("delivered", report["delivered"]),
        ("lost", report["lost"]),
        ("order violations", report["order_violations"]),
        ("signature failures", report["signature_failures"]),
        ("duplicates", f"{report['duplicates_marked']} marked in the record, {report['duplicates_unmarked']} unmarked"),
        ("retries", report["retries"]),
        ("calls in a second", f"{report['rate_most']} at most, {report['rate_limit']} allowed; measuring error "
                              f"{error_ms['p50']:.0f} ms, at worst {error_ms['max']:.0f} ms, taken off"),
        ("rate violations", report["rate_violations"]),
        ("per second", f"{report['per_second']}, the outage included"),
        ("created to received", f"p50 {latency['p50']} ms, p99 {latency['p99']} ms, backlog and outage included"),
        (f"{report['ended_by']} to one", f"{waiting}; groups with a call in flight went on within {report['takeover_ms']} ms"),
        ("whole run", f"{seconds:.0f} s"),
    ]
    for name, value in rows:
        tell.say(f"{name:<20} {value}")
    for problem in problems:
        tell.say(f"FAILED: {problem}")
    if not problems:
        tell.say("everything holds")


def main():
    parser = argparse.ArgumentParser(prog="scripts/demo", description="See scripts/demo --help.")
    parser.add_argument("--binary", required=True)
    parser.add_argument("--json", action="store_true", help="the report as one JSON object on the last line")
    parser.add_argument("--seed", type=int, default=1, help="of the receiver's misbehaviour (default 1)")
    parser.add_argument("--term", action="store_true", help="ask the node to end (SIGTERM) instead of killing it")
    parser.add_argument("--keep", action="store_true", help="keep the logs, and say where they are")
    options = parser.parse_args()
    tell, began = teller(options.json), time.monotonic()
    folder = tempfile.mkdtemp(prefix="railyard-demo-")
    # The database's unprivileged user passes through to its own folder.
    os.chmod(folder, 0o711)
    try:
        with Processes() as processes:
            report, problems, run = play(options, tell, processes, folder)
    except (Gone, TimeoutError, record.Unreadable) as error:
        tell.say(f"FAILED: {error}")
        return 1
    except KeyboardInterrupt:
        return 130
    finally:
        if options.keep:
            tell.say(f"logs: {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    print_report(report, problems, run, time.monotonic() - began, tell)
    if options.json:
        print(json.dumps(report))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
